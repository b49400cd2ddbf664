"""Convert HTML of web pages, wikis and files to Markdown, with selectolax.

A loop visits each node of the tree once, so depth does not matter. Cells that span rows or columns are resolved at the
end of their table. `is_hostile` detects pages that would overload a parser, and `strip_tags` reads them.
Imports nothing from `brain`.
"""

import html
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urljoin

MAX_TEXT = 1_000_000
"""Maximum characters that are read from a page."""
HIDDEN_STYLES = ("display:none", "visibility:hidden", "font-size:0;", "font-size:0px")
UNREAD_TAGS = frozenset({
    "audio", "button", "canvas", "dialog", "head", "iframe", "map", "noscript", "object", "script", "select", "style",
    "svg", "template", "textarea", "title", "video",
})  # fmt: skip
PAGE_TAGS = frozenset(("nav", "footer", "aside", "amp-sidebar", "amp-consent", "amp-ad"))
PAGE_ROLES = frozenset(("navigation", "dialog", "alertdialog", "banner", "search", "contentinfo"))
COOKIE_BANNERS = (
    "cookie-banner", "cookie-bar", "cookie-consent", "cookie-law", "cookie-notice", "cookiebanner", "cookieconsent",
    "didomi", "gdpr", "onetrust", "usercentrics",
)  # fmt: skip
INLINE_TAGS = frozenset({
    "a", "abbr", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img",
    "input", "ins", "kbd", "label", "link", "mark", "math", "meta", "nobr", "q", "ruby", "rp", "rt", "s", "samp",
    "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
})  # fmt: skip
_LISTS = frozenset(("ul", "ol", "dl", "menu"))
_EMPHASIS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`"}
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LIKE_MARKS = re.compile(r"#{1,6}\s|```|~~~")
_RAISED = re.compile(r"[-+\u2212\u2013]?\d{1,6}|[-+\u2212a-z]")
"""An exponent or a charge."""
_LINK_SIGNS = frozenset("¶§#↑↩^")
"""Texts of links from headings to themselves, and from notes to their references."""
_BEFORE_STOP = re.compile(r" (?=[,.;:!?)\]](?:\s|$))")
_STYLED = re.compile(r"\{\\(?:display|text)style (.*)\}", re.DOTALL)
_LINE_NUMBERS = re.compile(r"`{3}\n(?:\s*\d+\s*\n)+`{3}")
_BREAK = "\v"
_QUOTES_DEEP = 3
_LISTS_DEEP = 8
_MAX_TARGET = 500
_MAX_SPAN = 50
_MAX_ROW = 2000
"""Maximum characters of a row. Longer rows are columns of text."""
_MAX_CELL = 200
"""Maximum characters of a cell with a list, in a table without headings; columns of pages are longer."""
_MAX_REPEATED = 100
"""Maximum characters of a cell that are repeated in the rows and columns it spans."""
_REPEATED_IN_TABLE = 100_000


def _skips_nothing(node: Any, attributes: Mapping[str, str | None]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Rules:
    """The parts of a page to skip, besides invisible ones.

    Attributes:
        tags: elements to skip.
        is_skipped: whether to skip an element with these attributes; called in document order.
        base: the page's URL to keep links, else empty.
        has_emphasis: whether to mark bold, italic and inline code.
    """

    tags: Collection[str] = ()
    is_skipped: Callable[[Any, Mapping[str, str | None]], bool] = _skips_nothing
    base: str = ""
    has_emphasis: bool = True


def page_rules(base: str = "") -> Rules:
    """Return rules for any page: skip navigation, cookie banners, and the edit links and notes of wikis."""

    def is_skipped(node: Any, attributes: Mapping[str, str | None]) -> bool:
        if not attributes or node.tag == "body":
            return False
        names = f"{attributes.get('id') or ''} {attributes.get('class') or ''}".lower()
        return (
            attributes.get("role") in PAGE_ROLES
            or attributes.get("id") == "toc"
            or "mw-editsection" in names
            or (node.tag == "sup" and "reference" in names)
            or any(banner in names for banner in COOKIE_BANNERS)
        )

    return Rules(PAGE_TAGS, is_skipped, base)


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, heading, list item, table or code block.

    Attributes:
        text: Markdown without `prefix`.
        prefix: Markdown marks before the text.
        group: number shared by the blocks of one list; 0 for others.
        anchor: id of a heading.
        link: the first `a` element in the block.
        texts: numbers of its first text node, and of the first one after it.
        is_caption: whether it is the caption of a figure.
    """

    kind: Literal["text", "heading", "item", "table", "code"]
    text: str
    prefix: str = ""
    group: int = 0
    anchor: str = ""
    link: Any = None
    texts: tuple[int, int] = (0, 0)
    is_caption: bool = False

    @property
    def level(self) -> int:
        """Level of a heading, 1 to 6; 0 for others."""
        return self.prefix.count("#") if self.kind == "heading" else 0

    @property
    def markdown(self) -> str:
        if not self.prefix:
            return self.text
        return self.prefix + self.text.replace("\n", "\n" + re.sub("[^> ]", " ", self.prefix))


def join_blocks(blocks: Iterable[Block]) -> str:
    """Join blocks as Markdown, with empty lines between them except in lists."""
    pieces: list[str] = []
    group = 0
    for block in blocks:
        pieces.append("\n" if pieces and group and block.group == group else "\n\n" if pieces else "")
        pieces.append(block.markdown)
        group = block.group
    return "".join(pieces)


def flatten(blocks: Iterable[Block]) -> str:
    """Join blocks on one line, such as for a table cell."""
    pieces: list[str] = []
    group = 0
    for block in blocks:
        pieces.append(("; " if group and block.group == group else " ") + block.text.replace("\n", " "))
        group = block.group
    return "".join(pieces).strip("; ")


def read_markdown(tree: Any, rules: Rules) -> str:
    """Convert the body of a parsed page to Markdown."""
    return join_blocks(convert(tree.body, rules)) if tree.body is not None else ""


def convert(root: Any, rules: Rules, texts: list[Any] | None = None) -> list[Block]:
    """Convert an element to blocks, up to `MAX_TEXT` characters.

    Args:
        texts: gets the text nodes that are read.
    """
    writer, node = _Writer(rules, [] if texts is None else texts), root
    while True:
        if writer.enter(node):
            if node.child is not None and writer.size < MAX_TEXT:
                node = node.child
                continue
            writer.leave(node)
        while node.mem_id != root.mem_id and (node.next is None or writer.size >= MAX_TEXT):
            node = node.parent
            writer.leave(node)
        if node.mem_id == root.mem_id:
            writer.end_line()
            return writer.flow.blocks
        node = node.next


@dataclass(slots=True)
class _Flow:
    """The blocks of a page or cell, and its open lists and quotations."""

    blocks: list[Block] = field(default_factory=list)
    lists: list[int | None] = field(default_factory=list)
    group: int = 0
    prefix: str = ""
    quotes: int = 0


@dataclass(slots=True)
class _Cell:
    columns: int
    rows: int
    flow: _Flow = field(default_factory=_Flow)


@dataclass(slots=True)
class _Table:
    """A table while it is read; `around` is the flow around it, `start` the writer's size before it."""

    around: _Flow
    start: int
    first_text: int
    is_presentation: bool
    has_header: bool = False
    rows: list[list[_Cell]] = field(default_factory=list)

    @property
    def is_layout(self) -> bool:
        """Whether the table is only used for layout."""
        cells = [cell.flow.blocks for row in self.rows for cell in row]
        blocks = [block for cell in cells for block in cell]
        has_lists = any(block.kind == "item" for block in blocks)
        is_short = len(self.rows) > 1 and all(len(flatten(cell)) <= _MAX_CELL for cell in cells)
        return (
            self.is_presentation
            or any(block.kind in ("table", "code") or 0 < block.level <= 2 for block in blocks)
            or (has_lists and not self.has_header and not is_short)
            or all(sum(bool(cell.flow.blocks) for cell in row) < 2 for row in self.rows)
        )

    def blocks(self, room: int, end_text: int) -> Iterator[Block]:
        """Yield the table, with rows of up to `room` characters, or the blocks of a layout table."""
        if self.is_layout:
            found = [block for row in self.rows for cell in row for block in cell.flow.blocks]
            has_code = any(block.kind == "code" and not _LINE_NUMBERS.fullmatch(block.text) for block in found)
            yield from (one for one in found if not (has_code and _LINE_NUMBERS.fullmatch(one.text)))
            return
        lines: list[str] = []
        for cells, own in self._grid():
            if len(own) < 2 or sum(map(len, cells)) > _MAX_ROW:
                lines += own
            else:
                has_rule = any(line.startswith("|") for line in lines)
                lines += ["| " + " | ".join(cells) + " |", *([] if has_rule else ["|" + "---|" * len(cells)])]
            room -= sum(map(len, cells)) + len(cells)
            if room < 0:
                break
        yield Block("table", "\n".join(lines), texts=(self.first_text, end_text))

    def _grid(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield each row with all columns, and the texts of its distinct cells.

        A short text is repeated in all columns and rows that its cell spans.
        """
        below: dict[int, tuple[int, str, bool]] = {}  # by column: rows, text, and whether it is the first column
        for row in self.rows:
            texts: list[str] = []
            own: list[str] = []
            for cell in (*row, None):
                while len(texts) in below:
                    rows, text, is_first = below.pop(len(texts))
                    if rows > 1:
                        below[len(texts)] = rows - 1, text, is_first
                    own += [text] if is_first and text else []
                    texts.append(text)
                if cell is None:
                    break
                text = flatten(cell.flow.blocks).replace("|", "\\|")
                own += [text] if text else []
                for column in range(cell.columns):
                    is_repeated = column == 0 or len(text) <= _MAX_REPEATED
                    if cell.rows > 1:
                        below[len(texts)] = cell.rows - 1, text[:_MAX_REPEATED] if is_repeated else "", column == 0
                    texts.append(text if is_repeated else "")
            yield texts, own


class _Writer:
    """Writes blocks while the tree is visited.

    Attributes:
        size: characters written so far.
    """

    def __init__(self, rules: Rules, texts: list[Any]) -> None:
        self.flow = _Flow()
        self.size = 0
        self._texts = texts
        self._first_text = 0
        self._captions = 0
        self._rules = rules
        self._unread = UNREAD_TAGS.union(rules.tags)
        self._pieces: list[str] = []
        self._lines = 0
        self._opened: list[tuple[int, int]] = []  # line and piece at which each open `a` and `sup` begins
        self._link: Any = None
        self._has_gap = False
        self._tables: list[_Table] = []
        self._groups = 0
        self._code = 0
        self._heading = ""
        self._anchor = ""

    def enter(self, node: Any) -> bool:
        """Write the marks before a node's children; returns False to skip the children."""
        tag = node.tag
        if tag == "-text":
            text = node.text_content or ""
            self.size += len(text)
            self._pieces.append(text)
            self._texts.append(node)
            return False
        if tag is None or not tag[0].isalpha():
            return False
        attributes = node.attributes
        if tag in ("math", "img", "script") and (formula := read_formula(node, attributes)):
            self._pieces.append(formula)
            return False
        if tag in self._unread or self._is_unseen(node, attributes):
            self._has_gap = True
            return False
        if self._heading and not self._anchor:
            self._anchor = attributes.get("id") or ""
        if tag == "br":
            self._pieces.append("\n" if self._code else _BREAK)
        elif tag in ("a", "sup"):
            child = node.child
            if tag == "a" and child is not None and child.next is None and (child.text_content or "") in _LINK_SIGNS:
                return False
            self._opened.append((self._lines, len(self._pieces)))
        elif tag == "rt" and (node.prev is None or node.prev.tag != "rp"):
            self._pieces.append("(")
        elif tag == "code" and self._code:  # adjacent code elements are separate lines
            self._pieces.append("\n" if node.prev is not None and node.prev.tag == "code" else "")
        elif tag in _EMPHASIS and self._has_emphasis:
            self._pieces.append(_EMPHASIS[tag])
        elif tag not in INLINE_TAGS:
            self.end_line()
            if not self._code:
                self._open_block(tag, attributes)
        return True

    def leave(self, node: Any) -> None:
        """Write the marks after a node's children."""
        tag = node.tag
        if tag in ("a", "sup"):
            line, start = self._opened.pop()
            start = start if line == self._lines else 0
            if tag == "a":
                self._close_link(node, start)
            else:
                self._close_raised(start)
        elif tag == "rt" and (node.prev is None or node.prev.tag != "rp"):
            self._pieces.append(")")
        elif tag in _EMPHASIS:
            mark = _EMPHASIS[tag]
            if self._has_emphasis and self._pieces and self._pieces[-1] == mark:
                self._pieces.pop()  # the element is empty
            elif self._has_emphasis:
                self._pieces.append(mark)
        elif tag == "pre":
            self._close_code()
        elif tag not in INLINE_TAGS:
            self.end_line()
            if not self._code:
                self._close_block(tag)

    def end_line(self) -> None:
        """End the current block, or in code the current line."""
        if self._code:
            self._pieces.append("" if self._pieces and self._pieces[-1].endswith("\n") else "\n")
            return
        self._lines += 1
        if not self._pieces:
            return
        text = "".join(self._pieces)
        if _BREAK in text:
            text = "\n".join(filter(None, (" ".join(line.split()) for line in text.split(_BREAK))))
        else:
            text = " ".join(text.split())
        if self._has_gap:
            text = _BEFORE_STOP.sub("", text)
        link, texts = self._link, (self._first_text, len(self._texts))
        self._pieces, self._link, self._has_gap, self._first_text = [], None, False, len(self._texts)
        if not text or text in ("*", "**", "`"):
            return
        flow = self.flow
        quote = "> " * min(flow.quotes, _QUOTES_DEEP)
        if self._heading:
            block = Block("heading", text.replace("\n", " "), self._heading, anchor=self._anchor, texts=texts)
        elif flow.lists or flow.prefix:
            block = Block("item", text, quote + flow.prefix, flow.group, link=link, texts=texts)
            flow.prefix = self._indent()
        else:
            is_mark = not quote and _LIKE_MARKS.match(text)
            text = f"\\{text}" if is_mark else text
            block = Block("text", text, quote, link=link, texts=texts, is_caption=self._captions > 0)
        self.size += len(block.prefix) + 4  # so that a page of many empty blocks ends, too
        flow.blocks.append(block)

    @property
    def _has_emphasis(self) -> bool:
        return self._rules.has_emphasis and not self._code

    def _indent(self) -> str:
        """Return the prefix of further blocks in the open list item."""
        return "  " * min(len(self.flow.lists), _LISTS_DEEP)

    def _is_unseen(self, node: Any, attributes: Mapping[str, str | None]) -> bool:
        style = (attributes.get("style") or "").replace(" ", "").lower()
        return (
            "hidden" in attributes
            or bool(style and any(hidden in style for hidden in HIDDEN_STYLES))
            or attributes.get("class") == "katex-html"  # duplicates the formula
            or self._rules.is_skipped(node, attributes)
        )

    def _open_block(self, tag: str, attributes: Mapping[str, str | None]) -> None:
        flow = self.flow
        if tag == "pre":
            self._code += 1
        elif tag in _LISTS:
            if not flow.lists:
                self._groups += 1
                flow.group = self._groups
            flow.lists.append(0 if tag == "ol" else None)
        elif tag in ("li", "dt", "dd"):
            number = flow.lists[-1] if flow.lists else None
            if number is not None and tag == "li":
                flow.lists[-1] = number + 1
            mark = {"dt": "", "dd": "  "}.get(tag, "- " if number is None else f"{number + 1}. ")
            flow.prefix = "  " * min(len(flow.lists) - 1, _LISTS_DEEP) + mark
        elif tag in _HEADINGS:
            self._heading, self._anchor = _HEADINGS[tag], attributes.get("id") or ""
        elif tag == "blockquote":
            flow.quotes += 1
        elif tag == "figcaption":
            self._captions += 1
        elif tag == "table":
            is_presentation = attributes.get("role") in ("presentation", "none")
            self._tables.append(_Table(flow, self.size, len(self._texts), is_presentation))
        elif tag == "tr" and self._tables:
            self._tables[-1].rows.append([])
        elif tag in ("td", "th") and self._tables and self._tables[-1].rows:
            table = self._tables[-1]
            table.has_header = table.has_header or tag == "th"
            cell = _Cell(_span(attributes.get("colspan")), _span(attributes.get("rowspan")))
            table.rows[-1].append(cell)
            self.flow = cell.flow

    def _close_block(self, tag: str) -> None:
        flow = self.flow
        if tag in _LISTS:
            flow.lists.pop()
            flow.prefix = self._indent()
        elif tag in ("li", "dt", "dd"):
            flow.prefix = self._indent()
        elif tag in _HEADINGS:
            self._heading = ""
        elif tag == "blockquote":
            flow.quotes -= 1
        elif tag == "figcaption":
            self._captions -= 1
        elif tag in ("td", "th") and self._tables:
            self.flow = self._tables[-1].around
        elif tag == "table":
            table = self._tables.pop()
            for block in table.blocks(2 * (self.size - table.start) + _REPEATED_IN_TABLE, len(self._texts)):
                self.size += len(block.text) if block.kind == "table" else 0
                table.around.blocks.append(block)

    def _close_link(self, node: Any, start: int) -> None:
        self._link = self._link or node
        if not self._rules.base or self._code:
            return
        target = link_target(node.attributes.get("href") or "", self._rules.base)
        text = " ".join("".join(self._pieces[start:]).split()) if target else ""
        if text:
            self._pieces[start:] = [f"[{text}]({target})"]

    def _close_raised(self, start: int) -> None:
        if 0 < len(self._pieces) - start <= 4:
            text = "".join(self._pieces[start:]).strip()
            if _RAISED.fullmatch(text):
                is_note = self._link is not None and self._link.parent.tag == "sup"
                self._pieces[start:] = [f"[{text}]" if is_note else f"^{text}"]

    def _close_code(self) -> None:
        self._code -= 1
        if self._code:
            return
        text = "".join(self._pieces).strip("\n")
        self._pieces, self._lines = [], self._lines + 1
        if text.strip():
            fence = "```" if "```" not in text else "~~~~"
            group = self.flow.group if self.flow.lists else 0
            texts = self._first_text, len(self._texts)
            self.flow.blocks.append(Block("code", f"{fence}\n{text}\n{fence}", group=group, texts=texts))
        self._first_text = len(self._texts)


def read_formula(node: Any, attributes: Mapping[str, str | None]) -> str:
    """Return a formula as TeX if the page has it, else its symbols in order; empty for other elements."""
    tex: str | None = ""
    if node.tag == "math":
        annotation = node.css_first("annotation[encoding='application/x-tex']")
        tex = attributes.get("alttext") or (annotation.text() if annotation is not None else "")
        if not tex:
            return str(node.text())
    elif node.tag == "img" and (attributes.get("class") or "").startswith("mwe-math"):
        tex = attributes.get("alt")
    elif node.tag == "script" and (attributes.get("type") or "").startswith("math/tex"):
        tex = node.text()
    styled = _STYLED.fullmatch(" ".join((tex or "").split()))
    tex = (styled[1] if styled else tex or "").strip()
    return f"${tex}$" if tex else ""


def link_target(target: str, base: str) -> str:
    """Return the URL of a link on the page `base`; empty for a link within the page and for an invalid URL."""
    if target.startswith("#") or len(target) > _MAX_TARGET:
        return ""
    try:
        found = urljoin(base, target.strip())
    except ValueError:
        return ""
    return found if found.startswith(("https://", "http://")) else ""


def _span(value: str | None) -> int:
    """Return the number of rows or columns that a cell spans."""
    return max(1, min(int(value), _MAX_SPAN)) if value and re.fullmatch(r"\s*[0-9]{1,5}\s*", value) else 1


# without a parser

MAX_DEPTH = 2000
"""Maximum nesting; parsers need quadratic time for it, and ordinary pages have less than 100 levels."""
MAX_TAG = 100_000
"""Maximum characters of one tag; parsers compare its attributes with each other."""
_NAME = re.compile(r"/?[a-zA-Z][a-zA-Z0-9]{0,20}")
_END_OPTIONAL = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
    "p", "li", "dt", "dd", "td", "th", "tr", "thead", "tbody", "tfoot", "colgroup", "option", "optgroup", "rt", "rp",
})  # fmt: skip
_RAW_TAGS = frozenset(("script", "style", "template", "noscript", "svg", "title", "textarea", "iframe"))


def is_hostile(page: str) -> bool:
    """Whether a page nests deeper or has longer tags than any ordinary page."""
    depth = deepest = position = 0
    while (start := page.find("<", position)) >= 0:
        end = page.find(">", start)
        if (end if end >= 0 else len(page)) - start > MAX_TAG:
            return not page.startswith("<!--", start)
        position = start + 1 if end < 0 else end + 1
        name = _NAME.match(page, start + 1)
        if name is None or name[0].lstrip("/").lower() in _END_OPTIONAL:
            continue
        depth = max(0, depth - 1) if name[0].startswith("/") else depth + 1
        deepest = max(deepest, depth)
        if end < 0:
            break
    return deepest > MAX_DEPTH


def strip_tags(page: str) -> str:
    """Return the text between the tags in one pass; blocks become lines, and scripts and styles are skipped."""
    pieces, position, lower = [], 0, page.lower()
    while (start := page.find("<", position)) >= 0:
        pieces.append(page[position:start])
        name = _NAME.match(page, start + 1)
        tag = name[0].lstrip("/").lower() if name else ""
        if page.startswith("<!--", start):
            end = page.find("-->", start)
        elif tag in _RAW_TAGS and name and not name[0].startswith("/"):
            end = lower.find(f"</{tag}", start)
            end = end if end < 0 else page.find(">", end)
        elif name is None and not page.startswith(("<!", "<?"), start):
            pieces.append("<")
            position = start + 1
            continue
        else:
            end = page.find(">", start)
        if end < 0:
            return html.unescape("".join(pieces))
        pieces.append("" if tag in INLINE_TAGS and tag != "br" else "\n")
        position = page.index(">", end) + 1
    return html.unescape("".join([*pieces, page[position:]]))
