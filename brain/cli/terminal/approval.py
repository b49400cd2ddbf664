"""What a person reads before approving a call: all of it, and nothing in it that could look like something else.

Lines that go on are set in further than any that begins, so that no value can pass for another parameter.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Protocol, TextIO

from rich.cells import cell_len, chop_cells

from brain.cli.terminal.keyboard import Keyboard, drop
from brain.cli.terminal.messages import is_yes
from brain.cli.terminal.size import size_of
from brain.errors import BadRequest
from brain.events import ApprovalRequired, Event, SpecialistError
from brain.text import escape_invisible

KEY_CELLS = 24
"""As much of a parameter's name as is shown in short."""
_GOES_ON = " " * 8
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def told(asked: ApprovalRequired, columns: int, lines: int) -> str:
    """What would be done, for a window of this size; what has no room in it once more, in short."""
    width, room = max(columns, 3 * len(_GOES_ON)) - 1, lines - len(chop_cells(question(asked), columns))
    head = f"? {asked.name} needs your approval, until {asked.expires_at.astimezone():%H:%M:%S}:"
    said, params = (asked.text or "").splitlines(), list(_params(asked))
    whole = [*_wrapped(head, width), *(line for one in said for line in _wrapped(f"  {escape_invisible(one)}", width))]
    whole += [line for name, value in params for line in _wrapped(name + value, width)]
    if len(whole) <= room:
        return "\n".join(whole)
    short = [_one_line("  ", escape_invisible(" ".join(said)), width)] if said else []
    short += [_one_line(name, value, width) for name, value in params]
    return "\n".join([*whole, "  In short:", *_first(short, max(1, room - 1))])


def question(asked: ApprovalRequired) -> str:
    """What is asked then: it names the call, for what stands above it may say anything."""
    count = len(asked.params)
    return f"Approve {asked.name} ({count or 'no'} parameter{'' if count == 1 else 's'})? [y/N] "


def _params(asked: ApprovalRequired) -> Iterator[tuple[str, str]]:
    for key, value in asked.params.items():
        name = key if _PLAIN_KEY.fullmatch(key) else escape_invisible(json.dumps(key, ensure_ascii=False))
        yield f"    {name}: ", escape_invisible(json.dumps(value, ensure_ascii=False))
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


_LINE_BYTES = 4096
"""At least as much as a terminal takes of a line."""


class Screen(Protocol):
    """Where a turn is shown, and the person is asked."""

    def show(self, event: Event) -> None:
        """Shows one event."""

    def say(self, text: str, *, dim: bool = True) -> None:
        """Says something besides the answer, on a line of its own."""

    def ask(self, text: str, question: str) -> None:
        """Shows a text, and under it a question, which stays the last line until it is answered."""

    def answered(self, *, by_person: bool) -> None:
        """The question is none any more."""

    def resume(self) -> None:
        """The terminal is this process's again, which was stopped."""

    def close(self) -> None:
        """Nothing more is shown of this turn."""


class ApprovalPrompt:
    """Somebody at a terminal, who is asked about one call after the other while the turn goes on.

    Args:
        source: where answers are typed.
        decide: told what the person said about a call.
    """

    def __init__(
        self, screen: Screen, source: TextIO, decide: Callable[[str, bool], None], keyboard: Keyboard | None = None
    ) -> None:
        self._screen = screen
        self._source = source
        self._keyboard = keyboard
        self._decide = decide
        self._open: list[ApprovalRequired] = []  # the first of them is being asked about

    def hear(self, event: Event) -> None:
        """Asks about a call that has to be approved, and no longer about one that is decided or given up."""
        if isinstance(event, ApprovalRequired):
            self._open.append(event)
            if len(self._open) == 1:
                self._ask()
        elif isinstance(event, SpecialistError):
            first = bool(self._open) and self._open[0].call_id == event.call_id
            self._open = [asked for asked in self._open if asked.call_id != event.call_id]
            if first:
                self.leave()
                if event.code == "declined":
                    self._screen.say("The time to approve it is over.")
                self._ask()

    def leave(self) -> None:
        """Waits for an answer no more."""
        if asyncio.get_running_loop().remove_reader(self._source):
            self._answered(by_person=False)

    def _ask(self) -> None:
        if not self._open:
            return
        # with rich: who is not asked does not pay for it

        if self._keyboard is not None:
            self._keyboard.echo(on=True)
        drop(self._source)
        asked = self._open[0]
        self._screen.ask(told(asked, *size_of(self._source.fileno())), question(asked))
        asyncio.get_running_loop().add_reader(self._source, self._heard)

    def _heard(self) -> None:
        line = os.read(self._source.fileno(), _LINE_BYTES)
        asyncio.get_running_loop().remove_reader(self._source)
        self._answered(by_person=line.endswith(b"\n"))
        asked = self._open.pop(0)
        with suppress(BadRequest):  # it expired at this very moment
            self._decide(asked.call_id, is_yes(line.decode(errors="replace")))
        self._ask()

    def _answered(self, *, by_person: bool) -> None:
        if self._keyboard is not None:
            self._keyboard.echo(on=False)
        self._screen.answered(by_person=by_person)


def can_be_asked(source: TextIO, shown: TextIO) -> bool:
    """Whether somebody sits at these streams, in a terminal in which we can ask."""
    return source.isatty() and shown.isatty() and find_spec("termios") is not None
