"""Who may come in, on a real port: Host names, origins, keys, wrong keys, and what every answer says to browsers."""

import json
import random
import socket
from collections.abc import Iterator, Mapping

import httpx
import pytest
from serving import Player, Server, brain_served, post
from starlette.routing import Route

from brain import Registry, specialist
from brain.server.responses import ApiResponse

HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/70.0 Safari/537.36"
BOB = {"authorization": "Bearer bobs-key"}
EVIL = "https://evil.example"


@specialist(name="wiki")
async def wiki() -> str:
    """An encyclopedia."""
    return "It is so."


@specialist(name="web")
async def web() -> str:
    """The web."""
    return "It may be so."


def registry() -> Registry:
    made = Registry()
    made.add(wiki)
    made.add(web)
    return made


@pytest.fixture(scope="module")
def local() -> Iterator[Server]:
    with brain_served(registry(), HOSTS="chat.example,fe80::1%eth0,dot.example.") as server:
        server.play(Player(["Hello."]))
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    users = json.dumps({"bob": {"specialists": ["wiki"]}, "eve": {"specialists": []}})
    keys = "kéy:ann, first key:ann, voilà:ann, bobs-key:bob, eves-key:eve"
    with brain_served(registry(), KEYS=keys, USERS=users, ORIGINS="https://pages.example,tauri://localhost") as server:
        server.play(Player(["Hello."]))
        yield server


def raw(server: Server, request: bytes) -> bytes:
    """What is answered to these bytes, as far as the end of its head."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer and (data := connection.recv(65536)):
            answer += data
    return answer


def status(server: Server, request: bytes) -> int:
    return int(raw(server, request).split(b" ")[1])


def refused(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error.get("field")


def asked(server: Server, path: str = "/v1/specialists", method: str = "GET", **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx.Client(trust_env=False, headers={"user-agent": sent.pop("user-agent", "program")}) as client:
        return client.request(method, server.url + path, headers=sent)


# Host names: a name that somebody else's DNS server lets point here is none of ours


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost:8000", 200),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: LocalHost", 200),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost.:8000", 200),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: dot.example", 200),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: [0:0:0:0:0:0:0:1]:8000", 200),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: [FE80::1]:8000", 200),
        (b"GET /v1/specialists HTTP/1.0\r\nHost: localhost", 200),
        (b"GET http://localhost/v1/specialists HTTP/1.1\r\nHost: localhost", 200),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: evil.example:8000", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: 127.0.0.1.evil.example", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost..", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: .localhost", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: .", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost:", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost:123456", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost:8000@evil.example", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost, evil.example", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost/evil.example", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost%00.evil.example", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: [::1%25lo]", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: [::1", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: [:::::]", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: ::1", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: \xff\xfe", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: evil.example\r\nHost: localhost", 403),
        (b"GET /v1/specialists HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost", 403),
        (b"GET http://localhost/v1/specialists HTTP/1.1\r\nHost: evil.example", 403),
        (b"GET /v1/specialists HTTP/1.1", 403),
        (b"GET /v1/specialists HTTP/1.0", 403),
        (b"GET /healthz/../v1/specialists HTTP/1.1\r\nHost: evil.example", 403),
        (b"GET /healthz%2f..%2fv1/specialists HTTP/1.1\r\nHost: evil.example", 403),
        (b"GET //v1/specialists HTTP/1.1\r\nHost: evil.example", 403),
        (b"OPTIONS * HTTP/1.1\r\nHost: evil.example", 403),
        (b"GET http://localhost HTTP/1.1\r\nHost: localhost", 400),
        (b"GET / HTTP/1.1\r\nHost: evil.example", 200),
        (b"GET /%68ealthz HTTP/1.1\r\nHost: evil.example", 200),
        (b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0", 405),
    ],
)
def test_host_names(local: Server, lines: bytes, expected: int) -> None:
    assert status(local, lines + b"\r\n\r\n") == expected


OPEN = ("/", "/page/icon.svg", "/healthz", "/readyz")


def routes(server: Server) -> list[tuple[str, str]]:
    """Every method and path that is served, with something in the place of ids."""
    found = []
    for route in server.app.routes:
        assert isinstance(route, Route)
        path = route.path.replace("{id}", "t0123456789abcdef").replace("{call_id}", "c1").replace("{name:path}", "x")
        path = path.replace("{number}", "1").replace("{file:path}", "icon.svg")
        assert "{" not in path, "give this id something to stand for it"
        found += [(method, path) for method in sorted(route.methods or methods(route.endpoint))]
    return found


def methods(endpoint: object) -> list[str]:
    """What a class of Starlette's answers."""
    return [method for method in ("DELETE", "GET", "PATCH", "POST") if hasattr(endpoint, method.lower())]


def test_every_route_that_does_something_knows_its_host_and_its_origin(local: Server) -> None:
    doing = [(method, path) for method, path in routes(local) if path not in OPEN]
    assert len(doing) > 5
    for method, path in doing:
        foreign = {"host": "evil.example:8000"}
        for headers in (foreign, {"origin": EVIL}, {"sec_fetch_site": "cross-site"}, {"referer": f"{EVIL}/page"}):
            answer = asked(local, path, method, **headers)
            assert answer.status_code == 403, (method, path, headers)


# Origins: what browsers send with what a page makes them do


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 200),
        ({"origin": "http://localhost:8000", "host": "localhost:8000"}, 200),
        ({"origin": "https://chat.example", "host": "chat.example"}, 200),
        ({"origin": "https://chat.example", "host": "chat.example:443"}, 200),
        ({"origin": "http://chat.example", "host": "chat.example:80"}, 200),
        ({"origin": "HTTPS://Chat.Example", "host": "chat.example"}, 200),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"}, 200),
        ({"sec_fetch_site": "none", "sec_fetch_mode": "navigate", "user_agent": BROWSER}, 200),
        ({"referer": "http://localhost:8000/page?x=http://evil.example", "host": "localhost:8000"}, 200),
        ({"user_agent": BROWSER}, 200),
        ({"origin": "http://chat.example", "host": "chat.example:443"}, 403),
        ({"origin": "http://localhost:8001", "host": "localhost:8000"}, 403),
        ({"origin": "http://localhost", "host": "localhost:8000"}, 403),
        ({"origin": EVIL}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": EVIL, "sec_fetch_site": "same-origin"}, 403),
        ({"origin": EVIL, "referer": "http://localhost:8000/", "host": "localhost:8000"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": ""}, 403),
        ({"referer": "https://evil.example/"}, 403),
        ({"referer": "http://localhost:8000.evil.example/", "host": "localhost:8000"}, 403),
        ({"referer": "http://localhost:8000@evil.example/", "host": "localhost:8000"}, 403),
        ({"referer": "about:blank"}, 403),
        ({"referer": ""}, 403),
    ],
)
def test_origins(local: Server, headers: dict[str, str], expected: int) -> None:
    assert asked(local, **headers).status_code == expected


@pytest.mark.parametrize(
    ("headers", "starts"),
    [
        ({}, True),
        ({"user_agent": "curl/8.0"}, True),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors", "user_agent": BROWSER}, True),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "same-origin", "user_agent": BROWSER}, True),
        ({"host": "chat.example", "referer": "http://chat.example/page", "user_agent": BROWSER}, True),
        ({"authorization": "Bearer anything", "user_agent": BROWSER}, True),
        ({"sec_fetch_site": "none", "sec_fetch_mode": "navigate", "user_agent": BROWSER}, False),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "navigate", "user_agent": BROWSER}, False),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "no-cors", "user_agent": BROWSER}, False),
        ({"host": "chat.example", "user_agent": BROWSER}, False),
    ],
)
def test_no_link_and_no_image_starts_a_turn(local: Server, headers: dict[str, str], starts: bool) -> None:
    answer = asked(local, "/v1/chat/stream?message=hi", **headers)
    assert ("event: done" in answer.text) == starts
    if not starts:
        assert refused(answer) == (403, "forbidden_origin", "origin")


# Keys


@pytest.mark.parametrize(
    "authorization",
    ["Bearer bobs-key", "bearer bobs-key", "BEARER  bobs-key", "Bearer first key", "Bearer kéy", "Bearer voilà"],
)
@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
def test_keys_of_any_letters_in_both_charsets_that_clients_use(
    guarded: Server, authorization: str, charset: str
) -> None:
    sent = authorization.encode(charset)
    request = b"GET /v1/specialists HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + sent + b" \r\n\r\n"
    assert status(guarded, request) == 200


@pytest.mark.parametrize("authorization", ["", "Bearer", "bobs-key", "Basic bobs-key", "Bearer: bobs-key"])
def test_what_is_no_key_is_told_how_to_send_one(guarded: Server, authorization: str) -> None:
    answer = asked(guarded, authorization=authorization)
    assert refused(answer) == (401, "unauthorized", "authorization")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/chat/completions",
            {
                "error": {
                    "message": "Send your key: Authorization: Bearer KEY.",
                    "type": "authentication_error",
                    "param": "authorization",
                    "code": "invalid_api_key",
                }
            },
        ),
        ("/api/chat", {"error": "Send your key: Authorization: Bearer KEY."}),
        (
            "/ag-ui/run",
            {"type": "RUN_ERROR", "message": "Send your key: Authorization: Bearer KEY.", "code": "unauthorized"},
        ),
    ],
)
def test_each_protocol_hears_it_in_its_own_form(guarded: Server, path: str, body: dict[str, object]) -> None:
    answer = asked(guarded, path, "POST")
    assert (answer.status_code, answer.json()) == (401, body)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_no_authorization_is_ever_too_strange() -> None:
    strange = random.Random(5)
    heads = [b"", b"Bearer ", b"bearer\t", b"Basic ", b"Bearer \xff", b"Digest username="]
    with brain_served(KEYS="a-key:ann") as server:
        for _ in range(300):
            letters = bytes(strange.randrange(256) for _ in range(strange.randrange(60)))
            value = strange.choice(heads) + letters.translate(None, b"\r\n\0")
            request = b"GET /v1/specialists HTTP/1.1\r\nHost: localhost\r\nAuthorization: " + value + b"\r\n\r\n"
            assert status(server, request) in (400, 401, 429), value
        assert asked(server, authorization="Bearer a-key").status_code == 200
        assert server.left() == []


def test_a_user_has_several_keys_and_sees_what_is_allowed_to_him(guarded: Server) -> None:
    def listed(key: str) -> list[str]:
        answer = asked(guarded, authorization=f"Bearer {key}")
        return [one["name"] for one in answer.json()["specialists"]]

    assert listed("first key") == ["web", "wiki"]
    assert (listed("bobs-key"), listed("eves-key")) == (["wiki"], [])


def test_only_health_and_the_page_are_open(guarded: Server) -> None:
    for method, path in routes(guarded):
        is_open = path in OPEN or (path, method) in (
            ("/v1/session", "POST"),
            ("/v1/session", "DELETE"),
        )
        assert (asked(guarded, path, method).status_code == 401) == (not is_open), (method, path)
    assert asked(guarded, "/metrics", **BOB).status_code != 401
    assert asked(guarded, "/nothing").status_code == 401


def test_many_wrong_keys_wait_and_right_ones_never_do() -> None:
    with brain_served(KEYS="a-key:ann") as server:
        wrong = [asked(server, authorization="Bearer wrong") for _ in range(12)]
        wrong += [httpx.post(f"{server.url}/v1/session", json={"key": f"wrong{n}"}, trust_env=False) for n in range(9)]
        assert [answer.status_code for answer in wrong] == [401] * 20 + [429]
        assert refused(wrong[-1]) == (429, "rate_limited", None)
        assert 1 <= int(wrong[-1].headers["retry-after"]) <= 60
        assert asked(server, authorization="Bearer wrong").status_code == 429
        assert asked(server, authorization="Bearer a-key").status_code == 200
        assert httpx.post(f"{server.url}/v1/session", json={"key": "a-key"}, trust_env=False).status_code == 200
        assert asked(server).status_code == 401
        behind_a_proxy = asked(server, authorization="Bearer wrong", x_forwarded_for="203.0.113.9")
        assert behind_a_proxy.status_code == 401


def test_one_network_is_one_caller() -> None:
    with brain_served(KEYS="a-key:ann") as server:
        for n in range(21):
            answer = asked(server, authorization="Bearer wrong", x_forwarded_for=f"2001:db8:1:2:{n}::1")
        assert answer.status_code == 429
        another = asked(server, authorization="Bearer wrong", x_forwarded_for="2001:db8:1:3::1")
        assert another.status_code == 401


# What every answer says


def test_every_answer_tells_browsers_to_be_careful(guarded: Server) -> None:
    answers = [asked(guarded, path, method, **BOB) for method, path in routes(guarded)]
    answers += [
        asked(guarded, "/nothing", **BOB),
        asked(guarded, "/v1/specialists", "PUT", **BOB),
        asked(guarded, "/v1/specialists/", **BOB),
        asked(guarded),
        asked(guarded, host="evil.example"),
        asked(guarded, origin=EVIL),
        asked(guarded, "/v1/chat/stream?message=hi", **BOB),
        asked(guarded, "/v1/chat/stream", "OPTIONS", origin="https://pages.example", **preflight("POST")),
    ]
    for answer in answers:
        said = {name: answer.headers.get(name) for name in HEADERS}
        assert said == HEADERS, (answer.request.method, answer.url, answer.status_code)
        if answer.headers.get("content-type") == "application/json":
            assert answer.headers["cache-control"] == "no-store", answer.url


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/metrics", 200), ("DELETE", "/v1/session", 204), ("GET", "/v1/session", 200)],
)
def test_no_cache_keeps_what_is_the_operators_or_a_users(guarded: Server, method: str, path: str, status: int) -> None:
    answer = asked(guarded, path, method, **BOB)
    assert (answer.status_code, answer.headers["cache-control"]) == (status, "no-store")


def test_a_stream_says_so_too_and_stays_a_stream(guarded: Server) -> None:
    answer = post(guarded.url, json={"message": "hi"}, headers=BOB)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.names[-1] == "done"


def test_halves_of_characters_in_an_answer_are_no_failure() -> None:
    assert ApiResponse({"text": "a\ud800b\ud83d\ude00"}).body == '{"text":"a\ufffdb😀"}'.encode()


# Origins that are listed


def preflight(method: str, *headers: str) -> dict[str, str]:
    asks = {"access_control_request_method": method}
    return asks | ({"access_control_request_headers": ", ".join(headers)} if headers else {})


@pytest.mark.parametrize("origin", ["https://pages.example", "tauri://localhost"])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_a_listed_origin_may_ask_for_anything_before_it_has_a_key(guarded: Server, origin: str, method: str) -> None:
    wanted = ("authorization", "content-type", "last-event-id", "x-conversation-id", "x-stainless-os", "openai-beta")
    answer = asked(guarded, "/v1/chat/stream", "OPTIONS", origin=origin, **preflight(method, *wanted))
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert method in answer.headers["access-control-allow-methods"].split(", ")
    assert answer.headers["access-control-allow-headers"] == ", ".join(wanted)
    assert "Origin" in answer.headers["vary"]


def test_a_listed_origin_reads_answers_refusals_and_their_headers(guarded: Server) -> None:
    for sent in ({"authorization": "Bearer bobs-key"}, {}):
        answer = asked(guarded, origin="https://pages.example", **sent)
        assert answer.status_code == (200 if sent else 401)
        assert answer.headers["access-control-allow-origin"] == "https://pages.example"
        exposed = answer.headers["access-control-expose-headers"]
        assert exposed == "location, retry-after, x-conversation-id, x-vercel-ai-ui-message-stream"
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", [EVIL, "null", "https://pages.example.evil.example", "http://pages.example"])
def test_other_origins_get_no_preflight(guarded: Server, origin: str) -> None:
    answer = asked(guarded, "/v1/chat/stream", "OPTIONS", origin=origin, **preflight("POST", "authorization"))
    assert refused(answer) == (403, "forbidden_origin", "origin")
    assert [name for name in answer.headers if name.startswith("access-control")] == []


def test_without_origins_there_is_no_cors(local: Server) -> None:
    own = {"host": "localhost:8000", "origin": "http://localhost:8000"}
    for answer in (asked(local, **own), asked(local, "/v1/chat/stream", "OPTIONS", **own, **preflight("POST"))):
        assert [name for name in answer.headers if name.startswith("access-control")] == []


# Bodies


def test_no_route_reads_more_than_it_may(local: Server) -> None:
    posts = [path for method, path in routes(local) if method == "POST"]
    assert "/v1/chat/stream" in posts
    for path in posts:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        announced = status(local, f"{head}Content-Length: 20971521\r\n\r\n".encode())
        assert announced in ((404,) if "/t0123456789abcdef/" in path else (413,)), path


def test_no_route_reads_on_when_more_comes_than_may(local: Server) -> None:
    def endless(most: int) -> Iterator[bytes]:
        yield b'{"'
        for _ in range(most):
            yield b"a" * 65536

    for path in [path for method, path in routes(local) if method == "POST" and "/t0123456789abcdef/" not in path]:
        most = 1 if path == "/v1/session" else 320
        headers: Mapping[str, str] = {"content-type": "application/json"}
        answer = httpx.post(local.url + path, content=endless(most), headers=headers, trust_env=False, timeout=20)
        assert answer.status_code == 413, path
