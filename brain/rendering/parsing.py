"""Markdown in tokens: CommonMark, with tables, strikethrough, task lists and bare links; raw HTML is text."""

from functools import partial

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_core import StateCore, linkify
from markdown_it.token import Token

from brain.rendering import formulas
from brain.rendering.html import Html
from brain.rendering.links import ADDRESS_LENGTH, Links, leads_somewhere
from brain.rendering.unfinished import bold, last_words, without_marks

NESTING = 40
"""Levels; a list takes two. The parser leaves out what stands deeper."""
MISSING_CELLS = 2_000
"""Cells that the rows of tables lack, in a text: each is added, and costs more than the row."""
BRACKETS_MOST = 4_000
"""That may begin links or images, in a text: each makes the parser look ahead. Lines behind them are plain."""
HEADING_TOP, HEADING_MOST = 3, 6
"""The first two levels belong to the page."""


class Markdown(MarkdownIt):
    """The parser."""

    def __init__(self) -> None:
        super().__init__("commonmark", renderer_cls=Html)
        self.enable(["table", "strikethrough", "linkify"]).disable(["html_inline", "html_block"])
        formulas.add_to(self)
        self.inline.ruler.disable("linkify")  # takes the square of a text's length; the one for what was parsed does
        self.inline.ruler2.after("balance_pairs", "unfinished", bold)
        bounded(self)
        self.options.update(html=False, linkify=True, breaks=True, tasklists=True, maxNesting=NESTING)
        assert self.linkify is not None
        self.linkify.set({"fuzzy_link": False, "fuzzy_email": False})  # main.py and README.md are no hosts
        self.linkify.add("//", None).add("ftp:", None)
        self.core.ruler.at("linkify", _linkify)
        self.core.ruler.push("shown", _shown)

    def validateLink(self, url: str) -> bool:
        """Whether a link may lead there; what leads elsewhere stays text."""
        return leads_somewhere(url)

    def normalizeLinkText(self, link: str) -> str:
        """A bare link as it was written: decoded, it could look like another."""
        return link


def bounded(parser: MarkdownIt, brackets: int = BRACKETS_MOST) -> None:
    """Has a parser leave as text what would take it long and nobody writes."""
    parser.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    parser.core.ruler.at("inline", partial(_inline, most=brackets))


def _table(state: StateBlock, startLine: int, endLine: int, silent: bool) -> bool:
    """The parser's rule, but for tables that many cells would have to be added to; their lines stay text."""
    if startLine < state.env.get("tables_from", 0) or not table(state, startLine, endLine, True):
        return False
    if not silent:
        wide, missing = _pipes(state, startLine) - 2, state.env.get("missing", 0)
        for line in range(startLine + 2, endLine):
            missing += max(0, wide - _pipes(state, line))
            if missing > MISSING_CELLS:
                state.env["tables_from"] = line
                return False
            if state.isEmpty(line):
                break
        state.env["missing"] = missing
    return silent or table(state, startLine, endLine, False)


def _pipes(state: StateBlock, line: int) -> int:
    return state.src.count("|", state.bMarks[line], state.eMarks[line])


def _inline(state: StateCore, most: int) -> None:
    """The parser's rule, but for lines behind more brackets than anybody writes."""
    brackets, last = 0, last_words(state)
    if last:
        last.content = without_marks(last.content)
    for token in state.tokens:
        if token.type == "inline":
            state.env["ends"] = token is last
            brackets += token.content.count("[")
            token.children = []
            if brackets <= most:
                state.md.inline.parse(token.content, state.md, state.env, token.children)
            else:
                token.children.append(Token("text", "", 0, content=token.content))


def _linkify(state: StateCore) -> None:
    """The parser's rule, but for lines with words that no address is as long as: it reads them again and again."""
    short = [token for token in state.tokens if all(len(word) <= ADDRESS_LENGTH for word in token.content.split())]
    linkify(StateCore(state.src, state.md, state.env, short))


def _shown(state: StateCore) -> None:
    """Goes over what was parsed: headings below the page's own, no styles, links that say where they lead."""
    links = Links(len(state.src))
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + HEADING_TOP - 1, HEADING_MOST)}"
        elif token.type in ("th_open", "td_open"):
            _align(token)
        elif token.type == "inline" and token.children:
            token.children = list(links.honest(token.children))


def _align(cell: Token) -> None:
    """By a class: a style would be in the way of the page's policy."""
    style = cell.attrs.pop("style", None)
    if style is not None:
        cell.attrs["class"] = str(style).removeprefix("text-align:")
