"""What a turn goes on from. History may be trimmed, the running turn never.

A model reads the newest exchanges that fit into the window, whole: no call is ever parted from its block. One that is
larger than the whole window is read as what was visibly said. The window does not slide with every turn but leaps, so
that what a model's server has of the prompt in its cache stays true for some turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from brain.markers.neutralize import BLOCK_BYTES
from brain.messages import Exchange, History, Record, Text
from brain.prompts import transcript
from brain.text import estimate_tokens, utf8_size

ANSWER_SHARE = 0.5
"""The part of a model's context that is left to the new question, its blocks and the answer."""
LEAP = 3
"""By so many exchanges the window moves on; by two where it holds few, and by one where it holds hardly any."""


@dataclass(frozen=True, slots=True)
class Window:
    """How much of a conversation a model reads.

    Attributes:
        messages: at most, with the question; an exchange is two. `tokens` that they may take.
        seconds: of rest, after which a conversation begins anew for the model.
    """

    messages: int = 20
    tokens: int = 8000
    seconds: float = 3600.0


def select_window(record: Record, question: Exchange, room: Window, context_tokens: int | None) -> History:
    """What was said before, as far as it fits beside the question, with which the turn begins."""
    awake = _awake(record.exchanges, question.asked, room.seconds)
    files = sum(min(utf8_size(file.text or ""), BLOCK_BYTES) for file in record.files)
    most = (room.messages - 1) // 2
    tokens = _share(room.tokens, context_tokens) - estimate_tokens(utf8_size(question.said) + files)
    first = record.count - len(awake)
    kept = window(awake, most, tokens, first)
    before = window(awake[:-1], most, tokens, first)
    moved = len(awake) - len(kept) > max(0, len(awake) - 1 - len(before))
    return History(
        record.id,
        kept,
        tuple(record.attachments),
        trimmed=record.count - len(kept) if moved else 0,
        rested=bool(record.exchanges) and not awake,
        begun=question,
    )


def fit_to_context(conversation: History, context_tokens: int | None) -> History:
    """A history that a client holds, with the newest exchanges of it that fit into their share of the context."""
    if context_tokens is None:
        return conversation
    tokens = _share(context_tokens, context_tokens)
    kept: list[Exchange] = []
    for exchange in reversed(conversation.exchanges):
        tokens -= count_tokens(exchange)
        if tokens < 0:
            break
        kept.insert(0, exchange)
    return replace(conversation, exchanges=kept, trimmed=len(conversation.exchanges) - len(kept))


def window(exchanges: Sequence[Exchange], most: int, tokens: int, first: int = 0) -> Sequence[Exchange]:
    """The newest exchanges that take at most so many tokens, oldest first.

    Args:
        most: the largest number of them. How many calls an exchange has, and how a server wants them to be sent, does
            not matter.
        first: the place of the first of them in their conversation.
    """
    kept: list[Exchange] = []
    free = tokens
    for exchange in reversed(exchanges[-most:] if most > 0 else ()):
        if count_tokens(exchange) > tokens:
            exchange = _shortened(exchange)
        free -= count_tokens(exchange)
        if free < 0:
            break
        kept.insert(0, exchange)
    left_out = len(exchanges) - len(kept)
    leap = LEAP if len(kept) >= 2 * LEAP else 2 if len(kept) >= LEAP else 1
    return kept[-(first + left_out) % leap :] if left_out else kept  # from the next place that is a multiple of it


def count_tokens(exchange: Exchange) -> int:
    """How many tokens an exchange takes: as the model's server counted them, else estimated from its bytes."""
    if exchange.tokens:
        return exchange.tokens
    around = sum(utf8_size(message.content) for message in (*exchange.before, *exchange.behind))
    return estimate_tokens(utf8_size(exchange.question) + utf8_size(transcript.answer_text(exchange.parts)) + around)


def _shortened(exchange: Exchange) -> Exchange:
    """What was visibly said of an exchange: calls and blocks are left out, all of them."""
    return replace(exchange, question=exchange.said, parts=[Text(exchange.visible, 1)], tokens=0)


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
