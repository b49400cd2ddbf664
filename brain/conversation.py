"""Rooms: what a turn goes on from, and how it is kept. History may be trimmed, the running turn never.

A model reads the newest exchanges that fit into the window, whole: no call is ever parted from its block. One that is
larger than the whole window is read as what was visibly said. The window does not slide with every turn but leaps, so
that what a model's server has of the prompt in its cache stays true for some turns.
"""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from brain import transcript
from brain.ask import Attachment
from brain.blocks import BLOCK_BYTES
from brain.errors import StoreError
from brain.kept import Conversation, Record
from brain.messages import Exchange, Resume, Said
from brain.usage import estimated, size

ANSWER_SHARE = 0.5
"""The part of a model's context that is left to the new question, its blocks and the answer."""
LEAP = 3
"""By so many exchanges the window moves on."""

log = logging.getLogger("brain")


class Store(Protocol):
    """Where conversations are kept."""

    async def begin(
        self,
        user: str,
        conversation_id: str,
        question: Exchange,
        files: Sequence[Attachment],
        *,
        replaces: str | None = None,
        recent: int = 20,
    ) -> Record:
        """Keeps a question, and holds its conversation for the turn that answers it.

        Raises:
            BadRequest: `busy`, while another turn holds it; `not_found`, for what it is to replace; `too_large`.
            StoreError: when it cannot be kept.
        """

    async def end(self, record: Record, exchange: Exchange) -> None:
        """Keeps what came of it, and lets the conversation go."""

    async def drop(self, record: Record) -> None:
        """Takes the question back: its turn cannot begin."""


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a conversation a model reads.

    Attributes:
        messages: at most, with the question; `tokens` that they may take.
        seconds: of rest, after which a conversation begins anew for the model.
    """

    messages: int = 20
    tokens: int = 8000
    seconds: float = 3600.0


class Filing:
    """The place of one turn in the store; `kept` says whether it was told how the turn ended."""

    def __init__(self, store: Store, record: Record) -> None:
        self.record = record
        self.kept = False
        self._store = store

    async def keep(self, exchange: Exchange) -> str | None:
        """Keeps a turn that ended, however it did; what went wrong, in a sentence."""
        try:
            await self._store.end(self.record, exchange)
        except StoreError as error:
            log.error("conversation %s: an answer was not kept: %s", self.record.id, error)  # noqa: TRY400
            self.kept = True  # as far as it can be
            return error.message
        self.kept = True
        return None

    async def drop(self) -> None:
        """Takes the question back."""
        await self._store.drop(self.record)


def new_id() -> str:
    """An id that nobody guesses."""
    return f"conv{secrets.token_hex(8)}"


def new_message_id() -> str:
    """An id of a message."""
    return f"m{secrets.token_hex(8)}"


def recall(
    record: Record, question: Exchange, room: Window, context_tokens: int | None, resume: Resume
) -> Conversation:
    """What was said before, as far as it fits beside the question, with which the turn begins."""
    awake = _awake(record.exchanges, question.asked, room.seconds)
    files = sum(min(size(file.text or ""), BLOCK_BYTES) for file in record.files)
    tokens = _share(room.tokens, context_tokens) - estimated(size(question.said) + files)
    kept = window(awake, room.messages - 1, tokens, resume, record.count - len(awake))
    return Conversation(
        record.id,
        kept,
        tuple(record.attachments),
        trimmed=record.count - len(kept),
        rested=len(awake) < len(record.exchanges),
        begun=question,
    )


def windowed(conversation: Conversation, context_tokens: int | None) -> Conversation:
    """A history that a client holds, with the newest exchanges of it that fit into their share of the context."""
    if context_tokens is None:
        return conversation
    tokens = _share(context_tokens, context_tokens)
    kept: list[Exchange] = []
    for exchange in reversed(conversation.exchanges):
        tokens -= weight(exchange)
        if tokens < 0:
            break
        kept.insert(0, exchange)
    return replace(conversation, exchanges=kept, trimmed=len(conversation.exchanges) - len(kept))


def window(
    exchanges: Sequence[Exchange], messages: int, tokens: int, resume: Resume, first: int = 0
) -> Sequence[Exchange]:
    """The newest exchanges that take at most so many messages and tokens, oldest first.

    Args:
        first: the place of the first of them in their conversation.
    """
    kept: list[Exchange] = []
    free = _Room(messages, tokens)
    for exchange in reversed(exchanges):
        taken = _Room.of(exchange, resume)
        if not taken.fits(_Room(messages, tokens)):  # however much was said since
            exchange = _shortened(exchange)
            taken = _Room.of(exchange, resume)
        if not taken.fits(free):
            break
        free = _Room(free.messages - taken.messages, free.tokens - taken.tokens)
        kept.insert(0, exchange)
    left_out = len(exchanges) - len(kept)
    leaps = left_out > 0 and len(kept) >= 2 * LEAP
    return kept[-(first + left_out) % LEAP :] if leaps else kept


class _Room(NamedTuple):
    messages: int
    tokens: int

    @classmethod
    def of(cls, exchange: Exchange, resume: Resume) -> "_Room":
        return cls(len(transcript.messages("", [exchange], resume)), weight(exchange))

    def fits(self, free: "_Room") -> bool:
        return self.messages <= free.messages and self.tokens <= free.tokens


def weight(exchange: Exchange) -> int:
    """How many tokens an exchange takes: as the model's server counted them, else estimated from its bytes."""
    if exchange.tokens:
        return exchange.tokens
    around = sum(size(message.content) for message in (*exchange.before, *exchange.behind))
    return estimated(size(exchange.question) + size(transcript.written(exchange.parts)) + around)


def _shortened(exchange: Exchange) -> Exchange:
    """What was visibly said of an exchange: calls and blocks are left out, all of them."""
    return replace(exchange, question=exchange.said, parts=[Said(exchange.visible, 1)], tokens=0)


def _awake(exchanges: Sequence[Exchange], now: datetime | None, seconds: float) -> Sequence[Exchange]:
    """Those behind the last long rest."""
    rest = timedelta(seconds=seconds)
    for place in range(len(exchanges), 0, -1):
        ended = exchanges[place - 1].answered
        if now is not None and ended is not None and now - ended >= rest:
            return exchanges[place:]
        now = exchanges[place - 1].asked
    return exchanges


def _share(tokens: int, context_tokens: int | None) -> int:
    """So many tokens, or what a model's context has for the history, if that is less."""
    return tokens if context_tokens is None else min(tokens, int(context_tokens * (1 - ANSWER_SHARE)))
