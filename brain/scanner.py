"""Core: finds calls in a model's text. Text in, pieces out; no clock, no I/O.

A pure function of the characters: any split of the same text gives the same pieces once neighbouring texts are joined.
Linear: ordinary text is searched once for the first characters of openers, a marker's body is walked once by its
syntax. Bounded: held back is only what could still become a marker, at most `MARKER_LIMIT` characters.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from brain.ask import SyntaxName
from brain.events import Thinking
from brain.syntax import openers
from brain.syntax.source import MARKER_LIMIT, Reader, Reading, Source

FORGED_OPENERS = ("[SPECIALIST_RESULT:", "[SPECIALIST_ERROR:")
BLOCK_CLOSER = "[/SPECIALIST_RESULT]"
THINK_OPENER, THINK_CLOSER = "<think>", "</think>"

Problem = Literal["malformed", "oversized", "forged"]


@dataclass(frozen=True, slots=True)
class Call:
    """A marker that was read. `raw` is the marker as written; `params` is None when there is a `problem`.

    `name` is `?` when it could not be read; `reason` tells the model what is wrong.
    """

    name: str
    params: Mapping[str, Any] | None
    raw: str
    problem: Problem | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more of this pass is wanted: its stream can be closed."""


Piece = str | Thinking | Call | Stop
"""What the scanner found; a plain string is text to show."""

STOP = Stop()
FORGED = Call("?", None, "", "forged", "result and error blocks are written by the system only; ask a specialist")


class Scanner:
    """Scans one pass.

    Args:
        syntaxes: the request syntaxes that are read.
        stops: whether the pass is over at the first character behind a call that is neither white space nor the
            beginning of another call. If not, the text goes on behind each call.
    """

    def __init__(self, syntaxes: Sequence[SyntaxName], *, stops: bool = True) -> None:
        self._markers = openers(syntaxes)
        self._by_first = _by_first_character((*self._markers, *FORGED_OPENERS, BLOCK_CLOSER))
        self._first_character = re.compile(f"[{re.escape(''.join(self._by_first))}]").search
        self._stops = stops
        self._called = False
        self._mode: Callable[[str, list[Piece]], str] = self._opening
        self._plain = False  # in the answer, with nothing held: what nearly every read finds
        self._held = ""  # the longest end of the text that could still begin something
        self._barren = 0  # so many of the next characters are known to begin nothing
        self._before = ""  # the character before the next one
        self._high = ""  # a high surrogate whose partner may come with the next text
        self._marker: tuple[Source, Reader] | None = None

    def feed(self, text: str) -> Sequence[Piece]:
        """Takes the next characters; gives what they settle."""
        if self._high or not text.isascii():
            text = self._well_formed(text)
        if self._plain and text and self._first_character(text) is None:
            self._before = text[-1]
            return (text,)
        pieces: list[Piece] = []
        self._settle(text, pieces)
        return pieces

    def close(self) -> Sequence[Piece]:
        """Says that the pass ended; gives what was held back."""
        pieces: list[Piece] = []
        if self._high:
            self._high = ""
            self._settle("\ufffd", pieces)
        while self._marker is not None:
            self._marker[0].closed = True
            self._settle(self._in_marker("", pieces), pieces)
        if self._held and self._mode == self._in_thinking:
            pieces.append(Thinking(self._held))
        elif self._held and not self._called:
            pieces.append(self._held)
        self._mode, self._held, self._plain = self._over, "", False
        return pieces

    def _settle(self, text: str, pieces: list[Piece]) -> None:
        while text:
            text = self._mode(text, pieces)
        self._plain = self._mode == self._in_text and not self._held

    # The modes. Each takes the text that comes next, puts what is settled into `pieces`, and returns what is left for
    # the mode that follows.

    def _opening(self, text: str, pieces: list[Piece]) -> str:
        """At the start of a pass, where servers that do not separate reasoning put `<think>`."""
        text, self._held = self._held + text, ""
        if text.startswith(THINK_OPENER):
            self._mode = self._in_thinking
            return text[len(THINK_OPENER) :]
        if THINK_OPENER.startswith(text):
            self._held = text
            return ""
        self._mode = self._in_text
        return text

    def _in_thinking(self, text: str, pieces: list[Piece]) -> str:
        text, self._held = self._held + text, ""
        thought, closer, rest = text.partition(THINK_CLOSER)
        if closer:
            self._mode = self._in_text
        else:
            self._held = _beginning_at_end(thought, THINK_CLOSER)
            thought = thought.removesuffix(self._held)
        if thought:
            pieces.append(Thinking(thought))
        return rest

    def _in_text(self, text: str, pieces: list[Piece]) -> str:
        """In the answer, where calls and delimiters are looked for."""
        text, self._held = self._held + text, ""
        at, self._barren = self._barren, 0
        while (match := self._first_character(text, at)) is not None:
            start = match.start()
            opener = self._opener_at(text, start)
            if opener is None:
                at = start + 1
                continue
            if len(text) - start < len(opener):
                self._show(text[:start], pieces)
                self._held = text[start:]
                return ""
            behind = start + len(opener)
            if opener == BLOCK_CLOSER:
                self._show(text[:start], pieces)
                self._before = opener[-1]
                return text[behind:]
            if opener in FORGED_OPENERS:
                self._show(text[:start], pieces)
                pieces += (FORGED, STOP)
                self._mode = self._over
                return ""
            source = Source(text, start, behind)
            reader = self._markers[opener](source, opener)
            reading, waits = _step(reader)
            if waits or reading:
                self._show(text[:start], pieces)
                return self._read(reading, source, reader, pieces)
            at = start + 1
        self._show(text, pieces)
        return ""

    def _in_marker(self, text: str, pieces: list[Piece]) -> str:
        """In what may be a marker: its syntax reads on."""
        assert self._marker is not None
        source, reader = self._marker
        source.feed(text)
        reading, waits = _step(reader)
        if waits or reading:
            return self._read(reading, source, reader, pieces)
        self._marker = None
        if self._called:
            return self._stop(pieces)
        self._mode, self._barren = self._in_text, 1
        return source.everything()

    def _behind_call(self, text: str, pieces: list[Piece]) -> str:
        """Behind a call, where only white space and further calls count."""
        text, self._held = (self._held + text).lstrip(), ""
        if not text:
            return ""
        opener = next((o for o in self._markers if text.startswith(o) or o.startswith(text)), None)
        if opener is None:
            return self._stop(pieces)
        if len(text) < len(opener):
            self._held = text
            return ""
        source = Source(text, 0, len(opener))
        reader = self._markers[opener](source, opener)
        reading, waits = _step(reader)
        return self._read(reading, source, reader, pieces) if waits or reading else self._stop(pieces)

    def _over(self, text: str, pieces: list[Piece]) -> str:
        """Behind the end, where nothing counts."""
        return ""

    def _read(self, reading: Reading | None, source: Source, reader: Reader, pieces: list[Piece]) -> str:
        """Takes on the marker, or what has come of it."""
        if reading is None:
            self._marker, self._mode = (source, reader), self._in_marker
            return ""
        self._marker = None
        pieces.append(_call(reading, source))
        self._before = source.raw()[-1]
        self._called = self._stops
        self._mode = self._behind_call if self._stops else self._in_text
        return source.text[source.at :]

    def _stop(self, pieces: list[Piece]) -> str:
        pieces.append(STOP)
        self._mode = self._over
        return ""

    def _show(self, text: str, pieces: list[Piece]) -> None:
        if text:
            pieces.append(text)
            self._before = text[-1]

    def _opener_at(self, text: str, start: int) -> str | None:
        """The opener that stands at `start`, whole or as far as the text goes; none behind a backtick."""
        if (text[start - 1] if start else self._before) == "`":
            return None
        for opener in self._by_first[text[start]]:
            if text.startswith(opener, start) or opener.startswith(text[start : start + len(opener)]):
                return opener
        return None

    def _well_formed(self, text: str) -> str:
        """The same text with surrogate pairs joined and lone surrogates replaced, which UTF-8 cannot carry."""
        text, self._high = self._high + text, ""
        try:
            text.encode()
        except UnicodeEncodeError:
            if "\ud800" <= text[-1] <= "\udbff":
                text, self._high = text[:-1], text[-1]
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text


def _by_first_character(all_openers: Sequence[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for opener in all_openers:
        found.setdefault(opener[0], []).append(opener)
    return found


def _beginning_at_end(text: str, delimiter: str) -> str:
    """The longest end of `text` that begins `delimiter` and is not all of it."""
    for length in range(min(len(text), len(delimiter) - 1), 0, -1):
        if text.endswith(delimiter[:length]):
            return delimiter[:length]
    return ""


def _step(reader: Reader) -> tuple[Reading | None, bool]:
    """Lets a reader read what is there: its reading, and whether it waits for more."""
    try:
        next(reader)
    except StopIteration as end:
        return end.value, False
    return None, True


def _call(reading: Reading, source: Source) -> Call:
    raw = source.raw()
    if not reading.ended and source.full:
        return Call(
            reading.name, None, raw, "oversized", f"a request may be {MARKER_LIMIT} characters long; make it shorter"
        )
    if not reading.ended:
        return Call(reading.name, None, raw, "malformed", "the request never ends; write its closing bracket or tag")
    if reading.params is None:
        return Call(reading.name, None, raw, "malformed", f"{reading.problem}; write the request again")
    return Call(reading.name, reading.params, raw)
