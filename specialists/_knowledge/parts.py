"""What readers of files are given and what they give: a source, its parts, and tables in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ROWS_MOST = 20_000
COLUMNS_MOST = 60
_CELL_LENGTH = 500


class Unreadable(Exception):
    """Why a file cannot be read, in words for people."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a file; `place` says where it is, such as `page=3`, `slide=2` or `sheet=Sales`."""

    text: str
    heading: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What could not be read of a file of which other parts could."""

    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A file to be read.

    Attributes:
        language: of scanned pages.
        busy: called with what is being done and how many seconds that may take.
    """

    name: str
    data: bytes
    language: str = "en"
    busy: Callable[[str, float], None] = lambda what, seconds: None


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first one is its header."""
    width = max(map(len, rows), default=0)
    if not width:
        return ""
    lines = ["| " + " | ".join([*map(_cell, row), *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])


def _cell(text: str) -> str:
    return " ".join(text[: _CELL_LENGTH * 2].split()).replace("|", "\\|")[:_CELL_LENGTH]
