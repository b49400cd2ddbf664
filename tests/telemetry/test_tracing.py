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
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from reports import BEGAN, a_call, a_pass, a_report
from serving import Player, Process, brain_served, post

from brain import Registry, specialist
from brain.errors import SettingsError
from brain.events import Usage
from brain.settings import read
from brain.telemetry.tracing import SpanData, Tracer, call_spans, pass_spans, turn_span

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


# What is told


def test_the_span_of_a_turn() -> None:
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
def test_who_made_the_model(model: str, provider: str, name: str, remote: bool) -> None:
    (told,) = pass_spans(a_report(model=model))
    assert told.attributes["gen_ai.provider.name"] == provider
    assert told.attributes["gen_ai.request.model"] == name
    assert (told.name, told.is_remote) == (f"chat {name}", remote)


def test_the_spans_of_calls() -> None:
    calls = [
        a_call("weather", approval="approved"),
        a_call("weather", cached=True, id="c2", ms=0),
        a_call("ocr", "timeout", id="c3", ms=5000),
        a_call("made_up", "unknown", id="c4", ms=0),
        a_call("tool", None, by="client", ms=None),
        a_call("weather", None, id="c5", ms=None),
    ]
    told = [*call_spans(a_report(calls=calls), {"weather", "ocr"})]
    assert told[0] == SpanData(
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
    assert told[1].attributes["brain.cached"] is True
    assert [(one.name, one.end_ms, one.error) for one in told[2:]] == [
        ("execute_tool ocr", 5300, "timeout"),
        ("execute_tool ?", 300, "unknown"),
        ("execute_tool weather", 1000, None),
    ]


# What a collector gets


class Collector(ThreadingHTTPServer):
    """Takes spans over OTLP/HTTP, as a collector does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
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
            assert self.arrived.wait_for(lambda: len(self.spans) >= count, 20)

    def named(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found


class _Taking(BaseHTTPRequestHandler):
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
        """Says nothing."""


def attributes(told: Any) -> dict[str, Any]:
    def value(found: Any) -> Any:
        kind = found.WhichOneof("value")
        return [value(one) for one in found.array_value.values] if kind == "array_value" else getattr(found, kind)

    return {one.key: value(one.value) for one in told.attributes}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        yield server
        server.shutdown()


@specialist(timeout=3)
async def weather(city: str) -> str:
    """Weather for a city."""
    return f"Sunny in {city}."


def a_turn(**headers: str) -> str:
    """One turn with one call in a server that is stopped then: its ID."""
    registry = Registry()
    registry.add(weather)
    with brain_served(registry, TRACES="otlp") as server:
        server.play(Player(['I ask. SPECIALIST_REQUEST[weather:{"city":"Bern"}]'], ["Fine."], name="ollama:llama3"))
        answer = post(server.url, json={"message": "hi", "conversation_id": "conv7"}, headers=headers)
        assert answer.names[-1] == "done"
        return str(answer.events[0].data["turn_id"])


def test_a_collector_gets_the_turn_its_passes_and_its_calls(collector: Collector) -> None:
    turn_id = a_turn()
    turn = collector.named("invoke_agent brain")
    call = collector.named("execute_tool weather")
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
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": "c1",
    }
    assert collector.resource["service.name"] == "brain"
    assert collector.resource["service.version"]


def test_the_standard_variables_are_heard(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    a_turn()
    assert collector.resource["service.name"] == "mine"
    assert collector.resource["deployment.environment.name"] == "test"
    assert collector.headers[0]["x-tenant"] == "seven"
    assert len(collector.spans) == 4


def test_spans_come_while_the_server_runs(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_who_asks_can_be_the_parent(collector: Collector) -> None:
    a_turn(traceparent=f"00-{TRACE}-{PARENT}-01")
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert collector.named("invoke_agent brain").parent_span_id.hex() == PARENT


def test_a_parent_that_is_not_sampled_leaves_nothing(collector: Collector) -> None:
    a_turn(traceparent=f"00-{TRACE}-{PARENT}-00")
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
def test_another_parent_is_none(collector: Collector, header: str) -> None:
    a_turn(traceparent=header.encode("latin-1"))  # type: ignore[arg-type]
    assert collector.named("invoke_agent brain").parent_span_id == b""


# When nobody takes them


@contextmanager
def silent() -> Iterator[str]:
    """A collector that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def dead() -> Iterator[str]:
    """A collector that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(("there", "said_at_least"), [(dead, 1), (silent, 0)])
def test_a_collector_that_does_not_answer_does_no_harm(
    there: Any, said_at_least: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setattr("brain.telemetry.tracing._interval._next", 0.0)
    with there() as url, caplog.at_level(logging.INFO, "opentelemetry"):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        with brain_served(TRACES="otlp") as server:
            server.play(Player(["Hello."]))
            for _ in range(20):
                answer = post(server.url, json={"message": "hi"})
                assert answer.names[-1] == "done"
    said = [record for record in caplog.records if record.name.startswith("opentelemetry")]
    assert said_at_least <= len(said) <= 1


# What stops the start

HIDDEN = "import sys; sys.modules['opentelemetry.sdk'] = None; from brain.cli.main import main; sys.exit(main())"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_the_extra_the_start_stops_and_says_how_to_install_it(workers: str) -> None:
    command = [sys.executable, "-c", HIDDEN, "serve", "--model", "builtin", "--port", "0", "--workers", workers]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"BRAIN_TRACES": "otlp", "PATH": ""}, timeout=30
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "brain: TRACES=otlp needs OpenTelemetry: pip install 'brain-sse[otel]'.\n"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_variable_that_opentelemetry_refuses_stops_the_start(workers: str) -> None:
    env = {"BRAIN_TRACES": "otlp", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9999"}
    with Process("serve", "--model", "builtin", "--port", "0", "--workers", workers, env=env) as brain:
        code, out, err = brain.end()
    assert (code, out) == (1, "")
    assert err.startswith("brain: TRACES=otlp: what the OTEL_ variables say is not allowed: ")
    assert "max_export_batch_size" in err
    assert len(err.splitlines()) == 1


def test_where_traces_can_go() -> None:
    with pytest.raises(
        SettingsError, match=r"^BRAIN_TRACES='on' is not allowed\. Allowed: `off`, `otlp` or `console`\.$"
    ):
        read({"BRAIN_TRACES": "on"})
    assert read({}).traces == "off"


def test_switched_off_nothing_of_it_is_loaded() -> None:
    program = "import sys, brain.server.app; brain.server.app.create_app(); print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_terminal_gets_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    with brain_served(TRACES="console") as server:
        server.play(Player(["Hello."]))
        post(server.url, json={"message": "hi"})
    found = json.loads("[" + capsys.readouterr().out.replace("\n}\n{", "\n},\n{") + "]")
    assert [span["name"] for span in found] == ["chat player", "invoke_agent brain"]


def test_a_turn_is_as_old_as_it_says(monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    traces = Tracer("otlp", ())
    traces.record(a_report([a_pass(1, 10, 900)]))
    collector.wait_for(2)
    start = int(BEGAN.timestamp()) * 1_000_000_000 + 250_000_000
    turn, chat = collector.named("invoke_agent brain"), collector.named("chat llama3")
    assert (turn.start_time_unix_nano, turn.end_time_unix_nano) == (start, start + 1_000_000_000)
    assert (chat.start_time_unix_nano, chat.end_time_unix_nano) == (start + 10_000_000, start + 900_000_000)
    assert chat.events[0].time_unix_nano == start + 120_000_000
