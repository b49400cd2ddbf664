"""Wing: what a call would be made with, for the person who is to approve it: exact, and cut in view of all names."""

from collections.abc import Mapping
from typing import Any

from brain.wire.bodies import encoded

SHORTEST = 8
"""Characters of a value that are shown at least."""


def exact(text: str) -> str:
    """The same, with the number of each character that nobody sees, or that turns others around."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_exact(character) for character in text)


def _exact(character: str) -> str:
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def params_shown(params: Mapping[str, Any], most: int) -> tuple[str, bool]:
    """The parameters as JSON, and whether values of them were cut for all names to be seen in `most` characters.

    Where the names alone are longer, it is cut behind the last that is whole.
    """
    whole = exact(encoded(params).decode())
    if len(whole) <= most:
        return whole, False
    names = [exact(encoded(name).decode()) for name in params]
    values = [exact(encoded(value).decode()) for value in params.values()]
    room = most - 1 - sum(len(name) + 2 for name in names)
    longest = _longest(values, room)
    shown = "{" + ",".join(f"{name}:{_cut(value, longest)}" for name, value in zip(names, values, strict=True)) + "}"
    return (shown if len(shown) <= most else f"{shown[:most]}…"), True


def _longest(values: list[str], room: int) -> int:
    """How long each value may be, so that all fit: short ones leave their room to the longer ones."""
    left = len(values)
    for value in sorted(values, key=len):
        share = room // left
        if len(value) > share:
            return max(SHORTEST, share)
        room -= len(value)
        left -= 1
    return max(map(len, values), default=0)


def _cut(value: str, most: int) -> str:
    return value if len(value) <= most else f"{value[: most - 1]}…"
