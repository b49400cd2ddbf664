"""Parse numbers with units, yes/no words, dates and field names."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from datetime import date
from typing import Any

from brain import dates
from specialists._kit.text import word_set
from specialists._medical.units import Measure, normalize_unit

LARGEST = 1e12
KEY_LENGTH = 120

YES = frozenset(
    {"yes", "y", "true", "t", "1", "present", "positive", "+", "on", "confirmed", "documented", "ja", "oui", "si", "sí"}
)
NO = frozenset(
    {"no", "n", "false", "f", "0", "absent", "negative", "-", "none", "not_present", "never", "off"}
    | {"denied", "denies", "no_history", "nein", "non"}
)
NOT_MEASURED = frozenset(
    {"not_measured", "unmeasured", "not_done", "not_available", "unavailable", "unknown", "n_a", "na", "none", "no"}
)

DENIALS_AND_DOUBTS = word_set(
    "no not without denies denied deny never none neither nor absent negative non nein nicht kein keine keinen keiner "
    "ohne nie pas sans aucun aucune jamais ni sin nunca ningun ninguna senza sem nao possible possibly maybe perhaps "
    "probable probably suspected suspicion questionable unclear uncertain unknown unsure vielleicht moglich fraglich "
    "moglicherweise wahrscheinlich unklar verdacht peut quiza quizas posible posiblemente forse talvez"
)
"""Words, without accents, beside which a name does not count."""
_DERIVED = word_set("corrected adjusted ideal lean qtc qtcb qtcf")
"""Words for values that are not the measured ones."""

_NUMBER = r"[-+−]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+)(?:e[-+]?\d{1,3})?"
_NUMBER_AND_UNIT = re.compile(rf"({_NUMBER})\s*(.*)", re.IGNORECASE | re.DOTALL)
_APPROXIMATELY = re.compile(r"(?:aged|about|approx(?:imately|\.)?|ca\.?|~|≈)\s*", re.IGNORECASE)
_THOUSANDS_POINT = re.compile(r"[1-9]\d{0,2}\.\d{3}")
_SUMMAND = re.compile(rf"({_NUMBER})\s*([^\d\s,.]+)(?:\s*,\s*|\s+and\s+|\s*)", re.IGNORECASE)
_FEET_AND_INCHES = re.compile(r"(.*(?:'|′|’|ft|feet|foot)\s*\d+(?:\.\d+)?)", re.IGNORECASE)


class InvalidInput(Exception):
    """An input cannot be used.

    Args:
        reason: The problem.
        advice: How to correct the input.
    """

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


# Names and short texts


def to_key(name: str) -> str:
    """Return the normalized spelling of a name: `heart_rate` for `Heart Rate`, `heartRate` and `heart-rate`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", name).lower()
    text = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    text = text.replace("μ", "u")  # NFKD maps both signs for micro to this one
    return re.sub(r"[^a-z0-9]+", "_", text).strip("_")


def format_value(value: Any) -> str:
    """Format a value for people: up to six digits, yes or no, ISO dates, names without underscores."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    return value.isoformat() if isinstance(value, date) else str(value).replace("_", " ")


def quote(raw: Any) -> str:
    """Quote an input, in at most 43 characters."""
    if isinstance(raw, str):
        return f"'{raw[:40]}{'…' if len(raw) > 40 else ''}'"
    small = isinstance(raw, bool) or (isinstance(raw, int | float) and abs(raw) <= LARGEST)
    return str(raw) if small else type(raw).__name__


# Numbers with units


def parse_parts(raw: Any, measure: Measure) -> list[tuple[float, str]]:
    """Parse a number, `"88 µmol/L"`, `{"value": 88, "unit": "µmol/L"}`, `[88, "µmol/L"]` or `"5 ft 11 in"`.

    Returns:
        Numbers with their units as given, or an empty text. Several numbers add up.

    Raises:
        InvalidInput: If the value is not a number, or its unit is not a text.
    """
    if isinstance(raw, Mapping):
        if set(raw) - {"value", "unit", "units"} or "value" not in raw:
            raise InvalidInput('expected a number, a text such as "88 µmol/L", or {"value": 88, "unit": "µmol/L"}')
        return [(_parse_number(raw["value"]), _parse_unit_text(raw.get("unit", raw.get("units")) or ""))]
    if isinstance(raw, list | tuple) and len(raw) == 1 and not isinstance(raw[0], list | tuple):
        return parse_parts(raw[0], measure)
    if isinstance(raw, list | tuple) and raw and len(raw) % 2 == 0 and len(raw) <= 6:
        return [(_parse_number(raw[n]), _parse_unit_text(raw[n + 1])) for n in range(0, len(raw), 2)]
    if isinstance(raw, str):
        return _parse_text(raw.strip(), measure)
    return [(_parse_number(raw), "")]


def _parse_text(text: str, measure: Measure) -> list[tuple[float, str]]:
    prefix = _APPROXIMATELY.match(text)
    found = _NUMBER_AND_UNIT.fullmatch(text[prefix.end() if prefix else 0 :][:81])
    if found is None or len(text) > 80:
        raise InvalidInput(f"expected a number{in_units(measure)}, not {quote(text)}")
    if measure.adds_up and normalize_unit(found[2]) not in measure.factors:
        summands = text + '"' if _FEET_AND_INCHES.fullmatch(text) else text
        parts = list(_SUMMAND.finditer(summands))
        if parts and "".join(part[0] for part in parts) == summands:
            return [(_parse_number(part[1]), part[2]) for part in parts]
    unit = _strip_brackets(found[2], measure)
    if measure.counts and measure.factors.get(normalize_unit(unit), 1) < 1 and _THOUSANDS_POINT.fullmatch(found[1]):
        raise InvalidInput(f"{quote(text)} may have a thousands point", "write cell counts without a point")
    return [(_parse_number(found[1]), unit)]


def _strip_brackets(text: str, measure: Measure) -> str:
    """Remove brackets around a unit."""
    unit = _parse_unit_text(text)
    inside = unit.removeprefix("(").removesuffix(")").strip()
    return next((one for one in (unit, inside) if not one or normalize_unit(one) in measure.factors), unit)


def _parse_number(raw: Any) -> float:
    if isinstance(raw, str) and len(raw) <= 80 and re.fullmatch(_NUMBER, raw.strip(), re.IGNORECASE):
        text = raw.strip().replace("−", "-")
        thousands = re.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", text)
        raw = float(text.replace(",", "" if thousands else "."))
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise InvalidInput(f"expected a number, not {quote(raw)}")
    if not abs(raw) <= LARGEST:  # also rejects NaN
        raise InvalidInput(f"expected a number up to {LARGEST:g}")
    return float(raw)


def _parse_unit_text(raw: Any) -> str:
    if not isinstance(raw, str) or len(raw) > 40:
        raise InvalidInput(f"the unit must be a short text, not {quote(raw)}")
    return raw.strip()


def convert_number(number: float, unit: str, hint: str, measure: Measure) -> float:
    """Convert to the canonical unit; `hint` is the unit in the field name.

    Raises:
        InvalidInput: If the unit is unknown, required but missing, or different from `hint`.
    """
    if unit and hint and normalize_unit(unit) != normalize_unit(hint):
        raise InvalidInput(f"the name has the unit {hint}, the value {unit}")
    unit = unit or hint
    if not unit:
        if not measure.bare:
            raise InvalidInput(f"needs a unit: {', '.join(measure.named)}")
        return number
    value = measure.convert(number, unit)
    if value is None:
        raise InvalidInput(f"unknown unit {quote(unit)} (accepted: {', '.join(measure.named) or 'none'})")
    return value


def in_units(measure: Measure) -> str:
    """Return ` in mg/dL or µmol/L`, or an empty text for a plain count."""
    return f" in {' or '.join(measure.named)}" if measure.unit else ""


# Yes and no


def parse_yes_no(raw: Any) -> bool:
    """Parse yes, no, true, absent, 1 and similar words.

    Raises:
        InvalidInput: If the value is something else.
    """
    found = find_yes_no(raw)
    if found is None:
        raise InvalidInput(f"expected yes or no, not {quote(raw)}")
    return found


def find_yes_no(raw: Any) -> bool | None:
    """Parse like `parse_yes_no`, but return None for other values."""
    if isinstance(raw, bool) or (isinstance(raw, int | float) and raw in (0, 1)):
        return bool(raw)
    word = re.sub(r"[\s-]+(?=\w)", "_", raw.strip(" .").lower()) if isinstance(raw, str) and len(raw) <= 20 else ""
    return word in YES if word in YES | NO else None


# Days

_MONTHS = [name.lower() for name in dates.MONTH_NAMES]
_YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[t ]\d\d:\d\d.{0,20})?")
_YEAR_LAST = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})")
_MONTH_FIRST = re.compile(r"([a-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})")
_DAY_FIRST = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?\.?[\s-]+(?:of\s+)?([a-z]{3,9})\.?,?[\s-]+(\d{4})")
_EXPECTED_DAY = "expected a date as YYYY-MM-DD"


def parse_day(raw: Any) -> date:
    """Parse a date, also in forms such as `March 5, 2024` and `25.12.2023`.

    Raises:
        InvalidInput: If the value is not a date, or day and month are ambiguous.
    """
    text = raw.strip().lower() if isinstance(raw, str) and len(raw) <= 40 else ""
    if found := _YEAR_FIRST.fullmatch(text):
        return _make_day(int(found[1]), int(found[2]), int(found[3]))
    if found := _YEAR_LAST.fullmatch(text):
        first, second, year = int(found[1]), int(found[2]), int(found[3])
        if first != second and first <= 12 and second <= 12:
            either, other = _make_day(year, first, second), _make_day(year, second, first)
            raise InvalidInput(f"could be {either} or {other}", "write dates as YYYY-MM-DD")
        return _make_day(year, second, first) if first > 12 else _make_day(year, first, second)
    if found := _MONTH_FIRST.fullmatch(text):
        return _make_day(int(found[3]), _parse_month(found[1]), int(found[2]))
    if found := _DAY_FIRST.fullmatch(text):
        return _make_day(int(found[3]), _parse_month(found[2]), int(found[1]))
    raise InvalidInput(_EXPECTED_DAY)


def _parse_month(name: str) -> int:
    found = [number for number, month in enumerate(_MONTHS, 1) if month.startswith(name) or name == month[:3] + "t"]
    if len(found) != 1:
        raise InvalidInput(_EXPECTED_DAY)
    return found[0]


def _make_day(year: int, month: int, day: int) -> date:
    try:
        found = date(year, month, day)
    except ValueError:
        raise InvalidInput(f"this date does not exist; {_EXPECTED_DAY}") from None
    if not 1900 <= year <= 2200:
        raise InvalidInput("the year is outside 1900 to 2200")
    return found


# Names of fields

_PRESSURES = re.compile(r"\s*(\d{2,3})\s*/\s*(\d{2,3})\s*(?:mm\s?Hg)?\s*", re.IGNORECASE)
_PRESSURE_KEYS = frozenset({"blood_pressure", "bp", "blood_pressure_mmhg", "bp_mmhg"})
_BRACKETS = re.compile(r"\(([^()]*)\)")
_REMARK = re.compile(r"\(([^()]*)\)\s*$")
_UNIMPORTANT = re.compile(r"\([^()]*\)| criteri(?:a|on) for .*|\bpresence of | present$", re.IGNORECASE)
_SMALLER_UNITS = {"ft": "in", "feet": "inches", "st": "lb"}
_STOP_WORDS = frozenset(
    {"a", "an", "and", "any", "as", "at", "documented", "for", "had", "has", "have", "in", "is", "of", "on", "or"}
    | {"beats", "measured", "patient", "patients", "per", "reported", "s", "the", "to", "uncorrected", "was", "with"}
)
_AMERICAN_SPELLINGS = (("aem", "em"), ("oed", "ed"), ("oest", "est"), ("tumour", "tumor"), ("isation", "ization"))


def check_names(names: Iterable[str], results: Collection[str]) -> None:
    """Check that no name has a remark such as `(denied)`, `(?)` or `(corrected)`, which must not be ignored.

    Args:
        results: Names of the result, which is not an input.

    Raises:
        InvalidInput: With the first such name.
    """
    for name in names:
        for remark in _BRACKETS.findall(name[:KEY_LENGTH]):
            key = to_key(remark)
            is_doubt = "?" in remark or not DENIALS_AND_DOUBTS.isdisjoint(key.split("_"))
            if is_doubt or is_derived(key) or key in results:
                reason = f"the name {quote(name)} denies or doubts its value, or is that of a derived one"
                raise InvalidInput(reason, "give the measured value under the plain name")


def is_derived(key: str) -> bool:
    """Return whether a name is that of a corrected or estimated value, such as `adjusted_weight`."""
    return not _DERIVED.isdisjoint(key.split("_"))


def match_fields(raw: Mapping[str, Any], fields: Mapping[str, Any], loose: Mapping[str, str]) -> dict[str, Any]:
    """Rename the inputs to the names in `fields`, and split a blood pressure such as `120/80`.

    Args:
        raw: Inputs by given name.
        fields: Known keys.
        loose: Known keys by simplified spelling, from `index_loosely`.

    Raises:
        InvalidInput: If the numbers of a blood pressure are swapped.
    """
    found: dict[str, Any] = {}
    for name, value in raw.items():
        key = match_field(name[:KEY_LENGTH], fields, loose)
        pair = _parse_pressures(value) if key in _PRESSURE_KEYS and "systolic_bp" in fields else None
        if pair:
            found["systolic_bp"] = f"{pair[0]} mmHg"
            if "diastolic_bp" in fields:
                found["diastolic_bp"] = f"{pair[1]} mmHg"
        else:
            found[key if key not in found else name] = value
    for name in list(found):  # join `height_ft` and `height_in`
        base, _, large = name.rpartition("_")
        small = _SMALLER_UNITS.get(large)
        if base and f"{base}_{small}" in found and base not in found:
            found[base] = f"{found.pop(name)} {large} {found.pop(f'{base}_{small}')} {small}"
    return found


def _parse_pressures(value: Any) -> tuple[str, str] | None:
    """Parse `120/80`, `[120, 80]` or `{"systolic": 120, "diastolic": 80}`; return None for other values."""
    if isinstance(value, Mapping) and set(value) == {"systolic", "diastolic"}:
        value = [value["systolic"], value["diastolic"]]
    if isinstance(value, list | tuple) and len(value) == 2 and all(type(one) is int for one in value):
        value = f"{value[0]}/{value[1]}"
    pair = _PRESSURES.fullmatch(value) if isinstance(value, str) else None
    if pair and int(pair[1]) <= int(pair[2]):
        raise InvalidInput(f"blood_pressure: the systolic {pair[1]} must be above the diastolic {pair[2]}")
    return (pair[1], pair[2]) if pair else None


def match_field(name: str, fields: Mapping[str, Any], loose: Mapping[str, str]) -> str:
    """Return the key in `fields` for a name, ignoring remarks that repeat it, as `(BUN)`; else the normalized name."""
    key, short = to_key(name), to_key(_UNIMPORTANT.sub("", name))
    lower = to_key(name.lower())  # kPa is not camel case
    candidates = [key, lower, loose.get(simplify_key(key), ""), loose.get(simplify_key(lower), "")]
    if (remark := _REMARK.search(name)) and not _repeats(remark[1], short, fields):
        return next((one for one in candidates if one in fields), key)
    words = [word for inside in _BRACKETS.findall(name) for word in re.split(r"[\s,;]+", inside)]
    candidates += [f"{short}_{to_key(word.lower())}" for word in words if word and word.lower() not in _STOP_WORDS]
    if not re.search(r"\([^()]*[/%°][^()]*\)", name):  # a unit in brackets must not be ignored
        candidates += [short, loose.get(simplify_key(short), "")]
    return next((one for one in candidates if one in fields), key)


def _repeats(remark: str, short: str, fields: Mapping[str, Any]) -> bool:
    """Whether a remark has only units and other names of the input: `creatinine (urine)` is another one."""
    keys = [to_key(word.lower()) for word in re.split(r"[\s,;]+", remark) if word]
    known = {one for one in fields if fields[one] == fields.get(short)}
    return "_".join(keys) in known or all(
        key in known | _STOP_WORDS or not {f"{short}_{key}", f"{key}_{short}"}.isdisjoint(fields) for key in keys
    )


def simplify_key(key: str) -> str:
    """Return the key without stop words and in American spelling."""
    text = "_".join(word for word in key.split("_") if word not in _STOP_WORDS)
    for british, american in _AMERICAN_SPELLINGS:
        text = text.replace(british, american)
    return text


def index_loosely(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the fields by simplified key, without keys that two inputs share.

    Args:
        names: Pairs of a field and the name of its input.
    """
    found: dict[str, tuple[str, str]] = {}
    shared: set[str] = set()
    for field, owner in names:
        text = simplify_key(field)
        if found.setdefault(text, (field, owner))[1] != owner:
            shared.add(text)
    return {text: field for text, (field, _) in found.items() if text and text not in shared}
