"""Roof: how a turn is shown to a person in a terminal."""

import json
from typing import TextIO

from brain.events import (
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


class Terminal:
    """Shows a turn to a person: the answer on one stream, what happens on the other."""

    def __init__(self, answer: TextIO, aside: TextIO) -> None:
        self._answer = answer
        self._aside = aside
        self._dim, self._plain = ("\033[2m", "\033[0m") if aside.isatty() else ("", "")
        self._in_line = False

    def show(self, event: Event) -> None:
        """Shows one event; those a person does not need are left out."""
        match event:
            case Token(text=text):
                self._answer.write(text)
                self._answer.flush()
                self._in_line = not text.endswith("\n")
            case SpecialistStart(name=name, params=params):
                self._say(f"… {name} {json.dumps(params, ensure_ascii=False) if params else ''}".rstrip())
            case SpecialistProgress(text=text, fraction=fraction):
                self._say(f"  {text}" + (f" ({fraction:.0%})" if fraction is not None else ""))
            case SpecialistResult(name=name, ms=ms, cached=cached):
                self._say(f"✓ {name}, {ms} ms" + (", from before" if cached else ""))
            case SpecialistError(name=name, code=code, reason=reason):
                self._say(f"✗ {name}: {code}: {reason}")
            case Notice(text=text):
                self._say(text)
            case Error(code=code, message=message):
                self._say(f"Error: {message} ({code})")
            case Done(stop_reason=reason):
                self._say("" if reason == "complete" else f"(ended: {reason})")

    def _say(self, text: str) -> None:
        if self._in_line:
            self._answer.write("\n")
            self._answer.flush()
            self._in_line = False
        if text:
            self._aside.write(f"{self._dim}{text}{self._plain}\n")
            self._aside.flush()
