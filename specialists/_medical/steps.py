"""Built in: cut-offs: which points or which words a value gets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Generic, TypeVar

T = TypeVar("T")

_SIGNS: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "≤": le, ">": gt, "≥": ge}


@dataclass(frozen=True)
class Limit:
    """A condition on a number, such as `> 100`."""

    sign: str
    edge: float

    def holds(self, value: float) -> bool:
        """Whether the value fulfils it."""
        return _SIGNS[self.sign](value, self.edge)

    def __str__(self) -> str:
        return f"{self.sign} {self.edge:g}"


@dataclass(frozen=True)
class Steps(Generic[T]):
    """Results by upper limits, in rising order; a value gets that of the first limit it keeps, else the rest."""

    rows: tuple[tuple[Limit, T], ...]
    rest: T

    def of(self, value: float) -> T:
        """What this value gets."""
        return next((result for limit, result in self.rows if limit.holds(value)), self.rest)

    def range_of(self, value: float) -> str:
        """The range in which a value lies, such as `25 to < 30`."""
        limits = [limit for limit, _ in self.rows]
        at = next((n for n, limit in enumerate(limits) if limit.holds(value)), len(limits))
        if at == 0:
            return str(limits[0])
        below_it = limits[at - 1]
        if at == len(limits):
            return f"{'≥' if below_it.sign == '<' else '>'} {below_it.edge:g}"
        if below_it.sign == limits[at].sign == "≤" and isinstance(value, int):
            first, last = below_it.edge + 1, limits[at].edge
            return f"{last:g}" if first == last else f"{first:g} to {last:g}"
        return f"{'' if below_it.sign == '<' else '> '}{below_it.edge:g} to {str(limits[at]).removeprefix('≤ ')}"

    def __str__(self) -> str:
        told = [f"{limit}: {_said(result)}" for limit, result in self.rows]
        return ", ".join([*told, f"above: {_said(self.rest)}"])


def _said(result: object) -> str:
    return f"{result:g}" if isinstance(result, int | float) else str(result)


def below(*rows: tuple[float, T], rest: T) -> Steps[T]:
    """Steps whose edges belong to the row above: `below((18.5, "thin"), rest="not thin")`; 18.5 is not thin."""
    return Steps(tuple((Limit("<", edge), result) for edge, result in rows), rest)


def up_to(*rows: tuple[float, T], rest: T) -> Steps[T]:
    """Steps whose edges belong to their own row: `up_to((8, 3), rest=0)`; 8 gets 3 points."""
    return Steps(tuple((Limit("≤", edge), result) for edge, result in rows), rest)


def between(low: float, high: float, results: tuple[T, T, T]) -> Steps[T]:
    """Three steps, both edges belonging to the middle one: below `low`, `low` to `high`, above `high`."""
    return Steps(((Limit("<", low), results[0]), (Limit("≤", high), results[1])), results[2])
