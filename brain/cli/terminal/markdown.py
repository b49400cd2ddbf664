"""Render Markdown in a terminal, block by block. All text stays visible, also in unknown syntax."""

import re
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from itertools import takewhile
from typing import ClassVar, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.containers import Renderables
from rich.markdown import (
    BlockQuote,
    CodeBlock,
    Heading,
    ListElement,
    ListItem,
    Markdown,
    MarkdownContext,
    MarkdownElement,
    TableElement,
)
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from brain.cli.terminal import formulas
from brain.cli.terminal.sanitize import legible

MAX_LEVELS = 12
"""Maximum nesting of lists and quotes; deeper blocks stay plain text."""
CODE_INDENT = 4
COLUMN_WIDTH = 6
"""Minimum width of a column; narrower tables stay plain text."""
MAX_CELLS, MAX_BRACKETS = 2_000, 1_000
"""Limits of a table and of a text; larger ones stay plain text, because each redraw renders them."""
CODE_LENGTH = 8_000
"""Maximum length of highlighted code, in characters."""
GAP = 3
"""Cells between two columns."""
_NESTING = 100  # the parser drops deeper blocks, so this is far above MAX_LEVELS
_SLOW = re.compile(r"\n{20}|[^\n]{300}")
"""Code for which lexers need quadratic time."""
_HIGHLIGHTED = (
    "bash c c++ cpp cs csharp css diff docker dockerfile go golang graphql html java javascript js json kotlin kt lua "
    "nginx perl php powershell ps1 py python r rb rs ruby rust scala sh shell sql swift toml ts typescript xml yaml yml"
)
"""Languages with a fast lexer, which are highlighted."""


class Block(NamedTuple):
    """A top-level part of a text: a paragraph, a list, a table.

    Attributes:
        first: Its first line in the text.
        last: The line after its last one.
    """

    first: int
    last: int
    tokens: Sequence[Token]

    @property
    def is_uncertain(self) -> bool:
        """True for an unfinished formula, which may belong to the block before."""
        return self.tokens[0].type == "formula" and self.tokens[0].hidden


def blocks_of(text: str, *, still_open: bool = False) -> list[Block]:
    """Split a text into blocks. Lines between two blocks are blank.

    Args:
        still_open: True if more text may follow, which could close a formula.
    """
    blocks: list[Block] = []
    opened: list[Token] = []
    for token in _parser().parse(text, {"open": still_open}):
        opened.append(token)
        if token.level == 0 and token.nesting <= 0:
            first, last = opened[0].map or (0, 0)
            blocks.append(Block(first, last, opened))
            opened = []
    return blocks


def render(block: Block, source: str, *, style: str = "none") -> RenderableType:
    """Render a block; `source` is its own text."""
    if max(token.level for token in block.tokens) > MAX_LEVELS:
        return Text(legible(source).rstrip(), style=style)
    rendered = copy(_empty(style))
    rendered.parsed = [*_prepare(block.tokens)]
    return rendered


def fence_of(block: Block) -> str:
    """Return the opening line of a code block; empty for other blocks."""
    token = block.tokens[0]
    return f"{token.markup}{token.info}\n" if token.type == "fence" else ""


@cache
def _parser() -> MarkdownIt:
    """Return the parser. Link references stay text, because their definition may come later."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _NESTING})
    parser.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    parser.core.ruler.at("inline", _inline)
    formulas.add_to(parser)
    return parser.enable(["strikethrough", "table"]).disable("reference")


def _table(state: StateBlock, startLine: int, endLine: int, silent: bool) -> bool:
    """Parse a table, unless the parser would have to add many cells to it."""
    if not table(state, startLine, endLine, True):
        return False
    counts = [state.src.count("|", state.bMarks[line], state.eMarks[line]) for line in range(startLine, endLine)]
    missing = sum(max(0, counts[0] - 2 - count) for count in counts[2:])
    return silent or (missing <= MAX_CELLS and table(state, startLine, endLine, False))


def _inline(state: StateCore) -> None:
    """Parse inline text; after too many brackets keep it as text, because each makes the parser look ahead."""
    brackets = 0
    for token in state.tokens:
        if token.type == "inline":
            brackets += token.content.count("[")
            token.children = []
            if brackets <= MAX_BRACKETS:
                state.md.inline.parse(token.content, state.md, state.env, token.children)
            else:
                token.children.append(Token("text", "", 0, content=token.content))


def _prepare(tokens: Sequence[Token]) -> Iterator[Token]:
    """Prepare tokens for rich: no control characters, URLs after link labels, line breaks kept."""
    has_address: list[bool] = []
    for position, token in enumerate(tokens):
        token.content = legible(token.content)
        if token.type == "link_open":
            label = takewhile(lambda inner: inner.type != "link_close", tokens[position + 1 :])
            has_address.append("".join(inner.content for inner in label) != token.attrs["href"])
            if not has_address[-1]:
                continue
        elif token.type == "link_close" and not has_address.pop():
            continue
        elif token.type == "image":
            token = Token("text", "", 0, content=f"{token.content or 'image'} ({token.attrs['src']})")
        elif token.type == "formula":  # its source is shown; a block formula becomes a paragraph
            text = Token("text", "", 0, content=formulas.source_of(token))
            if not (token.block or token.hidden):
                yield text
                continue
            yield Token("paragraph_open", "p", 1)
            yield Token("inline", "", 0, children=[text])
            token = Token("paragraph_close", "p", -1)
        elif token.type == "softbreak":
            token.type = "hardbreak"
        elif token.children:
            token.children = [*_prepare(token.children)]
        yield token


class _Code(CodeBlock):
    """Indented code."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        slow = self.lexer_name not in _HIGHLIGHTED.split() or len(code) > CODE_LENGTH or _SLOW.search(code)
        lexer = "text" if slow else self.lexer_name
        text = Syntax("", lexer, theme=self.theme, background_color="default", word_wrap=True).highlight(code)
        text.rstrip()
        text.overflow = "fold"
        yield Padding(text, (0, 0, 0, CODE_INDENT))


class _Spaced(MarkdownElement):
    """A container with a blank line between its parts, except before a list."""

    elements: Renderables
    _has_parts = False

    def on_child_close(self, context: MarkdownContext, child: MarkdownElement) -> bool:
        """Add a part."""
        if self._has_parts and not isinstance(child, ListElement):
            self.elements.append(Text())
        self._has_parts = True
        self.elements.append(child)
        return False


class _Quote(_Spaced, BlockQuote):
    """A quote."""


class _Item(_Spaced, ListItem):
    """An item of a list."""


class _Heading(Heading):
    """A heading, aligned left."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _Table(TableElement):
    """A table that never cuts a cell."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        header = self.header.row.cells if self.header is not None and self.header.row is not None else []
        rows = self.body.rows if self.body is not None else []
        if len(header) * COLUMN_WIDTH > options.max_width or len(header) * len(rows) > MAX_CELLS:
            yield from (
                Text(" | ").join(cell.content for cell in cells) for cells in (header, *(r.cells for r in rows))
            )
            return
        columns = zip(header, *(row.cells for row in rows), strict=True)
        words = [[word for cell in column for word in cell.content.plain.split()] for column in columns]
        widths = [max(map(cell_len, column), default=1) for column in words]
        if rows and sum(widths) + GAP * (len(widths) - 1) > options.max_width:
            for n, row in enumerate(rows):  # one line per cell, after the heading of its column
                if n:
                    yield Text()
                for head, cell in zip(header, row.cells, strict=True):
                    line = Text.assemble(head.content, ": ") if head.content.plain.strip() else Text()
                    line.stylize("markdown.table.header")
                    yield line.append_text(cell.content)
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, style="markdown.table.border", show_edge=False)
        for cell, width in zip(header, widths, strict=True):
            heading = cell.content.copy()
            heading.stylize("markdown.table.header")
            table.add_column(heading, overflow="fold", justify=cell.justify, min_width=width)
        for row in rows:
            table.add_row(*(cell.content for cell in row.cells))
        yield table


class _Markdown(Markdown):
    """Markdown with these elements."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = Markdown.elements | {
        "blockquote_open": _Quote,
        "list_item_open": _Item,
        "fence": _Code,
        "code_block": _Code,
        "heading_open": _Heading,
        "table_open": _Table,
    }


@cache
def _empty(style: str) -> _Markdown:
    """Return an empty document in the terminal's colors. It is cached, because each one builds an unused parser."""
    return _Markdown("", code_theme="ansi_dark", hyperlinks=False, style=style)
