"""Roof: how a turn is shown to a person in a terminal, and how the person is asked to approve a call."""

import asyncio
import importlib.util
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Done,
    Error,
    Event,
    Notice,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    Token,
)

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LINE_BYTES = 4096
"""At least as much as a terminal takes of a line."""


class Terminal:
    """Shows a turn to a person: the answer on one stream, what happens on the other."""

    def __init__(self, answer: TextIO, aside: TextIO) -> None:
        self._answer = answer
        self._aside = aside
        self._dim, self._plain = ("\033[2m", "\033[0m") if aside.isatty() else ("", "")
        self._in_line = False
        self._question = ""

    def show(self, event: Event) -> None:
        """Shows one event; those a person does not need are left out."""
        match event:
            case Token(text=text):
                self._answer.write(_CONTROLS.sub("", text) if self._answer.isatty() else text)
                self._answer.flush()
                self._in_line = not text.endswith("\n")
            case SpecialistStart(name=name, params=params):
                self.say(f"… {name} {json.dumps(params, ensure_ascii=False) if params else ''}".rstrip())
            case SpecialistProgress(text=text, fraction=fraction):
                self.say(f"  {text}" + (f" ({fraction:.0%})" if fraction is not None else ""))
            case SpecialistResult(name=name, ms=ms, cached=cached):
                self.say(f"✓ {name}, {ms} ms" + (", from before" if cached else ""))
            case SpecialistError(name=name, code=code, reason=reason):
                self.say(f"✗ {name}: {code}: {reason}")
            case Notice(text=text):
                self.say(text)
            case Error(code=code, message=message):
                self.say(f"Error: {message} ({code})")
            case Done(stop_reason=reason):
                self.say("" if reason == "complete" else f"(ended: {reason})")

    def ask(self, text: str, question: str) -> None:
        """Shows a text, and under it a question, which stays the last line until it is answered."""
        self.say(text, dim=False)
        self._question = question
        self._aside.write(question)
        self._aside.flush()

    def answered(self, *, by_person: bool) -> None:
        """The question is none any more."""
        if not by_person:
            self._aside.write("\n")
        self._question = ""

    def say(self, text: str, *, dim: bool = True) -> None:
        """Says something besides the answer, on a line of its own; nothing with an empty text but the line's end."""
        if self._in_line:
            self._answer.write("\n")
            self._answer.flush()
            self._in_line = False
        if text:
            before, behind = ("\n", self._question) if self._question else ("", "")
            shown = f"{self._dim}{_CONTROLS.sub('', text)}{self._plain}" if dim else text
            self._aside.write(f"{before}{shown}\n{behind}")
            self._aside.flush()


class Person:
    """Somebody at a terminal, who is asked about one call after the other while the turn goes on.

    Args:
        source: where answers are typed.
        decide: told what the person said about a call.
    """

    def __init__(self, terminal: Terminal, source: TextIO, decide: Callable[[str, bool], None]) -> None:
        self._terminal = terminal
        self._fd = source.fileno()
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
                self._ask()

    def leave(self) -> None:
        """Waits for an answer no more."""
        if asyncio.get_running_loop().remove_reader(self._fd):
            self._terminal.answered(by_person=False)

    def _ask(self) -> None:
        if not self._open:
            return
        from termios import TCIFLUSH, tcflush

        asked = self._open[0]
        until = asked.expires_at.astimezone()
        tcflush(self._fd, TCIFLUSH)  # what was typed before the question is no answer to it
        self._terminal.ask(
            f"? {asked.name} needs your approval, until {until:%H:%M:%S}:\n{_listed(asked.params)}", "Approve? [y/N] "
        )
        asyncio.get_running_loop().add_reader(self._fd, self._heard)

    def _heard(self) -> None:
        line = os.read(self._fd, _LINE_BYTES)
        asyncio.get_running_loop().remove_reader(self._fd)
        self._terminal.answered(by_person=line.endswith(b"\n"))
        asked = self._open.pop(0)
        with suppress(BadRequest):  # it expired at this very moment
            self._decide(asked.call_id, line.strip().lower() in (b"y", b"yes"))
        self._ask()


def can_be_asked(source: TextIO, aside: TextIO) -> bool:
    """Whether somebody sits at these streams, in a terminal in which we can ask."""
    return source.isatty() and aside.isatty() and importlib.util.find_spec("termios") is not None


def _listed(params: Mapping[str, Any]) -> str:
    """What a call would be made with, whole, and nothing in it that could look like something else."""
    lines = (f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in params.items())
    return "\n".join(map(visible, lines)) or "    (without parameters)"


def visible(text: str) -> str:
    """A text in which nothing can steer a terminal, or look like something else."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
