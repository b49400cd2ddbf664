"""What the page asks of the server, on a real port: its files, what it shows first, Markdown as HTML."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from importlib.resources import files

import httpx
import pytest
from serving import Player, Server, brain_served, served, settings
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.types import Message

from brain import Registry, mount, specialist
from brain.protocols.bodies import encode
from brain.server import static_files
from brain.server.routes.page import LASTING, MARKDOWN_BYTES, MARKDOWN_OPEN, MARKDOWN_TEXTS, Markdown

PAGE = files("brain").joinpath("page")
BEHIND_THE_DOOR = {"authorization": "Bearer anns-key"}


@specialist
def clock() -> str:
    """Tells the time."""
    return "It is noon."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    registry = Registry()
    registry.add(clock)
    with brain_served(registry, KEYS="anns-key:ann,bobs-key:bob") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30, trust_env=False) as made:
        yield made


# its files


def test_the_page_is_there_without_a_key_and_may_load_nothing_else(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert re.sub("page/[0-9a-f]{16}/", "page/", answer.text) == PAGE.joinpath("index.html").read_text("utf-8")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types brain"
    )


def test_all_that_the_page_names_is_there(client: httpx.Client) -> None:
    named = re.findall(r'(?:src|href)="([^"#]+)"', client.get("/").text)
    assert len(named) > 50
    assert {client.get(f"/{name}").headers.get("cache-control") for name in named} == {LASTING}


def test_another_version_has_other_addresses_and_gets_the_files_of_now(client: httpx.Client) -> None:
    address = f"/page/{static_files.version()}/scripts/main.js"
    now, other = client.get(address), client.get(re.sub("[0-9a-f]{16}", "0123456789abcdef", address))
    assert (now.headers["cache-control"], other.headers["cache-control"]) == (LASTING, "no-cache")
    assert now.text == other.text == PAGE.joinpath("scripts", "main.js").read_text("utf-8")


@pytest.mark.parametrize("path", ["/", "/page/scripts/main.js", "/page/start"])
def test_what_a_visit_takes_is_made_smaller(client: httpx.Client, path: str) -> None:
    asked = {**BEHIND_THE_DOOR, "accept-encoding": "gzip"}
    small, whole = client.get(path, headers=asked), client.get(path, headers={**asked, "accept-encoding": "gzip;q=0"})
    assert (small.headers["content-encoding"], small.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert "content-encoding" not in whole.headers
    assert small.text == whole.text
    assert int(small.headers["content-length"]) < 0.7 * int(whole.headers["content-length"])


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
        ("/page/examples/ticket.png", "image/png"),
        ("/page/style/base.css", "text/css; charset=utf-8"),
        ("/page/scripts/main.js", "text/javascript; charset=utf-8"),
        ("/page/texts/en.js", "text/javascript; charset=utf-8"),
    ],
)
def test_files_are_kept_by_browsers_that_ask_again_each_time(client: httpx.Client, path: str, kind: str) -> None:
    first = client.get(path)
    assert (first.status_code, first.headers["content-type"]) == (200, kind)
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.headers["cross-origin-resource-policy"] == "same-origin"
    again = client.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["cache-control"] == "no-cache"
    assert client.get(path, headers={"if-none-match": '"other"', "range": "bytes=5-1"}).status_code == 200
    head = client.head(path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", first.headers["etag"])


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/index.html",
        "/page/scripts",
        "/page/scripts/",
        "/page/none.js",
        "/page/..%2fapp.py",
        "/page/%2e%2e/page/%2e%2e/app.py",
        "/page/%2e%2e/app.js",
        "/page//etc/passwd",
        "/page/%2fetc%2fhosts.js",
        "/page/a%00.js",
        "/page/" + "a" * 3000 + ".js",
        "/page/start/",
        "/page/%2e/start",
        "/page/0123456789abcdef/",
        "/page/0123456789abcdef/index.html",
        "/page/0123456789abcdef/start",
        "/page/0123456789abcdef/0123456789abcdef/icon.svg",
    ],
)
def test_nothing_else_is(client: httpx.Client, path: str) -> None:
    """And nobody without a key learns so."""
    answer = client.get(path, headers=BEHIND_THE_DOOR)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert client.get(path).status_code == 401


def test_files_are_only_read(client: httpx.Client) -> None:
    assert client.post("/page/icon.svg").status_code == 405
    assert client.post("/").status_code == 405


def test_the_page_works_inside_another_application() -> None:
    outer = Starlette()
    mount(outer, "/brain", settings(STORE="memory:"), Registry())
    with served(outer) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        assert client.get("/brain/").text.startswith("<!doctype html>")
        assert client.get("/brain/page/icon.svg").status_code == 200
        assert client.get("/brain/page/start").json()["user"] == "local"
        assert client.post("/brain/page/markdown", json={"texts": ["*a*"]}).status_code == 200
        moved = client.get("/brain")
        assert (moved.status_code, httpx.URL(moved.headers["location"]).path) == (307, "/brain/")


# what it shows first


def test_the_page_learns_who_is_there_and_what_it_may_send(server: Server, client: httpx.Client) -> None:
    server.play(Player(name="player"))
    told = client.get("/page/start", headers=BEHIND_THE_DOOR).json()
    assert told.pop("version")
    assert told.pop("specialists") == client.get("/v1/specialists", headers=BEHIND_THE_DOOR).json()["specialists"]
    assert told == {
        "user": "ann",
        "keys": True,
        "models": [{"name": "player", "stand_in": False, "default": True}],
        "recall": True,
        "limits": {
            "files": 10,
            "file_bytes": 16_777_216,
            "body_bytes": 20_971_520,
            "message_characters": 200_000,
            "markdown_texts": 200,
            "markdown_bytes": 131_072,
            "markdown_open": 16_384,
        },
    }


def test_it_learns_nothing_without_a_key(client: httpx.Client) -> None:
    assert client.get("/page/start").status_code == 401
    assert client.post("/page/markdown", json={"texts": ["a"]}).status_code == 401


def test_models_are_told_by_names_that_a_turn_takes() -> None:
    with brain_served(Registry(), MODEL="builtin,openai:a,openai:b", STORE="memory:") as server:
        server.play(Player(["1"], name="same"), Player(["2"], name="same"), Player(["3"], name="other"))
        with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client:
            start = client.get("/page/start").json()
            assert (start["user"], start["keys"]) == ("local", False)
            names = [model["name"] for model in start["models"]]
            assert names == ["same", "openai:a", "other"]
            assert [model["default"] for model in start["models"]] == [True, False, False]
            for number, name in enumerate(names, 1):
                answer = client.post("/v1/chat/stream", json={"message": "Hi", "model": name})
                assert f'"text":"{number}"' in answer.text


# Markdown


def test_texts_come_back_as_blocks(client: httpx.Client) -> None:
    sent = {"texts": ["*a* 😀\n\nb", "", "<b>"]}
    answer = client.post("/page/markdown", json=sent, headers=BEHIND_THE_DOOR)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {
        "texts": [
            [{"html": "<p><em>a</em> 😀</p>\n", "end": 7, "fence": ""}, {"html": "<p>b</p>\n", "end": 9, "fence": ""}],
            [],
            [{"html": "<p>&lt;b&gt;</p>\n", "end": 3, "fence": ""}],
        ]
    }


def test_of_texts_that_grow_the_last_block_is_open(client: httpx.Client) -> None:
    sent = {"texts": ["```py\n1\n```\n\n# a\n#", "```py\n1\n```"], "open": True}
    first, second = client.post("/page/markdown", json=sent, headers=BEHIND_THE_DOOR).json()["texts"]
    assert [block["end"] for block in first] == [12, 18]
    assert ["<span" in first[0]["html"], "<span" in second[0]["html"]] == [True, False]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{}", 400, "texts"),
        (b"[]", 400, None),
        (b'{"texts": "a"}', 400, "texts"),
        (b'{"texts": [1]}', 400, "texts[0]"),
        (b'{"texts": [], "open": 1}', 400, "open"),
        (b'{"texts": [], "html": ""}', 400, "html"),
        (b'{"texts": [', 400, None),
        (b'{"texts": ["\xff"]}', 400, None),
        (b'{"texts": [' + b'"",' * MARKDOWN_TEXTS + b'""]}', 413, "texts"),
        (b'{"texts": ["' + b"a" * MARKDOWN_OPEN + b'", "b"], "open": true}', 413, "texts"),
        (b'{"texts": ["' + b"a" * MARKDOWN_BYTES + b'"]}', 413, None),
        (b"[" * 100_000, 400, None),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_wrong_with_texts_is_named(client: httpx.Client, body: bytes, status: int, field: str | None) -> None:
    headers = {**BEHIND_THE_DOOR, "content-type": "application/json"}
    answer = client.post("/page/markdown", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"].get("field")) == (status, field)


def test_texts_are_json(client: httpx.Client) -> None:
    assert client.post("/page/markdown", content=b"a", headers=BEHIND_THE_DOOR).status_code == 415


def test_the_server_answers_others_while_it_renders(client: httpx.Client, server: Server) -> None:
    """Many texts that take long: meanwhile, health comes many times."""
    sent = {"texts": ["[" * 8_000] * 16}
    done = threading.Event()

    def render() -> None:
        answer = httpx.post(f"{server.url}/page/markdown", json=sent, headers=BEHIND_THE_DOOR, timeout=60)
        assert answer.status_code == 200
        done.set()

    thread = threading.Thread(target=render)
    began = time.monotonic()
    thread.start()
    answered = 0
    while not done.is_set() and time.monotonic() - began < 50:
        assert client.get("/healthz").status_code == 200
        answered += 1
    thread.join(60)
    assert done.is_set()
    assert answered > 10


LONG = ["*a* `b` " * 1000] * 8


def test_many_texts_of_one_user_hold_nobody_else_up(server: Server) -> None:
    """Of many requests one is rendered and three wait; somebody else's comes behind the first of them."""

    async def main() -> tuple[list[str], list[httpx.Response]]:
        done: list[str] = []
        async with httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as client:

            async def render(user: str, texts: list[str]) -> httpx.Response:
                headers = {"authorization": f"Bearer {user}s-key"}
                answer = await client.post("/page/markdown", json={"texts": texts}, headers=headers)
                if answer.status_code == 200:
                    done.append(user)
                return answer

            anns = [asyncio.create_task(render("ann", LONG)) for _ in range(8)]
            await asyncio.wait(anns, return_when=asyncio.FIRST_COMPLETED)
            await render("bob", ["*a*"])
            return done, [answer for answer in await asyncio.gather(*anns) if answer.status_code != 200]

    done, refused = asyncio.run(main())
    assert sorted(done) == ["ann", "ann", "ann", "ann", "bob"]
    assert done.index("bob") < 3
    assert [answer.status_code for answer in refused] == [429] * 4
    assert [answer.headers["retry-after"] for answer in refused] == ["1"] * 4
    assert refused[0].json()["error"]["code"] == "rate_limited"


def test_nothing_is_rendered_for_a_client_that_left() -> None:
    body = encode({"texts": ["*a*"]})
    messages: list[Message] = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    head = [(b"content-type", b"application/json")]
    with pytest.raises(ClientDisconnect):
        asyncio.run(Markdown()({"type": "http", "headers": head, "brain.user": "ann"}, receive, send))
    assert sent == []
