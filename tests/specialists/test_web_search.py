"""`web` as a search: a real searx, doubles of Brave and ddgs, and servers that fail."""

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

from brain.plugins.context import Result
from specialists._web.search import WebSettings, find_problem, health
from specialists.web import web

KEY = "BSA-not-a-real-key"
GARBAGE = ("null", '"x"', '{"a": 1}', "[[]]", '[{"url": 3, "title": {}}]')
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
    """A response of a SearXNG server."""
    return Text(json.dumps({"query": "q", "results": results, **more}), "application/json")


def brave(*results: Mapping[str, Any]) -> Text:
    return Text(json.dumps({"type": "search", "web": {"type": "search", "results": results}}), "application/json")


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    with site({}) as served:
        yield served


@pytest.fixture
def ddgs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package `ddgs` for a test to write, in place of the real one, which needs the internet."""
    (tmp_path / "ddgs").mkdir()
    (tmp_path / "ddgs" / "exceptions.py").write_text(
        "class DDGSException(Exception): ...\nclass TimeoutException(DDGSException): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "ddgs" / "__init__.py"


def by_searxng(server: Site, reply: Text, seconds: float = 60) -> Any:
    """A context whose only backend is this server, with one response."""
    server.serve({"/search": reply})
    return context(settings=WebSettings(searxng=server.url, backend="searxng"), seconds=seconds)


def by_brave(server: Site, reply: Text) -> Any:
    server.serve({"/web": reply})
    return context(settings=WebSettings(brave_key=KEY, brave_url=f"{server.url}/web", backend="brave"))


def hits_of(text: str) -> list[str]:
    """The numbered blocks of a result."""
    return [block for block in text.split("\n\n") if block[0].isdigit()]


# SearXNG


def test_a_search_by_searxng_lists_results_with_citations(server: Site) -> None:
    found = outcome(web, {"query": "grüne knoten", "since": "week"}, by_searxng(server, searxng()))
    assert isinstance(found, Result)
    assert found.text.startswith("🌐 WEB SEARCH RESULTS for 'grüne knoten' (SearXNG)\n\n1. ")
    assert hits_of(found.text) == [
        "1. Rope & knots (2026-03-01)\nhttps://example.org/a?x=1&y=2\nHow to tie a bowline – safely",
        "2. Second\nhttps://example.com/b",
    ]
    assert [(c.id, c.title, c.url) for c in found.citations] == [
        ("1", "Rope & knots", "https://example.org/a?x=1&y=2"),
        ("2", "Second", "https://example.com/b"),
    ]
    path, headers = server.requests[0]
    assert path == "/search?q=gr%C3%BCne+knoten&format=json&time_range=week"
    assert headers["user-agent"].startswith("brain-sse/")


@pytest.mark.parametrize("path", ["", "/", "/search", "/search/"])
def test_the_base_url_may_have_a_path(server: Site, path: str) -> None:
    server.serve({"/search": searxng()})
    settings = WebSettings(searxng=server.url + path, backend="searxng")
    assert "Second" in answer(web, {"query": "q"}, context(settings=settings))


@pytest.mark.parametrize(("params", "count"), [({}, 5), ({"max_results": 1}, 1), ({"max_results": 10}, 10)])
def test_max_results_limits_the_results(server: Site, params: dict[str, int], count: int) -> None:
    many = [{"url": f"https://example.org/{n}", "title": f"T{n}", "content": "c"} for n in range(30)]
    assert len(hits_of(answer(web, {"query": "q", **params}, by_searxng(server, searxng(many))))) == count


def test_long_fields_are_cut_and_invalid_urls_dropped(server: Site) -> None:
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
    assert f"'{'x' * 199}…'" in text
    assert hits_of(text) == [
        f"1. {'word ' * 28}word…\nhttps://example.org/a\n{'snippet ' * 36}snippet…",
        "2. https://example.org/c\nhttps://example.org/c",
    ]


def test_direct_answers_and_suggestions_are_shown(server: Site) -> None:
    reply = searxng(
        HITS[1:],
        answers=["42 knots", {"answer": "and a dict"}],
        suggestions=["rope", "sail <b>x</b>"],
        unresponsive_engines=[["bing", "timeout"]],
    )
    _, *blocks = answer(web, {"query": "q"}, by_searxng(server, reply)).split("\n\n")
    assert [block.partition(": ")[2] for block in blocks[:3]] == ["42 knots", "and a dict", "rope, sail x"]
    assert blocks[3] == "1. Second\nhttps://example.com/b"
    assert "knots" in answer(web, {"query": "q"}, by_searxng(server, searxng([], suggestions=["knots"])))


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_a_response_is_no_result(server: Site, garbage: str) -> None:
    assert hits_of(answer(web, {"query": "q"}, by_searxng(server, Text(f'{{"results": {garbage}}}')))) == []


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        (Text("no", status=403), "JSON"),
        (Text("no", status=429), "too many requests"),
        (Text("oops", status=502), "502"),
        (Text("<html>Are you a robot?</html>"), "JSON"),
        (Text("[1, 2]", "application/json"), "response"),
        (Text("[" * 100_000, "application/json"), "JSON"),
        (Text(b"\xff\xfe\x00{", "application/json"), "JSON"),
        (Text(b"x" * 3_000_000, "application/json"), "reached"),
        (Text(b"PK", "application/zip"), "reached"),
        (Text(status=302, headers={"Location": "http://127.0.0.1:1/"}), "reached"),
        (
            searxng([], unresponsive_engines=[["google", "CAPTCHA"], ["bing", "timeout"], "qwant"]),
            "(google: CAPTCHA, bing: timeout, qwant)",
        ),
    ],
)
def test_a_search_that_fails_has_a_reason_without_addresses(server: Site, reply: Text, part: str) -> None:
    reason = refusal(web, {"query": "q"}, by_searxng(server, reply))
    assert "SearXNG" in reason
    assert part in reason
    assert "127.0.0.1" not in reason


def test_a_slow_or_missing_backend_is_left_in_time(server: Site) -> None:
    gone = context(settings=WebSettings(searxng=f"http://127.0.0.1:{free_port()}", backend="searxng"))
    for ctx in (gone, by_searxng(server, Text(is_silent=True), seconds=1.4)):
        assert "SearXNG cannot be reached" in refusal(web, {"query": "q"}, ctx)


# Brave and ddgs


def test_brave_gets_its_key_in_a_header(server: Site) -> None:
    params = {"query": "knots " + "ab " * 160, "max_results": 3, "since": "month"}
    text = answer(web, params, by_brave(server, brave(BRAVE_HIT)))
    path, headers = server.requests[0]
    assert path == f"/web?q=knots+{'+'.join(['ab'] * 49)}&count=3&freshness=pm"  # the limit is 50 words
    assert headers["x-subscription-token"] == KEY
    assert KEY not in text
    assert hits_of(text) == [
        "1. Knots | Rope Guild (2025-12-24)\nhttps://guild.example/knots\nAll the knots there are & more"
    ]


@pytest.mark.parametrize("status", [401, 422, 429, 500])
def test_a_failure_of_brave_does_not_show_the_key(server: Site, status: int) -> None:
    reason = refusal(web, {"query": "q"}, by_brave(server, Text("{}", "application/json", status)))
    assert "Brave" in reason
    assert KEY not in reason


def test_the_key_does_not_follow_a_redirect(server: Site) -> None:
    with site({"/web": brave(BRAVE_HIT)}) as other:
        ctx = by_brave(server, Text(status=307, headers={"Location": f"{other.url}/web"}))
        outcome(web, {"query": "q"}, ctx)
        assert all("x-subscription-token" not in headers for _, headers in other.requests)


def test_ddgs_results(ddgs: Path) -> None:
    found = [{"title": "Knots", "href": "https://knots.example/", "body": "b <b>old</b>"}, {"title": "no address"}]
    ddgs.write_text(DDGS.format(body=f"assert (region, timelimit) == ('us-en', 'd'); return {found!r}"))
    text = answer(web, {"query": "knots", "since": "day"}, context(settings=WebSettings()))
    assert hits_of(text) == ["1. Knots\nhttps://knots.example/\nb old"]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("raise DDGSException('No results found. at /secret/path')", "nothing"),
        ("raise DDGSException('DNSError: https://secret.example')", "could not reach"),
        ("raise TimeoutException('x')", "in time"),
        ("os._exit(3)", "in time"),
        ("raise KeyError('changed layout')", "in time"),
    ],
)
def test_ddgs_that_fails_has_a_reason(ddgs: Path, body: str, part: str) -> None:
    ddgs.write_text(DDGS.format(body=body))
    reason = refusal(web, {"query": "q"}, context(settings=WebSettings()))
    assert "ddgs" in reason
    assert part in reason
    assert "secret" not in reason


# which backend, which call


def test_the_next_backend_is_tried_and_all_reasons_are_given(server: Site, ddgs: Path) -> None:
    ddgs.write_text(DDGS.format(body="raise DDGSException('No results found.')"))
    settings = WebSettings(searxng=server.url, brave_key=KEY, brave_url=f"{server.url}/web")
    server.serve({"/search": Text("no", status=403), "/web": brave(BRAVE_HIT)})
    head, note, first, _ = answer(web, {"query": "knots"}, context(settings=settings)).split("\n\n", 3)
    assert (head, note[:9], first[:8]) == ("🌐 WEB SEARCH RESULTS for 'knots' (Brave)", "(SearXNG ", "1. Knots")
    server.serve({"/search": Text("no", status=429), "/web": Text("{}", "application/json", 401)})
    reason = refusal(web, {"query": "knots"}, context(settings=settings))
    assert [name for name in ("SearXNG", "Brave", "ddgs") if name in reason] == ["SearXNG", "Brave", "ddgs"]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (WebSettings(), None),
        (WebSettings(searxng="https://searx.example/path/"), None),
        (WebSettings(searxng="searx.example"), "BRAIN_SPECIALIST_WEB_SEARXNG"),
        (WebSettings(searxng="http:// x"), "BRAIN_SPECIALIST_WEB_SEARXNG"),
        (WebSettings(backend="searxng"), "BRAIN_SPECIALIST_WEB_SEARXNG"),
        (WebSettings(backend="brave"), "BRAIN_SPECIALIST_WEB_BRAVE_KEY"),
    ],
)
def test_invalid_settings_are_named(settings: WebSettings, name: str | None) -> None:
    problem = find_problem(settings=settings)
    assert problem is None if name is None else name in (problem or "")


@pytest.mark.parametrize("params", [{"query": "a", "url": "https://example.org"}, {}, {"query": "  ", "url": ""}])
def test_a_call_has_either_a_query_or_a_url(params: dict[str, str]) -> None:
    assert "url" in refusal(web, params, context(settings=WebSettings()))


def check(settings: WebSettings) -> str:
    return asyncio.run(health(settings=settings, context=context())) or ""


def test_health_checks_the_first_backend(server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    by_key = WebSettings(brave_key=KEY, brave_url=f"{server.url}/web")
    empty_query = Text('{"error": "No query"}', "application/json", 400)
    server.serve({"/search": empty_query, "/web": brave(BRAVE_HIT)})
    assert (check(WebSettings(searxng=server.url)), check(by_key)) == ("", "")
    assert server.paths == ["/search?q=&format=json", "/web?q=brain&count=1"]
    server.serve({"/search": Text("no", status=403)})
    assert "search.formats" in check(WebSettings(searxng=server.url))
    assert "404" in check(by_key)
    monkeypatch.setitem(sys.modules, "ddgs", None)
    assert "[web]" in check(WebSettings())
    assert "not set up" in refusal(web, {"query": "q"}, context(settings=WebSettings()))


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
        text = answer(web, {"query": "!find bowline knot"}, ctx)
        assert hits_of(text) == ["1. First hit\nhttps://example.org/a?x=1&y=2\nOne & more"]
        assert engines.paths[-1] == "/find?q=bowline+knot"
        assert hits_of(answer(web, {"query": "!none x"}, ctx)) == []
        assert "(blocked: " in refusal(web, {"query": "!blocked x"}, ctx)
        assert check(settings) == ""
