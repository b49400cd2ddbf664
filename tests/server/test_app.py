"""The application on a real port: what a stream looks like, what is rejected and how, and Brain inside another app."""

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playing import prose, registry_of
from serving import (
    Player,
    Server,
    brain_served,
    client_of,
    plain,
    post,
    problem,
    script,
    served,
    settings,
    streaming,
)
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from brain import Context, Registry, Result, mount, specialist

MIB = 1024 * 1024
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@specialist(examples=["weather in Bern"], timeout=3)
async def weather(city: str) -> str:
    """Weather for a city."""
    return f"Sunny in {city}."


@specialist(read_only=True, activates_on=["text"])
async def length(*, context: Context) -> Result:
    """Counts the bytes of the files."""
    return Result(", ".join(f"{a.id} {a.name} {a.type} {len(a.data)}" for a in context.attachments))


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with brain_served(registry_of(weather, length)) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.play(Player(["Hello."], name="builtin"))
    return running


# Streams


def test_headers_keep_proxies_from_buffering_the_stream(server: Server) -> None:
    answer = post(server.url, json={"message": "hi"}, headers={"accept-encoding": "gzip, br"})
    assert answer.status == 200
    assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert not {"content-encoding", "content-length"} & set(answer.headers)


def test_a_turn_with_a_call_byte_for_byte(tmp_path: Path) -> None:
    model = script(
        tmp_path, ["I ask. ", 'SPECIALIST_REQUEST[weather:{"city":"Zürich"}]', " dropped"], ["It is “fine”."]
    )
    with brain_served(registry_of(weather), MODEL=model) as server:
        answer = post(server.url, json={"message": "Weather?"})
    assert plain(answer.body) == plain(
        f"""\
retry: 2000
event: turn_start
data: {{"turn_id":"TURN","conversation_id":"CONVERSATION","model":"{model}","strategy":"mono",\
"limits":{{"calls":5,"calls_per_specialist":3,"turn_seconds":600.0,"call_seconds":5.0}}}}
id: TURN.1

event: token
data: {{"text":"I ask. "}}
id: TURN.2

event: specialist_start
data: {{"call_id":"c1","name":"weather","params":{{"city":"Zürich"}},"by":"model"}}
id: TURN.3

event: specialist_result
data: {{"call_id":"c1","name":"weather","params":{{"city":"Zürich"}},"text":"Sunny in Zürich.","citations":[],\
"cached":false,"ms":0}}
id: TURN.4

event: token
data: {{"text":"It is “fine”."}}
id: TURN.5

event: usage
data: {{"prompt_tokens":0,"completion_tokens":21,"estimated":true}}
id: TURN.6

event: done
data: {{"stop_reason":"complete","message_id":"MESSAGE","text":"I ask. It is “fine”.","calls":1,"passes":2,\
"first_token_ms":0,"total_ms":0}}
id: TURN.7

""".encode()
    )


def test_each_event_is_sent_when_it_happens(server: Server) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    server.play(Player([gates[0], "a", gates[1], "b", gates[2], "c"]))
    with client_of(server) as client, client.stream("POST", "/v1/chat/stream", json={"message": "hi"}) as response:
        assert response.status_code == 200
        pieces, found = response.iter_raw(), b""
        for text, gate in zip((b"turn_start", b'"a"', b'"b"'), gates, strict=True):
            while text not in found:
                found += next(pieces)
            assert b'"c"' not in found
            server.release(gate)
        assert b'"c"' in found + b"".join(pieces)


@pytest.mark.curl
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_sends_json_and_forms(tmp_path: Path, server: Server) -> None:
    (tmp_path / "scan.png").write_bytes(PNG)
    server.play(Player(["SPECIALIST_REQUEST[length]"], ["Read."]))
    command = ["curl", "-sN", "--max-time", "20", f"{server.url}/v1/chat/stream"]
    form = [*command, "-F", "message=what is it", "-F", f"file=@{tmp_path / 'scan.png'}"]
    assert '"text":"1 scan.png image/png 28"' in subprocess.run(form, capture_output=True, text=True, check=True).stdout
    body = [*command, "-H", "content-type: application/json", "-d", '{"message": "hi"}']
    assert subprocess.run(body, capture_output=True, text=True, check=True).stdout.count("event: done\n") == 1


def test_fifty_turns_at_once(server: Server) -> None:
    server.play(Player(['SPECIALIST_REQUEST[weather:{"city":"Bern"}]'], ["Fine."]))

    async def start_all() -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=50, trust_env=False) as client:
            url = f"{server.url}/v1/chat/stream"
            return await asyncio.gather(*(client.post(url, json={"message": f"{n}"}) for n in range(50)))

    answers = asyncio.run(start_all())
    assert [answer.text.count("event: done\n") for answer in answers] == [1] * 50
    assert [answer.text.count('"text":"Sunny in Bern."') for answer in answers] == [1] * 50
    assert server.left() == []


# Conversations, models, limits


def test_a_conversation_continues_with_its_files(server: Server) -> None:
    player = Player(["SPECIALIST_REQUEST[length]"], ["Read."])
    server.play(player)
    for text in ("one", "three"):
        sent = {"message": text, "conversation_id": "c", "attachments": [{"name": f"{text}.txt", "text": text}]}
        answer = post(server.url, json=sent)
    results = [event.data["text"] for event in answer.events if event.name == "specialist_result"]
    assert results == ["2 three.txt text/plain 5", "1 one.txt text/plain 3, 2 three.txt text/plain 5"]
    assert [message.role for message in player.asked[-1]][:4] == ["system", "user", "assistant", "user"]


def test_a_full_conversation_continues_without_files(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr("brain.store.users.CONVERSATION_BYTES_MOST", MIB)
    sent = {"message": "m", "conversation_id": "full", "attachments": [{"name": "a.txt", "text": "a" * 600_000}]}
    assert post(server.url, json=sent).status == 200
    assert problem(post(server.url, json=sent)) == (413, "too_large", "attachments")
    assert post(server.url, json={"message": "m", "conversation_id": "full"}).status == 200


def test_the_next_turn_may_start_when_the_last_event_has_arrived(server: Server) -> None:
    with client_of(server) as client:
        for _ in range(20):
            sent = {"message": "hi", "conversation_id": "quick"}
            with client.stream("POST", "/v1/chat/stream", json=sent) as response:
                assert response.status_code == 200
                assert any(b"event: done" in data for data in response.iter_raw())


def test_the_model_is_one_of_the_configured_ones(server: Server) -> None:
    server.play(Player(["From the first."], name="builtin"), Player(["From the second."], name="script:second"))
    server.engine.settings = settings(MODEL="builtin,script:second")
    named = post(server.url, json={"message": "hi", "model": "script:second"})
    assert (named.events[0].data["model"], named.last["text"]) == ("script:second", "From the second.")
    assert post(server.url, json={"message": "hi"}).last["text"] == "From the first."
    assert problem(post(server.url, json={"message": "hi", "model": "gpt"})) == (400, "bad_request", "model")
    server.engine.settings = settings()


def test_limits_may_be_lowered_and_not_raised(server: Server) -> None:
    answer = post(server.url, json={"message": "hi", "limits": {"calls": 1, "turn_seconds": 2.5}})
    limits = {"calls": 1, "calls_per_specialist": 3, "turn_seconds": 2.5, "call_seconds": 5.0}
    assert answer.events[0].data["limits"] == limits
    raised = post(server.url, json={"message": "hi", "limits": {"call_seconds": 5.5}})
    assert problem(raised) == (400, "bad_request", "limits.call_seconds")


# Failures


class Broken(Registry):
    """A registry that fails."""

    def usable(self, *args: Any, **more: Any) -> Any:
        raise RuntimeError("secret registry")


def test_internal_failures_reveal_nothing(server: Server) -> None:
    server.play(Player(["Half an ", RuntimeError("secret /srv/model")]))
    during = post(server.url, json={"message": "hi"})
    assert during.names == ["turn_start", "token", "usage", "error"]
    assert during.last["code"] == "internal"
    registry, server.engine.registry = server.engine.registry, Broken()
    before = post(server.url, json={"message": "hi", "conversation_id": "broken"})
    server.engine.registry = registry
    assert problem(before) == (500, "internal", None)
    assert b"secret" not in during.body + before.body
    assert post(server.url, json={"message": "hi", "conversation_id": "broken"}).status == 200


JSON = "application/json"
ELEVEN_FILES = json.dumps({"message": "a", "attachments": [{"name": "x", "text": "y"}] * 11})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", (400, "bad_request", None)),
        ("{", (400, "bad_request", None)),
        ("[]", (400, "bad_request", None)),
        (b'{"message": "\xff"}', (400, "bad_request", None)),
        ('{"message": "a", "message": "b"}', (400, "bad_request", "message")),
        ("{}", (400, "bad_request", "message")),
        ('{"message": " "}', (400, "bad_request", "message")),
        ('{"message": 1}', (400, "bad_request", "message")),
        ('{"message": "a", "colour": "red"}', (400, "bad_request", "colour")),
        ('{"message": "a", "conversation_id": "a b"}', (400, "bad_request", "conversation_id")),
        ('{"message": "a", "limits": {"calls": 99}}', (400, "bad_request", "limits.calls")),
        ('{"message": "a", "syntax": ["native"]}', (400, "bad_request", "syntax[0]")),
        ('{"message": "a", "time_zone": "Mars/Base"}', (400, "bad_request", "time_zone")),
        ('{"message": "a", "attachments": [{"name": "x", "data": "%"}]}', (400, "bad_request", "attachments[0].data")),
        (json.dumps({"message": "a" * 200_001}), (413, "too_large", "message")),
        (ELEVEN_FILES, (413, "too_large", "attachments")),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bodies_that_are_rejected(server: Server, body: str | bytes, expected: tuple[int, str, str | None]) -> None:
    assert problem(post(server.url, content=body, headers={"content-type": JSON})) == expected


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_other_media_types_are_rejected(server: Server, kind: str | None) -> None:
    answer = post(server.url, content=b'{"message": "hi"}', headers={} if kind is None else {"content-type": kind})
    assert problem(answer) == (415, "unsupported_media_type", "content-type")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("PUT", "/v1/chat/stream", 405, "method_not_allowed"),
        ("POST", "/v1/specialists", 405, "method_not_allowed"),
        ("DELETE", "/", 405, "method_not_allowed"),
        ("GET", "/v1/turns/t1/other", 404, "not_found"),
        ("GET", "/v1/specialists/", 404, "not_found"),
        ("GET", "/v1/specialists/..%2f..", 404, "not_found"),
    ],
)
def test_unknown_paths_and_methods(server: Server, method: str, path: str, status: int, code: str) -> None:
    answer = httpx.request(method, server.url + path, trust_env=False)
    assert problem(answer) == (status, code, None)
    assert ("allow" in answer.headers) == (status == 405)


def test_head(server: Server) -> None:
    with client_of(server, **{"accept-encoding": "identity"}) as client:
        page = client.head("/")
        assert (page.status_code, page.content) == (200, b"")
        assert int(page.headers["content-length"]) == len(client.get("/").content)
        stream = client.head("/v1/chat/stream?message=hi")
        assert (stream.status_code, stream.headers["allow"]) == (405, "GET, POST")


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("kind", [JSON, "multipart/form-data; boundary=b"])
def test_a_body_over_20_mib_is_rejected(server: Server, chunked: bool, kind: str) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' if kind != JSON else b'{"'
    pieces = [head, *[b"a" * MIB] * 20]
    content: Any = iter(pieces) if chunked else b"".join(pieces)
    assert problem(post(server.url, content=content, headers={"content-type": kind})) == (413, "too_large", None)


@pytest.mark.parametrize(
    ("length", "seconds", "status"), [(20_971_521, 20.0, b"413"), (100, 0.0, b"408")], ids=["too large", "too slow"]
)
def test_a_body_that_does_not_arrive(
    server: Server, monkeypatch: pytest.MonkeyPatch, length: int, seconds: float, status: bytes
) -> None:
    monkeypatch.setattr("brain.server.routes.requests.BODY_SECONDS", seconds)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(
            b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n{" % length
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 %s " % status)
    assert server.left() == []


# Forms


def test_forms_hold_what_json_does(server: Server) -> None:
    player = Player(["SPECIALIST_REQUEST[length]"])
    server.play(player)
    data = {
        "message": "read\r\nthem",
        "conversation_id": "form",
        "specialists": "length, weather",
        "limits": '{"calls": 1}',
        "syntax": "bracket",
        "time_zone": "Europe/Zurich",
        "attachments": '[{"name": "note.txt", "text": "hi"}]',
    }
    files = [("file", ("../a b.png", PNG, "text/html")), ("file", ("c.bin", b"a" * 16 * MIB))]
    answer = post(server.url, data=data, files=files)
    assert answer.status == 200, answer.body
    assert answer.events[0].data["conversation_id"] == "form"
    assert answer.events[0].data["limits"]["calls"] == 1
    assert player.asked[0][-1].content.endswith("read\nthem")
    results = [event.data["text"] for event in answer.events if event.name == "specialist_result"]
    assert results[-1] == "1 note.txt text/plain 2, 2 a b.png image/png 28, 3 c.bin application/octet-stream 16777216"


@pytest.mark.parametrize(
    ("parts", "status", "field"),
    [
        ([("message", (None, "a")), ("scan", ("x.png", PNG))], 400, "scan"),
        ([("message", ("m.txt", b"a"))], 400, "message"),
        ([("message", (None, "a")), ("file", (None, "no file"))], 400, "file"),
        ([("message", (None, "a")), ("colour", (None, "red"))], 400, "colour"),
        ([("message", (None, "a")), ("message", (None, "b"))], 400, "message"),
        ([("message", (None, "a")), ("limits", (None, "{"))], 400, "limits"),
        ([("file", ("x.png", PNG))], 400, "message"),
        ([("message", (None, "a")), ("file", ("x.png", b""))], 400, "file"),
        ([("message", (None, "a")), ("file", ("x", b"a" * (16 * MIB + 1)))], 413, "file"),
        ([("message", (None, "a")), *[("file", ("x", b"a"))] * 11], 413, "attachments"),
        ([("message", (None, "a")), *[("file", ("x", b"a"))] * 40], 413, "attachments"),
        ([(f"f{n}", (None, "a")) for n in range(51)], 400, None),
    ],
)
def test_forms_that_are_rejected(server: Server, parts: list[Any], status: int, field: str | None) -> None:
    code = "bad_request" if status == 400 else "too_large"
    assert problem(post(server.url, files=parts)) == (status, code, field)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=other", 400),
        ("multipart/form-data; boundary=b; charset=punycode", 415),  # takes minutes to decode
        ("multipart/form-data;CHARSET=idna;boundary=b", 415),
        ("multipart/form-data; boundary=b; charset=UTF-16", 415),
        ('multipart/form-data; boundary=b; charset="a\\"b"', 415),
        ("multipart/form-data; boundary=b; charset=" + "x" * 9_000, 415),
        ('multipart/form-data; boundary=b; charset="utf-8"', 200),
        ("multipart/form-data; boundary=b; charset=UTF8", 200),
    ],
    ids=lambda value: str(value)[-30:],
)
@pytest.mark.parametrize("path", ["/v1/chat/stream", "/v1/turns"])
def test_forms_are_utf_8(server: Server, path: str, kind: str, status: int) -> None:
    form = '--b\r\nContent-Disposition: form-data; name="message"\r\n\r\nNaïve?' + "zz9a" * 40_000 + "\r\n--b--\r\n"
    answer = httpx.post(server.url + path, content=form.encode(), headers={"content-type": kind}, trust_env=False)
    assert answer.status_code == (201 if status == 200 and path == "/v1/turns" else status)
    if status == 415:
        assert problem(answer) == (415, "unsupported_media_type", "content-type")


# Other routes


def test_the_specialists_that_the_operator_allows_are_listed() -> None:
    made = Registry(settings(ALLOWED_SPECIALISTS="weather,absent"))
    made.add(weather)
    made.add(length)
    made.add(specialist(name="absent", needs=lambda: "it needs a moon: buy one")(weather.function))
    with brain_served(made) as server:
        absent, present = httpx.get(f"{server.url}/v1/specialists", trust_env=False).json()["specialists"]
    assert list(present.pop("parameters")["properties"]) == ["city"]
    assert present == {
        "name": "weather",
        "description": "Weather for a city.",
        "version": "",
        "examples": ["weather in Bern"],
        "tags": [],
        "timeout": 3,
        "auth": False,
        "approval": "never",
        "read_only": False,
        "outside": True,
        "activates_on": [],
        "origin": "the program",
        "available": True,
    }
    assert (absent["available"], absent["unavailable_reason"]) == (False, "it needs a moon: buy one")


def test_health_and_readiness(server: Server) -> None:
    with client_of(server) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
    with brain_served(registry_of(weather)) as own, client_of(own) as client:
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ok", "model": "builtin", "specialists": 1})
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    with brain_served(MODEL="ollama:none", MODEL_URL=url) as dead, client_of(dead) as client:
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        assert url not in ready.text
        assert post(dead.url, json={"message": "hi"}).last["code"] == "model_unreachable"


def test_on_a_full_disk_turns_stream_to_their_end_and_the_server_is_not_ready(tmp_path: Path) -> None:
    with brain_served(STORE=f"sqlite:{tmp_path / 'brain.db'}") as server, client_of(server) as client:

        def limit(pages: int) -> None:
            database = server.engine.store._database
            server.on_loop(database.outside(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").close()))

        release = asyncio.Event()
        server.play(Player(["So ", release, prose(300_000)]))
        turn = client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        limit(1)
        assert client.post("/v1/turns", json={"message": "x" * 100_000}).status_code == 503
        assert client.get("/readyz").status_code == 503
        server.release(release)
        events = client.get(f"/v1/turns/{turn}/events").text
        assert '"code":"unkept"' in events
        assert "event: done" in events
        limit(1_000_000)
        assert client.get("/readyz").status_code == 200


# Inside another application


def test_mounted_into_an_application_with_its_own_lifespan() -> None:
    life: list[str] = []

    @asynccontextmanager
    async def living() -> AsyncIterator[None]:
        life.append("specialist up")
        yield
        life.append("specialist down")

    @specialist(lifespan=living)
    async def moody() -> str:
        """Has a lifespan."""
        return "alive"

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        life.append("app up")
        yield {"shared": "state"}
        life.append("app down")

    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.state.shared)

    class SetCookie(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            response = await call_next(request)
            response.set_cookie("session", request.headers.get("x-user", "nobody"))
            return response

    outer = Starlette(routes=[Route("/", hello)], lifespan=own, middleware=[Middleware(SetCookie)])
    mount(outer, "/brain", settings(KEYS="k:u"), registry_of(moody))
    with served(outer) as server, client_of(server) as client:
        key = {"authorization": "Bearer k"}
        assert life == ["app up", "specialist up"]
        assert client.get("/").text == "state"
        page = client.get("/brain", follow_redirects=True)
        assert page.url.path == "/brain/"
        assert '="/' not in page.text, "its addresses are relative"
        assert client.get("/brain/healthz").status_code == 200
        assert problem(client.get("/brain/v1/specialists")) == (401, "unauthorized", "authorization")
        assert client.get("/brain/v1/specialists", headers=key).json()["specialists"][0]["name"] == "moody"
        assert problem(client.get("/brain/nothing", headers=key)) == (404, "not_found", None)
        for user in ("one", "two"):
            answer = client.post("/brain/v1/chat/stream", json={"message": "hi"}, headers={**key, "x-user": user})
            assert "event: done" in answer.text
            cookies = [value.partition(";")[0] for value in answer.headers.get_list("set-cookie")]
            assert cookies == [f"session={user}"], "what others add to a response stays in it"
        turn = client.post("/brain/v1/turns", json={"message": "hi"}, headers=key)
        url = f"/brain/v1/turns/{turn.json()['turn_id']}"
        assert (turn.headers["location"], turn.json()["events"]) == (url, f"{url}/events")
        assert "event: done" in client.get(f"{url}/events", headers=key).text
        assert client.get("/v1/specialists").status_code == 404
    assert life == ["app up", "specialist up", "specialist down", "app down"]


def test_an_application_that_was_never_started_is_unavailable() -> None:
    outer = Starlette()
    mount(outer, "/brain", settings(), registry_of(weather))
    outer.router.lifespan_context = Starlette().router.lifespan_context
    with served(outer) as server, client_of(server) as client:
        assert problem(post(f"{server.url}/brain", json={"message": "hi"})) == (503, "unavailable", None)
        assert problem(client.get("/brain/readyz")) == (503, "unavailable", None)


def test_a_turn_that_starts_while_the_server_stops_is_stopped(server: Server) -> None:
    with brain_served() as server, streaming(server.url, json={"message": "hi"}):
        server.play(Player(["unheard", asyncio.Event()]))
        server.engine.leaving = True
        answer = post(server.url, json={"message": "hi"})
    assert answer.names == ["turn_start", "usage", "error"]
    assert answer.last["code"] == "shutdown"
