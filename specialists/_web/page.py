"""Fetch one page of any supported type and read it as an article."""

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

import msgspec

from brain import Context, Page, Refused
from specialists._kit.html import MAX_TEXT
from specialists._kit.isolated import Ended, Limits, run_isolated
from specialists._kit.text import one_line, repair, tidy
from specialists._pictures import reader
from specialists._web.extract import SHORT, Article

TYPES = (
    "text/*", "application/xhtml+xml", "application/pdf", "application/json", "application/ld+json",
    "application/feed+json", "application/xml", "application/rss+xml", "application/atom+xml", "application/yaml",
)  # fmt: skip
MAX_PAGE_BYTES = 10 * 1024 * 1024
FETCH_SECONDS = 10.0
MAX_HTML = 2_000_000
"""Characters of HTML that are read. trafilatura needs up to ten seconds for this many."""
ANSWERING_SECONDS = 0.5
"""Time reserved for the answer before the call's deadline."""
WAYS = {"feed": 3, "html": 8, "plain": 3, "stripped": 2}
"""Ways to read a page, each with its CPU seconds. If one fails, the next one is tried."""
MAX_REFRESHES = 2
MAX_PDF_PAGES = 100
_CUT = "(The page is too long. Only this part was read.)"
OTHER_SOURCE = "use another source"
_HTML = frozenset(("text/html", "application/xhtml+xml"))
_FEEDS = frozenset(("application/rss+xml", "application/atom+xml", "application/xml", "text/xml"))
_FEED = re.compile(r"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--[^>]{0,500}-->\s*)*<(?:rss|feed|rdf:RDF)\b")
_XHTML = re.compile(r"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!DOCTYPE html[^>]{0,300}>\s*)?<html\b", re.IGNORECASE)
_SCHEMELESS = re.compile(r"(?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}(?:[/?#].*)?", re.IGNORECASE | re.DOTALL)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


async def read(url: str, context: Context, *, links: bool) -> tuple[str, Article]:
    """Return the final URL of a page, after all redirects, and its article.

    Raises:
        Refused: if the page cannot be fetched or read, or has no text.
    """
    url = f"https://{url}" if _SCHEMELESS.fullmatch(url) else url
    for _ in range(MAX_REFRESHES + 1):
        seconds = min(FETCH_SECONDS, context.seconds_left)
        page = await context.fetch(url, types=TYPES, most=MAX_PAGE_BYTES, seconds=seconds)
        article = await _read_page(page.good(), context.seconds_left - ANSWERING_SECONDS, links=links)
        if not article.refresh or len(article.text) >= SHORT or article.refresh == page.url:
            break
        url = article.refresh
    if article.scripted:
        raise Refused(f"the page at {format_host(page.url)} needs JavaScript, which is not run here", OTHER_SOURCE)
    if not article.text.strip():
        raise Refused(f"the page at {format_host(page.url)} has no readable text", OTHER_SOURCE)
    return page.url, article


async def _read_page(page: Page, seconds: float, *, links: bool) -> Article:
    if page.type == "application/pdf" or page.body.startswith(b"%PDF-"):
        return await _read_pdf(page, seconds)
    text = await asyncio.to_thread(decode, page)
    if page.type in _FEEDS and _FEED.match(text):
        return await _run_reader("feed", text, page, seconds, links=links)
    if page.type in _HTML or (page.type in _FEEDS and _XHTML.match(text)):
        return await _run_reader("html", text, page, seconds, links=links)
    if "json" in page.type:  # one value per line, so that a cut is harmless
        with suppress(msgspec.DecodeError, RecursionError, ValueError):
            text = (await asyncio.to_thread(msgspec.json.format, page.body, indent=1)).decode("utf-8", "replace")
    return Article(title=_name_of(page), text=await asyncio.to_thread(tidy, text[:MAX_TEXT]))


async def _run_reader(first: str, text: str, page: Page, seconds: float, *, links: bool) -> Article:
    """Read an article in a child process, in a simpler way if the first one fails."""
    data, end = text[:MAX_HTML].encode("utf-8", "replace"), time.monotonic() + seconds
    for way in list(WAYS)[list(WAYS).index(first) :]:
        request, left = {"way": way, "url": page.url, "links": links}, end - time.monotonic()
        with suppress(Ended):
            fields = await run_isolated("_web.extract", request, data, limits=Limits(WAYS[way]), seconds=left)
            article = msgspec.convert(fields, Article)
            return article if len(text) <= MAX_HTML else replace(article, text=f"{article.text}\n\n{_CUT}")
    raise Refused(f"the page at {format_host(page.url)} could not be read in time", OTHER_SOURCE)


def decode(page: Page) -> str:
    """Decode a page, with a guessed encoding if the declared one is wrong or missing."""
    return repair(page.text, page.body)


async def _read_pdf(page: Page, seconds: float) -> Article:
    """Read the text layer of a PDF, page by page."""
    name = _name_of(page)
    pdf = await reader.open_pages(page.body, name=name, numbers=range(1, MAX_PDF_PAGES + 1), seconds=seconds)
    texts = {number: pdf.texts.get(number) for number in range(1, min(pdf.count, MAX_PDF_PAGES) + 1)}
    if not any(text and text.strip() for text in texts.values()):
        raise Refused(f"the PDF '{name}' is a scan without text", "ask the user to attach it for ocr")
    pages = [f"## Page {number} of {pdf.count}\n\n{text or '(not readable)'}" for number, text in texts.items()]
    if pdf.count > len(texts):
        pages.append(f"(Only the first {len(texts)} of {pdf.count} pages were read.)")
    return Article(title=name, text=tidy("\n\n".join(pages)[:MAX_TEXT]))


def _name_of(page: Page) -> str:
    """Return the last part of the URL's path, or its host."""
    path = page.url.partition("://")[2].partition("?")[0].rstrip("/")
    return one_line(path.rpartition("/")[2] or path, 100)


def format_host(url: str) -> str:
    """Return host and port of a URL for people, without `www`."""
    try:
        parts = urlsplit(url if _SCHEME.match(url) else f"//{url}")
        host, port = parts.hostname or "", parts.port
    except ValueError:  # such as a port that is not a number
        return "an invalid URL"
    host = f"[{host}]" if ":" in host else host.removeprefix("www.")
    return f"{host}:{port}"[:100] if port else host[:100]
