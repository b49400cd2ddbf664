"""Roof: a person at a terminal, who is asked to approve calls."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Protocol, TextIO

from brain.errors import BadRequest
from brain.events import ApprovalRequired, Event, SpecialistError
from brain.terminal.keyboard import Keyboard, drop
from brain.terminal.size import size_of
from brain.terminal.words import is_yes

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


class Person:
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
        from brain.terminal.approval import question, told  # with rich: who is not asked does not pay for it

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
