"""Core: the characters of one possible marker, and the steps a reader takes along them.

A reader is a generator that reads top to bottom and yields whenever it needs more characters; it is resumed with
more of them, or with the knowledge that none will come. So each syntax is one function without states, and any cut
of the text gives the same reading.
"""

import json
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from brain.unicode import well_formed

MARKER_LIMIT = 16_384
"""Characters from the first of the opener to the last of the closer: a model that writes more is not asking."""

DEPTH_LIMIT = 64

Params = dict[str, Any]
Steps = Generator[None, None, bool]
"""A step along the source; its value says whether it arrived before the characters ended."""

_LETTER = re.compile(r"[A-Za-z]")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_WHITE = re.compile(r"\s+")
_STRING = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A marker as read: `params` when its body could be read, else a `problem` that tells the model what is wrong.

    `ended` is false when the characters ended before the marker did.
    """

    name: str
    params: Params | None = None
    problem: str = ""
    ended: bool = True


Reader = Generator[None, None, Reading | None]
"""Reads one marker behind its opener; its value is None when the text is no marker after all."""


class Source:
    """What has come of one possible marker: `text[at:end]` is still to be read."""

    __slots__ = ("_limit", "_parts", "_start", "at", "closed", "end", "text")

    def __init__(self, text: str, start: int, at: int) -> None:
        self._parts: list[str] = []
        self._start = start  # where the marker, or what has come of it last, begins in `text`
        self._limit = start + MARKER_LIMIT  # where in `text` it may end at the latest
        self.text = text
        self.at = at
        self.end = min(len(text), self._limit)
        self.closed = False

    def feed(self, text: str) -> None:
        """Takes on the next characters, when all before them are read."""
        self._parts.append(self.text[self._start :])
        self._limit -= len(self.text)
        self.text, self._start, self.at = text, 0, 0
        self.end = len(text) if len(text) < self._limit else self._limit

    @property
    def full(self) -> bool:
        """Whether the limit is reached: no more characters will be given to the reader."""
        return self.end == self._limit

    @property
    def offset(self) -> int:
        """How many characters stand between the first of the opener and `at`."""
        return self.at - self._limit + MARKER_LIMIT

    def raw(self) -> str:
        """The marker from the first character of its opener up to `at`."""
        return "".join(self._parts) + self.text[self._start : self.at]

    def everything(self) -> str:
        """All that has come, read or not, from the first character of the opener on."""
        return "".join(self._parts) + self.text[self._start :]

    def more(self) -> Steps:
        """Waits until there is a character at `at`; false when none will come."""
        while self.at >= self.end:
            if self.closed or self.full:
                return False
            yield
        return True

    def to(self, pattern: re.Pattern[str]) -> Steps:
        """Moves behind the next match of a one-character pattern; the character is `text[at - 1]`."""
        while (match := pattern.search(self.text, self.at, self.end)) is None:
            self.at = self.end
            if self.closed or self.end == self._limit:
                return False
            yield
        self.at = match.end()
        return True

    def skip_white(self) -> Steps:
        """Moves behind white space; false when nothing else will come."""
        while (yield from self.more()):
            match = _WHITE.match(self.text, self.at, self.end)
            if match is None:
                return True
            self.at = match.end()
        return False

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

    def name(self, longest: int) -> Generator[None, None, str]:
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
        return well_formed(value)
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return _unique([(_encodable(key), _encodable(item)) for key, item in value.items()])
    return value
