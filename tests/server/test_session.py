"""Signing in: tokens by tables of moments, the route on a real port, and a browser that keeps the cookie."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Page, sync_playwright
from serving import Player, Process, Server, brain_served, problem, served, settings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from brain import Registry, mount
from brain.server.auth import SESSION_SECONDS, KeyStore, parse_token

NOW = 1_800_000_000.5
ID, SEAL = "A" * 16, "A" * 43
KEYS = (("first-key", "ann"), ("second-key", "ann"), ("kéy", "bob"))

CHROMIUM = shutil.which("chromium")
CHROMIUM_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


# Tokens


def user_by(token: str, keys: tuple[tuple[str, str], ...] = KEYS, now: float = NOW) -> str | None:
    session = parse_token(token, now)
    return None if session is None else KeyStore(keys).verify(session)


def token_of(key: str, user: str = "ann") -> str:
    opened = KeyStore(KEYS).open_session(key.encode(), NOW)
    assert opened is not None
    assert opened[0] == user
    return opened[1]


def test_a_session_is_its_keys_users_in_every_process_that_has_the_key() -> None:
    assert user_by(token_of("first-key")) == "ann"
    assert user_by(token_of("kéy", "bob")) == "bob"
    assert user_by(token_of("first-key"), (("other", "eve"), ("first-key", "ann"))) == "ann"


def test_a_key_that_is_taken_away_or_given_to_another_ends_its_sessions() -> None:
    assert user_by(token_of("first-key"), KEYS[1:]) is None
    assert user_by(token_of("first-key"), (("first-key", "eve"), *KEYS[1:])) is None
    assert user_by(token_of("second-key"), KEYS[1:]) == "ann"


def test_a_session_lasts_thirty_days() -> None:
    token = token_of("first-key")
    assert SESSION_SECONDS == 2_592_000
    assert user_by(token, now=NOW + SESSION_SECONDS - 1) == "ann"
    assert user_by(token, now=NOW + SESSION_SECONDS) is None


def test_no_character_of_a_token_can_be_changed() -> None:
    token = token_of("first-key")
    for n, character in enumerate(token):
        for other in "0A-":
            if other != character:
                changed = token[:n] + other + token[n + 1 :]
                assert user_by(changed) is None, changed


@pytest.mark.parametrize(
    "token", ["", ".", "..", "1802592000", f"1802592000.{'A' * 43}", f"x.{ID}.{SEAL}", f"١٨٠٢٥٩٢٠٠٠.{ID}.{SEAL}",
              f"{'9' * 13}.{ID}.{SEAL}", f"1802592000.{ID}.{SEAL}A", f"1802592000.{ID}A.{SEAL}",
              f"1802592000.{ID}.{SEAL}\n", f"1802592000.{ID}.{'=' * 43}", f"1802592000.{ID}", "a" * 100_000],
)  # fmt: skip
def test_what_is_no_token(token: str) -> None:
    assert parse_token(token, NOW) is None


@pytest.mark.parametrize(
    "key", [b"", b"first-ke", b"first-key ", b"FIRST-KEY", b"ann", b"\xff", b"\xed\xa0\x80", b"k" * 99]
)
def test_what_is_no_key(key: bytes) -> None:
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
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client


def test_a_key_is_given_once_and_the_cookie_does_the_rest(client: httpx.Client) -> None:
    assert problem(client.get("/v1/session")) == (401, "unauthorized", "authorization")
    signed_in = client.post("/v1/session", json={"key": "anns-key"})
    assert (signed_in.status_code, signed_in.json()) == (200, {"user": "ann"})
    assert "anns-key" not in signed_in.headers["set-cookie"]
    assert client.get("/v1/session").json() == {"user": "ann"}
    assert client.get("/v1/specialists").status_code == 200
    assert "event: done" in client.get("/v1/chat/stream?message=hi").text
    assert "event: done" in client.post("/v1/chat/stream", json={"message": "hi"}).text
    signed_out = client.delete("/v1/session")
    assert (signed_out.status_code, signed_out.content) == (204, b"")
    assert client.get("/v1/session").status_code == 401
    assert client.delete("/v1/session").status_code == 204


def test_the_cookie_is_for_the_server_alone(client: httpx.Client) -> None:
    said = client.post("/v1/session", json={"key": "anns-key"}).headers["set-cookie"]
    token, _, attributes = said.partition("; ")
    assert re.fullmatch(r"brain_session=[0-9]{10}\.[\w-]{16}\.[\w-]{43}", token)
    assert attributes == "Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict"
    away = client.delete("/v1/session").headers["set-cookie"]
    assert away == "brain_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ({}, False),
        ({"x-forwarded-proto": "https"}, True),
        ({"host": "chat.example", "origin": "https://chat.example"}, True),
        ({"host": "chat.example:443", "origin": "https://chat.example"}, True),
        ({"host": "chat.example", "origin": "http://chat.example"}, False),
    ],
)
def test_by_https_the_cookie_comes_back_by_https_alone(
    client: httpx.Client, headers: dict[str, str], secure: bool
) -> None:
    said = client.post("/v1/session", json={"key": "anns-key"}, headers=headers).headers["set-cookie"]
    assert ("Secure" in said.split("; ")) == secure


def test_by_https_no_other_subdomain_can_set_the_cookie(client: httpx.Client) -> None:
    by_https = {"host": "chat.example", "origin": "https://chat.example"}
    said = client.post("/v1/session", json={"key": "anns-key"}, headers=by_https).headers["set-cookie"]
    assert re.fullmatch(
        r"__Host-brain_session=[\w-]+\.[\w-]+\.[\w-]+; Path=/; Max-Age=2592000; HttpOnly; SameSite=Strict; Secure",
        said,
    )
    own, bobs = said.partition(";")[0], cookie(client, "bobs-key")
    for sent in (own, f"{bobs}; {own}", f"{own}; {bobs}", own.removeprefix("__Host-")):
        assert client.get("/v1/session", headers={"cookie": sent}).json() == {"user": "ann"}, sent
    assert client.delete("/v1/session", headers=by_https).headers.get_list("set-cookie") == [
        f"{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure"
        for name in ("__Host-brain_session", "brain_session")
    ]


def test_a_wrong_key_is_told_so(client: httpx.Client) -> None:
    not_known, not_sent = "This key is not known here.", "Send your key: Authorization: Bearer KEY."
    for authorization, message in (("Bearer wrong", not_known), ("Bearer", not_sent), ("Basic YTpi", not_sent)):
        answer = client.get("/v1/session", headers={"authorization": authorization})
        assert answer.json()["error"] == {"code": "unauthorized", "message": message, "field": "authorization"}
    answer = client.post("/v1/session", json={"key": "wrong"})
    assert answer.json()["error"] == {"code": "unauthorized", "message": not_known, "field": "key"}
    stale = client.get("/v1/session", headers={"cookie": f"brain_session=9999999999.{ID}.{SEAL}"})
    assert stale.json()["error"]["message"] == not_sent


def cookie(client: httpx.Client, key: str = "anns-key") -> str:
    return client.post("/v1/session", json={"key": key}).headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [("Bearer bobs-key", "bob"), ("Bearer wrong", None), ("Bearer", None), ("Basic YTpi", "ann"), ("", "ann")],
)
def test_a_bearer_wins_over_the_cookie(server: Server, client: httpx.Client, authorization: str, expected: str) -> None:
    headers = {"authorization": authorization, "cookie": cookie(client)}
    answer = httpx.get(f"{server.url}/v1/session", headers=headers, trust_env=False)
    assert answer.json().get("user") == expected


def test_cookies_of_others_stand_beside_it(server: Server, client: httpx.Client) -> None:
    own = cookie(client, "kéy")
    for sent in (f"a=b; {own}; c", f"xbrain_session=no;{own}", f"{own}; brain_session=stale", f'=; ;"{own}"; {own}'):
        answer = httpx.get(f"{server.url}/v1/session", headers={"cookie": sent}, trust_env=False)
        assert answer.json() == {"user": "bob"}, sent
    for sent in (f"brain_session=stale; {own}", own.upper(), own[:-1], "brain_session", "=", ";" * 10_000):
        answer = httpx.get(f"{server.url}/v1/session", headers={"cookie": sent}, trust_env=False)
        assert answer.status_code == 401, sent


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b'{"key": "anns-key"}', "text/plain", (415, "unsupported_media_type", "content-type")),
        (b"key=anns-key", "application/x-www-form-urlencoded", (415, "unsupported_media_type", "content-type")),
        (b"key=anns-key", "multipart/form-data; boundary=b", (415, "unsupported_media_type", "content-type")),
        (b"", "application/json", (400, "bad_request", "key")),
        (b"{", "application/json", (400, "bad_request", "key")),
        (b"{}", "application/json", (400, "bad_request", "key")),
        (b'"anns-key"', "application/json", (400, "bad_request", "key")),
        (b'{"key": ["anns-key"]}', "application/json", (400, "bad_request", "key")),
        (b'{"key": "\xff"}', "application/json", (400, "bad_request", "key")),
        (b'{"key": "anns-key", "user": "bob"}', "application/json", (400, "bad_request", "key")),
        (b"[" * 10_000, "application/json", (400, "bad_request", "key")),
        (b'{"key": ""}', "application/json", (401, "unauthorized", "key")),
        (b'{"key": "\\ud800"}', "application/json", (400, "bad_request", "key")),
        (b'{"key": "\\udc00"}', "application/json", (400, "bad_request", "key")),
        (b'{"key": "ANNS-KEY"}', "application/json", (401, "unauthorized", "key")),
        (b'{"key": "' + b"a" * 16384 + b'"}', "application/json", (413, "too_large", None)),
    ],
)
def test_sign_ins_that_are_problem(
    client: httpx.Client, body: bytes, kind: str, expected: tuple[int, str, str | None]
) -> None:
    answer = client.post("/v1/session", content=body, headers={"content-type": kind})
    assert problem(answer) == expected
    assert "set-cookie" not in answer.headers
    assert "anns-key" not in answer.text.casefold()


def test_a_session_that_ended_is_no_wrong_key_and_a_forged_one_is() -> None:
    with brain_served(KEYS="anns-key:ann") as server:

        def tried(token: str) -> int:
            sent = {"cookie": f"brain_session={token}"}
            return httpx.get(f"{server.url}/v1/session", headers=sent, trust_env=False).status_code

        assert {tried(f"1700000000.{ID}.{SEAL}") for _ in range(30)} == {401}
        assert [tried(f"9999999999.{ID}.{SEAL}") for _ in range(21)] == [401] * 20 + [429]
        assert tried(cookie_of(server)) == 200


def cookie_of(server: Server) -> str:
    answer = httpx.post(f"{server.url}/v1/session", json={"key": "anns-key"}, trust_env=False)
    return answer.cookies["brain_session"]


def test_without_keys_everybody_is_the_local_user() -> None:
    with brain_served() as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        assert client.get("/v1/session").json() == {"user": "local"}
        answer = client.post("/v1/session", json={"key": "whatever"})
        assert (answer.status_code, answer.json()) == (200, {"user": "local"})
        assert "set-cookie" not in answer.headers
        assert client.delete("/v1/session").status_code == 204


def test_where_brain_is_mounted_the_cookie_is_for_that_place() -> None:
    outer = Starlette()
    mount(outer, "/brain", settings(KEYS="anns-key:ann"), Registry())
    with served(outer) as server, httpx.Client(base_url=f"{server.url}/brain", trust_env=False) as client:
        answer = client.post("/v1/session", json={"key": "anns-key"})
        assert "Path=/brain;" in answer.headers["set-cookie"]
        assert client.get("/v1/session").json() == {"user": "ann"}
        assert client.delete("/v1/session").status_code == 204
        assert client.get("/v1/session").status_code == 401


def test_no_key_is_ever_said() -> None:
    env = {"BRAIN_KEYS": "sk-secret:ann", "BRAIN_MODEL": "builtin", "BRAIN_PORT": "0"}
    with Process("serve", env=env) as process:
        url = process.url()
        for key in ("sk-secret", "sk-wrong"):
            httpx.post(f"{url}/v1/session", json={"key": key}, trust_env=False)
            for path in ("/v1/session", "/readyz", "/healthz", "/metrics", "/v1/chat/stream?message=hi"):
                answer = httpx.get(url + path, headers={"authorization": f"Bearer {key}"}, trust_env=False)
                assert "sk-" not in answer.text + str(answer.headers)
        process.process.terminate()
        _, out, err = process.end()
    assert "Short key: one of ann has fewer than 16 characters and can be guessed" in err
    assert "sk-" not in out + err


# A browser: pages of other ports are of the same site, so its cookies alone would keep nobody away


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
WHO = """(url) => fetch(url + "/v1/session", { credentials: "include" }).then((a) => a.json(), () => "kept away")"""
POST = """(url) => fetch(url + "/v1/chat/stream", {
    method: "POST", body: '{"message": "hi"}', headers: { "Content-Type": "text/plain" }, credentials: "include",
}).then(() => "answered", () => "kept away")"""
LOOK = """(url) => new Promise((resolve) => {
    const image = new Image();
    image.onload = image.onerror = () => resolve("asked");
    image.src = url + "/v1/chat/stream?message=hi";
})"""


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser.new_page()
        browser.close()


@contextmanager
def some_page() -> Iterator[str]:
    """The origin of a page that somebody else serves."""

    async def hello(request: Request) -> HTMLResponse:
        return HTMLResponse("<title>Elsewhere</title>")

    with served(Starlette(routes=[Route("/", hello)])) as server:
        yield f"http://localhost:{server.port}"


@pytest.mark.chromium
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_pages_that_are_listed_use_the_session_and_others_cannot(page: Page) -> None:
    with some_page() as friend, some_page() as foe, brain_served(KEYS="anns-key:ann", ORIGINS=friend) as server:
        model = Player(["Hello."])
        server.play(model)
        url = f"http://localhost:{server.port}"
        page.goto(url)
        assert page.evaluate(SIGN_IN, url) == {"user": "ann"}
        page.goto(friend)
        assert page.evaluate(WHO, url) == {"user": "ann"}
        assert page.evaluate(LISTEN, url) == "Hello."
        for elsewhere in (foe, foe.replace("localhost", "127.0.0.1")):
            page.goto(elsewhere)
            assert page.evaluate(WHO, url) == "kept away"
            assert page.evaluate(LISTEN, url) == "error"
            assert page.evaluate(LOOK, url) == "asked"
            assert page.evaluate(POST, url) == "kept away"
            page.goto(f"{url}/v1/chat/stream?message=hi")
            assert "forbidden_origin" in page.content()
        assert len(model.asked) == 1
        page.goto(url)
        assert page.evaluate(LISTEN, "") == "Hello."


@pytest.mark.chromium
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_listed_page_may_sign_in_from_where_it_is(page: Page) -> None:
    with some_page() as friend, brain_served(KEYS="anns-key:ann", ORIGINS=friend) as server:
        server.play(Player(["Hello."]))
        url = f"http://localhost:{server.port}"
        page.goto(friend)
        assert page.evaluate(WHO, url) == {
            "error": {
                "code": "unauthorized",
                "message": "Send your key: Authorization: Bearer KEY.",
                "field": "authorization",
            }
        }
        assert page.evaluate(SIGN_IN, url) == {"user": "ann"}
        assert page.evaluate(LISTEN, url) == "Hello."
        assert page.evaluate("document.cookie") == ""
