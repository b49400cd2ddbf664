"""Figures of several rounds, as medians with min..max, in Markdown tables."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class Table:
    """One table: a title with the unit, and the figures of all rounds by row and column."""

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
    """Return the median, and the range in brackets if it differs."""
    if not values:
        return "–"
    median, low, high = (number(f(values)) for f in (statistics.median, min, max))
    return median if low == high else f"{median} ({low}..{high})"


def number(value: float) -> str:
    """Return a figure with about three significant digits."""
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def rotated(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield the names once per round; each round starts with another one, so that their order varies."""
    for n in range(rounds):
        at = n % len(names) if names else 0
        yield from (*names[at:], *names[:at])
