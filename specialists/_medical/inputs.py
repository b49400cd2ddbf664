"""Built in: what a calculator asks for, and how it reads what a model wrote."""

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from specialists._medical.days import day_of
from specialists._medical.reading import (
    LARGEST,
    NO,
    Wrong,
    converted,
    in_units,
    key_of,
    parts_of,
    quoted,
    shown,
    truth,
    truth_or_none,
)
from specialists._medical.steps import Limit, Steps
from specialists._medical.units import COUNT, Measure, plain, tidy

Self = TypeVar("Self", bound="Input")


@dataclass(frozen=True)
class Read:
    """A value as it goes into the formula.

    Attributes:
        value: a number in the canonical unit, a whole number, a truth value, an option, or a day.
        said: how it came about, when it is not just what was written.
        unit: of the value, as shown.
        given: the number and the unit (as `plain` spells it) before conversion.
    """

    value: Any
    said: str = ""
    unit: str = ""
    given: tuple[float, str] | None = None

    def __str__(self) -> str:
        if self.value is None:
            return f"({self.said})"
        value = shown(self.value)
        text = f"{value} {self.unit}" if self.unit not in ("", "pH", "ratio", "fraction") else value
        return f"{text} ({self.said})" if self.said else text


@dataclass(frozen=True, kw_only=True)
class Input:
    """One thing a calculator asks for.

    Attributes:
        name: the field's name, without a unit.
        text: what it is, where the name does not say it.
        also: other names of the field, with spaces between them.
        optional: the formula does without it, and says so.
        unmeasured: the published rule counts it as normal when it was not measured.
    """

    name: str
    text: str = ""
    also: str = ""
    optional: bool = False
    unmeasured: bool = False

    def names(self) -> Iterator[tuple[str, str | None]]:
        """Every field name it answers to, each with what else the name says, such as a unit."""
        yield from ((key_of(name), None) for name in (self.name, *self.also.split()))

    def read(self, raw: Any, told: str | None) -> Read:
        """The value of what was written; `told` is what the field's name said.

        Raises:
            Wrong: saying what is expected.
        """
        raise NotImplementedError

    def expects(self) -> str:
        """What may be given, for the list of a calculator's inputs."""
        raise NotImplementedError

    def maybe(self: Self, text: str = "") -> Self:
        """The same, optional."""
        return replace(self, optional=True, text=text or self.text)

    def if_measured(self: Self) -> Self:
        """The same where the rule counts what was not measured as normal."""
        return replace(self, unmeasured=True)


@dataclass(frozen=True, kw_only=True)
class Quantity(Input):
    """A measured number.

    Attributes:
        measure: its units.
        least, most: beyond these, in the canonical unit, it is a mistake, or outside what the formula was made for.
        usual: within these a number without a unit is taken in the canonical one; beyond, it is likelier in another.
        points: what it scores.
        published: what it scores by the cut-offs that the paper gives in another unit, which are rounded there.
        whole: only whole numbers make sense.
        words: what stands for a number.
        otherwise: the unit in which a bare number is taken that is impossible in the first one, and possible in this.
        forms: other fields from which it follows, by name, such as urea for urea nitrogen.
    """

    measure: Measure = COUNT
    least: float
    most: float
    usual: tuple[float, float] | None = None
    points: Steps[int] | None = None
    published: Mapping[str, Steps[int]] = field(default_factory=dict)
    whole: bool = False
    otherwise: str = ""
    words: Mapping[str, float] = field(default_factory=dict)
    forms: Mapping[str, Measure] = field(default_factory=dict)

    def within(self, least: float, most: float) -> "Quantity":
        """The same with other bounds."""
        return replace(self, least=least, most=most)

    def scoring(self, points: Steps[int], **published: Steps[int]) -> "Quantity":
        """The same as an item of a score; `umol_l=…` are cut-offs published in µmol/L."""
        return replace(
            self, points=points, published={unit.replace("_", "/"): steps for unit, steps in published.items()}
        )

    def score(self, read: Read) -> float:
        """What a value scores; what was not measured scores nothing."""
        if read.value is None or self.points is None:
            return 0
        number, unit = read.given or (read.value, "")
        return self.published[unit].of(number) if unit in self.published else self.points.of(read.value)

    def names(self) -> Iterator[tuple[str, str | None]]:
        yield from super().names()
        for name in (self.name, *self.also.split()):
            for unit in self.measure.factors:
                if key_of(unit):
                    yield f"{key_of(name)}_{key_of(unit)}", unit
        for form, measure in self.forms.items():
            yield key_of(form), f"{form}:"
            yield from ((f"{key_of(form)}_{key_of(unit)}", f"{form}:{unit}") for unit in measure.factors)

    def read(self, raw: Any, told: str | None) -> Read:
        form, _, unit_told = (told or "").rpartition(":")
        measure = self.forms[form] if form else self.measure
        word = key_of(raw[:40]) if self.words and isinstance(raw, str) else "no" if raw is False else ""
        parts = list(parts_of(self.words.get(word, raw), measure))
        if len(parts) > 1 and not measure.adds_up:
            raise Wrong(f"expected one number{in_units(measure)}, not {quoted(raw)}")
        meant = "" if form or unit_told else self._meant(parts)
        if not (form or unit_told or meant or parts[0][1]):
            self._check_bare(parts[0][0])
        values = [converted(number, unit, unit_told or meant, measure) for number, unit in parts]
        value = tidy(math.fsum(values)) if len(values) > 1 else values[0]
        self._check(value, measure)
        unit = plain(parts[0][1] or unit_told or meant)
        given = (parts[0][0], unit) if len(parts) == 1 and unit else None
        said = f"from {parts[0][0]:g}, taken as {meant}" if meant else self._origin(value, parts, unit_told, form)
        return Read(int(value) if self.whole else value, said, measure.unit, given)

    def _meant(self, parts: list[tuple[float, str]]) -> str:
        """The other unit, where a number alone can only be in that one: a temperature of 101."""
        number, unit = parts[0]
        if unit or not self.otherwise or self.least <= number <= self.most:
            return ""
        return self.otherwise if self._allows(self.measure.converted(number, self.otherwise)) else ""

    def _check_bare(self, number: float) -> None:
        """Refuses a number alone that is unusual in the first unit and possible in one: bilirubin of 34."""
        if self.usual is None or self.usual[0] <= number <= self.usual[1]:
            return
        possible: dict[float, str] = {}
        for unit in (*self.measure.shown[1:], self.measure.unit):
            value = self.measure.converted(number, unit)
            if value is not None and self._allows(value):
                possible.setdefault(value, unit)
        if possible:
            named = " or ".join(f'"{number:g} {unit}"' for unit in list(possible.values())[:2])
            raise Wrong(f"{number:g} has no unit; give it, such as {named}")

    def _allows(self, value: float | None) -> bool:
        return value is not None and self.least <= value <= self.most

    def _check(self, value: float, measure: Measure) -> None:
        if not self.least <= value <= self.most:
            unit = f" {measure.unit}" if measure.unit else ""
            others = f"; give it{in_units(measure)}" if len(measure.shown) > 1 else ""
            raise Wrong(f"{value:g}{unit} is outside {self.least:g} to {self.most:g}{unit}{others}")
        if self.whole and value != int(value):
            raise Wrong(f"{value:g} is not a whole number")

    def _origin(self, value: float, parts: list[tuple[float, str]], unit_told: str, form: str) -> str:
        unit = parts[0][1] or unit_told
        if not unit:
            return "unit assumed" if len(self.measure.shown) > 1 else ""
        if form or len(parts) > 1 or parts[0][0] != value:
            given = " ".join(f"{number:g} {unit or unit_told}" for number, unit in parts)
            return f"from {form + ' ' if form else ''}{given}"
        return ""

    def expects(self) -> str:
        units = " or ".join((self.measure.unit, *self.measure.shown[1:4])) if self.measure.unit else ""
        kind = "whole number" if self.whole else "number"
        bounds = f"{self.least:g} to {self.most:g}"
        return f"{kind} in {units}, {bounds} {self.measure.unit}" if units else f"{kind}, {bounds}"


@dataclass(frozen=True, kw_only=True)
class YesNo(Input):
    """A criterion that is fulfilled or not.

    Attributes:
        points: what it scores when it is fulfilled.
        measured: a quantity and the limit by which it follows, so that a number will do as well.
        published: the limit in another unit, as the paper rounds it there.
        absent: it may be taken as absent when the caller says that the others are.
        joins: its names are facts of their own, of which one is enough.
    """

    joins: bool = False
    points: float | None = None
    measured: tuple[Quantity, Limit] | None = None
    published: Mapping[str, Limit] = field(default_factory=dict)
    absent: bool = True

    def names(self) -> Iterator[tuple[str, str | None]]:
        yield from super().names()
        if self.measured:
            yield from ((name, f"measured:{told or ''}") for name, told in self.measured[0].names())

    def read(self, raw: Any, told: str | None) -> Read:
        if self.measured and (told is not None or truth_or_none(raw) is None):
            return self._measured(raw, told, *self.measured)
        return Read(truth(raw))

    def _measured(self, raw: Any, told: str | None, quantity: Quantity, limit: Limit) -> Read:
        found = quantity.read(raw, (told or "").removeprefix("measured:") or None)
        number, unit = found.given or (found.value, "")
        holds = self.published[unit].holds(number) if unit in self.published else limit.holds(found.value)
        return Read(holds, f"{quantity.name.replace('_', ' ')} {found}; asked: {limit}")

    def expects(self) -> str:
        by = f", or {self.measured[0].name} ({self.measured[0].expects()})" if self.measured else ""
        return f"yes or no{by}"


@dataclass(frozen=True, kw_only=True)
class Choice(Input):
    """One of several options.

    Attributes:
        options: their names, each with what it scores (0 where nothing does).
        words: other words for them.
        flags: yes/no fields that say the same: the name, the option for yes, the option for no.
        absent: the option that stands for absence, if one does.
        lead: words in front of an option that do not matter.
    """

    options: Mapping[str, float]
    words: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[tuple[str, str, str], ...] = ()
    absent: str = ""
    default: str = ""
    scores: bool = False

    def names(self) -> Iterator[tuple[str, str | None]]:
        yield from super().names()
        yield from ((key_of(name), name) for name, _, _ in self.flags)

    def read(self, raw: Any, told: str | None) -> Read:
        for name, yes, no in self.flags:
            if name == told and not (isinstance(raw, str) and key_of(raw[:40]) in self.options):
                return Read(yes if truth(raw) else no)
        word = self._word(raw)
        if word not in self.options:
            raise Wrong(f"expected {self._listed()}, not {quoted(raw)}")
        return Read(word)

    def _word(self, raw: Any) -> str:
        if isinstance(raw, bool):
            return self.words.get("yes" if raw else "no", self.absent if not raw else "")
        if isinstance(raw, int | float) and abs(raw) < LARGEST:
            raw = f"{raw:g}"
        if not isinstance(raw, str) or len(raw) > 80:
            raise Wrong(f"expected {self._listed()}, not {quoted(raw)}")
        word = key_of(raw)
        if word in self.options:
            return word
        return self.words.get(word, self.absent if self.absent and word in NO else "")

    def _listed(self) -> str:
        names = [name.replace("_", " ") for name in self.options]
        return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) < 13 else f"one of {', '.join(names[:12])}, …"

    def expects(self) -> str:
        default = f"; without it {self.default.replace('_', ' ')}" if self.default else ""
        return " | ".join(name.replace("_", " ") for name in self.options) + default


@dataclass(frozen=True, kw_only=True)
class Day(Input):
    """A calendar day."""

    def read(self, raw: Any, told: str | None) -> Read:
        try:
            return Read(day_of(raw))
        except ValueError as error:
            raise Wrong(str(error)) from error

    def expects(self) -> str:
        return "a day as YYYY-MM-DD"


def nearest(name: str, known: list[str], most: int = 2) -> list[str]:
    """The known names most like one."""
    return difflib.get_close_matches(name[:60], known, most, 0.6)
