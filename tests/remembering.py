"""What the tests of memory share: a memory over a real store, and vectors in which words of one meaning are alike."""

import asyncio
import re
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from stores import Clock, opened

from brain.errors import Refused, StoreError
from brain.memory import Memory
from brain.memory.quotes import UserMessage
from brain.memory.user_view import UserMemory
from brain.messages import Exchange, IdleConversation, Interaction, Item, Part, Text
from brain.store.sqlite import SQLite

GROUPS = (
    "jewellery wear silver ring string pearls",
    "vote election ballot liberals",
    "defends court attorney trial",
    "lost wallet umbrella left behind",
    "clothes washed shirts trousers laundry",
    "dance waltz tango lessons ballroom",
    "tools hammer drill cellar",
    "give charity donation orphans christmas",
    "medicine dangerous allergy allergic penicillin drug pill childhood",
    "relatives sister brothers mother family",
)
"""Words that mean about the same, for the toy vectors: a group for each question of the exam, and two for the tests."""
OTHERS = 50
T = TypeVar("T")
PLACES = {word: place for place, group in enumerate(GROUPS) for word in group.split()}


class Standing(Clock):
    """The same, which stands still until a test moves it on."""

    def __init__(self) -> None:
        super().__init__(look=0.0)

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def on(self, **by: float) -> None:
        self.now += timedelta(**by).total_seconds()


@dataclass
class Vectors:
    """A model that makes vectors, and keeps what it was asked.

    Attributes:
        delay: seconds until they come.
        broken: it has none.
        blind: they are the same for all texts.
    """

    name: str = "toy"
    delay: float = 0.0
    broken: bool = False
    blind: bool = False
    asked: list[list[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        await asyncio.sleep(self.delay)
        if self.broken:
            raise Refused("no embeddings")
        return [self._of(text) for text in texts]

    def _of(self, text: str) -> list[float]:
        numbers = [0.01] * (len(GROUPS) + OTHERS)
        for word in re.findall(r"\w{4,}|pet|dog|pill", text.lower()) if not self.blind else ():
            other = len(GROUPS) + zlib.crc32(word.encode()) % OTHERS
            numbers[PLACES.get(word, other)] += 1.0 if word in PLACES else 0.2
        return numbers


class Breakable(SQLite):
    """A store that can be broken, and held up behind what it reads.

    Attributes:
        reads: how often it was asked for what was said last, or for items.
        looks: how often it was looked for what rests, or lacks a vector.
        busy: whether what writes is at something that takes long.
    """

    broken = False
    busy = False
    held: asyncio.Event | None = None

    def __init__(self, path: Path | None, **more: Any) -> None:
        super().__init__(path, **more)
        self.reads = 0
        self.looks = Counter[str]()

    async def claim_idle(self, before: datetime, limit: int, *, alone: bool = False) -> list[IdleConversation]:
        self._check()
        found = await super().claim_idle(before, limit, alone=alone)
        self.looks["resting"] += 1
        return found

    async def without_vector(self, model: str, limit: int) -> list[tuple[str, Item]]:
        self._check()
        found = await super().without_vector(model, limit)
        self.looks["lacking"] += 1
        return found

    async def data_version(self) -> int:
        await asyncio.sleep(30 if self.busy else 0)
        return await super().data_version()

    async def items(self, user: str, **which: Any) -> list[Item]:
        self._check()
        return await self._held_up(await super().items(user, **which))

    async def recent(self, user: str, limit: int) -> list[Interaction]:
        self._check()
        return await self._held_up(await super().recent(user, limit))

    async def _held_up(self, found: list[T]) -> list[T]:
        self.reads += 1
        if self.held is not None:
            await self.held.wait()
        return found

    def _check(self) -> None:
        if self.broken:
            raise StoreError("What is kept cannot be read.")


@asynccontextmanager
async def remembered(
    tokens: int = 400, rest: float = 600, path: Path | None = None
) -> AsyncIterator[tuple[Memory, Breakable, Standing]]:
    """A memory over a store of its own, which is in memory without a path."""
    clock = Standing()
    async with opened(Breakable(path, clock=clock)) as store:
        yield Memory(store, tokens=tokens, rest_seconds=rest, now=lambda: clock.time), store, clock


async def until(true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Waits until something is so, which nothing tells of by itself."""
    async with asyncio.timeout(5):
        while not (is_so if isinstance(is_so := true(), bool) else await is_so):  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def looked(store: Breakable, what: str, times: int = 2) -> None:
    """Waits until the background has looked so often; of two looks the second began behind this call."""
    end = store.looks[what] + times
    await until(lambda: store.looks[what] >= end)


def view(memory: Memory, *said: str, user: str = "ada", conversation_id: str = "c1") -> UserMemory:
    """The memory of a user who said this."""
    return memory.view(user, conversation_id, lambda: [UserMessage(text) for text in said])


async def talked(
    store: SQLite,
    user: str,
    conversation_id: str,
    *pairs: tuple[str, str],
    parts: Sequence[Part] = (),
    outside: bool = False,
) -> None:
    """Files turns: what was said, and what was answered."""
    for n, (said, answer) in enumerate(pairs):
        asked = datetime.fromtimestamp(store._clock(), UTC)
        mark = f"{conversation_id}-{n}-{store._clock()}"
        exchange = Exchange(said, message=said, started=asked, question_id=f"q{mark}", answer_id=f"m{mark}")
        record = await store.begin(user, conversation_id, exchange, [])
        exchange.parts = [*parts, Text(answer, 1)]
        exchange.ended, exchange.outcome, exchange.untrusted = asked, "complete", outside
        await store.end(record, exchange)


def texts(items: Sequence[Item]) -> list[str]:
    return [item.text for item in items]
