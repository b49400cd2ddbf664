"""Built in: names of fields as charts, papers and models write them, brought to those that a calculator has."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from specialists._medical.reading import Wrong, key_of

KEY_LENGTH = 120
_PRESSURES = re.compile(r"\s*(\d{2,3})\s*/\s*(\d{2,3})\s*(?:mm\s?Hg)?\s*", re.IGNORECASE)
_BLOOD_PRESSURE = frozenset({"blood_pressure", "bp", "blood_pressure_mmhg", "bp_mmhg"})
_BRACKETS = re.compile(r"\(([^()]*)\)")
_BESIDE = re.compile(r"\([^()]*\)| criteri(?:a|on) for .*|\bpresence of | present$", re.IGNORECASE)
_TWO_UNITS = {"ft": "in", "feet": "inches", "st": "lb"}
_SILENT = frozenset(
    {"a", "an", "and", "any", "as", "at", "documented", "for", "had", "has", "have", "in", "is", "of", "on", "or"}
    | {"patient", "patients", "reported", "s", "the", "to", "was", "with"}
)
_SPELLINGS = (("aem", "em"), ("oed", "ed"), ("oest", "est"), ("tumour", "tumor"), ("isation", "ization"))
"""British spellings, and the American ones of our names."""


def unfolded(raw: Mapping[str, Any], fields: Mapping[str, Any], loose: Mapping[str, str]) -> dict[str, Any]:
    """The inputs by their keys, a blood pressure of `120/80` as its two numbers.

    Raises:
        Wrong: when these are the wrong way round.
    """
    found: dict[str, Any] = {}
    for name, value in raw.items():
        key = field_of(name[:KEY_LENGTH], fields, loose)
        pair = _pressures(value) if key in _BLOOD_PRESSURE and "systolic_bp" in fields else None
        if pair:
            found["systolic_bp"] = f"{pair[0]} mmHg"
            if "diastolic_bp" in fields:
                found["diastolic_bp"] = f"{pair[1]} mmHg"
        else:
            found[key if key not in found else name] = value
    return _joined(found)


def _joined(found: dict[str, Any]) -> dict[str, Any]:
    """The same, with `height_ft` and `height_in` as one height."""
    for name in list(found):
        base, _, large = name.rpartition("_")
        small = _TWO_UNITS.get(large)
        if base and f"{base}_{small}" in found and base not in found:
            found[base] = f"{found.pop(name)} {large} {found.pop(f'{base}_{small}')} {small}"
    return found


def _pressures(value: Any) -> tuple[str, str] | None:
    """Both numbers of a cuff: `120/80`, `[120, 80]` or `{"systolic": 120, "diastolic": 80}`.

    Raises:
        Wrong: when they are the wrong way round.
    """
    if isinstance(value, Mapping) and set(value) == {"systolic", "diastolic"}:
        value = [value["systolic"], value["diastolic"]]
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(one) is int for one in value):
        value = f"{value[0]}/{value[1]}"
    pair = _PRESSURES.fullmatch(value) if isinstance(value, str) else None
    if pair and int(pair[1]) <= int(pair[2]):
        raise Wrong(f"blood_pressure: the systolic {pair[1]} must be above the diastolic {pair[2]}")
    return (pair[1], pair[2]) if pair else None


def field_of(name: str, fields: Mapping[str, Any], loose: Mapping[str, str]) -> str:
    """A field's name as `fields` has it, if need be without what is said beside it, such as `(BUN)`."""
    key, shorter = key_of(name), key_of(_BESIDE.sub("", name))
    whole = key_of(name.lower())  # a unit such as kPa is no word in camel case
    candidates = [key, whole, loose.get(spoken(key), ""), loose.get(spoken(whole), ""), *_with_unit(shorter, name)]
    if not re.search(r"\([^()]*[/%°][^()]*\)", name):
        candidates += [shorter, loose.get(spoken(shorter), "")]
    return next((one for one in candidates if one in fields), key)


def _with_unit(shorter: str, name: str) -> list[str]:
    """The name with a unit that its brackets tell among other things: `glucose (fasting, mmol/L)`."""
    inside = [word for brackets in _BRACKETS.findall(name) for word in re.split(r"[\s,;]+", brackets)]
    return [f"{shorter}_{key_of(word.lower())}" for word in inside if word and word.lower() not in _SILENT]


def spoken(key: str) -> str:
    """A name without the words that say nothing, in one spelling."""
    text = "_".join(word for word in key.split("_") if word not in _SILENT)
    for british, american in _SPELLINGS:
        text = text.replace(british, american)
    return text


def loosely(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The fields by their spoken names; what two inputs share leads to none. Pairs of field and input."""
    found: dict[str, tuple[str, str]] = {}
    shared: set[str] = set()
    for field, owner in names:
        text = spoken(field)
        if found.setdefault(text, (field, owner))[1] != owner:
            shared.add(text)
    return {text: field for text, (field, _) in found.items() if text and text not in shared}
