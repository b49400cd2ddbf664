"""Caches data of recent users until it changes.

This process reports its own changes; for those of other processes, the cache compares the version of the store.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from brain.errors import StoreError
from brain.messages import Interaction
from brain.store import conversations
from brain.store.store import Store

CACHE_SECONDS = 60.0
VERSION_SECONDS = 1.0
"""How long a change by another process may go unnoticed."""
VERSION_TIMEOUT = 0.05
"""How long to wait for the version of the store; after that, the cache is bypassed."""
CACHED_INTERACTIONS = 20
"""Per user."""
MAX_USERS = 1_000
MAX_BYTES = 32 * 1024 * 1024
TEXT_LENGTH = 8_000
"""Cached characters of each message and answer; a block cannot show more."""
CHANGE_BUCKETS = 1024
"""Number of change counters, which users share by hash."""
_OBJECT_BYTES = 300

T = TypeVar("T")


class StoreVersion:
    """The version of the store, which changes when other processes write; at most one second old."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asking: asyncio.Task[int | None] | None = None

    async def version(self) -> int | None:
        """Return the version; None if the store is too busy to tell."""
        version, read_at = self._store.database.known_version
        if time.monotonic() < read_at + VERSION_SECONDS:
            return version
        if self._asking is None:  # one query at a time, even if many turns wait for a busy store
            self._asking = asyncio.create_task(self._ask(), name="store version")
        asking = self._asking
        done, _ = await asyncio.wait((asking,), timeout=VERSION_TIMEOUT)
        return asking.result() if done else None

    async def _ask(self) -> int | None:
        try:
            return await self._store.database.data_version()
        except StoreError:
            return None
        finally:
            self._asking = None


class _Entry(NamedTuple, Generic[T]):
    value: T
    version: int
    until: float
    size: int


class UserCache(Generic[T]):
    """An LRU cache of one value per user.

    Args:
        users, size: limits for the number of values and their total `size_of`.
    """

    def __init__(
        self,
        others: StoreVersion,
        read: Callable[[str], Awaitable[T]],
        users: int,
        size: int,
        size_of: Callable[[T], int],
    ) -> None:
        self._others, self._read, self._users, self._size, self._size_of = others, read, users, size, size_of
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()
        self._total = 0
        self._changes = [0] * CHANGE_BUCKETS

    async def get(self, user: str) -> T:
        """Return the user's current value."""
        version = await self._others.version()
        entry = self._entries.get(user)
        if entry is not None and entry.version == version and time.monotonic() < entry.until:
            self._entries.move_to_end(user)
            return entry.value
        while True:
            changes = self._changes[_bucket(user)]
            value = await self._read(user)
            if changes == self._changes[_bucket(user)]:  # otherwise it changed during the read
                break
        if version is not None:
            self._set(user, _Entry(value, version, time.monotonic() + CACHE_SECONDS, self._size_of(value)))
        return value

    def change(self, user: str, changed: Callable[[T], T]) -> None:
        """Apply a change to a user's cached value."""
        self._changes[_bucket(user)] += 1
        entry = self._entries.get(user)
        if entry is not None:
            value = changed(entry.value)
            self._set(user, entry._replace(value=value, size=self._size_of(value)))

    def forget(self, user: str) -> None:
        """Drop a user's value, because it changed."""
        self._changes[_bucket(user)] += 1
        self._drop(user)

    def _set(self, user: str, entry: _Entry[T]) -> None:
        self._drop(user)
        self._entries[user] = entry
        self._total += entry.size
        while len(self._entries) > self._users or self._total > self._size:
            self._drop(next(iter(self._entries)))

    def _drop(self, user: str) -> None:
        entry = self._entries.pop(user, None)
        self._total -= entry.size if entry is not None else 0


class RecentInteractions(UserCache[Sequence[Interaction]]):
    """Caches the newest interactions of recent users, newest first."""

    def __init__(self, store: Store, others: StoreVersion) -> None:
        async def read(user: str) -> Sequence[Interaction]:
            return [_shorten(one) for one in await store.read(conversations.recent, user, CACHED_INTERACTIONS)]

        super().__init__(others, read, MAX_USERS, MAX_BYTES, _size_of)

    def add(self, user: str, interaction: Interaction) -> None:
        """Add a stored interaction."""
        new = _shorten(interaction)

        def add(newest: Sequence[Interaction]) -> Sequence[Interaction]:
            place = new.conversation_id, new.started  # it may be in the list already, read from the store
            others = [one for one in newest if (one.conversation_id, one.started) != place]
            return sorted([new, *others], key=lambda one: one.started, reverse=True)[:CACHED_INTERACTIONS]

        self.change(user, add)


def _bucket(user: str) -> int:
    return hash(user) % CHANGE_BUCKETS


def _shorten(interaction: Interaction) -> Interaction:
    if len(interaction.message) <= TEXT_LENGTH and len(interaction.answer) <= TEXT_LENGTH:
        return interaction
    return replace(interaction, message=interaction.message[:TEXT_LENGTH], answer=interaction.answer[:TEXT_LENGTH])


def _size_of(newest: Sequence[Interaction]) -> int:
    return sum(_OBJECT_BYTES + 4 * (len(one.message) + len(one.answer)) for one in newest)
