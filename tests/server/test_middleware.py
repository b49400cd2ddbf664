"""Access on a real port: hosts, origins and keys; and the headers of every response."""

import json
import random
import socket
from collections.abc import Iterator

import httpx
import pytest
from brain_servers import Server, brain_served, client_of, post, problem
from limits import WAIT_SECONDS
from starlette.routing import Route
from turn_helpers import Player, registry_of

from brain import specialist
from brain.server.app import create_app
from brain.server.responses import ApiResponse
from brain.settings import read

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-dns-prefetch-control": "off",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/70.0 Safari/537.36"
BOB = {"authorization": "Bearer bobs-key"}
EVIL = "https://evil.example"
FRIEND = "https://pages.example"
OPEN = ("/", "/page/icon.svg", "/healthz", "/readyz")


@specialist
async def wiki() -> str:
    """An encyclopedia."""
    return "It is so."


@specialist
async def web() -> str:
    """The web."""
    return "It may be so."


@pytest.fixture(scope="module")
def local() -> Iterator[Server]:
    with brain_served(registry_of(wiki, web), HOSTS="chat.example,fe80::1%eth0,dot.example.") as server:
        server.play(Player(["Hello."]))
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    users = json.dumps({"bob": {"specialists": ["wiki"]}, "eve": {"specialists": []}})
    keys = "kéy:ann, first key:ann, voilà:ann, bobs-key:bob, eves-key:eve"
    with brain_served(registry_of(wiki, web), KEYS=keys, USERS=users, ORIGINS=f"{FRIEND},tauri://localhost") as server:
        server.play(Player(["Hello."]))
        yield server


def status(server: Server, request: bytes) -> int:
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as connection:
        connection.sendall(request)
        return int(connection.recv(65536).split(b" ")[1])


def ask(server: Server, path: str = "/v1/specialists", method: str = "GET", **headers: str) -> httpx.Response:
    sent = {"user-agent": "program", **{name.replace("_", "-"): value for name, value in headers.items()}}
    with client_of(server) as client:
        return client.request(method, path, headers=sent)


def routes(server: Server) -> list[tuple[str, str]]:
    """Every method and path, with values for the parameters."""
    found = []
    for route in server.app.routes:
        assert isinstance(route, Route)
        path = route.path.replace("{id}", "t0123456789abcdef").replace("{call_id}", "c1").replace("{name:path}", "x")
        path = path.replace("{number}", "1").replace("{file:path}", "icon.svg")
        assert "{" not in path, "replace this parameter"
        found += [(method, path) for method in sorted(route.methods or ())]
    return found


# Hosts and origins


HOSTS = [
    *("localhost:8000", "LocalHost", "localhost.:8000", "dot.example", "[0:0:0:0:0:0:0:1]:8000", "[FE80::1]:8000"),
    *("", ".", "localhost..", "localhost:", "localhost:123456", "localhost%00.evil.example", "localhost, evil.example"),
    *("evil.example:8000", "127.0.0.1.evil.example", "localhost:8000@evil.example", "::1", "[:::::]", "[::1%25lo]"),
    *("\xff\xfe", "localhost\r\nHost: evil.example", "evil.example\r\nX-Forwarded-Host: localhost"),
]


@pytest.mark.parametrize("host", HOSTS)
def test_the_first_six_hosts_are_known(local: Server, host: str) -> None:
    request = f"GET /v1/specialists HTTP/1.1\r\nHost: {host}\r\n\r\n"
    assert status(local, request.encode("latin-1")) == (200 if host in HOSTS[:6] else 403)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"GET /v1/specialists HTTP/1.0", 403),
        (b"GET http://localhost/v1/specialists HTTP/1.1\r\nHost: localhost", 200),
        (b"GET http://localhost/v1/specialists HTTP/1.1\r\nHost: evil.example", 403),
        (b"GET /healthz/../v1/specialists HTTP/1.1\r\nHost: evil.example", 403),
        (b"GET /healthz%2f..%2fv1/specialists HTTP/1.1\r\nHost: evil.example", 403),
        (b"GET //v1/specialists HTTP/1.1\r\nHost: evil.example", 403),
        (b"OPTIONS * HTTP/1.1\r\nHost: evil.example", 403),
        (b"GET /%68ealthz HTTP/1.1\r\nHost: evil.example", 200),
        (b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0", 405),
    ],
)
def test_request_lines(local: Server, line: bytes, expected: int) -> None:
    assert status(local, line + b"\r\n\r\n") == expected


def test_every_route_checks_host_and_origin(local: Server) -> None:
    for method, path in routes(local):
        for headers in ({"host": "evil.example"}, {"origin": EVIL}, {"referer": f"{EVIL}/page"}):
            expected = path not in OPEN
            assert (ask(local, path, method, **headers).status_code == 403) == expected, (method, path, headers)


def origin(origin: str, host: str = "localhost:8000", **more: str) -> dict[str, str]:
    return {"origin": origin, "host": host, **more}


SAME_ORIGIN = [
    {},
    origin("http://localhost:8000"),
    origin("https://chat.example", "chat.example"),
    origin("https://chat.example", "chat.example:443"),
    origin("http://chat.example", "chat.example:80"),
    origin("HTTPS://Chat.Example", "chat.example"),
    {"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"},
    {"sec_fetch_site": "none", "sec_fetch_mode": "navigate", "user_agent": BROWSER},
    {"referer": "http://localhost:8000/page?x=http://evil.example", "host": "localhost:8000"},
]
CROSS_ORIGIN = [
    *(origin(one) for one in ("http://localhost:8001", "http://localhost", "null", "")),
    origin("http://chat.example", "chat.example:443"),
    origin(EVIL, sec_fetch_site="same-origin"),
    origin(EVIL, referer="http://localhost:8000/"),
    *({"sec_fetch_site": one} for one in ("same-site", "cross-site", "")),
    *({"referer": one, "host": "localhost:8000"} for one in ("http://localhost:8000.evil.example/", "about:blank")),
    {"referer": "http://localhost:8000@evil.example/", "host": "localhost:8000"},
]


@pytest.mark.parametrize("headers", [*SAME_ORIGIN, *CROSS_ORIGIN])
def test_origins(local: Server, headers: dict[str, str]) -> None:
    assert ask(local, **headers).status_code == (403 if headers in CROSS_ORIGIN else 200)


@pytest.mark.parametrize(
    ("headers", "starts"),
    [
        ({}, True),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors", "user_agent": BROWSER}, True),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "same-origin", "user_agent": BROWSER}, True),
        ({"host": "chat.example", "referer": "http://chat.example/page", "user_agent": BROWSER}, True),
        ({"authorization": "Bearer anything", "user_agent": BROWSER}, True),
        ({"sec_fetch_site": "none", "sec_fetch_mode": "navigate", "user_agent": BROWSER}, False),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "no-cors", "user_agent": BROWSER}, False),
        ({"host": "chat.example", "user_agent": BROWSER}, False),
    ],
)
def test_no_link_and_no_image_starts_a_turn(local: Server, headers: dict[str, str], starts: bool) -> None:
    answer = ask(local, "/v1/chat/stream?message=hi", **headers)
    assert ("event: done" in answer.text) == starts
    assert starts or problem(answer) == (403, "forbidden_origin", "origin")


# Keys


@pytest.mark.parametrize("authorization", ["bearer bobs-key", "BEARER  bobs-key", "Bearer first key", "Bearer voilà"])
@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
def test_keys_in_both_charsets_that_clients_use(guarded: Server, authorization: str, charset: str) -> None:
    key = authorization.encode(charset)
    request = b"GET /v1/specialists HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b \r\n\r\n" % key
    assert status(guarded, request) == 200


@pytest.mark.parametrize("authorization", ["", "Bearer", "bobs-key", "Basic bobs-key", "Bearer: bobs-key"])
def test_malformed_authorization(guarded: Server, authorization: str) -> None:
    answer = ask(guarded, authorization=authorization)
    assert problem(answer) == (401, "unauthorized", "authorization")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_strange_authorization_is_never_a_failure() -> None:
    chance = random.Random(5)
    heads = [b"", b"Bearer ", b"bearer\t", b"Basic ", b"Bearer \xff", b"Digest username="]
    with brain_served(KEYS="a-key:ann") as server:
        for _ in range(100):
            value = chance.choice(heads) + chance.randbytes(chance.randrange(60)).translate(None, b"\r\n\0")
            request = b"GET /v1/specialists HTTP/1.1\r\nHost: localhost\r\nAuthorization: %b\r\n\r\n" % value
            assert status(server, request) in (400, 401, 429), value
        assert ask(server, authorization="Bearer a-key").status_code == 200


def test_only_health_the_page_and_signing_in_are_open(guarded: Server) -> None:
    for method, path in routes(guarded):
        is_open = path in OPEN or (path, method) in (("/v1/session", "POST"), ("/v1/session", "DELETE"))
        assert (ask(guarded, path, method).status_code == 401) == (not is_open), (method, path)
    assert ask(guarded, "/nothing").status_code == 401


def test_many_wrong_keys_wait_and_right_keys_never_do() -> None:
    with brain_served(KEYS="a-key:ann") as server, client_of(server) as client:
        wrong = [ask(server, authorization="Bearer wrong") for _ in range(12)]
        wrong += [client.post("/v1/session", json={"key": f"wrong{n}"}) for n in range(9)]
        assert [answer.status_code for answer in wrong] == [401] * 20 + [429]
        assert problem(wrong[-1]) == (429, "rate_limited", None)
        assert 1 <= int(wrong[-1].headers["retry-after"]) <= 60
        assert ask(server, authorization="Bearer a-key").status_code == 200
        assert client.post("/v1/session", json={"key": "a-key"}).status_code == 200
        network = [ask(server, authorization="Bearer wrong", x_forwarded_for=f"2001:db8:1:2:{n}::1") for n in range(21)]
        assert [answer.status_code for answer in network] == [401] * 20 + [429], "a /64 network is one client"
        strange = [
            ask(server, authorization="Bearer wrong", x_forwarded_for=name) for name in ("2001:db8:1:3::1", "::x")
        ]
        assert [answer.status_code for answer in strange] == [401, 401]


# Headers of every response


def preflight(method: str, *headers: str) -> dict[str, str]:
    sent = {"access_control_request_method": method}
    return sent | ({"access_control_request_headers": ", ".join(headers)} if headers else {})


def test_every_response_has_the_safe_headers(guarded: Server) -> None:
    endless = "/v1/tasks/events"
    answers = [ask(guarded, path, method, **BOB) for method, path in routes(guarded) if path != endless]
    answers += [
        ask(guarded, "/nothing", **BOB),
        ask(guarded, "/v1/specialists", "PUT", **BOB),
        ask(guarded),
        ask(guarded, host="evil.example"),
        ask(guarded, "/v1/chat/stream", "OPTIONS", origin=FRIEND, **preflight("POST")),
    ]
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, answer.url
        is_json = answer.headers.get("content-type") == "application/json"
        if is_json or answer.request.url.path in ("/metrics", "/v1/session"):
            assert answer.headers["cache-control"] == "no-store", answer.url
    stream = post(guarded.url, json={"message": "hi"}, headers=BOB)
    assert {name: stream.headers.get(name) for name in HEADERS} == HEADERS
    with client_of(guarded) as client, client.stream("GET", endless, headers=BOB) as events:
        assert {name: events.headers.get(name) for name in HEADERS} == HEADERS


def test_lone_surrogates_in_a_response_are_replaced() -> None:
    assert ApiResponse({"text": "a\ud800b\ud83d\ude00"}).body == '{"text":"a\ufffdb😀"}'.encode()


@pytest.mark.parametrize("origin", [FRIEND, "tauri://localhost"])
def test_a_listed_origin_may_send_any_header_and_reads_responses(guarded: Server, origin: str) -> None:
    names = ("authorization", "content-type", "last-event-id", "x-conversation-id", "x-stainless-os")
    for method in ("GET", "POST", "PATCH", "DELETE"):
        answer = ask(guarded, "/v1/chat/stream", "OPTIONS", origin=origin, **preflight(method, *names))
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, origin)
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert method in answer.headers["access-control-allow-methods"].split(", ")
        assert answer.headers["access-control-allow-headers"] == ", ".join(names)
    for sent, expected in ((BOB, 200), ({}, 401)):
        answer = ask(guarded, origin=origin, **sent)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (expected, origin)
        exposed = answer.headers["access-control-expose-headers"]
        assert exposed == "location, retry-after, x-conversation-id, x-vercel-ai-ui-message-stream"
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", [EVIL, "null", "https://pages.example.evil.example", "http://pages.example"])
def test_other_origins_get_no_preflight(guarded: Server, local: Server, origin: str) -> None:
    answer = ask(guarded, "/v1/chat/stream", "OPTIONS", origin=origin, **preflight("POST", "authorization"))
    assert problem(answer) == (403, "forbidden_origin", "origin")
    own = ask(local, "/v1/chat/stream", "OPTIONS", host="localhost:1", origin="http://localhost:1", **preflight("POST"))
    for one in (answer, own):
        assert [name for name in one.headers if name.startswith("access-control")] == []


def test_no_route_reads_more_than_its_limit(local: Server) -> None:
    def endless(pieces: int) -> Iterator[bytes]:
        yield b'{"'
        for _ in range(pieces):
            yield b"a" * 65536

    headers = {"content-type": "application/json"}
    for path in [path for method, path in routes(local) if method == "POST"]:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        expected = 413
        if "/v1/turns/t" in path or path.endswith(("f/cancel", "f/run")):
            expected = 404  # there is no such turn or task
        elif path.endswith("/typing"):
            expected = 204  # it reads no body
        assert status(local, f"{head}Content-Length: 20971521\r\n\r\n".encode()) == expected, path
        if expected == 413:
            with client_of(local) as client:
                answer = client.post(path, content=endless(1 if path == "/v1/session" else 320), headers=headers)
            assert answer.status_code == 413, path


@pytest.mark.anyio
async def test_a_client_may_have_no_address() -> None:
    """As on a Unix socket of another server."""
    transport = httpx.ASGITransport(create_app(read({"BRAIN_KEYS": "k:ann"}), registry_of()), client=None)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/v1/session", headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401
