"""Traces turns with OpenTelemetry's conventions for generative AI; the only module that imports opentelemetry.

The spans of a turn are created when it ends, from its report: one for the turn, one per model request, one per call.
They contain no text from the user, the model or a specialist.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from brain.errors import SettingsError
from brain.events import StopReason
from brain.installation import install_command
from brain.messages import Exchange

CLOSING_SECONDS = 0.9
"""Time limit for exporting the last spans."""
WARNING_SECONDS = 600.0
"""Interval of warnings about an unreachable collector."""
TRACEPARENT_LENGTH = 512

_EXPORTER_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
_MILLISECOND = 1_000_000

Where = Literal["console", "otlp"]


@dataclass(frozen=True, slots=True)
class SpanData:
    """One span; times in milliseconds since the start of the turn. Attributes with the value None are omitted."""

    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Any]
    error: str | None
    first_token_ms: int | None = None
    is_remote: bool = False


class Tracer:
    """Exports the spans of one application, separate from other applications in the same process.

    Args:
        where: the exporter; the OTEL_ environment variables configure it.
        specialists: known names; calls of other names are named `?`.

    Raises:
        SettingsError: OpenTelemetry is not installed or rejects its variables.
    """

    def __init__(self, where: Where, specialists: Container[str]) -> None:
        processor = make_processor(where)
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        brain_version = version("brain-sse")
        configured = OTELResourceDetector().detect().attributes
        resource = Resource.create({"service.name": "brain", "service.version": brain_version, **configured})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("brain", brain_version)
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._no_context = Context()
        self._specialists = specialists
        for name in _EXPORTER_LOGGERS:
            logging.getLogger(name).addFilter(_interval)

    def record(self, exchange: Exchange, conversation_id: str, traceparent: str = "") -> None:
        """Export the spans of a turn; `traceparent` is the header of its request."""
        assert exchange.started is not None
        start = int(exchange.started.timestamp() * 1000) * _MILLISECOND
        carrier = {"traceparent": traceparent} if len(traceparent) <= TRACEPARENT_LENGTH else {}
        data = turn_span(exchange, conversation_id)
        turn = self._start_span(data, start, self._propagator.extract(carrier, self._no_context))
        context = self._trace.set_span_in_context(turn)
        for inner in (*pass_spans(exchange, conversation_id), *call_spans(exchange, self._specialists)):
            self._start_span(inner, start, context).end(start + inner.end_ms * _MILLISECOND)
        turn.end(start + data.end_ms * _MILLISECOND)

    def _start_span(self, data: SpanData, start: int, context: Any) -> Any:
        kind = self._trace.SpanKind.CLIENT if data.is_remote else self._trace.SpanKind.INTERNAL
        attributes = {key: value for key, value in data.attributes.items() if value is not None}
        span = self._tracer.start_span(
            data.name, context, kind, attributes, start_time=start + data.start_ms * _MILLISECOND
        )
        if data.first_token_ms is not None:
            span.add_event("first_token", timestamp=start + data.first_token_ms * _MILLISECOND)
        if data.error is not None:
            span.set_attribute("error.type", data.error)
            span.set_status(self._trace.StatusCode.ERROR)
        return span

    async def close(self) -> None:
        """Export the last spans within `CLOSING_SECONDS`."""
        last = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        last.start()
        await asyncio.to_thread(last.join, CLOSING_SECONDS)


def make_processor(where: Where) -> Any:
    """Create a processor that exports spans in the background. The caller must shut it down."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ImportError:
        raise SettingsError(f"BRAIN_TRACES={where} needs OpenTelemetry.", install_command("otel")) from None
    try:
        return BatchSpanProcessor(ConsoleSpanExporter(out=sys.stdout) if where == "console" else OTLPSpanExporter())
    except (ValueError, RuntimeError) as error:
        advice = "correct the OTEL_ variables"
        raise SettingsError(f"Cannot use BRAIN_TRACES={where} with the OTEL_ variables: {error}.", advice) from None


def turn_span(exchange: Exchange, conversation_id: str) -> SpanData:
    usage = exchange.total_usage
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "brain",
        "gen_ai.conversation.id": conversation_id,
        "gen_ai.response.finish_reasons": _finish_reasons(exchange.stop_reason),
        **_model(exchange.model),
        **_tokens(usage.prompt_tokens, usage.completion_tokens, usage.reused_tokens),
        "brain.turn.id": exchange.turn_id,
        "brain.wire": exchange.wire,
    }
    return SpanData("invoke_agent brain", 0, exchange.duration_ms, attributes, exchange.error_code)


def pass_spans(exchange: Exchange, conversation_id: str) -> Iterator[SpanData]:
    """Yield the spans of model requests."""
    for one in exchange.passes:
        model = _model(one.model or exchange.model)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": conversation_id,
            "gen_ai.response.finish_reasons": None if one.error else _finish_reasons(one.finish),
            **model,
            **_tokens(one.prompt_tokens, one.completion_tokens, one.reused_tokens),
        }
        ended = exchange.duration_ms if one.ended_ms is None else one.ended_ms
        remote = model["gen_ai.provider.name"] != "brain"
        name = f"chat {model['gen_ai.request.model']}"
        yield SpanData(name, one.began_ms, ended, attributes, one.error, one.first_token_ms, remote)


def call_spans(exchange: Exchange, specialists: Container[str]) -> Iterator[SpanData]:
    """Yield the spans of calls, except calls of client tools."""
    for call in exchange.calls:
        if call.by == "client":
            continue
        name = call.name if call.name in specialists else "?"
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call.id,
            "brain.cached": call.cached or None,
            "brain.approval": call.approval,
        }
        error = None if call.outcome == "ok" else call.outcome
        ended = exchange.duration_ms if call.ms is None else call.began_ms + call.ms
        yield SpanData(f"execute_tool {name}", call.began_ms, ended, attributes, error)


def _model(name: str) -> dict[str, str]:
    kind, _, rest = name.partition(":")
    served = kind in ("ollama", "openai")
    return {"gen_ai.provider.name": kind if served else "brain", "gen_ai.request.model": rest if served else name}


def _tokens(prompt: int, completion: int, reused: int | None) -> dict[str, int | None]:
    return {
        "gen_ai.usage.input_tokens": prompt,
        "gen_ai.usage.output_tokens": completion,
        "gen_ai.usage.cache_read.input_tokens": reused,
    }


def _finish_reasons(reason: StopReason | None) -> list[str] | None:
    return None if reason is None else ["stop" if reason == "complete" else reason]


class _Interval(logging.Filter):
    """Passes one record per `WARNING_SECONDS`."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + WARNING_SECONDS
        return True


_interval = _Interval()
