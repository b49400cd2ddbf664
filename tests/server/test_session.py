"""Signing in: tokens, the route on a real port, and pages in a browser that use the cookie."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from brain_servers import Process, Server, brain_served, client_of, problem, served, settings
from chromium import CHROMIUM, CHROMIUM_ARGS, NEEDS_CHROMIUM
from limits import WAIT_SECONDS
from playwright.sync_api import Page, sync_playwright
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from turn_helpers import Player

from brain import Registry, mount
from brain.server.auth import SESSION_SECONDS, KeyStore, parse_token

NOW = 1_800_000_000.5
ID, SIGNATURE = "A" * 16, "A" * 43
KEYS = (("first-key", "ann"), ("second-key", "ann"), ("kéy", "bob"))
HTTPS = {"host": "chat.example", "origin": "https://chat.example"}


# Tokens


def user_of(token: str, keys: tuple[tuple[str, str], ...] = KEYS, now: float = NOW) -> str | None:
    session = parse_token(token, now)
    return None if session is None else KeyStore(keys).verify(session)


def token_of(key: str) -> str:
    opened = KeyStore(KEYS).open_session(key.encode(), NOW)
    assert opened is not None
    return opened[1]


@pytest.mark.parametrize(
    ("key", "keys", "now", "user"),
    [
        ("first-key", KEYS, NOW, "ann"),
        ("kéy", KEYS, NOW, "bob"),
        ("first-key", (("other", "eve"), ("first-key", "ann")), NOW, "ann"),
        ("first-key", KEYS[1:], NOW, None),
        ("first-key", (("first-key", "eve"), *KEYS[1:]), NOW, None),
        ("first-key", KEYS, NOW + 2_592_000 - 1, "ann"),
        ("first-key", KEYS, NOW + 2_592_000, None),
    ],
    ids=["its user", "not ASCII", "another process", "removed key", "key of another", "30 days", "expired"],
)
def test_a_session_belongs_to_its_key(
    key: str, keys: tuple[tuple[str, str], ...], now: float, user: str | None
) -> None:
    assert SESSION_SECONDS == 2_592_000
    assert user_of(token_of(key), keys, now) == user


def test_no_character_of_a_token_can_be_changed() -> None:
    token = token_of("first-key")
    for n, character in enumerate(token):
        for other in set("0A-") - {character}:
            assert user_of(token[:n] + other + token[n + 1 :]) is None


@pytest.mark.parametrize(
    "token", ["", "..", "1802592000", f"1802592000.{SIGNATURE}", f"x.{ID}.{SIGNATURE}", f"١٨٠٢٥٩٢٠٠٠.{ID}.{SIGNATURE}",
              f"{'9' * 13}.{ID}.{SIGNATURE}", f"1802592000.{ID}.{SIGNATURE}A", f"1802592000.{ID}.{SIGNATURE}\n",
              f"1802592000.{ID}.{'=' * 43}", "a" * 100_000],
)  # fmt: skip
def test_malformed_tokens(token: str) -> None:
    assert parse_token(token, NOW) is None


@pytest.mark.parametrize("key", [b"", b"first-ke", b"first-key ", b"FIRST-KEY", b"ann", b"\xff", b"k" * 99])
def test_unknown_keys(key: bytes) -> None:
    assert KeyStore(KEYS).find_user(key) is None
    assert KeyStore(KEYS).open_session(key, NOW) is None


# The route


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with brain_served(KEYS="anns-key:ann,bobs-key:bob,kéy:bob", HOSTS="chat.example") as server:
        server.play(Player(["Hello."]))
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with client_of(server) as client:
        yield client


def cookie(server: Server, key: str = "anns-key", **headers: str) -> str:
    """The Set-Cookie header of a sign-in."""
    with client_of(server) as client:
        return str(client.post("/v1/session", json={"key": key}, headers=headers).headers["set-cookie"])


def signed_in(server: Server, sent: str, authorization: str = "") -> str | None:
    """The user of a request with this Cookie header."""
    headers = {"cookie": sent} | ({"authorization": authorization} if authorization else {})
    with client_of(server) as client:
        answer = client.get("/v1/session", headers=headers)
    user: str | None = answer.json().get("user")
    assert answer.status_code == (401 if user is None else 200)
    return user


def test_a_browser_signs_in_and_out(client: httpx.Client) -> None:
    assert problem(client.get("/v1/session")) == (401, "unauthorized", "authorization")
    answer = client.post("/v1/session", json={"key": "anns-key"})
    assert (answer.status_code, answer.json()) == (200, {"user": "ann"})
    token, _, attributes = answer.headers["set-cookie"].partition("; ")
    assert re.fullmatch(r"brain_session=[0-9]{10}\.[\w-]{16}\.[\w-]{43}", token)
    assert attributes == "Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict"
    assert client.get("/v1/session").json() == {"user": "ann"}
    assert "event: done" in client.get("/v1/chat/stream?message=hi").text
    assert "event: done" in client.post("/v1/chat/stream", json={"message": "hi"}).text
    for _ in range(2):
        answer = client.delete("/v1/session")
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["set-cookie"] == "brain_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
        assert client.get("/v1/session").status_code == 401


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ({}, False),
        ({"x-forwarded-proto": "https"}, True),
        (HTTPS, True),
        ({"host": "chat.example:443", "origin": "https://chat.example"}, True),
        ({"host": "chat.example", "origin": "http://chat.example"}, False),
    ],
)
def test_over_https_the_cookie_is_secure(server: Server, headers: dict[str, str], secure: bool) -> None:
    sent = cookie(server, **headers)
    assert ("Secure" in sent.split("; "), sent.startswith("__Host-")) == (secure, secure)


def test_over_https_no_other_subdomain_can_set_the_cookie(server: Server, client: httpx.Client) -> None:
    secure, plain = cookie(server, **HTTPS).partition(";")[0], cookie(server, "bobs-key").partition(";")[0]
    for sent in (secure, f"{plain}; {secure}", f"{secure}; {plain}", secure.removeprefix("__Host-")):
        assert signed_in(server, sent) == "ann", sent
    assert client.delete("/v1/session", headers=HTTPS).headers.get_list("set-cookie") == [
        f"{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure"
        for name in ("__Host-brain_session", "brain_session")
    ]


def test_other_cookies_and_the_authorization_header(server: Server) -> None:
    own = cookie(server, "kéy").partition(";")[0]
    for sent in (f"a=b; {own}; c", f"xbrain_session=no;{own}", f"{own}; brain_session=stale", f'=; ;"{own}"; {own}'):
        assert signed_in(server, sent) == "bob", sent
    for sent in (f"brain_session=stale; {own}", own.upper(), own[:-1], "brain_session", "=", ";" * 10_000):
        assert signed_in(server, sent) is None, sent
    for authorization, user in (
        ("Bearer anns-key", "ann"),
        ("Bearer wrong", None),
        ("Bearer", None),
        ("Basic x", "bob"),
    ):
        assert signed_in(server, own, authorization) == user, authorization


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b'{"key": "anns-key"}', "text/plain", (415, "unsupported_media_type", "content-type")),
        (b"{}", "application/json", (400, "bad_request", "key")),
        (b'{"key": "anns-key", "user": "bob"}', "application/json", (400, "bad_request", "user")),
        (b'{"key": "\\ud800"}', "application/json", (401, "unauthorized", "key")),
        (b'{"key": "ANNS-KEY"}', "application/json", (401, "unauthorized", "key")),
        (b'{"key": "' + b"a" * 16384 + b'"}', "application/json", (413, "too_large", None)),
    ],
)
def test_sign_ins_that_are_rejected(
    client: httpx.Client, body: bytes, kind: str, expected: tuple[int, str, str | None]
) -> None:
    answer = client.post("/v1/session", content=body, headers={"content-type": kind})
    assert problem(answer) == expected
    assert "set-cookie" not in answer.headers
    assert "anns-key" not in answer.text.casefold()


def test_an_expired_session_is_no_wrong_key_and_a_forged_one_is() -> None:
    with brain_served(KEYS="anns-key:ann") as server, client_of(server) as client:

        def get(token: str) -> int:
            return client.get("/v1/session", headers={"cookie": f"brain_session={token}"}).status_code

        assert {get(f"1700000000.{ID}.{SIGNATURE}") for _ in range(30)} == {401}
        assert [get(f"9999999999.{ID}.{SIGNATURE}") for _ in range(21)] == [401] * 20 + [429]
        assert signed_in(server, cookie(server).partition(";")[0]) == "ann"


def test_without_keys_everybody_is_the_local_user() -> None:
    with brain_served() as server, client_of(server) as client:
        assert client.get("/v1/session").json() == {"user": "local"}
        answer = client.post("/v1/session", json={"key": "whatever"})
        assert (answer.json(), "set-cookie" in answer.headers) == ({"user": "local"}, False)
        assert client.delete("/v1/session").status_code == 204


def test_the_cookie_is_for_the_place_where_brain_is_mounted() -> None:
    outer = Starlette()
    mount(outer, "/brain", settings(KEYS="anns-key:ann"), Registry())
    with served(outer) as server, client_of(server) as client:
        answer = client.post("/brain/v1/session", json={"key": "anns-key"})
        assert "Path=/brain;" in answer.headers["set-cookie"]
        assert client.get("/brain/v1/session").json() == {"user": "ann"}
        assert client.delete("/brain/v1/session").status_code == 204
        assert client.get("/brain/v1/session").status_code == 401


def test_keys_are_in_no_response_and_no_log() -> None:
    env = {"BRAIN_KEYS": "sk-secret:ann", "BRAIN_MODEL": "builtin", "BRAIN_PORT": "0"}
    with (
        Process("serve", env=env) as process,
        httpx.Client(base_url=process.url(), trust_env=False, timeout=WAIT_SECONDS) as client,
    ):
        for key in ("sk-secret", "sk-wrong"):
            client.post("/v1/session", json={"key": key})
            for path in ("/v1/session", "/readyz", "/metrics", "/v1/chat/stream?message=hi"):
                answer = client.get(path, headers={"authorization": f"Bearer {key}"})
                assert "sk-" not in answer.text + str(answer.headers)
        process.process.terminate()
        _, out, err = process.end()
    assert "sk-" not in out + err


# A browser. Pages on other ports are of the same site, so SameSite keeps none of them away.


SIGN_IN = """async (url) => {
    const body = JSON.stringify({ key: "anns-key" });
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(url + "/v1/session", { method: "POST", headers, body, credentials: "include" });
    return answer.json();
}"""
LISTEN = """(url) => new Promise((resolve) => {
    const source = new EventSource(url + "/v1/chat/stream?message=hi", { withCredentials: true });
    let text = "";
    source.addEventListener("token", (event) => text += JSON.parse(event.data).text);
    source.addEventListener("done", () => { source.close(); resolve(text); });
    source.onerror = () => { source.close(); resolve("error"); };
})"""
USER = """(url) => fetch(url + "/v1/session", { credentials: "include" }).then((a) => a.json(), () => "rejected")"""
POST = """(url) => fetch(url + "/v1/chat/stream", {
    method: "POST", body: '{"message": "hi"}', headers: { "Content-Type": "text/plain" }, credentials: "include",
}).then(() => "answered", () => "rejected")"""
IMAGE = """(url) => new Promise((resolve) => {
    const image = new Image();
    image.onload = image.onerror = () => resolve("requested");
    image.src = url + "/v1/chat/stream?message=hi";
})"""


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser.new_page()
        browser.close()


@contextmanager
def other_page() -> Iterator[str]:
    """The origin of a page of another server."""

    async def hello(request: Request) -> HTMLResponse:
        return HTMLResponse("<title>Elsewhere</title>")

    with served(Starlette(routes=[Route("/", hello)])) as server:
        yield f"http://localhost:{server.port}"


@pytest.mark.chromium
@NEEDS_CHROMIUM
def test_listed_pages_sign_in_and_use_the_session_and_others_cannot(page: Page) -> None:
    with other_page() as friend, other_page() as foe, brain_served(KEYS="anns-key:ann", ORIGINS=friend) as server:
        server.play(model := Player(["Hello."]))
        url = f"http://localhost:{server.port}"
        page.goto(friend)
        assert page.evaluate(USER, url)["error"]["code"] == "unauthorized"
        assert page.evaluate(SIGN_IN, url) == {"user": "ann"}
        assert page.evaluate(USER, url) == {"user": "ann"}
        assert page.evaluate(LISTEN, url) == "Hello."
        assert page.evaluate("document.cookie") == ""
        for elsewhere in (foe, foe.replace("localhost", "127.0.0.1")):
            page.goto(elsewhere)
            assert page.evaluate(USER, url) == "rejected"
            assert page.evaluate(LISTEN, url) == "error"
            assert page.evaluate(IMAGE, url) == "requested"
            assert page.evaluate(POST, url) == "rejected"
            page.goto(f"{url}/v1/chat/stream?message=hi")
            assert "forbidden_origin" in page.content()
        assert len(model.requests) == 1
        page.goto(url)
        assert page.evaluate(LISTEN, "") == "Hello."
