"""Limits of connections before their requests are accepted: headers, pipelining, disconnects, counts."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from brain_servers import Server, brain_served, client_of
from turn_helpers import Player

from brain.server import admission, state, uvicorn_protocol
from brain.server.admission import Acceptor
from brain.server.uvicorn_protocol import HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED, write_chunk

OPEN_HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = OPEN_HEAD + b"\r\n"
LAST_HEALTH = OPEN_HEAD + b"Connection: close\r\n\r\n"
UPLOAD = b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
TURN = UPLOAD + b'Content-Length: 15\r\n\r\n{"message":"a"}'
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with brain_served() as server:
        yield server


def connect(server: Server, data: bytes = b"", source: str = "127.0.0.1") -> closing[socket.socket]:
    connection = socket.create_connection(("127.0.0.1", server.port), 50, (source, 0))
    connection.sendall(data)
    return closing(connection)


def rest(connection: socket.socket) -> bytes:
    """What the server sends until it closes or resets the connection."""
    found = b""
    with suppress(ConnectionError):
        while data := connection.recv(65536):
            found += data
    return found


def until(connection: socket.socket, text: bytes, count: int = 1) -> bytes:
    found = b""
    while found.count(text) < count:
        data = connection.recv(65536)
        assert data, found
        found += data
    return found


def is_cut_off(connection: socket.socket, data: bytes, limit: int = 40_000_000) -> bool:
    """Whether the server ends the connection within this number of bytes."""
    try:
        for _ in range(limit // len(data)):
            connection.sendall(data)
    except OSError as error:
        return not isinstance(error, TimeoutError)
    return False


@pytest.mark.parametrize(
    ("state", "method", "is_done"),
    [
        ({"disconnected": True, "chunked_encoding": True}, "GET", False),
        ({"disconnected": False, "chunked_encoding": False}, "GET", False),
        ({"disconnected": False, "chunked_encoding": None}, "HEAD", True),
    ],
    ids=["client that is gone", "body with a length", "HEAD"],
)
def test_nothing_is_written_at_once(state: dict[str, bool], method: str, is_done: bool) -> None:
    cycle: Any = SimpleNamespace(
        flow=SimpleNamespace(write_paused=False), transport=None, scope={"method": method}, **state
    )
    assert write_chunk(cycle, b"data") is is_done


# Heads


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET /", b"a" * 16384),
        (OPEN_HEAD + b"X: ", b"a" * 16384),
        (OPEN_HEAD + b"X", b"a" * 16384),
        (OPEN_HEAD, b"X: y\r\n" * 2000),
        (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"X: y\r\n" * 2000),
    ],
    ids=["line", "value", "name", "headers", "trailers"],
)
def test_a_head_without_an_end_is_cut_off(server: Server, start: bytes, piece: bytes) -> None:
    with connect(server, start) as connection:
        assert is_cut_off(connection, piece)
    with connect(server, LAST_HEALTH) as connection:
        assert rest(connection).startswith(OK)


@pytest.mark.parametrize("before", [b"", HEALTH])
@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"X: " + b"a" * HEAD_BYTES, b"431"),
        (b"".join(b"X%d: y\r\n" % n for n in range(MAX_HEADERS))[:-2], b"431"),
        (b"Connection: close\r\nX: " + b"a" * (HEAD_BYTES // 2), b"200"),
        (b"garbage", b"400"),
    ],
    ids=["bytes", "headers", "within the limits", "garbage"],
)
def test_heads_have_limits(server: Server, before: bytes, more: bytes, status: bytes) -> None:
    with connect(server, before) as connection:
        if before:
            until(connection, b'{"status":"ok"}')
        connection.sendall(OPEN_HEAD + more + b"\r\n\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("before", [b"", HEALTH])
@pytest.mark.parametrize("half", [b"", b"GET /healthz HT"])
def test_half_a_head_has_a_time_limit_and_an_answer_has_none(
    monkeypatch: pytest.MonkeyPatch, before: bytes, half: bytes
) -> None:
    monkeypatch.setattr(uvicorn_protocol, "HEAD_SECONDS", 0.3)
    with brain_served() as server, connect(server, before) as connection:
        if before:
            until(connection, b'{"status":"ok"}')
        connection.sendall(half)
        gate = asyncio.Event()
        server.play(Player(["One ", gate, "two."]))
        with client_of(server) as client, client.stream("POST", "/v1/chat/stream", json={"message": "hi"}) as response:
            assert rest(connection) == b""
            server.release(gate)
            assert "event: done" in "".join(response.iter_text())


# Pipelining


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    gate = asyncio.Event()
    server.play(Player(["Hel", gate, "lo."]))
    with connect(server, TURN + HEALTH * (MAX_PIPELINED - 1)) as connection:
        found = until(connection, b'"Hel"')
        connection.sendall(LAST_HEALTH)
        server.release(gate)
        answers = (found + rest(connection)).split(OK)[1:]
    assert b"event: done" in answers[0]
    assert [b'{"status":"ok"}' in answer for answer in answers[1:]] == [True] * MAX_PIPELINED
    with connect(server) as connection:
        for _ in range(40):
            connection.sendall((OPEN_HEAD + b"X: " + b"a" * 1000 + b"\r\n\r\n") * 10)
            until(connection, b'{"status":"ok"}', 10)


@pytest.mark.parametrize(
    "more",
    [
        HEALTH * (MAX_PIPELINED + 1),
        b"GARBAGE\r\n\r\n",
        OPEN_HEAD + b"X: " + b"a" * HEAD_BYTES + b"\r\n\r\n",
        UPLOAD + b"Content-Length: 10000000\r\n\r\n" + b"a" * 1_000_000,
    ],
    ids=["requests", "garbage", "head", "body"],
)
def test_too_much_after_a_turn_ends_its_connection_and_the_turn(server: Server, more: bytes) -> None:
    server.play(Player(["word ", asyncio.Event()]))
    with connect(server, TURN) as connection:
        assert until(connection, b'"word "').startswith(OK)
        with suppress(ConnectionError):
            connection.sendall(more)
        assert b"HTTP/1.1" not in rest(connection)
    assert server.left() == []


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("pending", [b"", HEALTH, OPEN_HEAD, HEALTH * 5, TURN])
def test_a_disconnect_is_noticed_whatever_waits_after_the_turn(server: Server, pending: bytes, resets: bool) -> None:
    server.play(model := Player(["word ", asyncio.Event()]))
    with connect(server, TURN) as connection:
        until(connection, b'"word "')
        connection.sendall(pending)
        if resets:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert server.left() == []
    assert len(model.requests) == 1


def test_a_stream_that_waits_has_no_task(server: Server) -> None:
    gate = asyncio.Event()
    server.play(Player(["word ", gate, "end"]))

    async def names() -> list[str]:
        tasks = (task.get_coro() for task in asyncio.all_tasks())
        return [name for task in tasks if (name := task.__qualname__) in ("Protocol._run", "Run._execute")]  # type: ignore[union-attr]

    with connect(server, TURN) as connection, ExitStack() as stack:
        turn = json.loads(until(connection, b'"word "').partition(b"data: ")[2].partition(b"\n")[0])["turn_id"]
        events = f"GET /v1/turns/{turn}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        readers = [stack.enter_context(connect(server, events)) for _ in range(3)]
        for reader in readers:
            until(reader, b'"word "')
        assert server.on_loop(names()) == ["Run._execute"]
        server.release(gate)
        for reader in (connection, *readers):
            assert b'"end"' in until(reader, b"\r\n0\r\n\r\n")
            reader.sendall(LAST_HEALTH)  # the connection takes further requests
            assert rest(reader).startswith(OK)
    assert server.left() == []


# Limits


def is_rejected(answer: bytes) -> bool:
    return answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n") and b"\r\nretry-after: 2\r\n" in answer


def metrics(server: Server) -> str:
    with client_of(server) as client:
        return client.get("/metrics").text


def test_connections_per_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocol, "REJECTED_HEAD_SECONDS", 0.2)
    with brain_served(CONNECTIONS_PER_ADDRESS=2) as server, ExitStack() as stack:

        def open_from(address: str, data: bytes = HEALTH) -> socket.socket:
            return stack.enter_context(connect(server, data, address))

        first, second = open_from("127.0.0.2"), open_from("127.0.0.2", OPEN_HEAD)
        assert first.recv(65536).startswith(OK)
        answer = rest(open_from("127.0.0.2", TURN))
        assert is_rejected(answer)
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "unavailable"
        assert open_from("127.0.0.3").recv(65536).startswith(OK)
        assert rest(open_from("127.0.0.2", b"")) == b""  # closed without a request, and counted, too
        assert 'brain_refused_total{reason="address"} 2.0' in metrics(server)
        second.close()
        while is_rejected(answer := open_from("127.0.0.2").recv(65536)):  # until the server notices
            pass
        assert answer.startswith(OK)


def test_behind_a_proxy_the_forwarded_address_is_limited() -> None:
    with brain_served(CONNECTIONS_PER_ADDRESS=2) as server, ExitStack() as stack:
        server.play(Player(["word ", asyncio.Event()]))

        def ask(forwarded: bytes, data: bytes = TURN) -> bytes:
            data = data.replace(b"Host", b"X-Forwarded-For: 127.0.0.1, %s\r\nHost" % forwarded)
            return stack.enter_context(connect(server, data)).recv(65536)

        assert [is_rejected(ask(b"203.0.113.7")) for _ in range(3)] == [False, False, True]
        assert is_rejected(answer := ask(b"203.0.113.7", HEALTH + HEALTH))
        assert answer.count(b"HTTP/1.1") == 1
        for more in (UPLOAD + b"Content-Length: 100000\r\n\r\n" + b" " * 100_000, HEALTH + b"garbage\r\n\r\n"):
            data = more.replace(b"Host", b"X-Forwarded-For: 203.0.113.7\r\nHost", 1)
            with connect(server, data) as connection:
                assert is_rejected(answer := rest(connection))
            assert answer.count(b"HTTP/1.1") == 1
        assert not any(is_rejected(ask(other)) for other in (b"203.0.113.8", b"127.0.0.1", b"2001:db8::1"))
        assert [is_rejected(ask(b"2001:db8::%d" % n)) for n in (2, 3)] == [False, True], "all of one /64"


def test_idle_connections_make_room_and_busy_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocol, "MAX_REJECTED", 1)
    monkeypatch.setattr(uvicorn_protocol, "REJECTED_HEAD_SECONDS", 0.2)
    with brain_served() as server, ExitStack() as stack:
        server.state.connections.limit = 2
        idle = [stack.enter_context(connect(server)) for _ in range(2)]
        idle[1].sendall(OPEN_HEAD)
        for one in idle:
            with connect(server, LAST_HEALTH) as connection:
                assert rest(connection).startswith(OK)
            assert rest(one) == b""
            stack.enter_context(connect(server))
        server.play(Player(["word ", asyncio.Event()]))
        for _ in range(2):
            assert stack.enter_context(connect(server, TURN)).recv(65536).startswith(OK)
        with connect(server, HEALTH) as connection:
            assert is_rejected(rest(connection))
        silent, one_too_many = [stack.enter_context(connect(server)) for _ in range(2)]
        assert rest(one_too_many) == rest(silent) == b""


def test_an_overloaded_server_rejects_new_turns_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with brain_served(ORIGINS="https://chat.example") as server, client_of(server) as client:
        release = asyncio.Event()
        server.play(Player(["word ", release, "more"]))
        turn = client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        monkeypatch.setattr(admission, "WAITING_TURNS", 0)
        messages = {"model": "brain", "messages": [{"role": "user", "content": "hi"}]}
        for path, body in (
            ("/v1/chat/stream", {"message": "hi"}),
            ("/v1/turns", {"message": "hi"}),
            ("/v1/chat/completions", messages),
            ("/api/chat", messages),
            ("/api/generate", {"model": "brain", "prompt": "hi"}),
        ):
            for headers in ({}, {"Origin": "https://chat.example"}):
                answer = client.post(path, json=body, headers=headers)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
                assert answer.headers.get("access-control-allow-origin") == headers.get("Origin")
                assert answer.json()["error"]
        assert client.get("/v1/chat/stream", params={"message": "hi"}).status_code == 503
        assert 'brain_refused_total{reason="overload"} 11.0' in metrics(server)
        assert caplog.text.count("a new turn gets 503") == 11
        assert client.post(f"/v1/turns/{turn}/steer", json={"message": "on"}).status_code == 202
        server.release(release)
        assert "event: done" in client.get(f"/v1/turns/{turn}/events").text
    assert server.state.connections.open_count == 0


def test_an_overload_is_measured_and_connections_are_then_accepted_by_hand(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state, "FIRST_MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(state, "MEASURE_SECONDS", 0.01)
    monkeypatch.setattr(admission, "LAG_SECONDS", -1.0)
    monkeypatch.setattr(admission, "CALM_LAG_SECONDS", -1.0)
    with brain_served() as server:

        async def wait_overloaded(expected: bool) -> None:
            while server.state.admission.is_overloaded is not expected:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)

        server.on_loop(wait_overloaded(True))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            with closing(socket.create_connection(listening.getsockname(), 50)) as connection:
                connection.sendall(LAST_HEALTH)
                server.state.acceptor = Acceptor([listening])
                with connect(server, LAST_HEALTH) as other:  # by which the server learns how connections are made
                    assert rest(other).startswith(OK)
                assert rest(connection).startswith(OK)
        monkeypatch.setattr(admission, "LAG_SECONDS", 1e9)
        monkeypatch.setattr(admission, "CALM_LAG_SECONDS", 1e9)
        monkeypatch.setattr(admission, "CALM_SECONDS", 0.0)
        server.on_loop(wait_overloaded(False))
    assert "overloaded" not in caplog.text  # nothing was rejected


def test_the_limit_on_open_files_is_raised() -> None:
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, 2000));"
        "from brain.cli.serve import raise_descriptor_limit; raise_descriptor_limit();"
        "from brain.server.state import connection_limit; print(*r.getrlimit(r.RLIMIT_NOFILE), connection_limit())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "2000 2000 936\n"
