"""What tests of the store share: a clock that is set, a store that is opened and closed, turns in one line."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from brain.events import Error, Usage
from brain.messages import Annotation, Attachment, Exchange, History, Item, Part, Text
from brain.store.sqlite import SQLite

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
S = TypeVar("S", bound=SQLite)
DETAILS: dict[str, Any] = {
    "annotations": (Annotation("Recalled 1 fact: tea", 0, code="recalled"), Annotation("Hm, Köln?", 1, 3)),
    "usage": Usage(7, 8, None, estimated=True),
    "first_token_ms": 5,
    "total_ms": 60,
    "error": Error("model_failed", "It broke.", recoverable=False, status=500),
}
"""What only the user reads of an answer."""


class Clock:
    """Seconds since 1970, as a test says; each look takes some."""

    def __init__(self, look: float = 1.0) -> None:
        self.now = NOON.timestamp()
        self._look = look

    def __call__(self) -> float:
        self.now += self._look
        return self.now


@asynccontextmanager
async def opened(store: S) -> AsyncIterator[S]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def kept(path: Path | None, clock: Clock | None = None) -> AsyncIterator[SQLite]:
    async with opened(SQLite(path, clock=clock or Clock())) as store:
        yield store


def asked(words: str, number: int | str = 1, **more: Any) -> Exchange:
    """A question as it begins."""
    return Exchange(f"({words})", message=words, question_id=f"q{number}", **more)


def answered(words: str | Sequence[Part], number: int | str = 1, outcome: str = "complete") -> Exchange:
    """The same as it ends."""
    parts: list[Part] = [Text(words, 1)] if isinstance(words, str) else list(words)
    return Exchange("(read)", parts, answer_id=f"a{number}", outcome=outcome)


async def turn(
    store: SQLite,
    user: str,
    conversation: str,
    words: str = "Hello",
    answer: str | Sequence[Part] = "Hi",
    *,
    number: int | str = 1,
    outcome: str = "complete",
    files: Sequence[Attachment] = (),
    replaces: str | None = None,
) -> History:
    """A whole turn."""
    record = await store.begin(user, conversation, asked(words, number), files, replaces=replaces)
    await store.end(record, answered(answer, number, outcome))
    return record


async def said(store: SQLite, user: str, conversation: str) -> list[tuple[str, str, str]]:
    """What its user sees: their words, the answer, the outcome."""
    opened = await store.conversation(user, conversation, limit=1000)
    return [] if opened is None else [(one.message, one.answer, one.outcome) for one in opened.exchanges]


async def only(store: SQLite, user: str, conversation: str) -> Exchange:
    """The only exchange of a conversation."""
    found = await store.conversation(user, conversation)
    assert found is not None
    (exchange,) = found.exchanges
    return exchange


def fact(item_id: str, text: str, minute: int = 0, **more: Any) -> Item:
    time = NOON + timedelta(minutes=minute)
    return Item(item_id, "fact", text, time, time, **({"category": "general"} | more))


def memory(item_id: str, text: str, minute: int = 0, **more: Any) -> Item:
    time = NOON + timedelta(minutes=minute)
    return Item(item_id, "memory", text, time, time, **more)


def file(data: bytes, name: str = "a.txt") -> Attachment:
    return Attachment(1, name, "text/plain", data)
