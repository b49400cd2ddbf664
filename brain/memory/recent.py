"""Rooms: what was said lately, of the users who are here, kept hot."""

import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from brain.kept import Interaction

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

    def __init__(self) -> None:
        self._users: OrderedDict[str, _Hot] = OrderedDict()
        self._bytes = 0
        self.changes = 0

    def of(self, user: str) -> list[Interaction] | None:
        """Those of a user; None when they have to be read."""
        hot = self._users.get(user)
        if hot is None or time.monotonic() >= hot.until:
            return None
        self._users.move_to_end(user)
        return list(hot.newest)

    def put(self, user: str, newest: Sequence[Interaction], changes: int) -> None:
        """Keeps what was read, unless anything changed since: `changes` is what it was before the reading."""
        self.forget(user, counted=False)
        if changes == self.changes:
            kept = deque(map(_short, newest[:KEPT]), KEPT)
            hot = self._users[user] = _Hot(kept, time.monotonic() + HOT_SECONDS, sum(map(_size, kept)))
            self._bytes += hot.bytes
            self._make_room()

    def add(self, user: str, interaction: Interaction) -> None:
        """Something was said."""
        self.changes += 1
        hot = self._users.get(user)
        if hot is None:
            return
        hot.newest.appendleft(_short(interaction))
        self._bytes -= hot.bytes
        hot.bytes = sum(map(_size, hot.newest))
        self._bytes += hot.bytes
        self._make_room()

    def forget(self, user: str, *, counted: bool = True) -> None:
        """Reads those of a user anew, the next time."""
        self.changes += counted
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
