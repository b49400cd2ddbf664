"""Makes Markdown of an RSS or Atom feed, newest first as the feed has it. Imports nothing of Brain."""

import re
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from html import unescape
from xml.etree import ElementTree

from specialists._kit.text import one_line

ITEMS_MOST = 200
SUMMARY_LENGTH = 300
_PIECE = 65_536
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,1000}>")


def read_feed(text: str) -> tuple[str, str] | None:
    """The title of a feed, and its items as a list, as far as it is XML; None when it is none, and names no item."""
    title, items, whole = "", list[str](), False
    with suppress(ElementTree.ParseError):
        for element in _elements(text):
            tag = _name(element)
            if tag == "title" and not title and not items:
                title = _plain(element.text)
            if tag in ("item", "entry"):
                items.append("\n".join(_lines(element)))
            if len(items) == ITEMS_MOST:
                break
        whole = True
    return (title, "\n\n".join(items)) if whole or items else None


def _elements(text: str) -> Iterator[ElementTree.Element]:
    """Each element when it is read; what follows may be cut off or broken."""
    parser: ElementTree.XMLPullParser[ElementTree.Element] = ElementTree.XMLPullParser(["end"])
    for start in range(0, len(text), _PIECE):
        parser.feed(text[start : start + _PIECE])
        yield from (event[-1] for event in parser.read_events() if isinstance(event[-1], ElementTree.Element))
    parser.close()


def _lines(item: ElementTree.Element) -> Iterator[str]:
    parts = {_name(one): one for one in reversed(item)}
    dated = next((parts[name].text for name in ("pubDate", "published", "updated", "date") if name in parts), "")
    found = _date(dated or "")
    yield f"- {_text_of(parts, 'title') or '(untitled)'}{f' ({found})' if found else ''}"
    link = parts.get("link")
    address = (link.get("href") or link.text or "").strip() if link is not None else ""
    if address.startswith(("http://", "https://")):
        yield f"  {address[:500]}"
    summary = _text_of(parts, "description") or _text_of(parts, "summary") or _text_of(parts, "content")
    if summary:
        yield f"  {summary}"


def _text_of(parts: dict[str, ElementTree.Element], name: str) -> str:
    return _plain(parts[name].text) if name in parts else ""


def _plain(text: str | None) -> str:
    return one_line(unescape(_TAG.sub(" ", unescape((text or "")[:5000]))), SUMMARY_LENGTH)


def _date(text: str) -> str:
    if re.match(r"\d{4}-\d\d-\d\d", text.strip()):
        return text.strip()[:10]
    with suppress(ValueError, TypeError):
        return parsedate_to_datetime(text).date().isoformat()
    return ""


def _name(element: ElementTree.Element) -> str:
    """Without the namespace."""
    return str(element.tag).rpartition("}")[2]
