"""Roof: what a person reads before approving a call: all of it, and nothing in it that could look like something else.

Lines that go on are set in further than any that begins, so that no value can pass for another parameter.
"""

import json
import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells

from brain.events import ApprovalRequired
from brain.unicode import escaped

KEY_CELLS = 24
"""As much of a parameter's name as is shown in short."""
_GOES_ON = " " * 8
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def told(asked: ApprovalRequired, columns: int, lines: int) -> str:
    """What would be done, for a window of this size; what has no room in it once more, in short."""
    width, room = max(columns, 3 * len(_GOES_ON)) - 1, lines - len(chop_cells(question(asked), columns))
    head = f"? {asked.name} needs your approval, until {asked.expires_at.astimezone():%H:%M:%S}:"
    said, params = (asked.text or "").splitlines(), list(_params(asked))
    whole = [*_wrapped(head, width), *(line for one in said for line in _wrapped(f"  {escaped(one)}", width))]
    whole += [line for name, value in params for line in _wrapped(name + value, width)]
    if len(whole) <= room:
        return "\n".join(whole)
    short = [_one_line("  ", escaped(" ".join(said)), width)] if said else []
    short += [_one_line(name, value, width) for name, value in params]
    return "\n".join([*whole, "  In short:", *_first(short, max(1, room - 1))])


def question(asked: ApprovalRequired) -> str:
    """What is asked then: it names the call, for what stands above it may say anything."""
    count = len(asked.params)
    return f"Approve {asked.name} ({count or 'no'} parameter{'' if count == 1 else 's'})? [y/N] "


def _params(asked: ApprovalRequired) -> Iterator[tuple[str, str]]:
    for key, value in asked.params.items():
        name = key if _PLAIN_KEY.fullmatch(key) else escaped(json.dumps(key, ensure_ascii=False))
        yield f"    {name}: ", escaped(json.dumps(value, ensure_ascii=False))
    if not asked.params:
        yield "    ", "(without parameters)"


def _first(short: list[str], room: int) -> list[str]:
    """As many as have room, from the first on, and how many more there are."""
    if len(short) <= room:
        return short
    shown = short[: max(1, room - 1)]
    return [*shown, f"  {len(short) - len(shown)} more stand above."]


def _wrapped(line: str, width: int) -> Iterator[str]:
    """A line in pieces that have room, cut between words where there are any."""
    place, indent = 0, ""
    while place < len(line) or not indent:
        cells = width - len(indent)
        piece = _chopped(line[place : place + 4 * cells], cells)  # with the three marks that each may have
        if place + len(piece) < len(line):
            piece = piece[: piece.rfind(" ", len(piece) // 2) + 1 or len(piece)]
        yield indent + piece
        place, indent = place + len(piece), _GOES_ON


def _one_line(prefix: str, text: str, width: int) -> str:
    prefix = _folded(prefix, KEY_CELLS)
    return prefix + _folded(text, width - cell_len(prefix))


def _folded(text: str, cells: int) -> str:
    """A text whose middle is left out where it is too long."""
    if cell_len(text) <= cells:
        return text
    side = max(1, (cells - 3) // 2)
    return f"{_chopped(text, side)} … {_chopped(text[::-1], side)[::-1]}"


def _chopped(text: str, cells: int) -> str:
    """As much of a text as has room, in whole characters; all of one that takes none, of which `rich` makes no line."""
    return (chop_cells(text, cells) or [text])[0]
