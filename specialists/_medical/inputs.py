"""Types of inputs: numbers, yes/no items, choices and days, with parsing and points."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from operator import ge, gt, le, lt
from typing import Any, Generic, TypeVar

from msgspec import Struct

from specialists._medical.parsing import (
    LARGEST,
    NO,
    InvalidInput,
    convert_number,
    find_yes_no,
    format_value,
    in_units,
    parse_day,
    parse_parts,
    parse_yes_no,
    quote,
    to_key,
)
from specialists._medical.units import Measure, normalize_unit, round_noise

T = TypeVar("T")

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "≤": le, ">": gt, "≥": ge}


class Limit:
    """A condition on a number, written as `> 100`."""

    def __init__(self, text: str) -> None:
        found = re.fullmatch(r"([<≤>≥]) (-?\d+(?:\.\d+)?)", text)
        if not found:
            raise ValueError(f"expected a limit such as '> 100', not '{text}'")
        self.sign, self.edge = found[1], float(found[2])

    def holds(self, value: float) -> bool:
        """Return whether the value meets the condition."""
        return _COMPARE[self.sign](value, self.edge)

    def __str__(self) -> str:
        return f"{self.sign} {self.edge:g}"


class Bands(Generic[T]):
    """Results for ranges of a number, written as `{"< 18.5" = "thin", "< 25" = "normal", "≥ 25" = "overweight"}`.

    The first row whose limit holds gives the result. The last row is the opposite of the row before it.
    """

    def __init__(self, rows: Mapping[str, T]) -> None:
        pairs = [(Limit(text), result) for text, result in rows.items()]
        if len(pairs) < 2:
            raise ValueError("expected at least two rows")
        *self.rows, (last, self.rest) = pairs
        for limit, _ in self.rows:
            if limit.sign not in "<≤":
                raise ValueError(f"'{limit}' must begin with < or ≤, except in the last row")
        order = [(limit.edge, limit.sign == "≤") for limit, _ in self.rows]
        if order != sorted(set(order)):
            raise ValueError("the rows must be in ascending order")
        before = self.rows[-1][0]
        opposite = "≥" if before.sign == "<" else ">"
        if (last.sign, last.edge) != (opposite, before.edge):
            raise ValueError(f"the last row must be '{opposite} {before.edge:g}', not '{last}'")

    def find(self, value: float) -> T:
        """Return the result for a value."""
        return next((result for limit, result in self.rows if limit.holds(value)), self.rest)

    def describe_range(self, value: float) -> str:
        """Return the range that contains a value, such as `25 to < 30`."""
        limits = [limit for limit, _ in self.rows]
        at = next((n for n, limit in enumerate(limits) if limit.holds(value)), len(limits))
        if at == 0:
            return str(limits[0])
        lower = limits[at - 1]
        if at == len(limits):
            return f"{'≥' if lower.sign == '<' else '>'} {lower.edge:g}"
        if lower.sign == limits[at].sign == "≤" and isinstance(value, int):
            first, last = lower.edge + 1, limits[at].edge
            return f"{last:g}" if first == last else f"{first:g} to {last:g}"
        return f"{'' if lower.sign == '<' else '> '}{lower.edge:g} to {str(limits[at]).removeprefix('≤ ')}"

    def __str__(self) -> str:
        rows = [f"{limit}: {format_value(result)}" for limit, result in self.rows]
        return ", ".join([*rows, f"above: {format_value(self.rest)}"])


@dataclass(frozen=True)
class ParsedInput:
    """A value for a formula.

    Attributes:
        value: A number in the canonical unit, True or False, the name of an option, a date, or None if the test was
            not done.
        origin: Origin of the value, if it differs from the given one.
        unit: Unit of the value.
        given: The given number and its normalized unit.
    """

    value: Any
    origin: str = ""
    unit: str = ""
    given: tuple[float, str] | None = None

    def __str__(self) -> str:
        if self.value is None:
            return f"({self.origin})"
        value = format_value(self.value)
        text = f"{value} {self.unit}" if self.unit not in ("", "pH", "ratio", "fraction") else value
        return f"{text} ({self.origin})" if self.origin else text


class Input(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", dict=True, eq=False):
    """One input of a calculator.

    Attributes:
        name: Field name, without a unit.
        text: Explanation, if the name is not clear.
        aliases: Other names of the field.
        optional: Whether the formula works without this input.
        normal_if_unmeasured: Whether the published rule counts a test that was not done as normal.
    """

    name: str
    text: str = ""
    aliases: tuple[str, ...] = ()
    optional: bool = False
    normal_if_unmeasured: bool = False

    def fields(self) -> Iterator[tuple[str, str]]:
        """Yield each field name of this input, with a hint for `parse` such as a unit in the name."""
        yield from ((to_key(name), "") for name in (self.name, *self.aliases))

    def parse(self, raw: Any, hint: str = "") -> ParsedInput:
        """Parse a given value.

        Raises:
            InvalidInput: If the value cannot be used.
        """
        raise NotImplementedError

    def score(self, parsed: ParsedInput) -> float | None:
        """Return the points for a parsed value, or None for an input without points."""
        return None

    @property
    def can_be_absent(self) -> bool:
        """Whether `others_absent` applies to this input."""
        return self.normal_if_unmeasured

    def parse_absent(self) -> ParsedInput:
        """Return the value for `others_absent`."""
        return ParsedInput(None, "not given, counted as normal")

    def expects(self) -> str:
        """Describe accepted values, for the list of inputs."""
        raise NotImplementedError

    def describe_points(self) -> str:
        """Describe the points, for the list of inputs."""
        return ""


class Number(Input, tag="number", frozen=True, kw_only=True):
    """A measured number.

    Attributes:
        measure: The accepted units.
        bounds: Smallest and largest valid value, in the canonical unit.
        usual: Range in which a number needs no unit, if another unit is possible.
        whole: Whether the number must be an integer.
        fallback_unit: Unit of a number without a unit that is impossible in the canonical unit.
        words: Words for numbers, such as `room air` for 0.21.
        forms: Other fields that give this number, with their measures, such as urea for urea nitrogen.
        points: Points by value.
        points_in: Points by value in another unit, for which the paper has rounded cut-offs.
    """

    measure: Measure = Measure(unit="")
    bounds: tuple[float, float]
    usual: tuple[float, float] | None = None
    whole: bool = False
    fallback_unit: str = ""
    words: dict[str, float] = {}
    forms: dict[str, Measure] = {}
    points: Bands[int | float] | None = None
    points_in: dict[str, Bands[int | float]] = {}

    def __post_init__(self) -> None:
        if self.bounds[0] >= self.bounds[1]:
            raise ValueError(f"the bounds of {self.name} must be in ascending order")
        for unit in (self.fallback_unit, *self.points_in):
            if unit and self.measure.convert(1, unit) is None:
                raise ValueError(f"the measure of {self.name} has no unit '{unit}'")

    def fields(self) -> Iterator[tuple[str, str]]:
        names = list(super().fields())
        units = [(key, unit) for unit in self.measure.factors if (key := to_key(unit))]
        yield from names
        yield from ((f"{name}_{key}", unit) for name, _ in names for key, unit in units)
        for form, measure in self.forms.items():
            yield to_key(form), f"{form}:"
            yield from ((f"{to_key(form)}_{to_key(unit)}", f"{form}:{unit}") for unit in measure.factors)

    def parse(self, raw: Any, hint: str = "") -> ParsedInput:
        form, _, unit_hint = hint.rpartition(":")
        measure = self.forms[form] if form else self.measure
        word = to_key(raw[:40]) if isinstance(raw, str) else "no" if raw is False else ""
        words = {to_key(word): number for word, number in self.words.items()}
        parts = parse_parts(words.get(word, raw), measure)
        if len(parts) > 1 and not measure.adds_up:
            raise InvalidInput(f"expected one number{in_units(measure)}, not {quote(raw)}")
        number, unit = parts[0]
        unit = unit or unit_hint
        fallback = ""
        if not (form or unit):
            fallback = self._fallback(number)
            if not fallback:
                self._check_usual(number)
        values = [convert_number(part, part_unit, unit_hint or fallback, measure) for part, part_unit in parts]
        value = round_noise(fsum(values)) if len(values) > 1 else values[0]
        self._check_bounds(value, measure)
        origin = ""
        if fallback:
            unit, origin = fallback, f"from {number:g}, assumed to be in {fallback}"
        elif not unit:
            origin = "unit assumed" if len(self.measure.named) > 1 else ""
        elif form or len(parts) > 1 or number != value:
            written = " ".join(f"{part:g} {part_unit or unit_hint}" for part, part_unit in parts)
            origin = f"from {form} {written}" if form else f"from {written}"
        return ParsedInput(
            int(value) if self.whole else value,
            origin,
            measure.unit,
            (number, normalize_unit(unit)) if unit and len(parts) == 1 else None,
        )

    def _fallback(self, number: float) -> str:
        """Return the fallback unit if only it makes the number possible, such as °F for a temperature of 101."""
        if not self.fallback_unit or self._is_possible(number):
            return ""
        return self.fallback_unit if self._is_possible(self.measure.convert(number, self.fallback_unit)) else ""

    def _check_usual(self, number: float) -> None:
        """Reject a number without a unit that may be in another one, such as a bilirubin of 34."""
        if self.usual is None or self.usual[0] <= number <= self.usual[1]:
            return
        possible: dict[float, str] = {}
        for unit in (*self.measure.named[1:], self.measure.unit):
            value = self.measure.convert(number, unit)
            if value is not None and self._is_possible(value):
                possible.setdefault(value, unit)
        if possible:
            suggested = " or ".join(f'"{number:g} {unit}"' for unit in list(possible.values())[:2])
            raise InvalidInput(f"{number:g} has no unit", f"write {self.name} as {suggested}")

    def _is_possible(self, value: float | None) -> bool:
        return value is not None and self.bounds[0] <= value <= self.bounds[1]

    def _check_bounds(self, value: float, measure: Measure) -> None:
        if not self._is_possible(value):
            unit = f" {measure.unit}" if measure.unit else ""
            advice = f"give {self.name}{in_units(measure)}" if len(measure.named) > 1 else ""
            raise InvalidInput(f"{value:g}{unit} is outside {self.bounds[0]:g} to {self.bounds[1]:g}{unit}", advice)
        if self.whole and value != int(value):
            raise InvalidInput(f"{value:g} is not a whole number")

    def score(self, parsed: ParsedInput) -> float | None:
        if self.points is None:
            return None
        if parsed.value is None:
            return 0
        number, unit = parsed.given or (parsed.value, "")
        published = {normalize_unit(unit): bands for unit, bands in self.points_in.items()}.get(unit)
        return published.find(number) if published else self.points.find(parsed.value)

    def expects(self) -> str:
        units = " or ".join((self.measure.unit, *self.measure.named[1:4])) if self.measure.unit else ""
        kind = "whole number" if self.whole else "number"
        bounds = f"{self.bounds[0]:g} to {self.bounds[1]:g}"
        return f"{kind} in {units}, {bounds} {self.measure.unit}" if units else f"{kind}, {bounds}"

    def describe_points(self) -> str:
        return "" if self.points is None else f" [points: {self.points}]"


class YesNo(Input, tag="yes_no", frozen=True, kw_only=True):
    """A criterion that is met or not.

    Attributes:
        points: Points if the criterion is met.
        measured: A number that can be given instead.
        limit: The condition on that number.
        limit_in: The condition in another unit, for which the paper has a rounded limit.
        any_alias: Whether the aliases are separate facts, and any of them is enough.
        assume_absent: Whether `others_absent` applies to this input.
    """

    points: int | float | None = None
    measured: Number | None = None
    limit: Limit | None = None
    limit_in: dict[str, Limit] = {}
    any_alias: bool = False
    assume_absent: bool = True

    def fields(self) -> Iterator[tuple[str, str]]:
        yield from super().fields()
        if self.measured:
            yield from ((name, f"measured:{hint}") for name, hint in self.measured.fields())

    def parse(self, raw: Any, hint: str = "") -> ParsedInput:
        if self.measured is None or self.limit is None or (not hint and find_yes_no(raw) is not None):
            return ParsedInput(parse_yes_no(raw))
        found = self.measured.parse(raw, hint.removeprefix("measured:"))
        number, unit = found.given or (found.value, "")
        published = {normalize_unit(unit): limit for unit, limit in self.limit_in.items()}.get(unit)
        holds = published.holds(number) if published else self.limit.holds(found.value)
        return ParsedInput(holds, f"{self.measured.name.replace('_', ' ')} {found}; criterion: {self.limit}")

    def score(self, parsed: ParsedInput) -> float | None:
        return None if self.points is None else self.points if parsed.value else 0

    @property
    def can_be_absent(self) -> bool:
        return self.assume_absent

    def parse_absent(self) -> ParsedInput:
        return ParsedInput(False)

    def expects(self) -> str:
        return f"yes or no, or {self.measured.name} ({self.measured.expects()})" if self.measured else "yes or no"

    def describe_points(self) -> str:
        return "" if self.points is None else f" [{self.points:+g}]"


class Choice(Input, tag="choice", frozen=True, kw_only=True):
    """One of several options.

    Attributes:
        options: Names of the options, with underscores. The default is the names in `points`.
        points: Points of each option.
        option_aliases: Other words for the options.
        yes_fields: Yes/no fields that mean an option if true, and the absent or the other option if false.
        absent: The option for `others_absent`.
        default: The option that the formula uses without this input, for the list of inputs.
    """

    options: tuple[str, ...] = ()
    points: dict[str, int | float] | None = None
    option_aliases: dict[str, tuple[str, ...]] = {}
    yes_fields: dict[str, str] = {}
    absent: str = ""
    default: str = ""

    def __post_init__(self) -> None:
        named = {self.absent, self.default, *self.yes_fields.values(), *self.option_aliases} - {""}
        if unknown := named - set(self.names):
            raise ValueError(f"{self.name} has no option {', '.join(sorted(unknown))}")
        words = [to_key(word) for words in self.option_aliases.values() for word in words]
        if doubled := {word for word in words if words.count(word) > 1 or word in self.names}:
            raise ValueError(f"{self.name} has ambiguous words: {', '.join(sorted(doubled))}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the options."""
        return self.options or tuple(self.points or ())

    def fields(self) -> Iterator[tuple[str, str]]:
        yield from super().fields()
        yield from ((to_key(field), option) for field, option in self.yes_fields.items())

    def parse(self, raw: Any, hint: str = "") -> ParsedInput:
        if hint and not (isinstance(raw, str) and to_key(raw[:40]) in self.names):
            no = self.absent or next(name for name in self.names if name != hint)
            return ParsedInput(hint if parse_yes_no(raw) else no)
        name = self.find_option(raw)
        if name not in self.names:
            raise InvalidInput(f"expected {self._list_options()}, not {quote(raw)}")
        return ParsedInput(name)

    def find_option(self, raw: Any) -> str:
        """Return the option for a given value, or an empty text."""
        if isinstance(raw, bool):
            return self._options_of_words.get("yes", "") if raw else self._options_of_words.get("no", self.absent)
        if isinstance(raw, int | float) and abs(raw) < LARGEST:
            raw = f"{raw:g}"
        if not isinstance(raw, str) or len(raw) > 80 or "?" in raw:
            return ""
        word = to_key(raw)
        return self._options_of_words.get(word, self.absent if word in NO else "")

    @cached_property
    def _options_of_words(self) -> Mapping[str, str]:
        words = {to_key(word): option for option, words in self.option_aliases.items() for word in words}
        return words | {option: option for option in self.names}

    def _list_options(self) -> str:
        names = [option.replace("_", " ") for option in self.names]
        return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) < 13 else f"one of {', '.join(names[:12])}, …"

    def score(self, parsed: ParsedInput) -> float | None:
        return None if self.points is None else self.points[parsed.value]

    @property
    def can_be_absent(self) -> bool:
        return bool(self.absent)

    def parse_absent(self) -> ParsedInput:
        return ParsedInput(self.absent)

    def expects(self) -> str:
        default = f" (default: {self.default.replace('_', ' ')})" if self.default else ""
        return " | ".join(option.replace("_", " ") for option in self.names) + default

    def describe_points(self) -> str:
        if self.points is None:
            return ""
        return f" [points: {', '.join(f'{points:g}' for points in self.points.values())}]"


class Day(Input, tag="day", frozen=True, kw_only=True):
    """A calendar day."""

    def parse(self, raw: Any, hint: str = "") -> ParsedInput:
        return ParsedInput(parse_day(raw))

    def expects(self) -> str:
        return "a day as YYYY-MM-DD"
