"""Search with SearXNG, Brave or ddgs, whichever is configured.

The responses are untrusted: every field is checked, truncated and cleaned, and used only as text.
"""

import html
import importlib.util
import logging
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
"""Time limits for SearXNG and Brave each, and for ddgs, which queries several engines. All three fit into a call."""
DDGS_ENGINE_SECONDS = 4
DDGS_LIMITS = Limits(memory=3 << 30, network=True)  # its threads reserve much memory and use little
TITLE_LENGTH = 150
SNIPPET_LENGTH = 300
URL_LENGTH = 1000
MAX_ANSWER = 2 * 1024 * 1024
MAX_RESULTS = 100
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,300}>")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DDGS_PROBLEMS = {
    "missing": "is not installed",
    "late": "did not answer in time",
    "empty": "found nothing or was blocked by its search engines",
    "unreachable": "could not reach its search engines or was blocked",
}
_BRAVE_QUERY = (400, 50)
"""Maximum characters and words of a query (Brave's API reference)."""

log = logging.getLogger("brain")
Since = Literal["day", "week", "month", "year"]


@dataclass(frozen=True, slots=True)
class WebSettings:
    searxng: Annotated[
        str, Meta(description="Base URL of a SearXNG or searx server whose `search.formats` include `json`.")
    ] = ""
    brave_key: Annotated[str, Meta(description="Brave Search API key.", extra={"secret": True})] = ""
    brave_url: Annotated[str, Meta(description="Brave Search API URL.")] = (
        "https://api.search.brave.com/res/v1/web/search"
    )
    backend: Annotated[
        Literal["auto", "searxng", "brave", "ddgs"],
        Meta(description="Search backend; `auto` tries the configured ones in this order until one has results."),
    ] = "auto"


@dataclass(frozen=True, slots=True)
class Query:
    """Words to search for, the maximum number of results, and their maximum age."""

    text: str
    max_results: int
    since: Since | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One result; `date` is ISO or empty."""

    title: str
    url: str
    snippet: str
    date: str = ""


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of a backend, if any; `hints` are its direct answers and suggestions."""

    hits: Sequence[Hit]
    hints: Sequence[str] = ()


class BackendError(Exception):
    """A search backend that failed.

    Args:
        reason: for people, without the backend's name: `did not answer in time`.
        hint: for the operator, in `brain check` and the log.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


@dataclass(frozen=True, slots=True)
class Backend:
    """A search backend; `search` raises `BackendError`."""

    name: str
    label: str
    search: Callable[[Query, WebSettings, Context], Awaitable[SearchResults]]


def available_backends(settings: WebSettings) -> list[Backend]:
    """Return the configured and allowed backends, in the order in which they are tried."""
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
    """Return what is wrong with the settings, or None."""
    for name, value in (("SEARXNG", settings.searxng), ("BRAVE_URL", settings.brave_url)):
        if value and not re.match(r"https?://[\w.\[\]:-]+", value):
            return f"BRAIN_SPECIALIST_WEB_{name} is not a URL such as http://127.0.0.1:8888"
    if settings.backend != "auto" and not available_backends(settings):
        remedies = {"searxng": "set BRAIN_SPECIALIST_WEB_SEARXNG", "brave": "set BRAIN_SPECIALIST_WEB_BRAVE_KEY"}
        remedy = remedies.get(settings.backend, install_command("web"))
        return f"the search backend {settings.backend} is selected but not configured: {remedy}"
    return None


def _suggest_backend() -> str:
    return f"{install_command('web')}, or set BRAIN_SPECIALIST_WEB_SEARXNG or BRAIN_SPECIALIST_WEB_BRAVE_KEY"


async def health(*, settings: WebSettings, context: Context) -> str | None:
    """Return what is wrong with the first backend, or None. Only a check of Brave runs a search."""
    backends = available_backends(settings)
    if not backends:
        return f"no search backend is configured: {_suggest_backend()}"
    try:
        if backends[0].name == "searxng":
            _read_json(await _fetch_searxng("", None, settings, context))
        if backends[0].name == "brave":
            await _search_brave(Query("brain", 1), settings, context)
    except BackendError as error:
        cause = f" ({error.__cause__.reason})" if isinstance(error.__cause__, Refused) else ""
        return f"{backends[0].label} {error.reason}{cause}" + (f": {error.hint}" if error.hint else "")
    return None


async def search(query: Query, settings: WebSettings, context: Context) -> tuple[SearchResults, str, Sequence[str]]:
    """Return the results of the first backend that has some, its label, and the problems of those before it.

    Raises:
        Refused: if there is no backend, or all of them failed.
    """
    backends = available_backends(settings)
    if not backends:
        log.warning("web: no search backend is configured: %s", _suggest_backend())
        raise Refused("web search is not set up on this server", "read a known page by url or continue without it")
    problems: list[str] = []
    empty: list[tuple[str, SearchResults]] = []
    for backend in backends:
        try:
            found = await backend.search(query, settings, context)
        except BackendError as error:
            problems.append(f"{backend.label} {error.reason}")
            log.warning("web: %s %s. %s", backend.label, error.reason, error.hint)
            continue
        if found.hits:
            return found, backend.label, [*problems, *(f"{label} found nothing" for label, _ in empty)]
        empty.append((backend.label, found))
    if not empty:
        advice = "read a known page by url or continue without it"
        raise Refused(f"the search failed: {', '.join(problems)}"[:400], advice)
    hints = [hint for _, found in empty for hint in found.hints]
    return SearchResults((), hints), " and ".join(label for label, _ in empty), problems


async def _search_searxng(query: Query, settings: WebSettings, context: Context) -> SearchResults:
    answer = _read_json(await _fetch_searxng(query.text, query.since, settings, context))
    hits = _read_hits(answer.get("results"), query.max_results, "title", "url", "content", ("pubdate", "publishedDate"))
    failures = []
    for engine in _as_list(answer.get("unresponsive_engines"))[:10]:  # names, or pairs of name and reason
        failures.append(": ".join(filter(None, (_clean(part, 40) for part in (_as_list(engine) or [engine])[:2]))))
    if not hits and any(failures):
        raise BackendError(f"found nothing because its engines failed ({', '.join(filter(None, failures))[:150]})")
    answers = [one.get("answer") if isinstance(one, dict) else one for one in _as_list(answer.get("answers"))]
    hints = [f"Answer: {text}" for one in answers[:2] if (text := _clean(one, SNIPPET_LENGTH))]
    related = [*_as_list(answer.get("corrections")), *_as_list(answer.get("suggestions"))][:5]
    if terms := [text for one in related if (text := _clean(one, 80))]:
        hints.append(f"Related searches: {', '.join(terms)}")
    return SearchResults(hits, hints)


async def _fetch_searxng(text: str, since: Since | None, settings: WebSettings, context: Context) -> Page:
    """Return SearXNG's response, with status 200, or 400 for an empty query."""
    base = settings.searxng.rstrip("/").removesuffix("/search")
    params = {"q": text, "format": "json", **({"time_range": since} if since else {})}
    page = await _fetch(f"{base}/search", params, {}, settings.searxng, context)
    if page.status == 403:
        raise BackendError("does not allow JSON", "add json to search.formats in SearXNG's settings.yml")
    if page.status == 429:
        raise BackendError("rejects too many requests", "let this server pass SearXNG's limiter")
    if page.status not in (200, 400):
        raise BackendError(f"responds with status {page.status}")
    return page


async def _search_brave(query: Query, settings: WebSettings, context: Context) -> SearchResults:
    characters, words = _BRAVE_QUERY
    params: dict[str, str | int] = {"q": " ".join(query.text.split()[:words])[:characters], "count": query.max_results}
    if query.since:
        params["freshness"] = f"p{query.since[0]}"
    headers = {"X-Subscription-Token": settings.brave_key}
    page = await _fetch(settings.brave_url, params, headers, settings.brave_url, context)
    if page.status in (401, 403, 422):
        raise BackendError("rejects the request", "check BRAIN_SPECIALIST_WEB_BRAVE_KEY")
    if page.status == 429:
        raise BackendError("has reached its request limit")
    if page.status != 200:
        raise BackendError(f"responds with status {page.status}")
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
        answer = {"problem": "late"}
    if "problem" in answer:
        raise BackendError(_DDGS_PROBLEMS[answer["problem"]], "SearXNG and Brave are more reliable")
    return SearchResults(_read_hits(answer.get("hits"), query.max_results, "title", "url", "snippet", ()))


async def _fetch(url: str, params: dict[str, Any], headers: dict[str, str], trusted: str, context: Context) -> Page:
    """Fetch from the operator's server. The error does not contain its name."""
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
        raise BackendError("cannot be reached or sends an unreadable response") from refusal


def _limit_seconds(context: Context, limit: float) -> float:
    return max(0.5, min(limit, context.seconds_left - 1.0))


def _read_json(page: Page) -> dict[str, Any]:
    try:
        answer = page.json()
    except Refused:
        raise BackendError("does not respond with JSON", "open it in a browser, it may show a captcha") from None
    if not isinstance(answer, dict):
        raise BackendError("sends an unknown kind of response", "check its URL")
    return answer


def _read_hits(results: Any, max_hits: int, title: str, url: str, snippet: str, dates: Sequence[str]) -> list[Hit]:
    """Return the results that have a URL, each URL once."""
    hits: dict[str, Hit] = {}
    for one in _as_list(results)[:MAX_RESULTS]:
        link = one.get(url) if isinstance(one, dict) else None
        if isinstance(link, str) and re.match(r"https?://[^\s<>\"]+\Z", link) and len(link) <= URL_LENGTH:
            text = _clean(one.get(title), TITLE_LENGTH) or link
            date = next((found[0] for key in dates if (found := _DATE.match(str(one.get(key))))), "")
            hits.setdefault(link, Hit(text, link, _clean(one.get(snippet), SNIPPET_LENGTH), date))
    return list(hits.values())[:max_hits]


def _clean(text: Any, length: int) -> str:
    """Return one line of plain text, without tags and entities; empty for values of other types."""
    return one_line(html.unescape(_TAG.sub("", text[: length * 10])), length) if isinstance(text, str) else ""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
