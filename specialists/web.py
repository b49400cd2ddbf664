"""`web` searches the web with SearXNG, Brave or ddgs, and reads one page as Markdown."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from brain import AssistContext, Citation, Context, Progress, Refused, Result, specialist
from specialists._kit.examples import read_examples
from specialists._kit.text import one_line, word_set
from specialists._web import search
from specialists._web.extract import Article
from specialists._web.page import format_host, read
from specialists._web.search import Query, SearchResults, Since, WebSettings

MAX_TEXT = 200_000
"""Maximum characters of a page in one result. The result block shows the first part of them."""
QUERY_LENGTH = 500
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_URL = re.compile(r"https?://[^\s<>\"'`]{4,2000}")
_DOMAIN = re.compile(
    r"\b(?:open|read|fetch|visit|summari[sz]e|load|öffne|lies|ouvre|abre|lee|resume)\s+(?:the page |the site )?"
    r"((?:[\w-]{1,63}\.){1,4}(?:com|org|net|de|fr|es|io|dev|eu|uk|gov|edu|info)(?:/[^\s<>\"'`]{0,500}?)?)(?=[\s.,;:!?]|$)",
    re.IGNORECASE,
)
_PUNCTUATION = ".,;:!?"
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_NEWS = re.compile(r"\b(?:news|headlines|nachrichten|schlagzeilen|actualités|noticias|titulares)\b", re.IGNORECASE)
_TODAY = re.compile(r"\b(?:today|tonight|heute|aujourd['’]hui|hoy)\b", re.IGNORECASE)
_WEB_WORDS = word_set(
    "web internet online google website websites site page link browse netz seite toile ligne línea red sitio día hoy "
    "heutige"
)
MAX_WORDS = 10
"""Words of an assisted search."""


def make_params(message: str, context: AssistContext) -> Mapping[str, str]:
    """Return the parameters of an assisted call: the URL in the message, or the words to search for."""
    if url := _find_url(message):
        return {"url": url}
    if domain := _DOMAIN.search(message):
        return {"url": f"https://{domain[1]}"}
    words = context.find_subject(message, _WEB_WORDS)[:MAX_WORDS]
    since = {"since": "day" if _TODAY.search(message) else "week"} if _NEWS.search(message) else {}
    return {"query": " ".join(words) or one_line(message, QUERY_LENGTH), **since}


def find_sent(params: Mapping[str, Any], message: str) -> Mapping[str, Any]:
    """Return the parameters that go to other hosts. A call without query and url takes them from the message."""
    sent = {name: params[name] for name in ("query", "url", "max_results", "since") if params.get(name) is not None}
    if message.strip() and not any(str(sent.get(name, "")).strip() for name in ("query", "url")):
        url = _find_url(message)
        sent |= {"url": url} if url else {"query": one_line(message, QUERY_LENGTH)}
    return sent


@specialist(
    read_only=True,
    sends=find_sent,
    timeout=25,
    cache_seconds=300,
    settings=WebSettings,
    needs=search.find_problem,
    health=search.health,
    assist=make_params,
    tags=("web", "search", "news"),
    examples=(
        "newest release of PostgreSQL",
        "search the web for beaches near Lisbon",
        "look it up on the internet",
        "what is in the news today",
        "google the opening hours of the Louvre",
        "read this page: https://example.org/article",
        "open the link and summarise the article",
        "find websites about beekeeping",
        "who won the match yesterday",
        "what does the homepage of the project say",
        "search online for reviews of this laptop",
        "what is the current price of copper",
        "suche im Internet nach Zugverbindungen",
        *read_examples("web"),
    ),
)
async def web(
    query: Annotated[str | None, Meta(description="words to search for")] = None,
    url: Annotated[str | None, Meta(description="instead: the page to read")] = None,
    max_results: Annotated[int, Meta(description="1-10, else 5", ge=1, le=10)] = 5,
    since: Annotated[Since | None, Meta(description="only results from the last")] = None,
    section: Annotated[str | None, Meta(description="heading or words to start at")] = None,
    offset: Annotated[int, Meta(description="character of the page to start at", ge=0)] = 0,
    links: Annotated[bool, Meta(description="keep the page's links")] = False,
    *,
    context: Context,
    settings: WebSettings,
) -> AsyncIterator[Progress | Result]:
    """Searches the web, or reads one page as Markdown."""
    query, url = (query or "").strip(), (url or "").strip()
    if query and url:
        raise Refused("the call has both a query and a url", "give query to search, or url to read a page")
    if not url and _URL.fullmatch(query):
        query, url = "", query
    if not query and not url:
        raise Refused("the call has no query and no url", "give query to search, or url to read a page")
    if url:
        yield Progress(f"fetching {format_host(url)}")
        yield _show_page(*await read(url, context, links=links), section or "", offset)
    else:
        request = Query(query[:QUERY_LENGTH], max_results, since)
        yield Progress("searching the web")
        yield _list_results(request.text, *await search.search(request, settings, context))


def _find_url(message: str) -> str:
    """Return the first URL of a message without the punctuation after it: `(see https://example.org/a_(b).)`."""
    found = _URL.search(message)
    url = found[0].rstrip(_PUNCTUATION) if found else ""
    while url.endswith((")", "]", "}")) and url.count(url[-1]) > url.count(_BRACKETS[url[-1]]):
        url = url[:-1].rstrip(_PUNCTUATION)
    return url


def _list_results(query: str, found: SearchResults, label: str, troubles: Sequence[str]) -> Result:
    blocks = [f"🌐 WEB SEARCH RESULTS for '{one_line(query, 200)}' ({label})"]
    blocks += [f"({'; '.join(troubles)})"] if troubles else []
    if not found.hits:
        return Result("\n\n".join([*blocks, "No results. Try fewer or other words.", *found.hints]))
    blocks += found.hints
    for number, hit in enumerate(found.hits, 1):
        date = f" ({hit.date})" if hit.date else ""
        blocks.append("\n".join(filter(None, (f"{number}. {hit.title}{date}", hit.url, hit.snippet))))
    return Result(
        "\n\n".join([*blocks, "To read a page, call web with its url."]),
        citations=[Citation(str(number), hit.title, hit.url) for number, hit in enumerate(found.hits, 1)],
        data=found,
    )


def _show_page(url: str, article: Article, section: str, offset: int) -> Result:
    text = article.text
    if offset >= len(text):
        raise Refused(f"the offset is {offset:,}, but the page has {len(text):,} characters", "use a smaller offset")
    begin = _find_section(text, section.strip(), offset) if section.strip() else offset
    host = format_host(url)
    origin = [url, f"by {article.author}" if article.author else ""]
    if article.site.lower() not in f"{host}\n{article.author}\n{article.title}".lower():
        origin.append(article.site)
    head = f"🌐 WEB PAGE '{article.title or host}' ({host}{f', {article.date}' if article.date else ''})\n"
    head += " · ".join(filter(None, origin))
    if begin:
        head += f", from character {begin}"
    if article.paid:
        head += "\n(This page has a paywall. The text may be incomplete.)"
    head += "\n\n"
    return Result(
        head + text[begin : begin + MAX_TEXT],
        citations=[Citation(url, article.title or url, url)],
        data=article,
        more=lambda shown: f"call again with the same url and offset={begin + max(0, shown - len(head))}",
    )


def _find_section(text: str, words: str, offset: int) -> int:
    """Return the position of the first heading with these words, or of the first line with them."""
    headings = list(_HEADING.finditer(text, offset))
    found = next((heading for heading in headings if words.lower() in heading[1].lower()), None)
    found = found or re.compile(re.escape(words), re.IGNORECASE).search(text, offset)
    if found:
        return text.rfind("\n", 0, found.start()) + 1
    titles = " | ".join(heading[1][:80] for heading in headings[:20])
    where = f" after character {offset:,}" if offset else ""
    advice = f"use one of its headings: {titles}"[:400] if titles else "use offset, since the page has no headings"
    raise Refused(f"the page does not contain '{one_line(words, 80)}'{where}", advice)
