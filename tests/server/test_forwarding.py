"""Requests about turns of other processes: what the owner gets, what the client gets, and who may forward."""

import asyncio
import hmac
import json
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from brain_servers import Player, Process, Server, brain_served, client_of, problem, settings
from limits import WAIT_SECONDS
from peers import SECRET, Peers, send_elsewhere
from sse_events import events as messages
from starlette.types import Message, Scope
from turn_helpers import registry_of

from brain import specialist
from brain.errors import RunsElsewhere
from brain.plugins.registry import Registry
from brain.runtime.engine import Engine
from brain.server.admission import ConnectionLimits
from brain.server.event_stream import WRITE_EXTENSION
from brain.server.forwarding import ABORT_EXTENSION, Forwarding, RecordedBody
from brain.server.routes import requests

NOW = 1_800_000_000.0
CHUNKED = b"HTTP/1.1 200 OK\r\nDate: then\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM = CHUNKED + b"5\r\nHello\r\n7;x=y\r\n, \xe2\x98\x83 w\r\n9\r\n\r\n\r\n0\r\n\r\n\r\n0\r\nX: trailer\r\n\r\n"
STREAM_BODY = b"Hello, \xe2\x98\x83 w\r\n\r\n0\r\n\r\n"
PLAIN = b'HTTP/1.1 404 Not Found\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 9\r\n\r\n{"a": 1}\n'
NO_CONTENT = b"HTTP/1.1 204 No Content\r\ncache-control: no-store\r\nkeep-alive: 5\r\n\r\n"
TURN = "t0123456789abcdef"
KEYS = "a-key:ann,b-key:Zoë ☃;/%"
EVENTS = f"/v1/turns/{TURN}/events"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for an owner for seconds."""
    monkeypatch.setattr(requests, "OWNER_SECONDS", 0.3)


# Any response, in any pieces


class Client:
    """An ASGI client: what it was sent, and when it disconnects."""

    def __init__(self, *body: bytes) -> None:
        self.body = [*body]
        self.sent: list[Message] = []
        self.disconnected = asyncio.Event()
        self.has_body = asyncio.Event()
        self.on_send: Callable[[Message], Awaitable[None]] | None = None

    async def receive(self) -> Message:
        if self.body:
            return {"type": "http.request", "body": self.body.pop(0), "more_body": bool(self.body)}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.has_body.set()
        if self.on_send is not None:
            await self.on_send(message)

    @property
    def response(self) -> tuple[int, list[tuple[bytes, bytes]], bytes, bool]:
        start, *rest = self.sent
        body = b"".join(message["body"] for message in rest)
        return start["status"], start["headers"], body, not rest[-1]["more_body"]


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Forward:
    """Forwards a request to a scripted owner."""

    def __init__(self, folder: Path, method: str = "GET", headers: Mapping[str, str] | None = None) -> None:
        self.path = folder / "owner.sock"
        self.peers = Peers()
        self.connections = ConnectionLimits(100, 100)
        self.counts: list[int] = []
        self.client = Client(b"")
        self.scope: Scope = {
            "type": "http",
            "method": method,
            "path": "/v1/turns/t1/events",
            "raw_path": b"/v1/turns/t1/events",
            "query_string": b"after=3",
            "scheme": "https",
            "client": ("203.0.113.9", 50000),
            "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        self.request = b""
        engine = Engine(settings(), Registry())
        engine.runs.processes = self.peers
        self.forwarding = Forwarding(engine, self.connections, self.counts.append)

    async def run(self, script: Script, address: str = "") -> bool:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                self.request = await reader.readuntil(b"\r\n\r\n")
                with suppress(ConnectionError):
                    await script(reader, writer)
            finally:
                writer.close()

        owner = RunsElsewhere("owner", address or f"unix:{self.path}")
        body = RecordedBody(self.client.receive)
        async with await asyncio.start_unix_server(connected, self.path):
            return await self.forwarding.forward(self.scope, body, self.client.send, "ann", owner)


def in_pieces(*pieces: bytes) -> Script:
    async def write(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            for _ in range(4):  # the forwarder reads each piece on its own
                await asyncio.sleep(0)
        await reader.read()  # until the forwarder closes

    return write


EVENT_STREAM = [(b"content-type", b"text/event-stream")]
RESPONSES: Mapping[str, tuple[str, bytes, tuple[int, list[tuple[bytes, bytes]], bytes, bool]]] = {
    "chunks": ("GET", STREAM, (200, EVENT_STREAM, STREAM_BODY, True)),
    "length": (
        "POST",
        PLAIN,
        (404, [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"content-length", b"9")], b'{"a": 1}\n', True),
    ),
    "no content": ("GET", NO_CONTENT, (204, [(b"cache-control", b"no-store")], b"", True)),
    "not modified": ("GET", b'HTTP/1.1 304 Not Modified\r\netag: "x"\r\n\r\n', (304, [(b"etag", b'"x"')], b"", True)),
    "HEAD of a length": (
        "HEAD",
        b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n",
        (200, [(b"content-length", b"900")], b"", True),
    ),
    "HEAD of a stream": ("HEAD", CHUNKED, (200, EVENT_STREAM, b"", True)),
    "interim": ("GET", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + STREAM, (200, EVENT_STREAM, STREAM_BODY, True)),
    "empty": ("POST", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", (200, [(b"content-length", b"0")], b"", True)),
    "named by Connection": (
        "GET",
        b"HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nx-hop: 1\r\nx-end: 2\r\ncontent-length: 1\r\n\r\na",
        (200, [(b"x-end", b"2"), (b"content-length", b"1")], b"a", True),
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", RESPONSES)
async def test_a_response_cut_anywhere_is_passed_on_unchanged(tmp_path: Path, name: str) -> None:
    method, data, expected = RESPONSES[name]
    for cut in range(1, len(data)):
        forward = Forward(tmp_path, method)
        assert await forward.run(in_pieces(data[:cut], data[cut:]))
        assert forward.client.response == expected
    forward = Forward(tmp_path, method)
    assert await forward.run(in_pieces(*(data[n : n + 1] for n in range(len(data)))))
    assert forward.client.response == expected


@pytest.mark.anyio
async def test_a_large_body_waits_for_a_client_that_reads_slowly(tmp_path: Path) -> None:
    part = bytes(range(256)) * 256
    sent, waiting = 0, asyncio.Event()

    async def write(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (500 * len(part)))
        for _ in range(500):
            writer.write(part)
            sent += len(part)
            drain = asyncio.ensure_future(writer.drain())
            if not (await asyncio.wait({drain}, timeout=0.2))[0]:
                waiting.set()  # the client has read nothing, and the forwarder no more
            await drain

    async def read_later(message: Message) -> None:
        if message.get("body"):
            await waiting.wait()

    forward = Forward(tmp_path)
    forward.client.on_send = read_later
    running = asyncio.ensure_future(forward.run(write))
    await waiting.wait()
    assert sent < 4_000_000
    assert await running
    status, _, body, is_complete = forward.client.response
    assert (status, is_complete) == (200, True)
    assert body == part * 500


@pytest.mark.anyio
async def test_tokens_are_written_without_waking_a_task(tmp_path: Path) -> None:
    written: asyncio.Queue[bytes] = asyncio.Queue()

    def write(data: bytes) -> bool:
        if forward.client.has_body.is_set():
            written.put_nowait(data)
        return forward.client.has_body.is_set()

    async def tokens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"1\r\na\r\n")
        await forward.client.has_body.wait()
        for token in (b"b", b"c", b"d"):
            writer.write(b"1\r\n%b\r\n" % token)
            assert await written.get() == token
        writer.write(b"0\r\n\r\n")

    forward = Forward(tmp_path)
    forward.scope["extensions"] = {WRITE_EXTENSION: write}
    assert await forward.run(tokens)
    assert [message.get("body") for message in forward.client.sent] == [None, b"a", b""]


# The request, and ends before the response


@pytest.mark.anyio
async def test_the_owner_gets_the_request_with_the_client_it_came_from(tmp_path: Path) -> None:
    sent = {
        "host": "brain.example",
        "authorization": "Bearer a-key",
        "cookie": "brain_session=x",
        "origin": "https://brain.example",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "te": "trailers",
        "x-forwarded-for": "1.1.1.1",
        "x-forwarded-proto": "ftp",
        "x-forwarded-host": "evil.example",
        "x-real-ip": "1.1.1.1",
        "forwarded": "for=1.1.1.1",
        "traceparent": "00-1",
        "last-event-id": "t1.3",
        "bad": "a\r\nx-injected: 1",
    }
    forward = Forward(tmp_path, headers=sent)
    forward.scope.update({"root_path": "/brain", "path": "/brain/v1/turns/t1/events"})
    forward.scope["raw_path"] = b"/brain/v1/turns/t1/events"
    assert await forward.run(in_pieces(PLAIN))
    line, *lines = forward.request.decode().split("\r\n")[:-2]
    headers = dict(header.split(": ", 1) for header in lines)
    signature = headers.pop("brain-forwarded").split(";")
    assert line == "GET /v1/turns/t1/events?after=3 HTTP/1.1"
    assert headers == {
        "host": "brain.example",
        "traceparent": "00-1",
        "last-event-id": "t1.3",
        "x-forwarded-for": "203.0.113.9",
        "x-forwarded-proto": "https",
        "x-forwarded-prefix": "/brain",
        "connection": "close",
    }
    assert signature[:4] == ["1", "here", "ann", "1800000000000"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "framed"),
    [
        ({"content-length": "7"}, b"onetwo!"),
        ({"transfer-encoding": "chunked"}, b"3\r\none\r\n3\r\ntwo\r\n1\r\n!\r\n0\r\n\r\n"),
        ({"content-length": "7", "connection": "Content-Length, host"}, b"onetwo!"),
        ({}, b"3\r\none\r\n3\r\ntwo\r\n1\r\n!\r\n0\r\n\r\n"),
    ],
    ids=["length", "chunks", "connection", "HTTP/2"],
)
async def test_a_body_keeps_its_framing(tmp_path: Path, headers: Mapping[str, str], framed: bytes) -> None:
    got = b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        got = await reader.readexactly(len(framed))
        writer.write(PLAIN)

    forward = Forward(tmp_path, "POST", headers)
    forward.client.body = [b"one", b"", b"two", b"!"]
    assert await forward.run(answer)
    assert got == framed
    assert (b"content-length: 7" in forward.request) != (b"transfer-encoding: chunked" in forward.request)


@pytest.mark.anyio
async def test_an_early_response_ends_a_body_that_is_not_read(tmp_path: Path) -> None:
    forward = Forward(tmp_path, "POST", {"transfer-encoding": "chunked"})
    forward.client.body = [b"x" * 100_000] * 1000

    async def reject(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(PLAIN)
        await writer.drain()
        await asyncio.sleep(0.1)

    assert await forward.run(reject)
    assert forward.client.response[0] == 404
    assert len(forward.client.body) > 900


async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pass


@pytest.mark.anyio
@pytest.mark.parametrize(
    "script",
    [
        close,
        in_pieces(b"HTTP/1.1 421 Misdirected Request\r\ncontent-length: 2\r\n\r\n{}"),
        in_pieces(b"garbage\r\n\r\n"),
    ],
    ids=["closed", "421", "garbage"],
)
async def test_nothing_is_sent_if_the_owner_does_not_answer(tmp_path: Path, script: Script) -> None:
    forward = Forward(tmp_path)
    assert not await forward.run(script)
    assert forward.client.sent == []
    assert forward.connections.open_count == 0


@pytest.mark.anyio
async def test_nothing_is_sent_if_nobody_listens(tmp_path: Path) -> None:
    for address in (f"unix:{tmp_path}/nobody", f"unix:{tmp_path}/{'x' * 200}", "http://127.0.0.1:1"):
        forward = Forward(tmp_path)
        assert not await forward.run(close, address)
        assert forward.client.sent == []


@pytest.mark.anyio
async def test_a_head_is_awaited_as_long_as_the_lease(tmp_path: Path) -> None:
    async def freeze(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        forward.peers.lost("owner").set()
        await reader.read()

    forward = Forward(tmp_path)
    assert not await forward.run(freeze)
    assert forward.client.sent == []


# Ends in the middle of a response


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["death", "lease", "garbage"])
@pytest.mark.parametrize("has_extension", [True, False])
async def test_the_client_of_a_lost_owner_is_aborted(tmp_path: Path, end: str, has_extension: bool) -> None:
    async def lose(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"3\r\none\r\n")
        await forward.client.has_body.wait()
        if end == "lease":
            forward.peers.lost("owner").set()
        if end == "garbage":
            writer.write(b"no chunk")
        if end != "death":
            await reader.read()  # until the forwarder closes

    forward = Forward(tmp_path)
    if has_extension:
        forward.scope["extensions"] = {ABORT_EXTENSION: forward.client.disconnected.set}
        assert await forward.run(lose)
        assert forward.client.disconnected.is_set()
    else:
        with pytest.raises(ConnectionError):
            await forward.run(lose)
    status, _, body, is_complete = forward.client.response
    assert (status, body, is_complete) == (200, b"one", False)
    assert forward.counts == [1, 0]


@pytest.mark.anyio
@pytest.mark.parametrize("head", [b"", CHUNKED + b"3\r\none\r\n"], ids=["before the head", "after it"])
async def test_the_owner_sees_the_disconnect_of_the_client(tmp_path: Path, head: bytes) -> None:
    has_ended = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        if head:
            await forward.client.has_body.wait()
        forward.client.disconnected.set()
        with suppress(ConnectionError):
            assert await reader.read() == b""
        has_ended.set()

    forward = Forward(tmp_path)
    assert await forward.run(stream)
    await has_ended.wait()
    assert forward.counts == [1, 0]


# Signatures


def signed(
    target: str,
    method: str = "GET",
    user: str = "ann",
    *,
    version: str = "1",
    at: float = NOW,
    nonce: str = "n",
    secret: bytes = SECRET,
) -> str:
    """The header as another process makes it."""
    fields = f"{version};there;{quote(user, safe='')};{round(at * 1000)};{nonce}"
    text = f"{method}\n{target}\n{fields}".encode()
    return f"{fields};{hmac.digest(secret, text, 'sha256').hex()}"


def owner_request(server: Server, target: str, signature: str, method: str = "GET") -> httpx.Response:
    headers = {"brain-forwarded": signature, "x-forwarded-proto": "http", "x-forwarded-prefix": "", "host": "elsewhere"}
    return httpx.request(method, f"{server.url}{target}", headers=headers, timeout=WAIT_SECONDS, trust_env=False)


@pytest.fixture(scope="module")
def owner() -> Iterator[Server]:
    with brain_served(registry_of(letter), STORE="memory:", KEYS=KEYS) as server:
        yield server


@pytest.fixture
def peers(owner: Server) -> Peers:
    found = owner.engine.runs.processes = Peers("owner")
    return found


def test_a_signature_is_valid_once_and_for_a_minute(owner: Server, peers: Peers) -> None:
    target = "/v1/conversations?limit=1"
    first = signed(target)
    assert owner_request(owner, target, first).status_code == 200
    assert owner_request(owner, target, first).status_code == 403
    for difference, status in ((-60, 200), (60, 200), (-60.001, 403), (60.001, 403)):
        at = signed(target, at=NOW + difference, nonce=f"at {difference}")
        assert owner_request(owner, target, at).status_code == status
    peers.now += 119
    late = signed(target, at=NOW + 60)
    assert owner_request(owner, target, late).status_code == 403, "the nonce is still known"
    early = signed(target, at=NOW + 60, nonce="early")
    assert owner_request(owner, target, early).status_code == 200
    assert owner_request(owner, target, early).status_code == 403


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "1",
        "1;;;;;",
        signed("/v1/turns", nonce="a"),
        signed("/v1/conversations?limit=2", nonce="b"),
        signed("/v1/conversations", "POST", nonce="c"),
        signed("/v1/conversations", secret=b"another", nonce="d"),
        signed("/v1/conversations", version="2", nonce="e"),
        signed("/v1/conversations", nonce="f").replace(";ann;", ";bob;"),
        signed("/v1/conversations", nonce="g")[:-1],
        signed("/v1/conversations", nonce="h") + "\xff",
    ],
)
def test_a_wrong_signature_is_forbidden(owner: Server, peers: Peers, signature: str) -> None:
    with socket.create_connection(("127.0.0.1", owner.port)) as connection:
        headers = f"host: localhost\r\nauthorization: Bearer a-key\r\nbrain-forwarded: {signature}\r\n"
        head = f"GET /v1/conversations HTTP/1.1\r\n{headers}connection: close\r\n\r\n"
        connection.sendall(head.encode("latin-1"))
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 403 ")


def test_two_signatures_and_those_of_no_store_are_forbidden(owner: Server, peers: Peers) -> None:
    headers = [("brain-forwarded", signed("/v1/conversations", nonce=nonce)) for nonce in ("two", "three")]
    with client_of(owner, "a-key") as client:
        assert client.get("/v1/conversations", headers=headers).status_code == 403
        owner.engine.runs.processes = None
        answer = client.get("/v1/conversations", headers=headers[:1])
        assert problem(answer) == (403, "forbidden_header", "brain-forwarded")
        assert client.get("/healthz", headers=headers[:1]).status_code == 403


# Two servers


@specialist(approval="always")
async def letter(to: str) -> str:
    """Sends a letter."""
    return f"Sent to {to}."


@contextmanager
def forwarder(address: str, times: int = 1_000_000) -> Iterator[Server]:
    """A server whose store says, so often, that turns that it does not have run in the owner."""
    with brain_served(registry_of(letter), STORE="memory:", KEYS=KEYS) as server:
        server.engine.runs.processes = Peers("forwarder")
        send_elsewhere(server.engine.runs, address, times)
        yield server


@pytest.fixture(scope="module")
def relay(owner: Server) -> Iterator[Server]:
    with forwarder(owner.url) as server:
        yield server


def begin(server: Server, key: str = "a-key", **sent: object) -> str:
    with client_of(server, key) as client:
        answer = client.post("/v1/turns", json={"message": "hi", **sent})
        assert answer.status_code == 201
        turn_id: str = answer.json()["turn_id"]
        return turn_id


def seen(response: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
    return (
        response.status_code,
        [one for one in response.headers.multi_items() if one[0] not in ("connection", "date", "server")],
        response.content,
    )


def test_each_request_about_a_turn_gets_the_answer_of_its_owner(owner: Server, peers: Peers, relay: Server) -> None:
    owner.play(Player(["One, ", "☃ two."], name="builtin"))
    turn_id = begin(owner, request_id="r1")
    url = f"/v1/turns/{turn_id}"
    with client_of(owner, "a-key") as direct, client_of(relay, "a-key") as indirect:
        direct.get(f"{url}/events")  # until the end
        message = {"message": "hi", "request_id": "r1"}
        for method, path, options in (
            ("GET", f"{url}/events", {}),
            ("HEAD", f"{url}/events", {}),
            ("GET", f"{url}/events?after=2", {}),
            ("GET", f"{url}/events", {"headers": {"last-event-id": f"{turn_id}.3"}}),
            ("GET", f"{url}/events?after=x", {}),
            ("GET", "/v1/chat/stream", {"headers": {"last-event-id": f"{turn_id}.3"}}),
            ("GET", url, {}),
            ("POST", f"{url}/cancel", {}),
            ("POST", f"{url}/steer", {"json": {"message": "☃" * 20_000}}),
            ("POST", f"{url}/steer", {"content": b"{"}),
            ("POST", f"{url}/approvals/c1", {"json": {"approve": True}}),
            ("POST", "/v1/chat/stream", {"json": message}),
            ("POST", "/v1/chat/stream", {"data": message, "files": {"other": b"x"}}),
            ("POST", "/v1/turns", {"json": message}),
        ):
            request = direct.build_request(method, path, **options)
            request.read()
            expected = seen(direct.send(request))
            request.url = indirect.base_url.join(path)
            request.headers["host"] = f"127.0.0.1:{relay.port}"
            assert seen(indirect.send(request)) == expected, (method, path)
    assert relay.state.connections.open_count <= 1  # a kept one of the client


def test_a_turn_is_steered_approved_and_stopped_by_another_server(owner: Server, peers: Peers, relay: Server) -> None:
    owner.play(Player(['SPECIALIST_REQUEST[letter:{"to":"ann"}]'], ["Done."], name="builtin"))
    turn_id = begin(owner)
    with client_of(relay, "a-key") as client, client.stream("GET", f"/v1/turns/{turn_id}/events") as response:
        events = messages(response)
        asked = next(event for event in events if event.type == "approval_required")
        call = json.loads(asked.data)["call_id"]
        answer = client.post(f"/v1/turns/{turn_id}/approvals/{call}", json={"approve": True})
        assert answer.status_code == 200
        assert list(events)[-1].type == "done"
    gate = asyncio.Event()
    owner.play(Player(["One.", gate], [gate], name="builtin"))
    turn_id = begin(owner)
    with client_of(relay, "a-key") as client:
        with client.stream("GET", f"/v1/turns/{turn_id}/events") as response:
            events = messages(response)
            next(event for event in events if event.type == "token")
            assert client.post(f"/v1/turns/{turn_id}/steer", json={"message": "also"}).status_code == 202
            assert client.post(f"/v1/turns/{turn_id}/cancel").status_code == 202
            assert '"stop_reason":"cancelled"' in list(events)[-1].data
        assert client.get(f"/v1/turns/{turn_id}", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_the_user_may_have_any_name(owner: Server, peers: Peers, relay: Server) -> None:
    owner.play(Player(["Hello."], name="builtin"))
    turn_id = begin(owner, "b-key")
    with client_of(relay, "b-key") as client:
        assert '"Hello."' in client.get(f"/v1/turns/{turn_id}/events").text
    with client_of(relay, "a-key") as client:
        assert client.get(f"/v1/turns/{turn_id}").status_code == 503, "the owner says 421"


def test_a_client_cannot_forward(owner: Server, relay: Server) -> None:
    with client_of(relay) as client:
        answer = client.get("/v1/conversations", headers={"brain-forwarded": signed("/v1/conversations", secret=b"x")})
        assert answer.status_code == 403


def test_a_forwarded_request_is_not_forwarded_again(owner: Server, peers: Peers, relay: Server) -> None:
    for path in (EVENTS, f"/v1/turns/{TURN}"):
        for server in (relay, owner):
            answer = owner_request(server, path, signed(path, nonce=path))
            assert problem(answer) == (421, "misdirected", None)
    with client_of(relay, "a-key") as client:
        answer = client.get(EVENTS)
        assert problem(answer) == (503, "unavailable", None)
        assert answer.headers["retry-after"] == "2"


def test_a_request_is_looked_up_again_until_its_turn_is_found(owner: Server, peers: Peers) -> None:
    for dead in ("http://127.0.0.1:1", "unix:/nowhere"):
        with forwarder(dead, times=2) as server, client_of(server, "a-key") as client:
            server.play(Player(["Here."], name="builtin"))
            answer = client.post("/v1/chat/stream", json={"message": "x" * 100_000, "request_id": "new"})
            assert answer.status_code == 200
            assert '"Here."' in answer.text


# Real connections


@contextmanager
def scripted(path: Path, script: Callable[[socket.socket], None]) -> Iterator[str]:
    """An owner that reads the head of one request and then follows the script; yields its address."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(WAIT_SECONDS)
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            script(connection)

    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as threads:
        listener.settimeout(WAIT_SECONDS)
        listener.bind(str(path))
        listener.listen()
        serving = threads.submit(serve)
        yield f"unix:{path}"
        serving.result(WAIT_SECONDS)


@contextmanager
def client_of_owner(address: str) -> Iterator[socket.socket]:
    """A client that has asked a server for the events of a turn of this owner."""
    with (
        forwarder(address) as server,
        socket.create_connection(("127.0.0.1", server.port), WAIT_SECONDS) as connection,
    ):
        head = f"GET {EVENTS} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a-key\r\n\r\n"
        connection.sendall(head.encode())
        yield connection


def read_until(connection: socket.socket, text: bytes) -> bytes:
    found = b""
    while text not in found:
        data = connection.recv(65536)
        assert data, found
        found += data
    return found


def rest(connection: socket.socket) -> bytes:
    found = b""
    with suppress(ConnectionError):
        while data := connection.recv(1 << 20):
            found += data
    return found


def test_a_client_sees_that_the_response_of_a_dead_owner_is_incomplete(tmp_path: Path) -> None:
    got_token = threading.Event()

    def die(connection: socket.socket) -> None:
        connection.sendall(CHUNKED + b"3\r\none\r\n")
        assert got_token.wait(WAIT_SECONDS)

    with scripted(tmp_path / "owner", die) as address, client_of_owner(address) as client:
        assert read_until(client, b"one\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
        got_token.set()
        assert rest(client) == b""


def test_a_client_that_disconnects_ends_the_connection_to_the_owner(tmp_path: Path) -> None:
    def stream(connection: socket.socket) -> None:
        connection.sendall(CHUNKED + b"3\r\none\r\n")
        assert rest(connection) == b""

    with scripted(tmp_path / "owner", stream) as address, client_of_owner(address) as client:
        read_until(client, b"one")
        client.close()


def test_an_owner_waits_for_a_client_that_reads_nothing(tmp_path: Path) -> None:
    part = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    blocked = threading.Event()
    count = 0

    def stream(connection: socket.socket) -> None:
        nonlocal count
        connection.sendall(CHUNKED)
        connection.settimeout(1)
        left = memoryview(part * 1000)
        while left:
            try:
                left = left[connection.send(left[: 1 << 20]) :]
            except TimeoutError:
                count = len(part) * 1000 - len(left)
                blocked.set()
                connection.settimeout(WAIT_SECONDS)
        connection.sendall(b"0\r\n\r\n")

    with scripted(tmp_path / "owner", stream) as address, client_of_owner(address) as client:
        read_until(client, b"\r\n\r\n")
        assert blocked.wait(WAIT_SECONDS)
        assert count < 16_000_000  # what the kernel holds for the two connections
        end = b""
        while not end.endswith(b"\r\n0\r\n\r\n"):
            end = end[-7:] + client.recv(1 << 20)


# `brain serve`


@pytest.mark.parametrize("workers", [1, 2])
def test_each_process_listens_on_a_private_socket(short_path: Path, workers: int) -> None:
    arguments = ("serve", "--workers", str(workers), "--port", "0", "--model", "builtin")
    env = {"TMPDIR": str(short_path), "BRAIN_STORE": f"sqlite:{short_path / 'brain.db'}", "BRAIN_KEYS": "a-key:ann"}
    with Process(*arguments, env=env) as brain:
        brain.url()
        sockets: Sequence[Path] = []
        while len(sockets) < workers:  # the greeting may come before
            sockets = [*short_path.glob("brain-*/*.sock")]
        assert {path.parent.stat().st_mode & 0o777 for path in sockets} == {0o700}
        for path in sockets:
            transport = httpx.HTTPTransport(uds=str(path))
            with httpx.Client(transport=transport, base_url="http://localhost", timeout=WAIT_SECONDS) as client:
                assert client.get("/healthz").json() == {"status": "ok"}
                headers = {"x-forwarded-for": "127.0.0.1"}
                assert client.get("/v1/conversations", headers=headers).status_code == 401
                headers |= {"brain-forwarded": signed("/v1/conversations")}
                assert client.get("/v1/conversations", headers=headers).status_code == 403
        brain.process.send_signal(signal.SIGTERM)
        assert brain.end()[0] == 0
    assert [*short_path.glob("brain-*")] == []
