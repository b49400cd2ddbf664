"""What readers of files return."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_PADDED = 60
"""Maximum number of cells to which the rows of a table are made equal."""
DAMAGED = "is damaged or has the wrong extension"


class Unreadable(Exception):
    """Why a file cannot be read, for people."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file; `place` is `page=3`, `slide=2`, `sheet=Sales` or empty."""

    text: str
    heading: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with one part of a file; other parts may be readable."""

    text: str


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read.

    Attributes:
        language: of scanned pages.
        announce: called with the CPU seconds that the next step may take.
    """

    name: str
    data: bytes
    language: str = "en"
    announce: Callable[[float], None] = lambda seconds: None


def make_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table; the first row is the header."""
    width = max(map(len, rows), default=0)
    if not width:
        return ""
    lines = []
    for row in rows:
        cells = [" ".join(text.split()).replace("|", "\\|") for text in row]
        lines.append("| " + " | ".join([*cells, *[""] * (min(width, MAX_PADDED) - len(row))]) + " |")
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])
