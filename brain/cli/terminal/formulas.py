"""Find LaTeX formulas in Markdown, as the page does; the terminal shows their source."""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

FORMULA_LENGTH = 1_000
"""Maximum length of a formula, in characters."""
CLOSING = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
"""Opening and closing delimiters. A single dollar sign is money."""

_EMPTY_LINE = re.compile(r"\n[ \t>]*\n")
_MATHS = re.compile(r"[\\^_=+<>]")


def add_to(parser: MarkdownIt) -> None:
    """Add rules to a parser that produce tokens of the type `formula`."""
    parser.block.ruler.before("fence", "formula", parse_block, {"alt": ["paragraph", "blockquote", "list"]})
    parser.inline.ruler.before("escape", "formula", parse_inline)


def source_of(token: Token) -> str:
    """Return the source of a formula token, with its delimiters."""
    return token.content if token.hidden else f"{token.markup}{token.content}{CLOSING[token.markup]}"


def parse_inline(state: StateInline, silent: bool) -> bool:
    """Parse a formula within a line. Brackets may be a citation instead, dollars a price."""
    text, start = state.src, state.pos + 2
    opening = text[state.pos : start]
    closing = CLOSING.get(opening)
    end = text.find(closing, start, start + FORMULA_LENGTH + 2) if closing else -1
    latex = text[start:end]
    if end < 0 or not latex.strip():
        return False
    before, after = text[:start].rpartition("\n")[2], text[end + 2 :].partition("\n")[0]
    if opening == "$$":
        is_alone = before.strip() == "$$" and not after.strip()
        if not is_alone and (latex != latex.strip() or after[:1] == "$" or after[:1].isalnum()):
            return False
    elif before[-1] == "[" and not _MATHS.search(latex):
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.markup = latex, opening
    state.pos = end + 2
    return True


def parse_block(state: StateBlock, startLine: int, endLine: int, silent: bool) -> bool:
    """Parse a formula on separate lines, without empty lines.

    In an unfinished text the closing delimiter may come later. Until then the token is `hidden`.
    """
    text, start = state.src, state.bMarks[startLine] + state.tShift[startLine]
    opening = text[start : start + 2]
    if opening not in ("\\[", "$$") or state.is_code_block(startLine):
        return False
    end = text.find(CLOSING[opening], start + 2, start + FORMULA_LENGTH + 4)
    is_closed = end >= 0
    if is_closed:
        stop = text.find("\n", end + 2)
        stop = len(text) if stop < 0 else stop
        if text[end + 2 : stop].strip():  # text follows the formula
            return False
    elif state.env.get("open") and state.level == 0 and len(text) - start <= FORMULA_LENGTH:
        stop = len(text.rstrip())
    else:
        return False
    line = startLine  # of the end
    while line < endLine and state.sCount[line] >= state.blkIndent and state.eMarks[line] < stop:
        line += 1
    if line == endLine or state.sCount[line] < state.blkIndent:  # the surrounding block ends before
        return False
    content = state.getLines(startLine, line + 1, state.blkIndent, False).strip()
    latex = content[2:-2] if is_closed else content
    if not latex.strip() or _EMPTY_LINE.search(text, start, stop):
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.markup, token.block, token.hidden = latex, opening, is_closed, not is_closed
        token.map = [startLine, line + 1]
        state.line = line + 1
    return True
