"""Built in: all calculators, and how one is found among them."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module

from specialists._medical.calculator import Calculator
from specialists._medical.inputs import nearest

GROUPS = (
    *("kidney", "body", "fluids", "metabolism", "heart", "fibrillation", "coronary", "framingham"),
    *("clots", "liver", "meld", "lungs", "emergency", "burns", "sofa", "apache"),
    *("infection", "comorbidity", "pregnancy", "dosing"),
)
"""The files of our own calculators, by organ or occasion."""
FOUND_MOST = 8


@cache
def own() -> tuple[Calculator, ...]:
    """Brain's own calculators."""
    found: list[Calculator] = []
    for group in GROUPS:
        found += import_module(f"specialists._medical.{group}").CALCULATORS
    return tuple(found)


def words_of(text: str) -> list[str]:
    """Words and numbers, in lower case: `CHA₂DS₂-VASc` is `cha2ds2 vasc`."""
    signs = unicodedata.normalize("NFKD", text.lower().replace("'s", "").replace("δ", "delta "))
    text = "".join(sign for sign in signs if not unicodedata.combining(sign))
    return re.findall(r"[a-z0-9μß]+", text)


_FILLERS = frozenset(
    words_of(
        "a an and the of for in to with from by is it me my what which how i on or at as do does s "
        "calculate calculator calculation calculated compute computed estimate estimated score scale index equation "
        "formula rule criteria criterion patient risk value medical calculators are there list all available show "
        "year years old man woman male female patients have has can you this his her please my about"
    )
)
_VAGUE = frozenset(words_of("severity severe mortality chance outcome prognosis prediction acute blood leg"))
"""Words that tell little of what a calculator is for; they count a quarter."""
_MEANINGS = {
    "sepsis": "septic septicaemia septicemia",
    "heart": "cardiac",
    "kidney": "renal",
    "liver": "hepatic",
    "cirrhosis": "cirrhotic",
    "lung": "pulmonary",
    "clot": "thrombosis thrombus thrombotic thromboembolism thromboembolic embolism embolus dvt vte",
    "bleed": "bleeding haemorrhage hemorrhage haemorrhagic hemorrhagic",
    "anticoagulation": "anticoagulant anticoagulated",
    "gastrointestinal": "gi gastric stomach gut",
    "diabetes": "diabetic",
    "glucose": "sugar",
    "hypertension": "hypertensive",
    "obesity": "obese overweight",
    "pregnancy": "pregnant",
    "burn": "burned burnt",
    "depression": "depressed depressive",
    "anxiety": "anxious",
    "alcohol": "alcoholic",
}
"""Words for which the search takes another."""
SENTENCE_WORDS = 4


def squeezed(text: str) -> str:
    """A name without what people write differently: `Wells' Criteria for DVT` is `wellsdvt`."""
    words = words_of(text)
    return "".join([word for word in words if word not in _FILLERS] or words)


def named(name: str, all_of_them: Sequence[Calculator]) -> list[Calculator]:
    """Those that go by this name, or both by what stands before its brackets and in them."""
    name = name[:200]
    before, _, inside = name.partition("(")
    return _named(name, all_of_them) or [
        one for one in _named(inside, all_of_them) if one in _named(before, all_of_them)
    ]


def _named(name: str, all_of_them: Sequence[Calculator]) -> list[Calculator]:
    """By their own names, else by other ones, else by their titles."""
    wanted, words = squeezed(name), frozenset(words_of(name))
    for names in (lambda one: [one.name], _other_names, _titles):
        found = [one for one in all_of_them if any(_goes_by(other, wanted, words) for other in names(one))]
        if found:
            return found
    return []


def _goes_by(other: str, wanted: str, words: frozenset[str]) -> bool:
    """Whether a name is meant. All of its words must be among several: a stroke risk is no stroke scale."""
    return bool(wanted) and squeezed(other) == wanted and (len(words) == 1 or words.issuperset(words_of(other)))


def is_sentence(name: str) -> bool:
    """Whether it is longer than names are."""
    return len(words_of(name[:500])) >= SENTENCE_WORDS


def _other_names(one: Calculator) -> list[str]:
    return [*one.also.split(","), *one.replaces]


def _titles(one: Calculator) -> list[str]:
    title, _, inside = one.title.partition("(")
    return [title, f"{title} {inside}"]


def _names(one: Calculator) -> list[str]:
    return [*_other_names(one), *_titles(one)]


def names_of(one: Calculator) -> list[str]:
    """All names that it goes by."""
    return [name for name in (one.name, *_names(one)) if words_of(name)]


def search(query: str, all_of_them: Sequence[Calculator]) -> list[Calculator]:
    """The calculators that fit a question best, at most eight."""
    words = telling(query)
    exact = named(query, all_of_them)
    scored = [(_fit(words, one), one) for one in all_of_them if one not in exact]
    ranked = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])
    return [*exact, *(one for score, one in ranked if score * 2 >= ranked[0][0])][:FOUND_MOST]


def telling(query: str) -> list[str]:
    """The words of a question that tell calculators apart."""
    return [word for word in words_of(query[:500]) if word not in _FILLERS and not word.isdecimal()]


def _fit(words: Iterable[str], one: Calculator) -> float:
    """Words count most in a name, then in what it says, then among the inputs; the start of a word counts half."""
    fields = ((6.0, _words_in_names(one)), (3.0, _stems(f"{one.says} {one.group}")), (1.0, _input_words(one)))
    return sum(
        max(weight * _likeness(_stem(word), known) for weight, known in fields) * (0.25 if word in _VAGUE else 1)
        for word in words
    )


def _likeness(stem: str, known: frozenset[str]) -> float:
    """Whole words count whole, beginnings of words half."""
    if stem in known:
        return 1
    return (
        0.5
        if len(stem) > 3 and any(word.startswith(stem) or (len(word) > 4 and stem.startswith(word)) for word in known)
        else 0
    )


@cache
def _words_in_names(one: Calculator) -> frozenset[str]:
    return _stems(" ".join((one.name.replace("_", " "), *_names(one))))


@cache
def _input_words(one: Calculator) -> frozenset[str]:
    return _stems(" ".join(f"{field.name} {field.text}" for field in one.inputs).replace("_", " "))


@cache
def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in words_of(text))


def _stem(word: str) -> str:
    return _SAME.get(_singular(word), _singular(word))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


_SAME = {_singular(word): _singular(one) for one, others in _MEANINGS.items() for word in others.split()}


def close_to(name: str, all_of_them: Sequence[Calculator]) -> list[Calculator]:
    """The calculators whose names are most like one that is none; by its spelling, then by its words."""
    spelled = {squeezed(other): one for one in reversed(all_of_them) for other in (*_names(one), one.name)}
    by_spelling = [spelled[other] for other in nearest(squeezed(name[:200]), list(spelled), 5)]
    found = [*by_spelling, *search(name, all_of_them)]
    return list({one.name: one for one in found}.values())[:5]
