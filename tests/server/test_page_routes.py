"""What the page asks of the server, on a real port: its files, and what it shows first."""

import re
from collections.abc import Iterator
from importlib.resources import files

import httpx
import pytest
from serving import Player, Server, brain_served, served, settings
from starlette.applications import Starlette

from brain import Registry, mount, specialist
from brain.server import static_files
from brain.server.routes.page import CACHE_FOREVER

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
        "trusted-types dompurify"
    )


def test_all_that_the_page_names_is_there(client: httpx.Client) -> None:
    named = re.findall(r'(?:src|href)="([^"#]+)"', client.get("/").text)
    assert len(named) > 50
    assert {client.get(f"/{name}").headers.get("cache-control") for name in named} == {CACHE_FOREVER}


def test_another_version_has_other_addresses_and_gets_the_files_of_now(client: httpx.Client) -> None:
    address = f"/page/{static_files.version()}/scripts/main.js"
    now, other = client.get(address), client.get(re.sub("[0-9a-f]{16}", "0123456789abcdef", address))
    assert (now.headers["cache-control"], other.headers["cache-control"]) == (CACHE_FOREVER, "no-cache")
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
        ("/page/vendor/dompurify/purify.es.mjs", "text/javascript; charset=utf-8"),
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
        "/page/vendor/README.md",
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
        },
    }


def test_it_learns_nothing_without_a_key(client: httpx.Client) -> None:
    assert client.get("/page/start").status_code == 401


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
