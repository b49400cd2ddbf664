"""Reads the numbers of a sentence that names a calculator, such as `eGFR, woman of 54, creatinine 1.6 mg/dL`.

Criteria are never read: there is no end to the words that deny or doubt them.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from specialists._kit.text import word_set
from specialists._medical.calculator import Calculator, Problems
from specialists._medical.inputs import Choice, Day, Input, Number
from specialists._medical.parsing import DENIALS_AND_DOUBTS, to_key
from specialists._medical.units import normalize_unit

MAX_SENTENCE = 400
_MAX_SEARCHED = 2_000
_LONGEST_NAME = 8
_LONGEST_UNIT = 3
_MOST_GRADE = 10
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_TOKEN = re.compile(
    r"(?P<day>\b\d{4}-\d\d-\d\d\b|\b\d{1,2}\.\d{1,2}\.\d{4}\b|\b\d{1,2}(?:st|nd|rd|th)?\.? (?:of )?[a-z]{3,9},? \d{4}\b"
    r"|\b[a-z]{3,9} \d{1,2}(?:st|nd|rd|th)?,? \d{4}\b)"
    r"|(?P<pressure>(?<![\w.,/])\d{2,3}/\d{2,3}(?![\w/]|[.,]\d)(?:\s?mm\s?hg\b)?)"
    r"|(?P<number>(?<![\w.,/<>≤≥±~≈–−-])\d+(?:[.,]\d+)?(?![.,]?\d)(?P<feet>\s?(?:foot|feet|ft|')\s?\d{1,2}"
    r"(?:\s?(?:inch(?:es)?|in|\"))?(?![\w.,]*\d))?)"
    r"|(?P<unclear>\d+)"
    rf"|(?P<word>{_WORD.pattern})|(?P<stop>[.;,?])"
)
_DOUBTED_NUMBER = re.compile(r"\(\s*\?|\d[^?\d]{0,15}\?.*\d", re.DOTALL)
"""A question mark after a number, unless it ends the sentence."""
_UNSAFE = DENIALS_AND_DOUBTS | word_set(
    "or oder ou between ago target goal desired predicted lean birth donor urine urinary urin trans transgender "
    "twice thrice two three double half bid tid qid times"
)
"""Words beside which a number may not be the patient's."""
_LINKS = word_set(
    "of is was are a an the at with has have and level levels interval value measured weighs weighing plus "
    "von bei und mit ist de et est avec per y con es i"
)
"""Words between a name and its number."""
_PERSON = word_set("patient patientin person someone somebody adult child aged alter edad who old")
"""Words for a patient that tell no sex."""
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
        advice = f'call with "calculator": "{calculator.name}" and "inputs", with nothing that the user did not state'
        super().__init__([reason], missing, [advice])
        self.calculator = calculator


class _Token(NamedTuple):
    """A part of a sentence.

    Attributes:
        kind: `label` (the name of an input), `other` (the name of an input of another calculator), `number`, `day`,
            `pressure`, `word`, `stop` or `unclear`.
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
    decomposed = unicodedata.normalize("NFKD", sentence[:_MAX_SEARCHED].replace("’", "'").replace("”", '"'))
    text = "".join(sign for sign in decomposed if not unicodedata.combining(sign)).casefold()
    found = _find_calculator(text, calculators)
    if found is None:
        return None
    named, text = found
    fields = _list_fields(named, calculators)
    tokens = _tokenize(text, fields, _index_fields(calculators))
    if all(token.kind in ("word", "stop", "other") for token in tokens):
        return None
    required = [item.name for item in named.inputs if not item.optional]
    if not all(_is_readable(item) for item in named.inputs if not item.optional):
        raise Unread(named, "criteria are not read from a sentence", required)
    if len(sentence) > MAX_SENTENCE:
        raise Unread(named, "the sentence is too long to read its numbers", required)
    unsafe = next((token.text for token in tokens if token.kind == "word" and _is_unsafe(token.text)), "")
    if unsafe or _DOUBTED_NUMBER.search(text):
        raise Unread(named, f"no number is read from a sentence with '{unsafe or '?'}'", required)
    inputs, unclear = _assign(tokens, named, fields)
    if unclear:
        raise Unread(named, f"unclear: {', '.join(unclear[:3])}", [name for name in required if name not in inputs])
    return named, inputs


def _is_unsafe(word: str) -> bool:
    return word in _UNSAFE or word.endswith("n't")


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
        if key in names and key not in _PERSON and not any(first <= start and end <= last for first, last in longer):
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
        title, _, inside = one.title.partition("(")
        for name in (one.name, *one.aliases, *one.replaces, title, f"{title} {inside}"):
            names.setdefault(to_key(name), set()).add(one)
    return {name: frozenset(found) for name, found in names.items() if name}


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
    has_grades = any(map(_is_graded, fields.values()))
    if has_grades:
        units = set()
        text = re.sub(r"(?<=\d)(?=[a-z])|(?<![a-z][a-z])(?<=[a-z])(?=\d)", " ", text)  # `e3v4m5`
    labels = {
        start: (end, key)
        for start, end, key in reversed(list(_list_parts(text)))  # of those that begin together, the longest one stays
        if (key in fields and fields[key].name != "sex" and (has_grades or len(key) > 1))
        or (len(key) > 1 and isinstance(others.get(key), Number))
    }
    tokens: list[_Token] = []
    at = 0
    while found := _TOKEN.search(text, at):
        at, kind, unit, value = found.end(), str(found.lastgroup), "", found[0]
        if found.start() in labels and kind == "word":
            at, value = labels[found.start()]
            kind = "label" if value in fields else "other"
        elif kind == "word" and any(map(str.isdigit, value)):  # `q12h`
            kind = "unclear"
        elif kind == "number" and not found["feet"]:
            unit, at = _find_unit(text, at, units)
            if not unit and re.match(r"[^\s.,;:!?)]", text[at:]):
                kind = "unclear"
            value = f"{value} {unit}".strip()
        tokens.append(_Token(kind, value, "ft" if found["feet"] else normalize_unit(unit)))
    return [token for token in tokens if token.kind != "word" or token.text not in _LINKS]


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
    """Return the inputs, and the numbers that belong to none or to several.

    A number belongs to the name before or after it, else to the only input with its unit.
    """
    inputs: dict[str, Any] = {}
    unclear: list[str] = []
    given: set[str] = set()
    labels: set[int] = set()
    unnamed: list[_Token] = []
    days = [item.name for item in named.inputs if isinstance(item, Day)]

    def store(name: str, value: str) -> None:
        item = fields[name].name if name in fields else name
        if not name or item in given:
            unclear.append(value)
        else:
            inputs[name] = value
            given.add(item)

    for n, token in enumerate(tokens):
        if token.kind == "day":
            store(days[0] if len(days) == 1 else "", token.text)
        elif token.kind == "pressure":
            store("blood_pressure" if "systolic_bp" in fields else "", token.text)
        elif token.kind == "unclear":
            store("", token.text)
        elif token.kind == "number":
            near = [at for at in (n - 1, n + 1) if 0 <= at < len(tokens) and at not in labels]
            next_word = tokens[n + 1].text if tokens[n + 1 : n + 2] and tokens[n + 1].kind == "word" else ""
            if not token.unit and next_word and next_word not in _PERSON and not _is_sex(next_word, fields["sex"]):
                store("", f"{token.text} {next_word}")  # may be a unit
                continue
            label = next((at for at in near if _names(tokens[at], token, fields, is_before=at < n)), None)
            before = next((one.text for one in reversed(tokens[:n]) if one.kind != "stop"), "")
            if label is not None and tokens[label].kind == "other":
                labels.add(label)
            elif label is not None:
                labels.add(label)
                store(tokens[label].text, token.text)
            elif token.unit:
                unnamed.append(token)
            else:
                is_age = token.text.isdecimal() and (before in _PERSON or _is_sex(before, fields["sex"]))
                store("age" if is_age else "", token.text)
    for token in unnamed:
        fitting = [item for item in fields.values() if isinstance(item, Number) and token.unit in item.measure.factors]
        fitting = [item for item in dict.fromkeys(fitting) if item.name not in given]
        fitting = [item for item in fitting if item in named.inputs] or fitting
        fitting = [item for item in fitting if not item.optional] or fitting
        store(fitting[0].name if len(fitting) == 1 else "", token.text)
    if sex := _find_sex(tokens, fields.get("sex")):
        inputs["sex"] = sex
    return inputs, unclear


def _names(label: _Token, number: _Token, fields: Fields, *, is_before: bool) -> bool:
    """Whether a token is the name of a number beside it."""
    if label.kind == "other":
        return is_before
    item = fields[label.text] if label.kind == "label" else None
    if isinstance(item, Number):
        return is_before or not number.unit or number.unit in item.measure.factors
    return item is not None and _is_graded(item) and is_before


def _find_sex(tokens: Sequence[_Token], item: Input | None) -> str:
    """Return the sex if a single word tells it, and a number or its name is beside it."""
    said = [token for token in tokens if token.text != "," and token.text not in _PERSON]
    found = [n for n, token in enumerate(said) if token.kind == "word" and _is_sex(token.text, item)]
    is_beside = len(found) == 1 and any(one.kind in ("number", "label") for one in said[max(0, found[0] - 1) :][:3])
    return said[found[0]].text if is_beside else ""


def _is_sex(word: str, item: Input | None) -> bool:
    return isinstance(item, Choice) and len(word) > 1 and bool(item.find_option(word))
