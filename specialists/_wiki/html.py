"""Reads one wiki page in a child process, which can be killed: some HTML takes for ever, or all memory."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from specialists._kit.child import Tell
from specialists._wiki import tables
from specialists._wiki.inline import DEPTH_MOST, children, classes, formula, is_block, is_read, piece, text, tidy

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

TEXT_MOST = 1_000_000
HEADINGS_MOST = 5000
"""Who asked reads the answer in one go, while nothing else runs."""
CHOICES_MOST = 60
LIST_DEPTH = 6
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_NOTES = frozenset({"hatnote", "dablink", "rellink", "homonymie", "bandeau-niveau-detail"})
_SPECIAL = re.compile(
    r"(?:Special|Spezial|Spécial|Especial|Speciale|Speciaal|Служебная|Спеціальна|特別|特殊|특수|خاص):"
)
"""Lists of pages that the wiki makes; they have no text."""
_CHOICE_BOXES = "#disambigbox, #setindexbox, .dmbox, .disambig, .dmbox-disambig, #disambig, .disambiguation, .homonymie"


class Reading:
    """What has been read of a page."""

    def __init__(self) -> None:
        self._sections: list[tuple[int, str, str, list[str]]] = [(0, "", "", [])]
        self.facts: list[str] = []
        self.choices: list[tuple[str, str]] = []
        self._size = 0

    def add(self, words: str, level: int = 0, anchor: str = "") -> None:
        if not words or self._size > TEXT_MOST or len(self._sections) > HEADINGS_MOST:
            return
        self._size += len(words)
        if level:
            self._sections.append((level, words[:TEXT_MOST], anchor, []))
        else:
            self._sections[-1][3].append(words[:TEXT_MOST])

    @property
    def blocks(self) -> Iterator[dict[str, Any]]:
        """Each heading, and the text below it."""
        for level, heading, anchor, texts in self._sections:
            if level:
                yield {"level": level, "text": heading, "anchor": anchor}
            if texts:
                yield {"level": 0, "text": "\n\n".join(texts), "anchor": ""}

    def read(self, node: "LexborNode", depth: int = 0) -> None:
        """The blocks below an element; what stands between them is paragraphs of its own."""
        loose: list[str] = []
        for child in children(node):
            if depth < DEPTH_MOST and _holds_blocks(child):
                self.add(tidy("".join(loose)))
                loose = []
                self._block(child, depth + 1)
            else:
                loose += piece(child, depth + 1)
        self.add(tidy("".join(loose)))

    def _block(self, node: "LexborNode", depth: int) -> None:
        tag = node.tag or ""
        if formula(node) is not None:
            self.add(formula(node) or "")
        elif tables.is_box(node):
            self.facts += [] if self.facts else tables.facts(node, depth)
        elif not is_read(node) or (_NOTES & classes(node) and not self._in_section()):
            return
        elif tag in _HEADINGS:
            self._heading(node, depth)
        elif tag in ("ul", "ol", "dl"):
            self.add("\n".join(self._items(node, depth, 0)))
        elif tag == "table" and tables.is_data(node):
            self.add(tables.markdown(node, depth))
        elif tag == "pre":
            self.add(f"```\n{(node.text() or '').strip()}\n```")
        elif tag == "blockquote":
            self.add("> " + text(node, depth).replace("\n", "\n> "))
        else:
            self.read(node, depth)

    def _in_section(self) -> bool:
        return len(self._sections) > 1

    def _heading(self, node: "LexborNode", depth: int) -> None:
        named = node if node.attributes.get("id") else node.css_first("[id]")
        anchor = (named.attributes.get("id") or "") if named is not None else ""
        self.add(" ".join(text(node, depth).split()), _HEADINGS[node.tag or "h2"], anchor)

    def _items(self, node: "LexborNode", depth: int, indent: int) -> Iterator[str]:
        """The lines of a list; of a list in an item, further in."""
        number = 0
        for item in node.iter():
            if item.tag not in ("li", "dt", "dd") or not is_read(item):
                continue
            number += item.tag == "li"
            inner = [child for child in children(item) if child.tag in ("ul", "ol", "dl") and is_read(child)]
            own = (child for child in children(item) if child.tag not in ("ul", "ol", "dl"))
            line = tidy("".join(part for child in own for part in piece(child, depth))).replace("\n", " ")
            mark = {"dt": "", "dd": "  "}.get(item.tag or "", f"{number}. " if node.tag == "ol" else "- ")
            if line:
                self._offer(item, line)
                yield f"{'  ' * indent}{mark}{line}{':' if item.tag == 'dt' else ''}"
            for below in inner if depth < DEPTH_MOST and indent < LIST_DEPTH else ():
                yield from self._items(below, depth + 1, indent + 1)

    def _offer(self, item: "LexborNode", line: str) -> None:
        """Keeps where the first link of a list item leads."""
        if len(self.choices) < CHOICES_MOST:
            link = item.css_first("a[href]")
            if link is not None and not {"external", "extiw", "new"} & classes(link):
                title = link.attributes.get("title") or text(link)
                self.choices += [] if _SPECIAL.match(title) else [(title, line)]


def _holds_blocks(node: "LexborNode") -> bool:
    """Whether an element is one of blocks: by its kind, or, as some templates' spans, by what is in it."""
    if is_block(node):
        return True
    return bool(node.is_element_node and node.tag in ("span", "b", "i", "small", "font", "a") and _first_block(node))


def _first_block(node: "LexborNode") -> bool:
    return any(is_block(child) for child in node.iter())


def read(html: str) -> dict[str, Any]:
    """What a page says, ready for JSON.

    Returns:
        `blocks`, each a heading (`level`, `text`, `anchor`) or a text (`level` 0); `facts`, the box of facts;
        `choices`, the first links of list items with their lines; `disambiguation`.
    """
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    reading = Reading()
    if tree.body is not None:
        reading.read(tree.body)
    return {
        "blocks": list(reading.blocks),
        "facts": reading.facts,
        "choices": reading.choices,
        "disambiguation": tree.css_first(_CHOICE_BOXES) is not None,
    }


def answer(_: Any, data: bytes, __: Tell) -> tuple[dict[str, Any], bytes]:
    """What the HTML says, in UTF-8."""
    return read(data.decode("utf-8", "replace")), b""
