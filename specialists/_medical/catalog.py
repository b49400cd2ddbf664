"""Read and check `calculators.toml`, and list all calculators."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from specialists._medical import open_medicine
from specialists._medical.calculator import Calculator, Formula, Preparation
from specialists._medical.inputs import Bands, Choice, Day, Number, YesNo
from specialists._medical.units import Measure

_KINDS = ("number", "yes_no", "choice", "day")


class Table(Struct, frozen=True):
    """The content of `calculators.toml` with resolved references."""

    calculators: tuple[Calculator, ...]
    open_medicine: open_medicine.Adaptation


class _Sections(Struct, frozen=True, forbid_unknown_fields=True):
    """The raw sections of the file."""

    measures: dict[str, dict[str, Any]]
    inputs: dict[str, dict[str, Any]]
    calculators: dict[str, dict[str, Any]]
    open_medicine: dict[str, Any]


@cache
def all_calculators() -> tuple[Calculator, ...]:
    """Return Brain's own calculators, then those of open-medicine that they do not replace."""
    table = load()
    replaced = frozenset(name for calculator in table.calculators for name in calculator.replaces)
    return (*table.calculators, *open_medicine.adapt(table.open_medicine, replaced))


@cache
def load() -> Table:
    """Read and check `calculators.toml`.

    Raises:
        msgspec.ValidationError: With the place and the error.
    """
    return resolve(tomllib.loads(Path(__file__).with_name("calculators.toml").read_text(encoding="utf-8")))


def resolve(raw: Mapping[str, Any]) -> Table:
    """Build the table from the content of a TOML file.

    Raises:
        msgspec.ValidationError: With the place and the error.
    """
    sections = msgspec.convert(raw, _Sections)
    measures: dict[str, Measure] = {}
    for name, row in sections.measures.items():
        with _place(f"measures.{name}"):
            measures[name] = msgspec.convert(_inherit(row, sections.measures), Measure)
    rows = _InputRows(sections.inputs, measures)
    for name in sections.inputs:
        with _place(f"inputs.{name}"):
            msgspec.convert(rows.resolve(name), Number | YesNo | Choice | Day, dec_hook=_decode)
    calculators = []
    for name, row in sections.calculators.items():
        with _place(f"calculators.{name}"):
            calculators.append(_make_calculator(name, dict(row), rows))
    with _place("open_medicine"):
        fields = {name: rows.resolve(row) for name, row in sections.open_medicine["fields"].items()}
        library = {**sections.open_medicine, "fields": fields}
        return Table(tuple(calculators), msgspec.convert(library, open_medicine.Adaptation, dec_hook=_decode))


@contextmanager
def _place(name: str) -> Iterator[None]:
    """Add the name of the TOML table to an error."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"[{name}]: {error}") from error


def _make_calculator(name: str, row: dict[str, Any], rows: "_InputRows") -> Calculator:
    row["name"] = name
    row["inputs"] = [rows.resolve(item) for item in row.get("inputs", ())]
    row["helper_inputs"] = [rows.resolve(item) for item in row.get("helper_inputs", ())]
    for key, apart in (("aliases", "input_aliases"), ("option_aliases", "option_aliases")):
        for input_name, value in row.pop(apart, {}).items():
            found = [item for item in row["inputs"] if item.get("name") == input_name]
            if not found:
                raise msgspec.ValidationError(f"`{apart}` has an unknown input '{input_name}'")
            found[0][key] = value
    return msgspec.convert(row, Calculator, dec_hook=_decode)


def _decode(kind: type, value: Any) -> Any:
    """Convert values of types that msgspec does not know."""
    from specialists._medical.formulas import FORMULAS, PREPARATIONS  # only calls need them

    named: Mapping[type, Mapping[str, Any]] = {Formula: FORMULAS, Preparation: PREPARATIONS}
    if kind in named:
        if value not in named[kind]:
            raise ValueError(f"formulas.py has no {kind.__name__.lower()} '{value}'")
        return named[kind][value]
    if get_origin(kind) is Bands:
        return Bands(msgspec.convert(value, dict[str, get_args(kind)[0]]))  # type: ignore[misc]
    return kind(value)


class _InputRows:
    """Resolves references of inputs to shared inputs and measures."""

    def __init__(self, shared: Mapping[str, Mapping[str, Any]], measures: Mapping[str, Measure]) -> None:
        self._shared = {name: {"name": name, **row} for name, row in shared.items()}
        self._measures = measures

    def resolve(self, row: str | Mapping[str, Any]) -> dict[str, Any]:
        """Return all fields of an input: `"age"`, `{ use = "age", … }` or `{ yes_no = "fever", … }`."""
        found = dict(_inherit({"use": row} if isinstance(row, str) else row, self._shared))
        for kind in _KINDS:
            if kind in found:
                found |= {"kind": kind, "name": found.pop(kind)}
        if "when" in found:  # `heart_rate > 100`: accepts the heart rate instead
            name, _, limit = str(found.pop("when")).partition(" ")
            measured = self.resolve(name)
            measured["aliases"] = [*measured.get("aliases", ()), *found.pop("when_aliases", ())]
            found |= {"measured": measured, "limit": limit, "limit_in": found.pop("when_in", {})}
        if "measure" in found:
            found["measure"] = self._find_measure(found["measure"])
        if "forms" in found:
            found["forms"] = {name: self._find_measure(measure) for name, measure in found["forms"].items()}
        return found

    def _find_measure(self, name: str) -> Measure:
        if name not in self._measures:
            raise msgspec.ValidationError(f"unknown measure '{name}'")
        return self._measures[name]


def _inherit(row: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a row merged with the row that it uses."""
    if "use" not in row:
        return row
    if row["use"] not in rows:
        raise msgspec.ValidationError(f"`use` has an unknown name '{row['use']}'")
    return {**rows[row["use"]], **{key: value for key, value in row.items() if key != "use"}}
