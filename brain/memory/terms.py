"""The words of a text, folded, so that texts can be compared in any script."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import regex

from brain.words import word_set

STOP = word_set(
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
"""Function words, pronouns and negations of ten languages, mostly English."""
COMMON = word_set(
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
"""Words that unrelated texts often share."""
FIRST_PERSON = word_set(
    "i me my we our us mine ich mich mir mein meine meinen meiner meinem wir uns unser unsere "
    "je j moi mon ma mes nous notre nos yo mi mis nosotros nuestro nuestra io mio mia noi ik mij mijn wij ons onze "
    "我 私 僕 俺 나 저 내"
)
"""First-person pronouns."""

_MARKS = regex.compile(r"(?<=[\p{Latin}\p{Greek}])\p{Mn}+")
_INVISIBLE = regex.compile(r"[\p{Cf}\p{Cc}]")
_POSSESSIVE = regex.compile(r"(?<=\p{L})['’‘ʼ](?:s|m|re|ve)\b")
_CONTRACTIONS = {"d": " would", "ll": " will"}
_CONTRACTED = regex.compile(r"(?<=\p{L})['’‘ʼ](d|ll)\b")
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
_INVISIBLE_ASCII = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]+")
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
_FOLDED_GROWTH = 200
"""Characters by which a text may be longer when it is folded: there are signs that become eighteen letters."""
_LONG = 4
_ENDING_LENGTH = 1 + max(map(len, _LONG_ENDINGS))
"""With a letter that is doubled."""


def words(text: str) -> tuple[str, ...]:
    """All words of a text in their order, folded: case, accents, widths, ordinals and contractions."""
    if text.isascii():
        text = _INVISIBLE_ASCII.sub("", text.lower())
    else:
        text = unicodedata.normalize("NFKC", text)[: len(text) + _FOLDED_GROWTH].casefold()
        text = _INVISIBLE.sub(lambda found: " " if found[0].isspace() else "", text)
        text = unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", text)))
        text = _FILLERS.sub(" ", text)
    if _APOSTROPHE.search(text):
        text = _CONTRACTED.sub(lambda found: _CONTRACTIONS[found[1]], _POSSESSIVE.sub("", text))
        text = _NOT.sub(" not", text)
    found = (_WORD_ASCII if text.isascii() else _WORD).findall(text)
    return tuple(_ORDINAL.sub(r"\1", word) if word[0].isdigit() else word for word in found)


def content_words(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text without function words, pronouns and negations."""
    return tuple(dict.fromkeys(word for word in words(text) if word not in STOP))


def significant_words(text: str) -> tuple[str, ...]:
    """Return the content words of a text without those that unrelated texts often share."""
    return tuple(word for word in content_words(text) if word not in COMMON)


class WordMatcher:
    """Matches words with wanted words regardless of their endings. A set of wanted words is a bit mask.

    It looks up the possible stems of each distinct word once.
    """

    def __init__(self, wanted: Sequence[str]) -> None:
        self._bits = {word: 1 << n for n, word in enumerate(dict.fromkeys(wanted))}
        self._by_stem: dict[str, int] = {}
        for word, bit in self._bits.items():
            for stem in _stems(word):
                self._by_stem[stem] = self._by_stem.get(stem, 0) | bit
        self._matches: dict[str, int] = {}

    def match(self, word: str) -> int:
        """Return the wanted words that share a stem with a word."""
        found = self._matches.get(word)
        if found is None:
            found = 0
            for stem in _stems(word) if word not in STOP else ():
                found |= self._by_stem.get(stem, 0)
            self._matches[word] = found
        return found

    def match_any(self, words: Iterable[str]) -> int:
        """Return the wanted words that share a stem with any of these."""
        found = 0
        for word in words:
            found |= self.match(word)
        return found

    def bits(self, wanted: Iterable[str] | None = None) -> int:
        """Return the bit mask of these wanted words; of all by default."""
        return sum(self._bits[word] for word in (self._bits if wanted is None else wanted))


def _stems(word: str) -> list[str]:
    """Return the possible stems of a word; a short word has only itself."""
    length = len(word)
    if length < _LONG or not word.isalpha():
        return [word]
    stems = [word]
    for begun in range(max(_LONG - 1, length - _ENDING_LENGTH), length):
        ending = word[begun:]
        if len(ending) > 1 and ending[0] == word[begun - 1]:  # a doubled letter, as in `preferred`
            ending = ending[1:]
        if ending in (_LONG_ENDINGS if begun >= _LONG else _ENDINGS):
            stems.append(word[:begun])
    return stems
