"""Reads the numbers of a sentence that names a calculator, such as `eGFR, woman of 54, creatinine 1.6 mg/dL`.

Only known words may stand in it: there is no end to the words that deny, doubt or compare. Criteria are never read.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from specialists._kit.text import word_set
from specialists._medical.calculator import Calculator, Problems
from specialists._medical.inputs import Choice, Day, Input, Number
from specialists._medical.parsing import to_key
from specialists._medical.units import normalize_unit

MAX_SENTENCE = 400
_MAX_SEARCHED = 2_000
_LONGEST_NAME = 8
_LONGEST_UNIT = 3
_MOST_GRADE = 10
_MOST_EXPLAINED = 3
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_TOKEN = re.compile(
    r"(?P<day>\b\d{4}-\d\d-\d\d\b|\b\d{1,2}\.\d{1,2}\.\d{4}\b|\b\d{1,2}(?:st|nd|rd|th)?\.? (?:of )?[a-z]{3,9},? \d{4}\b"
    r"|\b[a-z]{3,9} \d{1,2}(?:st|nd|rd|th)?,? \d{4}\b)"
    r"|(?P<pressure>(?:\b(?:blood pressure|bp)(?: of| is)?[ :=]+)?(?P<pair>(?<![\w.,/])\d{2,3}/\d{2,3}"
    r"(?![\w/]|[.,]\d)(?:\s?mm\s?hg\b)?))"
    r"|(?P<number>(?<![\w.,/])\d+(?:[.,]\d+)?(?![.,]?\d)(?P<feet>\s?(?:foot|feet|ft|')\s?\d{1,2}"
    r"(?:\s?(?:inch(?:es)?|in|\"))?(?![\w.,]*\d))?)"
    rf"|(?P<word>{_WORD.pattern})|(?P<link>[:=]|(?<!\S)[-–](?!\S))|(?P<stop>[.;,()])|(?P<unknown>\S)"
)
_YEARS_OLD = re.compile(r"(?<=\d)([ -]?years?|[ -]?jahre)[ -](?:old|alte?)\b")
_SAME_PERSON = re.compile(r"(?<=male) patient\b")
_PATIENT = word_set("patient patientin")
_LINKS = word_set("of is was level levels interval value von de began on")
"""Words that may stand between a name and its number."""
_KNOWN = _LINKS | word_set(
    "a an the at with for from by using and im i am my me this who aged are have has weighs weighing tall patient "
    "what whats wats calculate compute find give tell please how much many score "
    "bei und mit fur wie hoch ist mein berechnen patientin la selon et avec est con y es"
)
"""The other words that a sentence may have. With any other one, no number of the sentence is read."""
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


class Unread(Problems):
    """A sentence names a calculator, but its values cannot be read with certainty."""

    def __init__(self, calculator: Calculator, reason: str, missing: Sequence[str]) -> None:
        items = [item for item in calculator.inputs if (item.name in missing if missing else not item.optional)]
        listed = ", ".join(f'"{item.name}": {item.text or item.expects()}' for item in items[:_MOST_EXPLAINED])
        more = ", …" if len(items) > _MOST_EXPLAINED else ""
        call = f'call with "calculator": "{calculator.name}" and "inputs": {{{listed}{more}}}'
        super().__init__([reason], missing, [f"{call}, with nothing that the user did not state"])
        self.calculator = calculator


class _Token(NamedTuple):
    """A part of a sentence.

    Attributes:
        kind: `label` (the name of a measurement), `number`, `day`, `pressure`, `sex`, `word`, `link`, `stop` or
            `unknown`.
        text: The key of a label, else the text.
        unit: Unit of a number.
    """

    kind: str
    text: str
    unit: str = ""


def read_sentence(sentence: str, calculators: tuple[Calculator, ...]) -> tuple[Calculator, Mapping[str, Any]] | None:
    """Return the calculator that a sentence names, and its numbers.

    Returns:
        None if the sentence names no calculator or several, or says nothing about a patient.

    Raises:
        Unread: If it says something about a patient that cannot be read with certainty.
    """
    decomposed = unicodedata.normalize("NFD", sentence[:_MAX_SEARCHED].replace("’", "'").replace("”", '"'))
    # marks such as accents go, but not those that strike out a sign, as in `≠`
    text = "".join(sign for sign in decomposed if unicodedata.combining(sign) <= 1).casefold()
    text = re.sub(r"(?<=\w) ?\?\s*$", "", text)  # the sentence may be a question
    found = _find_calculator(text, calculators)
    if found is None:
        return None
    named, text = found
    fields = _list_fields(named, calculators)
    tokens = _tokenize(text, fields, _index_fields(calculators))
    if not any(token.kind in ("label", "number", "day", "pressure") for token in tokens):
        return None
    required = [item.name for item in named.inputs if not item.optional]
    if not all(_is_readable(item) for item in named.inputs if not item.optional):
        raise Unread(named, "criteria are not read from a sentence", required)
    if len(sentence) > MAX_SENTENCE:
        raise Unread(named, "the sentence is too long to read its numbers", required)
    if unknown := next((token.text for token in tokens if token.kind == "unknown"), ""):
        raise Unread(named, f"no number is read from a sentence with '{unknown[:40]}'", required)
    inputs, unclear = _assign(tokens, named, fields)
    if unclear:
        given = {fields[name].name for name in inputs if name in fields}
        raise Unread(named, f"unclear: {', '.join(unclear[:3])}", [name for name in required if name not in given])
    return named, inputs


def _is_readable(item: Input) -> bool:
    """Whether an input is a number, a day, or the sex. The grade of a finding is a criterion."""
    if isinstance(item, Number):
        return bool(item.measure.unit) or not item.whole or item.bounds[1] > _MOST_GRADE
    return isinstance(item, Day) or (isinstance(item, Choice) and (item.name == "sex" or _is_graded(item)))


def _is_graded(item: Input) -> bool:
    """Whether all options have numbers, as in `E3 V4 M5`."""
    if not isinstance(item, Choice) or not item.points:
        return False
    return all(item.find_option(given) == name for name, given in item.points.items() if given)


# The calculator


def _find_calculator(text: str, calculators: tuple[Calculator, ...]) -> tuple[Calculator, str] | None:
    """Return the calculator with the longest name in the text, and the text without its names; None if unclear."""
    names, fields = _index_names(calculators), _index_fields(calculators)
    found: list[tuple[int, int, str]] = []
    parts = list(_list_parts(text))
    longer: list[tuple[int, int]] = []  # `heart rate` is no HEART score
    for start, end, key in parts:
        if key in names and key != "child" and not any(first <= start and end <= last for first, last in longer):
            found.append((start, end, key))
        if key in names or key in fields:
            longer.append((start, end))
    if not found:
        return None
    candidates = frozenset[Calculator].intersection(*(names[key] for *_, key in found)) or names[found[0][2]]
    if any(names[key].isdisjoint(candidates) and not any(key in one.fields for one in candidates) for *_, key in found):
        return None
    # formulas of the same quantity need the same inputs: the first one is the usual one
    if len({tuple(item.name for item in one.inputs if not item.optional) for one in candidates}) != 1:
        return None
    named = min(candidates, key=calculators.index)
    for n, (start, end, key) in enumerate(found):
        if n == 0 or (named in names[key] and key not in named.fields):  # `creatinine` names a calculator and an input
            text = text[:start] + " " * (end - start) + text[end:]
    return named, text


def _list_parts(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield neighbouring words, longest parts first, with their key."""
    words = list(_WORD.finditer(text))
    keys = [to_key(word[0]) for word in words]
    for length in range(_LONGEST_NAME, 0, -1):
        for n in range(len(words) - length + 1):
            key = "_".join(keys[n : n + length])
            yield words[n].start(), words[n + length - 1].end(), _TRANSLATED.get(key, key)


@cache
def _index_names(calculators: tuple[Calculator, ...]) -> Mapping[str, frozenset[Calculator]]:
    names: dict[str, set[Calculator]] = {}
    for one in calculators:
        for name in one.names:
            names.setdefault(name, set()).add(one)
    return {name: frozenset(found) for name, found in names.items()}


@cache
def _index_fields(calculators: tuple[Calculator, ...]) -> Mapping[str, Input]:
    return {name: item for one in calculators for name, (item, _) in one.fields.items()}


# Its numbers

Fields = Mapping[str, Input]
"""Inputs by each of their names."""


@cache
def _list_fields(named: Calculator, calculators: tuple[Calculator, ...]) -> Fields:
    """Return the fields of a calculator, and age, sex, weight and height, which a sentence may have without need."""
    general = {item.name: item for one in reversed(calculators) for item in one.inputs}
    items = [*named.inputs, *named.helper_inputs, *(general[name] for name in ("age", "sex", "weight", "height"))]
    return {name: item for item in reversed(items) for name, _ in item.fields()}


def _tokenize(text: str, fields: Fields, others: Fields) -> list[_Token]:
    numbers = [item for item in fields.values() if isinstance(item, Number)]
    units = {unit for item in numbers for measure in (item.measure, *item.forms.values()) for unit in measure.factors}
    text = _SAME_PERSON.sub("", _YEARS_OLD.sub(r"\1", text))
    has_grades = any(map(_is_graded, fields.values()))
    if has_grades:
        units = set()
        text = re.sub(r"(?<=\d)(?=[a-z])|(?<![a-z][a-z])(?<=[a-z])(?=\d)", " ", text)  # `e3v4m5`
    labels = {
        start: (end, key)
        for start, end, key in reversed(list(_list_parts(text)))  # of those that begin together, the longest one stays
        if (key in fields and fields[key].name != "sex" and (has_grades or len(key) > 1))
        or (len(key) > 1 and key not in _KNOWN and isinstance(others.get(key), Number))
    }
    tokens: list[_Token] = []
    at = 0
    while found := _TOKEN.search(text, at):
        at, kind, unit, value = found.end(), str(found.lastgroup), "", found["pair"] or found[0]
        if kind == "word" and found.start() in labels:
            at, value = labels[found.start()]
            kind = "label"
        elif kind == "word" and value not in _KNOWN:
            kind = "sex" if _is_sex(value, fields["sex"]) else "unknown"
        elif kind == "word" and value in _LINKS:
            kind = "link"
        elif kind == "number" and not found["feet"]:
            unit, at = _find_unit(text, at, units)
            if not unit and (attached := re.match(r"[^\s.,;:!?)]\S*", text[at:])):
                kind, value = "unknown", value + attached[0]
            value = f"{value} {unit}".strip()
        tokens.append(_Token(kind, value, "ft" if found["feet"] else normalize_unit(unit)))
    return [token for token in tokens if token.kind != "link"]


def _find_unit(text: str, start: int, units: Collection[str]) -> tuple[str, int]:
    """Return the unit after a number, or an empty text, and its end."""
    rest = text[start : start + 40]
    after = rest.lstrip(" -")
    for last in reversed(list(re.finditer(r"\S+", after))[:_LONGEST_UNIT]):
        unit = after[: last.end()].rstrip(".,;:!?)")
        if normalize_unit(unit) in units:
            return unit, start + len(rest) - len(after) + len(unit)
    return "", start


def _assign(tokens: Sequence[_Token], named: Calculator, fields: Fields) -> tuple[dict[str, Any], list[str]]:
    """Return the inputs, and the names and numbers that are unclear.

    A number belongs to the name before it, else to the only input with its unit, unless it may be the result.
    """
    inputs: dict[str, Any] = {}
    unclear: list[str] = []
    given: set[str] = set()
    unnamed: list[_Token] = []
    label, is_age = "", False

    def store(name: str, value: str) -> None:
        item = fields[name].name if name in fields else name
        if not name or item in given:
            unclear.append(value)
        else:
            inputs[name] = value
            given.add(item)

    for token in [*tokens, _Token("stop", "")]:
        is_value = token.kind in ("number", "day")
        if label and not is_value:
            unclear.append(label.replace("_", " "))
        if is_value and label:
            if label in fields:  # else it belongs to another calculator
                store(label, token.text)
        elif token.kind == "number" and token.unit:
            unnamed.append(token)
        elif is_value:
            store("age" if is_age and token.text.isdecimal() else "", token.text)
        elif token.kind == "pressure":
            store("blood_pressure" if "systolic_bp" in fields else "", token.text)
        label = token.text if token.kind == "label" else ""
        is_age = token.kind == "sex" or token.text in {"aged", *_PATIENT} or (is_age and token.kind == "stop")
    for token in unnamed:
        fitting = [item for item in fields.values() if isinstance(item, Number) and token.unit in item.measure.factors]
        if any(normalize_unit(named.unit) in item.measure.factors for item in fitting):
            unclear.append(f"{token.text} without a name, which may be the result")
            continue
        fitting = [item for item in dict.fromkeys(fitting) if item.name not in given]
        fitting = [item for item in fitting if item in named.inputs] or fitting
        fitting = [item for item in fitting if not item.optional] or fitting
        store(fitting[0].name if len(fitting) == 1 else "", token.text)
    persons = [token for token in tokens if token.kind == "sex" or token.text in _PATIENT]
    if len(persons) > 1:
        unclear.append(f"whose numbers these are ({' or '.join(person.text for person in persons[:2])})")
    elif persons and persons[0].kind == "sex" and "sex" in fields:
        inputs["sex"] = persons[0].text
    return inputs, unclear


def _is_sex(word: str, item: Input | None) -> bool:
    return isinstance(item, Choice) and len(word) > 1 and bool(item.find_option(word))
