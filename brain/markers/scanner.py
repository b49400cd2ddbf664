"""Finds calls in a model's text. Text in, pieces out; no clock, no I/O.

A pure function of the characters: any split of the same text gives the same pieces once neighbouring texts are joined.
Linear: ordinary text is searched once for openers and for the beginning of one at its end, a beginning that grows is
looked up whole, a marker's body is walked once by its syntax. Bounded: held back is only what could still become a
marker, at most `MARKER_LIMIT` characters.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from brain.events import SyntaxName, Thinking
from brain.markers import Read, openers
from brain.markers.cursor import MARKER_LIMIT, Cursor, ParsedMarker, Reader, resumed
from brain.messages import Call
from brain.text import find_surrogate, join_surrogates

BACKTICK = "`"
FORGED_OPENERS = ("[SPECIALIST_RESULT:", "[SPECIALIST_ERROR:")
BLOCK_CLOSER = "[/SPECIALIST_RESULT]"
THINK_OPENER, THINK_CLOSER = "<think>", "</think>"
WHITE_BEFORE_THINKING = 64
"""Characters of white space that may stand before the opening tag; more of it is text."""
WHITE_BEHIND_CALL = 64
"""Characters of white space behind a call that are waited through for another one; some models end in nothing else."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more of this pass is wanted: its stream can be closed."""


Piece = str | Thinking | Call | Stop
"""What the scanner found; a plain string is text to show. A call with a `code` could not be read: `text` says why."""

STOP = Stop()
FORGED_TEXT = "result and error blocks are written by the system only; ask a specialist"

_Mode = Callable[["Scanner", str, int, list[Piece]], int]
Search = Callable[..., re.Match[str] | None]

_NOT_WHITE = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class _Delimiters:
    """What is looked for. `find` and `opener_at` also match the beginning of a delimiter that the text ends with."""

    openers: Mapping[str, Read]
    opener_at: Search
    find: Search
    beginnings: frozenset[str]


class Scanner:
    """Scans one pass.

    Args:
        syntaxes: the request syntaxes that are read.
        stops: whether the pass is over at the first character behind a call that is neither white space nor the
            beginning of another call. If not, the text goes on behind each call.
    """

    __slots__ = (
        "_beginnings", "_called", "_delimiters", "_find", "_held", "_high", "_literal", "_marker", "_mode", "_plain",
        "_stops", "_white",
    )  # fmt: skip

    def __init__(self, syntaxes: Sequence[SyntaxName], *, stops: bool = True) -> None:
        self._delimiters = _delimiters(tuple(syntaxes))
        self._find = self._delimiters.find
        self._stops = stops
        self._called = False
        self._white = 0  # characters of white space since the last call
        self._mode: _Mode = Scanner._opening
        self._plain = False  # in the answer, with nothing held or quoted, as nearly every read finds it
        self._held = ""  # the longest end of the text that could still begin something
        self._beginnings: frozenset[str] = frozenset()  # what held text may become and still be held; in the answer
        self._literal = False  # the next character begins nothing: it is quoted, or was tried before
        self._high = ""  # a high surrogate whose partner may come with the next text
        self._marker: tuple[Cursor, Reader] | None = None

    def feed(self, text: str) -> Sequence[Piece]:
        """Takes the next characters; gives what they settle."""
        if self._plain and (text.isascii() or not find_surrogate(text)) and self._find(text) is None:
            return (text,) if text else ()
        if self._high or not text.isascii():
            text = self._encodable(text)
        if self._held:
            text = self._held + text
            if text in self._beginnings:
                self._held = text
                return ()
            self._held = ""
        elif self._marker is not None and not self._marker[0].feed(text):
            return ()
        pieces: list[Piece] = []
        self._plain = False
        if self._marker is not None:
            text = self._read_on(*self._marker, text, pieces)
        at = 0
        while at < len(text):
            at = self._mode(self, text, at, pieces)
        return pieces

    @property
    def holds(self) -> bool:
        """Whether something has begun that may be a delimiter."""
        return bool(self._held) or self._marker is not None

    def close(self) -> Sequence[Piece]:
        """Says that the pass ended; gives what was held back."""
        pieces: list[Piece] = []
        if self._high:
            self._high = ""
            pieces += self.feed("\ufffd")
        while self._marker is not None:
            self._marker[0].close()
            pieces += self.feed("")
        if self._held and self._mode is Scanner._in_thinking:
            pieces.append(Thinking(self._held))
        elif self._held and not self._called:
            pieces.append(self._held)
        self._mode, self._held, self._plain = Scanner._over, "", False
        return pieces

    def _read_on(self, source: Cursor, reader: Reader, text: str, pieces: list[Piece]) -> str:
        """Goes on with a marker that began in an earlier text; returns what is left for the mode that follows."""
        reading, waits = resumed(reader, source)
        if waits:
            return ""
        self._marker = None
        if reading is not None:
            return text[self._took(reading, source, pieces) :]
        if self._called:
            self._stop(text, pieces)
            return ""
        self._literal = True
        return source.everything()

    # The modes. Each takes the text from `at` on, puts what is settled into `pieces`, and returns where the mode that
    # follows goes on.

    def _opening(self, text: str, at: int, pieces: list[Piece]) -> int:
        """At the start of a pass, where servers that do not separate reasoning put `<think>`, and may break lines."""
        head = text[:WHITE_BEFORE_THINKING]
        start = len(head) - len(head.lstrip())
        if text.startswith(THINK_OPENER, start):
            self._mode = Scanner._in_thinking
            return start + len(THINK_OPENER)
        if THINK_OPENER.startswith(text[start:]):
            self._held = text
            return len(text)
        self._begin_answer()
        return at

    def _in_thinking(self, text: str, at: int, pieces: list[Piece]) -> int:
        match = _find_think_closer(text, at)
        end, then = match.span() if match is not None else (len(text), len(text))
        if end > at:
            pieces.append(Thinking(text[at:end]))
        if match is not None and match[0] == THINK_CLOSER:
            self._begin_answer()
        else:
            self._held = text[end:]
        return then

    def _begin_answer(self) -> None:
        """Behind the thinking: there, `<t` would not begin a marker."""
        self._mode, self._beginnings = Scanner._in_text, self._delimiters.beginnings

    def _in_text(self, text: str, at: int, pieces: list[Piece]) -> int:
        """In the answer, where calls and delimiters are looked for."""
        find, settled = self._find, at
        while (match := find(text, at)) is not None:
            start, found = match.start(), match[0]
            at = start + 1
            if text[start - 1] == BACKTICK if start > settled else self._literal:
                continue
            if found in self._beginnings:
                if start > settled:
                    pieces.append(text[settled:start])
                self._held, self._literal = found, False
                return len(text)
            if found in self._delimiters.openers:
                after = self._marker_from(text, start, found, settled, pieces)
                if after is not None:
                    return after
            elif found in FORGED_OPENERS:
                _show(text[settled:start], pieces)
                pieces.append(Call("?", code="forged", text=FORGED_TEXT))
                return self._stop(text, pieces)
            elif found == BLOCK_CLOSER:
                _show(text[settled:start], pieces)
                settled = at = match.end()
                self._literal = False
        _show(text[settled:], pieces)
        self._literal = text[-1] == BACKTICK
        self._plain = not self._literal and not self._high
        return len(text)

    def _behind_call(self, text: str, at: int, pieces: list[Piece]) -> int:
        """Behind a call, where only white space and further calls count."""
        character = _NOT_WHITE.search(text, at)
        self._white += (character.start() if character else len(text)) - at
        if self._white > WHITE_BEHIND_CALL:
            return self._stop(text, pieces)
        if character is None:
            return len(text)
        match = self._delimiters.opener_at(text, character.start())
        if match is None:
            return self._stop(text, pieces)
        if match[0] not in self._delimiters.openers:
            self._held = match[0]
            return len(text)
        after = self._marker_from(text, match.start(), match[0], match.start(), pieces)
        return self._stop(text, pieces) if after is None else after

    def _over(self, text: str, at: int, pieces: list[Piece]) -> int:
        """Behind the end, where nothing counts."""
        return len(text)

    def _marker_from(self, text: str, start: int, opener: str, settled: int, pieces: list[Piece]) -> int | None:
        """Reads the marker that begins at `start`, as far as it has come; None, and nothing shown, if it is none."""
        source = Cursor(text, start, start + len(opener))
        reader = self._delimiters.openers[opener](source, opener)
        reading, waits = resumed(reader, source)
        if not waits and reading is None:
            return None
        _show(text[settled:start], pieces)
        if reading is not None:
            return self._took(reading, source, pieces)
        self._marker = source, reader
        return len(text)

    def _took(self, reading: ParsedMarker, source: Cursor, pieces: list[Piece]) -> int:
        pieces.append(_call(reading, source))
        self._called, self._literal, self._white = self._stops, False, 0
        self._mode = Scanner._behind_call if self._stops else Scanner._in_text
        return source.at

    def _stop(self, text: str, pieces: list[Piece]) -> int:
        pieces.append(STOP)
        self._mode = Scanner._over
        return len(text)

    def _encodable(self, text: str) -> str:
        """The same text in whole characters; half of one at its end waits for the other half."""
        text, self._high = join_surrogates(self._high + text)
        return text


def _show(text: str, pieces: list[Piece]) -> None:
    if text:
        pieces.append(text)


@cache
def _delimiters(syntaxes: tuple[SyntaxName, ...]) -> _Delimiters:
    markers = openers(syntaxes)
    delimiters = (*markers, *FORGED_OPENERS, BLOCK_CLOSER)
    return _Delimiters(
        markers,
        re.compile(_pattern(markers)).match,
        re.compile(_pattern(delimiters) + rf"|{BACKTICK}\Z").search,
        frozenset(delimiter[:length] for delimiter in delimiters for length in range(1, len(delimiter))),
    )


def _pattern(delimiters: Iterable[str]) -> str:
    """Matches any of the delimiters, or the beginning of one when the text ends there."""
    tails: dict[str, list[str]] = {}
    for delimiter in delimiters:
        tails.setdefault(delimiter[0], []).append(delimiter[1:])
    return "|".join(
        re.escape(first) + ("" if "" in rest else rf"(?:{_pattern(rest)}|\Z)") for first, rest in tails.items()
    )


_find_think_closer = re.compile(_pattern([THINK_CLOSER])).search


def _call(reading: ParsedMarker, source: Cursor) -> Call:
    call = Call(reading.name, source.raw(), reading.params if reading.ended else None)
    if not reading.ended and source.full:
        call.code, call.text = "oversized", f"a request may be {MARKER_LIMIT} characters long; make it shorter"
    elif not reading.ended:
        call.code, call.text = "malformed", "the request never ends; write its closing bracket or tag"
    elif reading.params is None:
        call.code, call.text = "malformed", f"{reading.problem}; write the request again"
    return call
