"""Built in: what a calculator is, how it is asked, and what it answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from specialists._medical.inputs import Choice, Input, Quantity, Read, YesNo, nearest
from specialists._medical.names import KEY_LENGTH, loosely, unfolded
from specialists._medical.reading import NOT_MEASURED, Wrong, key_of
from specialists._medical.steps import Steps
from specialists._medical.together import check_together

FEW = 7
"""So many inputs are named to somebody who gave another."""
OTHERS_ABSENT = "others_absent"
NOT_ADVICE = "Not medical advice."
INPUTS_MOST = 200
_HARMLESS = frozenset({"age", "sex", "gender", "race", "ethnicity", "height", "weight", "patient_id", "name", "note"})
"""What a model likes to add to any patient; it is told that these were not used, and not refused for them."""


class Values(dict[str, Any]):
    """The inputs of a calculation by name, `x.age` for `x["age"]`; None for what was not given and need not be.

    Attributes:
        scores: what each item scores by its own table.
    """

    scores: Mapping[str, float]

    def __getattr__(self, name: str) -> Any:
        return self[name]


@dataclass(frozen=True)
class Worked:
    """What a formula gives.

    Attributes:
        steps: values on the way, by the names they have in the formula.
        points: what each item of a score scored.
        notes: what the reader should know: choices that were made, other conventions.
        reading: what it means, where no band says so.
        formula: the one that was used, where it depends on the inputs.
        sources: where it is published, where that is known only with the result.
    """

    value: float | str
    steps: Mapping[str, float] = field(default_factory=dict)
    points: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    reading: str = ""
    formula: str = ""
    sources: Sequence["Source"] = ()


@dataclass(frozen=True)
class Source:
    """Where a rule is published; the DOI only where it is known for sure."""

    title: str
    doi: str = ""

    @property
    def url(self) -> str | None:
        return f"https://doi.org/{self.doi}" if self.doi else None


@dataclass(frozen=True)
class Example:
    """A worked case: inputs as a model would write them, and the value."""

    inputs: Mapping[str, Any]
    value: float | str


class Problems(Exception):
    """Everything that is wrong with the inputs, each in a few words."""

    def __init__(self, wrong: Sequence[str], missing: Sequence[str], criteria: bool) -> None:
        self.wrong = wrong
        self.missing = missing
        self.criteria = criteria


@dataclass(frozen=True)
class Answer:
    """A calculation that was done."""

    calculator: "Calculator"
    inputs: Mapping[str, Read]
    worked: Worked
    reading: str
    notes: Sequence[str]


def add_points(x: Values) -> float:
    """The work of a plain score; its points are added up by the items' own tables."""
    raise NotImplementedError


def nothing(x: Values) -> Sequence[str]:
    """What a calculator lacks whose inputs do not depend on each other."""
    return ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Calculator:
    """One published formula or score.

    Attributes:
        name: by which it is asked for.
        title: its name for people.
        says: what it computes or decides, for the list and the search.
        also: other names, with commas between them.
        group: the organ or occasion.
        inputs: what it asks for, in order.
        work: from the inputs to a number, a text, or `Worked`; without it, the items' points are added up.
        formula: in the inputs' names, so that their values can be put in.
        unit, digits: of the value; its decimal places when shown.
        bands: what the value means.
        start: points before any item scores.
        lacks: what is missing in words, where one input stands for another or is needed beside it.
        prepare: what is done to the raw inputs before they are read.
        notes: what holds for every answer: limits of validity, the convention that was chosen.
        replaces: names in open-medicine that this stands for.
    """

    name: str
    title: str
    says: str
    group: str
    inputs: tuple[Input, ...]
    sources: tuple[Source, ...]
    example: Example | None
    also: str = ""
    work: Callable[[Values], float | str | Worked] = add_points
    formula: str = ""
    unit: str = ""
    digits: int = 0
    bands: Steps[str] | Callable[[Values, float], str] | None = None
    start: float = 0
    lacks: Callable[[Values], Sequence[str]] = nothing
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    notes: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()

    @property
    def criteria(self) -> bool:
        """Whether it asks for things that can be absent."""
        return any(_may_be_absent(one) for one in self.inputs)

    @property
    def optional(self) -> list[Input]:
        return [one for one in self.inputs if one.optional]

    @cached_property
    def fields(self) -> dict[str, tuple[Input, str | None]]:
        """Every field name it understands; the first input that claims one has it."""
        found: dict[str, tuple[Input, str | None]] = {}
        for one in self.inputs:
            for name, told in one.names():
                found.setdefault(name, (one, told))
        return found

    @cached_property
    def loose(self) -> dict[str, str]:
        """The same names without the words that say nothing."""
        return loosely((name, one.name) for name, (one, _) in self.fields.items())

    def answer(self, raw: Mapping[str, Any]) -> Answer:
        """The result for these inputs.

        Raises:
            Problems: with the inputs, all of them.
        """
        try:
            read, notes = self._read(raw)
        except Wrong as wrong:
            raise Problems([str(wrong)], [], False) from wrong
        x = self._values(read)
        try:
            check_together(x)
            x.scores = {
                one.name: score for one in self.inputs if (score := _score(one, read.get(one.name))) is not None
            }
            worked = self._worked(x)
        except Wrong as wrong:
            raise Problems([str(wrong)], [], False) from wrong
        return Answer(self, read, worked, worked.reading or self._band(x, worked.value), [*worked.notes, *notes])

    def _values(self, read: Mapping[str, Read]) -> Values:
        return Values({one.name: read[one.name].value if one.name in read else None for one in self.inputs})

    def _worked(self, x: Values) -> Worked:
        if self.work is add_points:
            return Worked(_whole(self.start + sum(x.scores.values())), points=x.scores)
        found = self.work(x)
        return found if isinstance(found, Worked) else Worked(found)

    def _band(self, x: Values, value: float | str) -> str:
        if self.bands is None or isinstance(value, str):
            return ""
        if isinstance(self.bands, Steps):
            return f"{self.bands.range_of(value)}: {self.bands.of(value)}"
        return self.bands(x, value)

    def _read(self, raw: Mapping[str, Any]) -> tuple[dict[str, Read], list[str]]:
        if len(raw) > INPUTS_MOST:
            raise Wrong(f"more than {INPUTS_MOST} inputs")
        read: dict[str, Read] = {}
        wrong: list[str] = []
        unused: list[str] = []
        others_absent = False
        for field_name, value in unfolded(self.prepare(raw), self.fields, self.loose).items():
            key = key_of(field_name[:KEY_LENGTH])
            if key == OTHERS_ABSENT:
                others_absent = value is True or value in ("true", "yes", 1)
            elif value is None or value == "":
                continue
            elif key in self.fields:
                self._take(key, value, read, wrong)
            elif key in _HARMLESS:
                unused.append(key)
            else:
                wrong.append(self._unknown(key) if len(wrong) < FEW else f"no input {key[:40]}")
        notes = [f"Not used here: {', '.join(unused)}."] if unused else []
        asked = [one for one in self.inputs if one.name not in read and not _named_in(one, wrong)]
        if others_absent:
            notes += _taken_as_absent(asked, read)
        missing = [one.name for one in asked if one.name not in read and not one.optional]
        missing += self.lacks(self._values(read))
        if wrong or missing:
            raise Problems(wrong, missing, self.criteria and not others_absent)
        return {one.name: read[one.name] for one in self.inputs if one.name in read}, notes

    def _take(self, key: str, value: Any, read: dict[str, Read], wrong: list[str]) -> None:
        one, told = self.fields[key]
        if one.unmeasured and isinstance(value, str) and key_of(value[:40]) in NOT_MEASURED:
            read[one.name] = Read(None, "not measured, counted as normal")
            return
        try:
            found = one.read(value, told)
        except Wrong as error:
            wrong.append(f"{one.name}: {error}")
            return
        if isinstance(one, YesNo) and one.joins and one.name in read:
            found = max(found, read[one.name], key=lambda each: bool(each.value))
        elif one.name in read and read[one.name].value != found.value:
            wrong.append(f"{one.name}: given twice, as {read[one.name]} and {found}")
        read[one.name] = found

    def _unknown(self, key: str) -> str:
        close = nearest(key, list(self.fields))
        names = list(dict.fromkeys(self.fields[name][0].name for name in close))
        if names:
            return f"no input {key[:40]} (nearest: {', '.join(names)})"
        has = ", ".join(one.name for one in self.inputs)
        return f"no input {key[:40]}" + (f" (it has {has})" if len(self.inputs) <= FEW else "")


def _named_in(one: Input, wrong: Sequence[str]) -> bool:
    return any(problem.startswith(f"{one.name}: ") for problem in wrong)


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value


def _may_be_absent(one: Input) -> bool:
    return (isinstance(one, YesNo) and one.absent) or (isinstance(one, Choice) and bool(one.absent)) or one.unmeasured


def _taken_as_absent(asked: Sequence[Input], read: dict[str, Read]) -> list[str]:
    """Fills in what the caller said is absent; the note that names it."""
    absent = [one for one in asked if not one.optional and _may_be_absent(one)]
    for one in absent:
        if one.unmeasured:
            read[one.name] = Read(None, "not given, counted as normal")
        else:
            read[one.name] = Read(one.absent if isinstance(one, Choice) else False)
    return (
        [f"Taken as absent, because others_absent was said: {', '.join(one.name for one in absent)}."] if absent else []
    )


def _score(one: Input, read: Read | None) -> float | None:
    """What an item scores; None for what is no item, or was not given."""
    if read is None:
        return None
    if isinstance(one, YesNo) and one.points is not None:
        return one.points if read.value else 0
    if isinstance(one, Choice) and one.scores:
        return one.options[read.value]
    if isinstance(one, Quantity) and one.points is not None:
        return one.score(read)
    return None
