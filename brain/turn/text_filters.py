"""What the text of a pass goes through: the server's echo, the client's stop texts, endless repetition. Pure.

Each filter takes text and returns the text that can be shown, however the text is cut.
"""

import re
from collections.abc import Sequence

MAX_PENDING_WHITESPACE = 64
"""Characters of white space that are held back after a line that may be an echo."""

STEP = 128
"""Characters from one check for repetition to the next."""
MAX_PERIOD, MAX_PIECES = 300, 64
"""Characters of a period, and its words, numbers and signs; a longer one is not found."""
MIN_ROUNDS, MIN_LENGTH = 3, 256
"""Repetitions that are needed after the first occurrence, and the characters that they must have in all."""
NUMBERED_MIN_ROUNDS, NUMBERED_MIN_LENGTH = 6, 1024
"""The same where numbers are not compared."""
NUMBERED_CHECKS = 8
"""Checks from one without numbers to the next."""
NUMBERED_IN_A_ROW = 16
"""Checks without numbers that must find a period one after the other: plans, songs and lists count, too, but end."""
FILLER_CHECKS = 64
"""Checks during which the same sign, the same data, or white space may fill the text, as in rulers and base64."""
MAX_UNBROKEN = 50
"""Characters of ASCII without white space in text; data such as base64 has more."""
HISTORY = 1280
"""Characters of the text that are compared: enough for each of these."""
TAIL = 32
"""Characters at the end of the text; their last occurrence before tells the length of a period."""

_GAP = re.compile(r"\W")
_PIECES = re.compile(r"[^\W\d_]+|\d+|\S")
_NUMBER = re.compile(r"\d+")


class PrefillEcho:
    """Drops what stands before an answer and is repeated at its start: the started answer, or the clock note.

    Only a repetition of all of it (white space at its end aside) is dropped; text that merely begins alike comes out
    unchanged as soon as it differs.

    Args:
        prefix: the text that may be repeated.
        is_line: whether it is dropped only as a line with text below; alone, it may be the answer to the question.
    """

    def __init__(self, prefix: str, *, is_line: bool = False) -> None:
        self._is_line = is_line
        self._expected = prefix.rstrip()
        self._space = prefix[len(self._expected) :]
        self._matched = 0  # characters of what is expected
        self._below = ""  # what came after all of it
        self.is_settled = not self._expected

    def feed(self, text: str) -> str:
        """Take the next characters; return those that are no echo."""
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
        self._matched, self._below = 0, ""  # what follows may be the line once more
        return self.feed(text)

    def close(self) -> str:
        """The pass ended; return what was held back and is no echo."""
        if self.is_settled:
            return ""
        self.is_settled = True
        is_echo = self._matched == len(self._expected) and not self._is_line
        return "" if is_echo else self._expected[: self._matched] + self._below


class StopSequences:
    """Ends an answer at the first of a client's stop texts. The first complete one counts, of several the longest.

    Attributes:
        is_found: whether one came; nothing after it is returned.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._pending = ""
        self.is_found = False

    def feed(self, text: str) -> str:
        """Take the next characters; return those that can be shown now."""
        if self.is_found:
            return ""
        text = self._pending + text
        places = ((text.find(stop), stop) for stop in self._texts)
        ends = [(at + len(stop), at) for at, stop in places if at >= 0]
        self.is_found = bool(ends)
        length = min(ends)[1] if ends else min(_find_start(text, stop) for stop in self._texts)
        self._pending = "" if ends else text[length:]
        return text[:length]

    def close(self) -> str:
        """No more text will come; return what was held back."""
        text, self._pending = self._pending, ""
        return text


def _find_start(text: str, stop: str) -> int:
    """Return where at the end of `text` a stop text could have begun."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0 and not stop.startswith(text[at:]):
        at = text.find(stop[0], at + 1)
    return at if at >= 0 else len(text)


class RepetitionGuard:
    """Notices when a model repeats itself without end.

    Text repeats itself when its newest characters equal those one period earlier, for several periods, and a period is
    mostly words: tables, rulers and data repeat themselves for good reasons. Text that repeats itself in all but its
    numbers must do so for longer, since lists and code count, too.

    It checks whenever `STEP` more characters have come. So the result depends on the text alone and not on how it is
    cut, and the work per character is bounded.

    Attributes:
        is_found: whether the text repeats itself.
    """

    __slots__ = ("_checks", "_chunks", "_is_filler", "_numbered", "_period", "_period_at", "_size", "_text", "is_found")

    def __init__(self) -> None:
        self.is_found = False
        self._text = ""  # the end of what was checked
        self._chunks: list[str] = []  # since then
        self._size = 0  # of these, in characters
        self._checks = 0
        self._numbered = 0  # checks without numbers in a row that found a period
        self._period = 0  # at the last check
        self._period_at = 0  # the first check of those that found it
        self._is_filler = False

    def feed(self, text: str) -> str:
        """Take the next part of the text; return it, cut off where the repetition was found."""
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
    """Return the period with which a text ends, in characters; 0 where it has none.

    Args:
        min_rounds: how often the period must be repeated.
        min_length: how many characters the repetitions must have in all.
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
    """Whether at least half of a period are words, with something between them."""
    pieces = _PIECES.findall(text[-period:])
    words = sum(piece[0].isalpha() for piece in pieces)
    has_gap = _GAP.search(text, len(text) - period) is not None
    return 0 < len(pieces) <= min(MAX_PIECES, 2 * words) and has_gap and not _is_data(text)


def _is_filler(text: str, period: int) -> bool:
    """Whether a period is a sign, letters or white space, or the text is data."""
    pieces = _PIECES.findall(text[-period:])
    return period == 1 or ((len(pieces) <= 1 or _is_data(text)) and not any(piece.isdigit() for piece in pieces))


def _is_data(text: str) -> bool:
    return any(len(part) > MAX_UNBROKEN and part.isascii() for part in text[-MIN_LENGTH:].split())
