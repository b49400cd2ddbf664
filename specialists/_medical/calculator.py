"""A calculator: what it asks for, how it computes, and what its result means."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from msgspec import Struct

from specialists._medical.inputs import Bands, Choice, Day, Input, Number, ParsedInput, YesNo
from specialists._medical.parsing import KEY_LENGTH, NOT_MEASURED, InvalidInput, index_loosely, match_fields, to_key
from specialists._medical.patient import check_plausible

OTHERS_ABSENT = "others_absent"
MOST_INPUTS = 200
_MOST_NAMES_LISTED = 7
_IGNORED = frozenset({"age", "sex", "gender", "race", "ethnicity", "height", "weight", "patient_id", "name", "note"})
"""Models add these to any patient. A note says that they were not used."""

Values = Mapping[str, Any]
"""The values of the inputs by name. An input that was not given is None."""


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """A publication of a rule; `doi` only where it is certain."""

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
    """What a formula returns where a number or a text alone is not enough.

    Attributes:
        terms: Intermediate values, by their names in the formula's text.
        points: What each item of a score contributed.
        notes: Choices that were made, and what other conventions give.
        interpretation: What the value means, where no band says it.
        formula: The text of the formula, where it depends on the inputs.
        sources: Publications that are known only with the result.
    """

    value: int | float | str
    terms: Mapping[str, float] = field(default_factory=dict)
    points: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    interpretation: str = ""
    formula: str = ""
    sources: Sequence[Source] = ()


class Formula:
    """A function that computes, with the names of its parameters.

    The parameters are names of inputs, `points` (what each input scores by its own table), `values` (all inputs) or
    `constants` (published numbers from the table).
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.parameters = function.__code__.co_varnames[: function.__code__.co_argcount]

    def __call__(self, values: Values, points: Mapping[str, float], constants: Mapping[str, Any]) -> Any:
        available = {**values, "values": values, "points": points, "constants": constants}
        return self.function(**{name: available[name] for name in self.parameters})


class Preparation:
    """A function that changes the raw inputs before they are parsed. It gets them and the inputs by name."""

    def __init__(self, function: Callable[[Mapping[str, Any], Mapping[str, Input]], Mapping[str, Any]]) -> None:
        self.function = function


class Problems(Exception):
    """All that is wrong with the inputs.

    Attributes:
        wrong: What cannot be used, each with its reason.
        missing: What was not given.
        can_be_absent: Whether `others_absent` would help.
    """

    def __init__(self, wrong: Sequence[str], missing: Sequence[str] = (), can_be_absent: bool = False) -> None:
        super().__init__(*wrong, *missing)
        self.wrong = list(wrong)
        self.missing = list(missing)
        self.can_be_absent = can_be_absent


@dataclass(frozen=True)
class Calculation:
    """A result, with the parsed inputs by name."""

    calculator: "Calculator"
    inputs: Mapping[str, ParsedInput]
    outcome: Outcome


class Calculator(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True, eq=False):
    """One published formula or score. `calculators.toml` has one table for each.

    Attributes:
        name: Its name in calls.
        title: Its name for people.
        summary: What it computes or decides, for lists and the search.
        group: The organ or occasion.
        aliases: Other names.
        replaces: Names in the package open-medicine that it stands for.
        inputs: What it asks for, in this order.
        helper_inputs: Inputs that only `prepare` reads.
        compute: The formula. Without it the points of the inputs are added up.
        constants: Published numbers that the formula uses.
        missing: Returns in words what is missing, where one input stands for another or needs another.
        prepare: Changes the raw inputs before they are parsed.
        formula: The formula's text, in the names of the inputs.
        unit: The unit of the value.
        digits: Decimal places of the value.
        bands: What the value means.
        notes: What holds for every result, such as limits of validity.
        sources: Where the rule is published.
        example: A worked example. Tests compute it.
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
            raise ValueError("it needs inputs with different names")
        for function in (self.compute, self.missing):
            if function and (unknown := set(function.parameters) - {*names, "points", "values", "constants"}):
                raise ValueError(f"its function takes {', '.join(sorted(unknown))}, which is no input")

    @property
    def has_criteria(self) -> bool:
        """Whether it asks for things that can be absent."""
        return any(item.can_be_absent for item in self.inputs)

    @cached_property
    def fields(self) -> dict[str, tuple[Input, str]]:
        """Each field name that it understands, with its input and the hint for it. The first input wins."""
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
            Problems: With all that is wrong or missing.
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
            raise Problems([str(invalid)]) from invalid
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
        """Return the parsed inputs and the notes about them."""
        if len(raw) > MOST_INPUTS:
            raise InvalidInput(f"more than {MOST_INPUTS} inputs")
        if self.prepare:
            raw = self.prepare.function(raw, {item.name: item for item in (*self.inputs, *self.helper_inputs)})
        parsed: dict[str, ParsedInput] = {}
        wrong: list[str] = []
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
                    wrong.append(f"{item.name}: {invalid}")
                    wrong_inputs.add(item.name)
            elif key in _IGNORED:
                unused.append(key)
            else:
                wrong.append(self._describe_unknown(key) if len(wrong) < _MOST_NAMES_LISTED else f"no input {key[:40]}")
        notes = [f"Not used here: {', '.join(unused)}."] if unused else []
        absent_inputs = [item for item in self.inputs if item.name not in {*parsed, *wrong_inputs}]
        if others_absent:
            absent = [item for item in absent_inputs if not item.optional and item.can_be_absent]
            parsed |= {item.name: item.parse_absent() for item in absent}
            if absent:
                names = ", ".join(item.name for item in absent)
                notes.append(f"Taken as absent, because others_absent was said: {names}.")
        missing = [item.name for item in absent_inputs if item.name not in parsed and not item.optional]
        if self.missing:
            missing += self.missing(self._values(parsed), {}, {})
        if wrong or missing:
            raise Problems(wrong, missing, self.has_criteria and not others_absent)
        return {item.name: parsed[item.name] for item in self.inputs if item.name in parsed}, notes

    def _describe_unknown(self, key: str) -> str:
        close = nearest(key, list(self.fields))
        names = list(dict.fromkeys(self.fields[name][0].name for name in close))
        if names:
            return f"no input {key[:40]} (nearest: {', '.join(names)})"
        listed = ", ".join(item.name for item in self.inputs)
        return f"no input {key[:40]}" + (f" (it has {listed})" if len(self.inputs) <= _MOST_NAMES_LISTED else "")


def _add_input(parsed: dict[str, ParsedInput], item: Input, value: Any, hint: str) -> None:
    """Parse an input, which may have been given before under another name, and add it to `parsed`."""
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
    """Return the sum of the points, as an integer where it is whole."""
    total = sum(points.values())
    return int(total) if total == int(total) else total


def nearest(name: str, known: list[str], most: int = 2) -> list[str]:
    """Return the known names most like a name."""
    return difflib.get_close_matches(name[:60], known, most, 0.6)
