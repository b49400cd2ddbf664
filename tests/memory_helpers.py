"""What tests of memory share: a memory over a real store, and vectors in which words of one meaning are alike."""

import asyncio
import re
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from limits import WAIT_SECONDS
from store_helpers import Clock, DatabasePlace, database_at, opened

from brain.errors import Refused, StoreError
from brain.memory import Memory
from brain.memory.quotes import UserMessage
from brain.memory.user_view import UserMemory
from brain.messages import Chunk, Exchange, Item, Part, Text
from brain.models.model import Model, PassRequest
from brain.store import conversations, items, vectors
from brain.store.store import Store

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
"""Words of about the same meaning: a group for each question of the embedding check, and two for the tests."""
OTHER_PLACES = 50
PLACES = {word: place for place, group in enumerate(GROUPS) for word in group.split()}
LOOKS: Mapping[object, str] = {vectors.lacking: "without vector", conversations.claim_idle: "idle"}


@dataclass
class Vectors(Model):
    """An embedding model, which notes what it was asked.

    Attributes:
        gate: what it waits for before it answers, if anything.
        broken: whether it makes no vectors.
        blind: whether its vectors are the same for all texts.
    """

    name: str = "toy"
    gate: asyncio.Event | None = None
    broken: bool = False
    blind: bool = False
    requests: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.name)

    def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        raise NotImplementedError

    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.requests.append(list(texts))
        if self.gate is not None:
            await self.gate.wait()
        if self.broken:
            raise Refused("no embeddings")
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        numbers = [0.01] * (len(GROUPS) + OTHER_PLACES)
        for word in re.findall(r"\w{4,}|pet|dog|pill", text.lower()) if not self.blind else ():
            other = len(GROUPS) + zlib.crc32(word.encode()) % OTHER_PLACES
            numbers[PLACES.get(word, other)] += 1.0 if word in PLACES else 0.2
        return numbers


class BreakableStore(Store):
    """A store that can fail, and that can be held up after what it reads.

    Attributes:
        reads: how often interactions or items were read.
        looks: how often idle conversations, or items without a vector, were looked for.
        busy: whether the thread that writes answers nobody.
    """

    broken = False
    busy = False
    gate: asyncio.Event | None = None

    def __init__(self, place: DatabasePlace | Path | None, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database_at(place, clock))
        self.reads = 0
        self.looks = Counter[str]()
        data_version = self.database.data_version
        self.database.data_version = lambda: asyncio.Event().wait() if self.busy else data_version()  # type: ignore
        for name in ("read", "search", "write_unsynced"):
            setattr(self, name, partial(self._call, getattr(self, name)))

    async def _call(self, method: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method with a function, and report the function."""
        found = await method(function, *args, **kwargs)
        await self.observe(function)
        return found

    async def observe(self, function: object) -> None:
        """Fail, count and wait after a function of interest."""
        is_read = function in (items.list_items, conversations.recent)
        if self.broken and (is_read or function in LOOKS):
            raise StoreError("The database cannot be read.")
        if function in LOOKS:
            self.looks[LOOKS[function]] += 1
        if is_read:
            self.reads += 1
            if self.gate is not None:
                await self.gate.wait()


@asynccontextmanager
async def open_memory(
    tokens: int = 400, path: DatabasePlace | Path | None = None
) -> AsyncIterator[tuple[Memory, BreakableStore, Clock]]:
    """A memory over a store of its own; conversations are idle after ten minutes of a clock that stands still."""
    clock = Clock(step=0)
    async with opened(BreakableStore(path, clock=clock)) as store:
        yield Memory(store, tokens=tokens, rest_seconds=600, now=lambda: clock.time), store, clock


async def until(is_so: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for something that nothing reports."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not (found if isinstance(found := is_so(), bool) else await found):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def looked(store: BreakableStore, what: str, times: int = 2) -> None:
    """Wait until the background looked so often; of two looks, the second one began after this call."""
    end = store.looks[what] + times
    await until(lambda: store.looks[what] >= end)


def view(memory: Memory, *messages: str, user: str = "ada", conversation_id: str = "c1") -> UserMemory:
    """The memory of a user who wrote these messages."""
    return memory.view(user, conversation_id, lambda: [UserMessage(text) for text in messages])


async def add_exchanges(
    store: Store,
    user: str,
    conversation_id: str,
    *pairs: tuple[str, str],
    parts: Sequence[Part] = (),
    untrusted: bool = False,
) -> None:
    """Store exchanges of a message and an answer."""
    for n, (message, reply) in enumerate(pairs):
        now = Clock(0)
        now.now = store.database.clock()
        mark = f"{conversation_id}-{n}-{now.now}"
        exchange = Exchange(message, message=message, started=now.time, question_id=f"q{mark}", answer_id=f"m{mark}")
        history = await store.write_question(user, conversation_id, exchange, [])
        exchange.parts = [*parts, Text(reply, 1)]
        exchange.ended, exchange.outcome, exchange.untrusted = now.time, "complete", untrusted
        await store.end(history, exchange)


def texts(found: Sequence[Item]) -> list[str]:
    return [item.text for item in found]
