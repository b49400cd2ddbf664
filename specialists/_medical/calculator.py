"""A calculator: its inputs, its formula and the meaning of its result."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from msgspec import Struct

from specialists._medical.inputs import Bands, Choice, Day, Input, Number, ParsedInput, YesNo
from specialists._medical.parsing import (
    KEY_LENGTH,
    NOT_MEASURED,
    InvalidInput,
    check_names,
    index_loosely,
    is_derived,
    match_fields,
    to_key,
)
from specialists._medical.patient import check_plausible

OTHERS_ABSENT = "others_absent"
MOST_INPUTS = 200
_MOST_NAMES_LISTED = 7
_IGNORED = frozenset({"age", "sex", "gender", "race", "ethnicity", "height", "weight", "patient_id", "name", "note"})
"""Fields that models often add. A note lists those that are not used."""

Values = Mapping[str, Any]
"""The values of the inputs by name; None for a missing input."""


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """A publication; `doi` only if it is verified."""

    title: str
    doi: str = ""

    @property
    def url(self) -> str | None:
        return f"https://doi.org/{self.doi}" if self.doi else None


class Example(Struct, frozen=True, forbid_unknown_fields=True):
    """A worked example: inputs as a model writes them, and the value."""

    inputs: dict[str, Any]
    value: int | float | str


@dataclass(frozen=True)
class Outcome:
    """The result of a formula with additional information.

    Attributes:
        terms: Intermediate values, by their names in the formula text.
        points: The points of each item of a score.
        notes: Choices made, and results of other conventions.
        interpretation: Meaning of the value, if no band has it.
        formula: Text of the formula, if it depends on the inputs.
        sources: Publications, if they depend on the inputs.
    """

    value: int | float | str
    terms: Mapping[str, float] = field(default_factory=dict)
    points: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    interpretation: str = ""
    formula: str = ""
    sources: Sequence[Source] = ()


class Formula:
    """A function that computes a result, with the names of its parameters.

    Parameters are names of inputs, `points` (the points of each input), `values` (all inputs) or `constants`
    (published numbers from the table).
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.parameters = function.__code__.co_varnames[: function.__code__.co_argcount]

    def __call__(self, values: Values, points: Mapping[str, float], constants: Mapping[str, Any]) -> Any:
        available = {**values, "values": values, "points": points, "constants": constants}
        return self.function(**{name: available[name] for name in self.parameters})


class Preparation:
    """A function that changes the raw inputs before they are parsed. It gets the raw inputs, and the inputs by name."""

    def __init__(self, function: Callable[[Mapping[str, Any], Mapping[str, Input]], Mapping[str, Any]]) -> None:
        self.function = function


class Problems(Exception):
    """All problems with the inputs.

    Attributes:
        wrong: Problems with given inputs.
        missing: Names of missing inputs.
        advice: How to correct the given inputs.
        can_be_absent: Whether `others_absent` would help.
    """

    def __init__(
        self,
        wrong: Sequence[str],
        missing: Sequence[str] = (),
        advice: Sequence[str] = (),
        can_be_absent: bool = False,
    ) -> None:
        super().__init__(*wrong, *missing)
        self.wrong = list(wrong)
        self.missing = list(missing)
        self.advice = [one for one in dict.fromkeys(advice) if one]
        self.can_be_absent = can_be_absent


@dataclass(frozen=True)
class Calculation:
    """A result with the parsed inputs by name."""

    calculator: "Calculator"
    inputs: Mapping[str, ParsedInput]
    outcome: Outcome


class Calculator(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True, eq=False):
    """One published formula or score. `calculators.toml` has one table for each.

    Attributes:
        name: Name in calls.
        title: Name for people.
        summary: Purpose, for lists and the search.
        group: Organ or occasion.
        aliases: Other names.
        replaces: Names of equivalent calculators in the package open-medicine.
        inputs: The inputs, in display order.
        helper_inputs: Inputs that only `prepare` reads.
        compute: The formula. The default adds up the points of the inputs.
        constants: Published numbers that the formula uses.
        missing: Returns the missing inputs as text, if inputs replace or require each other.
        prepare: Changes the raw inputs before they are parsed.
        formula: Text of the formula, with the names of the inputs.
        unit: Unit of the value.
        digits: Decimal places of the value.
        bands: Meaning of the value.
        notes: Notes for every result, such as limits of validity.
        sources: Publications.
        example: A worked example, which the tests compute.
    """

    name: str
    title: str
    summary: str
    group: str
    inputs: tuple[Number | YesNo | Choice | Day, ...]
    sources: tuple[Source, ...] = ()
    example: Example | None = None
    aliases: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    helper_inputs: tuple[Number | YesNo, ...] = ()
    compute: Formula | None = None
    constants: dict[str, Any] = {}
    missing: Formula | None = None
    prepare: Preparation | None = None
    formula: str = ""
    unit: str = ""
    digits: int = 0
    bands: Bands[str] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [item.name for item in self.inputs]
        if not names or len(set(names)) < len(names):
            raise ValueError("inputs are missing or have the same name")
        for function in (self.compute, self.missing):
            if function and (unknown := set(function.parameters) - {*names, "points", "values", "constants"}):
                raise ValueError(f"the function has parameters that are not inputs: {', '.join(sorted(unknown))}")

    @property
    def has_criteria(self) -> bool:
        """Whether any input can be absent."""
        return any(item.can_be_absent for item in self.inputs)

    @cached_property
    def names(self) -> frozenset[str]:
        """All names as keys, which are also those of the result."""
        title, _, inside = self.title.partition("(")
        names = (self.name, *self.aliases, *self.replaces, title, f"{title} {inside}")
        return frozenset(filter(None, map(to_key, names)))

    @cached_property
    def fields(self) -> dict[str, tuple[Input, str]]:
        """Each accepted field name, with its input and the hint for `parse`. The first input wins."""
        found: dict[str, tuple[Input, str]] = {}
        for item in self.inputs:
            for name, hint in item.fields():
                found.setdefault(name, (item, hint))
        return found

    @cached_property
    def loose_fields(self) -> dict[str, str]:
        """The same names by their simplified spelling."""
        return index_loosely((name, item.name) for name, (item, _) in self.fields.items())

    def calculate(self, raw: Mapping[str, Any]) -> Calculation:
        """Compute the result.

        Raises:
            Problems: If inputs are wrong or missing.
        """
        try:
            parsed, notes = self._parse(raw)
            values = self._values(parsed)
            check_plausible(values)
            points = {
                item.name: score
                for item in self.inputs
                if item.name in parsed and (score := item.score(parsed[item.name])) is not None
            }
            result = add_up(points) if self.compute is None else self.compute(values, points, self.constants)
        except InvalidInput as invalid:
            raise Problems([invalid.reason], advice=[invalid.advice]) from invalid
        outcome = result if isinstance(result, Outcome) else Outcome(result, points=points)
        interpretation = outcome.interpretation
        if not interpretation and self.bands and not isinstance(outcome.value, str):
            interpretation = f"{self.bands.describe_range(outcome.value)}: {self.bands.find(outcome.value)}"
        completed = replace(
            outcome,
            interpretation=interpretation,
            notes=[*outcome.notes, *notes, *self.notes],
            formula=outcome.formula or self.formula,
            sources=outcome.sources or self.sources,
        )
        return Calculation(self, parsed, completed)

    def _values(self, parsed: Mapping[str, ParsedInput]) -> Values:
        return {item.name: parsed[item.name].value if item.name in parsed else None for item in self.inputs}

    def _parse(self, raw: Mapping[str, Any]) -> tuple[dict[str, ParsedInput], list[str]]:
        """Return the parsed inputs, and notes about them."""
        if len(raw) > MOST_INPUTS:
            raise InvalidInput(f"{len(raw)} inputs; the limit is {MOST_INPUTS}")
        check_names(raw, self.names)
        if self.prepare:
            raw = self.prepare.function(raw, {item.name: item for item in (*self.inputs, *self.helper_inputs)})
        parsed: dict[str, ParsedInput] = {}
        wrong: list[str] = []
        advice: list[str] = []
        wrong_inputs: set[str] = set()
        unused: list[str] = []
        others_absent = False
        for field_name, value in match_fields(raw, self.fields, self.loose_fields).items():
            key = to_key(field_name[:KEY_LENGTH])
            if key == OTHERS_ABSENT:
                others_absent = value is True or value in ("true", "yes", 1)
            elif value is None or value == "":
                continue
            elif key in self.fields:
                item, hint = self.fields[key]
                try:
                    _add_input(parsed, item, value, hint)
                except InvalidInput as invalid:
                    wrong.append(f"{item.name}: {invalid.reason}")
                    advice.append(invalid.advice)
                    wrong_inputs.add(item.name)
            elif key in _IGNORED:
                unused.append(key)
            else:
                wrong.append(
                    self._describe_unknown(key) if len(wrong) < _MOST_NAMES_LISTED else f"unknown input {key[:40]}"
                )
        notes = [f"Not used here: {', '.join(unused)}."] if unused else []
        absent_inputs = [item for item in self.inputs if item.name not in {*parsed, *wrong_inputs}]
        if others_absent:
            absent = [item for item in absent_inputs if not item.optional and item.can_be_absent]
            parsed |= {item.name: item.parse_absent() for item in absent}
            if absent:
                names = ", ".join(item.name for item in absent)
                notes.append(f"Absent because of others_absent: {names}.")
        missing = [item.name for item in absent_inputs if item.name not in parsed and not item.optional]
        if self.missing:
            missing += self.missing(self._values(parsed), {}, {})
        if wrong or missing:
            raise Problems(wrong, missing, advice, self.has_criteria and not others_absent)
        return {item.name: parsed[item.name] for item in self.inputs if item.name in parsed}, notes

    def _describe_unknown(self, key: str) -> str:
        if key.removesuffix(f"_{to_key(self.unit)}") in self.names or is_derived(key):
            return f"{key[:40]} is a result or a derived value, not an input"
        close = nearest(key, list(self.fields))
        names = list(dict.fromkeys(self.fields[name][0].name for name in close))
        if names:
            return f"unknown input {key[:40]} (nearest: {', '.join(names)})"
        listed = ", ".join(item.name for item in self.inputs)
        return f"unknown input {key[:40]}" + (f" (known: {listed})" if len(self.inputs) <= _MOST_NAMES_LISTED else "")


def _add_input(parsed: dict[str, ParsedInput], item: Input, value: Any, hint: str) -> None:
    """Parse an input and add it to `parsed`. It may already have a value from another name."""
    if item.normal_if_unmeasured and isinstance(value, str) and to_key(value[:40]) in NOT_MEASURED:
        found = ParsedInput(None, "not measured, counted as normal")
    else:
        found = item.parse(value, hint)
    before = parsed.get(item.name)
    parsed[item.name] = found
    if before and isinstance(item, YesNo) and item.any_alias:
        parsed[item.name] = before if before.value and not found.value else found
    elif before and before.value != found.value:
        raise InvalidInput(f"given twice, as {before} and {found}")


def add_up(points: Mapping[str, float]) -> int | float:
    """Return the sum of the points, as an integer if it is whole."""
    total = sum(points.values())
    return int(total) if total == int(total) else total


def nearest(name: str, known: list[str], most: int = 2) -> list[str]:
    """Return the most similar known names."""
    return difflib.get_close_matches(name[:60], known, most, 0.6)
