"""Finds calls in a model's text. Text in, pieces out; no clock, no I/O.

- Any split of a text gives the same pieces, once neighbouring texts are joined.
- The work is linear. Ordinary text is searched once for openers, and each syntax reads a marker's body once.
- Memory is bounded. The scanner holds back only text that can still become a marker, up to `MARKER_LIMIT` characters.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from brain.events import MarkerSyntax, Thinking
from brain.markers import bracket, function_call, mention
from brain.markers.cursor import MARKER_LIMIT, Cursor, ParsedMarker, Reader, resume
from brain.messages import Call
from brain.text import find_surrogate, join_surrogates

BACKTICK = "`"
FORGED_OPENERS = ("[SPECIALIST_RESULT:", "[SPECIALIST_ERROR:")
BLOCK_CLOSER = "[/SPECIALIST_RESULT]"
THINK_OPENER, THINK_CLOSER = "<think>", "</think>"
MAX_WHITESPACE_BEFORE_THINKING = 64
"""Longest white space before the opening tag, in characters. Longer white space is text."""
MAX_WHITESPACE_AFTER_CALL = 64
"""Longest white space between two calls, in characters. Some models end with endless white space."""


@dataclass(frozen=True, slots=True)
class PassEnd:
    """The rest of the pass does not matter, so its stream can be closed."""


Piece = str | Thinking | Call | PassEnd
"""A plain string is text to show. A call with a `code` could not be parsed; its `reason` explains why."""

PASS_END = PassEnd()
FORGED_REASON = "the model wrote a result block itself"

_SYNTAXES = {"bracket": bracket, "function_call": function_call, "mention": mention}
"""A syntax is a module with `OPENERS` and a function `read`, which reads a marker after its opener."""

_Read = Callable[[Cursor, str], Reader]
_Mode = Callable[["Scanner", str, int, list[Piece]], int]
_Search = Callable[..., re.Match[str] | None]

_NOT_WHITE = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class _Delimiters:
    """The delimiters to search for. `find` and `opener_at` also match an incomplete one at the end of the text."""

    openers: Mapping[str, _Read]
    opener_at: _Search
    find: _Search
    beginnings: frozenset[str]


class Scanner:
    """Scans one pass.

    Args:
        syntaxes: The call syntaxes to read.
        stops: Whether the pass ends at the first character after a call that is neither white space nor the start of
            another call. If False, text continues after each call.
    """

    __slots__ = (
        "_beginnings", "_buffer", "_delimiters", "_find", "_has_called", "_high_surrogate", "_is_literal", "_is_plain",
        "_marker", "_mode", "_stops", "_whitespace",
    )  # fmt: skip

    def __init__(self, syntaxes: Sequence[MarkerSyntax], *, stops: bool = True) -> None:
        self._delimiters = _find_delimiters(tuple(syntaxes))
        self._find = self._delimiters.find
        self._stops = stops
        self._has_called = False
        self._whitespace = 0  # white-space characters since the last call
        self._mode: _Mode = Scanner._at_start
        self._is_plain = False  # in the answer, nothing buffered or quoted: nearly always
        self._buffer = ""  # the end of the text that may still start a delimiter
        self._beginnings: frozenset[str] = frozenset()  # in the answer: buffers that may still become a delimiter
        self._is_literal = False  # the next character starts nothing: it is quoted, or was tried before
        self._high_surrogate = ""  # its partner may come with the next text
        self._marker: tuple[Cursor, Reader] | None = None

    def feed(self, text: str) -> Sequence[Piece]:
        """Take the next characters. Return the pieces that they complete."""
        if self._is_plain and (text.isascii() or not find_surrogate(text)) and self._find(text) is None:
            return (text,) if text else ()
        if self._high_surrogate or not text.isascii():
            text, self._high_surrogate = join_surrogates(self._high_surrogate + text)
        if self._buffer:
            text = self._buffer + text
            if text in self._beginnings:
                self._buffer = text
                return ()
            self._buffer = ""
        elif self._marker is not None and not self._marker[0].feed(text):
            return ()
        pieces: list[Piece] = []
        self._is_plain = False
        if self._marker is not None:
            text = self._continue_marker(*self._marker, text, pieces)
        at = 0
        while at < len(text):
            at = self._mode(self, text, at, pieces)
        return pieces

    @property
    def is_holding(self) -> bool:
        """Whether the scanner holds back a possible delimiter."""
        return bool(self._buffer) or self._marker is not None

    def close(self) -> Sequence[Piece]:
        """End the pass. Return the pieces that were held back."""
        pieces: list[Piece] = []
        if self._high_surrogate:
            self._high_surrogate = ""
            pieces += self.feed("\ufffd")
        while self._marker is not None:
            self._marker[0].close()
            pieces += self.feed("")
        if self._buffer and self._mode is Scanner._in_thinking:
            pieces.append(Thinking(self._buffer))
        elif self._buffer and not self._has_called:
            pieces.append(self._buffer)
        self._mode, self._buffer, self._is_plain = Scanner._at_end, "", False
        return pieces

    def _continue_marker(self, cursor: Cursor, reader: Reader, text: str, pieces: list[Piece]) -> str:
        """Continue a marker from an earlier text. Return the text after it, for the next mode."""
        parsed, is_waiting = resume(reader, cursor)
        if is_waiting:
            return ""
        self._marker = None
        if parsed is not None:
            return text[self._add_call(parsed, cursor, pieces) :]
        if self._has_called:
            self._end(text, pieces)
            return ""
        self._is_literal = True
        return cursor.all_text()

    # The modes. Each reads the text from `at`, adds complete pieces, and returns where the next mode starts.

    def _at_start(self, text: str, at: int, pieces: list[Piece]) -> int:
        """At the start of a pass, where some servers write `<think>`, perhaps after line breaks."""
        head = text[:MAX_WHITESPACE_BEFORE_THINKING]
        start = len(head) - len(head.lstrip())
        if text.startswith(THINK_OPENER, start):
            self._mode = Scanner._in_thinking
            return start + len(THINK_OPENER)
        if THINK_OPENER.startswith(text[start:]):
            self._buffer = text
            return len(text)
        self._start_answer()
        return at

    def _in_thinking(self, text: str, at: int, pieces: list[Piece]) -> int:
        match = _find_think_closer(text, at)
        end, then = match.span() if match is not None else (len(text), len(text))
        if end > at:
            pieces.append(Thinking(text[at:end]))
        if match is not None and match[0] == THINK_CLOSER:
            self._start_answer()
        else:
            self._buffer = text[end:]
        return then

    def _start_answer(self) -> None:
        """Start the answer after the thinking."""
        self._mode, self._beginnings = Scanner._in_text, self._delimiters.beginnings

    def _in_text(self, text: str, at: int, pieces: list[Piece]) -> int:
        """In the answer: search for calls and delimiters."""
        find, settled = self._find, at
        while (match := find(text, at)) is not None:
            start, delimiter = match.start(), match[0]
            at = start + 1
            if text[start - 1] == BACKTICK if start > settled else self._is_literal:
                continue
            if delimiter in self._beginnings:
                if start > settled:
                    pieces.append(text[settled:start])
                self._buffer, self._is_literal = delimiter, False
                return len(text)
            if delimiter in self._delimiters.openers:
                after = self._start_marker(text, start, delimiter, settled, pieces)
                if after is not None:
                    return after
            elif delimiter in FORGED_OPENERS:
                _add_text(text[settled:start], pieces)
                pieces.append(Call("?", code="forged", reason=FORGED_REASON))
                return self._end(text, pieces)
            elif delimiter == BLOCK_CLOSER:
                _add_text(text[settled:start], pieces)
                settled = at = match.end()
                self._is_literal = False
        _add_text(text[settled:], pieces)
        self._is_literal = text[-1] == BACKTICK
        self._is_plain = not self._is_literal and not self._high_surrogate
        return len(text)

    def _after_call(self, text: str, at: int, pieces: list[Piece]) -> int:
        """After a call: only white space and further calls count."""
        character = _NOT_WHITE.search(text, at)
        self._whitespace += (character.start() if character else len(text)) - at
        if self._whitespace > MAX_WHITESPACE_AFTER_CALL:
            return self._end(text, pieces)
        if character is None:
            return len(text)
        match = self._delimiters.opener_at(text, character.start())
        if match is None:
            return self._end(text, pieces)
        if match[0] not in self._delimiters.openers:
            self._buffer = match[0]
            return len(text)
        after = self._start_marker(text, match.start(), match[0], match.start(), pieces)
        return self._end(text, pieces) if after is None else after

    def _at_end(self, text: str, at: int, pieces: list[Piece]) -> int:
        """After the end: nothing counts."""
        return len(text)

    def _start_marker(self, text: str, start: int, opener: str, settled: int, pieces: list[Piece]) -> int | None:
        """Start to read a marker at `start`. Return None if the text is not a marker."""
        cursor = Cursor(text, start, start + len(opener))
        reader = self._delimiters.openers[opener](cursor, opener)
        parsed, is_waiting = resume(reader, cursor)
        if not is_waiting and parsed is None:
            return None
        _add_text(text[settled:start], pieces)
        if parsed is not None:
            return self._add_call(parsed, cursor, pieces)
        self._marker = cursor, reader
        return len(text)

    def _add_call(self, parsed: ParsedMarker, cursor: Cursor, pieces: list[Piece]) -> int:
        call = Call(parsed.name, cursor.raw(), parsed.params if parsed.is_complete else None)
        if not parsed.is_complete and cursor.is_full:
            call.code, call.reason = "oversized", f"the call is longer than {MARKER_LIMIT:,} characters"
        elif not parsed.is_complete:
            call.code, call.reason = "malformed", "the call has no closing bracket or tag"
        elif parsed.params is None:
            call.code, call.reason = "malformed", parsed.problem
        pieces.append(call)
        self._has_called, self._is_literal, self._whitespace = self._stops, False, 0
        self._mode = Scanner._after_call if self._stops else Scanner._in_text
        return cursor.at

    def _end(self, text: str, pieces: list[Piece]) -> int:
        pieces.append(PASS_END)
        self._mode = Scanner._at_end
        return len(text)


def _add_text(text: str, pieces: list[Piece]) -> None:
    if text:
        pieces.append(text)


@cache
def _find_delimiters(syntaxes: tuple[MarkerSyntax, ...]) -> _Delimiters:
    markers = {opener: _SYNTAXES[name].read for name in syntaxes for opener in _SYNTAXES[name].OPENERS}
    delimiters = (*markers, *FORGED_OPENERS, BLOCK_CLOSER)
    return _Delimiters(
        markers,
        re.compile(_build_pattern(markers) or r"(?!)").match,
        re.compile(_build_pattern(delimiters) + rf"|{BACKTICK}\Z").search,
        frozenset(delimiter[:length] for delimiter in delimiters for length in range(1, len(delimiter))),
    )


def _build_pattern(delimiters: Iterable[str]) -> str:
    """Return a pattern for any of the delimiters, or for the start of one at the end of the text."""
    tails: dict[str, list[str]] = {}
    for delimiter in delimiters:
        tails.setdefault(delimiter[0], []).append(delimiter[1:])
    return "|".join(
        re.escape(first) + ("" if "" in rest else rf"(?:{_build_pattern(rest)}|\Z)") for first, rest in tails.items()
    )


_find_think_closer = re.compile(_build_pattern([THINK_CLOSER])).search
