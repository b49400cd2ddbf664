"""Rooms: what was said lately, of the users who are here, kept hot."""

from collections.abc import Sequence
from dataclasses import replace

from brain.kept import Interaction
from brain.memory.hot import Hot, Others
from brain.memory.shelf import Shelf

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
