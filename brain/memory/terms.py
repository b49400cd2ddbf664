"""The words of a text, folded, so that two texts can be compared in any script."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import or_

import regex


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP = _set(
    "a about after all also am an and any are as at be been being but by ca can could d did do does doing done for "
    "from get gets go going got had has have having he her hers here him his how i if in into is it its itself just "
    "let me might mine much must my myself now of off ok okay on one or our ours out own please shall she should so "
    "some than that the their theirs them then there these they this those to too up us user users very was we well "
    "were what when where which while who whom whose why will with wo would yes you your yours aber als auch auf "
    "aus bei bin bist da dann das dass dem den der des die dir dich doch du ein eine einem einen einer eines er es "
    "euch eure fur hab habe haben habt hast hat hatte hatten ich ihm ihn ihr ihre ihren im ins ist ja kann mal man "
    "mein meine meinem meinen meiner meines mich mir mit nach nun nur ob oder schon sehr sein seine seinen sich sie "
    "sind um und uns unser unsere vom von vor war waren wenn wer werde wie wir wird zu zum zur nutzer benutzer "
    "我 你 您 他 她 它 们 們 的 了 是 在 有 很 和 也 就 都 着 過 过 呢 吗 嗎 吧 啊 请 請 "
    "私 僕 俺 は が を に の へ で と も よ ね だ 저 나 내 제 는 은 이 가 을 를 에 의 도 "
    "와 과 요 다 "
    "not no never none nobody nothing neither nor without cannot lack lacks lacking dont doesnt didnt isnt arent wasnt "
    "werent cant wont hasnt havent wouldnt shouldnt longer anymore stopped quit nicht nichts nie niemals niemand "
    "kein keine keinen keinem keiner ohne weder aufgehort "
    "ne pas jamais rien aucun aucune sans guere nunca nada nadie ningun ninguno ninguna tampoco sin non niente nulla "
    "nessuno nessuna senza neanche nemmeno neppure niet geen nooit niemand niets zonder nao nem nenhum nenhuma ninguem "
    "sem "
    "不 没 沒 無 无 未 別 别 ん ぬ 않 안 못 없 아니 "
    "je j qu est suis ai mes ses les une dans avec aux qui il ils nous vous utilisateur utilisatrice "
    "soy tengo tiene el los las unos unas del en con por para que yo mi su sus lo le se usuario usuaria"
)
"""Function words, pronouns and negations, which do not tell what a text is about: of ten languages, most of English."""
LIGHT = _set(
    "live lives living short shorter form sentence sentences important last once wrong schreiben geschrieben uber "
    "like likes liked love loves loved hate hates prefer prefers want wants wanted need needs know knows think "
    "thinks say says said tell told make makes made use uses used give take come see look find feel call called try "
    "keep ask asked good bad best better nice great new old big little many more most other same thing things lot "
    "kind really always often usually sometimes still today tomorrow yesterday day days time times week year years "
    "way again back remember morning evening night thank thanks hello hi hey please write wrote written explain "
    "work works worked working show list mean means word helpful help helped people person talk talked "
    "discuss discussed question answer mag magst mochte mochten will liebe weiss wissen sagen machen mache gut neu "
    "alt immer oft noch heute morgen gestern tag jahr jahre mal gern gerne lieblings arbeite arbeitet guten danke "
    "hallo bitte favourite favorite "
    "喜 欢 歡 爱 愛 想 要 好 "
    "one two three four five six seven eight nine ten eleven twelve twenty hundred thousand first second third last "
    "next once twice zwei drei vier funf sechs sieben acht neun zehn erste zweite dritte letzte nachste"
)
"""Words that two texts may share although they are about different things."""
ONESELF = _set("i me my we our us mine ich mich mir mein meine meinen wir uns unser 我 私 僕 俺 나 저 내")
"""Words of the person who asks."""

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
    found = (_WORD_ASCII if text.isascii() else _WORD).findall(text)
    return tuple(_ORDINAL.sub(r"\1", word) if word[0].isdigit() else word for word in found)


def content(text: str) -> tuple[str, ...]:
    """The content words, each once: all but function words, pronouns and negations."""
    return tuple(dict.fromkeys(word for word in words(text) if word not in STOP))


def telling(text: str) -> tuple[str, ...]:
    """The same without words that say little by themselves."""
    return tuple(word for word in content(text) if word not in LIGHT)


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
