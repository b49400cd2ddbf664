"""Makes the memory of an idle conversation: a summary by a model, or quotes of the user."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

from brain.errors import ModelError
from brain.markers.neutralize import neutralize
from brain.markers.scanner import Piece, ReasoningEnd, Scanner
from brain.memory.quotes import BETWEEN
from brain.memory.terms import content_words, words
from brain.messages import OWN_WORDS, Exchange, Item, Message
from brain.models.model import Model, PassRequest
from brain.prompts import templates
from brain.store.conversations import IdleConversation
from brain.text import BYTES_PER_TOKEN, first_words, strip_invisible, utf8_size
from brain.turn_request import Sampling

SUMMARY_SECONDS = 60.0
SUMMARY_LENGTH = 1000
SUMMARY_TOKENS = 1024
"""Includes the model's thinking."""
CONTEXT_UNKNOWN = 4096
CONTEXT_SHARE = 0.5
MESSAGE_LENGTH = 2000
LEAST_WORDS = 3
"""A conversation with fewer content words from the user gets no memory."""
QUOTE_LENGTH = 200


async def make_memory(idle: IdleConversation, model: Model | None, item_id: str, now: datetime) -> Item | None:
    """Make the memory of a conversation, including its former memory; None if the user wrote too little.

    Args:
        model: writes the summary; None to store quotes of the user.
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
    """Return whether the user wrote enough for a memory."""
    return len({word for exchange in idle.exchanges for word in content_words(exchange.message)}) >= LEAST_WORDS


def _quote(exchanges: Sequence[Exchange], earlier: Item | None) -> str:
    """Return the user's newest messages that fit, each once.

    If a former summary is included, they are not labelled as quotes.
    """
    opening = "" if earlier and earlier.is_summary else OWN_WORDS
    texts = earlier.text.removeprefix(opening).split(BETWEEN) if earlier else []
    texts += [neutralize(first_words(exchange.message, QUOTE_LENGTH)) for exchange in exchanges]
    once: dict[Any, str] = {}
    for text in reversed(texts):
        once.setdefault(tuple(words(text)) or text, text)
    newest, room = list[str](), SUMMARY_LENGTH - len(opening)
    for quote in once.values():
        room -= len(quote) + len(BETWEEN)
        if room < 0:
            break
        newest.insert(0, quote)
    return opening + BETWEEN.join(newest)


async def _summarise(idle: IdleConversation, exchanges: Sequence[Exchange], model: Model) -> str:
    room = int((model.context_tokens or CONTEXT_UNKNOWN) * BYTES_PER_TOKEN * CONTEXT_SHARE)
    read = list[tuple[str, str]]()  # newest messages and answers, without calls and blocks
    for exchange in reversed(exchanges):
        pair = [("User", exchange.message), ("Assistant", exchange.answer)]
        pair = [(speaker, first_words(text, MESSAGE_LENGTH)) for speaker, text in pair if text.strip()]
        room -= sum(utf8_size(text) for _, text in pair)
        if room < 0 and read:
            break
        read = pair + read
    content = templates.summary_request(strip_invisible(idle.title), idle.memory.text if idle.memory else "", read)
    messages = [Message("system", templates.SUMMARY), Message("user", content)]
    request = PassRequest(messages, sampling=Sampling(max_tokens=SUMMARY_TOKENS))
    scanner, text = Scanner((), model.template), ""  # drops thinking
    async with asyncio.timeout(SUMMARY_SECONDS), aclosing(model.stream(request)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, str):
                text = _add_answer(text, scanner.feed(chunk))
            if len(text) > 2 * SUMMARY_LENGTH:
                break
    text = _add_answer(text, scanner.close())
    summary = neutralize(first_words(text, SUMMARY_LENGTH))
    while summary.startswith(OWN_WORDS):  # a summary must not pose as a quote
        summary = summary.removeprefix(OWN_WORDS)
    if not summary:
        raise ModelError("model_failed", "The model wrote no summary.")
    return summary


def _add_answer(text: str, pieces: Sequence[Piece]) -> str:
    """Return the text with what the pieces add to it. Reasoning does not count."""
    for piece in pieces:
        text = "" if isinstance(piece, ReasoningEnd) else text + piece if isinstance(piece, str) else text
    return text
