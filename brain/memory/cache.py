"""What was read of the users who are here, cached as long as nobody changed anything.

What this process does is told here at once. What other processes do, the store knows, and is asked.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from brain.memory.items import MemoryStore
from brain.messages import Interaction

HOT_SECONDS = 60.0
UNSEEN_SECONDS = 1.0
"""How long what other processes changed may go unseen."""
ASKED_SECONDS = 0.05
"""How long the store may take to say whether they did; one that is busy is read instead."""

T = TypeVar("T")


class Others:
    """Whether other processes changed anything, asked once in a while."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._wrote = 0
        self._until = 0.0

    async def wrote(self) -> int | None:
        """A number that is another one when they did; None when the store cannot tell at once."""
        asked = time.monotonic()
        if asked >= self._until:
            try:
                async with asyncio.timeout(ASKED_SECONDS):
                    self._wrote = await self._store.data_version()
            except TimeoutError:
                return None
            self._until = asked + UNSEEN_SECONDS
        return self._wrote


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    value: T
    wrote: int
    until: float
    size: int


class UserCache(Generic[T]):
    """One value a user, read when it is first needed; those of the users who were here last.

    Args:
        read: reads it from the store.
        users, most: how many are cached, and how large they may be together by `size`.
    """

    def __init__(
        self,
        others: Others,
        read: Callable[[str], Awaitable[T]],
        users: int,
        most: int = 0,
        size: Callable[[T], int] = lambda value: 0,
    ) -> None:
        self._others = others
        self._read = read
        self._users, self._most, self._size = users, most, size
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()
        self._total = 0
        self._changes = 0

    async def of(self, user: str) -> T:
        """The user's, as it is now."""
        wrote = await self._others.wrote()
        entry = self._entries.get(user)
        if entry is not None and entry.wrote == wrote and time.monotonic() < entry.until:
            self._entries.move_to_end(user)
            return entry.value
        while True:
            changes = self._changes
            value = await self._read(user)
            if changes == self._changes:
                break  # else it may be old already
        if wrote is not None:
            self._set(user, _Entry(value, wrote, time.monotonic() + HOT_SECONDS, self._size(value)))
        return value

    def change(self, user: str, changed: Callable[[T], T]) -> None:
        """It was changed, in this way."""
        self._changes += 1
        entry = self._entries.get(user)
        if entry is not None:
            value = changed(entry.value)
            self._set(user, _Entry(value, entry.wrote, entry.until, self._size(value)))

    def forget(self, user: str) -> None:
        """It was changed, and is read anew the next time."""
        self._changes += 1
        self._drop(user)

    def _set(self, user: str, entry: _Entry[T]) -> None:
        self._drop(user)
        self._entries[user] = entry
        self._total += entry.size
        while len(self._entries) > self._users or self._total > self._most:
            self._drop(next(iter(self._entries)))

    def _drop(self, user: str) -> None:
        entry = self._entries.pop(user, None)
        self._total -= entry.size if entry is not None else 0


KEPT = 20
"""Interactions of a user."""
USERS_MOST = 1_000
BYTES_MOST = 32 * 1024 * 1024
TEXT_LENGTH = 8_000
"""Of what was said, and of the answer; a block could not show more."""
_OBJECT_BYTES = 300


class Recent:
    """The newest interactions of the users who were here last, newest first."""

    def __init__(self, store: MemoryStore, others: Others) -> None:
        self._store = store
        self._cache = UserCache(others, self._read, USERS_MOST, BYTES_MOST, _size)

    async def of(self, user: str) -> Sequence[Interaction]:
        """What was said last, newest first."""
        return await self._cache.of(user)

    def add(self, user: str, interaction: Interaction) -> None:
        """Something was said, and is in the store."""
        short = _short(interaction)
        self._cache.change(user, lambda newest: _with(newest, short))

    def forget(self, user: str) -> None:
        """Reads those of a user anew, the next time."""
        self._cache.forget(user)

    async def _read(self, user: str) -> Sequence[Interaction]:
        return [_short(interaction) for interaction in await self._store.recent(user, KEPT)]


def _with(newest: Sequence[Interaction], one: Interaction) -> Sequence[Interaction]:
    """One more, unless it was read from the store in the same moment."""
    others = [other for other in newest if (other.conversation_id, other.started) != (one.conversation_id, one.started)]
    return sorted([one, *others], key=lambda interaction: interaction.started, reverse=True)[:KEPT]


def _short(interaction: Interaction) -> Interaction:
    return replace(interaction, message=interaction.message[:TEXT_LENGTH], answer=interaction.answer[:TEXT_LENGTH])


def _size(newest: Sequence[Interaction]) -> int:
    return sum(_OBJECT_BYTES + 4 * (len(one.message) + len(one.answer)) for one in newest)
