"""Whatever clients send, to whichever address: an answer comes, in the words of its protocol, and never a 500."""

import asyncio
import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from eventsource import read
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from serving import Player, Server, brain_served
from serving import settings as settings_of
from starlette.routing import Route

from brain import Context, Registry, specialist
from brain.messages import Message
from brain.server.app import create_app
from brain.turn_request import UNSAID, Sampling

SECONDS = 30.0
"""What any answer may take: a turn of these tests says one word."""
EXAMPLES = 24
SECRETS = re.compile(rb"Traceback|site-packages|File \"|object at 0x|/brain/\w+\.py|secret-key")
PLACE = re.compile(r"\{\w+(:path)?\}")
CODE = re.compile(r"[a-z][a-z_]*")

TEXT = {"role": "user", "content": "hi"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
TOOL = {
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
CALLED = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}

SENT: Mapping[str, Any] = {
    "/v1/chat/stream": {
        "message": "hi",
        "conversation_id": "c1",
        "attachments": [{"name": "a.txt", "type": "text/plain", "text": "a"}, {"name": "b.bin", "data": "AAAA"}],
        "model": "player",
        "specialists": ["echo"],
        "limits": {"calls": 2, "calls_per_specialist": 1, "turn_seconds": 5, "call_seconds": 1},
        "system": "Be brief.",
        "syntax": ["bracket"],
        "time_zone": "Europe/Berlin",
        "request_id": "r1",
    },
    "/v1/turns": {"message": "hi", "conversation_id": "c2", "request_id": "r2"},
    "/v1/turns/{id}/steer": {"message": "more"},
    "/v1/turns/{id}/approvals/{call_id}": {"approve": True},
    "/v1/session": {"key": "secret-key"},
    "/v1/chat/completions": {
        "model": "brain",
        "messages": [
            {"role": "system", "content": "Be brief."},
            TEXT,
            {"role": "assistant", "content": None, "tool_calls": [CALLED]},
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, PICTURE]},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": "auto",
        "stop": ["END"],
        "max_tokens": 5,
        "temperature": 0.5,
        "n": 1,
        "response_format": {"type": "text"},
        "user": "me",
    },
    "/api/chat": {
        "model": "brain",
        "messages": [
            TEXT,
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]},
            {"role": "tool", "content": "seen"},
            {"role": "user", "content": "hi", "images": ["iVBORw0KGgo="]},
        ],
        "stream": True,
        "think": False,
        "keep_alive": "5m",
        "options": {"temperature": 0.5, "num_predict": 5, "stop": ["END"]},
        "format": "json",
        "tools": [{"type": "function", "function": TOOL}],
    },
    "/api/generate": {"model": "brain", "prompt": "hi", "system": "s", "images": [], "options": {}, "stream": False},
    "/api/show": {"model": "brain", "verbose": True},
    "/ai-sdk/chat": {
        "id": "chat1",
        "messages": [
            {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
            {"id": "m2", "role": "assistant", "parts": [
                {"type": "step-start"},
                {"type": "dynamic-tool", "toolName": "echo", "toolCallId": "t1", "state": "output-available",
                 "input": {}, "output": "a"},
            ]},
            {"id": "m3", "role": "user", "parts": [
                {"type": "text", "text": "hi"},
                {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="},
            ]},
        ],
        "trigger": "submit-message",
        "resumable": False,
    },
    "/ag-ui/run": {
        "threadId": "thread1",
        "runId": "run1",
        "state": {},
        "messages": [{"id": "1", "role": "user", "content": "hi"}, {"id": "2", "role": "assistant", "content": "ho"},
                     {"id": "3", "role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "tools": [TOOL],
        "context": [{"description": "d", "value": "v"}],
        "forwardedProps": {},
        "resume": [],
    },
}  # fmt: skip
"""A body that is right, for each address that wants one."""

ADDRESSES = [
    (route.path, method)
    for route in create_app(settings_of(), Registry()).routes
    if isinstance(route, Route)
    for method in sorted(route.methods or {"GET", "POST", "DELETE"})
]


def asks(params: Mapping[str, Any]) -> bool:
    return True


@specialist(approval=asks)
async def echo(text: str = "", *, context: Context) -> str:
    """Says it again."""
    return text


class Talker(Player):
    """Says a word; calls a specialist that needs an approval when it is told to."""

    async def stream(self, messages: "list[Message] | Any", turn_pass: int = 0, sampling: Sampling = UNSAID) -> Any:
        if not turn_pass and "approve" in messages[-1].content:
            yield "SPECIALIST_REQUEST[echo]"
            await asyncio.sleep(0)
        else:
            yield "Hello."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    registry = Registry()
    registry.add(echo)
    with brain_served(registry, TURN_SECONDS=5, APPROVAL_SECONDS=60) as server:
        server.play(Talker(name="player"))
        yield server
        for run in server.engine.turns.running:
            server.loop.call_soon_threadsafe(run.stop)
        assert server.left(2.0) == []


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=SECONDS, trust_env=False) as made:
        yield made


@pytest.fixture(scope="module")
def ids(client: httpx.Client) -> dict[str, str]:
    """Turns that are there: one that is over, one that waits."""
    over, waits = (client.post("/v1/turns", json={"message": text}).json()["turn_id"] for text in ("hi", "approve"))
    with client.stream("GET", f"/v1/turns/{waits}/events") as response:
        pieces, found = response.iter_text(), ""
        while "approval_required" not in found:
            found += next(pieces)
    return {"over": over, "waits": waits}


# What is sent

LONG = "<long>"
"""Stands for a text that is long, so that reports are not."""

strange_texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", " ", "\0", "\ud800", "\u2028", "‮", "a" * 70, LONG, "../..", "%00", "{}", "[" * 500, "null"]),
)
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([-1, 0, 2**31, 2**63, 10**40]),
        st.floats(allow_nan=False, allow_infinity=False),
        strange_texts,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(strange_texts, inner, max_size=3)),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*at, key))


@st.composite
def spoiled(draw: st.DrawFn, right: Any) -> Any:
    """A body that is nearly right."""
    body = copy.deepcopy(right)
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
            inner[draw(strange_texts)] = inner[at[-1]] if what == "twice" else draw(values)
    return body


def grown(text: str, length: int = 300_000) -> str:
    return text.replace(LONG, "a" * length)


def as_bytes(body: Any) -> bytes:
    return grown(json.dumps(body)).encode()


JUNK = {
    "nothing": b"",
    "half": b"{",
    "null": b"null",
    "number": b"NaN",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "twice": b'{"message":"a","message":"b"}',
    "too large a number": b'{"message": 1e999}',
    "half a character": b'{"message": "\\ud800"}',
    "no UTF-8": b'\xff\xfe{"message": "a"}',
    "UTF-16": '{"message": "a"}'.encode("utf-16"),
    "a mark": b'\xef\xbb\xbf{"message": "a"}',
}
junk = st.one_of(st.binary(max_size=50), st.sampled_from(list(JUNK)))
content_types = st.sampled_from(
    ["application/json", "application/json; charset=utf-16", "text/plain", "multipart/form-data", "", "a", "/", ";",
     "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "APPLICATION/JSON", "application/json\t;"]
)  # fmt: skip
header_values = st.one_of(
    st.sampled_from(
        [b"", b"-1", b"t0123456789abcdef.1", b"\xff", b"a" * 5_000, b"*/*;q=x", b"bytes=0-", b"null", b"1, 2"]
    ),
    st.binary(max_size=20).map(lambda value: bytes(byte for byte in value if byte > 31 and byte != 127).strip()),
)
headers = st.dictionaries(
    st.sampled_from(
        ["last-event-id", "origin", "sec-fetch-site", "sec-fetch-mode", "referer", "authorization", "cookie", "accept",
         "x-conversation-id", "traceparent", "accept-encoding", "range", "if-none-match", "x-forwarded-for",
         "x-api-key", "x-vercel-ai-sdk-version", "user-agent"]
    ),
    header_values,
    max_size=3,
)  # fmt: skip
queries = st.dictionaries(
    st.one_of(
        st.sampled_from(["message", "replace_from", "conversation_id", "after", "limits", "specialists"]),
        strange_texts,
    ),
    strange_texts,
    max_size=3,
)


# What is answered


def is_refusal(path: str, answer: httpx.Response) -> bool:
    """Whether it is one in the words of the address's protocol."""
    if answer.request.method == "HEAD":
        return answer.content == b""
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
    assert set(error) <= {"code", "message", "field"}
    return CODE.fullmatch(error["code"]) is not None and len(error["message"]) > 5


def judge(answer: httpx.Response) -> None:
    """Whether it is an answer that was promised."""
    method, path = answer.request.method, answer.request.url.path
    assert answer.status_code < 500, (answer.status_code, answer.text)
    assert SECRETS.search(answer.content) is None
    if answer.status_code >= 400:
        assert is_refusal(path, answer), (answer.status_code, answer.headers, answer.text)
        assert answer.status_code != 405 or answer.headers["allow"]
    elif method == "HEAD":
        assert answer.content == b""
    elif answer.headers.get("content-type", "").startswith("text/event-stream"):
        read(answer.content)  # which is strict
    elif answer.headers.get("content-type", "") == "application/json":
        answer.json()


names = st.one_of(
    st.sampled_from(["over", "waits", "c1"]),
    strange_texts,
    st.sampled_from(["a/b", "..", ".", "\udcff"]),
)
"""What stands in an address where a name is wanted; the first two are turns that are there."""


def sent(client: httpx.Client, method: str, path: str, name: str, ids: Mapping[str, str], **options: Any) -> None:
    """Sends it to one of the addresses that this path may mean."""
    if path.endswith("/events") and name == "waits":
        name = "over"  # the other one is told of for as long as it waits
    place = PLACE.sub(lambda _: quote(ids.get(name, grown(name, 3_000)), safe="/", errors="replace"), path)
    judge(client.request(method, place, **options))


def quickly(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=SECONDS * 1_000,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize(("path", "method"), ADDRESSES)
def test_whatever_is_sent(server: Server, client: httpx.Client, ids: dict[str, str], path: str, method: str) -> None:
    @quickly(EXAMPLES if path in SENT else EXAMPLES // 4)
    @given(name=names, content=junk, kind=content_types, head=headers, query=queries)
    def check(name: str, content: str | bytes, kind: str, head: dict[str, bytes], query: dict[str, str]) -> None:
        data = JUNK[content] if isinstance(content, str) else content
        more: dict[str, Any] = {"content": data} if method not in ("GET", "HEAD") else {}
        sends = {**head, **({"content-type": kind.encode()} if more else {})}
        asked = {
            grown(name, 99).encode(errors="replace"): grown(text, 3_000).encode(errors="replace")
            for name, text in query.items()
        }
        sent(client, method, path, name, ids, headers=sends, params=asked, **more)

    check()


@pytest.mark.parametrize("path", SENT)
def test_bodies_that_are_nearly_right(server: Server, client: httpx.Client, ids: dict[str, str], path: str) -> None:
    @quickly(EXAMPLES * 2)
    @given(name=names, body=spoiled(SENT[path]), head=headers)
    def check(name: str, body: Any, head: dict[str, bytes]) -> None:
        sends = {**head, "content-type": b"application/json"}
        sent(client, "POST", path, name, ids, content=as_bytes(body), headers=sends)

    check()


def test_forms_that_are_nearly_right(server: Server, client: httpx.Client) -> None:
    fields = st.dictionaries(
        st.one_of(st.sampled_from([*SENT["/v1/chat/stream"]]), strange_texts), strange_texts, max_size=4
    )
    files = st.lists(st.tuples(st.sampled_from(["file", "image"]), strange_texts, st.binary(max_size=30)), max_size=3)

    @quickly(EXAMPLES * 2)
    @given(form=fields, attached=files)
    def check(form: dict[str, str], attached: list[tuple[str, str, bytes]]) -> None:
        form = {"message": "hi", **form}
        parts = [(name, (title, data)) for name, title, data in attached]
        plain = {
            name.encode(errors="replace").decode(): text.encode(errors="replace").decode()
            for name, text in form.items()
        }
        more: Any = [(name, (title.encode(errors="replace").decode()[:100], data)) for name, (title, data) in parts]
        judge(client.post("/v1/chat/stream", data=plain, files=more or {"file": ("a", b"a")}))

    check()


@pytest.mark.parametrize("path", SENT)
def test_what_is_right_is_answered(client: httpx.Client, ids: dict[str, str], path: str) -> None:
    """So that the others are only nearly right."""
    place = path.replace("{id}", ids["over"]).replace("{call_id}", "c1")
    answer = client.post(place, json=SENT[path])
    expected = {"/v1/turns": 201, "/v1/turns/{id}/steer": 410, "/v1/turns/{id}/approvals/{call_id}": 410}
    assert answer.status_code == expected.get(path, 200), answer.text
