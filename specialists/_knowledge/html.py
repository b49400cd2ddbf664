"""Built in: the text of an HTML page under its headings, without scripts and navigation; tables as Markdown."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from specialists._knowledge.reading import COLUMNS_MOST, ROWS_MOST, Part, table
from specialists._passages import Headings

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LEFT_OUT = frozenset({
    "script", "style", "noscript", "template", "nav", "footer", "aside", "iframe", "svg", "math", "button", "select",
    "object", "canvas", "dialog", "head",
})  # fmt: skip
_INLINE = frozenset({
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins", "kbd", "label",
    "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
})  # fmt: skip


def html_parts(text: str) -> Iterator[Part]:
    """The texts of a page, each under the headings before it; a page without a first heading goes by its title."""
    from selectolax.lexbor import LexborHTMLParser

    page = LexborHTMLParser(text)
    headings, held = Headings(), list[str]()
    title = page.css_first("title")
    if title is not None and page.css_first("h1") is None and (named := _line(title.text())):
        headings.enter(0, named)
    for item in _items(page.body):
        if isinstance(item, str):
            held.append(item)
        else:
            yield Part("\n\n".join(held), headings.path)
            headings.enter(*item)
            held = []
    yield Part("\n\n".join(held), headings.path)


def _items(body: "LexborNode | None") -> Iterator[str | tuple[int, str]]:
    """Paragraphs, and headings with their levels, in the order of the page."""
    line = ""
    for node, entered in _steps(body):
        tag = node.tag
        if tag == "-text":
            line += node.text_content or ""
        elif tag == "br":
            line += "\n"
        elif tag not in _INLINE:
            if said := _block(line):
                yield said
            line = "- " if tag == "li" and entered else ""
            if entered and tag in _HEADINGS and (named := _line(node.text())):
                yield _HEADINGS[tag], named
            elif entered and tag == "table" and (rows := table(list(_rows(node)))):
                yield rows
            elif entered and tag == "pre":
                yield f"```\n{node.text().strip()}\n```"
    if said := _block(line):
        yield said


def _steps(body: "LexborNode | None") -> Iterator[tuple[Any, bool]]:
    """Each element when it is entered and when it is left; texts once. Not into what is taken whole or left out."""
    waiting: list[tuple[Any, bool]] = [(body, True)] if body is not None else []
    while waiting:
        node, entering = waiting.pop()
        tag = node.tag
        if not entering:
            yield node, False
            continue
        if tag in _LEFT_OUT or "hidden" in node.attributes:
            continue
        yield node, True
        if tag == "-text" or tag in _HEADINGS or tag in ("table", "pre"):
            continue
        waiting.append((node, False))
        waiting += [(child, True) for child in reversed(list(node.iter(include_text=True)))]


def _rows(node: Any) -> Iterator[list[str]]:
    for count, row in enumerate(node.css("tr")):
        if count > ROWS_MOST:
            return
        cells = [_line(cell.text(separator=" ")) for cell in row.css("th, td")[:COLUMNS_MOST]]
        if any(cells):
            yield cells


def _block(line: str) -> str:
    said = "\n".join(filter(None, (" ".join(part.split()) for part in line.split("\n"))))
    return "" if said == "-" else said


def _line(text: str | None) -> str:
    return " ".join((text or "").split())
