"""Traces: what spans say of a turn, and how a collector gets them over OTLP; a dead one does no harm."""

import gzip
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from brain_servers import Player, Process, brain_served, post
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from turn_helpers import echo
from turn_reports import BEGAN, a_call, a_pass, a_report

from brain import Registry, install_command
from brain.events import Usage
from brain.telemetry.tracing import SpanData, Tracer, call_spans, pass_spans, turn_span

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_the_span_of_run_turn() -> None:
    assert turn_span(a_report(usage=Usage(200, 40, 90, False))) == SpanData(
        "invoke_agent brain",
        0,
        1000,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "brain",
            "gen_ai.conversation.id": "conv1",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.provider.name": "ollama",
            "gen_ai.request.model": "llama3",
            "gen_ai.usage.input_tokens": 200,
            "gen_ai.usage.output_tokens": 40,
            "gen_ai.usage.cache_read.input_tokens": 90,
            "brain.turn.id": "t1",
            "brain.wire": "native",
        },
        None,
    )


def test_the_spans_of_passes() -> None:
    passes = [a_pass(1, 0, 300), a_pass(2, 400, None, first_token_ms=None, finish=None, error="model_failed")]
    one, other = pass_spans(a_report(passes))
    assert one == SpanData(
        "chat llama3",
        0,
        300,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": "conv1",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.provider.name": "ollama",
            "gen_ai.request.model": "llama3",
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 20,
            "gen_ai.usage.cache_read.input_tokens": None,
        },
        None,
        first_token_ms=120,
        is_remote=True,
    )
    assert (other.start_ms, other.end_ms, other.error, other.first_token_ms) == (400, 1000, "model_failed", None)
    assert other.attributes["gen_ai.response.finish_reasons"] is None


@pytest.mark.parametrize(
    ("model", "provider", "name", "remote"),
    [
        ("openai:gpt-4o", "openai", "gpt-4o", True),
        ("ollama:llama3:8b", "ollama", "llama3:8b", True),
        ("builtin", "brain", "builtin", False),
        ("script:demo.jsonl", "brain", "script:demo.jsonl", False),
    ],
)
def test_the_provider_of_a_model(model: str, provider: str, name: str, remote: bool) -> None:
    (span,) = pass_spans(a_report(model=model))
    assert span.attributes["gen_ai.provider.name"] == provider
    assert span.attributes["gen_ai.request.model"] == name
    assert (span.name, span.is_remote) == (f"chat {name}", remote)


def test_the_spans_of_calls() -> None:
    calls = [
        a_call("weather", approval="approved"),
        a_call("weather", cached=True, id="c2", ms=0),
        a_call("ocr", "timeout", id="c3", ms=5000),
        a_call("made_up", "unknown", id="c4", ms=0),
        a_call("tool", None, by="client", ms=None),
        a_call("weather", None, id="c5", ms=None),
    ]
    spans = [*call_spans(a_report(calls=calls), {"weather", "ocr"})]
    assert spans[0] == SpanData(
        "execute_tool weather",
        300,
        340,
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "weather",
            "gen_ai.tool.call.id": "c1",
            "brain.cached": None,
            "brain.approval": "approved",
        },
        None,
    )
    assert spans[1].attributes["brain.cached"] is True
    assert [(one.name, one.end_ms, one.error) for one in spans[2:]] == [
        ("execute_tool ocr", 5300, "timeout"),
        ("execute_tool ?", 300, "unknown"),
        ("execute_tool weather", 1000, None),
    ]


# What a collector receives


class Collector(ThreadingHTTPServer):
    """Receives spans over OTLP/HTTP, as a collector does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.arrived = threading.Condition()
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[Mapping[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self) -> dict[str, Any]:
        return attributes(self.requests[0].resource_spans[0].resource)

    def wait_for(self, count: int) -> None:
        """Wait until so many spans have arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.spans) >= count, 50)

    def named(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        with self.server.arrived:
            self.server.requests.append(ExportTraceServiceRequest.FromString(body))
            self.server.arrived.notify_all()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


def attributes(span: Any) -> dict[str, Any]:
    def value(found: Any) -> Any:
        kind = found.WhichOneof("value")
        return [value(one) for one in found.array_value.values] if kind == "array_value" else getattr(found, kind)

    return {one.key: value(one.value) for one in span.attributes}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        yield server
        server.shutdown()


def run_turn(**headers: str) -> str:
    """One turn with one call in a server that is stopped then: its ID."""
    registry = Registry()
    registry.add(echo)
    with brain_served(registry, TRACES="otlp") as server:
        server.play(Player(['I ask. SPECIALIST_REQUEST[echo:{"text":"a"}]'], ["Fine."], name="ollama:llama3"))
        answer = post(server.url, json={"message": "hi", "conversation_id": "conv7"}, headers=headers)
        assert answer.names[-1] == "done"
        return str(answer.events[0].data["turn_id"])


def test_a_collector_receives_the_turn_its_passes_and_its_calls(collector: Collector) -> None:
    turn_id = run_turn()
    turn = collector.named("invoke_agent brain")
    call = collector.named("execute_tool echo")
    first, second = sorted(
        (span for span in collector.spans if span.name == "chat llama3"), key=lambda span: span.start_time_unix_nano
    )
    assert len(collector.spans) == 4
    assert len({span.trace_id for span in collector.spans}) == 1
    assert turn.parent_span_id == b""
    assert {span.parent_span_id for span in (call, first, second)} == {turn.span_id}
    assert (turn.kind, call.kind, first.kind) == (
        Span.SPAN_KIND_INTERNAL,
        Span.SPAN_KIND_INTERNAL,
        Span.SPAN_KIND_CLIENT,
    )
    for span in collector.spans:
        assert turn.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= turn.end_time_unix_nano
        assert span.status.code == 0
    assert turn.start_time_unix_nano <= first.start_time_unix_nano <= call.start_time_unix_nano
    assert [event.name for event in first.events] == ["first_token"]
    assert attributes(turn)["brain.turn.id"] == turn_id
    assert attributes(turn)["gen_ai.conversation.id"] == "conv7"
    assert attributes(turn)["gen_ai.response.finish_reasons"] == ["stop"]
    assert attributes(call) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.call.id": "c1",
    }
    assert collector.resource["service.name"] == "brain"
    assert collector.resource["service.version"]


def test_the_standard_variables_are_used(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    run_turn()
    assert collector.resource["service.name"] == "mine"
    assert collector.resource["deployment.environment.name"] == "test"
    assert collector.headers[0]["x-tenant"] == "seven"
    assert len(collector.spans) == 4


def test_spans_are_exported_while_the_server_runs(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "30")
    with brain_served(TRACES="otlp") as server:
        server.play(Player(["Hello."]))
        post(server.url, json={"message": "hi"})
        collector.wait_for(2)


def test_a_failure_is_a_status(collector: Collector) -> None:
    with brain_served(TRACES="otlp") as server:
        server.play(Player(["SPECIALIST_REQUEST[nothing]"], [RuntimeError("secret")]))
        post(server.url, json={"message": "hi"})
    found = {
        span.name: (span.status.code, span.status.message, attributes(span).get("error.type"))
        for span in collector.spans
        if span.status.code
    }
    assert found == {
        "invoke_agent brain": (2, "", "internal"),
        "chat player": (2, "", "internal"),
        "execute_tool ?": (2, "", "unknown"),
    }
    assert b"secret" not in b"".join(request.SerializeToString() for request in collector.requests)


def test_a_request_can_name_the_parent(collector: Collector) -> None:
    run_turn(traceparent=f"00-{TRACE}-{PARENT}-01")
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert collector.named("invoke_agent brain").parent_span_id.hex() == PARENT


def test_a_parent_that_is_not_sampled_leaves_nothing(collector: Collector) -> None:
    run_turn(traceparent=f"00-{TRACE}-{PARENT}-00")
    assert collector.spans == []


@pytest.mark.parametrize(
    "header",
    [
        "",
        "x",
        f"00-{TRACE}-{PARENT}",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}g-{PARENT}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"01-{TRACE}-{PARENT}-01-{'x' * 600}",
        "\xe4" * 55,
    ],
    ids=["empty", "short", "no flags", "no trace", "no parent", "no hex", "no version", "long", "no ASCII"],
)
def test_a_bad_parent_is_ignored(collector: Collector, header: str) -> None:
    run_turn(traceparent=header.encode("latin-1"))  # type: ignore[arg-type]
    assert collector.named("invoke_agent brain").parent_span_id == b""


# When no collector answers


@contextmanager
def silent() -> Iterator[str]:
    """A collector that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def dead() -> Iterator[str]:
    """A collector that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(("collector", "at_least"), [(dead, 1), (silent, 0)])
def test_a_collector_that_does_not_answer_does_no_harm(
    collector: Any, at_least: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setattr("brain.telemetry.tracing._interval._next", 0.0)
    with collector() as url, caplog.at_level(logging.INFO, "opentelemetry"):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        with brain_served(TRACES="otlp") as server:
            server.play(Player(["Hello."]))
            for _ in range(20):
                answer = post(server.url, json={"message": "hi"})
                assert answer.names[-1] == "done"
    logged = [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert at_least <= len(logged) <= 1


# What stops the start

HIDDEN = "import sys; sys.modules['opentelemetry.sdk'] = None; from brain.cli.main import main; sys.exit(main())"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_the_extra_the_start_stops(workers: str) -> None:
    command = [sys.executable, "-c", HIDDEN, "serve", "--model", "builtin", "--port", "0", "--workers", workers]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"BRAIN_TRACES": "otlp", "PATH": ""}, timeout=30
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"brain: BRAIN_TRACES=otlp needs OpenTelemetry. Try: {install_command('otel')}\n"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_bad_variable_stops_the_start(workers: str) -> None:
    env = {"BRAIN_TRACES": "otlp", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9999"}
    with Process("serve", "--model", "builtin", "--port", "0", "--workers", workers, env=env) as brain:
        code, out, err = brain.end()
    assert (code, out) == (2, "")
    assert "OTEL_" in err
    assert "max_export_batch_size" in err
    assert len(err.splitlines()) == 1


def test_nothing_is_loaded_unless_traces_are_on() -> None:
    program = "import sys, brain.server.app; brain.server.app.create_app(); print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_traces_on_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    with brain_served(TRACES="console") as server:
        server.play(Player(["Hello."]))
        post(server.url, json={"message": "hi"})
    found = json.loads("[" + capsys.readouterr().out.replace("\n}\n{", "\n},\n{") + "]")
    assert [span["name"] for span in found] == ["chat player", "invoke_agent brain"]


def test_the_times_of_spans(monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    traces = Tracer("otlp", ())
    traces.record(a_report([a_pass(1, 10, 900)]))
    collector.wait_for(2)
    start = int(BEGAN.timestamp()) * 1_000_000_000 + 250_000_000
    turn, chat = collector.named("invoke_agent brain"), collector.named("chat llama3")
    assert (turn.start_time_unix_nano, turn.end_time_unix_nano) == (start, start + 1_000_000_000)
    assert (chat.start_time_unix_nano, chat.end_time_unix_nano) == (start + 10_000_000, start + 900_000_000)
    assert chat.events[0].time_unix_nano == start + 120_000_000
