"""Tells of turns in spans of OpenTelemetry, by its conventions for generative AI; the only importer of it.

The spans of a turn are made when it ended, from its report: the turn, one for each request to a model, one for each
call. No word of the user, the model or a specialist stands in them.
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
from brain.messages import TurnReport

CLOSING_SECONDS = 0.9
"""How long the last spans are waited for."""
COMPLAINT_SECONDS = 600.0
"""That a collector cannot be reached is said so often."""
TRACEPARENT_MOST = 512

_COMPLAIN = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
_MILLISECOND = 1_000_000

Where = Literal["console", "otlp"]


@dataclass(frozen=True, slots=True)
class Told:
    """One span: what it is called and says, and when, in milliseconds since the turn began. None is not said."""

    name: str
    began_ms: int
    ended_ms: int
    attributes: Mapping[str, Any]
    error: str | None
    first_token_ms: int | None = None
    remote: bool = False


class Traces:
    """The spans of one application. It shares nothing of OpenTelemetry with others in the same process.

    Args:
        where: the spans go; all else there is to choose, the OTEL_ variables of the environment say.
        specialists: the names that calls go by; all others are `?`.

    Raises:
        SettingsError: when OpenTelemetry is not installed, or refuses what its variables say.
    """

    def __init__(self, where: Where, specialists: Container[str]) -> None:
        processor = processor_of(where)
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        ours = version("brain-sse")
        said = OTELResourceDetector().detect().attributes
        resource = Resource.create({"service.name": "brain", "service.version": ours, **said})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("brain", ours)
        self._trace = trace
        self._parents = TraceContextTextMapPropagator()
        self._nowhere = Context()
        self._specialists = specialists
        for name in _COMPLAIN:
            logging.getLogger(name).addFilter(_seldom)

    def ended(self, report: TurnReport, traceparent: str = "") -> None:
        """Tells of a turn; `traceparent` is the header of who asked for it."""
        began = int(report.began.timestamp() * 1000) * _MILLISECOND
        sent = {"traceparent": traceparent} if len(traceparent) <= TRACEPARENT_MOST else {}
        told = turn_told(report)
        turn = self._begun(told, began, self._parents.extract(sent, self._nowhere))
        within = self._trace.set_span_in_context(turn)
        for inner in (*passes_told(report), *calls_told(report, self._specialists)):
            self._begun(inner, began, within).end(began + inner.ended_ms * _MILLISECOND)
        turn.end(began + told.ended_ms * _MILLISECOND)

    def _begun(self, told: Told, began: int, within: Any) -> Any:
        kind = self._trace.SpanKind.CLIENT if told.remote else self._trace.SpanKind.INTERNAL
        said = {key: value for key, value in told.attributes.items() if value is not None}
        span = self._tracer.start_span(told.name, within, kind, said, start_time=began + told.began_ms * _MILLISECOND)
        if told.first_token_ms is not None:
            span.add_event("first_token", timestamp=began + told.first_token_ms * _MILLISECOND)
        if told.error is not None:
            span.set_attribute("error.type", told.error)
            span.set_status(self._trace.StatusCode.ERROR)
        return span

    async def close(self) -> None:
        """Sends what is left, unless that takes longer than `CLOSING_SECONDS`."""
        last = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        last.start()
        await asyncio.to_thread(last.join, CLOSING_SECONDS)


def processor_of(where: Where) -> Any:
    """What takes spans there, in the background. It is to be shut down.

    Raises:
        SettingsError: as `Traces`.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ImportError:
        raise SettingsError(f"TRACES={where} needs OpenTelemetry: pip install 'brain-sse[otel]'.") from None
    try:
        return BatchSpanProcessor(ConsoleSpanExporter(out=sys.stdout) if where == "console" else OTLPSpanExporter())
    except (ValueError, RuntimeError) as error:
        raise SettingsError(f"TRACES={where}: what the OTEL_ variables say is not allowed: {error}") from None


def turn_told(report: TurnReport) -> Told:
    """The span of a turn."""
    usage = report.usage
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "brain",
        "gen_ai.conversation.id": report.conversation_id,
        "gen_ai.response.finish_reasons": _finish_reasons(report.stop_reason),
        **_model(report.model),
        **_tokens(usage.prompt_tokens, usage.completion_tokens, usage.reused_tokens),
        "brain.turn.id": report.turn_id,
        "brain.wire": report.wire,
    }
    return Told("invoke_agent brain", 0, report.total_ms, attributes, report.error)


def passes_told(report: TurnReport) -> Iterator[Told]:
    """The spans of the requests to the model."""
    model = _model(report.model)
    name = f"chat {model['gen_ai.request.model']}"
    remote = model["gen_ai.provider.name"] != "brain"
    for one in report.passes:
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": report.conversation_id,
            "gen_ai.response.finish_reasons": None if one.error else _finish_reasons(one.finish),
            **model,
            **_tokens(one.prompt_tokens, one.completion_tokens, one.reused_tokens),
        }
        ended = report.total_ms if one.ended_ms is None else one.ended_ms
        yield Told(name, one.began_ms, ended, attributes, one.error, one.first_token_ms, remote)


def calls_told(report: TurnReport, specialists: Container[str]) -> Iterator[Told]:
    """The spans of the calls; not of those that the client runs."""
    for call in report.calls:
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
        ended = report.total_ms if call.ms is None else call.began_ms + call.ms
        yield Told(f"execute_tool {name}", call.began_ms, ended, attributes, error)


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


class _Seldom(logging.Filter):
    """Lets one record pass, and then none for a while."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + COMPLAINT_SECONDS
        return True


_seldom = _Seldom()
