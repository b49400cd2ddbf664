"""Searches by SearXNG, Brave or ddgs, whichever is configured; a query goes in, results or a reason come out.

What the servers answer is foreign: every field is checked, cut and cleaned, and is only ever text.
"""

import html
import importlib.util
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from brain import Context, Page, Refused
from specialists._kit.isolated import Ended, Limits, run_isolated
from specialists._kit.text import one_line

SERVER_SECONDS = 6.0
DDGS_LIMITS = Limits(memory=3 << 30, network=True)  # its threads reserve much and use little
DDGS_SECONDS = 12.0
"""For SearXNG and Brave each, and for ddgs, which asks several engines; all three fit into a call."""
DDGS_ENGINE_SECONDS = 4
TITLE_LENGTH = 150
SNIPPET_LENGTH = 300
URL_LENGTH = 1000
ANSWER_MOST = 2 * 1024 * 1024
RESULTS_LOOKED_AT = 100
NO_BACKEND = (
    "no search backend is there; the operator can pip install 'brain-sse[web]', or set "
    "BRAIN_SPECIALIST_WEB_SEARXNG or BRAIN_SPECIALIST_WEB_BRAVE_KEY. Pages can be read by url"
)
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,300}>")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DDGS_TROUBLES = {
    "missing": "is not installed: the operator can pip install 'brain-sse[web]'",
    "late": "did not answer in time",
    "empty": "found nothing, or was blocked by its search engines: the operator can configure SearXNG or Brave",
    "unreachable": "could not reach its search engines, or was blocked: the operator can configure SearXNG or Brave",
}
_BRAVE_QUERY = (400, 50)
"""Characters and words that Brave takes (its API reference)."""

Since = Literal["day", "week", "month", "year"]


@dataclass(frozen=True, slots=True)
class WebSettings:
    searxng: Annotated[
        str, Meta(description="Base address of a SearXNG or searx server whose `search.formats` has `json`.")
    ] = ""
    brave_key: Annotated[str, Meta(description="Key of the Brave Search API.", extra={"secret": True})] = ""
    brave_url: Annotated[str, Meta(description="Address of the Brave Search API.")] = (
        "https://api.search.brave.com/res/v1/web/search"
    )
    backend: Annotated[
        Literal["auto", "searxng", "brave", "ddgs"],
        Meta(description="Who is asked; `auto`: SearXNG, Brave and ddgs, as far as they are there, until one answers."),
    ] = "auto"


@dataclass(frozen=True, slots=True)
class Query:
    """What is wanted."""

    text: str
    most: int
    since: Since | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One result; `date` is ISO, or empty."""

    title: str
    url: str
    snippet: str
    date: str = ""


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What a backend found, perhaps nothing; `hints` are its own answers and corrections."""

    hits: Sequence[Hit]
    hints: Sequence[str] = ()


Search = Callable[[Query, WebSettings, Context], Awaitable[SearchResults]]


@dataclass(frozen=True, slots=True)
class Backend:
    """Somebody who can search; `ask` raises `Refused` with a reason that goes on behind the label."""

    name: str
    label: str
    search: Search


def available_backends(settings: WebSettings) -> list[Backend]:
    """Those that are configured and wanted, in the order in which they are asked."""
    configured = {"searxng": bool(settings.searxng), "brave": bool(settings.brave_key), "ddgs": has_ddgs()}
    allowed = configured if settings.backend == "auto" else (settings.backend,)
    return [backend for backend in BACKENDS if configured[backend.name] and backend.name in allowed]


def has_ddgs() -> bool:
    return importlib.util.find_spec("ddgs") is not None


def find_problem(*, settings: WebSettings) -> str | None:
    """What the operator has set that cannot work."""
    for name, value in (("SEARXNG", settings.searxng), ("BRAVE_URL", settings.brave_url)):
        if value and not re.match(r"https?://[\w.\[\]:-]+", value):
            return f"BRAIN_SPECIALIST_WEB_{name} is no address: it must be one such as http://127.0.0.1:8888"
    if settings.backend != "auto" and not available_backends(settings):
        lacking = {"searxng": "set BRAIN_SPECIALIST_WEB_SEARXNG", "brave": "set BRAIN_SPECIALIST_WEB_BRAVE_KEY"}
        remedy = lacking.get(settings.backend, "pip install 'brain-sse[web]'")
        return f"the search backend {settings.backend} is wanted and not there: {remedy}"
    return None


async def search(query: Query, settings: WebSettings, context: Context) -> tuple[SearchResults, str, Sequence[str]]:
    """What the first backend that found something found, its label, and what was wrong with those before it.

    Raises:
        Refused: when there is no backend, or none could search.
    """
    chosen = available_backends(settings)
    if not chosen:
        raise Refused(NO_BACKEND)
    troubles: list[str] = []
    empty: list[tuple[str, SearchResults]] = []
    for backend in chosen:
        try:
            found = await backend.search(query, settings, context)
        except Refused as refusal:
            troubles.append(f"{backend.label} {refusal.reason}")
            continue
        if found.hits:
            return found, backend.label, [*troubles, *(f"{label} found nothing" for label, _ in empty)]
        empty.append((backend.label, found))
    if not empty:
        raise Refused(f"the search failed: {'; '.join(troubles)}. Read a known page by url, or go on without it"[:400])
    hints = [hint for _, found in empty for hint in found.hints]
    return SearchResults((), hints), " and ".join(label for label, _ in empty), troubles


async def _searxng(query: Query, settings: WebSettings, context: Context) -> SearchResults:
    page = await _searxng_page(query.text, query.since, settings, context)
    answer = _json(page)
    hits = _read_hits(answer.get("results"), query.most, "title", "url", "content", ("pubdate", "publishedDate"))
    unresponsive = list(filter(None, map(_reason, _as_list(answer.get("unresponsive_engines"))[:10])))
    if not hits and unresponsive:
        raise Refused(f"found nothing, since its engines failed ({', '.join(unresponsive)[:150]})")
    answers = [one.get("answer") if isinstance(one, dict) else one for one in _as_list(answer.get("answers"))]
    hints = [f"Answer: {text}" for one in answers[:2] if (text := _clean(one, SNIPPET_LENGTH))]
    related = [*_as_list(answer.get("corrections")), *_as_list(answer.get("suggestions"))][:5]
    if related_terms := [text for one in related if (text := _clean(one, 80))]:
        hints.append(f"Related searches: {', '.join(related_terms)}")
    return SearchResults(hits, hints)


async def _searxng_page(text: str, since: Since | None, settings: WebSettings, context: Context) -> Page:
    """Its answer in JSON; the status is 200, or 400 when there was nothing to search."""
    base = settings.searxng.rstrip("/").removesuffix("/search")
    params = {"q": text, "format": "json", **({"time_range": since} if since else {})}
    page = await _fetch(f"{base}/search", params, {}, settings.searxng, context)
    if page.status == 403:
        raise Refused("has JSON switched off: the operator must add json to search.formats in its settings.yml")
    if page.status == 429:
        raise Refused("limits this client: the operator must let it pass its limiter")
    if page.status not in (200, 400):
        raise Refused(f"answers with status {page.status}")
    return page


async def _brave(query: Query, settings: WebSettings, context: Context) -> SearchResults:
    characters, words = _BRAVE_QUERY
    params: dict[str, str | int] = {"q": " ".join(query.text.split()[:words])[:characters], "count": query.most}
    if query.since:
        params["freshness"] = f"p{query.since[0]}"
    page = await _fetch(
        settings.brave_url, params, {"X-Subscription-Token": settings.brave_key}, settings.brave_url, context
    )
    if page.status in (401, 403, 422):
        raise Refused("refuses the request: the operator must check BRAIN_SPECIALIST_WEB_BRAVE_KEY")
    if page.status == 429:
        raise Refused("says that its limit of requests is reached; wait a while")
    if page.status != 200:
        raise Refused(f"answers with status {page.status}")
    web = _json(page).get("web")
    results = web.get("results") if isinstance(web, dict) else []
    return SearchResults(_read_hits(results, query.most, "title", "url", "description", ("page_age",)))


async def _ddgs(query: Query, settings: WebSettings, context: Context) -> SearchResults:
    chosen = {
        "query": query.text,
        "most": query.most,
        "since": query.since and query.since[0],
        "seconds": DDGS_ENGINE_SECONDS,
    }
    seconds = _seconds(context, DDGS_SECONDS)
    try:
        answer = await run_isolated("_web.ddgs_search", chosen, limits=DDGS_LIMITS, seconds=seconds)
    except Ended:
        answer = {"trouble": "late"}
    if "trouble" in answer:
        raise Refused(_DDGS_TROUBLES[answer["trouble"]])
    return SearchResults(_read_hits(answer.get("hits"), query.most, "title", "url", "snippet", ()))


BACKENDS = (Backend("searxng", "SearXNG", _searxng), Backend("brave", "Brave", _brave), Backend("ddgs", "ddgs", _ddgs))


async def health(*, settings: WebSettings, context: Context) -> str | None:
    """What is wrong with the first backend. SearXNG and ddgs are not made to search for it."""
    chosen = available_backends(settings)
    if not chosen:
        return NO_BACKEND
    try:
        if chosen[0].name == "searxng":
            _json(await _searxng_page("", None, settings, context))
        if chosen[0].name == "brave":
            await _brave(Query("brain", 1), settings, context)
    except Refused as refusal:
        cause = f" ({refusal.__cause__.reason})" if isinstance(refusal.__cause__, Refused) else ""
        return f"{chosen[0].label} {refusal.reason}{cause}"
    return None


async def _fetch(url: str, params: dict[str, Any], headers: dict[str, str], trusted: str, context: Context) -> Page:
    """An answer of the operator's server, whose name is nobody's business."""
    try:
        return await context.fetch(
            url,
            params=params,
            headers={"Accept": "application/json", **headers},
            types=("application/json", "text/*"),
            most=ANSWER_MOST,
            seconds=_seconds(context, SERVER_SECONDS),
            trusted=trusted,
        )
    except Refused as refusal:
        raise Refused("cannot be reached, or gives no answer that can be read") from refusal


def _seconds(context: Context, most: float) -> float:
    return max(0.5, min(most, context.seconds_left - 1.0))


def _json(page: Page) -> dict[str, Any]:
    try:
        answer = page.json()
    except Refused:
        raise Refused("does not answer in JSON: it may ask for a captcha; the operator must look at it") from None
    if not isinstance(answer, dict):
        raise Refused("gives an answer that cannot be understood; the operator must check its address")
    return answer


def _read_hits(results: Any, most: int, title: str, url: str, snippet: str, dates: Sequence[str]) -> list[Hit]:
    """The results with an address, each address once."""
    hits: dict[str, Hit] = {}
    for one in _as_list(results)[:RESULTS_LOOKED_AT]:
        address = one.get(url) if isinstance(one, dict) else None
        if isinstance(address, str) and re.match(r"https?://[^\s<>\"]+\Z", address) and len(address) <= URL_LENGTH:
            text = _clean(one.get(title), TITLE_LENGTH) or address
            date = next((found[0] for key in dates if (found := _DATE.match(str(one.get(key))))), "")
            hits.setdefault(address, Hit(text, address, _clean(one.get(snippet), SNIPPET_LENGTH), date))
    return list(hits.values())[:most]


def _clean(text: Any, most: int) -> str:
    """One line of plain text, without tags and entities, cut between words."""
    if not isinstance(text, str):
        return ""
    return one_line(html.unescape(_TAG.sub("", text[: most * 10])), most)


def _reason(engine: Any) -> str:
    """An engine that failed, and why: SearXNG gives pairs."""
    parts = engine[:2] if isinstance(engine, list) else [engine]
    return ": ".join(filter(None, (_clean(part, 40) for part in parts)))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
