"""What the page requests from the server, on a real port: its files, and what it shows first."""

import re
from collections.abc import Iterator
from importlib.resources import files

import httpx
import pytest
from brain_servers import Server, brain_served, client_of
from turn_helpers import Player, registry_of

from brain import specialist
from brain.server import static_files
from brain.server.routes.page import CACHE_FOREVER

PAGE = files("brain").joinpath("page")
ANN = {"authorization": "Bearer anns-key"}


@specialist
def clock() -> str:
    """Tells the time."""
    return "It is noon."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with brain_served(registry_of(clock), KEYS="anns-key:ann") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with client_of(server) as client:
        yield client


def test_the_page_needs_no_key_and_may_load_nothing_else(client: httpx.Client) -> None:
    answer = client.get("/")
    assert re.sub("page/[0-9a-f]{16}/", "page/", answer.text) == PAGE.joinpath("index.html").read_text("utf-8")
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types dompurify"
    )
    names = re.findall(r'(?:src|href)="([^"#]+)"', answer.text)
    assert len(names) > 50
    assert {client.get(f"/{name}").headers.get("cache-control") for name in names} == {CACHE_FOREVER}


def test_another_version_has_other_addresses_and_gets_the_present_files(client: httpx.Client) -> None:
    address = f"/page/{static_files.version()}/scripts/main.js"
    present, other = client.get(address), client.get(re.sub("[0-9a-f]{16}", "0123456789abcdef", address))
    assert (present.headers["cache-control"], other.headers["cache-control"]) == (CACHE_FOREVER, "no-cache")
    assert present.text == other.text == PAGE.joinpath("scripts", "main.js").read_text("utf-8")


@pytest.mark.parametrize("path", ["/", "/page/scripts/main.js", "/page/start"])
def test_responses_are_compressed(client: httpx.Client, path: str) -> None:
    small, whole = (client.get(path, headers={**ANN, "accept-encoding": one}) for one in ("gzip", "gzip;q=0"))
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
        ("/page/texts/en.json", "application/json"),
        ("/page/vendor/dompurify/purify.es.mjs", "text/javascript; charset=utf-8"),
    ],
)
def test_browsers_revalidate_files_without_a_version(client: httpx.Client, path: str, kind: str) -> None:
    first = client.get(path)
    found = (first.status_code, first.headers["content-type"], first.headers["cache-control"])
    assert found == (200, kind, "no-cache")
    again = client.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["cache-control"]) == (304, b"", "no-cache")
    assert client.get(path, headers={"if-none-match": '"other"', "range": "bytes=5-1"}).status_code == 200
    head = client.head(path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", first.headers["etag"])


@pytest.mark.parametrize(
    "name",
    ["", "index.html", "scripts/", "none.js", "vendor/README.md", "..%2fapp.py", "%2e%2e/page/%2e%2e/app.py",
     "/etc/passwd", "%2fetc%2fhosts.js", "a%00.js", "a" * 3000 + ".js", "start/", "%2e/start", "0123456789abcdef/",
     "0123456789abcdef/index.html", "0123456789abcdef/0123456789abcdef/icon.svg"],
)  # fmt: skip
def test_unknown_files(client: httpx.Client, name: str) -> None:
    answer = client.get(f"/page/{name}", headers=ANN)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert client.get(f"/page/{name}").status_code == 401, "nobody without a key learns that it does not exist"


def test_the_page_learns_the_user_and_what_may_be_sent(server: Server, client: httpx.Client) -> None:
    server.play(Player(name="player"))
    start = client.get("/page/start", headers=ANN).json()
    assert start.pop("version")
    for name in ("specialists", "strategies"):
        assert start.pop(name) == client.get(f"/v1/{name}", headers=ANN).json()[name]
    assert start == {
        "user": "ann",
        "keys": True,
        "models": [{"name": "player", "stand_in": False, "local": True, "assist": True, "default": True}],
        "recall": True,
        "limits": {
            "files": 10,
            "file_bytes": 16_777_216,
            "body_bytes": 20_971_520,
            "message_characters": 200_000,
        },
    }


def test_models_have_names_that_a_turn_accepts() -> None:
    with brain_served(MODEL="builtin,openai:a,openai:b") as server, client_of(server) as client:
        server.play(Player(["1"], name="same"), Player(["2"], name="same"), Player(["3"], name="other"))
        start = client.get("/page/start").json()
        assert (start["user"], start["keys"]) == ("local", False)
        found = [(model["name"], model["default"]) for model in start["models"]]
        assert found == [("same", True), ("openai:a", False), ("other", False)]
        for number, (name, _) in enumerate(found, 1):
            answer = client.post("/v1/chat/stream", json={"message": "Hi", "model": name})
            assert f'"text":"{number}"' in answer.text
