"""The tables of a wiki page: boxes of facts as a list, data as Markdown."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from specialists._wiki.inline import classes, is_read, text

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

ROWS_MOST = 400
COLUMNS_MOST = 30
FACTS_MOST = 60
FACT_LENGTH = 300
_BOXES = ("infobox", "sinottico", "taxobox")
"""What the class or id of a box of facts holds, in English, Italian and others."""


def is_box(node: "LexborNode") -> bool:
    """Whether this is a page's box of facts."""
    if "portable-infobox" in classes(node):
        return True
    named = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}".lower()
    return node.tag in ("table", "div") and any(box in named for box in _BOXES)


def facts(box: "LexborNode", depth: int) -> list[str]:
    """A box of facts, a line each; group headings keep their place."""
    found = _portable(box, depth) if "portable-infobox" in classes(box) else _rowed(box, depth)
    lines = [(label, value) for label, value in found if label]
    kept = [  # a heading of a group, unless the next one follows at once
        f"- {label}: {value}" if value else f"{label}:"
        for (label, value), following in zip(lines, [*lines[1:], ("", "")], strict=True)
        if value or following[1]
    ]
    return kept[:FACTS_MOST]


def _rowed(box: "LexborNode", depth: int) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(rows(box)):
        parts = [_short(cell, depth) for cell in row]
        if len(parts) >= 2 and parts[1]:
            yield parts[0].removeprefix("•").strip().rstrip(":"), " | ".join(filter(None, parts[1:]))
        elif len(parts) == 1 and row[0].tag == "th" and number:  # the first one is the page's title
            yield parts[0], ""


def _portable(box: "LexborNode", depth: int) -> Iterator[tuple[str, str]]:
    """Fandom's."""
    for node in box.css(".pi-header, .pi-data")[:ROWS_MOST]:
        label, value = node.css_first(".pi-data-label"), node.css_first(".pi-data-value")
        if "pi-data" not in classes(node):
            yield _short(node, depth), ""
        elif value is not None:
            yield _short(label, depth) if label is not None else "–", _short(value, depth)


def _short(node: "LexborNode", depth: int) -> str:
    line = " ".join(text(node, depth).removeprefix(";").split())
    return line if len(line) <= FACT_LENGTH else line[: FACT_LENGTH - 1] + "…"


def is_data(table: "LexborNode") -> bool:
    """Whether a table holds data rather than a layout."""
    if table.attributes.get("role") == "presentation":
        return False
    plain = table.css_first("table table") is None
    return "wikitable" in classes(table) or (plain and table.css_first("th") is not None)


def rows(table: "LexborNode") -> list[list["LexborNode"]]:
    """The cells of the table's own rows."""
    found = []
    for part in table.iter():
        lines = part.iter() if part.tag in ("thead", "tbody", "tfoot") else (part,)
        found += [
            [cell for cell in line.iter() if cell.tag in ("td", "th")]
            for line in lines
            if line.tag == "tr" and is_read(line)
        ]
    return found[:ROWS_MOST]


def markdown(table: "LexborNode", depth: int) -> str:
    """A table of data; a cell over several rows or columns is repeated in each."""
    grid = _grid(table, depth)
    width = max(map(len, grid), default=0)
    lines = [_line([*row, *[""] * (width - len(row))]) for row in grid if any(row)]
    if not lines:
        return ""
    caption = table.css_first("caption")
    title = [f"{text(caption, depth)}:", ""] if caption is not None and text(caption, depth) else []
    return "\n".join([*title, lines[0], "|" + " --- |" * width, *lines[1:]])


def _grid(table: "LexborNode", depth: int) -> list[list[str]]:
    grid = []
    hanging: dict[int, tuple[int, str]] = {}  # column: rows that a cell from above still covers, its text
    for cells in rows(table):
        row: list[str] = []
        for cell in cells:
            _hang(row, hanging)
            words, down = _short(cell, depth), _span(cell, "rowspan", ROWS_MOST)
            for _ in range(_span(cell, "colspan", COLUMNS_MOST)):
                if down > 1:
                    hanging[len(row)] = (down - 1, words)
                row.append(words)
            if len(row) >= COLUMNS_MOST:
                break
        _hang(row, hanging)
        grid.append(row[:COLUMNS_MOST])
    return grid


def _hang(row: list[str], hanging: dict[int, tuple[int, str]]) -> None:
    """Puts in what cells of rows above cover from here on."""
    while len(row) in hanging:
        left, words = hanging.pop(len(row))
        if left > 1:
            hanging[len(row)] = (left - 1, words)
        row.append(words)


def _span(cell: "LexborNode", name: str, most: int) -> int:
    said = (cell.attributes.get(name) or "").strip()
    return max(1, min(int(said), most)) if said.isdecimal() and len(said) < 6 else 1


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
