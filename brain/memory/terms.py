"""The words of a text that tell something, so that two texts can be compared; English, some German, CJK."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import or_

import regex

from brain.memory.tables import LIGHT, NEGATIONS, STOP

_MARKS = regex.compile(r"(?<=[\p{Latin}\p{Greek}])\p{Mn}+")
_HIDDEN = regex.compile(r"[\p{Cf}\p{Cc}]")
_OWNED = regex.compile(r"(?<=\p{L})['’‘ʼ](?:s|m|re|ve)\b")
_SHORT = {"d": " would", "ll": " will"}
_SHORTENED = regex.compile(r"(?<=\p{L})['’‘ʼ](d|ll)\b")
_NOT = regex.compile(r"(?<=\p{L})n['’‘ʼ]t\b")
_WORD = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"  # no spaces between words: each character is one
    r"|(?:(?<!\w)[-−](?=\d))?[\p{L}\p{N}--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]][\p{L}\p{M}\p{N}"
    r"--[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]]*"
    r"(?:(?:[.@:]|(?<=\d)[,/-](?=\d))[\p{Latin}\p{N}]+)*[+#]*"
    r"|[%‰°\p{Sc}]",
    regex.V1,
)
_WORD_ASCII = re.compile(r"(?:(?<!\w)-(?=\d))?[a-z0-9]+(?:(?:[.@:]|(?<=\d)[,/-](?=\d))[a-z0-9]+)*[+#]*|[%$]", re.ASCII)
"""The same, faster, for text without other letters."""
_HIDDEN_ASCII = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]+")
_APOSTROPHE = re.compile(r"['’‘ʼ]")
_IDIOM = re.compile(r"\b(?:anything but|nowhere near|far from)\b")
"""What is a negation, and does not look like one."""
_ORDINAL = regex.compile(r"^(\d+)(?:st|nd|rd|th)$")
_FILLERS = regex.compile(
    r"用户|用戶|使用者|ユーザー|사용자|非常|でした|ました|である|です|ます|입니다|이에요|예요|습니다"
)
"""The user, politeness, and what only looks like a negation."""
_ENDINGS = frozenset(["", "s", "es", "e", "ed", "d", "ing", "y", "ies", "ied", "ic", "ical", "ly"])
_LONG_ENDINGS = _ENDINGS | frozenset(
    ["n", "en", "er", "em", "et", "t", "st", "te", "ten", "es", "ens", "ern", "ian", "c"]
)
_GROWS = 200
"""Characters by which a text may be longer when it is folded: there are signs that become eighteen letters."""
_LONG = 4
_ENDING_LENGTH = 1 + max(map(len, _LONG_ENDINGS))
"""With a letter that is doubled."""


def words(text: str) -> tuple[str, ...]:
    """All words of a text in their order, folded: case, accents, widths, ordinals and short forms."""
    if text.isascii():
        return _words(_HIDDEN_ASCII.sub("", text.lower()))
    text = unicodedata.normalize("NFKC", text)[: len(text) + _GROWS].casefold()
    text = _HIDDEN.sub(lambda hidden: " " if hidden[0].isspace() else "", text)
    text = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", text)))
    return _words(_FILLERS.sub(" ", text))


def _words(text: str) -> tuple[str, ...]:
    if _APOSTROPHE.search(text):
        text = _NOT.sub(" not", _SHORTENED.sub(lambda short: _SHORT[short[1]], _OWNED.sub("", text)))
    text = _IDIOM.sub("not", text)
    found = (_WORD_ASCII if text.isascii() else _WORD).findall(text)
    return tuple(_ORDINAL.sub(r"\1", word) if word[0].isdigit() else word for word in found)


def content(text: str) -> tuple[str, ...]:
    """The words that tell something, each once: neither function words, nor pronouns, nor negations."""
    return tuple(dict.fromkeys(word for word in words(text) if word not in STOP and word not in NEGATIONS))


def telling(text: str) -> tuple[str, ...]:
    """The same without words that say little by themselves."""
    return tuple(word for word in content(text) if word not in LIGHT)


def negated(found: Iterable[str]) -> bool:
    """Whether there is a negation among words."""
    return any(word in NEGATIONS for word in found)


def alike(one: str, other: str) -> bool:
    """Whether two words are the same but for how they end: `live` and `lives`, `allergy` and `allergic`."""
    return not set(stems(one)).isdisjoint(stems(other))


def stems(word: str) -> list[str]:
    """What a word may begin with so that the rest is only an ending; the word itself, where it is short or has signs.

    Few of each word: words are compared by looking these up, and never each with each.
    """
    length = len(word)
    if length < _LONG or not word.isalpha():
        return [word]
    return [word, *(word[:n] for n in range(max(_LONG - 1, length - _ENDING_LENGTH), length) if _ends(word, n))]


def _ends(word: str, begun: int) -> bool:
    """Whether only an ending comes behind the beginning, but for a letter that is doubled: `preferred`."""
    ending = word[begun:]
    ending = ending[1:] if len(ending) > 1 and ending[0] == word[begun - 1] else ending
    return ending in (_LONG_ENDINGS if begun >= _LONG else _ENDINGS)


class Known:
    """Words that are there, to be looked up by how they begin."""

    def __init__(self, found: Iterable[str]) -> None:
        self._begun: dict[str, list[str]] = {}
        for word in dict.fromkeys(found):
            for stem in stems(word):
                self._begun.setdefault(stem, []).append(word)

    def __contains__(self, word: str) -> bool:
        return any(True for _ in self._found(word))

    def like(self, word: str) -> set[str]:
        """Those that are like a word."""
        return set().union(*self._found(word))

    def _found(self, word: str) -> Iterator[Sequence[str]]:
        """The words of each of its stems; that there are any is seen sooner than that it is a stem."""
        if (found := self._begun.get(word)) is not None:
            yield found
        if len(word) >= _LONG and word.isalpha():
            for n in range(max(_LONG - 1, len(word) - _ENDING_LENGTH), len(word)):
                if (found := self._begun.get(word[:n])) is not None and _ends(word, n):
                    yield found

    def missing(self, wanted: Sequence[str]) -> list[str]:
        """Those of the wanted words that are not there."""
        return [word for word in wanted if word not in self]


class Wanted:
    """Words that are looked for among others; a set of them is a number's bits.

    Nothing is compared with everything: a word is looked up once, whoever says it how often.

    Attributes:
        heard: by each of them, what was found that is like it.
    """

    def __init__(self, found: Sequence[str]) -> None:
        self.words = found
        self.heard = {word: set[str]() for word in self.words}
        self._known = Known(self.words)
        self._bits = {word: 1 << n for n, word in enumerate(self.words)}
        self._seen: dict[str, int] = {}

    def of(self, word: str) -> int:
        """Which ones a word is."""
        found = self._seen.get(word)
        if found is None:
            like = self._known.like(word) if word not in STOP else ()
            for one in like:
                self.heard[one].add(word)
            found = self._seen[word] = self.all(like)
        return found

    def all(self, words: Iterable[str]) -> int:
        """These, of the wanted ones."""
        return sum(self._bits[word] for word in words)

    def lacking(self, found: int) -> list[str]:
        """The others."""
        return [word for word, bit in self._bits.items() if not found & bit]


def union(found: Iterable[int]) -> int:
    return reduce(or_, found, 0)
