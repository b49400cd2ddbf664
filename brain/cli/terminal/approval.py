"""Ask a person to approve a call. The request is shown in full.

Continued lines have a deeper indent than first lines. No value can look like another parameter.
"""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol, TextIO

from rich.cells import cell_len, chop_cells

from brain.cli.terminal.keyboard import Keyboard, discard_input
from brain.cli.terminal.messages import is_yes
from brain.errors import BadRequest
from brain.events import ApprovalRequired, Event, Rewind, SpecialistError
from brain.text import escape_invisible

KEY_CELLS = 24
"""Width of a parameter name in the short form, in cells."""
_INDENT = " " * 8
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def format_request(request: ApprovalRequired, columns: int, lines: int) -> str:
    """Return what the call does, for a window of this size; if it is too long, a short form follows."""
    width = max(columns, 3 * len(_INDENT)) - 1
    max_lines = lines - len(chop_cells(question(request), columns))
    head = f"? {request.name} needs your approval (expires {request.expires_at.astimezone():%H:%M:%S}):"
    preview = [escape_invisible(line) for line in (request.text or "").splitlines()]
    params = []
    for key, value in request.params.items():
        name = key if _PLAIN_KEY.fullmatch(key) else escape_invisible(json.dumps(key, ensure_ascii=False))
        params.append((f"    {name}: ", escape_invisible(json.dumps(value, ensure_ascii=False))))
    params = params or [("    ", "(without parameters)")]
    whole = [head, *(f"  {line}" for line in preview), *(name + value for name, value in params)]
    full = [piece for line in whole for piece in _wrap(line, width)]
    if len(full) <= max_lines:
        return "\n".join(full)
    rows = []
    for name, value in [*([("  ", " ".join(preview))] if preview else []), *params]:
        label = _shorten(name, KEY_CELLS)
        rows.append(label + _shorten(value, width - cell_len(label)))
    if len(rows) > max(1, max_lines - 1):
        shown = max(1, max_lines - 2)
        rows = [*rows[:shown], f"  {len(rows) - shown} more above."]
    return "\n".join([*full, "  In short:", *rows])


def question(request: ApprovalRequired) -> str:
    """Return the question. It names the call, because the text above it may contain anything."""
    count = len(request.params)
    return f"Approve {request.name} ({count or 'no'} parameter{'' if count == 1 else 's'})? [y/N] "


def _wrap(line: str, width: int) -> Iterator[str]:
    """Yield a line in pieces that fit, cut between words where possible."""
    place, indent = 0, ""
    while place < len(line) or not indent:
        cells = width - len(indent)
        piece = _fit(line[place : place + 4 * cells], cells)  # each character may have three combining marks
        if place + len(piece) < len(line):
            piece = piece[: piece.rfind(" ", len(piece) // 2) + 1 or len(piece)]
        yield indent + piece
        place, indent = place + len(piece), _INDENT


def _shorten(text: str, cells: int) -> str:
    """Return a text that fits; a longer one loses its middle."""
    if cell_len(text) <= cells:
        return text
    side = max(1, (cells - 3) // 2)
    return f"{_fit(text, side)} … {_fit(text[::-1], side)[::-1]}"


def _fit(text: str, cells: int) -> str:
    """Return the beginning of a text that fits, in whole characters. `rich` has no piece for a text without width."""
    return (chop_cells(text, cells) or [text])[0]


_LINE_BYTES = 4096
"""No terminal accepts a longer line."""


class Screen(Protocol):
    """Shows a turn, and asks the person to approve calls."""

    def show(self, event: Event) -> None:
        """Show one event."""

    def show_message(self, text: str, *, dim: bool = True) -> None:
        """Show a message of Brain on separate lines."""

    def ask(self, text: str, question: str) -> None:
        """Show a text and a question, which stays the last line until `end_question`."""

    def end_question(self, *, by_person: bool) -> None:
        """Continue after a question that a person answered or that expired."""

    def resume(self) -> None:
        """Continue after this process was suspended; other programs may have written to the terminal."""

    def close(self) -> None:
        """Print what is left at the end of the turn."""


class ApprovalPrompt:
    """Asks the person to approve one call after the other while the turn continues.

    Args:
        decide: Takes the ID of a call, and True if the person approved it.
    """

    def __init__(
        self, screen: Screen, source: TextIO, decide: Callable[[str, bool], None], keyboard: Keyboard | None = None
    ) -> None:
        self._screen = screen
        self._source = source
        self._keyboard = keyboard
        self._decide = decide
        self._open: list[ApprovalRequired] = []  # the question is about the first one

    def handle(self, event: Event) -> None:
        """Ask about a call that needs approval; stop asking when it fails or expires."""
        if isinstance(event, ApprovalRequired):
            self._open.append(event)
            if len(self._open) == 1:
                self._ask_next()
        elif isinstance(event, Rewind):
            self._open.clear()
            self.cancel()
        elif isinstance(event, SpecialistError):
            first = bool(self._open) and self._open[0].call_id == event.call_id
            self._open = [request for request in self._open if request.call_id != event.call_id]
            if first:
                self.cancel()
                if event.code == "declined":
                    self._screen.show_message("The approval expired.")
                self._ask_next()

    def cancel(self) -> None:
        """Stop waiting for an answer."""
        if asyncio.get_running_loop().remove_reader(self._source):
            self._end_question(by_person=False)

    def _ask_next(self) -> None:
        if not self._open:
            return
        if self._keyboard is not None:
            self._keyboard.echo(on=True)
        discard_input(self._source)
        request = self._open[0]
        self._screen.ask(format_request(request, *shutil.get_terminal_size()), question(request))
        asyncio.get_running_loop().add_reader(self._source, self._read_answer)

    def _read_answer(self) -> None:
        line = os.read(self._source.fileno(), _LINE_BYTES)
        asyncio.get_running_loop().remove_reader(self._source)
        self._end_question(by_person=line.endswith(b"\n"))
        request = self._open.pop(0)
        with suppress(BadRequest):  # it has just expired
            self._decide(request.call_id, is_yes(line.decode(errors="replace")))
        self._ask_next()

    def _end_question(self, *, by_person: bool) -> None:
        if self._keyboard is not None:
            self._keyboard.echo(on=False)
        self._screen.end_question(by_person=by_person)
