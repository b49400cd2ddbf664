"""A whole page of HTML as Markdown, by selectolax. Imports nothing of Brain.

It walks the tree in a loop, however deep it is.
"""

import re
from collections.abc import Collection
from typing import Any
from urllib.parse import urljoin

from specialists._tables import Table, layouts

HIDDEN = ("display:none", "visibility:hidden", "font-size:0;", "font-size:0px")
"""Styles of what a reader does not see."""
_DROPPED = frozenset({
    "head", "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "nav", "footer", "aside",
    "button", "select", "textarea", "dialog", "audio", "video", "canvas", "map", "amp-sidebar", "amp-consent", "amp-ad",
})  # fmt: skip
_DROPPED_ROLES = frozenset(("navigation", "dialog", "alertdialog", "banner", "search", "contentinfo"))
_BANNERS = (
    "cookie-banner", "cookie-bar", "cookie-consent", "cookie-law", "cookie-notice", "cookiebanner", "cookieconsent",
    "didomi", "gdpr", "onetrust", "usercentrics",
)  # fmt: skip
INLINE = frozenset({
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img", "input", "ins",
    "kbd", "label", "mark", "q", "ruby", "rt", "s", "samp", "small", "span", "strong", "sub", "sup", "time", "tt", "u",
    "var", "wbr",
})  # fmt: skip
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`"}
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LIKE_MARKS = re.compile(r"#{1,6}\s|```|~~~")
_RAISED = re.compile(r"[-+\u2212]?\d{1,4}|[-+\u2212a-z]")
"""An exponent, or a charge."""
_LISTS_DEEP = 8
_TARGET_MOST = 500


def markdown(tree: Any, links_from: str | None = None) -> str:
    """The text of the page's body.

    Args:
        links_from: the page's address when links are to be kept.
    """
    root = tree.body
    if root is None:
        return ""
    writer, node = _Writer(links_from, layouts(tree)), root
    while True:
        if writer.enter(node) and node.child is not None:
            node = node.child
            continue
        while True:
            if node.mem_id == root.mem_id:
                writer.flush()
                return "\n".join(writer.lines)
            if node.next is not None:
                writer.leave(node)
                node = node.next
                break
            writer.leave(node)
            node = node.parent


class _Writer:
    """Gathers lines while the tree is walked."""

    def __init__(self, links_from: str | None, layouts: Collection[int]) -> None:
        self.lines: list[str] = []
        self._line: list[str] = []
        self._prefix = ""
        self._lists: list[int | None] = []
        self._layouts = layouts
        self._table: Table | None = None
        self._code = 0
        self._links_from = links_from
        self._opened: list[int] = []
        self._left_out: int | None = None

    def enter(self, node: Any) -> bool:
        """Writes what stands before a node's children; false when they are to be left out."""
        tag = node.tag
        if tag == "-text":
            self._text(node.text_content or "")
            return False
        if tag is None or not tag[0].isalpha() or _unseen(node, tag):
            self._text(_formula(node) if tag == "math" else "")
            self._left_out = node.mem_id
            return False
        if tag in ("br", "hr"):
            self._break()
        elif tag == "pre":
            self._break()
            self._code += 1
        elif tag in ("td", "th") and self._table is not None:
            self._table.open(node)
        elif tag == "table" and node.mem_id not in self._layouts:
            self._break()
            self._table = Table()
        elif tag == "sup" and _RAISED.fullmatch(node.text()) and node.css_first("a") is None:
            self._line.append("^")
        elif tag not in INLINE:
            self._open_block(tag)
        elif tag in _MARKS and not self._code:
            self._line.append(_MARKS[tag])
        if tag == "a":
            self._opened.append(len(self._line))
        return True

    def leave(self, node: Any) -> None:
        """Writes what stands behind them."""
        tag = node.tag
        if tag is None or not tag[0].isalpha() or self._left_out == node.mem_id:
            return
        if tag == "a":
            self._link(node, self._opened.pop())
        elif tag in _MARKS and not self._code:
            self._close_mark(_MARKS[tag])
        elif tag == "pre":
            self._close_code()
        elif tag in ("ul", "ol") and self._lists:
            self.flush()
            self._lists.pop()
            self.lines += [] if self._lists else [""]
        elif tag in ("td", "th") and self._table is not None:
            self._table.close(self._said())
        elif tag == "tr" and self._table is not None:
            self._line = []
            self.lines += self._table.row()
        elif tag == "table":
            self.flush()
            self._table = None
            self.lines.append("")
        elif tag not in INLINE:
            self._break()
            self.lines += [""] if tag in _HEADINGS or tag == "p" else []

    def flush(self) -> None:
        """Ends the line that is being written."""
        text = self._said()
        if text and text not in ("*", "**", "`"):
            escape = "\\" if not self._prefix and _LIKE_MARKS.match(text) else ""
            self.lines.append(self._prefix + escape + text)
        self._prefix = "  " * len(self._lists) if self._lists and text else self._prefix if self._lists else ""

    def _break(self) -> None:
        if self._code:
            self._line.append("\n")
        elif self._in_cell:
            self._line.append(" ")
        else:
            self.flush()

    def _text(self, text: str) -> None:
        self._line.append(text.replace("|", "\\|") if self._in_cell and not self._code else text)

    @property
    def _in_cell(self) -> bool:
        return self._table is not None and self._table.in_cell

    def _said(self) -> str:
        """What was written since the last line or cell ended, as one line."""
        text = " ".join("".join(self._line).split())
        self._line = []
        return text

    def _close_code(self) -> None:
        self._code -= 1
        if self._code:
            return
        text = "".join(self._line).strip("\n")
        self._line = []
        fence = "```" if "```" not in text else "~~~~"
        self.lines += [fence, *text.split("\n"), fence, ""]

    def _open_block(self, tag: str) -> None:
        self._break()
        if self._code or self._in_cell:
            return
        if tag in ("ul", "ol"):
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._item()
        elif tag in _HEADINGS:
            self.lines.append("")
            self._prefix = _HEADINGS[tag]
        elif tag == "dd":
            self._prefix = "  "

    def _item(self) -> None:
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        mark = "- " if number is None else f"{number + 1}. "
        self._prefix = "  " * min(len(self._lists) - 1, _LISTS_DEEP) + mark

    def _close_mark(self, mark: str) -> None:
        """Ends what is bold and so on; nothing was, if the mark is the last that was written."""
        if self._line and self._line[-1] == mark:
            self._line.pop()
        else:
            self._line.append(mark)

    def _link(self, node: Any, start: int) -> None:
        target = linked(node.attributes.get("href") or "", self._links_from) if self._links_from else ""
        text = " ".join("".join(self._line[start:]).split())
        if target and text and not self._code:
            self._line[start:] = [f"[{text}]({target})"]


def linked(target: str, url: str) -> str:
    """Where a link of the page at `url` leads; empty for what leads to no other page."""
    if target.startswith("#") or len(target) > _TARGET_MOST:
        return ""
    try:
        found = urljoin(url, target.strip())
    except ValueError:
        return ""
    return found if found.startswith(("https://", "http://")) else ""


def _formula(node: Any) -> str:
    """A formula in TeX, where the page gives it; else its signs in their order."""
    tex = node.css_first("annotation[encoding='application/x-tex']")
    return f"${(tex.text() or '').strip()}$" if tex is not None else str(node.text())


def _unseen(node: Any, tag: str) -> bool:
    if tag in _DROPPED:
        return True
    attributes = node.attributes
    if not attributes or tag == "body":
        return False
    named = f"{attributes.get('id') or ''} {attributes.get('class') or ''}".lower()
    style = (attributes.get("style") or "").replace(" ", "").lower()
    return (
        "hidden" in attributes
        or attributes.get("role") in _DROPPED_ROLES
        or any(word in named for word in _BANNERS)
        or any(hidden in style for hidden in HIDDEN)
    )
