"""Reads a sentence that names a calculator and gives its inputs, such as `eGFR, woman of 54, creatinine 1.6 mg/dL`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from specialists._kit.text import word_set
from specialists._medical.calculator import OTHERS_ABSENT, Calculator, Problems
from specialists._medical.inputs import Choice, Day, Number, YesNo
from specialists._medical.parsing import to_key
from specialists._medical.units import normalize_unit

MAX_SENTENCE = 400
_LONGEST_NAME = 8
_LONGEST_LABEL = 4
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_QUANTITY = re.compile(
    r"(?<![\w.,])(?P<number>\d+(?:[.,]\d+)?)"
    r"(?:(?P<inches>\s?(?:foot|feet|ft|['’])\s?\d{1,2}(?:\s?(?:inch(?:es)?|in|[\"”]))?)(?![\w.,]*\d)"
    r"|(?P<pressure>/\d{2,3})(?!\d)"
    r"|[\s-]{0,2}(?P<unit>%|[^\W\d_]{1,12}(?:/[^\W\d_]{1,4})?)(?![\w/²³^]))?"
)
_DAY = re.compile(
    r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}\.\d{1,2}\.\d{4}\b|\b\d{1,2}(?:st|nd|rd|th)?\.? (?:of )?[a-z]{3,9},? \d{4}\b"
    r"|\b[a-z]{3,9} \d{1,2}(?:st|nd|rd|th)?,? \d{4}\b",
    re.IGNORECASE,
)
_SKIPPED = word_set("of is was a an the at with level von bei de per i")
_NEGATION = re.compile(r".*\b(?:no|not|without|denies|never|keine?|ohne|sans|pas|sin)\b([^.;:]*)\Z", re.I | re.DOTALL)
_UNCLEAR = re.compile(r",|\b(?:and|und|et|y)\b", re.IGNORECASE)
"""Words after which it is unclear whether a negation continues."""
_ODD_UNIT = re.compile(r"[\s-]?[^\W\d_]{0,12}[/²³^]")
_POSITIVE = re.compile(r"\b(?:but|with|has|had|and has|aber|mit|mais|avec|pero|con)\b", re.IGNORECASE)
_OTHERS_ABSENT = re.compile(
    r"\b(?:otherwise (?:nothing|none|healthy|negative)|nothing else|no others?|none of the others|all others? (?:are )?"
    r"(?:absent|negative|no)|sonst nichts|rien d['’]autre|nada más)\b",
    re.IGNORECASE,
)
_PERSON = word_set(
    "male female man woman men women boy girl patient person someone somebody lady mann frau homme femme hombre "
    "mujer m f patientin aged age alter edad âge"
)
"""Words before an age without a unit."""
_TRANSLATED = {
    word: key
    for key, words in {
        "creatinine": "kreatinin creatinina", "sodium": "natrium sodio", "potassium": "kalium potasio",
        "chloride": "chlorid chlorure cloruro", "calcium": "kalzium", "bicarbonate": "bicarbonat bikarbonat",
        "weight": "gewicht poids peso", "height": "grosse taille altura", "age": "alter edad", "urea": "harnstoff uree",
        "bilirubin": "bilirubine bilirubina", "albumin": "albumine albumina",
    }.items()
    for word in words.split()
}  # fmt: skip
"""Names of inputs in other languages, as keys."""


@dataclass
class _Sentence:
    """A sentence while its parts become inputs. `used` are the words of names, labels and values."""

    text: str
    words: Sequence[re.Match[str]]
    inputs: dict[str, Any] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)

    def key(self, first: int, last: int) -> str:
        """Return words `first` to `last` as the key of an input."""
        key = to_key(" ".join(word[0] for word in self.words[first : last + 1]))
        return _TRANSLATED.get(key, key)

    def parts(self, longest: int) -> Iterator[tuple[int, int, str]]:
        """Yield neighbouring unused words, longest parts first, with their key."""
        for length in range(min(longest, len(self.words)), 0, -1):
            for first in range(len(self.words) - length + 1):
                if self.used.isdisjoint(range(first, first + length)):
                    yield first, first + length - 1, self.key(first, first + length - 1)


def parse_sentence(sentence: str, calculators: Sequence[Calculator]) -> tuple[Calculator, Mapping[str, Any]] | None:
    """Return the calculator that a sentence names, and its inputs.

    Returns:
        None unless the sentence names one calculator, gives all its inputs, and has no other numbers.
    """
    if len(sentence) > MAX_SENTENCE:
        return None
    read = _Sentence(sentence, list(_WORD.finditer(sentence)))
    named = _find_calculator(read, _index_names(tuple(calculators)))
    if named is None or not _read_quantities(read, named) or not _read_choices(read, named):
        return None
    if not _read_criteria(read, named) or not read.inputs:
        return None
    try:
        named.calculate(read.inputs)
    except Problems as problems:
        if problems.missing:
            return None
    return named, read.inputs


@cache
def _index_names(calculators: tuple[Calculator, ...]) -> Mapping[str, frozenset[Calculator]]:
    names: dict[str, set[Calculator]] = {}
    for one in calculators:
        title, _, inside = one.title.partition("(")
        for name in (one.name, *one.aliases, *one.replaces, title, f"{title} {inside}"):
            names.setdefault(to_key(name), set()).add(one)
    return {name: frozenset(found) for name, found in names.items() if name}


def _find_calculator(read: _Sentence, names: Mapping[str, frozenset[Calculator]]) -> Calculator | None:
    """Return the calculator with the longest name in the sentence; None if another one is named, too."""
    found: list[tuple[int, int, frozenset[Calculator]]] = []
    for first, last, key in read.parts(_LONGEST_NAME):
        if key in names and not any(begin <= first and last <= end for begin, end, _ in found):
            found.append((first, last, names[key]))
    candidates = frozenset[Calculator].intersection(*(one for *_, one in found)) if found else frozenset()
    if not candidates and found:  # `heart` and `creatinine` name calculators, and are in the names of inputs
        candidates = found[0][2]
        labels = [
            (first, last) for first, last, key in read.parts(_LONGEST_NAME) for one in candidates if key in one.fields
        ]
        for begin, end, of in found[1:]:
            if candidates.isdisjoint(of) and not any(first <= begin and end <= last for first, last in labels):
                return None
    if len(candidates) != 1:
        return None
    named = next(iter(candidates))
    read.used |= {n for first, last, of in found if named in of for n in range(first, last + 1)}
    return named


def _read_quantities(read: _Sentence, named: Calculator) -> bool:
    """Read days and numbers; return whether each of them belongs to one input."""
    text = read.text
    days = list(_DAY.finditer(text))
    day_inputs = [item for item in named.inputs if isinstance(item, Day)]
    if len(days) != len(day_inputs) and days:
        return False
    if days and len(days) > 1:
        return False
    for found, item in zip(days, day_inputs, strict=False):
        read.inputs[item.name] = found[0]
        text = text[: found.start()] + " " * len(found[0]) + text[found.end() :]
    names = [read.words[n].span() for n in read.used]
    later: list[re.Match[str]] = []
    for found in _QUANTITY.finditer(text):
        if any(start <= found.start() < end for start, end in names):
            continue
        key = _find_label(read, found, named)
        if key is None:
            later.append(found)
        elif key in read.inputs or not _store(read, found, key):
            return False
    return all(_store_by_unit(read, found, named) for found in later)


def _store(read: _Sentence, found: re.Match[str], key: str) -> bool:
    unit = found["unit"] or ""
    value = found[0] if found["inches"] or found["pressure"] else f"{found['number']} {unit}".strip()
    if not unit and not found["inches"] and not found["pressure"] and _ODD_UNIT.match(read.text, found.end()):
        return False
    if unit and normalize_unit(unit) not in _all_units():
        value = found["number"]  # the next word, as in `Na 141 Cl 102`
    read.inputs[key] = value
    return True


@cache
def _all_units() -> frozenset[str]:
    """Return the units of all calculators."""
    from specialists._medical.catalog import all_calculators

    measures = [
        number.measure
        for calculator in all_calculators()
        for item in calculator.inputs
        for number in (item if isinstance(item, Number) else item.measured if isinstance(item, YesNo) else None,)
        if number is not None
    ]
    return frozenset(unit for measure in measures for unit in measure.factors)


def _find_label(read: _Sentence, found: re.Match[str], named: Calculator) -> str | None:
    """Return the input whose name is before a number, or after its unit."""
    if found["pressure"]:
        return "blood_pressure" if "systolic_bp" in named.fields else None
    before = [n for n, word in enumerate(read.words) if word.end() <= found.start()]
    while before and read.words[before[-1]][0].lower() in _SKIPPED:
        before.pop()
    after = [n for n, word in enumerate(read.words) if word.start() >= found.end()]
    while after and read.words[after[0]][0].lower() in _SKIPPED:
        after.pop(0)
    gap = read.text[read.words[before[-1]].end() : found.start()] if before else "."
    if not re.search(r"[.;,]", gap):
        for length in range(min(_LONGEST_LABEL, len(before)), 0, -1):
            key = read.key(before[-length], before[-1])
            if len(key) > 1 and _is_measured(named, key):
                read.used |= set(before[-length:])
                return key
    close = after and not re.search(r"[.;,]", read.text[found.end() : read.words[after[0]].start()])
    for length in range(min(_LONGEST_LABEL, len(after)), 0, -1) if close else ():
        key = read.key(after[0], after[length - 1])
        if len(key) > 2 and _is_measured(named, key):
            read.used |= set(after[:length])
            return key
    last = read.words[before[-1]][0].lower() if before else ""
    is_age = _is_measured(named, "age") and "age" not in read.inputs and re.fullmatch(r"\d{1,3}", found["number"])
    unit = normalize_unit(found["unit"] or "")
    if is_age and last in _PERSON and (not found["unit"] or unit not in _all_units()):
        return "age"
    return None


def _is_measured(named: Calculator, key: str) -> bool:
    item, hint = named.fields.get(key, (None, ""))
    return isinstance(item, Number) or (isinstance(item, YesNo) and hint.startswith("measured"))


def _store_by_unit(read: _Sentence, found: re.Match[str], named: Calculator) -> bool:
    """Store a number whose unit fits only one input that has no value yet."""
    if found["pressure"] or not (found["unit"] or found["inches"]):
        return False
    unit = normalize_unit("ft" if found["inches"] else found["unit"])
    fitting = [
        item
        for item in named.inputs
        if isinstance(item, Number) and unit in item.measure.factors and item.name not in read.inputs
    ]
    needed = [item for item in fitting if not item.optional] or fitting
    if len(needed) != 1:
        years = _is_measured(named, "age") and unit in ("years", "year", "yo", "jahre", "ans", "años", "yearold")
        if fitting or not years or "age" in read.inputs:
            return False
        read.inputs["age"] = found["number"]
        return True
    return _store(read, found, needed[0].name)


def _read_choices(read: _Sentence, named: Calculator) -> bool:
    """Read the options of choices; return whether none is ambiguous."""
    choices = [item for item in named.inputs if isinstance(item, Choice) and not item.optional]
    chosen: dict[str, str] = {}
    for first, last, key in list(read.parts(_LONGEST_NAME)) if choices else ():
        if not read.used.isdisjoint(range(first, last + 1)) or key.isdigit() or len(key) < 2:
            continue
        for item in choices:
            option = item.find_option(key)
            if not option or (item.name in chosen and key in ("no", "none")):
                continue
            if chosen.setdefault(item.name, option) != option:
                return False
            read.used |= set(range(first, last + 1))
            break
    read.inputs |= chosen
    return True


def _read_criteria(read: _Sentence, named: Calculator) -> bool:
    """Read criteria that the sentence has or denies; return whether none is ambiguous."""
    criteria = [item for item in named.inputs if isinstance(item, YesNo)]
    keys = {key: item for item in criteria for key, hint in item.fields() if not hint and len(key) > 2}
    for first, last, key in list(read.parts(_LONGEST_NAME)) if keys else ():
        if key not in keys or not read.used.isdisjoint(range(first, last + 1)):
            continue
        name = keys[key].name
        denied = _NEGATION.match(read.text[: read.words[first].start()])
        is_met = denied is None or _POSITIVE.search(denied[1]) is not None
        if denied and not is_met and _UNCLEAR.search(denied[1]):
            return False
        if read.inputs.setdefault(name, is_met) is not is_met:
            return False
        read.used |= set(range(first, last + 1))
    if criteria and _OTHERS_ABSENT.search(read.text):
        read.inputs[OTHERS_ABSENT] = True
    return True
