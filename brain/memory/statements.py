"""What a new fact does to those that are known: it says the same, corrects one, or may contradict some. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import regex

from brain.memory.order import same
from brain.memory.saying import plain
from brain.memory.tables import ARTICLES, NEGATIONS, PEOPLE, PERSONAL, PREFERRING, STOP, USER, VALUES
from brain.memory.terms import Known, content, negated, telling, words
from brain.memory.texts import FACT_LENGTH, MEMORY_LENGTH
from brain.messages import Category, Item

NEAR = 0.6
"""The part of the telling words of the shorter of two facts that both have, from which on they may contradict."""
AGAINST_MOST = 5
_NAME_LENGTH = 4
_VALUE_LENGTH = 8

_ME = r"(?:i|we|the user|user|ich|wir|der nutzer|nutzer)"
_MY = r"(?:my|our|mein\w*|unser\w*|the user|user|users)"
_NOW = r"(?:(?:am|is|are|bin|ist|now|currently|jetzt|derzeit|have|has|habe|hat) )*"
_PATTERNS: Sequence[tuple[str, regex.Pattern[str]]] = tuple(
    (slot, regex.compile(rf"(?:{pattern})", regex.IGNORECASE))
    for slot, pattern in (
        ("name", rf"{_MY} (?:first |full |vor)?name (?:is|ist|lautet) (?P<value>.+)"),
        ("name", r"(?:(?:please )?(?:call me|nenn mich)|the user is called|user is called|i am called"
                 rf"|i go by|{_ME} (?:wants?|would like) (?:me )?to be called|{_ME} heiss\w*) (?P<value>.+)"),
        ("age", rf"{_ME} {_NOW}(?P<value>\d+) (?:years? old|jahre alt)|{_MY} (?:age|alter) (?:is|ist) (?P<value>.+)"),
        ("birthday", rf"{_MY} (?:birthday|birthdate|date of birth|geburtstag) (?:is |ist )?(?:on |am )?(?P<value>.+)"),
        ("birthday", rf"{_ME} (?:was |were |am |bin |wurde )?born (?:on |in )?(?P<value>.*\d.*)"),
        ("birthday", rf"{_ME} (?:bin |wurde )(?:am |im )?(?P<value>.*\d.*) geboren"),
        ("birthplace", rf"{_ME} (?:was |were )?born (?:in|at) (?P<value>.+)"),
        ("birthplace", rf"{_ME} (?:bin |wurde )in (?P<value>.+) geboren"),
        ("home", rf"{_ME} {_NOW}(?:lives?|living|resides?|based|wohn\w*|leb\w*) {_NOW}(?:in|at|on) (?P<value>.+)"),
        ("home", rf"{_ME} {_NOW}(?:moved|relocated|gezogen) (?:to|into|nach) (?P<value>.+)"),
        ("employer", rf"{_ME} {_NOW}(?:works?|working|employed|arbeit\w*) {_NOW}(?:at|for|by|bei|fur) (?P<value>.+)"),
        ("work", rf"{_ME} {_NOW}(?:work|works|working|employed|arbeit\w*) {_NOW}(?:as|als) (?P<value>.+)"),
        ("", rf"{_MY} (?P<name>.+?) (?:is|are|ist|sind|lautet) (?:now |currently |jetzt )?(?P<value>.+)"),
        ("", r"(?P<name>favourite .+?) (?:is|are|:) (?P<value>.+)"),
        ("", rf"(?P<value>.+?) (?:is|are|ist|sind) {_MY} (?P<name>(?:favou?rite|lieblings\w*) ?.*)"),
    )
)  # fmt: skip
_CJK_PATTERNS: Sequence[tuple[str, regex.Pattern[str]]] = tuple(
    (slot, regex.compile(pattern))
    for slot, pattern in (
        ("name", r"(?:我叫|我的名字(?:是|叫)|用户(?:叫|名叫)|用户的名字是)(?P<value>.+)"),
        ("name", r"(?:私|僕|俺|ユーザー)の名前は(?P<value>.+?)(?:です|だ)?"),
        ("age", r"(?:我|用户)(?:今年)?(?P<value>\d+)[岁歲]|(?:私|僕|俺|ユーザー)は(?P<value>\d+)歳(?:です)?"),
        ("home", r"(?:我|用户)(?:现在|現在)?住在(?P<value>.+)"),
        ("home", r"(?:私|僕|俺|ユーザー)は(?P<value>.+?)に住んで(?:いる|います)"),
        ("", r"(?:我|用户)的(?P<name>.+?)是(?P<value>.+)"),
        ("", r"(?:私|僕|俺|ユーザー)の(?P<name>.+?)は(?P<value>.+?)(?:です|だ)?"),
    )
)  # fmt: skip
_AGAIN = regex.compile(
    r"(?:,| and| but| because| und| aber| since) (?:i|my|we|our|ich|mein\w*|the user)\b", regex.IGNORECASE
)
_SPELLED = {"color": "colour", "favorite": "favourite", "flavor": "flavour", "neighbor": "neighbour"}
_SLOT_WORDS = {
    "name": "name called call heiße heisst", "age": "years old age jahre alt", "birthday": "birthday born geboren",
    "birthplace": "born geboren", "home": "live living moved based wohne lebe", "employer": "work working arbeite",
    "work": "work working arbeite",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Single:
    """A statement that can be true of one value only, such as where somebody lives."""

    slot: str
    value: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a new fact is to the known ones.

    Attributes:
        same: the one that says it already.
        corrects: the one that it takes the place of.
        against: those that it may contradict, nearest first.
    """

    same: Item | None = None
    corrects: Item | None = None
    against: tuple[Item, ...] = ()


def judged(text: str, known: Sequence[Item], near: Collection[str] = ()) -> Verdict:
    """What a new fact is to those known ones.

    Args:
        near: the ids of those that mean something alike, whatever their words.
    """
    texts = {item.id: item.text[:MEMORY_LENGTH] for item in known}
    for item in known:
        if same(text, texts[item.id]):
            return Verdict(same=item)
    one = single(text)
    for item in known:
        if (verdict := _corrected(text, one, item)) is not None:
            return verdict
    shares = {item.id: _overlap(text, texts[item.id]) for item in known}
    against = [item for item in known if shares[item.id] >= NEAR or item.id in near]
    against.sort(key=lambda item: -shares[item.id])
    return Verdict(against=tuple(against[:AGAINST_MOST]))


def queries(text: str) -> Iterator[str]:
    """What to look known facts up by, so that those that matter to a new one are among them."""
    yield text
    one = single(text)
    if one is not None:
        yield _SLOT_WORDS.get(one.slot, one.slot)


def single(text: str) -> Single | None:
    """The one-valued statement that a fact makes, if it makes one."""
    said = plain(text).strip(" .!。！")
    if len(said) > FACT_LENGTH or _AGAIN.search(said):
        return None
    for slot, pattern in _CJK_PATTERNS:
        if match := pattern.fullmatch(said):
            return _made(slot, match)
    folded = " ".join(_SPELLED.get(word, word) for word in words(said))
    for slot, pattern in _PATTERNS:
        if match := pattern.fullmatch(folded):
            return _made(slot, match)
    return None


def of_one_subject(text: str, known: str) -> bool:
    """Whether a text can be a correction of a known one: it is about the same, whatever else it says of it."""
    new, old = single(text), single(known)
    if new is not None and old is not None and new.slot == old.slot:
        return True
    if (subject := _subject(known)) and subject in Known([_subject(text)]):
        return True
    value = old.value if old is not None else ()
    about = [word for word in content(known) if not (word in value or word in VALUES or word.isdigit())]
    common = len(about) - len(Known(content(text)).missing(about))
    unknown = old is None  # so that one of the words is the value
    return (unknown or new is None) and common > 0 and 2 * common >= len(about) + unknown


def _subject(text: str) -> str:
    """What a text is about, by its first word that tells something; empty when it is the user."""
    for word in words(text):
        if word in USER:
            return ""
        if word not in STOP and word not in NEGATIONS:
            return word
    return ""


def category_of(text: str) -> Category:
    """The likely category of a fact whose category nobody said."""
    found = words(text)
    if PREFERRING.intersection(found):
        return "preferences"
    return "personal" if PERSONAL.intersection(found) else "general"


def _made(slot: str, match: "regex.Match[str]") -> Single | None:
    value = words(match["value"])
    if slot:
        return Single(slot, content(match["value"]))
    name = content(match["name"])
    if not name or len(name) > _NAME_LENGTH or len(content(match["value"])) > _VALUE_LENGTH:
        return None
    if name[-1] in PEOPLE:
        return None  # of whom many things are true: that she is a nurse does not contradict that she is ill
    described = " a" if value and value[0] in ARTICLES else ""
    return Single(" ".join(sorted(name)) + described, content(match["value"]))


def _corrected(text: str, first: Single | None, item: Item) -> Verdict | None:
    """Whether a new fact says another value of what a known one says, or the opposite of it."""
    if len(item.text) > FACT_LENGTH:
        return None
    new, old = content(text), content(item.text)
    turned = negated(words(text)) != negated(words(item.text))
    if turned and new and not Known(new).missing(old) and not Known(old).missing(new):
        return Verdict(corrects=item)
    if first is None or not first.value or turned:
        return None
    second = single(item.text)
    if second is None or first.slot != second.slot:
        return None
    if not Known(second.value).missing(first.value):
        return Verdict(same=item)  # it is known, and more exactly
    return Verdict(corrects=item)


def _overlap(one: str, other: str) -> float:
    """The part of the telling words of the shorter fact that the other one has."""
    first, second = sorted((telling(one) or content(one), telling(other) or content(other)), key=len)
    return 1 - len(Known(second).missing(first)) / len(first) if first else 0.0
