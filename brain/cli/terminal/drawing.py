"""What is drawn in a terminal, as lines of text with its colours; the one place where they are made."""

from collections.abc import Sequence
from typing import NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment, SegmentLines
from rich.text import Text
from rich.theme import Theme

from brain.cli.terminal.size import NARROWEST, size_of

_THEME = Theme({"markdown.code": "bold cyan", "markdown.h1": "bold underline", "markdown.h2": "bold"})
"""No colours behind letters, and none that a light or a dark terminal would swallow."""


class Line(NamedTuple):
    """One line, as it is written; `cells` that it takes, `letters` that are no space."""

    written: str
    cells: int
    letters: int


BLANK = Line("", 0, 0)


class Drawing:
    """Draws for a terminal. Its size is asked for each time, since it may change."""

    def __init__(self, out: TextIO) -> None:
        self._fd = out.fileno()
        self._console = Console(file=out, force_terminal=True, highlight=False, markup=False, emoji=False, theme=_THEME)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal."""
        return size_of(self._fd)

    @property
    def width(self) -> int:
        """Columns that a line may take: one is left, or the cursor would stand between two lines."""
        return max(self.size[0], NARROWEST) - 1

    def lines(self, drawn: RenderableType, width: int | None = None) -> list[Line]:
        """Draws something in lines that are no wider than this."""
        width = width or self.width
        self._console.width = width
        options = self._console.options.update(width=width, height=None)
        shown = [_trimmed(line) for line in self._console.render_lines(drawn, options, pad=False)]
        with self._console.capture() as captured:
            self._console.print(SegmentLines(shown, new_lines=True), end="", soft_wrap=True)
        return [_line(line, written) for line, written in zip(shown, captured.get().split("\n"), strict=False)]

    def one(self, text: Text) -> Line:
        """Draws a text in one line, cut where the terminal ends."""
        text.truncate(self.width, overflow="ellipsis")
        return self.lines(text)[0]


def _trimmed(line: Sequence[Segment]) -> list[Segment]:
    """Without the spaces at its end, which would be copied with it."""
    shown = [segment for segment in line if not segment.control]
    while shown and not shown[-1].text.rstrip():
        shown.pop()
    return [*shown[:-1], Segment(shown[-1].text.rstrip(), shown[-1].style)] if shown else []


def _line(line: Sequence[Segment], written: str) -> Line:
    text = "".join(segment.text for segment in line)
    return Line(written, cell_len(text), len("".join(text.split())))
