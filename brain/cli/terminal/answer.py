"""An answer while it is written: blocks that are settled are given out for good, the open one is drawn anew."""

from collections.abc import Sequence
from itertools import pairwise

from brain.cli.terminal.drawing import BLANK, Drawing, Line
from brain.cli.terminal.markdown import Block, blocks_of, fence_of, render

OPEN_MOST = 8_192
"""Characters of a block that is drawn as a whole; what is longer is settled in parts."""


class Answer:
    """Text that grows, as lines.

    Of an open block that is higher than the window, the lines that have left it are given out, too: they stay as they
    are, whatever becomes of the block.
    """

    def __init__(self, drawing: Drawing, *, style: str = "none") -> None:
        self._drawing = drawing
        self._style = style
        self._text = ""  # of what is not settled
        self._fence = ""  # how the code began of which this is the rest
        self._apart = False  # whether a blank line is due before the next block
        self._out = 0  # lines of the open block that were given out
        self._letters = 0  # in these
        self._width = drawing.width

    def add(self, text: str) -> None:
        """Takes what was written."""
        self._text += text.replace("\r", "")

    @property
    def empty(self) -> bool:
        """Whether nothing is open."""
        return not self._text.strip()

    def drawn(self, room: int) -> tuple[list[Line], list[Line]]:
        """What is settled since it was asked last, and what is open and fits into so many lines."""
        settled = self._shortened()
        blocks, source = self._blocks()
        complete = len(source) - 1
        over = sum(1 for _, next_one in pairwise(blocks) if next_one.first < complete and not next_one.is_uncertain)
        settled += self._settled(blocks[:over], source)
        if not blocks:
            return settled, []
        if over:
            self._go_on(source[blocks[over].first :])
        lines = self._lines(blocks[over], source)
        behind = [line for block in blocks[over + 1 :] for line in (BLANK, *self._whole(block, source))]
        leaving = min(len(lines), max(0, len(lines) + len(behind) - max(1, room)))
        return settled + self._given(lines[:leaving]), lines[leaving:] + behind

    def end(self) -> list[Line]:
        """The rest of it; what comes behind is another text."""
        lines = self._shortened()
        lines += self._settled(*self._blocks(still_open=False))
        self._text = self._fence = ""
        self._apart = False
        return lines

    def _shortened(self) -> list[Line]:
        """Settles the beginning of a text that is too long to be drawn again and again."""
        lines: list[Line] = []
        while len(self._text) > OPEN_MOST:
            place = self._text.rfind("\n", 0, OPEN_MOST) + 1 or self._text.rfind(" ", 0, OPEN_MOST) + 1 or OPEN_MOST
            blocks, source = self._blocks(place)
            if len(blocks) > 1:
                lines += self._settled(blocks[:-1], source)
                self._go_on([*source[blocks[-1].first : -1], source[-1] + self._text[place:]])
            else:
                lines += self._settled(blocks, source)
                self._fence = fence_of(blocks[0]) if blocks else ""
                self._text, self._apart = self._text[place:], False
        return lines

    def _blocks(self, end: int | None = None, *, still_open: bool = True) -> tuple[list[Block], list[str]]:
        """The blocks of the text as far as here, and its lines."""
        text = self._fence + self._text[:end]
        return blocks_of(text, still_open=still_open), text.split("\n")

    def _go_on(self, source: Sequence[str]) -> None:
        """Holds no more of the text than these lines."""
        self._text, self._fence = "\n".join(source), ""

    def _settled(self, blocks: Sequence[Block], source: Sequence[str]) -> list[Line]:
        lines: list[Line] = []
        for block in blocks:
            lines += self._lines(block, source)
            self._out = self._letters = 0
            self._apart = True
        return lines

    def _given(self, lines: list[Line]) -> list[Line]:
        self._out += len(lines)
        self._letters += sum(line.letters for line in lines)
        return lines

    def _lines(self, block: Block, source: Sequence[str]) -> list[Line]:
        """The lines of the first block that were not given out."""
        lines = [*([BLANK] if self._apart else []), *self._whole(block, source)]
        width = self._drawing.width
        if width != self._width and self._out:
            self._out = _place(lines, self._letters)
        self._width = width
        return lines[self._out :]

    def _whole(self, block: Block, source: Sequence[str]) -> list[Line]:
        own = "\n".join(source[block.first : block.last])
        lines = self._drawing.lines(render(block, own, style=self._style))
        while lines and not lines[-1].letters:
            lines.pop()
        while lines and not lines[0].letters:
            lines.pop(0)
        return lines


def _place(lines: list[Line], letters: int) -> int:
    """How many lines hold so many letters: where a block goes on whose lines have another width now."""
    for place, line in enumerate(lines):
        if letters < line.letters:
            return place
        letters -= line.letters
    return len(lines)
