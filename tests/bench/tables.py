"""Figures of several rounds, as medians with min..max, in tables that can be pasted into a page."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class Table:
    """One table: a title that names the unit, and under each row's and column's name what the rounds gave."""

    title: str
    columns: Sequence[str]
    first: str = ""
    rows: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, row: str, column: str, *values: float) -> None:
        self.rows.setdefault(row, {}).setdefault(column, []).extend(values)

    def median(self, row: str, column: str) -> float | None:
        values = self.rows.get(row, {}).get(column)
        return statistics.median(values) if values else None

    def __str__(self) -> str:
        lines = [[self.first, *self.columns]]
        lines += [[row, *(shown(found.get(column, ())) for column in self.columns)] for row, found in self.rows.items()]
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
        drawn = [_line([cell.ljust(width) for cell, width in zip(line, widths, strict=True)]) for line in lines]
        drawn.insert(1, _line(["-" * width for width in widths]))
        return "\n".join([f"### {self.title}", "", *drawn, *([""] if self.notes else []), *self.notes, ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def shown(values: Sequence[float]) -> str:
    """The median, and in brackets the range when it is wide enough to be seen."""
    if not values:
        return "–"
    median, low, high = (_number(f(values)) for f in (statistics.median, min, max))
    return median if low == high else f"{median} ({low}..{high})"


def _number(value: float) -> str:
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def rotated(names: Sequence[str], rounds: int) -> Iterator[str]:
    """The names, so many times, each round begun by another, so that no one is always behind the same."""
    for n in range(rounds):
        at = n % len(names) if names else 0
        yield from (*names[at:], *names[:at])
