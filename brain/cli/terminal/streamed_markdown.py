"""Turn streamed Markdown into lines for a terminal: finished blocks once, the open block each time."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TextIO

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from brain.cli.terminal.markdown import Block, blocks_of, fence_of, render

MIN_WIDTH = 24
"""Minimum width of a terminal for the live display, in columns."""
MAX_OPEN_LENGTH = 8_192
"""Maximum length of an open block, in characters; a longer one is finished in parts."""
_THEME = Theme({"markdown.code": "bold cyan", "markdown.h1": "bold underline", "markdown.h2": "bold"})
"""Colours that are readable on light and dark backgrounds."""

Line = list[Segment]


def open_console(out: TextIO) -> Console:
    """Return a console for model output, without rich markup."""
    return Console(file=out, force_terminal=True, highlight=False, markup=False, emoji=False, theme=_THEME)


def line_width(console: Console) -> int:
    """Return the maximum width of a line. The last column stays free: a cursor after it would be between two lines."""
    return max(console.width, MIN_WIDTH) - 1


def render_lines(console: Console, content: RenderableType) -> list[Line]:
    """Render content as lines without trailing spaces."""
    options = console.options.update(width=line_width(console), height=None)
    return [_strip_end(line) for line in console.render_lines(content, options, pad=False)]


def render_line(console: Console, text: Text) -> Line:
    """Render a text as one line, cut at the end of the window."""
    text.truncate(line_width(console), overflow="ellipsis")
    return render_lines(console, text)[0]


def _strip_end(line: Line) -> Line:
    visible = [segment for segment in line if not segment.control]
    while visible and not visible[-1].text.rstrip():
        visible.pop()
    return [*visible[:-1], Segment(visible[-1].text.rstrip(), visible[-1].style)] if visible else []


def _count_letters(line: Line) -> int:
    """Return the number of characters that are not spaces."""
    return sum(len("".join(segment.text.split())) for segment in line)


class StreamedMarkdown:
    """Markdown that grows.

    If an open block is higher than the window, its first lines scroll away. They are finished and never change, even if
    later text changes the block.
    """

    def __init__(self, console: Console, *, style: str = "none") -> None:
        self._console = console
        self._style = style
        self._text = ""  # without the finished blocks
        self._fence = ""  # the opening line of the code block that `_text` continues
        self._needs_gap = False  # whether a blank line separates the next block
        self._finished_lines = 0  # of the open block
        self._finished_letters = 0  # in these lines
        self._width = line_width(console)

    def add(self, text: str) -> None:
        """Append text."""
        self._text += text.replace("\r", "")

    def take_lines(self, max_open_lines: int) -> tuple[list[Line], list[Line]]:
        """Return the lines finished since the last call, and the open lines."""
        finished = self._finish_excess()
        blocks, source = self._parse()
        complete = len(source) - 1
        count = sum(1 for _, next_one in pairwise(blocks) if next_one.first < complete and not next_one.is_uncertain)
        finished += self._finish(blocks[:count], source)
        if not blocks:
            return finished, []
        if count:
            self._text, self._fence = "\n".join(source[blocks[count].first :]), ""
        lines = self._remaining_lines(blocks[count], source)
        following = [line for block in blocks[count + 1 :] for line in ([], *self._render(block, source))]
        excess = min(len(lines), max(0, len(lines) + len(following) - max(1, max_open_lines)))
        self._finished_lines += excess
        self._finished_letters += sum(map(_count_letters, lines[:excess]))
        return finished + lines[:excess], lines[excess:] + following

    def end(self) -> list[Line]:
        """Finish the text and return its last lines. Further text is another document."""
        lines = self._finish_excess()
        lines += self._finish(*self._parse(is_open=False))
        self._text = self._fence = ""
        self._needs_gap = False
        return lines

    def _finish_excess(self) -> list[Line]:
        """Finish the beginning of a text that is too long for repeated rendering."""
        lines: list[Line] = []
        while len(self._text) > MAX_OPEN_LENGTH:
            end = (
                self._text.rfind("\n", 0, MAX_OPEN_LENGTH) + 1
                or self._text.rfind(" ", 0, MAX_OPEN_LENGTH) + 1
                or MAX_OPEN_LENGTH
            )
            blocks, source = self._parse(end)
            if len(blocks) > 1:
                lines += self._finish(blocks[:-1], source)
                rest = [*source[blocks[-1].first : -1], source[-1] + self._text[end:]]
                self._text, self._fence = "\n".join(rest), ""
            else:
                lines += self._finish(blocks, source)
                self._fence = fence_of(blocks[0]) if blocks else ""
                self._text, self._needs_gap = self._text[end:], False
        return lines

    def _parse(self, end: int | None = None, *, is_open: bool = True) -> tuple[list[Block], list[str]]:
        """Return the blocks of the text up to `end`, and its lines."""
        text = self._fence + self._text[:end]
        return blocks_of(text, still_open=is_open), text.split("\n")

    def _finish(self, blocks: Sequence[Block], source: Sequence[str]) -> list[Line]:
        lines: list[Line] = []
        for block in blocks:
            lines += self._remaining_lines(block, source)
            self._finished_lines = self._finished_letters = 0
            self._needs_gap = True
        return lines

    def _remaining_lines(self, block: Block, source: Sequence[str]) -> list[Line]:
        """Return the unfinished lines of the first block. After a resize, count letters to find them."""
        lines = [*([[]] if self._needs_gap else []), *self._render(block, source)]
        width = line_width(self._console)
        if width != self._width and self._finished_lines:
            letters, self._finished_lines = self._finished_letters, 0
            for line in lines:
                letters -= _count_letters(line)
                if letters < 0:
                    break
                self._finished_lines += 1
        self._width = width
        return lines[self._finished_lines :]

    def _render(self, block: Block, source: Sequence[str]) -> list[Line]:
        text = "\n".join(source[block.first : block.last])
        lines = render_lines(self._console, render(block, text, style=self._style))
        while lines and not lines[-1]:
            lines.pop()
        while lines and not _count_letters(lines[0]):
            lines.pop(0)
        return lines
