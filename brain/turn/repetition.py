"""Notices when a model repeats itself without end. Pure: text in, text out.

Text repeats itself when its newest characters equal those one period earlier, for several periods, and a period is
mostly words: tables, rulers and data repeat themselves for good reasons. Text that repeats itself in all but its
numbers must do so for longer, since lists and code count, too.

Whether text repeats itself is looked at whenever `STEP` more characters have come. So the result depends on the text
alone and not on how it is cut, and the work per character is bounded.
"""

import re

STEP = 128
"""Characters from one look to the next."""
PERIOD_MOST, PIECES_MOST = 300, 64
"""Characters of a period, and its words, numbers and signs; a longer one is not found."""
ROUNDS, LEAST = 3, 256
"""Repetitions that are needed after the first occurrence, and characters that these must have in all."""
NUMBERED_ROUNDS, NUMBERED_LEAST = 6, 1024
"""The same where numbers are not compared."""
NUMBERED_LOOKS = 8
"""Looks from one without numbers to the next."""
NUMBERED_TIMES = 16
"""So many of these must find a period, one after the other: plans, songs and lists count, too, and end before."""
FILLER_LOOKS = 64
"""Looks during which the same sign, the same data, or white space may fill the text, as in rulers and base64."""
UNBROKEN_MOST = 50
"""Characters of ASCII without white space in text; data such as base64 has more."""
HISTORY = 1280
"""Characters that are kept: enough for each of these."""
TAIL = 32
"""Characters at the end of the text; a period is as long as the way to their last occurrence."""

_GAP = re.compile(r"\W")
_PIECES = re.compile(r"[^\W\d_]+|\d+|\S")
_NUMBER = re.compile(r"\d+")


class Guard:
    """Watches one text, such as that of one pass.

    Attributes:
        found: whether the text repeats itself.
    """

    __slots__ = ("_chunks", "_fills", "_looks", "_numbered", "_period", "_period_at", "_size", "_text", "found")

    def __init__(self) -> None:
        self.found = False
        self._text = ""  # as far as it was looked at, its end
        self._chunks: list[str] = []  # since then
        self._size = 0  # of these, in characters
        self._looks = 0
        self._numbered = 0  # looks without numbers that found a period, one after the other
        self._period = 0  # at the last look
        self._period_at = 0  # the first look of those that found it
        self._fills = False

    def feed(self, text: str) -> str:
        """Takes the next part of the text; returns it, cut off where the repetition was found."""
        self._chunks.append(text)
        self._size += len(text)
        return text if self._size < STEP else self._looked_at(text)

    def _looked_at(self, text: str) -> str:
        new = "".join(self._chunks)
        whole = len(new) - len(new) % STEP
        for start in range(0, whole, STEP):
            self._text = (self._text + new[start : start + STEP])[-HISTORY:]
            if self._repeats():
                self.found = True
                return text[: len(text) - (len(new) - start - STEP)]
        self._chunks, self._size = [new[whole:]], len(new) - whole
        return text

    def _repeats(self) -> bool:
        text = self._text
        self._looks += 1
        period = period_of(text, ROUNDS, LEAST)
        if period != self._period:
            self._period, self._period_at = period, self._looks
            if period and _has_words(text, period):
                return True
            self._fills = _fills(text, period)
        elif period and self._fills and self._looks - self._period_at >= FILLER_LOOKS:
            return True
        if self._looks % NUMBERED_LOOKS:
            return False
        text = _NUMBER.sub("0", text)
        period = period_of(text, NUMBERED_ROUNDS, NUMBERED_LEAST)
        self._numbered = self._numbered + 1 if period > 0 and _has_words(text, period) else 0
        return self._numbered >= NUMBERED_TIMES


def period_of(text: str, rounds: int, least: int) -> int:
    """The period with which a text ends, in characters; 0 where it has none.

    Args:
        rounds: how often the period must be repeated, at least.
        least: how many characters the repetitions must have, at least.
    """
    tail, first = text[-TAIL:], max(0, len(text) - TAIL - PERIOD_MOST)
    at = text.rfind(tail, first, -1)
    while at >= 0:
        period = len(text) - TAIL - at
        count = max(rounds * period, least)
        if len(text) >= count + period and text.endswith(text[-count - period : -period]):
            return period
        at = text.rfind(tail, first, at + TAIL - 1)
    return 0


def _has_words(text: str, period: int) -> bool:
    """Whether at least half of a period are words, with something between them."""
    pieces = _PIECES.findall(text[-period:])
    words = sum(piece[0].isalpha() for piece in pieces)
    has_gap = _GAP.search(text, len(text) - period) is not None
    return 0 < len(pieces) <= min(PIECES_MOST, 2 * words) and has_gap and not _is_data(text)


def _fills(text: str, period: int) -> bool:
    """Whether a period is a sign, letters or white space, or the text is data."""
    pieces = _PIECES.findall(text[-period:])
    return period == 1 or ((len(pieces) <= 1 or _is_data(text)) and not any(piece.isdigit() for piece in pieces))


def _is_data(text: str) -> bool:
    return any(len(part) > UNBROKEN_MOST and part.isascii() for part in text[-LEAST:].split())
