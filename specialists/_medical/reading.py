"""Built in: numbers with units, words for yes and no, and names, as people write them."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from specialists._medical.units import Measure, plain

LARGEST = 1e12

YES = frozenset(
    {"yes", "y", "true", "t", "1", "present", "positive", "+", "on", "confirmed", "documented", "ja", "oui", "si"}
)

NO = frozenset(
    {"no", "n", "false", "f", "0", "absent", "negative", "-", "none", "not_present", "never", "off"}
    | {"denied", "denies", "no_history", "nein", "non"}
)

NOT_MEASURED = frozenset(
    {"not_measured", "unmeasured", "not_done", "not_available", "unavailable", "unknown", "n_a", "na", "none", "no"}
)

_NUMBER = r"[-+−]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+)(?:e[-+]?\d{1,3})?"

_WITH_UNIT = re.compile(rf"({_NUMBER})\s*(.*)", re.IGNORECASE | re.DOTALL)

_AROUND = re.compile(r"(?:aged|about|approx(?:imately|\.)?|ca\.?|~|≈)\s*", re.IGNORECASE)

_POINT_OF_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}")

_SUMMAND = re.compile(rf"({_NUMBER})\s*([^\d\s,.]+)(?:\s*,\s*|\s+and\s+|\s*)", re.IGNORECASE)

_FEET_AND_INCHES = re.compile(r"(.*(?:'|′|’|ft|feet|foot)\s*\d+(?:\.\d+)?)", re.IGNORECASE)


class Wrong(Exception):
    """Why a value cannot be taken, in words for the model."""


def key_of(name: str) -> str:
    """A field's name in one spelling: `Heart Rate`, `heartRate` and `heart-rate` are `heart_rate`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", name).lower()
    text = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    text = text.replace("μ", "u")  # NFKD leaves only this one of the two signs for micro
    return re.sub(r"[^a-z0-9]+", "_", text).strip("_")


def shown(value: Any) -> str:
    """A value for a reader: numbers without noise, truth as yes and no, days as ISO writes them."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    return value.isoformat() if isinstance(value, date) else str(value).replace("_", " ")


def converted(number: float, unit: str, told: str, measure: Measure) -> float:
    if unit and told and plain(unit) != plain(told):
        raise Wrong(f"its name says {told}, its value {unit}")
    unit = unit or told
    if not unit:
        if not measure.bare:
            raise Wrong(f"needs its unit: {', '.join(measure.shown)}")
        return number
    value = measure.converted(number, unit)
    if value is None:
        raise Wrong(f"unknown unit {quoted(unit)}; accepted: {', '.join(measure.shown) or 'a number alone'}")
    return value


def in_units(measure: Measure) -> str:
    return f" in {' or '.join(measure.shown)}" if measure.unit else ""


def parts_of(raw: Any, measure: Measure) -> Iterator[tuple[float, str]]:
    """Numbers with their units, of a number, a text, `{value, unit}`, or `[value, unit, …]`."""
    if isinstance(raw, Mapping):
        if set(raw) - {"value", "unit", "units"} or "value" not in raw:
            raise Wrong('expected a number, a text such as "88 µmol/L", or {"value": 88, "unit": "µmol/L"}')
        yield _number(raw["value"]), _text(raw.get("unit", raw.get("units")) or "")
    elif isinstance(raw, list | tuple) and len(raw) == 1 and not isinstance(raw[0], list | tuple):
        yield from parts_of(raw[0], measure)
    elif isinstance(raw, list | tuple) and raw and len(raw) % 2 == 0 and len(raw) <= 6:
        yield from ((_number(raw[n]), _text(raw[n + 1])) for n in range(0, len(raw), 2))
    elif isinstance(raw, str):
        yield from _of_text(raw.strip(), measure)
    else:
        yield _number(raw), ""


def _of_text(text: str, measure: Measure) -> list[tuple[float, str]]:
    """A number, perhaps with its unit; or several that add up, such as `5 ft 11 in`."""
    around = _AROUND.match(text)
    found = _WITH_UNIT.fullmatch(text[around.end() if around else 0 :][:81])
    if found is None or len(text) > 80:
        raise Wrong(f"expected a number{in_units(measure)}, not {quoted(text)}")
    if measure.adds_up and plain(found[2]) not in measure.factors:
        summands = text + '"' if _FEET_AND_INCHES.fullmatch(text) else text
        parts = [(_number(part[1]), part[2]) for part in _SUMMAND.finditer(summands)]
        if "".join(part[0] for part in _SUMMAND.finditer(summands)) == summands and parts:
            return parts
    unit = _unit(found[2], measure)
    if measure.counts and measure.factors.get(plain(unit), 1) < 1 and _POINT_OF_THOUSANDS.fullmatch(found[1]):
        raise Wrong(f"{quoted(text)} could have a point for thousands; write it without")
    return [(_number(found[1]), unit)]


def _unit(text: str, measure: Measure) -> str:
    """A unit without the brackets around it, or the remark in brackets behind it."""
    unit = _text(text)
    inside = unit.removeprefix("(").removesuffix(")").strip()
    remark = re.search(r"\s*\([^()/%°]*\)$", unit)
    told = any(plain(word) in measure.factors for word in re.split(r"[\s,;()]+", remark[0]) if word) if remark else True
    before = unit if remark is None or told else unit[: remark.start()]
    return next((one for one in (unit, inside, before) if not one or plain(one) in measure.factors), unit)


def _number(raw: Any) -> float:
    if isinstance(raw, str) and len(raw) <= 80 and re.fullmatch(_NUMBER, raw.strip(), re.IGNORECASE):
        text = raw.strip().replace("−", "-")
        thousands = re.fullmatch(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", text)
        raw = float(text.replace(",", "" if thousands else "."))
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise Wrong(f"expected a number, not {quoted(raw)}")
    if not abs(raw) <= LARGEST:  # NaN too
        raise Wrong("expected a finite number of a possible size")
    return float(raw)


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or len(raw) > 40:
        raise Wrong(f"its unit must be a short text, not {quoted(raw)}")
    return raw.strip()


def quoted(raw: Any) -> str:
    """What was written, short enough to be repeated."""
    if isinstance(raw, str):
        return f"'{raw[:40]}{'…' if len(raw) > 40 else ''}'"
    small = isinstance(raw, bool) or (isinstance(raw, int | float) and abs(raw) <= LARGEST)
    return str(raw) if small else type(raw).__name__


def truth(raw: Any) -> bool:
    """The truth value of yes, no, true, absent, 1, …"""
    found = truth_or_none(raw)
    if found is None:
        raise Wrong(f"expected yes or no, not {quoted(raw)}")
    return found


def truth_or_none(raw: Any) -> bool | None:
    """The same; None for what is neither."""
    if isinstance(raw, bool) or (isinstance(raw, int | float) and raw in (0, 1)):
        return bool(raw)
    word = raw.strip().lower()[:20] if isinstance(raw, str) else ""
    word = word if word in ("+", "-") else key_of(word)
    return word in YES if word in YES | NO else None
