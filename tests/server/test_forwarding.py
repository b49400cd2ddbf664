"""Requests about turns of other processes: what the owner gets, what the client gets, and who may forward."""

import asyncio
import hmac
import re
import signal
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest
from brain_servers import Process, Server, brain_served, client_of, problem, settings
from limits import WAIT_SECONDS
from starlette.types import Message, Scope

from brain.errors import BadRequest, RunsElsewhere
from brain.plugins.registry import Registry
from brain.runtime.engine import Engine
from brain.runtime.processes import Processes
from brain.server import forwarding
from brain.server.admission import ConnectionLimits
from brain.server.event_stream import ABORT_EXTENSION, WRITE_EXTENSION
from brain.server.forwarding import Forwarding, RecordedBody
from brain.server.routes import requests
from brain.store.schema import PROCESS_SECRET

NOW = 1_800_000_000.0
CHUNKED = b"HTTP/1.1 200 OK\r\nDate: then\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM = CHUNKED + b"5\r\nHello\r\n7;x=y\r\n, \xe2\x98\x83 w\r\n9\r\n\r\n\r\n0\r\n\r\n\r\n0\r\nX: trailer\r\n\r\n"
STREAM_BODY = b"Hello, \xe2\x98\x83 w\r\n\r\n0\r\n\r\n"
PLAIN = b'HTTP/1.1 404 Not Found\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 9\r\n\r\n{"a": 1}\n'
NO_CONTENT = b"HTTP/1.1 204 No Content\r\ncache-control: no-store\r\nkeep-alive: 5\r\n\r\n"
PEER = "01234567"
"""The ID of another process."""
TURN = f"t{PEER}89abcdef01234567"
SECRET = b"the secret of the store"
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


class Peers:
    """What a process knows about the others."""

    def __init__(self) -> None:
        self.secret = SECRET
        self.process = "here"
        self.leases: dict[str, asyncio.Event] = {}

    def lost(self, process: str) -> asyncio.Event:
        return self.leases.setdefault(process, asyncio.Event())

    def clock(self) -> float:
        return NOW


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
        engine.runs.processes = cast(Processes, self.peers)
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
    }
    assert signature[:4] == ["1", "owner", "ann", "1800000000000"]


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
    is_passed_on = asyncio.Event()

    async def reject(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(PLAIN)
        await is_passed_on.wait()

    assert await forward.run(reject)
    is_passed_on.set()
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
        in_pieces(b"HTTP/1.1 200 OK\r\n", *[b"x: %b\r\n" % (b"a" * 1000)] * 70),
        in_pieces(*[b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 40] * 50),
    ],
    ids=["closed", "421", "garbage", "long head", "many interim"],
)
async def test_nothing_is_sent_if_the_owner_does_not_answer(tmp_path: Path, script: Script) -> None:
    forward = Forward(tmp_path)
    assert not await forward.run(script)
    assert forward.client.sent == []
    assert forward.connections.open_count == 0


@pytest.mark.anyio
async def test_what_an_owner_may_have_done_is_not_repeated(tmp_path: Path) -> None:
    forward = Forward(tmp_path, "POST")
    with pytest.raises(BadRequest) as found:
        await forward.run(close)
    assert (found.value.status, found.value.code, forward.client.sent) == (503, "unavailable", [])


@pytest.mark.anyio
async def test_nothing_is_sent_if_nobody_listens(tmp_path: Path) -> None:
    bad = ("", "http://127.0.0.1", "http://127.0.0.1:x", "http://127.0.0.1:99999", "http://a..b:80", f"{'a' * 64}:80")
    for address in (f"unix:{tmp_path}/nobody", f"unix:{tmp_path}/{'x' * 200}", "http://127.0.0.1:1", *bad):
        forward = Forward(tmp_path)
        assert not await forward.run(close, address)
        assert forward.client.sent == []


@contextmanager
def deaf() -> Iterator[str]:
    """The address of a machine that is off: it answers no connection. On Linux, neither does a full queue."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, socket.socket() as first:
        first.connect(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.anyio
async def test_a_machine_that_is_off_costs_the_time_of_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "CONNECT_SECONDS", 0.05)
    for method in ("GET", "POST"):
        forward = Forward(tmp_path, method)
        with deaf() as address:
            assert not await forward.run(close, address)
        assert (forward.client.sent, forward.connections.open_count) == ([], 0)


@pytest.mark.anyio
async def test_a_request_that_was_not_sent_when_the_lease_ends_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "CONNECT_SECONDS", 2 * WAIT_SECONDS)
    forward = Forward(tmp_path, "POST")
    asyncio.get_running_loop().call_later(0.05, lambda: forward.peers.lost("owner").set())
    with deaf() as address:
        assert not await forward.run(close, address)


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
    to: str,
    target: str,
    method: str = "GET",
    user: str = "ann",
    *,
    version: str = "1",
    at: float = NOW,
    nonce: str = "n",
    secret: bytes = SECRET,
) -> str:
    """The header as another process makes it for the process `to`."""
    fields = f"{version};{to};{quote(user, safe='')};{round(at * 1000)};{nonce}"
    text = f"{method}\n{target}\n{fields}".encode()
    return f"{fields};{hmac.digest(secret, text, 'sha256').hex()}"


def id_of(server: Server) -> str:
    processes = server.engine.runs.processes
    assert processes is not None
    return processes.process


def owner_request(server: Server, target: str, signature: str, method: str = "GET") -> httpx.Response:
    headers = {"brain-forwarded": signature, "x-forwarded-proto": "http", "x-forwarded-prefix": "", "host": "elsewhere"}
    return httpx.request(method, f"{server.url}{target}", headers=headers, timeout=WAIT_SECONDS, trust_env=False)


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with brain_served(STORE=f"sqlite:{tmp_path_factory.mktemp('store') / 'brain.db'}", KEYS=KEYS) as server:
        processes = server.engine.runs.processes
        assert processes is not None
        processes.secret = SECRET
        yield server


@pytest.fixture(autouse=True)
def _stopped_clock(owner: Server) -> None:
    owner.engine.store.database.clock = lambda: NOW


def test_a_signature_is_valid_once_and_for_a_minute(owner: Server) -> None:
    to, target = id_of(owner), "/v1/conversations?limit=1"
    first = signed(to, target)
    assert owner_request(owner, target, first).status_code == 200
    assert owner_request(owner, target, first).status_code == 403
    for difference, status in ((-60, 200), (60, 200), (-60.001, 403), (60.001, 403)):
        at = signed(to, target, at=NOW + difference, nonce=f"at {difference}")
        assert owner_request(owner, target, at).status_code == status
    owner.engine.store.database.clock = lambda: NOW + 119
    late = signed(to, target, at=NOW + 60)
    assert owner_request(owner, target, late).status_code == 403, "the nonce is still known"
    early = signed(to, target, at=NOW + 60, nonce="early")
    assert owner_request(owner, target, early).status_code == 200
    assert owner_request(owner, target, early).status_code == 403


@pytest.mark.parametrize(
    "sign",
    [
        lambda to: "",
        lambda to: "1",
        lambda to: "1;;;;;",
        lambda to: signed(to, "/v1/turns", nonce="a"),
        lambda to: signed(to, "/v1/conversations?limit=2", nonce="b"),
        lambda to: signed(to, "/v1/conversations", "POST", nonce="c"),
        lambda to: signed(to, "/v1/conversations", secret=b"another", nonce="d"),
        lambda to: signed(to, "/v1/conversations", version="2", nonce="e"),
        lambda to: signed(to, "/v1/conversations", nonce="f").replace(";ann;", ";bob;"),
        lambda to: signed(to, "/v1/conversations", nonce="g")[:-1],
        lambda to: signed(to, "/v1/conversations", nonce="h") + "\xff",
        lambda to: signed(PEER, "/v1/conversations", nonce="i").replace(PEER, to),
    ],
)
def test_a_wrong_signature_is_forbidden(owner: Server, sign: Callable[[str], str]) -> None:
    with socket.create_connection(("127.0.0.1", owner.port)) as connection:
        headers = f"host: localhost\r\nauthorization: Bearer a-key\r\nbrain-forwarded: {sign(id_of(owner))}\r\n"
        head = f"GET /v1/conversations HTTP/1.1\r\n{headers}connection: close\r\n\r\n"
        connection.sendall(head.encode("latin-1"))
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 403 ")


def test_a_request_for_another_process_is_misdirected(owner: Server) -> None:
    """The sender looks for the turn again: the recipient has ended, and this process has its address."""
    answer = owner_request(owner, "/v1/conversations", signed(PEER, "/v1/conversations", nonce="to a peer"))
    assert problem(answer) == (421, "misdirected", None)


def test_two_signatures_and_those_of_no_store_are_forbidden(owner: Server) -> None:
    to = id_of(owner)
    headers = [("brain-forwarded", signed(to, "/v1/conversations", nonce=nonce)) for nonce in ("two", "three")]
    with client_of(owner, "a-key") as client:
        assert client.get("/v1/conversations", headers=headers).status_code == 403
    with brain_served(STORE="memory:", KEYS=KEYS) as server, client_of(server, "a-key") as client:
        answer = client.get("/v1/conversations", headers=headers[:1])
        assert problem(answer) == (403, "forbidden_header", "brain-forwarded")
        assert client.get("/healthz", headers=headers[:1]).status_code == 403


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
def beside(address: str) -> Iterator[Server]:
    """A server whose store has the row of another process, which takes requests at this address."""
    with (
        tempfile.TemporaryDirectory() as folder,
        brain_served(STORE=f"sqlite:{folder}/brain.db", KEYS=KEYS) as server,
    ):
        row = f"INSERT INTO process (id, address, until, version) VALUES ('{PEER}', '{address}', {2**62}, 1)"
        server.on_loop(server.engine.store.write(lambda tx: tx.execute(row).rowcount))
        assert server.engine.runs.processes is not None
        server.on_loop(server.engine.runs.processes.look())
        yield server


@contextmanager
def client_of_owner(address: str) -> Iterator[socket.socket]:
    """A client that has asked a server for the events of a turn of this owner."""
    with (
        beside(address) as server,
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


def test_a_request_for_a_process_that_nobody_reaches_fails_in_the_end() -> None:
    with beside("unix:/nowhere") as server, client_of(server, "a-key") as client:
        answer = client.post(f"/v1/turns/{TURN}/steer", json={"message": "x" * 100_000})
    assert problem(answer) == (503, "unavailable", None)
    assert answer.headers["retry-after"] == "2"


def test_a_process_that_has_the_address_of_a_dead_one_does_not_answer_for_it() -> None:
    with beside("http://127.0.0.1:1") as server, client_of(server, "a-key") as client:
        row = f"UPDATE process SET address = '{server.url}' WHERE id = '{PEER}'"
        server.on_loop(server.engine.store.write(lambda tx: tx.execute(row).rowcount))
        processes = server.engine.runs.processes
        assert processes is not None
        server.on_loop(processes.look())
        for answer in (client.get(EVENTS), client.post(f"/v1/turns/{TURN}/cancel")):
            assert problem(answer) == (503, "unavailable", None)  # after it has looked for another one


@pytest.mark.parametrize("path", ["/v1/turns/{}/events", "/v1/turns/{}/steer", "/v1/turns/{}/cancel"])
def test_nobody_looks_for_the_process_of_a_client_that_has_disconnected(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(requests, "OWNER_SECONDS", 2 * WAIT_SECONDS)
    method = "GET" if "events" in path else "POST"
    body = '{"message": "hi"}' if "steer" in path else ""
    looked = threading.Event()
    with beside("unix:/nowhere") as server:
        find = server.engine.runs.find

        async def note(*args: Any) -> Any:
            looked.set()
            return await find(*args)

        monkeypatch.setattr(server.engine.runs, "find", note)
        with socket.create_connection(("127.0.0.1", server.port), WAIT_SECONDS) as connection:
            head = f"{method} {path.format(TURN)} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a-key\r\n"
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
            assert looked.wait(WAIT_SECONDS)
        assert server.left() == []


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
                headers |= {"brain-forwarded": signed(path.stem, "/v1/conversations")}
                assert client.get("/v1/conversations", headers=headers).status_code == 403
        brain.process.send_signal(signal.SIGTERM)
        assert brain.end()[0] == 0
    assert [*short_path.glob("brain-*")] == []


@contextmanager
def advertised(folder: Path, workers: int, port: int) -> Iterator[tuple[Sequence[tuple[str, str]], bytes]]:
    """Workers with addresses; yields the ID and the address of each, and the secret of their store."""
    arguments = ("serve", "--workers", str(workers), "--port", "0", "--model", "builtin")
    env = {
        "BRAIN_STORE": f"sqlite:{folder / 'brain.db'}",
        "BRAIN_KEYS": "a-key:ann",
        "BRAIN_ADVERTISE": f"127.0.0.3:{port}",
        "BRAIN_CONNECTIONS_PER_ADDRESS": "1",
    }
    with Process(*arguments, env=env) as brain:
        brain.url()
        found: Sequence[tuple[str, str]] = []
        while len(found) < workers:  # the greeting may come before
            with closing(sqlite3.connect(folder / "brain.db")) as db:
                found = db.execute("SELECT id, address FROM process WHERE address <> '' ORDER BY address").fetchall()
                ((secret,),) = db.execute("SELECT value FROM server_value WHERE name = ?", (PROCESS_SECRET,))
        yield found, bytes.fromhex(secret)
        brain.process.send_signal(signal.SIGTERM)
        code, _, err = brain.end()
    assert (code, "Traceback" in err) == (0, False), err


@pytest.mark.parametrize("workers", [1, 2])
def test_each_process_listens_at_an_address_of_its_own_for_forwarded_requests_only(
    tmp_path: Path, workers: int
) -> None:
    with socket.create_server(("127.0.0.3", 0)) as taken, ExitStack() as stack:
        first = taken.getsockname()[1]
        found, secret = stack.enter_context(advertised(tmp_path, workers, first))
        assert all(first < int(address.removeprefix("http://127.0.0.3:")) < first + 256 for _, address in found)
        assert len({address for _, address in found}) == workers
        for process, address in found:
            client = stack.enter_context(httpx.Client(base_url=address, timeout=WAIT_SECONDS, trust_env=False))
            headers = {"x-forwarded-proto": "http", "x-forwarded-prefix": "", "host": "elsewhere"}
            allowed = {"authorization": "Bearer a-key", "host": "localhost"}
            for path in ("/", "/healthz", "/v1/conversations"):
                assert problem(client.get(path, headers=allowed)) == (403, "forbidden_header", "brain-forwarded")
            for user in ("ann", "Zoë ☃;/%"):
                for number in range(3):  # more streams than CONNECTIONS_PER_ADDRESS
                    now, nonce = time.time(), f"{user} {number}".encode().hex()
                    signature = signed(process, "/v1/tasks/events", user=user, at=now, nonce=nonce, secret=secret)
                    sent = headers | {"brain-forwarded": signature}
                    stream = stack.enter_context(client.stream("GET", "/v1/tasks/events", headers=sent))
                    assert stream.status_code == 200


@pytest.mark.postgresql
@pytest.mark.parametrize(("host", "advertised"), [("127.0.0.2", "127.0.0.2"), ("0.0.0.0", socket.gethostname())])
def test_with_a_database_server_each_process_has_an_address(postgresql_url: str, host: str, advertised: str) -> None:
    env = {"BRAIN_STORE": postgresql_url, "BRAIN_HOST": host, "BRAIN_KEYS": "a-key:ann"}
    with Process("serve", "--port", "0", "--model", "builtin", "--workers", "2", env=env) as brain:
        brain.url()
        found = re.findall(rf"reach this one at http://{advertised}:(\d+)", brain.said("other processes reach"))
        while len(found) < 2:
            found = re.findall(rf"reach this one at http://{advertised}:(\d+)", brain.stderr)
        assert len(set(found)) == 2
        for port in found:
            answer = httpx.get(f"http://127.0.0.2:{port}/healthz", trust_env=False, timeout=WAIT_SECONDS)
            assert problem(answer) == (403, "forbidden_header", "brain-forwarded")
