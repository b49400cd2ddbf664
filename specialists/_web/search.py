"""Searches by SearXNG, Brave or ddgs, whichever is configured.

The answers of these servers are foreign: every field is checked, cut and cleaned, and is only ever text.
"""

import html
import importlib.util
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from brain import Context, Page, Refused, install_command
from specialists._kit.isolated import Ended, Limits, run_isolated
from specialists._kit.text import one_line

SERVER_SECONDS = 6.0
DDGS_SECONDS = 12.0
"""For SearXNG and Brave each, and for ddgs, which asks several engines; all three fit into a call."""
DDGS_ENGINE_SECONDS = 4
DDGS_LIMITS = Limits(memory=3 << 30, network=True)  # its threads reserve much and use little
TITLE_LENGTH = 150
SNIPPET_LENGTH = 300
URL_LENGTH = 1000
MAX_ANSWER = 2 * 1024 * 1024
MAX_RESULTS = 100
NO_BACKEND = "no search backend is set up on this server"
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,300}>")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DDGS_TROUBLES = {
    "missing": "is not installed",
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
    """Words to search for, and at most how many results of which time."""

    text: str
    max_results: int
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
    """The results of a backend, perhaps none; `hints` are its own answers and corrections."""

    hits: Sequence[Hit]
    hints: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Backend:
    """A search engine. `search` raises `Refused` with a reason that is the end of a sentence about the label."""

    name: str
    label: str
    search: Callable[[Query, WebSettings, Context], Awaitable[SearchResults]]


def available_backends(settings: WebSettings) -> list[Backend]:
    """The configured and allowed backends, in the order in which they are asked."""
    has_ddgs = importlib.util.find_spec("ddgs") is not None
    configured = {"searxng": bool(settings.searxng), "brave": bool(settings.brave_key), "ddgs": has_ddgs}
    return [
        backend
        for backend in (
            Backend("searxng", "SearXNG", _search_searxng),
            Backend("brave", "Brave", _search_brave),
            Backend("ddgs", "ddgs", _search_ddgs),
        )
        if configured[backend.name] and settings.backend in ("auto", backend.name)
    ]


def find_problem(*, settings: WebSettings) -> str | None:
    """The setting that cannot work, if there is one."""
    for name, value in (("SEARXNG", settings.searxng), ("BRAVE_URL", settings.brave_url)):
        if value and not re.match(r"https?://[\w.\[\]:-]+", value):
            return f"BRAIN_SPECIALIST_WEB_{name} is no address: it must be one such as http://127.0.0.1:8888"
    if settings.backend != "auto" and not available_backends(settings):
        remedies = {"searxng": "set BRAIN_SPECIALIST_WEB_SEARXNG", "brave": "set BRAIN_SPECIALIST_WEB_BRAVE_KEY"}
        remedy = remedies.get(settings.backend, install_command("web"))
        return f"the search backend {settings.backend} is wanted and not there: {remedy}"
    return None


async def health(*, settings: WebSettings, context: Context) -> str | None:
    """The problem of the first backend, if any. Only Brave is asked to search."""
    backends = available_backends(settings)
    if not backends:
        remedy = f"{install_command('web')}, or set BRAIN_SPECIALIST_WEB_SEARXNG or BRAIN_SPECIALIST_WEB_BRAVE_KEY"
        return f"{NO_BACKEND}: {remedy}"
    try:
        if backends[0].name == "searxng":
            _read_json(await _fetch_searxng("", None, settings, context))
        if backends[0].name == "brave":
            await _search_brave(Query("brain", 1), settings, context)
    except Refused as refusal:
        cause = f" ({refusal.__cause__.reason})" if isinstance(refusal.__cause__, Refused) else ""
        return f"{backends[0].label} {refusal.reason}{cause}"
    return None


async def search(query: Query, settings: WebSettings, context: Context) -> tuple[SearchResults, str, Sequence[str]]:
    """The results of the first backend that has some, its label, and the problems of the backends before it.

    Raises:
        Refused: when there is no backend, or none could search.
    """
    backends = available_backends(settings)
    if not backends:
        raise Refused(f"{NO_BACKEND}; read a page by url instead")
    troubles: list[str] = []
    empty: list[tuple[str, SearchResults]] = []
    for backend in backends:
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


async def _search_searxng(query: Query, settings: WebSettings, context: Context) -> SearchResults:
    answer = _read_json(await _fetch_searxng(query.text, query.since, settings, context))
    hits = _read_hits(answer.get("results"), query.max_results, "title", "url", "content", ("pubdate", "publishedDate"))
    failures = []
    for engine in _as_list(answer.get("unresponsive_engines"))[:10]:  # names, or pairs of a name and a reason
        failures.append(": ".join(filter(None, (_clean(part, 40) for part in (_as_list(engine) or [engine])[:2]))))
    if not hits and any(failures):
        raise Refused(f"found nothing, since its engines failed ({', '.join(filter(None, failures))[:150]})")
    answers = [one.get("answer") if isinstance(one, dict) else one for one in _as_list(answer.get("answers"))]
    hints = [f"Answer: {text}" for one in answers[:2] if (text := _clean(one, SNIPPET_LENGTH))]
    related = [*_as_list(answer.get("corrections")), *_as_list(answer.get("suggestions"))][:5]
    if terms := [text for one in related if (text := _clean(one, 80))]:
        hints.append(f"Related searches: {', '.join(terms)}")
    return SearchResults(hits, hints)


async def _fetch_searxng(text: str, since: Since | None, settings: WebSettings, context: Context) -> Page:
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


async def _search_brave(query: Query, settings: WebSettings, context: Context) -> SearchResults:
    characters, words = _BRAVE_QUERY
    params: dict[str, str | int] = {"q": " ".join(query.text.split()[:words])[:characters], "count": query.max_results}
    if query.since:
        params["freshness"] = f"p{query.since[0]}"
    headers = {"X-Subscription-Token": settings.brave_key}
    page = await _fetch(settings.brave_url, params, headers, settings.brave_url, context)
    if page.status in (401, 403, 422):
        raise Refused("refuses the request: the operator must check BRAIN_SPECIALIST_WEB_BRAVE_KEY")
    if page.status == 429:
        raise Refused("says that its limit of requests is reached; wait a while")
    if page.status != 200:
        raise Refused(f"answers with status {page.status}")
    web = _read_json(page).get("web")
    results = web.get("results") if isinstance(web, dict) else []
    return SearchResults(_read_hits(results, query.max_results, "title", "url", "description", ("page_age",)))


async def _search_ddgs(query: Query, settings: WebSettings, context: Context) -> SearchResults:
    since = query.since and query.since[0]
    request = {"query": query.text, "max_results": query.max_results, "since": since, "seconds": DDGS_ENGINE_SECONDS}
    seconds = _limit_seconds(context, DDGS_SECONDS)
    try:
        answer = await run_isolated("_web.ddgs_search", request, limits=DDGS_LIMITS, seconds=seconds)
    except Ended:
        answer = {"trouble": "late"}
    if "trouble" in answer:
        raise Refused(_DDGS_TROUBLES[answer["trouble"]])
    return SearchResults(_read_hits(answer.get("hits"), query.max_results, "title", "url", "snippet", ()))


async def _fetch(url: str, params: dict[str, Any], headers: dict[str, str], trusted: str, context: Context) -> Page:
    """An answer of the operator's server, whose name no refusal contains."""
    try:
        return await context.fetch(
            url,
            params=params,
            headers={"Accept": "application/json", **headers},
            types=("application/json", "text/*"),
            most=MAX_ANSWER,
            seconds=_limit_seconds(context, SERVER_SECONDS),
            trusted=trusted,
        )
    except Refused as refusal:
        raise Refused("cannot be reached, or gives no answer that can be read") from refusal


def _limit_seconds(context: Context, limit: float) -> float:
    return max(0.5, min(limit, context.seconds_left - 1.0))


def _read_json(page: Page) -> dict[str, Any]:
    try:
        answer = page.json()
    except Refused:
        raise Refused("does not answer in JSON: it may ask for a captcha; the operator must look at it") from None
    if not isinstance(answer, dict):
        raise Refused("gives an answer that cannot be understood; the operator must check its address")
    return answer


def _read_hits(results: Any, max_hits: int, title: str, url: str, snippet: str, dates: Sequence[str]) -> list[Hit]:
    """The results with a URL, each URL once."""
    hits: dict[str, Hit] = {}
    for one in _as_list(results)[:MAX_RESULTS]:
        link = one.get(url) if isinstance(one, dict) else None
        if isinstance(link, str) and re.match(r"https?://[^\s<>\"]+\Z", link) and len(link) <= URL_LENGTH:
            text = _clean(one.get(title), TITLE_LENGTH) or link
            date = next((found[0] for key in dates if (found := _DATE.match(str(one.get(key))))), "")
            hits.setdefault(link, Hit(text, link, _clean(one.get(snippet), SNIPPET_LENGTH), date))
    return list(hits.values())[:max_hits]


def _clean(text: Any, length: int) -> str:
    """One line of plain text, without tags and entities, cut between words; empty for other types."""
    return one_line(html.unescape(_TAG.sub("", text[: length * 10])), length) if isinstance(text, str) else ""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
