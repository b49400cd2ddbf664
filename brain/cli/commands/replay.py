"""An answer that is kept, as the events that its reader saw: its texts, its calls where they stood, its end."""

from collections.abc import Iterator
from typing import cast, get_args

from brain.events import Done, Event, Notice, SpecialistError, SpecialistResult, StopReason, Token
from brain.messages import Call, Exchange, Part, Text
from brain.prompts.blocks import block_content


def events_of(exchange: Exchange) -> Iterator[Event]:
    """What happened. An answer that did not end well ends in its failure, where that is kept."""
    parts = (*exchange.automatic_calls, *exchange.parts)
    yield from map(_event_of, parts)
    if exchange.outcome in get_args(StopReason):
        yield _done(exchange, parts)
    elif exchange.error is not None:
        yield exchange.error


def _event_of(part: Part) -> Event:
    if isinstance(part, Call):
        return _ended(part)
    return Token(part.text) if isinstance(part, Text) else Notice("steered", part.text)


def _ended(call: Call) -> SpecialistResult | SpecialistError:
    text, ms = block_content(call.name, call.block, call.code is not None), call.ms or 0
    if call.code is not None:
        return SpecialistError(call.id, call.name, call.params, call.code, text, ms, call.approval)
    told = call.id, call.name, call.params or {}, text
    return SpecialistResult(*told, call.citations, call.cached, ms, call.approval)


def _done(exchange: Exchange, parts: tuple[Part, ...]) -> Done:
    calls = sum(isinstance(part, Call) for part in parts)
    passes = max((part.turn_pass for part in parts), default=1)
    times = exchange.first_token_ms, exchange.total_ms or 0
    return Done(cast("StopReason", exchange.outcome), exchange.answer_id, exchange.answer, calls, passes, *times)
