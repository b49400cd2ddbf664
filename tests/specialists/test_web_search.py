"""`web` as a search: a real searx, doubles of Brave and ddgs, and what servers say that do not search."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from specialist_calls import answer, context, outcome, refusal
from web_site import Site, Text, free_port, site, wait_for

from brain.plugins.executor import Answer
from specialists._web.search import WebSettings, available_backends, find_problem, health
from specialists.web import web

KEY = "BSA-not-a-real-key"
READ_ON = "To read one whole, ask again with its url."
HITS = [
    {
        "url": "https://example.org/a?x=1&y=2",
        "title": "Rope &amp; <b>knots</b>",
        "content": "How to tie\n a <em>bowline</em> &#8211; safely",
        "publishedDate": "2026-03-01T07:45:00",
    },
    {"url": "https://example.com/b", "title": "Second", "content": ""},
]


def searxng(results: Any = HITS, **more: Any) -> Text:
    """The answer of a SearXNG server."""
    return Text(json.dumps({"query": "q", "results": results, **more}), "application/json")


def brave(*results: Mapping[str, Any]) -> Text:
    return Text(json.dumps({"type": "search", "web": {"type": "search", "results": results}}), "application/json")


BRAVE_HIT = {
    "title": "Knots | <strong>Rope</strong> Guild",
    "url": "https://guild.example/knots",
    "description": "All the <strong>knots</strong> there are &amp; more",
    "page_age": "2025-12-24T18:00:00",
}


@pytest.fixture
def no_ddgs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ddgs", None)


@pytest.fixture
def ddgs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package `ddgs` that does what a test writes into it, in place of the one that asks the internet."""
    (tmp_path / "ddgs").mkdir()
    (tmp_path / "ddgs" / "exceptions.py").write_text(
        "class DDGSException(Exception): ...\nclass TimeoutException(DDGSException): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "ddgs" / "__init__.py"


DDGS = """
import os, time
from ddgs.exceptions import DDGSException, TimeoutException
class DDGS:
    def __init__(self, timeout): self.timeout = timeout
    def text(self, query, region, timelimit, max_results):
        {body}
"""


def only(server: Site, **more: Any) -> Any:
    """A context whose only backend is this SearXNG server."""
    return context(settings=WebSettings(searxng=server.url, backend="searxng"), **more)


# what a result looks like


def test_lists_results_with_dates_snippets_and_citations() -> None:
    with site({"/search": searxng()}) as server:
        found = outcome(web, {"query": "how to tie a bowline"}, only(server))
    assert isinstance(found, Answer)
    assert found.text == (
        "🌐 WEB SEARCH RESULTS for 'how to tie a bowline' (SearXNG)\n\n"
        "1. Rope & knots (2026-03-01)\nhttps://example.org/a?x=1&y=2\nHow to tie a bowline – safely\n\n"
        "2. Second\nhttps://example.com/b\n\n" + READ_ON
    )
    assert [(c.id, c.title, c.url) for c in found.citations] == [
        ("1", "Rope & knots", "https://example.org/a?x=1&y=2"),
        ("2", "Second", "https://example.com/b"),
    ]


def test_asks_searxng_for_json_and_says_who_asks() -> None:
    with site({"/search": searxng()}) as server:
        answer(web, {"query": "grüne knoten", "since": "week"}, only(server))
    path, headers = server.asked[0]
    assert path == "/search?q=gr%C3%BCne+knoten&format=json&time_range=week"
    assert headers["user-agent"].startswith("brain-sse/")
    assert headers["accept"] == "application/json"


@pytest.mark.parametrize("path", ["", "/", "/search", "/search/"])
def test_takes_the_base_address_as_operators_write_it(path: str) -> None:
    with site({"/search": searxng()}) as server:
        settings = WebSettings(searxng=server.url + path, backend="searxng")
        assert "Second" in answer(web, {"query": "q"}, context(settings=settings))


def test_max_results_caps_them() -> None:
    many = [{"url": f"https://example.org/{n}", "title": f"T{n}", "content": "c"} for n in range(30)]
    with site({"/search": searxng(many)}) as server:
        for asked, given in ((None, 5), (1, 1), (10, 10)):
            params = {"query": "q"} if asked is None else {"query": "q", "max_results": asked}
            found = outcome(web, params, only(server))
            assert isinstance(found, Answer)
            assert len(found.citations) == given


def test_cuts_long_fields_and_leaves_out_what_is_no_address() -> None:
    results = [
        {"url": "javascript:alert(1)", "title": "no", "content": "no"},
        {"url": "https://example.org/ with space", "title": "no", "content": "no"},
        {"url": "https://example.org/" + "a" * 2000, "title": "no", "content": "no"},
        {"url": "https://example.org/a", "title": "word " * 100, "content": "snippet " * 200},
        {"url": "https://example.org/a", "title": "again", "content": "again"},
        {"url": "https://example.org/c"},
        "garbage",
        None,
    ]
    with site({"/search": searxng(results)}) as server:
        text = answer(web, {"query": "q"}, only(server))
    _, first, second, last = text.split("\n\n")
    title, url, snippet = first.split("\n")
    assert (len(title), url, len(snippet)) == (148, "https://example.org/a", 296)
    assert title.endswith("word word…")
    assert snippet.endswith("snippet snippet…")
    assert second == "2. https://example.org/c\nhttps://example.org/c"
    assert last == READ_ON


def test_says_what_searxng_answers_itself_and_suggests() -> None:
    extra = {"answers": ["42 knots", {"answer": "and a dict"}], "suggestions": ["rope", "sail <b>x</b>"]}
    with site({"/search": searxng(**extra)}) as server:
        text = answer(web, {"query": "q"}, only(server))
    assert "\n\nAnswer: 42 knots\n\nAnswer: and a dict\n\nRelated searches: rope, sail x\n\n1. Rope" in text


# backends that do not search


def test_nothing_found_is_said_and_is_no_failure() -> None:
    with site({"/search": searxng([], suggestions=["knots"])}) as server:
        text = answer(web, {"query": "zzz"}, only(server))
    assert text == (
        "🌐 WEB SEARCH RESULTS for 'zzz' (SearXNG)\n\nNothing was found; try fewer or other words.\n\n"
        "Related searches: knots"
    )


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Text("<h1>Forbidden</h1>", status=403), "SearXNG has JSON switched off: the operator must add json"),
        (Text("Too Many Requests", status=429), "SearXNG limits this client: the operator must let it pass"),
        (Text("oops", status=502), "SearXNG answers with status 502"),
        (Text("<html>Are you a robot?</html>"), "SearXNG does not answer in JSON: it may ask for a captcha"),
        (Text("[1, 2]", "application/json"), "SearXNG gives an answer that cannot be understood"),
        (Text("[" * 100_000, "application/json"), "SearXNG does not answer in JSON"),
        (Text(b"\xff\xfe\x00{", "application/json"), "SearXNG does not answer in JSON"),
        (Text(b"x" * 3_000_000, "application/json"), "SearXNG cannot be reached, or gives no answer that can be read"),
        (Text(b"PK", "application/zip"), "SearXNG cannot be reached, or gives no answer that can be read"),
        (
            searxng([], unresponsive_engines=[["google", "CAPTCHA"], ["bing", "timeout"], "qwant"]),
            "SearXNG found nothing, since its engines failed (google: CAPTCHA, bing: timeout, qwant)",
        ),
    ],
)
def test_says_why_searxng_did_not_search(said: Text, reason: str) -> None:
    with site({"/search": said}) as server:
        told = refusal(web, {"query": "q"}, only(server))
    assert told.startswith(f"the search failed: {reason}")
    assert told.endswith("Read a known page by url, or go on without it")
    assert "127.0.0.1" not in told


@pytest.mark.parametrize("results", [None, "text", {"a": 1}, [[]], [{"url": 3, "title": {}}]])
def test_garbage_among_the_results_is_no_result(results: Any) -> None:
    with site({"/search": searxng(results)}) as server:
        assert "Nothing was found" in answer(web, {"query": "q"}, only(server))


def test_a_server_that_is_not_there_is_not_named() -> None:
    settings = WebSettings(searxng=f"http://127.0.0.1:{free_port()}", backend="searxng")
    told = refusal(web, {"query": "q"}, context(settings=settings))
    assert told.startswith("the search failed: SearXNG cannot be reached")
    assert "127.0.0.1" not in told


def test_a_slow_backend_gets_no_more_time_than_there_is() -> None:
    with site({"/search": Text(after=30)}) as server:
        told = refusal(web, {"query": "q"}, only(server, seconds=1.6))
    assert told.startswith("the search failed: SearXNG cannot be reached")


def test_a_redirect_of_the_backend_to_elsewhere_is_not_followed() -> None:
    with site({"/latest": "secret"}) as trap, site({}) as server:
        answers = {"/search": Text(status=302, headers={"Location": f"{trap.url}/latest"})}
        with site(answers) as server:
            told = refusal(web, {"query": "q"}, only(server))
    assert told.startswith("the search failed: SearXNG cannot be reached")
    assert trap.asked == []


@pytest.mark.usefixtures("no_ddgs")
def test_without_a_backend_it_says_what_to_set() -> None:
    told = refusal(web, {"query": "q"}, context(settings=WebSettings()))
    assert told == (
        "no search backend is there; the operator can pip install 'brain-sse[web]', or set "
        "BRAIN_SPECIALIST_WEB_SEARXNG or BRAIN_SPECIALIST_WEB_BRAVE_KEY. Pages can be read by url"
    )


# Brave


def test_brave_gets_its_key_in_a_header() -> None:
    with site({"/web": brave(BRAVE_HIT)}) as server:
        settings = WebSettings(brave_key=KEY, brave_url=f"{server.url}/web")
        text = answer(web, {"query": "knots", "max_results": 3, "since": "month"}, context(settings=settings))
    path, headers = server.asked[0]
    assert path == "/web?q=knots&count=3&freshness=pm"
    assert headers["x-subscription-token"] == KEY
    assert KEY not in text
    assert text == (
        "🌐 WEB SEARCH RESULTS for 'knots' (Brave)\n\n1. Knots | Rope Guild (2025-12-24)\n"
        "https://guild.example/knots\nAll the knots there are & more\n\n" + READ_ON
    )


def test_brave_gets_no_longer_query_than_it_takes() -> None:
    with site({"/web": brave(BRAVE_HIT)}) as server:
        settings = WebSettings(brave_key=KEY, brave_url=f"{server.url}/web")
        answer(web, {"query": "ab " * 160}, context(settings=settings))
    assert server.paths[0] == f"/web?q={'+'.join(['ab'] * 50)}&count=5"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "Brave refuses the request: the operator must check BRAIN_SPECIALIST_WEB_BRAVE_KEY"),
        (422, "Brave refuses the request: the operator must check BRAIN_SPECIALIST_WEB_BRAVE_KEY"),
        (429, "Brave says that its limit of requests is reached; wait a while"),
        (500, "Brave answers with status 500"),
    ],
)
def test_says_why_brave_did_not_search(status: int, reason: str) -> None:
    with site({"/web": Text('{"type": "ErrorResponse"}', "application/json", status)}) as server:
        settings = WebSettings(brave_key=KEY, brave_url=f"{server.url}/web", backend="brave")
        told = refusal(web, {"query": "q"}, context(settings=settings))
    assert told.startswith(f"the search failed: {reason}.")
    assert KEY not in told


def test_the_key_does_not_follow_a_redirect() -> None:
    with site({"/web": brave(BRAVE_HIT)}) as other:
        answers = {"/web": Text(status=307, headers={"Location": f"{other.url}/web"})}
        with site(answers) as server:
            settings = WebSettings(brave_key=KEY, brave_url=f"{server.url}/web", backend="brave")
            outcome(web, {"query": "q"}, context(settings=settings, fetch=other.fetch))
    assert all("x-subscription-token" not in headers for _, headers in other.asked)


# ddgs


def test_ddgs_results(ddgs: Path) -> None:
    found = [{"title": "Knots", "href": "https://knots.example/", "body": "b <b>old</b>"}, {"title": "no address"}]
    ddgs.write_text(DDGS.format(body=f"assert (region, timelimit) == ('us-en', 'd'); return {found!r}"))
    text = answer(web, {"query": "knots", "since": "day"}, context(settings=WebSettings()))
    assert text == ("🌐 WEB SEARCH RESULTS for 'knots' (ddgs)\n\n1. Knots\nhttps://knots.example/\nb old\n\n" + READ_ON)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "raise DDGSException('No results found. at /secret/path')",
            "ddgs found nothing, or was blocked by its search",
        ),
        ("raise DDGSException('DNSError: https://secret.example')", "ddgs could not reach its search engines, or was"),
        ("raise TimeoutException('x')", "ddgs did not answer in time"),
        ("os._exit(3)", "ddgs did not answer in time"),
        ("raise KeyError('changed layout')", "ddgs did not answer in time"),
    ],
)
def test_says_why_ddgs_did_not_search(ddgs: Path, body: str, reason: str) -> None:
    ddgs.write_text(DDGS.format(body=body))
    told = refusal(web, {"query": "q"}, context(settings=WebSettings()))
    assert told.startswith(f"the search failed: {reason}")
    assert "secret" not in told


# one backend after the other


def test_goes_on_to_the_next_backend_and_says_so() -> None:
    answers = {"/search": Text("no", status=403), "/web": brave(BRAVE_HIT)}
    with site(answers) as server:
        settings = WebSettings(searxng=server.url, brave_key=KEY, brave_url=f"{server.url}/web")
        text = answer(web, {"query": "knots"}, context(settings=settings))
    assert text.startswith(
        "🌐 WEB SEARCH RESULTS for 'knots' (Brave)\n\n"
        "(SearXNG has JSON switched off: the operator must add json to search.formats in its settings.yml)\n\n1. Knots"
    )


def test_all_reasons_are_told_when_none_searches(ddgs: Path) -> None:
    ddgs.write_text(DDGS.format(body="raise DDGSException('No results found.')"))
    answers = {"/search": Text("no", status=429), "/web": Text("{}", "application/json", 401)}
    with site(answers) as server:
        settings = WebSettings(searxng=server.url, brave_key=KEY, brave_url=f"{server.url}/web")
        told = refusal(web, {"query": "q"}, context(settings=settings))
    assert "SearXNG limits this client" in told
    assert "; Brave refuses the request" in told
    assert "; ddgs found nothing, or was blocked" in told
    assert len(told) <= 400


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (WebSettings(), ["ddgs"]),
        (WebSettings(searxng="http://s", brave_key="k"), ["searxng", "brave", "ddgs"]),
        (WebSettings(searxng="http://s", brave_key="k", backend="brave"), ["brave"]),
        (WebSettings(searxng="http://s", backend="brave"), []),
    ],
)
@pytest.mark.usefixtures("ddgs")
def test_who_is_asked_is_what_is_configured(settings: WebSettings, names: list[str], ddgs: Path) -> None:
    ddgs.write_text("")
    assert [backend.name for backend in available_backends(settings)] == names


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (WebSettings(), None),
        (WebSettings(searxng="https://searx.example/path/"), None),
        (WebSettings(searxng="searx.example"), "BRAIN_SPECIALIST_WEB_SEARXNG is no address: it must be one such as"),
        (WebSettings(searxng="http:// x"), "BRAIN_SPECIALIST_WEB_SEARXNG is no address"),
        (
            WebSettings(backend="searxng"),
            "the search backend searxng is wanted and not there: set BRAIN_SPECIALIST_WEB",
        ),
        (WebSettings(backend="brave"), "the search backend brave is wanted and not there: set BRAIN_SPECIALIST_WEB_BR"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: WebSettings, problem: str | None) -> None:
    told = find_problem(settings=settings)
    assert told is None if problem is None else (told or "").startswith(problem)


# which call it is


def test_query_and_url_exclude_each_other() -> None:
    both = refusal(web, {"query": "a", "url": "https://example.org"}, context(settings=WebSettings()))
    assert both == "give either query, to search, or url, to read a page, not both"
    for none in ({}, {"query": "  ", "url": ""}):
        told = refusal(web, none, context(settings=WebSettings()))
        assert told == "give query, words to search for, or url, the page to read"


def test_an_endless_query_is_cut() -> None:
    with site({"/search": searxng()}) as server:
        text = answer(web, {"query": "x" * 5000}, only(server))
        assert server.paths == [f"/search?q={'x' * 500}&format=json"]
    assert text.startswith(f"🌐 WEB SEARCH RESULTS for '{'x' * 199}…' (SearXNG)")


# health


def healthy(settings: WebSettings) -> str | None:
    return asyncio.run(health(settings=settings, context=context()))


def test_health_asks_the_first_backend() -> None:
    nothing_to_search = Text('{"error": "No query"}', "application/json", 400)
    with site({"/search": nothing_to_search, "/web": brave(BRAVE_HIT)}) as server:
        assert healthy(WebSettings(searxng=server.url)) is None
        assert healthy(WebSettings(brave_key=KEY, brave_url=f"{server.url}/web")) is None
        assert server.paths == ["/search?q=&format=json", "/web?q=brain&count=1"]
    with site({"/search": Text("no", status=403)}) as server:
        assert (healthy(WebSettings(searxng=server.url)) or "").startswith("SearXNG has JSON switched off")
        told = healthy(WebSettings(brave_key=KEY, brave_url=f"{server.url}/web"))
        assert told == "Brave answers with status 404"


# a real searx


ENGINE_HITS = {
    "/find": Text(
        json.dumps(
            {
                "hits": [
                    {"url": "https://example.org/a?x=1&y=2", "title": "First <b>hit</b>", "content": "One &amp; more"},
                    {"url": "https://example.com/b", "title": "Second", "content": ""},
                ]
            }
        ),
        "application/json",
    ),
    "/none": Text('{"hits": []}', "application/json"),
    "/blocked": Text("captcha", status=429),
}
SEARX = """
general: {{debug: false, instance_name: test, contact_url: false, enable_stats: false}}
brand: {{git_url: "", git_branch: "", issue_url: "", docs_url: "", public_instances: "", wiki_url: "", twitter_url: ""}}
search: {{safe_search: 0, autocomplete: "", default_lang: "", ban_time_on_fail: 0, max_ban_time_on_fail: 0,
         prefer_configured_language: false}}
server: {{port: {port}, bind_address: 127.0.0.1, secret_key: only-for-tests, base_url: false, image_proxy: false,
         http_protocol_version: "1.0", method: GET, default_http_headers: {{}}}}
ui: {{static_path: /usr/share/python3-searx/static, templates_path: /usr/share/python3-searx/templates,
     default_theme: oscar, default_locale: "", theme_args: {{oscar_style: logicodev}}}}
outgoing: {{request_timeout: 2.0, useragent_suffix: "", pool_connections: 10, pool_maxsize: 10}}
checker: {{off_when_debug: true}}
doi_resolvers: {{doi.org: "https://doi.org/"}}
default_doi_resolver: doi.org
locales: {{en: English}}
engines:
"""
ENGINE = """
  - {{name: {name}, engine: json_engine, shortcut: {name}, categories: general, enable_http: true, timeout: 2.0,
     search_url: "{url}/{name}?q={{query}}", results_query: hits, url_query: url, title_query: title,
     content_query: content}}
"""


@pytest.fixture(scope="module")
def searx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Site]]:
    """The address of Debian's searx, and the site that its engines ask."""
    if not Path("/usr/lib/python3/dist-packages/searx").is_dir():
        pytest.skip("Debian's package python3-searx is not installed")
    port, file = free_port(), tmp_path_factory.mktemp("searx") / "settings.yml"
    with site(ENGINE_HITS) as engines:
        names = ("find", "none", "blocked")
        file.write_text(SEARX.format(port=port) + "".join(ENGINE.format(name=n, url=engines.url) for n in names))
        process = subprocess.Popen(
            ["/usr/bin/python3", "-m", "searx.webapp"],
            env={"SEARX_SETTINGS_PATH": str(file), "PATH": "/usr/bin:/bin"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(port, 20)
            yield f"http://127.0.0.1:{port}", engines
        finally:
            process.kill()
            process.wait()


@pytest.mark.searx
def test_a_real_searx_searches(searx: tuple[str, Site]) -> None:
    url, engines = searx
    found = outcome(web, {"query": "!find bowline knot"}, context(settings=WebSettings(searxng=url, backend="searxng")))
    assert isinstance(found, Answer)
    assert found.text == (
        "🌐 WEB SEARCH RESULTS for '!find bowline knot' (SearXNG)\n\n"
        "1. First hit\nhttps://example.org/a?x=1&y=2\nOne & more\n\n2. Second\nhttps://example.com/b\n\n" + READ_ON
    )
    assert engines.paths[-1] == "/find?q=bowline+knot"


@pytest.mark.searx
def test_a_real_searx_finds_nothing_or_is_blocked(searx: tuple[str, Site]) -> None:
    settings = WebSettings(searxng=searx[0], backend="searxng")
    assert "Nothing was found" in answer(web, {"query": "!none x"}, context(settings=settings))
    told = refusal(web, {"query": "!blocked x"}, context(settings=settings))
    assert told.startswith("the search failed: SearXNG found nothing, since its engines failed (blocked: ")
    assert healthy(settings) is None
