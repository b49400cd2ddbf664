"""The characters of one possible marker, and the steps a reader takes along them.

A reader is a generator that reads top to bottom. Where it needs more characters it yields the pattern that it waits
for; it is resumed with the first match, or with None when none will come. So each syntax is one function without
states, any cut of the text gives the same reading, and characters that it does not wait for never wake it.
"""

import json
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from brain.text import replace_surrogates

MARKER_LIMIT = 16_384
"""Characters from the first of the opener to the last of the closer: a model that writes more is not asking."""

DEPTH_LIMIT = 64

Params = dict[str, Any]
Steps = Generator[re.Pattern[str], re.Match[str] | None, bool]
"""A step along the source; its value says whether it arrived before the characters ended."""

_ANY = re.compile(r"(?s).")
_LETTER = re.compile(r"[A-Za-z]")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NOT_WHITE = re.compile(r"\S")
_STRING = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}


@dataclass(frozen=True, slots=True)
class ParsedMarker:
    """A marker as read: `params` when its body could be read, else a `problem` that tells the model what is wrong.

    `ended` is false when the characters ended before the marker did.
    """

    name: str
    params: Params | None = None
    problem: str = ""
    ended: bool = True


Reader = Generator[re.Pattern[str], re.Match[str] | None, ParsedMarker | None]
"""Reads one marker behind its opener; its value is None when the text is no marker after all."""


class Cursor:
    """What has come of one possible marker: `text[at:end]` is still to be read."""

    __slots__ = ("_before", "_room", "_start", "at", "awaited", "closed", "end", "found", "full", "text")

    def __init__(self, text: str, start: int, at: int) -> None:
        self._before = bytearray()  # what came of the marker before `text`, in UTF-8: pieces would take ten times that
        self._start = start  # where in `text` the rest of it begins
        self._room = start + MARKER_LIMIT - len(text)  # how many characters it may have behind `text`
        self.text = text
        self.at = at
        self.end = len(text) + min(self._room, 0)
        self.full = self._room <= 0  # no more characters will be given to the reader
        self.awaited = _ANY
        self.found: re.Match[str] | None = None
        self.closed = False

    def feed(self, text: str) -> bool:
        """Takes on the next characters, when all before them are read; says whether the reader is to be resumed."""
        self._before += self.text[self._start :].encode()
        self._room = room = self._room - len(text)
        self.text, self._start = text, 0
        self.end = end = len(text) if room > 0 else len(text) + room
        self.found = found = self.awaited.search(text, 0, end)
        self.at = end if found is None else 0
        self.full = room <= 0
        return found is not None or self.full or self.closed

    def close(self) -> None:
        """Says that no more characters will come."""
        self.closed, self.found = True, None

    @property
    def offset(self) -> int:
        """How many characters stand between the first of the opener and `at`."""
        return MARKER_LIMIT - self._room - len(self.text) + self.at

    def raw(self) -> str:
        """The marker from the first character of its opener up to `at`."""
        return self._before.decode() + self.text[self._start : self.at]

    def everything(self) -> str:
        """All that has come, read or not, from the first character of the opener on."""
        return self._before.decode() + self.text[self._start :]

    def more(self) -> Steps:
        """Waits until there is a character at `at`; false when none will come."""
        if self.at >= self.end:
            yield _ANY
        return self.at < self.end

    def to(self, pattern: re.Pattern[str]) -> Steps:
        """Moves behind the next match of a one-character pattern; the character is `text[at - 1]`."""
        match = pattern.search(self.text, self.at, self.end)
        if match is None:
            self.at = self.end
            match = yield pattern
        if match is None:
            return False
        self.at = match.end()
        return True

    def skip_white(self) -> Steps:
        """Moves to what is no white space; false when nothing else will come."""
        if not (yield from self.to(_NOT_WHITE)):
            return False
        self.at -= 1
        return True

    def skip_string(self, quote: str = '"') -> Steps:
        """Moves behind the end of a string whose opening quote was just read."""
        while (yield from self.to(_STRING[quote])):
            if self.text[self.at - 1] == quote:
                return True
            if (yield from self.more()):
                self.at += 1  # whatever is escaped
        return False

    def literal(self, expected: str) -> Steps:
        """Moves along `expected` as far as the text agrees with it; true when all of it was there."""
        for character in expected:
            if not (yield from self.more()) or self.text[self.at] != character:
                return False
            self.at += 1
        return True

    def name(self, longest: int) -> Generator[re.Pattern[str], re.Match[str] | None, str]:
        """Reads an ASCII letter, then letters, digits, `_` and `-`; empty where there are none, or too many."""
        start, pattern = self.offset, _LETTER
        while (yield from self.more()):
            match = pattern.match(self.text, self.at, self.end)
            if match is None:
                break
            self.at, pattern = match.end(), _NAME
            if self.offset - start > longest:
                return ""
        return self.raw()[start:]


def resumed(reader: Reader, source: Cursor) -> tuple[ParsedMarker | None, bool]:
    """Lets a reader read what is there: its reading, and whether it waits for more."""
    try:
        source.awaited = reader.send(source.found)
        while source.closed or source.full:
            reader.send(None)
    except StopIteration as end:
        return end.value, False
    return None, True


def decode_object(body: str) -> tuple[Params | None, str]:
    """Decodes one JSON object (RFC 8259), strictly.

    Returns:
        The object and an empty text, or None and a sentence that says what is wrong with it.
    """
    try:
        value = json.loads(body, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
        if not isinstance(value, dict):
            return None, "the body must be one JSON object in braces"
        if _depth(value) > DEPTH_LIMIT:
            return None, f"the body nests deeper than {DEPTH_LIMIT} levels"
        return _encodable(value) if "\\ud" in body.lower() else value, ""
    except json.JSONDecodeError as error:
        return None, f"the body is not valid JSON at character {error.pos + 1}"
    except _Unfit as error:
        return None, str(error)
    except (ValueError, RecursionError):
        return None, "the body holds a number that is too long, or nests too deeply"


class _Unfit(ValueError):
    """JSON that parsers take and we do not."""


def _unique(pairs: list[tuple[str, Any]]) -> Params:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Unfit("the body has a key twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise _Unfit(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _Unfit("the body holds a number that is too large")
    return number


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return depth


def _encodable(value: Any) -> Any:
    """The same value without lone surrogates: JSON can escape them, UTF-8 cannot carry them."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return _unique([(_encodable(key), _encodable(item)) for key, item in value.items()])
    return value
