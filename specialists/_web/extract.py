"""Convert one page to Markdown in a child process, because a hostile page can occupy a parser for minutes.

trafilatura picks the article, if it is installed. `_kit.html` writes the Markdown. Imports nothing from `brain`.
"""

import re
from collections.abc import Iterator, Sequence, Set
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
MAX_OPENING = 2_000
"""Characters of the first post of a discussion; a longer text is an article, whatever the comments say."""
MAX_DISCUSSION = 500_000
MAX_REFRESH_SECONDS = 10
_REFRESH = re.compile(r"\s*(\d{1,4})[\d.]*\s*[;,]\s*url\s*=\s*['\"]?([^'\"\s]{1,2000})", re.IGNORECASE)
_WORD = re.compile(r"\w")
_LOST = frozenset(("data", "rp", "rt", "time"))
"""Elements whose text trafilatura always drops."""
_FIRST_SIGN = 0x2800
_MARK = re.compile("[\u2800-\u28ff]{3}")
"""The number of a text node in Braille, which trafilatura keeps and takes for no word."""
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
    texts: list[Any] = []
    blocks = convert(tree.body, page_rules(url if links else ""), texts) if tree.body is not None else []
    whole = tidy(join_blocks(blocks))
    facts: dict[str, str] = {}
    text = ""
    if pick_article:
        lengths = _mark(tree, texts)
        facts, text = _find_article(tree.html, blocks, lengths)
        is_discussed = SHORT <= len(text) < min(MAX_OPENING, DISCUSSED_SHARE * len(whole))
        if is_discussed and len(html) < MAX_DISCUSSION:
            discussion = _find_article(tree.html, blocks, lengths, comments=True)[1]
            text = discussion if DISCUSSED_SHARE * len(discussion) > len(text) else text
        tree = LexborHTMLParser(html)  # without marks
    text = text if len(text) >= SHORT else whole
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


def _mark(tree: Any, texts: Sequence[Any]) -> Sequence[int]:
    """Mark the text nodes of a page, so that they are found in what trafilatura makes of it.

    Returns:
        The length of each node; 0 for nodes without a mark.
    """
    lengths = []
    for number, node in enumerate(texts):
        text = (node.text_content or "").strip()
        lengths.append(len(text) if _WORD.search(text) and node.parent.tag not in _LOST else 0)
        if lengths[-1]:
            node.insert_before("".join(chr(_FIRST_SIGN + digit) for digit in number.to_bytes(3, "big")))
    for node in tree.css("sup a[href^='#']"):  # many links make a paragraph navigation, but notes do not
        node.unwrap()
    return lengths


def _find_article(
    html: str | None, blocks: Sequence[Block], lengths: Sequence[int], *, comments: bool = False
) -> tuple[dict[str, str], str]:
    """Return the metadata and the article that trafilatura finds in a page with marks.

    Both are empty if it is not installed. The article is empty if it finds none.
    """
    try:
        from trafilatura import extract, extract_metadata, load_html
    except ImportError:
        return {}, ""
    tree = load_html(html or "")
    if tree is None:
        return {}, ""
    metadata = extract_metadata(tree, date_config={"extensive_search": False, "original_date": True})
    text = extract(tree, output_format="markdown", include_comments=comments) or ""
    facts = {"author": _MARK.sub("", metadata.author or ""), "site": _MARK.sub("", metadata.sitename or "")}
    if "\n" in text.strip() and "\n\n" not in text.strip():  # all lines of the page, so no article
        return facts, ""
    found = {int.from_bytes(bytes(ord(sign) - _FIRST_SIGN for sign in mark), "big") for mark in _MARK.findall(text)}
    if not found:  # it is in an element that is skipped here, such as an `aside`
        return facts, tidy(text)
    return facts, tidy(join_blocks(_pick(blocks, lengths, found)))


def _pick(blocks: Sequence[Block], lengths: Sequence[int], found: Set[int]) -> Iterator[Block]:
    """Yield the blocks whose texts were found, and tables, code, plain paragraphs and captions next to them.

    trafilatura loses some of these, all captions and formulas, and some headings.
    """
    whole = [sum(lengths[number] for number in range(*block.texts)) for block in blocks]
    own = [sum(lengths[number] for number in range(*block.texts) if number in found) for block in blocks]
    picked = [
        some * 2 > all or (some > 0 and block.kind == "table")
        for block, some, all in zip(blocks, own, whole, strict=True)
    ]
    numbers = [number for number, is_picked in enumerate(picked) if is_picked]
    for number in range(numbers[0] + 1, min(len(blocks), numbers[-1] + 2)) if numbers else ():
        block = blocks[number]
        is_formula = not whole[number] and _WORD.search(block.text) is not None
        picked[number] = (
            picked[number]
            or block.kind == "code"
            or (block.kind == "table" and number < numbers[-1])
            or ((block.is_caption or is_formula) and picked[number - 1])
        )
    for number in reversed(range(max(0, numbers[0] - 1), numbers[-1]) if numbers else ()):
        block, is_plain = blocks[number], blocks[number].kind == "text" and blocks[number].link is None
        picked[number] = picked[number] or (
            picked[number + 1]
            and (
                (_is_heading(block) and not _is_heading(blocks[number + 1]))
                or (is_plain and number > 0 and picked[number - 1])
            )
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
