"""Selects the part of a history that the model reads. The running turn is never trimmed.

The model reads the newest whole exchanges that fit, so no call is separated from its block. If an exchange is larger
than the window, the model reads its visible text. The window moves in steps, so that the model server's prompt cache
stays valid for several turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from brain.markers.neutralize import BLOCK_BYTES
from brain.messages import Exchange, History, Text
from brain.prompts import transcript
from brain.text import estimate_tokens, utf8_size

ANSWER_SHARE = 0.5
"""Share of the model's context reserved for the new question, its blocks and the answer."""
STEP = 3
"""Exchanges by which the window moves: two if it holds fewer than two steps, one if it holds less than one."""


@dataclass(frozen=True, slots=True)
class Window:
    """The limits of what a model reads of a conversation.

    Attributes:
        messages: Messages including the question. An exchange has two.
        seconds: Idle time after which the model starts with an empty context.
    """

    messages: int = 20
    tokens: int = 8000
    seconds: float = 3600.0


def select_window(history: History, question: Exchange, window: Window, context_tokens: int | None) -> History:
    """Return the history with the exchanges that fit beside the question."""
    recent = _after_last_idle_time(history.exchanges, question.started, window.seconds)
    file_bytes = sum(min(utf8_size(file.text or ""), BLOCK_BYTES) for file in history.files)
    max_exchanges = (window.messages - 1) // 2
    tokens = _history_share(window.tokens, context_tokens) - estimate_tokens(utf8_size(question.message) + file_bytes)
    offset = history.count - len(recent)
    selected = select_newest(recent, max_exchanges, tokens, offset)
    trimmed = 0
    if len(selected) < len(recent):
        previous = select_newest(recent[:-1], max_exchanges, tokens, offset)
        trimmed = history.count - len(selected) if len(selected) <= len(previous) else 0  # the window has just moved
    return replace(
        history,
        exchanges=selected,
        trimmed=trimmed,
        after_idle=bool(history.exchanges) and not recent,
        question=question,
    )


def fit_to_context(history: History, context_tokens: int | None) -> History:
    """Return a client's history with the newest exchanges that fit into the model's context."""
    if context_tokens is None:
        return history
    tokens = _history_share(context_tokens, context_tokens)
    selected: list[Exchange] = []
    for exchange in reversed(history.exchanges):
        tokens -= count_tokens(exchange)
        if tokens < 0:
            break
        selected.insert(0, exchange)
    return replace(history, exchanges=selected, trimmed=len(history.exchanges) - len(selected))


def select_newest(
    exchanges: Sequence[Exchange], max_exchanges: int, max_tokens: int, offset: int = 0
) -> Sequence[Exchange]:
    """Return the newest exchanges within these limits, oldest first.

    Args:
        offset: Number of exchanges in the conversation before these.
    """
    selected: list[Exchange] = []
    tokens = max_tokens
    for exchange in reversed(exchanges[-max_exchanges:] if max_exchanges > 0 else ()):
        if count_tokens(exchange) > max_tokens:
            exchange = replace(exchange, question=exchange.message, parts=[Text(exchange.answer, 1)], tokens=0)
        tokens -= count_tokens(exchange)
        if tokens < 0:
            break
        selected.insert(0, exchange)
    dropped = len(exchanges) - len(selected)
    step = STEP if len(selected) >= 2 * STEP else 2 if len(selected) >= STEP else 1
    return selected[-(offset + dropped) % step :] if dropped else selected  # start at a multiple of the step


def count_tokens(exchange: Exchange) -> int:
    """Return the tokens of an exchange, counted by the model server or estimated from its bytes."""
    if exchange.tokens:
        return exchange.tokens
    instructions = sum(utf8_size(message.content) for message in (*exchange.messages_before, *exchange.messages_after))
    answer = utf8_size(transcript.answer_text(exchange.parts))
    return estimate_tokens(utf8_size(exchange.question) + answer + instructions)


def _after_last_idle_time(exchanges: Sequence[Exchange], now: datetime | None, seconds: float) -> Sequence[Exchange]:
    """Return the exchanges after the last idle time of at least this length."""
    idle = timedelta(seconds=seconds)
    for n in range(len(exchanges), 0, -1):
        ended = exchanges[n - 1].ended
        if now is not None and ended is not None and now - ended >= idle:
            return exchanges[n:]
        now = exchanges[n - 1].started
    return exchanges


def _history_share(tokens: int, context_tokens: int | None) -> int:
    return tokens if context_tokens is None else min(tokens, int(context_tokens * (1 - ANSWER_SHARE)))
