"""The routes on a real port: what is streamed and when, who may come in, and what is refused how."""

import asyncio
import itertools
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Answer, Player, Server, brain_served, plain, post, script, served, settings, streaming
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from brain import Context, Registry, Result, mount, specialist
from brain.plugins.registry import Entry

MIB = 1024 * 1024
ELEVEN_FILES = json.dumps({"message": "a", "attachments": [{"name": "x", "text": "y"}] * 11})
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@specialist(examples=["weather in Bern"], timeout=3)
async def weather(city: str) -> str:
    """Weather for a city."""
    return f"Sunny in {city}."


@specialist(timeout=3)
async def nap(seconds: float) -> str:
    """Sleeps."""
    await asyncio.sleep(seconds)
    return "Rested."


@specialist(read_only=True, activates_on=["text"])
async def length(*, context: Context) -> Result:
    """Counts the bytes of the files."""
    return Result(", ".join(f"{a.id} {a.name} {a.type} {len(a.data)}" for a in context.attachments))


def registry(*specialists: Any) -> Registry:
    made = Registry()
    for one in specialists:
        made.add(one)
    return made


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with brain_served(registry(weather, nap)) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.play(Player(["Hello."], name="builtin"))
    return running


def refused(answer: Answer | httpx.Response) -> tuple[int, str, str | None]:
    """Status, code and field of an error, which holds a sentence too, and nothing else."""
    status = answer.status if isinstance(answer, Answer) else answer.status_code
    error = answer.error if isinstance(answer, Answer) else answer.json()["error"]
    assert answer.headers["content-type"] == "application/json"
    assert set(error) <= {"code", "message", "field"}
    assert error["message"].endswith((".", "Found", "Allowed"))
    return status, error["code"], error.get("field")


# The stream


def test_headers_keep_proxies_from_holding_the_stream_back(server: Server) -> None:
    answer = post(server.url, json={"message": "hi"}, headers={"accept-encoding": "gzip, br"})
    assert answer.status == 200
    assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers
    assert "content-length" not in answer.headers


def test_a_turn_with_a_call_byte_for_byte(tmp_path: Path) -> None:
    model = script(
        tmp_path, ["I ask. ", 'SPECIALIST_REQUEST[weather:{"city":"Zürich"}]', " dropped"], ["It is “fine”."]
    )
    with brain_served(registry(weather), MODEL=model) as server:
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


@pytest.mark.alone
def test_the_answer_begins_before_the_model_does(server: Server) -> None:
    server.play(Player([0.6, "late"]))
    with streaming(server.url, until="turn_start", json={"message": "hi"}) as answer:
        assert answer.status == 200
        assert answer.names == ["turn_start"]
        assert answer.events[0].at < 0.4


@pytest.mark.alone
def test_each_token_leaves_when_it_comes(server: Server) -> None:
    server.play(Player(["a", 0.15, "b", 0.15, "c"]))
    tokens = [event for event in post(server.url, json={"message": "hi"}).events if event.name == "token"]
    assert [token.data["text"] for token in tokens] == ["a", "b", "c"]
    assert all(0.08 < later.at - earlier.at < 0.4 for earlier, later in pairwise(tokens))


@pytest.mark.alone
def test_heartbeats_from_the_first_moment_and_while_a_specialist_runs() -> None:
    with brain_served(registry(nap), HEARTBEAT_SECONDS=0.1) as server:
        server.play(Player([0.35, 'SPECIALIST_REQUEST[nap:{"seconds":0.35}]'], [0.25, "done"]))
        answer = post(server.url, json={"message": "hi"})
    by_name = {event.name: event.at for event in answer.events}
    moments = [0.0, by_name["specialist_start"], by_name["specialist_result"], by_name["done"]]
    for (began, ended), least in zip(itertools.pairwise(moments), (2, 2, 1), strict=True):
        beats = [at for at in answer.heartbeats if began < at < ended]
        assert least <= len(beats) <= (ended - began) / 0.1 + 1
    assert all(data == b": heartbeat\n\n" or b"heartbeat" not in data for _, data in answer.chunks)


def test_no_heartbeat_while_something_else_is_sent() -> None:
    with brain_served(HEARTBEAT_SECONDS=0.4) as server:
        server.play(Player(["a", 0.05] * 20))
        assert post(server.url, json={"message": "hi"}).heartbeats == []


@pytest.mark.curl
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_is_a_first_class_client(tmp_path: Path) -> None:
    (tmp_path / "scan.png").write_bytes(PNG)
    with brain_served(registry(length)) as server:
        server.play(Player(["SPECIALIST_REQUEST[length]"], ["Read."]))
        command = ["curl", "-sN", "--max-time", "10", f"{server.url}/v1/chat/stream"]
        form = [*command, "-F", "message=what is it", "-F", f"file=@{tmp_path / 'scan.png'}"]
        as_form = subprocess.run(form, capture_output=True, text=True, check=True).stdout
        body = [*command, "-H", "content-type: application/json", "-d", '{"message": "hi"}']
        as_json = subprocess.run(body, capture_output=True, text=True, check=True).stdout
    assert '"text":"1 scan.png image/png 28"' in as_form
    assert '"text":"Read."' in as_json
    assert as_json.count("event: done\n") == 1


def test_fifty_turns_at_once(server: Server) -> None:
    server.play(Player([0.2, 'SPECIALIST_REQUEST[nap:{"seconds":0.1}]'], ["Awake."]))

    async def all_of_them() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=50)
        async with httpx.AsyncClient(timeout=20, trust_env=False, limits=limits) as client:
            asked = [client.post(f"{server.url}/v1/chat/stream", json={"message": f"{n}"}) for n in range(50)]
            return await asyncio.gather(*asked)

    began = time.monotonic()
    answers = asyncio.run(all_of_them())
    assert time.monotonic() - began < 5
    assert [answer.text.count("event: done\n") for answer in answers] == [1] * 50
    assert [answer.text.count('"text":"Rested."') for answer in answers] == [1] * 50
    assert server.left() == []


# Conversations


def without_clock(question: str) -> str:
    return re.sub(r"\AIt is .*\.\n\n", "", question)


def test_a_conversation_goes_on(server: Server) -> None:
    player = Player(["First answer."])
    server.play(player)
    first = post(server.url, json={"message": "First question"}).events[0].data["conversation_id"]
    post(server.url, json={"message": "Second question", "conversation_id": first})
    said = [(message.role, without_clock(message.content)) for message in player.asked[1] if message.role != "system"]
    assert said == [("user", "First question"), ("assistant", "First answer."), ("user", "Second question")]


def test_files_stay_with_their_conversation() -> None:
    with brain_served(registry(length)) as server:
        server.play(Player(["SPECIALIST_REQUEST[length]"]))
        for text in ("one", "three"):
            sent = {"message": "m", "conversation_id": "c", "attachments": [{"name": f"{text}.txt", "text": text}]}
            answer = post(server.url, json=sent)
    results = [event.data["text"] for event in answer.events if event.name == "specialist_result"]
    assert results == ["2 three.txt text/plain 5", "1 one.txt text/plain 3, 2 three.txt text/plain 5"]


def test_a_full_conversation_is_said_and_goes_on_without_files(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr("brain.store.users.CONVERSATION_BYTES_MOST", MIB)
    sent = {"message": "m", "conversation_id": "full", "attachments": [{"name": "a.txt", "text": "a" * 600_000}]}
    assert post(server.url, json=sent).status == 200
    again = post(server.url, json=sent)
    assert refused(again) == (413, "too_large", "attachments")
    assert again.error["message"] == "A conversation may hold 1 MiB with its files; begin a new one."
    assert post(server.url, json={"message": "m", "conversation_id": "full"}).status == 200


def test_who_comes_back_for_a_turn_starts_no_other(server: Server) -> None:
    player = Player(["Hello."])
    server.play(player)
    answer = post(server.url, json={"message": "hi"}, headers={"last-event-id": "t0123456789abcdef.3"})
    assert refused(answer) == (410, "gone", "last-event-id")
    assert answer.error["message"] == "This turn is no longer available; start a new one without Last-Event-ID."
    assert player.asked == []


def test_one_turn_at_a_time_in_a_conversation(server: Server) -> None:
    player = Player(["a", 5.0])
    server.play(player)
    sent = {"message": "hi", "conversation_id": "shared"}
    with streaming(server.url, until="token", json=sent):
        assert refused(post(server.url, json=sent)) == (409, "busy", "conversation_id")
        with streaming(server.url, until="token", json={"message": "hi"}) as another:
            assert another.status == 200


def test_the_next_turn_may_begin_when_the_last_event_is_there(server: Server) -> None:
    sent = {"message": "hi", "conversation_id": "quick"}
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for _ in range(20):
            with client.stream("POST", "/v1/chat/stream", json=sent) as response:
                assert response.status_code == 200
                assert any(b"event: done" in data for data in response.iter_raw())


def test_a_conversation_is_its_users_alone() -> None:
    with brain_served(KEYS="a-key:ann,b-key:bob") as server:
        player = Player(["Noted."])
        server.play(player)
        for key in ("a-key", "b-key"):
            sent = {"message": f"I have {key}", "conversation_id": "same"}
            post(server.url, json=sent, headers={"authorization": f"Bearer {key}"})
    (question,) = [message.content for message in player.asked[1] if message.role == "user"]
    assert question.endswith("\n\nI have b-key")


def test_the_model_is_one_of_the_configured_ones(server: Server) -> None:
    second = Player(["From the second."], name="script:second")
    server.play(Player(["From the first."], name="builtin"), second)
    server.engine.settings = settings(MODEL="builtin,script:second")
    named = post(server.url, json={"message": "hi", "model": "script:second"})
    assert named.events[0].data["model"] == "script:second"
    assert named.last["text"] == "From the second."
    assert post(server.url, json={"message": "hi"}).last["text"] == "From the first."
    answer = post(server.url, json={"message": "hi", "model": "gpt"})
    assert refused(answer) == (400, "bad_request", "model")
    assert answer.error["message"] == "model must be one of: builtin, script:second."
    server.engine.settings = settings()


def test_limits_may_be_lowered_not_raised(server: Server) -> None:
    lowered = {"calls": 1, "turn_seconds": 2.5}
    answer = post(server.url, json={"message": "hi", "limits": lowered})
    assert answer.events[0].data["limits"] == {
        "calls": 1,
        "calls_per_specialist": 3,
        "turn_seconds": 2.5,
        "call_seconds": 5.0,
    }
    raised = post(server.url, json={"message": "hi", "limits": {"call_seconds": 5.5}})
    assert refused(raised) == (400, "bad_request", "limits.call_seconds")


# Failures


def test_a_failing_model_ends_in_one_error_without_its_words(server: Server) -> None:
    server.play(Player(["Half an ", RuntimeError("secret /srv/model")]))
    answer = post(server.url, json={"message": "hi"})
    assert answer.names == ["turn_start", "token", "usage", "error"]
    assert answer.last["code"] == "internal"
    assert b"secret" not in answer.body


class Broken(Registry):
    """A registry that breaks when it is asked for a specialist, or, `altogether`, for anything."""

    altogether = False

    def get(self, name: str, default: Any = None) -> Any:
        raise RuntimeError("secret registry")

    def __getitem__(self, name: str) -> Entry:
        if self.altogether:
            raise RuntimeError("secret registry")
        return super().__getitem__(name)


def test_a_failing_registry_ends_in_one_error_without_its_words() -> None:
    broken = Broken()
    broken.add(weather)
    with brain_served(broken) as server:
        server.play(Player(["SPECIALIST_REQUEST[weather]"]))
        answer = post(server.url, json={"message": "hi", "conversation_id": "c"})
        broken.altogether = True
        before_the_stream = post(server.url, json={"message": "hi", "conversation_id": "c"})
        broken.altogether = False
        again = post(server.url, json={"message": "hi", "conversation_id": "c"})
    assert (answer.names.count("error"), answer.last["code"]) == (1, "internal")
    assert refused(before_the_stream) == (500, "internal", None)
    assert b"secret" not in answer.body + before_the_stream.body
    assert again.status == 200


# Who may come in


def get(server: Server, path: str = "/v1/specialists", host: str | None = None, **headers: str) -> httpx.Response:
    sent = {key.replace("_", "-"): value for key, value in headers.items()}
    if host is not None:
        sent["host"] = host
    return httpx.get(server.url + path, headers=sent, trust_env=False)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with brain_served(
        registry(weather),
        KEYS="kéy:ann,b-key:bob",
        HOSTS="chat.example",
        ORIGINS="https://Pages.example/,http://localhost:5173",
    ) as server:
        yield server


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", "Basic b-key", "b-key", "Bearer b-key,", "\xff"]
)
def test_without_a_right_key_nobody_comes_in(guarded: Server, authorization: str) -> None:
    answer = httpx.get(
        f"{guarded.url}/v1/specialists", headers=[(b"authorization", authorization.encode("latin-1"))], trust_env=False
    )
    assert refused(answer) == (401, "unauthorized", "authorization")
    assert answer.headers["www-authenticate"] == "Bearer"
    posted = post(guarded.url, json={"message": "hi"})
    assert refused(posted) == (401, "unauthorized", "authorization")


@pytest.mark.parametrize("authorization", ["Bearer b-key", "bearer b-key", "Bearer  b-key ", "Bearer kéy"])
def test_with_a_right_key_one_comes_in(guarded: Server, authorization: str) -> None:
    headers = [(b"authorization", authorization.strip().encode())]
    assert httpx.get(f"{guarded.url}/v1/specialists", headers=headers, trust_env=False).status_code == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz"])
def test_page_and_health_are_open(guarded: Server, path: str) -> None:
    assert get(guarded, path).status_code == 200
    assert get(guarded, path, host="balancer.internal", origin="https://evil.example").status_code == 200


def test_what_is_not_there_needs_a_key_too(guarded: Server) -> None:
    assert refused(get(guarded, "/v1/conversations")) == (401, "unauthorized", "authorization")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST:8000", "[::1]", "[::1]:8000", "chat.example", "chat.example:443"]
)
def test_known_host_names(guarded: Server, host: str) -> None:
    assert get(guarded, host=host, authorization="Bearer b-key").status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "", "localhost.evil.example", "[::1", "::1", "[::2]", "a@localhost", "localhost:80:80", "[evil]"],
)
def test_foreign_host_names_are_refused(guarded: Server, host: str) -> None:
    answer = get(guarded, host=host, authorization="Bearer b-key")
    assert refused(answer) == (403, "forbidden_host", "host")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost:8000", "host": "localhost:8000"},
        {"origin": "https://chat.example", "host": "chat.example"},
        {"origin": "http://[::1]:8000", "host": "[::1]:8000"},
        {"origin": "https://pages.example"},
        {"origin": "http://localhost:5173", "sec_fetch_site": "same-site"},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
    ],
)
def test_own_pages_and_listed_origins_may_call(guarded: Server, headers: dict[str, str]) -> None:
    assert get(guarded, authorization="Bearer b-key", **headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://[::1"},
        {"origin": "http://localhost:8001", "host": "localhost:8000"},
        {"origin": "https://pages.example.evil.example"},
        {"origin": "https://evil.example", "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_pages_of_others_are_refused(guarded: Server, headers: dict[str, str]) -> None:
    answer = get(guarded, authorization="Bearer b-key", **headers)
    assert refused(answer) == (403, "forbidden_origin", "origin")
    assert "access-control-allow-origin" not in answer.headers


def test_a_listed_origin_gets_its_preflight_and_reads_its_errors(guarded: Server) -> None:
    asked = {
        "origin": "https://pages.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, last-event-id",
    }
    preflight = httpx.options(f"{guarded.url}/v1/chat/stream", headers=asked, trust_env=False)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://pages.example"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    without_key = get(guarded, origin="https://pages.example")
    assert refused(without_key) == (401, "unauthorized", "authorization")
    assert without_key.headers["access-control-allow-origin"] == "https://pages.example"
    foreign = asked | {"origin": "https://evil.example"}
    answer = httpx.options(f"{guarded.url}/v1/chat/stream", headers=foreign, trust_env=False)
    assert refused(answer) == (403, "forbidden_origin", "origin")


# What is refused


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ("{", 400, "bad_request", None),
        ("", 400, "bad_request", None),
        (b'{"message": "\xff"}', 400, "bad_request", None),
        ("[]", 400, "bad_request", None),
        ("{}", 400, "bad_request", "message"),
        ('{"message": " "}', 400, "bad_request", "message"),
        ('{"message": 1}', 400, "bad_request", "message"),
        ('{"message": "a", "prompt": "b"}', 400, "bad_request", "prompt"),
        ('{"message": "a", "colour": "red"}', 400, "bad_request", "colour"),
        ('{"message": "a", "conversation_id": "../x"}', 400, "bad_request", "conversation_id"),
        ('{"message": "a", "limits": {"calls": 6}}', 400, "bad_request", "limits.calls"),
        ('{"message": "a", "limits": {"calls": -1}}', 400, "bad_request", "limits.calls"),
        ('{"message": "a", "syntax": ["native"]}', 400, "bad_request", "syntax[0]"),
        ('{"message": "a", "time_zone": "Mars/Base"}', 400, "bad_request", "time_zone"),
        ('{"message": "a", "attachments": [{"name": "x", "data": "%"}]}', 400, "bad_request", "attachments[0].data"),
        ('{"message": "a", "attachments": [{"name": "x", "text": ""}]}', 400, "bad_request", "attachments[0].text"),
        (json.dumps({"message": "a" * 200_001}), 413, "too_large", "message"),
        (ELEVEN_FILES, 413, "too_large", "attachments"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bodies_that_are_refused(server: Server, body: str | bytes, status: int, code: str, field: str | None) -> None:
    answer = post(server.url, content=body, headers={"content-type": "application/json"})
    assert refused(answer) == (status, code, field)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_other_media_types_are_refused(server: Server, kind: str | None) -> None:
    answer = post(server.url, content=b'{"message": "hi"}', headers={} if kind is None else {"content-type": kind})
    assert refused(answer) == (415, "unsupported_media_type", "content-type")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("PUT", "/v1/chat/stream", 405, "method_not_allowed"),
        ("POST", "/v1/specialists", 405, "method_not_allowed"),
        ("DELETE", "/", 405, "method_not_allowed"),
        ("GET", "/v1/turns/t1", 404, "not_found"),
        ("GET", "/v1/turns/t1/other", 404, "not_found"),
        ("GET", "/v1/strategies", 404, "not_found"),
        ("GET", "/v1/specialists/..%2f..", 404, "not_found"),
    ],
)
def test_what_is_not_there_says_so(server: Server, method: str, path: str, status: int, code: str) -> None:
    answer = httpx.request(method, server.url + path, trust_env=False)
    assert refused(answer) == (status, code, None)
    assert ("allow" in answer.headers) == (status == 405)


def test_head(server: Server) -> None:
    plain = {"accept-encoding": "identity"}
    page = httpx.head(server.url, headers=plain, trust_env=False)
    assert (page.status_code, page.content) == (200, b"")
    assert int(page.headers["content-length"]) == len(httpx.get(server.url, headers=plain, trust_env=False).content)
    stream = httpx.head(f"{server.url}/v1/chat/stream", trust_env=False)
    assert (stream.status_code, stream.headers["allow"]) == (405, "GET, POST")


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=b"])
def test_a_body_over_20_mib_is_refused(server: Server, chunked: bool, kind: str) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' if "multipart" in kind else b'{"'
    pieces = [head, *[b"a" * MIB] * 20]
    content: Any = iter(pieces) if chunked else b"".join(pieces)
    answer = post(server.url, content=content, headers={"content-type": kind})
    assert refused(answer) == (413, "too_large", None)


def test_a_body_that_announces_too_much_is_not_even_read(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(
            b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 20971521\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


# Forms


def test_forms_hold_what_json_does() -> None:
    with brain_served(registry(length)) as server:
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
        files = [("file", ("../a b.png", PNG, "text/html")), ("file", ("c.bin", b"123"))]
        answer = post(server.url, data=data, files=files)
    assert answer.status == 200, answer.body
    assert answer.events[0].data["conversation_id"] == "form"
    assert answer.events[0].data["limits"]["calls"] == 1
    assert player.asked[0][-1].content.endswith("read\nthem")
    called = [event.data["text"] for event in answer.events if event.name == "specialist_result"]
    assert called[-1] == "1 note.txt text/plain 2, 2 a b.png image/png 28, 3 c.bin application/octet-stream 3"


@pytest.mark.parametrize(
    ("parts", "status", "field"),
    [
        ([("message", (None, "a")), ("scan", ("x.png", PNG))], 400, "scan"),
        ([("message", ("m.txt", b"a"))], 400, "message"),
        ([("message", (None, "a")), ("file", (None, "no file"))], 400, "file"),
        ([("message", (None, "a")), ("colour", (None, "red"))], 400, "colour"),
        ([("message", (None, "a")), ("message", (None, "b"))], 400, "message"),
        ([("message", (None, "a")), ("limits", (None, "{"))], 400, "limits"),
        ([("message", (None, "a")), ("limits", (None, '{"calls": 9}'))], 400, "limits.calls"),
        ([("file", ("x.png", PNG))], 400, "message"),
        ([("message", (None, "a")), ("file", ("x.png", b""))], 400, "file"),
        ([("message", (None, "a")), ("file", ("x", b"a" * (16 * MIB + 1)))], 413, "file"),
        ([("message", (None, "a")), *[("file", ("x", b"a"))] * 11], 413, "attachments"),
        ([("message", (None, "a")), *[("file", ("x", b"a"))] * 40], 413, "attachments"),
        ([(f"f{n}", (None, "a")) for n in range(51)], 400, None),
    ],
)
def test_forms_that_are_refused(server: Server, parts: list[Any], status: int, field: str | None) -> None:
    answer = post(server.url, files=parts)
    assert refused(answer) == (status, "bad_request" if status == 400 else "too_large", field)


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=other"])
def test_forms_that_are_none(server: Server, kind: str) -> None:
    answer = post(server.url, content=b"--b\r\nmessage=hi\r\n", headers={"content-type": kind})
    assert refused(answer)[:2] == (400, "bad_request")


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "undefined", "unicode_escape", "latin-1", '"a\\"b"', "UTF-16", "x" * 9_000, '""']
)
@pytest.mark.parametrize("path", ["/v1/chat/stream", "/v1/turns"])
def test_forms_are_read_as_utf_8_alone(server: Server, path: str, charset: str) -> None:
    form = b'--b\r\nContent-Disposition: form-data; name="message"\r\n\r\n-' + b"zz9a" * 100_000 + b"\r\n--b--\r\n"
    began = time.monotonic()
    for kind in (
        f"multipart/form-data; boundary=b; charset={charset}",
        f"multipart/form-data;CHARSET={charset};boundary=b",
    ):
        answer = httpx.post(f"{server.url}{path}", content=form, headers={"content-type": kind}, trust_env=False)
        assert (answer.status_code, answer.json()["error"]) == (
            415,
            {
                "code": "unsupported_media_type",
                "message": "Send forms in UTF-8: multipart/form-data without a charset, or with charset=utf-8.",
                "field": "content-type",
            },
        )
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", '"utf-8"', "utf8"])
def test_forms_may_say_that_they_are_in_utf_8(server: Server, charset: str) -> None:
    model = Player(["Hello."])
    server.play(model)
    form = '--b\r\nContent-Disposition: form-data; name="message"\r\n\r\nNaïve?\r\n--b--\r\n'.encode()
    kind = f"multipart/form-data; boundary=b; charset={charset}"
    assert post(server.url, content=form, headers={"content-type": kind}).names[-1] == "done"
    assert "Naïve?" in str(model.asked[0][-1])


def test_16_mib_of_a_file_are_allowed() -> None:
    with brain_served(registry(length)) as server:
        server.play(Player(["SPECIALIST_REQUEST[length]"]))
        answer = post(server.url, data={"message": "m"}, files={"file": ("f", b"a" * 16 * MIB)})
    assert [e.data["text"] for e in answer.events if e.name == "specialist_result"] == [
        "1 f application/octet-stream 16777216"
    ]


# The other routes


def test_the_specialists_are_told() -> None:
    made = registry(weather)
    made.add(specialist(name="absent", needs=lambda: "it needs a moon: buy one")(nap.function))
    with brain_served(made) as server:
        listed = httpx.get(f"{server.url}/v1/specialists", trust_env=False).json()
    absent, present = listed["specialists"]
    assert present == {
        "name": "weather",
        "description": "Weather for a city.",
        "version": "",
        "parameters": present["parameters"],
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
    assert list(present["parameters"]["properties"]) == ["city"]
    assert (absent["available"], absent["unavailable_reason"]) == (False, "it needs a moon: buy one")


def test_specialists_that_the_operator_does_not_allow_are_not_told() -> None:
    allowed = settings(ALLOWED_SPECIALISTS="nap")
    made = Registry(allowed)
    made.add(weather)
    made.add(nap)
    with brain_served(made) as server:
        listed = httpx.get(f"{server.url}/v1/specialists", trust_env=False).json()
    assert [one["name"] for one in listed["specialists"]] == ["nap"]


def test_health_and_readiness(server: Server) -> None:
    assert httpx.get(f"{server.url}/healthz", trust_env=False).json() == {"status": "ok"}
    with brain_served(registry(weather)) as own:
        ready = httpx.get(f"{own.url}/readyz", trust_env=False)
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "model": "builtin", "specialists": 1})


def test_on_a_full_disk_turns_stream_to_their_end_and_the_server_is_not_ready(tmp_path: Path) -> None:
    def limit(server: Server, pages: int) -> None:
        store = server.engine.store
        server.on_loop(store._database.outside(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").close()))

    with (
        brain_served(STORE=f"sqlite:{tmp_path / 'brain.db'}") as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client,
    ):
        release = asyncio.Event()
        server.play(Player(["So ", release, "x" * 100_000]))
        turn = client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        limit(server, 1)
        assert client.post("/v1/turns", json={"message": "x" * 100_000}).status_code == 503
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["reason"]) == (503, "There is no room left to keep this.")
        server.loop.call_soon_threadsafe(release.set)
        told = client.get(f"/v1/turns/{turn}/events").text
        assert '"code":"unkept"' in told
        assert "event: done" in told
        limit(server, 1_000_000)
        assert client.get("/readyz").status_code == 200


def test_a_server_whose_model_does_not_answer_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    with brain_served(MODEL="ollama:none", MODEL_URL=url) as server:
        ready = httpx.get(f"{server.url}/readyz", trust_env=False)
        answer = post(server.url, json={"message": "hi"})
    assert ready.status_code == 503
    assert ready.json()["status"] == "unavailable"
    assert url not in ready.text
    assert answer.names[-1] == "error"
    assert answer.last["code"] == "model_unreachable"


# Inside another application


def test_mounted_into_an_application_with_a_life_of_its_own() -> None:
    life: list[str] = []

    @specialist(lifespan=lambda: living())
    async def moody() -> str:
        """Has a life."""
        return "alive"

    @asynccontextmanager
    async def living() -> AsyncIterator[None]:
        life.append("specialist up")
        yield
        life.append("specialist down")

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        life.append("app up")
        yield {"shared": "state"}
        life.append("app down")

    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.state.shared)

    outer = Starlette(routes=[Route("/", hello)], lifespan=own)
    mount(outer, "/brain", settings(KEYS="k:u"), registry(moody))
    headers = {"authorization": "Bearer k"}
    with served(outer) as server, httpx.Client(base_url=server.url, trust_env=False, follow_redirects=True) as client:
        assert life == ["app up", "specialist up"]
        assert client.get("/").text == "state"
        page = client.get("/brain")
        assert page.url.path == "/brain/"
        assert '="/' not in page.text, "its addresses are relative"
        assert client.get("/brain/healthz").status_code == 200
        assert refused(client.get("/brain/v1/specialists")) == (401, "unauthorized", "authorization")
        assert client.get("/brain/v1/specialists", headers=headers).json()["specialists"][0]["name"] == "moody"
        assert refused(client.get("/brain/nothing", headers=headers)) == (404, "not_found", None)
        answer = post(f"{server.url}/brain", json={"message": "hi"}, headers=headers)
        assert answer.names[-1] == "done"
        assert client.get("/v1/specialists").status_code == 404
    assert life == ["app up", "specialist up", "specialist down", "app down"]


def test_an_application_that_was_never_started_says_so() -> None:
    outer = Starlette()
    mount(outer, "/brain", settings(), registry(weather))
    outer.router.lifespan_context = Starlette().router.lifespan_context
    with served(outer) as server:
        assert refused(post(f"{server.url}/brain", json={"message": "hi"})) == (503, "unavailable", None)
        assert refused(httpx.get(f"{server.url}/brain/readyz", trust_env=False)) == (503, "unavailable", None)


def test_what_others_add_to_a_response_stays_with_it() -> None:
    class Marks(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            response = await call_next(request)
            response.set_cookie("session", request.headers["x-user"])
            return response

    outer = Starlette(middleware=[Middleware(Marks)])
    mount(outer, "/brain", settings())
    with served(outer) as server:
        for user in ("one", "two"):
            answer = httpx.post(f"{server.url}/brain/v1/chat/stream", json={"message": "hi"}, headers={"X-User": user})
            assert [value.partition(";")[0] for value in answer.headers.get_list("set-cookie")] == [f"session={user}"]
