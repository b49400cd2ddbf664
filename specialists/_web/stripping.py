"""Takes the tags out of HTML in one pass, for pages that would keep a parser for minutes."""

import re
from html import unescape

DEPTH_MOST = 2000
"""Nested elements; parsers take quadratic time over them, and pages written by anybody have less than 100."""
TAG_MOST = 100_000
"""Characters of one tag; the attributes in it are compared with each other."""
_NAME = re.compile(r"/?[a-zA-Z][a-zA-Z0-9]{0,20}")
_OPEN_ENDED = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
    "p", "li", "dt", "dd", "td", "th", "tr", "thead", "tbody", "tfoot", "colgroup", "option", "optgroup", "rt", "rp",
})  # fmt: skip
"""Elements without an end, and those whose end may be left out."""
_UNREAD = frozenset(("script", "style", "template", "noscript", "svg", "title", "textarea", "iframe"))
_INLINE = frozenset({
    "a", "abbr", "b", "bdi", "cite", "code", "em", "font", "i", "kbd", "mark", "q", "s", "small", "span", "strong",
    "sub", "sup", "time", "u", "var", "wbr",
})  # fmt: skip


def strange(html: str) -> bool:
    """Whether a page nests deeper, or has longer tags, than any that was made to be read."""
    depth = deepest = position = 0
    while (start := html.find("<", position)) >= 0:
        end = html.find(">", start)
        if (end if end >= 0 else len(html)) - start > TAG_MOST:
            return not html.startswith("<!--", start)
        position = start + 1 if end < 0 else end + 1
        name = _NAME.match(html, start + 1)
        if name is None or name[0].lstrip("/").lower() in _OPEN_ENDED:
            continue
        depth = max(0, depth - 1) if name[0].startswith("/") else depth + 1
        deepest = max(deepest, depth)
        if end < 0:
            break
    return deepest > DEPTH_MOST


def stripped(html: str) -> str:
    """The text between the tags; blocks become lines, and what is no text is left out."""
    pieces, position, lower = [], 0, html.lower()
    while (start := html.find("<", position)) >= 0:
        pieces.append(html[position:start])
        name = _NAME.match(html, start + 1)
        word = name[0].lstrip("/").lower() if name else ""
        if html.startswith("<!--", start):
            end = html.find("-->", start)
        elif word in _UNREAD and name and not name[0].startswith("/"):
            end = lower.find(f"</{word}", start)
            end = end if end < 0 else html.find(">", end)
        elif name is None and not html.startswith(("<!", "<?"), start):
            pieces.append("<")
            position = start + 1
            continue
        else:
            end = html.find(">", start)
        if end < 0:
            return unescape("".join(pieces))
        pieces.append("" if word in _INLINE else "\n")
        position = html.index(">", end) + 1
    return unescape("".join([*pieces, html[position:]]))
