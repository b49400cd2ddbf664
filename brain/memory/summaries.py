"""The memory of an idle conversation: a summary that a model writes, or the user's own words."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Protocol

from brain.errors import ModelError
from brain.markers.neutralize import neutralize
from brain.markers.scanner import Scanner
from brain.memory.terms import content_words
from brain.memory.texts import BETWEEN
from brain.messages import OWN_WORDS, Chunk, Exchange, IdleConversation, Item, Message
from brain.models.embedder import EmbeddingModel
from brain.prompts import templates
from brain.text import BYTES_PER_TOKEN, strip_invisible, utf8_size
from brain.turn_request import DEFAULT_SAMPLING, Sampling

SUMMARY_SECONDS = 60.0
SUMMARY_LENGTH = 1000
SUMMARY_TOKENS = 1024
"""With what a model thinks first."""
CONTEXT_UNKNOWN = 4096
CONTEXT_SHARE = 0.5
MESSAGE_LENGTH = 2000
LEAST_WORDS = 3
"""A conversation in which the user wrote fewer content words leaves no memory."""
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
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = DEFAULT_SAMPLING
    ) -> AsyncGenerator[Chunk, None]: ...


async def make_memory(idle: IdleConversation, model: Writer | None, item_id: str, now: datetime) -> Item | None:
    """Make the memory of a conversation, with what its earlier memory has; None if it is not worth one.

    Args:
        model: writes the summary; without one, the user's own words are stored.
        item_id: of the earlier memory, if there is one.

    Raises:
        ModelError: when the model gave no summary.
        TimeoutError: when it took too long.
    """
    earlier = idle.memory
    if not is_worth_memory(idle):
        return earlier
    exchanges = [exchange for exchange in idle.exchanges if exchange.message.strip()]
    return Item(
        id=item_id,
        kind="memory",
        text=_quote(exchanges, earlier) if model is None else await _summarise(idle, exchanges, model),
        created=earlier.created if earlier else now,
        updated=now,
        conversation_id=idle.conversation_id,
        untrusted=(earlier is not None and earlier.untrusted) or any(one.untrusted for one in idle.exchanges),
    )


def is_worth_memory(idle: IdleConversation) -> bool:
    """Whether the user wrote enough."""
    return len({word for exchange in idle.exchanges for word in content_words(exchange.message)}) >= LEAST_WORDS


def _quote(exchanges: Sequence[Exchange], earlier: Item | None) -> str:
    """The user's newest words that there is room for. After an earlier summary they are not called the user's own."""
    opening = "" if earlier and earlier.is_summary else OWN_WORDS
    quotes = earlier.text.removeprefix(opening).split(BETWEEN) if earlier else []
    quotes += [neutralize(_shorten(exchange.message, QUOTE_LENGTH)) for exchange in exchanges]
    newest, room = list[str](), SUMMARY_LENGTH - len(opening)
    for quote in reversed(quotes):
        room -= len(quote) + len(BETWEEN)
        if room < 0:
            break
        newest.insert(0, quote)
    return opening + BETWEEN.join(newest)


async def _summarise(idle: IdleConversation, exchanges: Sequence[Exchange], model: Writer) -> str:
    room = int((model.context_tokens or CONTEXT_UNKNOWN) * BYTES_PER_TOKEN * CONTEXT_SHARE)
    read = list[tuple[str, str]]()  # the newest messages and answers, without calls and blocks
    for exchange in reversed(exchanges):
        pair = [("User", exchange.message), ("Assistant", exchange.answer)]
        pair = [(speaker, _shorten(text, MESSAGE_LENGTH)) for speaker, text in pair if text.strip()]
        room -= sum(utf8_size(text) for _, text in pair)
        if room < 0 and read:
            break
        read = pair + read
    request = templates.summary_request(strip_invisible(idle.title), idle.memory.text if idle.memory else "", read)
    messages = [Message("system", templates.SUMMARY), Message("user", request)]
    scanner, text = Scanner(()), ""  # which drops what a model thinks first
    async with (
        asyncio.timeout(SUMMARY_SECONDS),
        aclosing(model.stream(messages, 0, Sampling(max_tokens=SUMMARY_TOKENS))) as chunks,
    ):
        async for chunk in chunks:
            if isinstance(chunk, str):
                text += "".join(piece for piece in scanner.feed(chunk) if isinstance(piece, str))
            if len(text) > 2 * SUMMARY_LENGTH:
                break
    text += "".join(piece for piece in scanner.close() if isinstance(piece, str))
    summary = neutralize(_shorten(text, SUMMARY_LENGTH))
    while summary.startswith(OWN_WORDS):  # no summary claims to quote
        summary = summary.removeprefix(OWN_WORDS)
    if not summary:
        raise ModelError("model_failed", "The model wrote no summary.")
    return summary


def _shorten(text: str, length: int) -> str:
    """The beginning of a text in one line, up to the end of a word."""
    line = " ".join(strip_invisible(text[: 4 * length]).split())
    if len(line) <= length:
        return line
    cut = line[: length - 2]
    return f"{cut.rpartition(' ')[0] or cut} …"
