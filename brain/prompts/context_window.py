"""The part of a history that a model reads. History can be trimmed, the running turn never.

A model reads the newest exchanges that fit, whole: no call is separated from its block. Of an exchange larger than the
whole window, it reads the visible text. The window moves in steps, so that the model server's prompt cache stays valid
for several turns.
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
"""The share of a model's context that is left to the new question, its blocks and the answer."""
STEP = 3
"""Exchanges by which the window moves; two where it holds fewer than two steps, one where it holds hardly any."""


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a conversation a model reads at most.

    Attributes:
        messages: with the question; an exchange is two.
        tokens: of these messages.
        seconds: of silence, after which the conversation begins anew for the model.
    """

    messages: int = 20
    tokens: int = 8000
    seconds: float = 3600.0


def select_window(history: History, question: Exchange, window: Window, context_tokens: int | None) -> History:
    """Return the exchanges that fit beside the question, as the history that the turn continues."""
    recent = _since_last_rest(history.exchanges, question.started, window.seconds)
    file_bytes = sum(min(utf8_size(file.text or ""), BLOCK_BYTES) for file in history.files)
    max_exchanges = (window.messages - 1) // 2
    tokens = _history_share(window.tokens, context_tokens) - estimate_tokens(utf8_size(question.message) + file_bytes)
    offset = history.count - len(recent)
    selected = select_newest(recent, max_exchanges, tokens, offset)
    previous = select_newest(recent[:-1], max_exchanges, tokens, offset)
    has_moved = len(recent) - len(selected) > max(0, len(recent) - 1 - len(previous))
    return replace(
        history,
        exchanges=selected,
        trimmed=history.count - len(selected) if has_moved else 0,
        after_idle=bool(history.exchanges) and not recent,
        question=question,
    )


def fit_to_context(history: History, context_tokens: int | None) -> History:
    """Return a client's history with the newest exchanges that fit into their share of the context."""
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
        offset: the number of exchanges before the first of them in their conversation.
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
    return selected[-(offset + dropped) % step :] if dropped else selected  # begins at a multiple of the step


def count_tokens(exchange: Exchange) -> int:
    """Return the tokens of an exchange: as the model server counted them, else estimated from its bytes."""
    if exchange.tokens:
        return exchange.tokens
    instructions = sum(utf8_size(message.content) for message in (*exchange.messages_before, *exchange.messages_after))
    answer = utf8_size(transcript.answer_text(exchange.parts))
    return estimate_tokens(utf8_size(exchange.question) + answer + instructions)


def _since_last_rest(exchanges: Sequence[Exchange], now: datetime | None, seconds: float) -> Sequence[Exchange]:
    """The exchanges after the last silence of so many seconds."""
    rest = timedelta(seconds=seconds)
    for n in range(len(exchanges), 0, -1):
        ended = exchanges[n - 1].ended
        if now is not None and ended is not None and now - ended >= rest:
            return exchanges[n:]
        now = exchanges[n - 1].started
    return exchanges


def _history_share(tokens: int, context_tokens: int | None) -> int:
    return tokens if context_tokens is None else min(tokens, int(context_tokens * (1 - ANSWER_SHARE)))
