"""Checks what an assisted model writes, sentence by sentence. No I/O.

Small models copy their prompt. About a result, they also repeat themselves, make up numbers and names, or miss the
point. The text ends before the first such sentence. It is shown only if one of its first sentences is about the result.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import regex

from brain.words import SCALES, STOP_WORDS

STOPS = ("<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "(Now:", "\nQuestion:", "\nInformation:")
"""Texts at which the answer of a small model is over."""
MAX_SOURCE = 20_000
"""Characters of the message, and of each result, that are compared."""
_MAX_HELD = 3
"""Sentences that may come before the first one about the result."""
_LEAST_COMMON = 2
"""Words of the result, besides those of the question, that a sentence about it has, unless it has a number of it."""
_MAX_SENTENCE = 600
"""Characters after which a sentence ends, even without a sign."""
_MAX_STOP = 32
"""Characters of the longest stop text."""
_END = regex.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]*]*+(?=\s)|[。！？]|\n")
_MAX_ABBREVIATION = 12
"""Characters of the longest abbreviation, and one before it."""
_ABBREVIATION = regex.compile(r"(?:^|[\s(])(?:\p{L}|Dr|Mr|Mrs|Ms|St|No|vs|ca|approx|e\.g|i\.e|z\.B|bzw|Nr|\d{1,2})\.$")
_COPIED = re.compile(
    r"\b(?:Information:|Question:|Answer the question|only with what the information says|Recalled from)", re.IGNORECASE
)
_CLOCK = re.compile(
    r"^\W*(?:It is \w+ \d{4}-\d\d-\d\d|\w+day \d{4}-\d\d-\d\d \d\d:\d\d, (?:UTC|[\w+-]+/\w))", re.IGNORECASE
)
"""The note of the time, which may be the answer, but no more than that."""
_LABEL = re.compile(r"^\s*(?:Answer|Antwort|Réponse|Respuesta)\s*:\s*", re.IGNORECASE)
_ITEM = re.compile(r"^\s*\d{1,2}[.)](?=\s+\S|$)")
_NUMBER = re.compile(rf"(\d+(?:[.,'’]\d+)*)(?:\s?({'|'.join(SCALES)})\b|(k)\b)?", re.IGNORECASE)
_SEPARATOR = re.compile(r"[.,'’]")
_ENDLESS_NUMBER = re.compile(r"(?:\d[.,'’]?){60}")
_NAME = regex.compile(r"(?<=[\p{L}\p{N},;:\"'“„«(] ?)(?<!^)\b\p{Lu}[\p{L}\p{M}\p{N}]+")
_GERMAN = regex.compile(r"\b(?:der|das|ist|und|eine|wurde|hat)\b", regex.IGNORECASE)
_NOUN = regex.compile(
    r"\b(?i:der|die|das|dem|den|des|eine?[mnrs]?|keine?[mnrs]?|seine?[mnrs]?|ihre?[mnrs]?|im|am|zum|zur|vom|beim)"
    r"(?:\s+\p{Ll}+)?\s+(\p{Lu}[\p{L}\p{M}]+)|\d\s+(\p{Lu}[\p{L}\p{M}]+)"
)
"""A German noun after its article or number, which is no name, although it has a capital."""
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_IDEOGRAPH = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]")
"""A sign of a script that writes no spaces between words."""


class AnswerFilter:
    """The text of an assisted model; the interface is that of `brain.turn.tag_filter.Output`.

    Args:
        results: Numbers and names must come from them or the question.
        stops: Texts at which the answer is over. Without results and these, nothing is checked.

    Attributes:
        is_done: Whether the rest of the text does not matter.
    """

    def __init__(self, question: str, results: Sequence[str] = (), stops: Sequence[str] = STOPS) -> None:
        self._stops = stops
        self._is_checked = bool(results)
        self.restart()
        question, results = question[:MAX_SOURCE], [text[:MAX_SOURCE] for text in results]
        self._letters = " ".join((question, *results)).casefold()
        numbers = _read_numbers(self._letters)
        self._readings = {one.readings for one in numbers}
        self._values = frozenset().union(*(one.values for one in numbers))
        found = " ".join(results)
        self._new_numbers = _all_readings(found) - _all_readings(question)
        self._new_words = _content_words(found) - _content_words(question)

    def restart(self) -> None:
        """Forget the text so far: it was reasoning."""
        self.has_shown = False
        self.is_done = False
        self._pending = ""
        self._seen: set[str] = set()
        self._held: list[str] | None = [] if self._is_checked else None  # sentences before one about the result

    @property
    def is_holding(self) -> bool:
        """Whether characters are held back."""
        return bool(self._pending)

    def feed(self, text: str) -> list[tuple[Literal["answer"], str]]:
        """Take the next characters. Return the sentences that end in them."""
        if not self._stops and not self._is_checked:
            self.has_shown = self.has_shown or bool(text.strip())
            return [("answer", text)]
        self._pending += text
        if not self._seen:  # some base models begin with an empty line
            self._pending = self._pending.lstrip()
        shown = ""
        while not self.is_done:
            beginning = self._pending[: _MAX_SENTENCE + _MAX_STOP]
            stop = min((at for one in self._stops if (at := beginning.find(one)) >= 0), default=None)
            end = _find_end(beginning[: self._find_begun_stop(beginning) if stop is None else stop])
            if end is None and stop is None:
                break
            sentence = self._pending[: stop if end is None else end]
            self._pending = self._pending[len(sentence) :]
            shown += self._show(sentence)
            self.is_done = self.is_done or end is None
        return [("answer", shown)] if shown else []

    def close(self) -> list[tuple[Literal["answer"], str]]:
        """End the text. About a result, a last sentence without an end counts only if it is the first."""
        rest, self._pending = self._pending, ""
        if self.is_done or (self._is_checked and self.has_shown and not _END.search(rest + " ")):
            return []
        shown = self._show(rest)
        return [("answer", shown)] if shown else []

    def _find_begun_stop(self, text: str) -> int:
        """Return where a stop text may have begun at the end of a text."""
        places = range(max(0, len(text) - _MAX_STOP), len(text))
        return next((at for at in places if any(one.startswith(text[at:]) for one in self._stops)), len(text))

    def _show(self, sentence: str) -> str:
        text = self._take(sentence)
        if not self.has_shown:
            text = text.lstrip()
            self.has_shown = bool(text)
        return text

    def _take(self, sentence: str) -> str:
        """Return a sentence if it can be shown; end the text otherwise."""
        if not self.has_shown:
            sentence = _LABEL.sub("", sentence)
        words = " ".join(_WORD.findall(sentence.casefold()))
        if not words:
            if self._held:
                self._held.append(sentence)
            return sentence if sentence.isspace() and self.has_shown else ""
        is_copied = bool(_COPIED.search(sentence) or _ENDLESS_NUMBER.search(sentence))
        is_copied = is_copied or (_CLOCK.search(sentence) is not None and (self.has_shown or self._is_checked))
        if is_copied or (self._is_checked and (words in self._seen or self._is_made_up(sentence))):
            self.is_done = True
            return ""
        self._seen.add(words)
        if self._held is None:
            return sentence
        self._held.append(sentence)
        if not self._is_about_result(sentence):
            self.is_done = len(self._seen) >= _MAX_HELD
            return ""
        sentence, self._held = "".join(self._held), None
        return sentence

    def _is_about_result(self, sentence: str) -> bool:
        if _ITEM.fullmatch(sentence.strip()):
            return False
        if self._new_numbers & _all_readings(sentence):
            return True
        return len(self._new_words & _content_words(sentence)) >= min(_LEAST_COMMON, len(self._new_words))

    def _is_made_up(self, sentence: str) -> bool:
        """Whether a sentence has a number or a name of unknown source."""
        for number in _read_numbers(_ITEM.sub("", sentence)):  # all that it may mean must be known
            if number.readings not in self._readings and not number.readings <= self._values:
                return True
        nouns = {noun[1] or noun[2] for noun in _NOUN.finditer(sentence)} if _GERMAN.search(sentence) else ()
        names = [name for name in _NAME.findall(sentence.strip()) if name not in nouns]
        return any(name.casefold() not in self._letters for name in names)


class _Number(NamedTuple):
    """A number in a text: all that it may mean, and the values that the text surely has."""

    readings: frozenset[float]
    values: frozenset[float]


def _read_numbers(text: str) -> list[_Number]:
    numbers = []
    for digits, scale, thousand in _NUMBER.findall(text):
        factor = SCALES[scale.lower()] if scale else 1e3 if thousand else 1.0
        numbers.append(_Number(*(frozenset(value * factor for value in values) for values in _read_digits(digits))))
    return numbers


def _read_digits(digits: str) -> _Number:
    """Return what digits may mean: `1,490` is 1490 or, in some languages, 1.49; `24.12.2026` has three values."""
    groups, signs = _SEPARATOR.split(digits), set(_SEPARATOR.findall(digits))
    whole, decimal = float("".join(groups)), float(f"{''.join(groups[:-1])}.{groups[-1]}" if signs else digits)
    has_thousands = all(len(group) == 3 for group in groups[1:]) and not groups[0].startswith("0")
    if has_thousands and len(signs) < 2:
        if len(groups) != 2 or signs & {"'", "’"} or groups[1] == "000":
            return _Number(frozenset({whole}), frozenset({whole}))
        return _Number(frozenset({whole, decimal}), frozenset({whole} if signs == {","} else ()))
    if len(groups) == 2 or (len(groups) > 2 and all(len(group) == 3 for group in groups[1:-1]) and len(signs) > 1):
        return _Number(frozenset({decimal}), frozenset({decimal}))
    parts = frozenset(map(float, groups))
    return _Number(parts, parts)


def _all_readings(text: str) -> frozenset[float]:
    return frozenset().union(*(number.readings for number in _read_numbers(text)))


def _content_words(text: str) -> set[str]:
    words = {word for word in _WORD.findall(text.casefold()) if word not in STOP_WORDS and len(word) > 1}
    return words.union(_IDEOGRAPH.findall(text))


def _find_end(text: str) -> int | None:
    """Return the end of the first sentence, or None if it has not ended."""
    for end in _END.finditer(text[:_MAX_SENTENCE]):
        if end[0] == "\n" or _ABBREVIATION.search(text[max(0, end.end() - _MAX_ABBREVIATION) : end.end()]) is None:
            return end.end()
    return _MAX_SENTENCE if len(text) > _MAX_SENTENCE else None
