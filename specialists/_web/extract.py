"""Makes Markdown of one page in a child process: a hostile page can keep a parser for minutes."""

import re
from dataclasses import asdict
from typing import Any
from urllib.parse import urljoin

from specialists._kit.child import Tell
from specialists._markdown import markdown
from specialists._web.article import TEXT_MOST, Article
from specialists._web.cleaning import one_line, tidy
from specialists._web.facts import FACTS, fact, paid, published
from specialists._web.feeds import feed
from specialists._web.preparing import NOISE, prepared, with_code, with_rules
from specialists._web.stripping import strange, stripped

SHORT = 250
"""Characters below which trafilatura found no article, and gives what it can find without its structure."""
DISCUSSED = 0.3
"""Of a page whose article is a smaller part of it, the comments are the matter, if they are what the rest is."""
DISCUSSION_MOST = 500_000
REFRESH_SECONDS_MOST = 10
_REFRESH = re.compile(r"\s*(\d{1,4})[\d.]*\s*[;,]\s*url\s*=\s*['\"]?([^'\"\s]{1,2000})", re.IGNORECASE)


def article(html: str, url: str, *, links: bool, main: bool = True) -> Article:
    """The text of a page with its headings, lists, tables and code, and what is known of it.

    Args:
        main: whether to look for the part of it that is an article.
    """
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(html)
    whole = tidy(markdown(tree, url if links else None))
    found, text = _main(html, url, links=links) if main else ({}, "")
    if len(text) < SHORT:
        text = whole
    elif len(text) < DISCUSSED * len(whole) and len(html) < DISCUSSION_MOST:
        talk = _main(html, url, links=links, comments=True)[1]
        text = talk if DISCUSSED * len(talk) > len(text) else text
    facts = {name: one_line(fact(tree, name) or found.get(name) or "", 200) for name in FACTS}
    return Article(
        **facts,
        date=published(tree, url),
        text=text[:TEXT_MOST],
        scripted=len(text) < SHORT and _scripted(tree, text),
        paid=paid(tree),
        refresh=_refresh(tree, url),
    )


def bare(html: str) -> Article:
    """The text of a page that no parser can be trusted with."""
    return Article(text=tidy(stripped(html))[:TEXT_MOST])


def _main(html: str, url: str, *, links: bool, comments: bool = False) -> tuple[dict[str, str | None], str]:
    """What trafilatura finds; nothing where it is not installed."""
    try:
        from trafilatura import extract, extract_metadata, load_html
    except ImportError:
        return {}, ""
    tree = load_html(html)
    if tree is None:
        return {}, ""
    codes = prepared(tree, url if links else None)
    known = extract_metadata(tree, date_config={"extensive_search": False, "original_date": True})
    found = extract(
        tree, output_format="markdown", include_comments=comments, include_links=links, prune_xpath=list(NOISE)
    )
    facts, text = {"author": known.author, "site": known.sitename}, found or ""
    return facts, "" if _structureless(text) else tidy(with_code(with_rules(text), codes))


def _structureless(text: str) -> bool:
    """Whether no article was found, and this is what stands on the page, and not all of it, line by line."""
    return "\n" in text.strip() and "\n\n" not in text.strip()


def _scripted(tree: Any, text: str) -> bool:
    """Whether a page with little text has it from scripts."""
    return tree.css_first("script") is not None and (not text or "javascript" in text.lower())


def _refresh(tree: Any, url: str) -> str:
    for node in tree.css("meta[http-equiv]"):
        found = _REFRESH.match(node.attributes.get("content") or "")
        at_once = found is not None and int(found[1]) <= REFRESH_SECONDS_MOST
        if found and at_once and (node.attributes.get("http-equiv") or "").lower() == "refresh":
            try:
                return str(urljoin(url, found[2]))
            except ValueError:
                return ""
    return ""


def of_feed(text: str) -> Article:
    """The items of a feed; what is none is taken for text with tags."""
    found = feed(text)
    return Article(title=found[0], text=tidy(found[1])) if found else bare(text)


def read(way: str, text: str, url: str, *, links: bool) -> Article:
    """What a page says, read in one of the ways."""
    if way == "feed":
        return of_feed(text)
    if way == "stripped" or strange(text):
        return bare(text)
    return article(text, url, links=links, main=way == "html")


def answer(words: Any, data: bytes, _: Tell) -> tuple[dict[str, Any], bytes]:
    """The fields of the `Article` that a page is, in UTF-8.

    Args:
        words: `way` (`feed`, `html`; for what is too much for that, `plain` and `stripped`), the page's `url`, and
            whether `links` are wanted.
    """
    return asdict(read(words["way"], data.decode("utf-8", "replace"), words["url"], links=words["links"])), b""
