"""Traces: the spans of a turn, what a collector receives over OTLP, and collectors that do not respond."""

import asyncio
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
from brain_servers import brain_served, post
from ended_turns import BEGAN, a_call, a_pass, an_exchange
from limits import WAIT_SECONDS
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from turn_helpers import Player, echo

from brain import Registry, install_command
from brain.telemetry.tracing import Tracer, call_spans, pass_spans

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


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
    (span,) = pass_spans(an_exchange(model=model), "conv1")
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
    spans = [*call_spans(an_exchange(calls=calls), {"weather", "ocr"})]
    assert [one.attributes["brain.cached"] for one in spans[:2]] == [None, True]
    assert [one.attributes["brain.approval"] for one in spans[:2]] == ["approved", None]
    assert [(one.name, one.end_ms, one.error) for one in spans] == [
        ("execute_tool weather", 340, None),
        ("execute_tool weather", 300, None),
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
        """Wait until this number of spans has arrived."""
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


def test_a_collector_receives_the_turn_its_passes_and_its_calls(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    registry = Registry()
    registry.add(echo)
    with brain_served(registry, TRACES="otlp") as server:
        server.play(Player(['I ask. SPECIALIST_REQUEST[echo:{"text":"a"}]'], ["Fine."], name="ollama:llama3"))
        answer = post(server.url, json={"message": "hi", "conversation_id": "conv7"}, headers=HEADER)
    turn_id = answer.events[0].data["turn_id"]
    turn = collector.named("invoke_agent brain")
    call = collector.named("execute_tool echo")
    first, second = sorted(
        (span for span in collector.spans if span.name == "chat llama3"), key=lambda span: span.start_time_unix_nano
    )
    assert len(collector.spans) == 4
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert turn.parent_span_id.hex() == PARENT
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
    model = {
        "gen_ai.conversation.id": "conv7",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.provider.name": "ollama",
        "gen_ai.request.model": "llama3",
    }
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "brain"}
    turn_fields, pass_fields = without_usage(turn), without_usage(second)
    assert turn_fields == {**model, **agent, "brain.turn.id": turn_id, "brain.wire": "native"}
    assert pass_fields == {**model, "gen_ai.operation.name": "chat"}
    assert attributes(call) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.call.id": "c1",
    }
    names = ("service.name", "deployment.environment.name")
    assert [collector.resource[name] for name in names] == ["mine", "test"]
    assert collector.resource["service.version"]
    assert collector.headers[0]["x-tenant"] == "seven"


def without_usage(span: Span) -> dict[str, Any]:
    """The attributes except token counts, all of which are present."""
    found = attributes(span)
    assert found.pop("gen_ai.usage.input_tokens") > 0
    assert found.pop("gen_ai.usage.output_tokens") > 0
    return found


@pytest.mark.parametrize(
    ("header", "parent"),
    [
        (f"00-{TRACE}-{PARENT}-01", PARENT),
        (f"00-{TRACE}-{PARENT}-00", None),  # not sampled
        ("", ""),
        ("x", ""),
        (f"00-{TRACE}-{PARENT}", ""),
        (f"00-{'0' * 32}-{PARENT}-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"00-{TRACE.upper()}g-{PARENT}-01", ""),
        (f"ff-{TRACE}-{PARENT}-01", ""),
        (f"01-{TRACE}-{PARENT}-01-{'x' * 600}", ""),
        ("\xe4" * 55, ""),
    ],
)
def test_a_request_can_name_the_parent(collector: Collector, header: str, parent: str | None) -> None:
    tracer = Tracer("otlp", ())
    tracer.record(an_exchange(), "conv1", header)
    asyncio.run(tracer.close())
    assert [span.parent_span_id.hex() for span in collector.spans if "agent" in span.name] == (
        [] if parent is None else [parent]
    )


def test_spans_are_exported_in_the_background_with_the_times_of_the_turn(
    monkeypatch: pytest.MonkeyPatch, collector: Collector
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    Tracer("otlp", ()).record(an_exchange([a_pass(1, 10, 900)]), "conv1")
    collector.wait_for(2)
    start = int(BEGAN.timestamp()) * 1_000_000_000 + 250_000_000
    turn, chat = collector.named("invoke_agent brain"), collector.named("chat llama3")
    assert (turn.start_time_unix_nano, turn.end_time_unix_nano) == (start, start + 1_000_000_000)
    assert (chat.start_time_unix_nano, chat.end_time_unix_nano) == (start + 10_000_000, start + 900_000_000)
    assert chat.events[0].time_unix_nano == start + 120_000_000


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

MAIN = "from brain.cli.main import main; raise SystemExit(main())"
WITHOUT_EXTRA = f"import sys; sys.modules['opentelemetry.sdk'] = None; {MAIN}"


@pytest.mark.parametrize(
    ("env", "part"),
    [
        ({}, install_command("otel")),
        ({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9999"}, "max_export_batch_size"),
    ],
)
def test_traces_that_cannot_be_exported_stop_the_start_with_one_line(env: dict[str, str], part: str) -> None:
    program = MAIN if env else WITHOUT_EXTRA
    command = [sys.executable, "-c", program, "serve", "--model", "builtin", "--port", "0", "--workers", "2"]
    env = {"BRAIN_TRACES": "otlp", "PATH": "", **env}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stdout, part in done.stderr) == (2, "", True)
    assert len(done.stderr.splitlines()) == 1


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
