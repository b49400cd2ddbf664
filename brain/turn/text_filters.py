"""Filters for the text of a pass: the server's echo, the client's stop sequences, endless repetition. No I/O.

Each filter takes text and returns the text to show. The split of the text does not matter.
"""

import re
from collections.abc import Sequence

MAX_PENDING_WHITESPACE = 64
"""White-space characters to hold back after a line that may be an echo."""

STEP = 128
"""Characters between two checks for repetition."""
MAX_PERIOD, MAX_PIECES = 300, 64
"""Longest period to find, in characters and in pieces (words, numbers and signs)."""
MIN_ROUNDS, MIN_LENGTH = 3, 256
"""Repetitions required after the first occurrence, and their total length in characters."""
NUMBERED_MIN_ROUNDS, NUMBERED_MIN_LENGTH = 6, 1024
"""The same for checks that ignore numbers."""
NUMBERED_CHECKS = 8
"""Every eighth check ignores numbers."""
NUMBERED_IN_A_ROW = 16
"""Consecutive checks without numbers that must find a period. Plans, songs and lists also count, but they end."""
FILLER_CHECKS = 64
"""Checks for which one sign, data or white space may fill the text, as in rulers and base64."""
MAX_UNBROKEN = 50
"""Longest run of ASCII characters without white space in prose; data such as base64 has longer ones."""
HISTORY = 1280
"""Characters of text to compare: enough for all the limits above."""
TAIL = 32
"""Characters at the end of the text whose previous occurrence gives the length of a period."""

_GAP = re.compile(r"\W")
_PIECES = re.compile(r"[^\W\d_]+|\d+|\S")
_NUMBER = re.compile(r"\d+")


class PrefillEcho:
    """Drops a prefix that the server or model repeats: the started answer, or the clock note.

    Only a complete repetition is dropped, apart from white space at its end. Other text passes as soon as it differs.

    Args:
        prefix: The text that may be repeated.
        is_line: Whether to drop it only as a line with text below it. Alone, it may be the answer.
    """

    def __init__(self, prefix: str, *, is_line: bool = False) -> None:
        self._is_line = is_line
        self._expected = prefix.rstrip()
        self._space = prefix[len(self._expected) :]
        self._matched = 0  # characters of `_expected`
        self._below = ""  # text after the whole prefix
        self.is_settled = not self._expected

    def feed(self, text: str) -> str:
        """Take the next characters. Return those that are not an echo."""
        if self.is_settled:
            return text
        missing = len(self._expected) - self._matched
        if not self._expected.startswith(text[:missing], self._matched):
            return self.close() + text
        self._matched += min(len(text), missing)
        self._below += text[missing:]
        if self._matched < len(self._expected):
            return ""
        if self._is_line:
            return self._feed_below()
        if len(self._below) < len(self._space) and self._space.startswith(self._below):
            return ""
        self.is_settled = True
        return self._below.removeprefix(self._space)

    def _feed_below(self) -> str:
        text = self._below.lstrip()
        white = self._below[: len(self._below) - len(text)]
        if not text and len(white) <= MAX_PENDING_WHITESPACE:
            return ""
        if "\n" not in white or len(white) > MAX_PENDING_WHITESPACE:
            return self.close()
        self._matched, self._below = 0, ""  # the line may come again
        return self.feed(text)

    def close(self) -> str:
        """End the pass. Return the held text if it is not an echo."""
        if self.is_settled:
            return ""
        self.is_settled = True
        is_echo = self._matched == len(self._expected) and not self._is_line
        return "" if is_echo else self._expected[: self._matched] + self._below


class StopSequences:
    """Ends an answer at the client's first stop sequence: the first complete one, or the longest of several.

    Attributes:
        is_found: Whether a stop sequence was found. Text after it is dropped.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._pending = ""
        self.is_found = False

    def feed(self, text: str) -> str:
        """Take the next characters. Return those that can be shown now."""
        if self.is_found:
            return ""
        text = self._pending + text
        places = ((text.find(stop), stop) for stop in self._texts)
        ends = [(at + len(stop), at) for at, stop in places if at >= 0]
        self.is_found = bool(ends)
        length = min(ends)[1] if ends else min((_find_start(text, stop) for stop in self._texts), default=len(text))
        self._pending = "" if ends else text[length:]
        return text[:length]

    def close(self) -> str:
        """End the text. Return the held characters."""
        text, self._pending = self._pending, ""
        return text


def _find_start(text: str, stop: str) -> int:
    """Return where a stop sequence may start at the end of `text`."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0 and not stop.startswith(text[at:]):
        at = text.find(stop[0], at + 1)
    return at if at >= 0 else len(text)


class RepetitionGuard:
    """Detects a model that repeats itself without end.

    Text repeats itself if its last characters equal those one period earlier, for several periods, and a period is
    mostly words: tables, rulers and data repeat for good reasons. Text that repeats itself apart from its numbers must
    do so for longer, because lists and code count as well.

    A check runs every `STEP` characters. So the result depends only on the text and not on its split, and the work per
    character is bounded.

    Attributes:
        is_found: Whether the text repeats itself.
    """

    __slots__ = ("_checks", "_chunks", "_is_filler", "_numbered", "_period", "_period_at", "_size", "_text", "is_found")

    def __init__(self) -> None:
        self.is_found = False
        self._text = ""  # the end of the checked text
        self._chunks: list[str] = []  # text since the last check
        self._size = 0  # characters in these chunks
        self._checks = 0
        self._numbered = 0  # consecutive checks without numbers that found a period
        self._period = 0  # found by the last check
        self._period_at = 0  # the first check that found it
        self._is_filler = False

    def feed(self, text: str) -> str:
        """Take the next characters. Return them up to the place where a repetition was found."""
        self._chunks.append(text)
        self._size += len(text)
        return text if self._size < STEP else self._check(text)

    def _check(self, text: str) -> str:
        new = "".join(self._chunks)
        whole = len(new) - len(new) % STEP
        for start in range(0, whole, STEP):
            self._text = (self._text + new[start : start + STEP])[-HISTORY:]
            if self._repeats():
                self.is_found = True
                return text[: len(text) - (len(new) - start - STEP)]
        self._chunks, self._size = [new[whole:]], len(new) - whole
        return text

    def _repeats(self) -> bool:
        text = self._text
        self._checks += 1
        period = _find_period(text, MIN_ROUNDS, MIN_LENGTH)
        if period != self._period:
            self._period, self._period_at = period, self._checks
            if period and _has_words(text, period):
                return True
            self._is_filler = _is_filler(text, period)
        elif period and self._is_filler and self._checks - self._period_at >= FILLER_CHECKS:
            return True
        if self._checks % NUMBERED_CHECKS:
            return False
        text = _NUMBER.sub("0", text)
        period = _find_period(text, NUMBERED_MIN_ROUNDS, NUMBERED_MIN_LENGTH)
        self._numbered = self._numbered + 1 if period > 0 and _has_words(text, period) else 0
        return self._numbered >= NUMBERED_IN_A_ROW


def _find_period(text: str, min_rounds: int, min_length: int) -> int:
    """Return the length of the period at the end of a text, or 0.

    Args:
        min_rounds: Required number of repetitions.
        min_length: Required total length of the repetitions, in characters.
    """
    tail, first = text[-TAIL:], max(0, len(text) - TAIL - MAX_PERIOD)
    at = text.rfind(tail, first, -1)
    while at >= 0:
        period = len(text) - TAIL - at
        count = max(min_rounds * period, min_length)
        if len(text) >= count + period and text.endswith(text[-count - period : -period]):
            return period
        at = text.rfind(tail, first, at + TAIL - 1)
    return 0


def _has_words(text: str, period: int) -> bool:
    """Whether at least half of a period's pieces are words, with gaps between them."""
    pieces = _PIECES.findall(text[-period:])
    words = sum(piece[0].isalpha() for piece in pieces)
    has_gap = _GAP.search(text, len(text) - period) is not None
    return 0 < len(pieces) <= min(MAX_PIECES, 2 * words) and has_gap and not _is_data(text)


def _is_filler(text: str, period: int) -> bool:
    """Whether a period is one sign, letters or white space, or the text is data."""
    pieces = _PIECES.findall(text[-period:])
    return period == 1 or ((len(pieces) <= 1 or _is_data(text)) and not any(piece.isdigit() for piece in pieces))


def _is_data(text: str) -> bool:
    return any(len(part) > MAX_UNBROKEN and part.isascii() for part in text[-MIN_LENGTH:].split())
