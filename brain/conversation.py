"""Rooms: what a turn goes on from, and what of it is kept. History may be trimmed, the running turn never."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from brain.ask import Ask, Attachment, renumbered
from brain.errors import BadRequest
from brain.messages import Exchange
from brain.transcript import written
from brain.turn import Conversation
from brain.usage import BYTES_A_TOKEN, size

ANSWER_SHARE = 0.5
"""The part of a model's context that is left to the new question, its blocks and the answer."""


class Record(Protocol):
    """One stored conversation, held by one turn."""

    id: str
    exchanges: list[Exchange]
    attachments: list[Attachment]


def new_id() -> str:
    """An id that nobody guesses."""
    return f"conv{secrets.token_hex(8)}"


def recall(record: Record, ask: Ask, context_tokens: int | None) -> tuple[Ask, Conversation]:
    """What was said before, as much as fits; the new files get ids that go on from the earlier ones."""
    earlier = record.exchanges[: _place(record, ask)]
    if ask.attachments:
        ask = replace(ask, attachments=renumbered(ask.attachments, after=len(record.attachments)))
    return ask, windowed(Conversation(record.id, earlier, tuple(record.attachments)), context_tokens)


def windowed(conversation: Conversation, context_tokens: int | None) -> Conversation:
    """The same, with the newest exchanges that fit into their share of the context."""
    exchanges = _window(conversation.exchanges, context_tokens)
    return replace(conversation, exchanges=exchanges, trimmed=len(conversation.exchanges) - len(exchanges))


def keep(record: Record, ask: Ask, exchange: Exchange) -> None:
    """Adds a turn that ended, however it did; one in which nothing was said leaves no trace."""
    if exchange.parts:
        record.exchanges[_place(record, ask) :] = [exchange]
        record.attachments += ask.attachments


def _place(record: Record, ask: Ask) -> int:
    """Where the new exchange stands: at the end, or in the place of the one that it replaces.

    Raises:
        BadRequest: when there is no such answer in the conversation.
    """
    if ask.replaces is None:
        return len(record.exchanges)
    for place, exchange in enumerate(record.exchanges):
        if exchange.answer_id == ask.replaces:
            return place
    message = "This conversation has no answer of this id; it is the message_id of its done event."
    raise BadRequest(message, "replace_from", code="not_found", status=404)


def _window(exchanges: Sequence[Exchange], context_tokens: int | None) -> Sequence[Exchange]:
    """The newest exchanges that fit into their share of the context."""
    if context_tokens is None:
        return tuple(exchanges)
    room = context_tokens * BYTES_A_TOKEN * (1 - ANSWER_SHARE)
    kept: list[Exchange] = []
    for exchange in reversed(exchanges):
        around = sum(size(message.content) for message in (*exchange.before, *exchange.behind))
        room -= size(exchange.question) + size(written(exchange.parts)) + around
        if room < 0:
            break
        kept.insert(0, exchange)
    return tuple(kept)
