"""Title, author and date of a page, by what it says of itself; a date that stands in its text is none.

Imports nothing of Brain.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from typing import Any

FACTS = {
    "title": ("meta[property='og:title']", "meta[name='citation_title']", "head title", "title", "h1"),
    "site": ("meta[property='og:site_name']", "meta[name='application-name']"),
    "author": ("meta[name='author']", "a[rel='author']"),
}
_DATED_METAS = (
    "article:published_time", "og:published_time", "datepublished", "date", "dc.date", "dc.date.issued",
    "dcterms.created", "dcterms.issued", "citation_publication_date", "citation_date", "pubdate", "publishdate",
    "publish-date", "parsely-pub-date", "sailthru.date", "article.published",
)  # fmt: skip
_DATED_CLASSES = "[class*='date'], [class*='publish'], [class*='posted'], [class*='byline'], [id*='date']"
_JSON_LD = re.compile(r'"(?:datePublished|dateCreated|uploadDate)"\s{0,9}:\s{0,9}"([^"]{8,40})"')
_NOT_FREE = re.compile(r'"isAccessibleForFree"\s{0,9}:\s{0,9}"?false', re.IGNORECASE)
_ISO = re.compile(r"\s*(\d{4})[-/.]?(\d\d)[-/.]?(\d\d)(?!\d)")
_IN_ADDRESS = re.compile(r"/(\d{4})/(\d\d)/(\d\d)/")
_TIMES_MOST = 3
"""Times on a page of one article; with more, each may be that of another one."""


def fact(tree: Any, name: str) -> str:
    """A fact in the page's head, or the first element that holds it."""
    for selector in FACTS[name]:
        node = tree.css_first(selector)
        if node is not None:
            value = node.attributes.get("content") if node.tag == "meta" else node.text(deep=True)
            if value and value.strip():
                return str(value)
    return ""


def paid(tree: Any) -> bool:
    """Whether a page says that it, or a part of it, is only for those who pay (schema.org)."""
    return any(_NOT_FREE.search(text) for text in _structured(tree))


def published(tree: Any, url: str) -> str:
    """The date of publication as YYYY-MM-DD, empty when the page does not give it."""
    for given in _given(tree, url):
        found = _ISO.match(given)
        if found:
            with suppress(ValueError):
                return date(int(found[1]), int(found[2]), int(found[3])).isoformat()
    return _worded(tree)


def _given(tree: Any, url: str) -> Iterator[str]:
    metas: dict[str, str] = {}
    for node in tree.css("meta[content]"):
        named = (node.attributes.get(key) for key in ("property", "name", "itemprop"))
        metas.setdefault(next((name for name in named if name), "").lower(), node.attributes["content"] or "")
    yield from (metas[name] for name in _DATED_METAS if name in metas)
    for text in _structured(tree):
        yield from (found[1] for found in _JSON_LD.finditer(text))
    yield from (f"{found[1]}-{found[2]}-{found[3]}" for found in _IN_ADDRESS.finditer(url))
    times = tree.css("article time[datetime]") or tree.css("time[datetime]")
    if len(times) <= _TIMES_MOST:
        yield from (node.attributes["datetime"] or "" for node in times)


def _structured(tree: Any) -> Iterator[str]:
    """The JSON-LD of a page."""
    return (node.text(deep=True) or "" for node in tree.css("script[type='application/ld+json']"))


def _worded(tree: Any) -> str:
    """A date in words, in an element that is said to hold one; nothing without htmldate."""
    try:
        from htmldate import find_date
    except ImportError:
        return ""
    for node in tree.css(_DATED_CLASSES)[:5]:
        text = " ".join((node.text(deep=True, separator=" ") or "").split())
        if 6 <= len(text) <= 100:
            safe = text.replace("&", " ").replace("<", " ")
            found = find_date(f"<html><body><p class='date'>{safe}</p></body></html>", original_date=True)
            if found:
                return str(found)
    return ""
