"""Turn a stored answer back into events: rounds, text, calls and the ending."""

from collections import deque
from collections.abc import Iterator
from typing import cast, get_args

from msgspec import structs

from brain.events import Done, Event, Notice, SpecialistError, SpecialistResult, StopReason, Token
from brain.messages import Call, Exchange, Text
from brain.prompts.blocks import block_content


def events_of(exchange: Exchange) -> Iterator[Event]:
    """Yield the events of an answer. A failed one ends in its error, if that is stored."""
    parts = (*exchange.automatic_calls, *exchange.parts)
    rounds = deque(one.event for one in exchange.rounds)
    numbers = {one.number: one.round for one in exchange.passes}
    for part in parts:
        number = part.round if isinstance(part, Call) else numbers.get(part.turn_pass, 0)
        while rounds and rounds[0].n <= number:
            yield rounds.popleft()
        if isinstance(part, Call):
            yield _end_of_call(part)
        else:
            yield Token(part.text) if isinstance(part, Text) else Notice("steered", part.text)
    yield from rounds
    if exchange.outcome in get_args(StopReason):
        yield Done(
            cast("StopReason", exchange.outcome),
            exchange.answer_id,
            exchange.answer,
            calls=sum(isinstance(part, Call) for part in parts),
            passes=max((part.turn_pass for part in parts), default=1),
            first_token_ms=exchange.first_token_ms,
            total_ms=exchange.total_ms or 0,
        )
    elif exchange.error is not None:
        yield exchange.error


def _end_of_call(call: Call) -> SpecialistResult | SpecialistError:
    text = call.reason or block_content(call.name, call.block, call.code is not None)
    return structs.replace(call, reason=text).end_event(text)
