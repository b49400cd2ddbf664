"""What is told beside the text of an answer, gathered for its reader: notices, and what the model thought."""

from dataclasses import replace

from brain.events import Notice, Thinking
from brain.messages import Annotation
from brain.text import TextBuffer

THOUGHTS_LENGTH = 65_536
"""Characters of what a model thought that are kept of an answer."""
ASIDES_MOST = 200
CUT = " […]"
"""Stands where more was thought than is kept."""


class Annotations:
    """Those of one answer.

    Attributes:
        before: how many calls and texts of it stand before the pass that runs.
    """

    __slots__ = ("_at", "_cut", "_left", "_thought", "_told", "before")

    def __init__(self) -> None:
        self.before = 0
        self._told: list[Annotation] = []
        self._thought = TextBuffer()
        self._at = 0, 0
        self._left = THOUGHTS_LENGTH
        self._cut = False

    def tell(self, notice: Notice) -> None:
        """Takes a notice; those about calls are left to these."""
        self._settle()
        self._add(Annotation(notice, self.before))

    def think(self, text: str, said: int) -> None:
        """Takes what a model thought behind so many characters of the pass."""
        if self._cut:
            return
        if self._at != (self.before, said):
            self._settle()
            self._at = self.before, said
        self._cut = len(text) > self._left
        self._thought.add(text[: self._left] + CUT if self._cut else text)
        self._left -= len(text)

    def snapshot(self) -> tuple[Annotation, ...]:
        """All of them, in the order in which they were told."""
        self._settle()
        return tuple(self._told)

    def _settle(self) -> None:
        text, self._thought = self._thought.whole(), TextBuffer()
        last = self._told[-1] if self._told else None
        if text and last is not None and isinstance(last.told, Thinking) and (last.place, last.at) == self._at:
            self._told[-1] = replace(last, told=Thinking(last.told.text + text))
        elif text:
            self._add(Annotation(Thinking(text), *self._at))

    def _add(self, aside: Annotation) -> None:
        if len(self._told) < ASIDES_MOST:
            self._told.append(aside)
