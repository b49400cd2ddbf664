"""Find LaTeX formulas in Markdown, as the page does, so that the terminal shows them as written."""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

FORMULA_LENGTH = 1_000
"""Characters of one formula; a longer one is no formula."""
CLOSING = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
"""Opening and closing delimiters. A single dollar is money."""

_EMPTY_LINE = re.compile(r"\n[ \t>]*\n")
_MATHS = re.compile(r"[\\^_=+<>]")


def add_to(parser: MarkdownIt) -> None:
    """Add rules to a parser that produce tokens of the type `formula`."""
    parser.block.ruler.before("fence", "formula", block, {"alt": ["paragraph", "blockquote", "list"]})
    parser.inline.ruler.before("escape", "formula", inline)


def source_of(token: Token) -> str:
    """The source of a formula token, with its delimiters."""
    return token.content if token.hidden else f"{token.markup}{token.content}{CLOSING[token.markup]}"


def inline(state: StateInline, silent: bool) -> bool:
    """Parse a formula within a line."""
    opening = state.src[state.pos : state.pos + 2]
    closing = CLOSING.get(opening)
    start = state.pos + 2
    end = state.src.find(closing, start, start + FORMULA_LENGTH + 2) if closing else -1
    if end < 0 or not _is_formula(state.src, start, end):
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.markup = state.src[start:end], opening
    state.pos = end + 2
    return True


def _is_formula(text: str, start: int, end: int) -> bool:
    """Whether the text is a formula. Brackets may be a citation, dollars a price."""
    latex, before, after = text[start:end], text[:start].rpartition("\n")[2], text[end + 2 :].partition("\n")[0]
    if text[end] == "$" and not (before.strip() == "$$" and not after.strip()):
        return bool(latex) and latex == latex.strip() and not (after[:1] == "$" or after[:1].isalnum())
    return bool(latex.strip() and (before[-1] != "[" or _MATHS.search(latex)))


def block(state: StateBlock, startLine: int, endLine: int, silent: bool) -> bool:
    """Parse a formula on lines of its own, without empty lines.

    In an open text the formula may be closed later. Until then its token is `hidden`.
    """
    start = state.bMarks[startLine] + state.tShift[startLine]
    opening = state.src[start : start + 2]
    if opening not in ("\\[", "$$") or state.is_code_block(startLine):
        return False
    end = state.src.find(CLOSING[opening], start + 2, start + FORMULA_LENGTH + 4)
    stop = _unclosed(state, start) if end < 0 else _line_end(state.src, end + 2)
    line = _next_line(state, startLine, endLine, stop)
    content = state.getLines(startLine, line, state.blkIndent, False).strip() if line else ""
    latex = content if end < 0 else content[2:-2]
    if not latex.strip() or _EMPTY_LINE.search(state.src, start, stop):
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.markup, token.block, token.hidden = latex, opening, end >= 0, end < 0
        token.map = [startLine, line]
        state.line = line
    return True


def _unclosed(state: StateBlock, start: int) -> int:
    """The end of an unfinished formula; -1 if there is none."""
    short = len(state.src) - start <= FORMULA_LENGTH
    return len(state.src.rstrip()) if state.env.get("open") and state.level == 0 and short else -1


def _line_end(text: str, end: int) -> int:
    """The end of the line on which a formula ends; -1 when text follows it."""
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    return stop if not text[end:stop].strip() else -1


def _next_line(state: StateBlock, line: int, endLine: int, stop: int) -> int:
    """The line after this end; 0 when the surrounding block ends before."""
    while line < endLine and state.sCount[line] >= state.blkIndent and state.eMarks[line] < stop:
        line += 1
    return line + 1 if stop >= 0 and line < endLine and state.sCount[line] >= state.blkIndent else 0
