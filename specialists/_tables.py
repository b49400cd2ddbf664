"""The tables of HTML, row by row as Markdown. Imports nothing of Brain."""

import re
from typing import Any

_ROW_MOST = 2000
_SPAN_MOST = 50
_REACHING_MOST = 100
"""Rows or columns that a cell may cover, and characters of it that are said again in each row."""


def layouts(tree: Any) -> set[int]:
    """The tables that only put things in their places: those with tables, headings of the page or code in cells."""
    found = set()
    for node in tree.css("table table, td h1, td h2, td pre"):
        above = node.parent
        while above is not None and above.tag != "table":
            above = above.parent
        if above is not None:
            found.add(above.mem_id)
    return found


class Reaching:
    """The cells of a table that reach down into the rows below them, by their columns."""

    def __init__(self) -> None:
        self._below: dict[int, tuple[int, str]] = {}

    def put(self, column: int, rows: int, text: str) -> None:
        """Notes a cell that covers so many rows."""
        if rows > 1:
            self._below[column] = (rows - 1, text[:_REACHING_MOST])

    def take(self, column: int) -> str | None:
        """What a row has in a column from above."""
        rows, text = self._below.pop(column, (0, None))
        self.put(column, rows, text or "")
        return text


class Table:
    """Makes lines of rows; each has all columns, so that what stands below a heading belongs to it."""

    def __init__(self) -> None:
        self._cells: list[str] = []
        self._spans: tuple[int, int] | None = None
        self._reaching = Reaching()
        self._rows = 0

    @property
    def in_cell(self) -> bool:
        return self._spans is not None

    def open(self, node: Any) -> None:
        """Begins a cell, behind those that reach down from rows above."""
        self._carry()
        self._spans = span(node.attributes.get("colspan")), span(node.attributes.get("rowspan"))

    def close(self, text: str) -> None:
        """Ends a cell; what it covers to the right is empty, what it covers below says the same."""
        (columns, rows), self._spans = self._spans or (1, 1), None
        for said in (text, *[""] * (columns - 1)):
            self._reaching.put(len(self._cells), rows, said)
            self._cells.append(said)

    def row(self) -> list[str]:
        """The lines of a row that ends; one that says only one thing, or much, is no row of a table."""
        self._carry()
        cells, self._cells = self._cells, []
        said = [cell for cell in cells if cell]
        if len(said) <= 1 or sum(map(len, said)) > _ROW_MOST:
            return said
        self._rows += 1
        line = f"| {' | '.join(cells)} |"
        return [line] if self._rows > 1 else ["", line, "|" + "---|" * len(cells)]

    def _carry(self) -> None:
        while (text := self._reaching.take(len(self._cells))) is not None:
            self._cells.append(text)


def span(given: str | None) -> int:
    """How many rows or columns a cell covers."""
    return max(1, min(int(given), _SPAN_MOST)) if given and re.fullmatch("[0-9]{1,4}", given.strip()) else 1
