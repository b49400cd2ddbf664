"""The text within a paragraph, a cell or a list item of a wiki page, and what of it is not for reading."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

DEPTH_MOST = 150
"""Of nested elements; what lies deeper is left out. Real pages have some forty."""

NOT_READ_TAGS = frozenset({
    "audio", "button", "canvas", "figure", "form", "head", "iframe", "input", "link", "map", "meta", "noscript",
    "object", "script", "select", "style", "svg", "template", "textarea", "title", "video",
})  # fmt: skip
NOT_READ_CLASSES = frozenset({
    "ambox", "catlinks", "gallery", "geo-multi-punct", "geo-nondefault", "metadata", "mw-cite-backlink",
    "mw-collapsible-toggle", "mw-editsection", "mw-empty-elt", "mw-indicators", "mw-jump-link", "mw-references-wrap",
    "navbar", "navbox", "navigation-box", "noexcerpt", "noprint", "nv-view", "pi-image", "portal-bar", "portalbox",
    "printfooter", "reference", "references", "reflist", "shortdescription", "sidebar", "sistersitebox", "thumb", "toc",
    "vertical-navbox", "wikia-gallery",
})  # fmt: skip
"""Of Wikipedia's templates and of MediaWiki, Fandom and Kiwix themselves."""
NOT_READ_IDS = frozenset({"coordinates", "toc", "mw-navigation", "footer", "siteSub", "contentSub"})
BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "div", "dl", "dt", "fieldset",
    "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "li", "main", "nav", "ol", "p", "pre",
    "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
})  # fmt: skip

_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_SPACES = re.compile(r"[^\S\n]+")
_LINE_END = re.compile(r" ?\n\s*")
_BEFORE_STOP = re.compile(r" (?=[,.;:!?)\]](?:\s|$))")
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))
_EXPONENT = re.compile(r"[+\-−–]?\d{1,6}|[a-z]")
_STYLED = re.compile(r"\{\\(?:display|text)style (.*)\}", re.DOTALL)


def classes(node: "LexborNode") -> frozenset[str]:
    return frozenset((node.attributes.get("class") or "").lower().split())


def is_read(node: "LexborNode") -> bool:
    """Whether an element is for reading: not navigation, decoration, notes, hidden."""
    attributes = node.attributes
    return not (
        node.tag in NOT_READ_TAGS
        or (attributes.get("id") or "") in NOT_READ_IDS
        or NOT_READ_CLASSES & classes(node)
        or _HIDDEN.search(attributes.get("style") or "")
    )


def children(node: "LexborNode") -> Iterator["LexborNode"]:
    """The elements and texts right below, without comments."""
    return (child for child in node.iter(include_text=True) if child.is_element_node or child.is_text_node)


def is_block(node: "LexborNode") -> bool:
    return bool(node.is_element_node and node.tag in BLOCKS)


def text(node: "LexborNode", depth: int = 0) -> str:
    """The text of an element, tidied; blocks in it are set apart."""
    return tidy("".join(pieces(node, depth)))


def tidy(raw: str) -> str:
    """Single spaces, no invisible characters, none before a full stop where a note stood."""
    raw = _SPACES.sub(" ", raw.translate(_INVISIBLE))
    return _BEFORE_STOP.sub("", _LINE_END.sub("\n", raw)).strip()


def pieces(node: "LexborNode", depth: int) -> Iterator[str]:
    """What stands below an element, in order."""
    if depth > DEPTH_MOST:
        return
    for child in children(node):
        yield from piece(child, depth + 1)


def piece(node: "LexborNode", depth: int) -> Iterator[str]:
    """One node and what stands below it."""
    if node.is_text_node:
        yield (node.text_content or "").replace("\n", " ")
    elif formula(node) is not None:
        yield formula(node) or ""
    elif node.tag == "br":
        yield "\n"
    elif not is_read(node):
        return
    elif node.tag == "sup":
        raised = text(node, depth)
        yield f"^{raised}" if _EXPONENT.fullmatch(raised) else raised
    elif node.tag in BLOCKS:
        yield "; " if node.tag == "li" and node.prev is not None else " "
        yield from pieces(node, depth)
        yield " "
    else:
        yield from pieces(node, depth)


def formula(node: "LexborNode") -> str | None:
    """The TeX of a formula, None for what is none. The rendered one beside it is hidden or a picture."""
    kinds = classes(node)
    tex: Any = None
    if "mwe-math-element" in kinds:
        inner = node.css_first("math[alttext]") or node.css_first("img[alt]")
        tex = inner and (inner.attributes.get("alttext") or inner.attributes.get("alt"))
    elif node.tag == "math":
        tex = node.attributes.get("alttext")
    elif node.tag == "img" and any(kind.startswith("mwe-math") for kind in kinds):
        tex = node.attributes.get("alt")
    if not tex:
        return None
    styled = _STYLED.fullmatch(" ".join(tex.split()))
    return f"${(styled[1] if styled else tex).strip()}$"
