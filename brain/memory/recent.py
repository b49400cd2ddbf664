"""Rooms: what was said lately, of the users who are here, kept hot."""

import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from brain.kept import Interaction
from brain.memory.shelf import Shelf

KEPT = 20
"""Interactions of a user."""
USERS_MOST = 1_000
BYTES_MOST = 32 * 1024 * 1024
TEXT_LENGTH = 8_000
"""Of what was said, and of the answer; a block could not show more."""
HOT_SECONDS = 1.0
"""How long what other processes said may go unseen."""
_OBJECT_BYTES = 300


@dataclass(slots=True)
class _Hot:
    newest: deque[Interaction]
    until: float
    bytes: int = 0


class Recent:
    """The newest interactions of the users who were here last, newest first."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._users: OrderedDict[str, _Hot] = OrderedDict()
        self._bytes = 0
        self._changes = 0

    async def of(self, user: str) -> list[Interaction]:
        """What was said last, newest first."""
        hot = self._users.get(user)
        if hot is not None and time.monotonic() < hot.until:
            self._users.move_to_end(user)
            return list(hot.newest)
        changes = self._changes
        newest = [_short(interaction) for interaction in await self._shelf.recent(user, KEPT)]
        if changes == self._changes:  # else it may be old already
            self._keep(user, newest)
        return newest

    def _keep(self, user: str, newest: Sequence[Interaction]) -> None:
        self._drop(user)
        hot = self._users[user] = _Hot(deque(newest, KEPT), time.monotonic() + HOT_SECONDS, sum(map(_size, newest)))
        self._bytes += hot.bytes
        self._make_room()

    def add(self, user: str, interaction: Interaction) -> None:
        """Something was said."""
        self._changes += 1
        hot = self._users.get(user)
        if hot is None:
            return
        hot.newest.appendleft(_short(interaction))
        self._bytes -= hot.bytes
        hot.bytes = sum(map(_size, hot.newest))
        self._bytes += hot.bytes
        self._make_room()

    def forget(self, user: str) -> None:
        """Reads those of a user anew, the next time."""
        self._changes += 1
        self._drop(user)

    def _drop(self, user: str) -> None:
        hot = self._users.pop(user, None)
        self._bytes -= hot.bytes if hot is not None else 0

    def _make_room(self) -> None:
        while len(self._users) > USERS_MOST or self._bytes > BYTES_MOST:
            _, hot = self._users.popitem(last=False)
            self._bytes -= hot.bytes


def _short(interaction: Interaction) -> Interaction:
    return replace(interaction, said=interaction.said[:TEXT_LENGTH], answer=interaction.answer[:TEXT_LENGTH])


def _size(interaction: Interaction) -> int:
    return _OBJECT_BYTES + 4 * (len(interaction.said) + len(interaction.answer))
