"""What a conversation that rests leaves to the memory: a summary that the model writes, or an extract."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Protocol

from brain.errors import ModelError
from brain.markers.neutralize import neutralize
from brain.markers.scanner import Scanner
from brain.memory.terms import content
from brain.memory.texts import BETWEEN
from brain.messages import OWN_WORDS, Chunk, Exchange, IdleConversation, Item, Message
from brain.models.embedder import EmbeddingModel
from brain.prompts import templates
from brain.text import BYTES_PER_TOKEN, strip_invisible, utf8_size
from brain.turn_request import UNSAID, Sampling

SUMMARY_SECONDS = 60.0
SUMMARY_LENGTH = 1000
SUMMARY_TOKENS = 1024
"""With what a model thinks first."""
CONTEXT_UNKNOWN = 4096
CONTEXT_SHARE = 0.5
MESSAGE_LENGTH = 2000
LEAST_WORDS = 3
"""Of a conversation that is worth a memory."""
QUOTE_LENGTH = 200


class Writer(EmbeddingModel, Protocol):
    """The model that writes, and makes vectors.

    Attributes:
        is_language_model: whether there is a language model behind it.
    """

    @property
    def is_language_model(self) -> bool: ...
    @property
    def context_tokens(self) -> int | None: ...

    def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]: ...


async def memory_of(resting: IdleConversation, model: Writer | None, item_id: str, now: datetime) -> Item | None:
    """What is kept of a conversation, with what was kept of it before; None when it is not worth it.

    Args:
        model: who writes; without one the user's own words are kept.
        item_id: of the earlier memory, if there is one.

    Raises:
        ModelError: when the model gave no summary.
        TimeoutError: when it took too long.
    """
    earlier = resting.memory
    if not says_enough(resting):
        return earlier
    exchanges = [exchange for exchange in resting.exchanges if exchange.message.strip()]
    text = _extract(exchanges, earlier) if model is None else await _written(resting, exchanges, model)
    return Item(
        id=item_id,
        kind="memory",
        text=text,
        created=earlier.created if earlier else now,
        updated=now,
        conversation_id=resting.conversation_id,
        untrusted=(earlier is not None and earlier.untrusted)
        or any(exchange.untrusted for exchange in resting.exchanges),
    )


def says_enough(resting: IdleConversation) -> bool:
    """Whether a conversation is worth a memory."""
    return len({word for exchange in resting.exchanges for word in content(exchange.message)}) >= LEAST_WORDS


def _extract(exchanges: Sequence[Exchange], earlier: Item | None) -> str:
    """The user's own words, the newest that there is room for; behind an earlier summary they are not called so."""
    opening = "" if earlier and earlier.is_summary else OWN_WORDS
    quotes = [neutralize(_shortened(exchange.message, QUOTE_LENGTH)) for exchange in exchanges]
    before = earlier.text.removeprefix(opening).split(BETWEEN) if earlier else []
    kept, room = list[str](), SUMMARY_LENGTH - len(opening)
    for quote in reversed([*before, *quotes]):
        room -= len(quote) + len(BETWEEN)
        if room < 0:
            break
        kept.insert(0, quote)
    return opening + BETWEEN.join(kept)


async def _written(resting: IdleConversation, exchanges: Sequence[Exchange], model: Writer) -> str:
    said = _said(exchanges, int((model.context_tokens or CONTEXT_UNKNOWN) * BYTES_PER_TOKEN * CONTEXT_SHARE))
    request = templates.summary_request(
        strip_invisible(resting.title), resting.memory.text if resting.memory else "", said
    )
    messages = [Message("system", templates.SUMMARY), Message("user", request)]
    async with asyncio.timeout(SUMMARY_SECONDS):
        text = await _answer(model.stream(messages, 0, Sampling(max_tokens=SUMMARY_TOKENS)))
    if not text:
        raise ModelError("model_failed", "The model wrote no summary.")
    return text


def _said(exchanges: Sequence[Exchange], room: int) -> list[tuple[str, str]]:
    """What user and assistant said, without calls and blocks: the newest that there is room for."""
    found = list[tuple[str, str]]()
    for exchange in reversed(exchanges):
        pair = [("User", exchange.message), ("Assistant", exchange.answer)]
        pair = [(who, _shortened(text, MESSAGE_LENGTH)) for who, text in pair if text.strip()]
        room -= sum(utf8_size(text) for _, text in pair)
        if room < 0 and found:
            break
        found = pair + found
    return found


async def _answer(stream: AsyncGenerator[Chunk, None]) -> str:
    """The text of an answer, in one harmless line, without what was thought first; it does not claim to quote."""
    scanner, text = Scanner(()), ""
    async with aclosing(stream) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, str):
                text += "".join(piece for piece in scanner.feed(chunk) if isinstance(piece, str))
            if len(text) > 2 * SUMMARY_LENGTH:
                break
    text += "".join(piece for piece in scanner.close() if isinstance(piece, str))
    summary = neutralize(_shortened(text, SUMMARY_LENGTH))
    while summary.startswith(OWN_WORDS):
        summary = summary.removeprefix(OWN_WORDS)
    return summary


def _shortened(text: str, most: int) -> str:
    """The beginning of a text in one line, up to the end of a word."""
    line = " ".join(strip_invisible(text[: 4 * most]).split())
    if len(line) <= most:
        return line
    cut = line[: most - 2]
    return f"{cut.rpartition(' ')[0] or cut} …"


class Pauses:
    """When to try again what failed: later each time."""

    def __init__(self, first: float, most: float, clock: Callable[[], float]) -> None:
        self._first, self._most, self._clock = first, most, clock
        self._failures = 0
        self._until = 0.0

    @property
    def over(self) -> bool:
        return self._clock() >= self._until

    def failed(self) -> None:
        self._until = self._clock() + min(self._most, self._first * 2**self._failures)
        self._failures = min(self._failures + 1, 20)

    def went_well(self) -> None:
        self._failures = 0
