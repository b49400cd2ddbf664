"""Convert an RSS or Atom feed to Markdown, in the order of the feed. Imports nothing from `brain`."""

import re
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from html import unescape
from xml.etree import ElementTree

from specialists._kit.text import one_line

MAX_ITEMS = 200
SUMMARY_LENGTH = 300
_PIECE = 65_536
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,1000}>")


def read_feed(text: str) -> tuple[str, str] | None:
    """Return the title and the items of a feed, up to its first XML error; None for an error before any item."""
    title, items = "", list[str]()
    try:
        for element in _elements(text):
            name = _local_name(element)
            if name == "title" and not title and not items:
                title = _plain_text(element)
            elif name in ("item", "entry"):
                items.append(_show_item(element))
                if len(items) == MAX_ITEMS:
                    break
    except ElementTree.ParseError:
        if not items:
            return None
    return title, "\n\n".join(items)


def _elements(text: str) -> Iterator[ElementTree.Element]:
    """Yield each element as soon as it is complete; the rest of the feed may be truncated or broken."""
    parser: ElementTree.XMLPullParser[ElementTree.Element] = ElementTree.XMLPullParser(["end"])
    for start in range(0, len(text), _PIECE):
        parser.feed(text[start : start + _PIECE])
        yield from (event[-1] for event in parser.read_events() if isinstance(event[-1], ElementTree.Element))
    parser.close()


def _show_item(item: ElementTree.Element) -> str:
    parts = {_local_name(part): part for part in reversed(item)}

    def first(*names: str) -> str:
        return next(filter(None, (_plain_text(parts[name]) for name in names if name in parts)), "")

    date = first("pubDate", "published", "updated", "date")
    if re.match(r"\d{4}-\d\d-\d\d", date):
        date = date[:10]
    elif date:
        with suppress(ValueError, TypeError):
            date = parsedate_to_datetime(date).date().isoformat()
    lines = [f"- {first('title') or '(untitled)'}"]
    if re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        lines[0] += f" ({date})"
    link = parts.get("link")
    url = (link.get("href") or link.text or "").strip() if link is not None else ""
    if url.startswith(("http://", "https://")):
        lines.append(f"  {url[:500]}")
    if summary := first("description", "summary", "content"):
        lines.append(f"  {summary}")
    return "\n".join(lines)


def _plain_text(element: ElementTree.Element) -> str:
    text = unescape((element.text or "")[:5000])
    return one_line(unescape(_TAG.sub(" ", text)), SUMMARY_LENGTH)


def _local_name(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]
