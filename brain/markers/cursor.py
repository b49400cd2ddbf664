"""The characters of one possible marker, and the steps of a reader along them.

A reader is a generator that reads from top to bottom. When it needs more characters, it yields the pattern that it
waits for. It resumes with the first match, or with None if no match will come. So each syntax is one function without
states, any split of the text gives the same result, and other characters never wake the reader.
"""

import re
from collections.abc import Generator
from typing import Any, Literal, NamedTuple

MARKER_LIMIT = 16_384
"""Longest marker, in characters, from opener to closer."""
TOO_LONG = f"the call is longer than {MARKER_LIMIT:,} characters"

UNNAMED = "?"
"""Stands for the name of a call that cannot be read."""

Params = dict[str, Any]
Steps = Generator[re.Pattern[str], re.Match[str] | None, bool]
"""A step along the cursor. Its value is whether it arrived before the characters ended."""

_ANY = re.compile(r"(?s).")
_LETTER = re.compile(r"[A-Za-z]")
_REST_OF_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NOT_WHITESPACE = re.compile(r"\S")
PARTNER = {"}": "{", "]": "["}
_STRING = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}


class ParsedMarker(NamedTuple):
    """A parsed marker.

    Attributes:
        params: The parameters, or None if the body could not be parsed.
        is_complete: False if the characters ended before the marker did.
        is_text: Whether all parameters are texts, which the schema of the specialist may turn into other values.
        more: The other calls of a marker that has several.
    """

    name: str
    params: Params | None = None
    problem: str = ""
    is_complete: bool = True
    is_text: bool = False
    more: tuple["ParsedMarker", ...] = ()


class Channel(NamedTuple):
    """A header that opens reasoning or a part of the answer, or the message of somebody else."""

    kind: Literal["thinking", "answer", "other"]


Parsed = ParsedMarker | Channel | None
"""What a reader found. None: the text is not a marker."""
Reader = Generator[re.Pattern[str], re.Match[str] | None, Parsed]
"""Reads one marker after its opener."""


class Cursor:
    """The characters of one possible marker. `text[at:end]` is still unread."""

    __slots__ = ("_before", "_room", "_start", "at", "end", "is_closed", "is_full", "match", "pattern", "text")

    def __init__(self, text: str, start: int, at: int) -> None:
        self._before = bytearray()  # the marker before `text`, in UTF-8; a list of pieces would be ten times as large
        self._start = start  # where the marker starts or continues in `text`
        self._room = start + MARKER_LIMIT - len(text)  # characters that the marker may have after `text`
        self.text = text
        self.at = at
        self.end = len(text) + min(self._room, 0)
        self.is_full = self._room <= 0  # the reader gets no more characters
        self.pattern = _ANY
        self.match: re.Match[str] | None = None
        self.is_closed = False

    def feed(self, text: str) -> bool:
        """Take the next characters, once all earlier ones are read. Return whether to resume the reader."""
        self._before += self.text[self._start :].encode()
        self._room = room = self._room - len(text)
        self.text, self._start = text, 0
        self.end = end = len(text) if room > 0 else len(text) + room
        self.match = match = self.pattern.search(text, 0, end)
        self.at = end if match is None else 0
        self.is_full = room <= 0
        return match is not None or self.is_full or self.is_closed

    def close(self) -> None:
        """Accept no more characters."""
        self.is_closed, self.match = True, None

    @property
    def offset(self) -> int:
        """The number of characters from the start of the opener to `at`."""
        return MARKER_LIMIT - self._room - len(self.text) + self.at

    def raw(self) -> str:
        """Return the marker from the start of its opener to `at`."""
        return self._before.decode() + self.text[self._start : self.at]

    def all_text(self) -> str:
        """Return all characters from the start of the opener, read or unread."""
        return self._before.decode() + self.text[self._start :]

    def wait_for_character(self) -> Steps:
        """Wait for a character at `at`. Return False if none will come."""
        if self.at >= self.end:
            yield _ANY
        return self.at < self.end

    def move_past(self, pattern: re.Pattern[str]) -> Steps:
        """Move past the next match of a one-character pattern. The character is then `text[at - 1]`."""
        match = pattern.search(self.text, self.at, self.end)
        if match is None:
            self.at = self.end
            match = yield pattern
        if match is None:
            return False
        self.at = match.end()
        return True

    def skip_whitespace(self) -> Steps:
        """Move to the next character that is not white space. Return False if none will come."""
        if not (yield from self.move_past(_NOT_WHITESPACE)):
            return False
        self.at -= 1
        return True

    def skip_string(self, quote: str = '"') -> Steps:
        """Move past the end of a string after its opening quote."""
        while (yield from self.move_past(_STRING[quote])):
            if self.text[self.at - 1] == quote:
                return True
            if (yield from self.wait_for_character()):
                self.at += 1  # the escaped character
        return False

    def read_literal(self, expected: str) -> Steps:
        """Move along `expected` as far as the text matches. Return whether all of it matched."""
        for character in expected:
            if not (yield from self.wait_for_character()) or self.text[self.at] != character:
                return False
            self.at += 1
        return True

    def move_past_text(self, expected: str, since: int | None = None, longest: int = MARKER_LIMIT) -> Steps:
        """Move past the next `expected`.

        Args:
            since: The offset where it may begin, if some of it was read already.
        """
        start, pattern, ending = (
            self.offset if since is None else since,
            re.compile(re.escape(expected[-1])),
            expected.encode(),
        )
        while self.offset - start <= longest and (yield from self.move_past(pattern)):
            tail = self.text[max(self._start, self.at - len(expected)) : self.at].encode()
            if self.offset - start >= len(expected) and (self._before[-len(ending) :] + tail).endswith(ending):
                return True
        return False

    def read_name(self, longest: int) -> Generator[re.Pattern[str], re.Match[str] | None, str]:
        """Read an ASCII letter, then letters, digits, `_` and `-`. Return "" without a name, or if it is too long."""
        start, pattern = self.offset, _LETTER
        while (yield from self.wait_for_character()):
            match = pattern.match(self.text, self.at, self.end)
            if match is None:
                break
            self.at, pattern = match.end(), _REST_OF_NAME
            if self.offset - start > longest:
                return ""
        return self.raw()[start:]


def resume(reader: Reader, cursor: Cursor) -> tuple[Parsed, bool]:
    """Let a reader read the available characters. Return its result, and whether it waits for more."""
    try:
        cursor.pattern = reader.send(cursor.match)
        while cursor.is_closed or cursor.is_full:
            reader.send(None)
    except StopIteration as end:
        return end.value, False
    return None, True
