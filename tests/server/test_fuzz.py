"""Fuzzing of all routes: each request gets a response in the form of its protocol, never a 500."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from brain_servers import Server, brain_served
from brain_servers import settings as settings_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from limits import WAIT_SECONDS
from sse_events import read
from starlette.routing import Route
from store_helpers import refuse_nul
from turn_helpers import Player, registry_of

from brain import Registry, specialist
from brain.models.model import PassRequest
from brain.server.app import create_app
from brain.store.tx import Tx

EXAMPLES = 24
SECRETS = re.compile(rb"Traceback|site-packages|File \"|object at 0x|/brain/\w+\.py|secret-key")
PARAMETER = re.compile(r"\{\w+(:path)?\}")
CODE = re.compile(r"[a-z][a-z_]*")

TEXT = {"role": "user", "content": "hi"}
PICTURE = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
TOOL = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL_CALL = {"function": {"name": "look", "arguments": {}}}
TOOL_PART = {"type": "dynamic-tool", "toolName": "echo", "toolCallId": "t1", "state": "output-available", "input": {}}

BODIES: Mapping[str, Any] = {
    "/v1/chat/stream": {
        "message": "hi", "conversation_id": "c1", "model": "player", "specialists": ["echo"],
        "attachments": [{"name": "a.txt", "type": "text/plain", "text": "a"}, {"name": "b.bin", "data": "AAAA"}],
        "limits": {"calls": 2, "calls_per_specialist": 1, "turn_seconds": 5, "call_seconds": 1},
        "system": "Be brief.", "syntax": ["bracket"], "time_zone": "Europe/Berlin", "request_id": "r1",
    },
    "/v1/turns": {"message": "hi", "conversation_id": "c2", "request_id": "r2"},
    "/v1/turns/{id}/steer": {"message": "more"},
    "/v1/turns/{id}/approvals/{call_id}": {"approve": True},
    "/v1/session": {"key": "secret-key"},
    "/v1/tasks": {
        "prompt": "hi", "title": "t", "profile": "standard", "when": "2126-01-01T08:00", "every": "FREQ=DAILY;BYHOUR=8",
        "conversation_id": "c1", "tell": "never", "time_zone": "Europe/Berlin", "private": True, "dry_run": True,
    },
    "/v1/chat/completions": {
        "model": "brain",
        "messages": [
            {"role": "system", "content": "Be brief."}, TEXT,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
            {"role": "user", "content": [{"type": "text", "text": "hi"},
                                         {"type": "image_url", "image_url": {"url": PICTURE}}]},
        ],
        "stream": True, "stream_options": {"include_usage": True}, "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": "auto", "stop": ["END"], "max_tokens": 5, "temperature": 0.5, "n": 1,
        "response_format": {"type": "text"}, "user": "me",
    },
    "/api/chat": {
        "model": "brain",
        "messages": [TEXT, {"role": "assistant", "content": "", "tool_calls": [TOOL_CALL]},
                     {"role": "tool", "content": "seen"},
                     {"role": "user", "content": "hi", "images": ["iVBORw0KGgo="]}],
        "stream": True, "think": False, "keep_alive": "5m", "format": "json",
        "options": {"temperature": 0.5, "num_predict": 5, "stop": ["END"]},
        "tools": [{"type": "function", "function": TOOL}],
    },
    "/api/generate": {"model": "brain", "prompt": "hi", "system": "s", "images": [], "options": {}, "stream": False},
    "/api/show": {"model": "brain", "verbose": True},
    "/ai-sdk/chat": {
        "id": "chat1", "trigger": "submit-message", "resumable": False,
        "messages": [
            {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            {"id": "m2", "role": "assistant", "parts": [{"type": "step-start"}, {**TOOL_PART, "output": "a"}]},
            {"id": "m3", "role": "user", "parts": [{"type": "text", "text": "hi"},
                                                   {"type": "file", "mediaType": "image/png", "url": PICTURE}]},
        ],
    },
    "/ag-ui/run": {
        "threadId": "thread1", "runId": "run1", "state": {}, "tools": [TOOL], "forwardedProps": {}, "resume": [],
        "messages": [{"id": "1", "role": "user", "content": "hi"}, {"id": "2", "role": "assistant", "content": "ho"},
                     {"id": "3", "role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "context": [{"description": "d", "value": "v"}],
    },
}  # fmt: skip
"""A valid body for each address that takes one."""

ROUTES = [
    (route.path, method)
    for route in create_app(settings_of(), Registry()).routes
    if isinstance(route, Route)
    for method in sorted(route.methods or ())
    if (route.path, method) != ("/v1/tasks/events", "GET")  # which does not end
]


@specialist(approval=lambda params: True)
async def echo(text: str = "") -> str:
    """Says it again."""
    return text


class Talker(Player):
    """Writes a word, or calls a specialist that needs approval if the message contains `approve`."""

    async def stream(self, request: PassRequest) -> Any:
        is_call = not request.turn_pass and "approve" in request.messages[-1].content
        yield "SPECIALIST_REQUEST[echo]" if is_call else "Hello."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with (
        pytest.MonkeyPatch.context() as patch,
        brain_served(registry_of(echo), TURN_SECONDS=5, APPROVAL_SECONDS=60, TASKS_AT_ONCE=0) as server,
    ):
        refuse_nul(patch)
        server.play(Talker(name="player"))
        yield server
        for run in server.engine.runs.running:
            server.loop.call_soon_threadsafe(run.stop)
        assert server.left() == []


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=WAIT_SECONDS, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def ids(client: httpx.Client) -> dict[str, str]:
    """Two turns: one that has ended, one that waits."""
    over, waits = (client.post("/v1/turns", json={"message": text}).json()["turn_id"] for text in ("hi", "approve"))
    with client.stream("GET", f"/v1/turns/{waits}/events") as response:
        pieces, found = response.iter_text(), ""
        while "approval_required" not in found:
            found += next(pieces)
    return {"over": over, "waits": waits}


@pytest.fixture
def other_process(server: Server) -> Iterator[None]:
    """Another process that may have turns, for which the server looks into the store."""

    def add(tx: Tx) -> None:
        columns = "'other' AS id, '' AS address, until, version"
        tx.execute(f"INSERT INTO process (id, address, until, version) SELECT {columns} FROM process")

    def remove(tx: Tx) -> None:
        tx.execute("DELETE FROM process WHERE id = 'other'")

    store, processes = server.engine.store, server.engine.runs.processes
    assert processes is not None
    server.on_loop(store.write(add))
    server.on_loop(processes.look())
    yield
    server.on_loop(store.write(remove))
    server.on_loop(processes.look())


# What is sent

LONG = "<long>"
"""Stands for a long text, so that reports are short."""
JUNK = {
    "nothing": b"",
    "half": b"{",
    "null": b"null",
    "NaN": b"NaN",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "twice": b'{"message":"a","message":"b"}',
    "too large a number": b'{"message": 1e999}',
    "half a character": b'{"message": "\\ud800"}',
    "no UTF-8": b'\xff\xfe{"message": "a"}',
    "UTF-16": '{"message": "a"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"message": "a"}',
}
texts = st.text(max_size=20) | st.sampled_from(
    ["", " ", "\0", "\ud800", "\u2028", "‮", "a" * 70, LONG, "../..", "%00", "{}", "[" * 500, "null"]
)
numbers = st.integers() | st.sampled_from([-1, 0, 2**31, 2**63, 10**40])
values = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
content_types = st.sampled_from(
    ["application/json", "application/json; charset=utf-16", "text/plain", "multipart/form-data", "", "a", "/", ";",
     "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "APPLICATION/JSON", "application/json\t;"]
)  # fmt: skip
headers = st.dictionaries(
    st.sampled_from(
        ["last-event-id", "origin", "sec-fetch-site", "sec-fetch-mode", "referer", "authorization", "cookie", "accept",
         "x-conversation-id", "traceparent", "accept-encoding", "range", "if-none-match", "x-forwarded-for",
         "x-api-key", "x-vercel-ai-sdk-version", "user-agent"]
    ),
    st.sampled_from([b"", b"-1", b"t0123456789abcdef.1", b"\xff", b"a" * 5_000, b"*/*;q=x", b"bytes=0-", b"1, 2"])
    | st.binary(max_size=20).map(lambda value: bytes(byte for byte in value if byte > 31 and byte != 127).strip()),
    max_size=3,
)  # fmt: skip
queries = st.dictionaries(
    st.sampled_from(["message", "replace_from", "conversation_id", "after", "limits", "specialists"]) | texts,
    texts,
    max_size=3,
)
names = st.sampled_from(["over", "waits", "c1", "a/b", "..", ".", "\udcff"]) | texts
"""Values of parameters in addresses; the first two become existing turns."""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all parts of a JSON value."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*at, key))


@st.composite
def spoiled(draw: st.DrawFn, valid: Any) -> Any:
    """A body that is nearly valid."""
    body = copy.deepcopy(valid)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.sampled_from([*places(body)]))
        what = draw(st.sampled_from(["replace", "leave out", "add", "twice"]))
        if not at:
            body = draw(values) if what == "replace" else body
            continue
        inner = body
        for key in at[:-1]:
            inner = inner[key]
        if what == "replace":
            inner[at[-1]] = draw(values)
        elif what == "leave out":
            del inner[at[-1]]
        elif isinstance(inner, list):
            inner.insert(at[-1], inner[at[-1]] if what == "twice" else draw(values))
        else:
            inner[draw(texts)] = inner[at[-1]] if what == "twice" else draw(values)
    return body


def grow(text: str, length: int) -> str:
    return text.replace(LONG, "a" * length)


def as_utf8(text: str, length: int = 3_000) -> bytes:
    return grow(text, length).encode(errors="replace")


def send(client: httpx.Client, method: str, path: str, name: str, ids: Mapping[str, str], **options: Any) -> None:
    """Send a request to an address of this path, and check the answer."""
    if path.endswith("/events") and name == "waits":
        name = "over"  # the stream of the other one does not end
    value = ids.get(name, grow(name, 3_000))
    check(client.request(method, PARAMETER.sub(lambda _: quote(value, safe="/", errors="replace"), path), **options))


# Responses


def is_error(path: str, answer: httpx.Response) -> bool:
    """Whether it is an error in the form of the address's protocol."""
    if path.startswith("/ai-sdk/"):
        return answer.headers["content-type"] == "text/plain; charset=utf-8" and len(answer.text) > 5
    body = answer.json()
    if path.startswith("/api/"):
        return set(body) == {"error"} and len(body["error"]) > 5
    if path.startswith("/ag-ui/"):
        return set(body) == {"type", "message", "code"} and body["type"] == "RUN_ERROR"
    error = body["error"]
    if path.startswith(("/v1/chat/completions", "/v1/models")):
        return set(error) == {"message", "type", "param", "code"} and len(error["message"]) > 5
    fields = set(error) - {"field", "task_id"}
    return fields == {"code", "message"} and CODE.fullmatch(error["code"]) is not None and len(error["message"]) > 5


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500, (answer.status_code, answer.text)
    assert SECRETS.search(answer.content) is None
    if answer.request.method == "HEAD":
        assert answer.content == b""
    elif answer.status_code >= 400:
        assert is_error(answer.request.url.path, answer), (answer.status_code, answer.headers, answer.text)
        assert answer.status_code != 405 or answer.headers["allow"]
    elif answer.headers.get("content-type", "").startswith("text/event-stream"):
        read(answer.content)  # which is strict
    elif answer.headers.get("content-type", "") == "application/json":
        answer.json()


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_arbitrary_requests(client: httpx.Client, ids: dict[str, str], path: str, method: str) -> None:
    @examples(EXAMPLES if path in BODIES else EXAMPLES // 4)
    @given(
        name=names,
        content=st.binary(max_size=50) | st.sampled_from([*JUNK]),
        kind=content_types,
        head=headers,
        query=queries,
    )
    def test(name: str, content: str | bytes, kind: str, head: dict[str, Any], query: dict[str, str]) -> None:
        options: dict[str, Any] = {"params": {as_utf8(key, 99): as_utf8(text) for key, text in query.items()}}
        if method not in ("GET", "HEAD"):
            options["content"] = JUNK[content] if isinstance(content, str) else content
            head = {**head, "content-type": kind}
        send(client, method, path, name, ids, headers=head, **options)

    test()


@pytest.mark.parametrize("path", BODIES)
def test_bodies_that_are_nearly_valid(client: httpx.Client, ids: dict[str, str], path: str) -> None:
    @examples(EXAMPLES * 2)
    @given(name=names, body=spoiled(BODIES[path]), head=headers)
    def test(name: str, body: Any, head: dict[str, Any]) -> None:
        content = grow(json.dumps(body), 300_000).encode()
        send(client, "POST", path, name, ids, content=content, headers={**head, "content-type": "application/json"})

    test()


@pytest.mark.parametrize("path", BODIES)
def test_nul_characters_in_bodies(client: httpx.Client, ids: dict[str, str], path: str) -> None:
    for at in places(BODIES[path]):
        body = inner = copy.deepcopy(BODIES[path])
        for key in at[:-1]:
            inner = inner[key]
        if at and isinstance(inner[at[-1]], str):
            inner[at[-1]] += "\0"
            send(client, "POST", path, "over", ids, json=body)


@pytest.mark.parametrize(("path", "method"), [one for one in ROUTES if one[1] in ("GET", "DELETE", "PATCH")])
@pytest.mark.usefixtures("other_process")
def test_nul_characters_in_addresses(client: httpx.Client, ids: dict[str, str], path: str, method: str) -> None:
    for name in ("before", "q", "after", "state", "conversation_id", "message", "replace_from"):
        send(client, method, path, "a\0", ids, params={name: "\0"})


def test_forms_that_are_nearly_valid(client: httpx.Client) -> None:
    fields = st.dictionaries(st.sampled_from([*BODIES["/v1/chat/stream"]]) | texts, texts, max_size=4)
    files = st.lists(st.tuples(st.sampled_from(["file", "image"]), texts, st.binary(max_size=30)), max_size=3)

    @examples(EXAMPLES * 2)
    @given(form=fields, attached=files)
    def test(form: dict[str, str], attached: list[tuple[str, str, bytes]]) -> None:
        data = {as_utf8(key, 6).decode(): as_utf8(text, 6).decode() for key, text in {"message": "hi", **form}.items()}
        parts = [(name, (as_utf8(title, 6).decode(), content)) for name, title, content in attached]
        check(client.post("/v1/chat/stream", data=data, files=parts or [("file", ("a", b"a"))]))

    test()


@pytest.mark.parametrize("path", BODIES)
def test_valid_bodies_are_accepted(client: httpx.Client, ids: dict[str, str], path: str) -> None:
    """So that the others are nearly valid."""
    answer = client.post(path.replace("{id}", ids["over"]).replace("{call_id}", "c1"), json=BODIES[path])
    expected = {"/v1/turns": 201, "/v1/turns/{id}/steer": 410, "/v1/turns/{id}/approvals/{call_id}": 410}
    assert answer.status_code == expected.get(path, 200), answer.text
