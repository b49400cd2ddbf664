"""Rooms: the words of a text that tell something, so that two texts can be compared; English, some German, CJK."""

import unicodedata
from collections.abc import Iterable, Sequence

import regex

from brain.memory.tables import LIGHT, NEGATIONS, STOP

_MARKS = regex.compile(r"(?<=[\p{Latin}\p{Greek}])\p{Mn}+")
_HIDDEN = regex.compile(r"[\p{Cf}\p{Cc}]+")
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
    text = unicodedata.normalize("NFKC", text)[: len(text) + _GROWS].casefold()
    text = _HIDDEN.sub(lambda hidden: " " if hidden[0].isspace() else "", text)
    text = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", text)))
    text = _SHORTENED.sub(lambda short: _SHORT[short[1]], _OWNED.sub("", _FILLERS.sub(" ", text)))
    text = _NOT.sub(" not", text)
    return tuple(_ORDINAL.sub(r"\1", word) for word in _WORD.findall(text))


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
    found = range(max(_LONG - 1, length - _ENDING_LENGTH), length)
    return [word, *(word[:n] for n in found if _ending(word, n) in (_LONG_ENDINGS if n >= _LONG else _ENDINGS))]


def _ending(word: str, begun: int) -> str:
    """What comes behind the beginning, without a letter that is doubled: `preferred`."""
    ending = word[begun:]
    return ending[1:] if len(ending) > 1 and ending[0] == word[begun - 1] else ending


class Known:
    """Words that are there, to be looked up by how they begin."""

    def __init__(self, found: Iterable[str]) -> None:
        self._begun: dict[str, list[str]] = {}
        for word in dict.fromkeys(found):
            for stem in stems(word):
                self._begun.setdefault(stem, []).append(word)

    def __contains__(self, word: str) -> bool:
        return any(stem in self._begun for stem in stems(word))

    def like(self, word: str) -> set[str]:
        """Those that are like a word."""
        return {other for stem in stems(word) for other in self._begun.get(stem, ())}

    def missing(self, wanted: Sequence[str]) -> list[str]:
        """Those of the wanted words that are not there."""
        return [word for word in wanted if word not in self]


def same(one: str, other: str) -> bool:
    """Whether two texts say the same: the same words that tell something, and both or neither with a negation."""
    first, second = content(one), content(other)
    alike_words = not Known(first).missing(second) and not Known(second).missing(first)
    return bool(first) and alike_words and negated(words(one)) == negated(words(other))
