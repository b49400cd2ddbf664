"""What a connection may bring before its requests are let in: heads, requests in a row, and hang-ups behind them."""

import asyncio
import inspect
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import pytest
from serving import Player, Process, Server, brain_served, script
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from brain.server import admission, uvicorn_protocol
from brain.server.uvicorn_protocol import HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
BEGUN = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with brain_served() as server:
        yield server


def connected(server: Server) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", server.port), timeout=5))


def rest(connection: socket.socket) -> bytes:
    """What the server says until it closes the connection, or ends it."""
    found = b""
    with suppress(ConnectionError):
        while data := connection.recv(65536):
            found += data
    return found


def pushed(connection: socket.socket, data: bytes, most: int) -> bool:
    """Whether the server ended the connection before it took so many bytes."""
    sent = 0
    try:
        while sent < most:
            connection.sendall(data)
            sent += len(data)
            time.sleep(0.001)
    except OSError as error:
        return not isinstance(error, TimeoutError)
    return False


def streaming(message: str = "hi") -> bytes:
    body = json.dumps({"message": message}).encode()
    head = f"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n\r\n" + body


def begun(connection: socket.socket, model: Player) -> None:
    """Waits until the turn runs that was asked for."""
    assert model.open.wait(5)
    assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_what_is_relied_on_is_there() -> None:
    assert {"connection_made", "connection_lost", "data_received", "on_headers_complete", "on_body", "shutdown"} < set(
        dir(HttpToolsProtocol)
    )
    assert {"on_response_complete", "send_400_response"} < set(dir(HttpToolsProtocol))
    assert "on_response=self.on_response_complete" in inspect.getsource(HttpToolsProtocol)
    made = inspect.getsource(HttpToolsProtocol.on_message_begin) + inspect.getsource(HttpToolsProtocol.__init__)
    assert all(
        f"self.{name}" in made for name in ("url = ", "headers = ", "cycle: ", "flow: ", "transport: ", "loop = ")
    )
    cycle = inspect.getsource(RequestResponseCycle)
    assert all(f"self.{name}" in cycle for name in ("disconnected = ", "message_event = ", "more_body = "))
    assert callable(FlowControl.resume_reading)


@pytest.mark.parametrize("begin", [b"GET /", BEGUN + b"X: ", BEGUN + b"X"])
def test_a_head_without_an_end_is_refused(server: Server, begin: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(begin)
        assert pushed(connection, b"a" * 16384, 4 * HEAD_BYTES + 1_000_000)
    assert httpx.get(f"{server.url}/healthz", trust_env=False).status_code == 200


def test_headers_without_an_end_are_refused(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(BEGUN)
        assert pushed(connection, b"X: y\r\n" * 2000, 4 * HEAD_BYTES + 1_000_000)


@pytest.mark.parametrize(
    "more", [b"X: " + b"a" * HEAD_BYTES, b"".join(b"X%d: y\r\n" % n for n in range(MAX_HEADERS))[:-2]]
)
def test_a_large_head_is_told_so(server: Server, more: bytes) -> None:
    for before in (b"", HEALTH):
        with connected(server) as connection:
            connection.sendall(before)
            while before and b'{"status":"ok"}' not in connection.recv(65536):
                pass
            connection.sendall(BEGUN + more + b"\r\n\r\n")
            assert rest(connection) == (
                b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
                b"content-length: 24\r\nconnection: close\r\n\r\nThe head is too large.\r\n"
            )


def test_a_head_of_half_the_size_is_none_too_large(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(BEGUN + b"X: " + b"a" * (HEAD_BYTES // 2) + b"\r\nConnection: close\r\n\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_large_body_is_no_large_head(server: Server) -> None:
    server.play(Player(["Hello."]))
    files = [{"name": f"{n}.txt", "text": "a" * 1_000_000} for n in range(3)]
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for _ in range(3):
            answer = client.post("/v1/chat/stream", json={"message": "hi", "attachments": files})
            assert (answer.status_code, "event: done" in answer.text) == (200, True)


def test_trailers_without_an_end_end_the_connection(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n")
        connection.sendall(b"Content-Type: application/json\r\n\r\n2\r\n{}\r\n0\r\n")
        assert pushed(connection, b"X: y\r\n" * 2000, 4 * HEAD_BYTES + 1_000_000)


@pytest.mark.parametrize("before", [b"", HEALTH])
@pytest.mark.parametrize("half", [b"", b"GET /healthz HT"])
def test_half_a_head_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch, before: bytes, half: bytes) -> None:
    monkeypatch.setattr(uvicorn_protocol, "HEAD_SECONDS", 0.3)
    with brain_served() as server, connected(server) as connection:
        connection.sendall(before)
        while before and b'{"status":"ok"}' not in connection.recv(65536):
            pass
        connection.sendall(half)
        began = time.monotonic()
        assert rest(connection) == b""
        assert time.monotonic() - began < 2


def test_an_answer_may_take_longer_than_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocol, "HEAD_SECONDS", 0.2)
    with brain_served() as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        server.play(Player(["One ", 0.6, "two."]))
        for _ in range(2):
            assert "event: done" in client.post("/v1/chat/stream", json={"message": "hi"}).text


def test_one_address_has_so_many_connections_and_others_have_theirs() -> None:
    with brain_served(CONNECTIONS_PER_ADDRESS=2) as server, ExitStack() as stack:

        def ask(address: str, sent: bytes = HEALTH) -> socket.socket:
            place = ("127.0.0.1", server.port)
            connection = stack.enter_context(socket.create_connection(place, 20, (address, 0)))
            connection.sendall(sent)
            return connection

        first, second = ask("127.0.0.2"), ask("127.0.0.2", BEGUN)
        assert first.recv(65536).startswith(b"HTTP/1.1 200")
        refused = rest(ask("127.0.0.2", streaming()))
        assert refused.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"\r\nretry-after: 2\r\n" in refused
        assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "unavailable"
        assert ask("127.0.0.3").recv(65536).startswith(b"HTTP/1.1 200")
        silent = ask("127.0.0.2", b"")
        assert rest(silent) == b""  # it is closed without a request, and counted, too
        assert 'brain_refused_total{reason="address"} 2.0' in httpx.get(f"{server.url}/metrics", trust_env=False).text
        second.close()
        while b" 503 " in (answer := ask("127.0.0.2").recv(65536)):  # until the server sees that it is closed
            pass
        assert answer.startswith(b"HTTP/1.1 200")


def test_behind_a_proxy_the_address_that_it_forwards_is_counted() -> None:
    with brain_served(CONNECTIONS_PER_ADDRESS=2) as server, ExitStack() as stack:
        model = Player(["word ", asyncio.Event()])
        server.play(model)

        def ask(forwarded: bytes, sent: bytes = HEALTH) -> bytes:
            connection = stack.enter_context(connected(server))
            connection.sendall(sent.replace(b"Host", b"X-Forwarded-For: 127.0.0.1, %s\r\nHost" % forwarded))
            return connection.recv(65536)

        for _ in range(2):
            assert ask(b"203.0.113.7", streaming()).startswith(b"HTTP/1.1 200")
        refused = ask(b"203.0.113.7")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 2\r\n" in refused
        for other in (b"203.0.113.8", b"127.0.0.1", b"2001:db8::1"):
            assert ask(other, streaming()).startswith(b"HTTP/1.1 200")
        for host in (b"2001:db8::2", b"2001:db8::3"):
            status = ask(host, streaming()).split()[1]
        assert status == b"503"  # all of one /64


def test_idle_connections_make_room_when_there_are_as_many_as_may_be() -> None:
    with brain_served() as server, ExitStack() as stack:
        server.state.connections.limit = 5
        idle = [stack.enter_context(connected(server)) for _ in range(5)]
        idle[1].sendall(BEGUN)
        for gone in idle:
            with connected(server) as connection:
                connection.sendall(HEALTH[:-2] + b"Connection: close\r\n\r\n")
                assert rest(connection).startswith(b"HTTP/1.1 200")
            assert rest(gone) == b""
            stack.enter_context(connected(server))


def test_when_all_connections_are_busy_further_ones_are_told_so() -> None:
    with brain_served() as server, ExitStack() as stack:
        server.state.connections.limit = 2
        server.play(Player(["word ", asyncio.Event()]))
        for _ in range(2):
            busy = stack.enter_context(connected(server))
            busy.sendall(streaming())
            assert busy.recv(65536).startswith(b"HTTP/1.1 200")
        silent = stack.enter_context(connected(server))
        with connected(server) as connection:
            connection.sendall(HEALTH)
            refused = rest(connection)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 2\r\n" in refused
        assert rest(silent) == b""


def test_an_overloaded_server_refuses_new_turns_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_protocol, "REJECT_SECONDS", 0.0)
    with (
        brain_served(ORIGINS="https://chat.example") as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        release = asyncio.Event()
        server.play(Player(["word ", release, "more"]))
        turn = client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        monkeypatch.setattr(admission, "CALM_STARTS", 0)
        monkeypatch.setattr(admission, "BURST", 0)
        monkeypatch.setattr(server.state.admission, "_burst", 0.0)
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
        metrics = client.get("/metrics").text
        assert 'brain_refused_total{reason="overload"} 11.0' in metrics
        assert client.get("/healthz").status_code == 200
        assert client.post(f"/v1/turns/{turn}/steer", json={"message": "on"}).status_code == 202
        server.loop.call_soon_threadsafe(release.set)
        assert "event: done" in client.get(f"/v1/turns/{turn}/events").text


def test_the_limit_on_open_files_is_raised() -> None:
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (256, 2000));"
        "from brain.cli.serve import raise_descriptor_limit; raise_descriptor_limit();"
        "from brain.server.state import connection_limit; print(*r.getrlimit(r.RLIMIT_NOFILE), connection_limit())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "2000 2000 936\n"


def test_requests_in_a_row_are_answered_in_their_order(server: Server) -> None:
    server.play(Player(["Hel", 0.1, "lo."]))
    with connected(server) as connection:
        connection.sendall(streaming() + HEALTH * (MAX_PIPELINED - 1))
        time.sleep(0.05)
        connection.sendall(HEALTH[:-2] + b"Connection: close\r\n\r\n")
        answers = rest(connection).split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b"event: done" in answers[0]
    assert [b'{"status":"ok"}' in answer for answer in answers[1:]] == [True] * MAX_PIPELINED


def test_one_after_the_other_there_may_be_any_number(server: Server) -> None:
    with connected(server) as connection:
        found = b""
        for n in range(1, 41):
            connection.sendall((HEALTH[:-2] + b"X: " + b"a" * 1000 + b"\r\n\r\n") * 10)
            while found.count(b'{"status":"ok"}') < 10 * n:
                found += connection.recv(65536)


@pytest.mark.parametrize(
    "more",
    [HEALTH * (MAX_PIPELINED + 1), b"GARBAGE\r\n\r\n", BEGUN + b"X: " + b"a" * HEAD_BYTES + b"\r\n\r\n"],
)
def test_too_much_behind_a_turn_ends_its_connection_and_the_turn(server: Server, more: bytes) -> None:
    model = Player([*["word "] * 5, 20.0])
    server.play(model)
    with connected(server) as connection:
        connection.sendall(streaming())
        begun(connection, model)
        connection.sendall(more)
        assert b"HTTP/1.1" not in rest(connection)
    assert server.left(1) == []


def test_a_body_that_waits_for_its_turn_is_bounded(server: Server) -> None:
    model = Player([*["word "] * 5, 20.0])
    server.play(model)
    with connected(server) as connection:
        connection.sendall(streaming())
        begun(connection, model)
        connection.sendall(b"POST /v1/turns HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n")
        assert pushed(connection, b"a" * 16384, 4 * HEAD_BYTES + 1_000_000)
    assert server.left(1) == []


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("behind", [b"", HEALTH, BEGUN, HEALTH * 5, streaming()])
def test_a_hang_up_is_seen_whatever_waits_behind_the_turn(server: Server, behind: bytes, resets: bool) -> None:
    model = Player([*["word "] * 5, 20.0])
    server.play(model)
    with connected(server) as connection:
        connection.sendall(streaming())
        begun(connection, model)
        connection.sendall(behind)
        time.sleep(0.05)
        if resets:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert server.left(1) == []
    assert len(model.asked) == 1


def test_who_asks_on_and_never_reads_holds_little(server: Server) -> None:
    with connected(server) as connection:
        connection.settimeout(1)
        assert pushed(connection, HEALTH * 4000, 100_000_000)

    async def held() -> int:
        return len(server.server_state.connections)

    end = time.monotonic() + 2
    while server.on_loop(held()) and time.monotonic() < end:
        time.sleep(0.01)
    assert server.on_loop(held()) == 0


def test_an_upload_that_stands_holds_no_shutdown_up_and_is_no_error(tmp_path: Path) -> None:
    with Process("serve", "--port", "0", "--model", script(tmp_path, ["Hello."])) as process:
        port = int(process.url().rpartition(":")[2])
        with closing(socket.create_connection(("127.0.0.1", port))) as connection:
            connection.sendall(streaming()[:-5])
            time.sleep(0.3)
            process.process.send_signal(signal.SIGTERM)
            code, _, err = process.end()
    assert code == 0
    assert "Traceback" not in err
    assert "ERROR" not in err
