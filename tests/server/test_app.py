"""The application on a real port: what a stream looks like, what is rejected, and Brain inside another application."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from brain_servers import Server, brain_served, client_of, plain, post, problem, script, served, settings
from limits import WAIT_SECONDS
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from store_helpers import sqlite_of
from turn_helpers import Player, prose, registry_of

from brain import Context, Registry, Result, mount, specialist
from brain.protocols.common import check_strictly

MIB = 1024 * 1024
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
JSON = "application/json"


@specialist(timeout=3)
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


def test_a_turn_with_a_call_byte_for_byte(tmp_path: Path) -> None:
    model = script(
        tmp_path, ["I ask. ", 'SPECIALIST_REQUEST[weather:{"city":"Zürich"}]', " dropped"], ["It is “fine”."]
    )
    with brain_served(registry_of(weather), MODEL=model) as server:
        answer = post(server.url, json={"message": "Weather?"}, headers={"accept-encoding": "gzip, br"})
    assert answer.status == 200
    assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert not {"content-encoding", "content-length"} & set(answer.headers)
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


# Failures


def test_internal_failures_reveal_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.play(Player(["Half an ", RuntimeError("secret /srv/model")]))
    during = post(server.url, json={"message": "hi"})
    assert during.names == ["turn_start", "token", "usage", "error"]
    assert during.last["code"] == "internal"
    with monkeypatch.context() as patch:
        patch.setattr(server.engine, "registry", None)
        before = post(server.url, json={"message": "hi", "conversation_id": "broken"})
    assert problem(before) == (500, "internal", None)
    assert b"secret" not in during.body + before.body
    assert post(server.url, json={"message": "hi", "conversation_id": "broken"}).status == 200


@pytest.mark.parametrize(
    ("method", "path", "kind", "body", "expected"),
    [
        ("POST", "/v1/chat/stream", JSON, '{"message": "a", "message": "b"}', (400, "bad_request", "message")),
        ("POST", "/v1/chat/stream", None, "{}", (415, "unsupported_media_type", "content-type")),
        ("POST", "/v1/chat/stream", "application/jsonx", "{}", (415, "unsupported_media_type", "content-type")),
        ("PUT", "/v1/chat/stream", JSON, "{}", (405, "method_not_allowed", None)),
        ("POST", "/v1/specialists", JSON, "{}", (405, "method_not_allowed", None)),
        ("HEAD", "/v1/chat/stream?message=hi", None, None, (405, None, None)),
        ("GET", "/v1/turns/t1/other", None, None, (404, "not_found", None)),
        ("GET", "/v1/specialists/", None, None, (404, "not_found", None)),
        ("GET", "/v1/specialists/..%2f..", None, None, (404, "not_found", None)),
    ],
)  # fmt: skip
def test_requests_that_are_rejected(
    server: Server, method: str, path: str, kind: str | None, body: Any, expected: tuple[int, str | None, str | None]
) -> None:
    with client_of(server) as client:
        answer = client.request(method, path, content=body, headers={} if kind is None else {"content-type": kind})
    assert answer.status_code == expected[0] if method == "HEAD" else problem(answer) == expected
    assert ("allow" in answer.headers) == (expected[0] == 405)


@pytest.mark.parametrize(
    ("length", "seconds", "status"), [(20_971_521, 20.0, b"413"), (100, 0.0, b"408")], ids=["too large", "too slow"]
)
def test_a_body_that_does_not_arrive(
    server: Server, monkeypatch: pytest.MonkeyPatch, length: int, seconds: float, status: bytes
) -> None:
    monkeypatch.setattr("brain.server.routes.requests.BODY_SECONDS", seconds)
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as connection:
        connection.sendall(
            b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n{" % length
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 %s " % status)
    assert server.left() == []


# Forms


def test_a_form_has_the_fields_of_json(server: Server) -> None:
    server.play(player := Player(["SPECIALIST_REQUEST[length]"]))
    data = {
        "message": "read\r\nthem",
        "conversation_id": "form",
        "specialists": "length, weather",
        "limits": '{"calls": 1}',
        "attachments": '[{"name": "note.txt", "text": "hi"}]',
    }
    files = [("file", ("../a b.png", PNG, "text/html")), ("file", ("c.bin", b"a" * 16 * MIB))]
    answer = post(server.url, data=data, files=files)
    assert answer.events[0].data["conversation_id"] == "form"
    assert answer.events[0].data["limits"]["calls"] == 1
    assert player.requests[0][-1].content.endswith("read\nthem")
    results = [event.data["text"] for event in answer.events if event.name == "specialist_result"]
    assert results[-1] == "1 note.txt text/plain 2, 2 a b.png image/png 28, 3 c.bin application/octet-stream 16777216"


@pytest.mark.parametrize(
    ("parts", "status", "field"),
    [
        ([("message", (None, "a")), ("scan", ("x.png", PNG))], 400, "scan"),
        ([("message", ("m.txt", b"a"))], 400, "message"),
        ([("message", (None, "a")), ("file", (None, "no file"))], 400, "file"),
        ([("message", (None, "a")), ("message", (None, "b"))], 400, "message"),
        ([("message", (None, "a")), ("file", ("x", b"a" * (16 * MIB + 1)))], 413, "file"),
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
        ('multipart/form-data; boundary=b; charset="a\\"b"', 415),
        ("multipart/form-data; boundary=b; charset=" + "x" * 9_000, 415),
        ('multipart/form-data; boundary=b; charset="utf-8"', 201),
        ("multipart/form-data; boundary=b; charset=UTF8", 201),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_forms_are_utf_8(server: Server, kind: str, status: int) -> None:
    form = '--b\r\nContent-Disposition: form-data; name="message"\r\n\r\nNaïve?' + "zz9a" * 40_000 + "\r\n--b--\r\n"
    with client_of(server) as client:
        answer = client.post("/v1/turns", content=form.encode(), headers={"content-type": kind})
    assert answer.status_code == status
    assert status != 415 or problem(answer) == (415, "unsupported_media_type", "content-type")


def test_a_large_body_is_parsed_in_a_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()

    def check(*args: Any) -> None:
        threads.add(threading.current_thread().name)
        check_strictly(*args)

    monkeypatch.setattr("brain.server.routes.requests.check_strictly", check)
    with client_of(server) as client:
        body = {"messages": [{"role": "user", "content": "[ [ [ " * 33_000}] * 3}
        assert client.post("/v1/chat/completions", json=body).status_code == 200
    assert {name.partition("_")[0] for name in threads} == {"large bodies"}


# Other routes


def test_the_specialists_that_the_operator_allows_are_listed() -> None:
    made = registry_of(weather, length, registry=Registry(settings(ALLOWED_SPECIALISTS="weather,absent")))
    made.add(specialist(name="absent", needs=lambda: "it needs a moon: buy one")(weather.function))
    with brain_served(made) as server, client_of(server) as client:
        absent, present = client.get("/v1/specialists").json()["specialists"]
    assert (present["name"], present["available"], present["timeout"]) == ("weather", True, 3)
    assert (absent["name"], absent["available"]) == ("absent", False)
    assert absent["unavailable_reason"] == made["absent"].public_reason
    assert "moon" not in str(absent)  # it may contain settings and paths of the server


def test_strategies_are_listed_with_their_limits_and_models(tmp_path: Path) -> None:
    actor = script(tmp_path, ["Hi."])
    with (
        brain_served(STRATEGY="reason", STRATEGIES="mono,dual", ACTOR=actor, ROUNDS=7, CALLS=4) as server,
        client_of(server) as client,
    ):
        listed = client.get("/v1/strategies").json()["strategies"]
        assert {one["name"]: (one["models"], one["default"]) for one in listed} == {
            "mono": ({"writer": "builtin"}, False),
            "reason": ({"thinker": "builtin"}, True),
            "dual": ({"thinker": "builtin", "actor": actor}, False),
        }
        limits = {"calls": 4, "calls_per_specialist": 3, "turn_seconds": 600.0, "call_seconds": 5.0}
        assert [one["limits"] for one in listed] == [limits, {**limits, "rounds": 7}, {**limits, "rounds": 7}]
        assert [one["options"] for one in listed] == [[], [], ["critic"]]
        assert all(one["description"].endswith(".") for one in listed)
        assert set(server.engine.model_states()) == {"builtin", actor}
        names = ["brain", "brain:mono", "brain:reason", "brain:dual", "builtin"]
        assert [one["id"] for one in client.get("/v1/models").json()["data"]] == names
        tags = [one["name"].removesuffix(":latest") for one in client.get("/api/tags").json()["models"]]
        assert tags == names
        assert client.get("/v1/models/brain:dual").json()["id"] == "brain:dual"
        assert client.post("/api/show", json={"model": "brain:dual"}).status_code == 200
        for refused in (client.get("/v1/models/brain:step"), client.post("/api/show", json={"model": "brain:step"})):
            assert refused.status_code == 404
        assert problem(client.post("/v1/turns", json={"message": "Hi", "model": actor})) == (
            400,
            "bad_request",
            "model",
        )


def test_health_and_readiness() -> None:
    with brain_served(registry_of(weather)) as server, client_of(server) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ok", "model": "builtin", "specialists": 1})
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    with brain_served(MODEL="ollama:none", MODEL_URL=url) as server, client_of(server) as client:
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        assert url not in ready.text
        assert post(server.url, json={"message": "hi"}).last["code"] == "model_unreachable"


def test_on_a_full_disk_turns_stream_to_their_end_and_the_server_is_not_ready(tmp_path: Path) -> None:
    with brain_served(STORE=f"sqlite:{tmp_path / 'brain.db'}") as server, client_of(server) as client:

        def limit(pages: int) -> None:
            database = sqlite_of(server.engine.store)
            server.on_loop(database.run_outside(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").close()))

        release = asyncio.Event()
        server.play(Player(["So ", release, prose(300_000)]))
        begun = client.post("/v1/turns", json={"message": "hi"}).json()
        turn, conversation = begun["turn_id"], begun["conversation_id"]
        limit(1)
        assert client.post("/v1/turns", json={"message": "x" * 100_000}).status_code == 503
        assert client.get("/readyz").status_code == 503
        server.release(release)
        events = client.get(f"/v1/turns/{turn}/events").text
        assert '"code":"unkept"' in events
        assert "event: done" in events
        more = {"message": "more", "conversation_id": conversation}
        assert problem(client.post("/v1/turns", json=more)) == (503, "unavailable", None)
        limit(1_000_000)
        assert client.get("/readyz").status_code == 200
        assert client.post("/v1/turns", json=more).status_code == 201
        first = client.get(f"/v1/conversations/{conversation}").json()["messages"][1]
        assert (first["state"], len(str(first))) > ("complete", 300_000)


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
        assert client.get("/brain/page/start", headers=key).json()["user"] == "u"
        assert problem(client.get("/brain/v1/specialists")) == (401, "unauthorized", "authorization")
        assert client.get("/brain/v1/specialists", headers=key).json()["specialists"][0]["name"] == "moody"
        assert problem(client.get("/brain/nothing", headers=key)) == (404, "not_found", None)
        for user in ("one", "two"):
            answer = client.post("/brain/v1/chat/stream", json={"message": "hi"}, headers={**key, "x-user": user})
            assert "event: done" in answer.text
            cookies = [value.partition(";")[0] for value in answer.headers.get_list("set-cookie")]
            assert cookies == [f"session={user}"], "the headers of one response are in no other one"
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


def test_no_turn_starts_while_the_server_stops() -> None:
    with brain_served() as server, client_of(server) as client:
        server.engine.is_closing = True
        answer = post(server.url, json={"message": "hi"})
        assert problem(answer) == (503, "unavailable", None)
        assert answer.headers["retry-after"] == "2"
        assert client.get("/readyz").status_code == 503
        server.engine.is_closing = False
