"""What was read of the users who are here, kept hot as long as nobody changed anything.

What this process does is told here at once. What other processes do, the store knows, and is asked.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from brain.memory.items import Shelf
from brain.messages import Interaction

HOT_SECONDS = 60.0
UNSEEN_SECONDS = 1.0
"""How long what other processes changed may go unseen."""
ASKED_SECONDS = 0.05
"""How long the store may take to say whether they did; one that is busy is read instead."""

T = TypeVar("T")


class Others:
    """Whether other processes changed anything, asked once in a while."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._wrote = 0
        self._until = 0.0

    async def wrote(self) -> int | None:
        """A number that is another one when they did; None when the store cannot tell at once."""
        asked = time.monotonic()
        if asked >= self._until:
            try:
                async with asyncio.timeout(ASKED_SECONDS):
                    self._wrote = await self._shelf.others_wrote()
            except TimeoutError:
                return None
            self._until = asked + UNSEEN_SECONDS
        return self._wrote


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    value: T
    wrote: int
    until: float
    size: int


class Hot(Generic[T]):
    """One value a user, read when it is first needed; those of the users who were here last.

    Args:
        read: reads it from the store.
        users, most: how many are kept, and how large they may be together by `size`.
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
        self._kept: OrderedDict[str, _Kept[T]] = OrderedDict()
        self._total = 0
        self._changes = 0

    async def of(self, user: str) -> T:
        """The user's, as it is now."""
        wrote = await self._others.wrote()
        kept = self._kept.get(user)
        if kept is not None and kept.wrote == wrote and time.monotonic() < kept.until:
            self._kept.move_to_end(user)
            return kept.value
        while True:
            changes = self._changes
            value = await self._read(user)
            if changes == self._changes:
                break  # else it may be old already
        if wrote is not None:
            self._keep(user, _Kept(value, wrote, time.monotonic() + HOT_SECONDS, self._size(value)))
        return value

    def change(self, user: str, changed: Callable[[T], T]) -> None:
        """It was changed, in this way."""
        self._changes += 1
        kept = self._kept.get(user)
        if kept is not None:
            value = changed(kept.value)
            self._keep(user, _Kept(value, kept.wrote, kept.until, self._size(value)))

    def forget(self, user: str) -> None:
        """It was changed, and is read anew the next time."""
        self._changes += 1
        self._drop(user)

    def _keep(self, user: str, kept: _Kept[T]) -> None:
        self._drop(user)
        self._kept[user] = kept
        self._total += kept.size
        while len(self._kept) > self._users or self._total > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, user: str) -> None:
        kept = self._kept.pop(user, None)
        self._total -= kept.size if kept is not None else 0


KEPT = 20
"""Interactions of a user."""
USERS_MOST = 1_000
BYTES_MOST = 32 * 1024 * 1024
TEXT_LENGTH = 8_000
"""Of what was said, and of the answer; a block could not show more."""
_OBJECT_BYTES = 300


class Recent:
    """The newest interactions of the users who were here last, newest first."""

    def __init__(self, shelf: Shelf, others: Others) -> None:
        self._shelf = shelf
        self._hot = Hot(others, self._read, USERS_MOST, BYTES_MOST, _size)

    async def of(self, user: str) -> Sequence[Interaction]:
        """What was said last, newest first."""
        return await self._hot.of(user)

    def add(self, user: str, interaction: Interaction) -> None:
        """Something was said, and is in the store."""
        short = _short(interaction)
        self._hot.change(user, lambda newest: _with(newest, short))

    def forget(self, user: str) -> None:
        """Reads those of a user anew, the next time."""
        self._hot.forget(user)

    async def _read(self, user: str) -> Sequence[Interaction]:
        return [_short(interaction) for interaction in await self._shelf.recent(user, KEPT)]


def _with(newest: Sequence[Interaction], one: Interaction) -> Sequence[Interaction]:
    """One more, unless it was read from the store in the same moment."""
    others = [other for other in newest if (other.conversation_id, other.asked) != (one.conversation_id, one.asked)]
    return sorted([one, *others], key=lambda interaction: interaction.asked, reverse=True)[:KEPT]


def _short(interaction: Interaction) -> Interaction:
    return replace(interaction, said=interaction.said[:TEXT_LENGTH], answer=interaction.answer[:TEXT_LENGTH])


def _size(newest: Sequence[Interaction]) -> int:
    return sum(_OBJECT_BYTES + 4 * (len(one.said) + len(one.answer)) for one in newest)
