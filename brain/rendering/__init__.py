"""Markdown as HTML that a page may show, block by block. What it is given is untrusted, its HTML is sanitised.

A text that grows is rendered in pieces: all blocks but the last stay as they are, whatever comes behind them, so that
whoever shows it sends only what lies behind the last one that is settled.

What takes too long is not parsed: it comes back as preformatted text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it.token import Token
from markdown_it.utils import EnvType

from brain.rendering.code import CODE_LENGTH, read
from brain.rendering.html import clean, preformatted
from brain.rendering.parsing import NESTING, Markdown
from brain.text import well_formed

__all__ = ["CODE_LENGTH", "TEXT_LENGTH", "Block", "blocks", "read"]

TEXT_LENGTH = 100_000
"""Characters of one text; a longer one is preformatted."""

_LINE_END = re.compile(r"\r\n?|\n")
_HARMLESS = re.compile("(?<=SPECIALIST_REQUEST)［", re.IGNORECASE)
"""Of a marker that is to call nobody. Nobody reads markers in HTML, and not every font has this character."""
_ENDING = ("paragraph_open", "heading_open", "hr", "fence", "blockquote_open", "table_open")
"""Blocks that no line continues which stands behind an empty one."""
_MARKS = re.compile(r"[ \t>]*(?:[-=]+|[*+]|[0-9]+[.)])[ \t]*")
_markdown = Markdown()


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a text.

    Attributes:
        end: where it ends in the text, in UTF-16 code units, as JavaScript counts.
        fence: of code that is still written: it ends at a line of this character, at least as often, and nothing else.
    """

    html: str
    end: int
    fence: str = ""


def blocks(text: str, *, still_open: bool = False) -> list[Block]:
    """The blocks of a text, in their order; the last one ends where the text ends.

    Args:
        still_open: whether more of the text is to come. Then only what nothing can change that comes behind it stands
            in blocks of its own; all the rest is the last one, whose code is not highlighted yet. A definition of a
            reference is the exception: links to it that were settled before stay text.
    """
    text = _HARMLESS.sub("[", well_formed(text))
    if len(text) > TEXT_LENGTH:
        return [Block(clean(preformatted(text)), _units(text))]
    parsed = _begun(text) if still_open else _Parsed(text, still_open=False)
    settled = parsed.settled() if still_open else len(parsed.groups) - 1
    found, units, start = [], 0, 0
    for group in parsed.groups[: max(0, settled)]:
        units, start = units + _units(text[start : parsed.end(group)]), parsed.end(group)
        found.append(Block(clean(parsed.html(group)), units))
    rest = parsed.groups[len(found) :]
    if rest:
        html = "".join(parsed.html(group, colours=not still_open) for group in rest)
        fence = parsed.fence() if still_open else ""
        found.append(Block(clean(html), units + _units(text[start:]), fence))
    return found


def _line_of(token: Token) -> int:
    assert token.map is not None
    return token.map[0]


def _line_behind(token: Token) -> int:
    assert token.map is not None
    return token.map[1]


class _Parsed:
    """A text in tokens, in groups: one for each block that stands in no other."""

    def __init__(self, text: str, *, still_open: bool = False) -> None:
        self._text = text
        self._lines = [0, *(found.end() for found in _LINE_END.finditer(text)), len(text)]
        self._env: EnvType = {"open": still_open}
        self.groups = list(_groups(_markdown.parse(text, self._env)))

    def settled(self) -> int:
        """How many blocks at the beginning no text behind can change.

        The line that has not ended can still become anything, also more of the block before it, or a table with the
        line before it; a formula that is not whole may turn out to be none. So can the last block before those, unless
        it is of a kind that ends at an empty line, and there is one. What is here of the line that has not ended, or is
        the last block, is not settled anyway.
        """
        count = len(self.groups) - 1
        kind = self.groups[count][0].type if count > 0 else ""
        changing = 0 if kind == "formula" else len(self._lines) - (3 if kind == "table_open" else 2)
        if count > 0 and _line_of(self.groups[count][0]) >= changing:
            before = self.groups[count - 1][0]
            count -= before.type not in _ENDING or _line_behind(before) >= _line_of(self.groups[count][0])
        return count

    def end(self, group: Sequence[Token]) -> int:
        """Where it ends in the text."""
        return self._lines[min(_line_behind(group[0]), len(self._lines) - 1)]

    def fence(self) -> str:
        """What closes the code at the end, if that is open; empty until the line of its language has ended."""
        token = self.groups[-1][0]
        if token.type != "fence":
            return ""
        first, behind = _line_of(token), _line_behind(token)
        closed = behind - first - 1 > token.content.count("\n") + (token.content[-1:] not in ("", "\n"))
        begun = self._text[self._lines[first + 1] - 1] in "\r\n"
        return token.markup if begun and not closed else ""

    def html(self, group: Sequence[Token], *, colours: bool = True) -> str:
        """What is shown of it, not sanitised yet."""
        if any(token.nesting == 1 and token.level >= NESTING - 1 for token in group):
            # the parser leaves out what stands deeper
            return preformatted(self._text[self._lines[_line_of(group[0])] : self.end(group)])
        self._env["colours"] = colours
        html = _markdown.renderer.render(group, _markdown.options, self._env)
        assert isinstance(html, str)
        return html


def _begun(text: str) -> _Parsed:
    """A text that goes on. Marks at its end wait for what comes behind them: they may begin an item, or underline."""
    line = max(text.rfind("\n"), text.rfind("\r")) + 1
    if not _MARKS.fullmatch(text, line):
        return _Parsed(text, still_open=True)
    parsed = _Parsed(text[:line], still_open=True)
    in_code = parsed.groups and parsed.groups[-1][0].type == "fence"
    return _Parsed(text, still_open=True) if in_code else parsed


def _groups(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    start = 0
    for place, token in enumerate(tokens, 1):
        if token.level == 0 and token.nesting != 1:
            yield tokens[start:place]
            start = place


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
