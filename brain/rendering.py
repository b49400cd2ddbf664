"""Wing: Markdown as HTML that a page may show, block by block. What it is given is untrusted, its HTML is sanitised.

A text that grows is rendered in pieces: all blocks but the last stay as they are, whatever comes behind them, so that
whoever shows it sends only what lies behind the last one that is settled.

What takes too long is not parsed: it comes back as preformatted text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES

from brain.unicode import seen, well_formed

TEXT_LENGTH = 200_000
"""Characters of one text; a longer one is preformatted."""
NESTING = 40
"""Levels of blocks; a list is two of them. What is nested deeper is preformatted."""
CODE_LENGTH = 8_000
"""Characters of code that is highlighted."""
ADDRESS_LENGTH = 2_000
HEADING_TOP, HEADING_MOST = 3, 6
"""The first two levels belong to the page."""

_LINE_END = re.compile(r"\r\n?|\n")
_LANGUAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+#._-]{0,31}")
_WEB = re.compile(r"https?://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?#]|$)", re.IGNORECASE)
_MAIL = re.compile(r"mailto:(?P<host>[^\s/?#@]+@[A-Za-z0-9.-]+)(?:\?|$)", re.IGNORECASE)
_NAMES_PLACE = re.compile(r"[\w@-]+(?:[.。．｡@][\w-]+)*[.。．｡@](?:[^\W\d_][\w-]+|\d+[.]\d+[.]\d+)")
_TURNS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)))
"""Characters that turn the order of others round. Right-to-left text does without: each block is its own."""
_TURNS_SHOWN = dict.fromkeys(_TURNS, "\ufffd")
_ALIGNED = ("left", "center", "right")

_HIGHLIGHTED = (
    "bash c cpp csharp css diff dockerfile go graphql html ini java javascript json kotlin lua make nginx perl php "
    "powershell python r ruby rust scala sql swift toml typescript xml yaml"
)
"""The languages whose code is highlighted: those whose lexers take about as long for whatever they are given."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a text: its HTML, and where it ends in the text, in UTF-16 code units, as JavaScript counts."""

    html: str
    end: int


def blocks(text: str, *, still_open: bool = False) -> list[Block]:
    """The blocks of a text, in their order; the last one ends where the text ends.

    Args:
        still_open: whether more of the text is to come. Then only what nothing can change that comes behind it stands
            in blocks of its own; all the rest is the last one, whose code is not highlighted yet. A definition of a
            reference is the exception: links to it that were settled before stay text.
    """
    text = well_formed(text)
    if len(text) > TEXT_LENGTH:
        return [Block(_clean(_preformatted(text)), _units(text))]
    parsed = _Parsed(text)
    settled = _settled(text) if still_open else len(parsed.groups) - 1
    found, units, start = [], 0, 0
    for group in parsed.groups[: max(0, settled)]:
        units, start = units + _units(text[start : parsed.end(group)]), parsed.end(group)
        found.append(Block(_clean(parsed.html(group)), units))
    rest = parsed.groups[len(found) :]
    if rest:
        html = "".join(parsed.html(group, colours=not still_open) for group in rest)
        found.append(Block(_clean(html), units + _units(text[start:])))
    return found


def _settled(text: str) -> int:
    """How many blocks at the beginning no text behind can change: those before the last one with a line that ended."""
    ended = max(text.rfind("\n"), text.rfind("\r")) + 1
    tokens: list[Token] = []
    _markdown.block.parse(_LINE_END.sub("\n", text[:ended]), _markdown, {}, tokens)
    return sum(1 for token in tokens if token.level == 0 and token.nesting != -1) - 1


class _Parsed:
    """A text in tokens, in groups: one for each block that stands in no other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [0, *(found.end() for found in _LINE_END.finditer(text)), len(text)]
        self._env: EnvType = {}
        self.groups = list(_groups(_markdown.parse(text, self._env)))

    def end(self, group: Sequence[Token]) -> int:
        """Where it ends in the text."""
        assert group[0].map is not None
        return self._lines[min(group[0].map[1], len(self._lines) - 1)]

    def html(self, group: Sequence[Token], *, colours: bool = True) -> str:
        """What is shown of it, not sanitised yet."""
        if any(token.level >= NESTING - 1 for token in group):  # the parser leaves out what stands deeper
            assert group[0].map is not None
            return _preformatted(self._text[self._lines[group[0].map[0]] : self.end(group)])
        self._env["colours"] = colours
        html = _markdown.renderer.render(group, _markdown.options, self._env)
        assert isinstance(html, str)
        return html


def _groups(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    start = 0
    for place, token in enumerate(tokens, 1):
        if token.level == 0 and token.nesting != 1:
            yield tokens[start:place]
            start = place


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _preformatted(text: str) -> str:
    return f"<pre>{escapeHtml(text.translate(_TURNS_SHOWN))}</pre>"


class _Html(RendererHTML):
    """How tokens are written. Each method is a rule for the tokens of its name."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return escapeHtml(tokens[idx].content.translate(_TURNS))

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<code>{_plain_code(tokens[idx].content)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<pre><code>{_plain_code(tokens[idx].content)}</code></pre>\n"

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        named = _LANGUAGE.match(tokens[idx].info.strip())
        code = tokens[idx].content
        if named is None:
            return f"<pre><code>{_plain_code(code)}</code></pre>\n"
        language = named[0].lower()
        html = _coloured(code, language) if env["colours"] else _plain_code(code)
        return f'<pre><code class="language-{language}">{html}</code></pre>\n'

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="table"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"

    def place(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Where a link leads whose own words name another place."""
        return f' <span class="place">({escapeHtml(tokens[idx].content)})</span>'


class _Markdown(MarkdownIt):
    """CommonMark, with tables, strikethrough, task lists and bare links; raw HTML is text."""

    def __init__(self) -> None:
        super().__init__("commonmark", renderer_cls=_Html)
        self.enable(["table", "strikethrough", "linkify"])
        self.disable("html_inline").disable("html_block")
        self.options.update(html=False, linkify=True, breaks=True, tasklists=True, maxNesting=NESTING)
        assert self.linkify is not None
        self.linkify.set({"fuzzy_link": False, "fuzzy_email": False})  # main.py and README.md are no hosts
        self.linkify.add("//", None).add("ftp:", None)
        self.core.ruler.push("shown", _shown)

    def validateLink(self, url: str) -> bool:
        return len(url) <= ADDRESS_LENGTH and bool(_WEB.match(url) or _MAIL.match(url))

    def normalizeLinkText(self, link: str) -> str:
        return link  # as it was written: decoded, it could look like another


def _shown(state: StateCore) -> None:
    """What is parsed as the page shows it: headings below its own, links that say where they lead, no images."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + HEADING_TOP - 1, HEADING_MOST)}"
        elif token.type in ("th_open", "td_open"):
            _align(token)
        elif token.type == "inline" and token.children:
            token.children = list(_honest(token.children))


def _align(cell: Token) -> None:
    """By a class: a style would be in the way of the page's policy."""
    style = cell.attrs.pop("style", None)
    if style is not None:
        cell.attrs["class"] = str(style).removeprefix("text-align:")


def _honest(children: Sequence[Token]) -> Iterator[Token]:
    """The same, with links to images in the place of images, and what a reader must see of a link's target."""
    link, label = None, ""
    for token in children:
        if token.type == "image" and link is None:
            yield from _link_to_image(token)
            continue
        if token.type == "image":
            token = _text(token.content)
        if token.type == "link_open":
            link, label = token, ""
            token.attrs = {"href": token.attrs["href"]}
        elif token.type == "link_close" and link is not None:
            yield from _closed(label, token, _place(str(link.attrs["href"])))
            link = None
            continue
        elif link is not None and token.type in ("text", "code_inline"):
            token.content = seen(token.content)
            label += token.content
        yield token


def _link_to_image(image: Token) -> Iterator[Token]:
    """Nothing is loaded from where a model says: what it knows could leave by the address."""
    address = str(image.attrs["src"])
    label = seen(image.content)
    yield Token("link_open", "a", 1, attrs={"href": address})
    yield _text(label)
    yield from _closed(label, Token("link_close", "a", -1), _place(address))


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _place(address: str) -> str:
    """Where an address leads: a host, or who gets mail."""
    found = _WEB.match(address) or _MAIL.match(address)
    assert found is not None, "validateLink let it through"
    return found["host"].lower()


def _closed(label: str, close: Token, place: str) -> Iterator[Token]:
    """The end of a link; with the place itself, where its words say nothing, or name another."""
    if not label.strip():
        yield _text(place)
    yield close
    if any(name.lower().removeprefix("www.") != place.removeprefix("www.") for name in _places_in(label)):
        yield Token("place", "span", 0, content=place)


def _places_in(label: str) -> Iterator[str]:
    """What looks like hosts and mail addresses in the words of a link; paths behind them do not count."""
    for word in label.split():
        host = re.split(r"[/?#\\]", re.sub(r"^\w+:/*", "", word), maxsplit=1)[0]
        yield from (found[0] for found in _NAMES_PLACE.finditer(host))


@cache
def lexer_of(language: str) -> Lexer | None:
    """What reads the code of a language, where that takes about as long for whatever it is given."""
    names = {alias: name for name in _HIGHLIGHTED.split() for alias in (name, *get_lexer_by_name(name).aliases)}
    return get_lexer_by_name(names[language], stripnl=False, ensurenl=False) if language in names else None


def _coloured(code: str, language: str) -> str:
    """Code with a class for each kind of token."""
    lexer = lexer_of(language) if len(code) <= CODE_LENGTH else None
    return _plain_code(code) if lexer is None else highlight(code.translate(_TURNS_SHOWN), lexer, _colours)


def _plain_code(code: str) -> str:
    """Code in which nothing turns the order of characters round: it does what it looks like."""
    return escapeHtml(code.translate(_TURNS_SHOWN))


_colours = HtmlFormatter(nowrap=True)
_markdown = _Markdown()
_clean = nh3.Cleaner(
    tags={
        *("p", "h3", "h4", "h5", "h6", "blockquote", "hr", "ul", "ol", "li", "input", "pre", "code", "span", "div"),
        *("table", "thead", "tbody", "tr", "th", "td", "a", "strong", "em", "s", "br"),
    },
    attributes={"a": {"href"}, "ol": {"start"}, "code": {"class"}, "input": {"disabled", "checked"}},
    tag_attribute_values={"input": {"type": {"checkbox"}}},
    allowed_classes={
        "span": {"place", *(name for name in STANDARD_TYPES.values() if name)},
        "div": {"table"},
        "th": {*_ALIGNED},
        "td": {*_ALIGNED},
        "ul": {"contains-task-list"},
        "ol": {"contains-task-list"},
        "li": {"task-list-item"},
    },
    set_tag_attribute_values={"a": {"target": "_blank"}},
    link_rel="noopener noreferrer nofollow",
    url_schemes={"http", "https", "mailto"},
    url_relative="deny",
).clean
"""The last step, always: whatever stands before it may be wrong."""
