"""Plain text for pipes and simple terminals: the answer on one stream, everything else on another."""

import json
import os
from typing import TextIO

from brain.cli.terminal.messages import (
    REWOUND,
    HeldResult,
    describe_task,
    explain_call,
    explain_error,
    explain_outcome,
    format_duration,
    text_to_repeat,
)
from brain.cli.terminal.sanitize import remove_controls
from brain.events import (
    Done,
    Error,
    Event,
    Notice,
    Rewind,
    Round,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    TaskChange,
    Thinking,
    Token,
)
from brain.protocols.encoding import describe_round
from brain.text import escape_invisible


class Plain:
    """Shows a turn.

    Args:
        messages: Stream for everything except the answer.
    """

    def __init__(self, answer: TextIO, messages: TextIO, *, thinks: bool = False) -> None:
        self._answer = answer
        self._messages = messages
        self._dim, self._normal = ("\033[2m", "\033[0m") if _has_colors(messages) else ("", "")
        self._thinks = thinks
        self._thought = ""  # the last line of the reasoning, which continues
        self._is_in_line = False  # whether the answer's last line continues
        self._is_shared = _go_to_same_place(answer, messages)
        self._question = ""
        self._shown: list[str] = []  # the text of the answer so far
        self._held = HeldResult()

    def show(self, event: Event) -> None:
        """Show one event, if it matters to a person."""
        if result := self._held.take(event):
            self.show_message(result)
        match event:
            case Token(text=text):
                self._shown.append(text)
                self._write_answer(text)
            case Rewind(text=text):
                shown, self._shown = "".join(self._shown), [text]
                if shown:
                    self._end_line()  # also in an answer that goes elsewhere
                    self.show_message(REWOUND)
                self._write_answer(text_to_repeat(shown, text))
            case Thinking(text=text) if self._thinks:
                self._end_shared_line()
                *lines, self._thought = f"{self._thought}{text}".split("\n")
                for line in lines:
                    self._write_dim(line)
            case Round():
                self.show_message(describe_round(event))
            case SpecialistStart(name=name, params=params):
                shown = f" {escape_invisible(json.dumps(params, ensure_ascii=False))}" if params else ""
                self.show_message(f"… {name}{shown}")
            case SpecialistProgress(text=text, fraction=fraction):
                self.show_message(f"  {text}" + (f" ({fraction:.0%})" if fraction is not None else ""))
            case SpecialistResult():
                self.show_message(f"✓ {event.name}, {format_duration(event)}")
            case SpecialistError():
                self.show_message(f"✗ {event.name}: {explain_call(event.code, event.reason)}")
            case TaskChange():
                self.show_message(describe_task(event))
            case Notice(code=code, text=text) if code != "repetition":  # the stop reason says the same
                self.show_message(text)
            case Error():
                self._shown.clear()
                self.show_message(explain_error(event))
            case Done(stop_reason=reason):
                self._shown.clear()
                self.show_message(explain_outcome(reason))

    def ask(self, text: str, question: str) -> None:
        """Show a text and a question, which stays the last line until `end_question`."""
        self.show_message(text, dim=False)
        self._question = question
        self._messages.write(question)
        self._messages.flush()

    def end_question(self, *, by_person: bool) -> None:
        """Continue after a question, which a person answered or which expired."""
        if not by_person:
            self._messages.write("\n")
        self._question = ""

    def show_message(self, text: str, *, dim: bool = True) -> None:
        """Show a text that is not part of the answer, on lines of its own; an empty one only ends the line.

        It changes nothing in an answer that goes elsewhere, such as into a pipe.
        """
        self._end_thought()
        if not text:
            self._end_line()
            return
        self._end_shared_line()
        if self._question:
            self._messages.write("\n")
        if dim:
            self._write_dim(text)
        else:
            self._messages.write(f"{text}\n")
        self._messages.write(self._question)
        self._messages.flush()

    def resume(self) -> None:
        """Continue after this process was stopped; plain text is never drawn again."""

    def close(self) -> None:
        """Finish all texts."""
        self._end_thought()
        self._end_line()

    def _write_answer(self, text: str) -> None:
        self._end_thought()
        self._answer.write(remove_controls(text) if self._answer.isatty() else text)
        self._answer.flush()
        if text:
            self._is_in_line = not text.endswith("\n")

    def _end_thought(self) -> None:
        if self._thought:
            self._write_dim(self._thought)
            self._thought = ""

    def _write_dim(self, text: str) -> None:
        self._messages.write(f"{self._dim}{remove_controls(text)}{self._normal}\n")
        self._messages.flush()

    def _end_shared_line(self) -> None:
        if self._is_shared:
            self._end_line()

    def _end_line(self) -> None:
        if self._is_in_line:
            self._answer.write("\n")
            self._answer.flush()
            self._is_in_line = False


def _go_to_same_place(one: TextIO, other: TextIO) -> bool:
    """Whether two streams write to the same terminal, pipe or file."""
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except OSError:  # not a file
        return one is other


def _has_colors(stream: TextIO) -> bool:
    """Whether text may be dimmed: NO_COLOR and FORCE_COLOR win over what the terminal can do."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
