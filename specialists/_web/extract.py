"""Convert one page to Markdown in a child process, because a hostile page can occupy a parser for minutes.

trafilatura picks the article, if it is installed. `_kit.html` writes the Markdown. Imports nothing from `brain`.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any
from urllib.parse import urljoin

from specialists._kit.child import Report
from specialists._kit.html import MAX_TEXT, Block, convert, is_hostile, join_blocks, page_rules, strip_tags
from specialists._kit.text import one_line, tidy
from specialists._web.feeds import read_feed

SHORT = 250
"""A shorter text is no article."""
DISCUSSED_SHARE = 0.3
"""If the article is a smaller share of the page, and comments are most of the rest, the comments are the text."""
MAX_DISCUSSION = 500_000
MAX_REFRESH_SECONDS = 10
_REFRESH = re.compile(r"\s*(\d{1,4})[\d.]*\s*[;,]\s*url\s*=\s*['\"]?([^'\"\s]{1,2000})", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_TARGET = re.compile(r"\]\([^()\s]*\)")
_GRAM = 4
"""Number of consecutive words that identify a block in the article."""
_FACTS = {
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
_JSON_LD_DATE = re.compile(r'"(?:datePublished|dateCreated|uploadDate)"\s{0,9}:\s{0,9}"([^"]{8,40})"')
_NOT_FREE = re.compile(r'"isAccessibleForFree"\s{0,9}:\s{0,9}"?false', re.IGNORECASE)
_ISO = re.compile(r"\s*(\d{4})[-/.]?(\d\d)[-/.]?(\d\d)(?!\d)")
_DATE_IN_URL = re.compile(r"/(\d{4})/(\d\d)/(\d\d)/")
_MAX_TIMES = 3
"""With more `time` elements, a page probably lists several articles, so none of them is its date."""


@dataclass(frozen=True, slots=True)
class Article:
    """The text and metadata of a page. Missing metadata is empty; `date` is ISO.

    Attributes:
        scripted: whether scripts would create the text.
        paid: whether the page declares a paywall.
        refresh: target URL of an immediate `<meta>` refresh.
    """

    title: str = ""
    author: str = ""
    site: str = ""
    date: str = ""
    text: str = ""
    scripted: bool = False
    paid: bool = False
    refresh: str = ""


def answer(words: Any, data: bytes, _: Report) -> tuple[dict[str, Any], bytes]:
    """Return the fields of the `Article` of a page in UTF-8.

    Args:
        words: `way` (`feed`, `html`, or as fallbacks `plain` and `stripped`), the page's `url`, and whether to keep
            its `links`.
    """
    return asdict(read(words["way"], data.decode("utf-8", "replace"), words["url"], links=words["links"])), b""


def read(way: str, text: str, url: str, *, links: bool) -> Article:
    """Read a page in one of the ways of `answer`."""
    if way == "feed" and (feed := read_feed(text)):
        return Article(title=feed[0], text=tidy(feed[1]))
    if way in ("feed", "stripped") or is_hostile(text):
        return Article(text=tidy(strip_tags(text))[:MAX_TEXT])
    return read_page(text, url, links=links, pick_article=way == "html")


def read_page(html: str, url: str, *, links: bool, pick_article: bool = True) -> Article:
    """Read the text of a page with headings, lists, tables and code, and its metadata.

    Args:
        pick_article: whether to drop everything around the article.
    """
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    blocks = convert(tree.body, page_rules(url if links else "")) if tree.body is not None else []
    whole = tidy(join_blocks(blocks))
    facts, text = _find_article(html, blocks) if pick_article else ({}, "")
    if len(text) < SHORT:
        text = whole
    elif len(text) < DISCUSSED_SHARE * len(whole) and len(html) < MAX_DISCUSSION:
        discussion = _find_article(html, blocks, comments=True)[1]
        text = discussion if DISCUSSED_SHARE * len(discussion) > len(text) else text
    json_ld = [node.text(deep=True) or "" for node in tree.css("script[type='application/ld+json']")]
    has_scripts = tree.css_first("script") is not None
    return Article(
        **{name: one_line(_find_fact(tree, name) or facts.get(name) or "", 200) for name in _FACTS},
        date=_find_date(tree, url, json_ld),
        text=text[:MAX_TEXT],
        scripted=len(text) < SHORT and has_scripts and (not text or "javascript" in text.lower()),
        paid=any(_NOT_FREE.search(text) for text in json_ld),
        refresh=_find_refresh(tree, url),
    )


def _find_article(html: str, blocks: Sequence[Block], *, comments: bool = False) -> tuple[dict[str, str | None], str]:
    """Return the metadata and the article that trafilatura finds.

    Both are empty if it is not installed. The article is empty if it finds none.
    """
    try:
        from trafilatura import extract, extract_metadata, load_html
    except ImportError:
        return {}, ""
    tree = load_html(html)
    if tree is None:
        return {}, ""
    metadata = extract_metadata(tree, date_config={"extensive_search": False, "original_date": True})
    text = extract(tree, output_format="markdown", include_comments=comments) or ""
    facts = {"author": metadata.author, "site": metadata.sitename}
    if "\n" in text.strip() and "\n\n" not in text.strip():  # all lines of the page, so no article
        return facts, ""
    return facts, tidy(join_blocks(_pick(blocks, text)))


def _pick(blocks: Sequence[Block], article: str) -> Iterator[Block]:
    """Yield the blocks whose words are in the article, and tables, code and plain paragraphs between them.

    trafilatura loses some of these, and some headings.
    """
    lines = {tuple(_WORD.findall(line.lower())) for line in article.splitlines()}
    words = _WORD.findall(article.lower())
    grams = {tuple(words[at : at + _GRAM]) for at in range(len(words) - _GRAM + 1)}

    def is_in_article(block: Block) -> bool:
        own = tuple(_WORD.findall(_TARGET.sub("]", block.text).lower()))
        count = len(own) - _GRAM + 1
        return own in lines if count < 1 else sum(own[at : at + _GRAM] in grams for at in range(count)) > count / 2

    picked = [is_in_article(block) for block in blocks]
    numbers = [number for number, is_picked in enumerate(picked) if is_picked]
    for number in reversed(range(max(0, numbers[0] - 1), min(len(blocks), numbers[-1] + 2)) if numbers else ()):
        block, is_followed = blocks[number], picked[number + 1 : number + 2] == [True]
        picked[number] = (
            picked[number]
            or block.kind in ("table", "code")
            or (is_followed and _is_heading(block) and not _is_heading(blocks[number + 1]))
            or (is_followed and block.kind == "text" and block.link is None and number > 0 and picked[number - 1])
        )
    return (block for block, is_picked in zip(blocks, picked, strict=True) if is_picked)


def _is_heading(block: Block) -> bool:
    """Whether a block is a heading or a bold line."""
    return block.kind == "heading" or re.fullmatch(r"\*\*[^*\n]{1,100}\*\*", block.text) is not None


def _find_refresh(tree: Any, url: str) -> str:
    for node in tree.css("meta[http-equiv]"):
        found = _REFRESH.match(node.attributes.get("content") or "")
        is_soon = found is not None and int(found[1]) <= MAX_REFRESH_SECONDS
        if found and is_soon and (node.attributes.get("http-equiv") or "").lower() == "refresh":
            try:
                return str(urljoin(url, found[2]))
            except ValueError:
                return ""
    return ""


def _find_fact(tree: Any, name: str) -> str:
    """Return metadata from the page's head, or from the first element that has it."""
    for selector in _FACTS[name]:
        node = tree.css_first(selector)
        if node is not None:
            value = node.attributes.get("content") if node.tag == "meta" else node.text(deep=True)
            if value and value.strip():
                return str(value)
    return ""


def _find_date(tree: Any, url: str, json_ld: Sequence[str]) -> str:
    """Return the publication date as YYYY-MM-DD, or an empty string.

    Only metadata counts, never a date in the text.
    """
    for candidate in _find_iso_dates(tree, url, json_ld):
        if found := _ISO.match(candidate):
            with suppress(ValueError):
                return date(int(found[1]), int(found[2]), int(found[3])).isoformat()
    try:
        from htmldate import find_date
    except ImportError:
        return ""
    for node in tree.css(_DATED_CLASSES)[:5]:  # a date in words
        text = " ".join((node.text(deep=True, separator=" ") or "").split())
        if 6 <= len(text) <= 100:
            safe = text.replace("&", " ").replace("<", " ")
            if day := find_date(f"<html><body><p class='date'>{safe}</p></body></html>", original_date=True):
                return str(day)
    return ""


def _find_iso_dates(tree: Any, url: str, json_ld: Sequence[str]) -> Iterator[str]:
    metas: dict[str, str] = {}
    for node in tree.css("meta[content]"):
        names = (node.attributes.get(key) for key in ("property", "name", "itemprop"))
        metas.setdefault(next((name for name in names if name), "").lower(), node.attributes["content"] or "")
    yield from (metas[name] for name in _DATED_METAS if name in metas)
    for text in json_ld:
        yield from (found[1] for found in _JSON_LD_DATE.finditer(text))
    yield from (f"{found[1]}-{found[2]}-{found[3]}" for found in _DATE_IN_URL.finditer(url))
    times = tree.css("article time[datetime]") or tree.css("time[datetime]")
    if len(times) <= _MAX_TIMES:
        yield from (node.attributes["datetime"] or "" for node in times)
