"""A turn as text: the answer on one stream, what happens on the other. For pipes and simple terminals."""

import json
import os
from typing import TextIO

from brain.cli.terminal.messages import ENDINGS, explain_failure, format_duration
from brain.cli.terminal.sanitize import unsteered
from brain.events import (
    Done,
    Error,
    Event,
    Notice,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    Thinking,
    Token,
)
from brain.text import escape_invisible


class Plain:
    """Shows a turn.

    Args:
        thinks: whether the model's reasoning is shown, too.
    """

    def __init__(self, answer: TextIO, aside: TextIO, *, thinks: bool = False) -> None:
        self._answer = answer
        self._aside = aside
        self._dim, self._undim = ("\033[2m", "\033[0m") if coloured(aside) else ("", "")
        self._thinks = thinks
        self._thought = ""
        self._in_line = False
        self._question = ""

    def show(self, event: Event) -> None:
        """Shows one event; those a person does not need are left out."""
        match event:
            case Token(text=text):
                self._close_thought()
                self._answer.write(unsteered(text) if self._answer.isatty() else text)
                self._answer.flush()
                self._in_line = not text.endswith("\n")
            case Thinking(text=text):
                self._think(text)
            case SpecialistStart(name=name, params=params):
                self.say(
                    f"… {name}" + (f" {escape_invisible(json.dumps(params, ensure_ascii=False))}" if params else "")
                )
            case SpecialistProgress(text=text, fraction=fraction):
                self.say(f"  {text}" + (f" ({fraction:.0%})" if fraction is not None else ""))
            case SpecialistResult():
                self.say(f"✓ {event.name}, {format_duration(event)}")
            case SpecialistError():
                words, detail = explain_failure(event)
                self.say(f"✗ {event.name}: {event.code}: {words}" + (f"\n  {detail}" if detail else ""))
            case Notice(code=code, text=text) if code != "repetition":  # as the stop reason says
                self.say(text)
            case Error(code=code, message=message):
                self.say(f"Error: {message} ({code})")
            case Done(stop_reason=reason):
                self.say(ENDINGS[reason])

    def ask(self, text: str, question: str) -> None:
        """Shows a text, and under it a question, which stays the last line until it is answered."""
        self.say(text, dim=False)
        self._question = question
        self._aside.write(question)
        self._aside.flush()

    def end_question(self, *, by_person: bool) -> None:
        """The question is none any more."""
        if not by_person:
            self._aside.write("\n")
        self._question = ""

    def say(self, text: str, *, dim: bool = True) -> None:
        """Says something besides the answer, on a line of its own; nothing with an empty text but the line's end."""
        self._close_thought()
        self._end_line()
        if text:
            before, behind = ("\n", self._question) if self._question else ("", "")
            shown = f"{self._dim}{unsteered(text)}{self._undim}" if dim else text
            self._aside.write(f"{before}{shown}\n{behind}")
            self._aside.flush()

    def resume(self) -> None:
        """Nothing that was written changes."""

    def close(self) -> None:
        """Nothing more is shown of this turn."""
        self._close_thought()
        self._end_line()

    def _think(self, text: str) -> None:
        if not self._thinks:
            return
        self._end_line()
        *lines, self._thought = f"{self._thought}{text}".split("\n")
        for line in lines:
            self._write_thought(line)

    def _close_thought(self) -> None:
        if self._thought:
            self._write_thought(self._thought)
            self._thought = ""

    def _write_thought(self, line: str) -> None:
        self._aside.write(f"{self._dim}{unsteered(line)}{self._undim}\n")
        self._aside.flush()

    def _end_line(self) -> None:
        if self._in_line:
            self._answer.write("\n")
            self._answer.flush()
            self._in_line = False


def coloured(stream: TextIO) -> bool:
    """Whether text may be dimmed there: in a terminal that can, unless the environment says otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
