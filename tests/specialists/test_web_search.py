"""`web` as a search: a real searx, doubles of Brave and ddgs, and what servers say that do not search."""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from specialist_calls import answer, context, outcome, refusal
from web_site import Site, Text, free_port, program, site

from brain.plugins.executor import CallResult
from specialists._web.search import WebSettings, find_problem, health
from specialists.web import web

KEY = "BSA-not-a-real-key"
GARBAGE = ("null", '"x"', '{"a": 1}', "[[]]", '[{"url": 3, "title": {}}]')
NOTHING = "Nothing was found; try fewer or other words."
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
BRAVE_HIT = {
    "title": "Knots | <strong>Rope</strong> Guild",
    "url": "https://guild.example/knots",
    "description": "All the <strong>knots</strong> there are &amp; more",
    "page_age": "2025-12-24T18:00:00",
}
DDGS = """
import os
from ddgs.exceptions import DDGSException, TimeoutException
class DDGS:
    def __init__(self, timeout): self.timeout = timeout
    def text(self, query, region, timelimit, max_results):
        {body}
"""


def searxng(results: Any = HITS, **more: Any) -> Text:
    """The answer of a SearXNG server."""
    return Text(json.dumps({"query": "q", "results": results, **more}), "application/json")


def brave(*results: Mapping[str, Any]) -> Text:
    return Text(json.dumps({"type": "search", "web": {"type": "search", "results": results}}), "application/json")


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    with site({}) as served:
        yield served


@pytest.fixture
def ddgs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package `ddgs` that does what a test writes into it, in place of the one that asks the internet."""
    (tmp_path / "ddgs").mkdir()
    (tmp_path / "ddgs" / "exceptions.py").write_text(
        "class DDGSException(Exception): ...\nclass TimeoutException(DDGSException): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "ddgs" / "__init__.py"


def by_searxng(server: Site, reply: Text, seconds: float = 60) -> Any:
    """A context whose only backend is this server, with one reply."""
    server.serve({"/search": reply})
    return context(settings=WebSettings(searxng=server.url, backend="searxng"), seconds=seconds)


def by_brave(server: Site, reply: Text) -> Any:
    server.serve({"/web": reply})
    return context(settings=WebSettings(brave_key=KEY, brave_url=f"{server.url}/web", backend="brave"))


# SearXNG


def test_a_search_by_searxng_lists_results_with_citations(server: Site) -> None:
    found = outcome(web, {"query": "grüne knoten", "since": "week"}, by_searxng(server, searxng()))
    assert isinstance(found, CallResult)
    assert found.text == (
        "🌐 WEB SEARCH RESULTS for 'grüne knoten' (SearXNG)\n\n"
        "1. Rope & knots (2026-03-01)\nhttps://example.org/a?x=1&y=2\nHow to tie a bowline – safely\n\n"
        "2. Second\nhttps://example.com/b\n\n" + READ_ON
    )
    assert [(c.id, c.title, c.url) for c in found.citations] == [
        ("1", "Rope & knots", "https://example.org/a?x=1&y=2"),
        ("2", "Second", "https://example.com/b"),
    ]
    path, headers = server.requests[0]
    assert path == "/search?q=gr%C3%BCne+knoten&format=json&time_range=week"
    assert headers["user-agent"].startswith("brain-sse/")


@pytest.mark.parametrize("path", ["", "/", "/search", "/search/"])
def test_the_base_address_may_be_written_as_operators_do(server: Site, path: str) -> None:
    server.serve({"/search": searxng()})
    settings = WebSettings(searxng=server.url + path, backend="searxng")
    assert "Second" in answer(web, {"query": "q"}, context(settings=settings))


@pytest.mark.parametrize(("params", "count"), [({}, 5), ({"max_results": 1}, 1), ({"max_results": 10}, 10)])
def test_max_results_caps_the_results(server: Site, params: dict[str, int], count: int) -> None:
    many = [{"url": f"https://example.org/{n}", "title": f"T{n}", "content": "c"} for n in range(30)]
    found = outcome(web, {"query": "q", **params}, by_searxng(server, searxng(many)))
    assert isinstance(found, CallResult)
    assert len(found.citations) == count


def test_long_fields_are_cut_and_what_is_no_url_is_left_out(server: Site) -> None:
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
    text = answer(web, {"query": "x" * 5000}, by_searxng(server, searxng(results)))
    assert server.paths == [f"/search?q={'x' * 500}&format=json"]
    head, first, second, last = text.split("\n\n")
    assert head == f"🌐 WEB SEARCH RESULTS for '{'x' * 199}…' (SearXNG)"
    assert first == f"1. {'word ' * 28}word…\nhttps://example.org/a\n{'snippet ' * 36}snippet…"
    assert (second, last) == ("2. https://example.org/c\nhttps://example.org/c", READ_ON)


@pytest.mark.parametrize(
    ("reply", "rest"),
    [
        (
            searxng(
                HITS[1:],
                answers=["42 knots", {"answer": "and a dict"}],
                suggestions=["rope", "sail <b>x</b>"],
                unresponsive_engines=[["bing", "timeout"]],
            ),
            "Answer: 42 knots\n\nAnswer: and a dict\n\nRelated searches: rope, sail x\n\n1. Second\n"
            f"https://example.com/b\n\n{READ_ON}",
        ),
        (searxng([], suggestions=["knots"]), f"{NOTHING}\n\nRelated searches: knots"),
        *((Text(f'{{"results": {garbage}}}', "application/json"), NOTHING) for garbage in GARBAGE),
    ],
)
def test_its_own_answers_and_suggestions_are_shown(server: Site, reply: Text, rest: str) -> None:
    text = answer(web, {"query": "q"}, by_searxng(server, reply))
    assert text == f"🌐 WEB SEARCH RESULTS for 'q' (SearXNG)\n\n{rest}"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Text("no", status=403), "SearXNG has JSON switched off"),
        (Text("no", status=429), "SearXNG limits this client"),
        (Text("oops", status=502), "SearXNG answers with status 502"),
        (Text("<html>Are you a robot?</html>"), "SearXNG does not answer in JSON"),
        (Text("[1, 2]", "application/json"), "SearXNG gives an answer that cannot be understood"),
        (Text("[" * 100_000, "application/json"), "SearXNG does not answer in JSON"),
        (Text(b"\xff\xfe\x00{", "application/json"), "SearXNG does not answer in JSON"),
        (Text(b"x" * 3_000_000, "application/json"), "SearXNG cannot be reached, or gives no answer that can be read"),
        (Text(b"PK", "application/zip"), "SearXNG cannot be reached, or gives no answer that can be read"),
        (Text(status=302, headers={"Location": "http://127.0.0.1:1/"}), "SearXNG cannot be reached"),
        (
            searxng([], unresponsive_engines=[["google", "CAPTCHA"], ["bing", "timeout"], "qwant"]),
            "SearXNG found nothing, since its engines failed (google: CAPTCHA, bing: timeout, qwant)",
        ),
    ],
)
def test_a_search_that_fails_says_why_and_names_no_address(server: Site, reply: Text, reason: str) -> None:
    refused = refusal(web, {"query": "q"}, by_searxng(server, reply))
    assert refused.startswith(f"the search failed: {reason}")
    assert "127.0.0.1" not in refused


def test_a_backend_that_is_slow_or_not_there_is_left_in_time(server: Site) -> None:
    gone = context(settings=WebSettings(searxng=f"http://127.0.0.1:{free_port()}", backend="searxng"))
    for ctx in (gone, by_searxng(server, Text(is_silent=True), seconds=1.4)):
        assert refusal(web, {"query": "q"}, ctx).startswith("the search failed: SearXNG cannot be reached")


# Brave


def test_brave_gets_its_key_in_a_header(server: Site) -> None:
    params = {"query": "knots " + "ab " * 160, "max_results": 3, "since": "month"}
    text = answer(web, params, by_brave(server, brave(BRAVE_HIT)))
    path, headers = server.requests[0]
    assert path == f"/web?q=knots+{'+'.join(['ab'] * 49)}&count=3&freshness=pm"  # it takes 50 words
    assert headers["x-subscription-token"] == KEY
    assert KEY not in text
    assert text.partition("\n\n")[2] == (
        "1. Knots | Rope Guild (2025-12-24)\nhttps://guild.example/knots\nAll the knots there are & more\n\n" + READ_ON
    )


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "Brave refuses the request"),
        (422, "Brave refuses the request"),
        (429, "Brave says that its limit of requests is reached"),
        (500, "Brave answers with status 500"),
    ],
)
def test_brave_that_fails_says_why_without_the_key(server: Site, status: int, reason: str) -> None:
    refused = refusal(web, {"query": "q"}, by_brave(server, Text("{}", "application/json", status)))
    assert refused.startswith(f"the search failed: {reason}")
    assert KEY not in refused


def test_the_key_does_not_follow_a_redirect(server: Site) -> None:
    with site({"/web": brave(BRAVE_HIT)}) as other:
        ctx = by_brave(server, Text(status=307, headers={"Location": f"{other.url}/web"}))
        outcome(web, {"query": "q"}, ctx)
        assert all("x-subscription-token" not in headers for _, headers in other.requests)


# ddgs


def test_ddgs_results(ddgs: Path) -> None:
    found = [{"title": "Knots", "href": "https://knots.example/", "body": "b <b>old</b>"}, {"title": "no address"}]
    ddgs.write_text(DDGS.format(body=f"assert (region, timelimit) == ('us-en', 'd'); return {found!r}"))
    text = answer(web, {"query": "knots", "since": "day"}, context(settings=WebSettings()))
    assert text == f"🌐 WEB SEARCH RESULTS for 'knots' (ddgs)\n\n1. Knots\nhttps://knots.example/\nb old\n\n{READ_ON}"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise DDGSException('No results found. at /secret/path')", "found nothing, or was blocked"),
        ("raise DDGSException('DNSError: https://secret.example')", "could not reach its search engines"),
        ("raise TimeoutException('x')", "did not answer in time"),
        ("os._exit(3)", "did not answer in time"),
        ("raise KeyError('changed layout')", "did not answer in time"),
    ],
)
def test_ddgs_that_fails_says_why(ddgs: Path, body: str, reason: str) -> None:
    ddgs.write_text(DDGS.format(body=body))
    refused = refusal(web, {"query": "q"}, context(settings=WebSettings()))
    assert refused.startswith(f"the search failed: ddgs {reason}")
    assert "secret" not in refused


# which backend, which call


def test_the_next_backend_is_asked_and_all_reasons_are_given(server: Site, ddgs: Path) -> None:
    ddgs.write_text(DDGS.format(body="raise DDGSException('No results found.')"))
    settings = WebSettings(searxng=server.url, brave_key=KEY, brave_url=f"{server.url}/web")
    server.serve({"/search": Text("no", status=403), "/web": brave(BRAVE_HIT)})
    text = answer(web, {"query": "knots"}, context(settings=settings))
    head, note, first, _ = text.split("\n\n", 3)
    assert (head, note[:25], first[:8]) == (
        "🌐 WEB SEARCH RESULTS for 'knots' (Brave)",
        "(SearXNG has JSON switche",
        "1. Knots",
    )
    server.serve({"/search": Text("no", status=429), "/web": Text("{}", "application/json", 401)})
    refused = refusal(web, {"query": "knots"}, context(settings=settings))
    assert [name in refused for name in ("SearXNG limits", "; Brave refuses", "; ddgs found nothing")] == [True] * 3
    assert len(refused) <= 400


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (WebSettings(), None),
        (WebSettings(searxng="https://searx.example/path/"), None),
        (WebSettings(searxng="searx.example"), "BRAIN_SPECIALIST_WEB_SEARXNG"),
        (WebSettings(searxng="http:// x"), "BRAIN_SPECIALIST_WEB_SEARXNG"),
        (WebSettings(backend="searxng"), "set BRAIN_SPECIALIST_WEB_SEARXNG"),
        (WebSettings(backend="brave"), "set BRAIN_SPECIALIST_WEB_BRAVE_KEY"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: WebSettings, problem: str | None) -> None:
    found = find_problem(settings=settings)
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize("params", [{"query": "a", "url": "https://example.org"}, {}, {"query": "  ", "url": ""}])
def test_a_call_has_either_a_query_or_a_url(params: dict[str, str]) -> None:
    assert refusal(web, params, context(settings=WebSettings())).startswith("give ")


def check(settings: WebSettings) -> str | None:
    return asyncio.run(health(settings=settings, context=context()))


def test_health_asks_the_first_backend(server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_to_search = Text('{"error": "No query"}', "application/json", 400)
    server.serve({"/search": nothing_to_search, "/web": brave(BRAVE_HIT)})
    assert check(WebSettings(searxng=server.url)) is None
    assert check(WebSettings(brave_key=KEY, brave_url=f"{server.url}/web")) is None
    assert server.paths == ["/search?q=&format=json", "/web?q=brain&count=1"]
    server.serve({"/search": Text("no", status=403)})
    assert (check(WebSettings(searxng=server.url)) or "").startswith("SearXNG has JSON switched off")
    assert check(WebSettings(brave_key=KEY, brave_url=f"{server.url}/web")) == "Brave answers with status 404"
    monkeypatch.setitem(sys.modules, "ddgs", None)
    assert (check(WebSettings()) or "").startswith("no search backend is set up")
    assert refusal(web, {"query": "q"}, context(settings=WebSettings())).startswith("no search backend is set up")


# a real searx


ENGINE_HITS = [{"url": "https://example.org/a?x=1&y=2", "title": "First <b>hit</b>", "content": "One &amp; more"}]
ENGINES = {
    "/find": Text(json.dumps({"hits": ENGINE_HITS}), "application/json"),
    "/none": Text('{"hits": []}', "application/json"),
    "/blocked": Text("captcha", status=429),
}


@pytest.mark.searx
@pytest.mark.skipif(
    not Path("/usr/lib/python3/dist-packages/searx").is_dir(), reason="Debian's package python3-searx is missing"
)
def test_a_real_searx_searches_finds_nothing_or_is_blocked(tmp_path: Path) -> None:
    port, config = free_port(), tmp_path / "settings.yml"
    with ExitStack() as stack:
        engines = stack.enter_context(site(ENGINES))
        settings_yml = (Path(__file__).parent / "pages" / "searx.yml").read_text()
        config.write_text(settings_yml.replace("PORT", str(port)).replace("URL", engines.url))
        environ = {"SEARX_SETTINGS_PATH": str(config), "PATH": "/usr/bin:/bin"}
        stack.enter_context(program(["/usr/bin/python3", "-m", "searx.webapp"], environ, b"Running on"))
        settings = WebSettings(searxng=f"http://127.0.0.1:{port}", backend="searxng")
        ctx = context(settings=settings)
        assert answer(web, {"query": "!find bowline knot"}, ctx) == (
            "🌐 WEB SEARCH RESULTS for '!find bowline knot' (SearXNG)\n\n"
            f"1. First hit\nhttps://example.org/a?x=1&y=2\nOne & more\n\n{READ_ON}"
        )
        assert engines.paths[-1] == "/find?q=bowline+knot"
        assert "Nothing was found" in answer(web, {"query": "!none x"}, ctx)
        blocked = refusal(web, {"query": "!blocked x"}, ctx)
        assert blocked.startswith("the search failed: SearXNG found nothing, since its engines failed (blocked: ")
        assert check(settings) is None
