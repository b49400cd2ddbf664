"""Who leaves, and what then ends: readers that hang up or stop reading, and a server that is told to stop."""

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from serving import Event, Player, Process, Server, brain_served, post, script, streaming

from brain import Progress, Registry, specialist
from brain.messages import Chunk, Message
from brain.turn_request import UNSAID, Sampling

SOON = 0.25
"""100 ms are promised; the rest is for a machine that is busy with other tests."""


class Told:
    """What the specialists of these tests saw, and when."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.cancelled: list[float] = []
        self.closed: list[float] = []
        self.release = threading.Event()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def server(told: Told) -> Iterator[Server]:
    async def waits() -> str:
        """Waits for ever."""
        told.began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.cancelled.append(time.monotonic())
            raise
        return "never"

    def blocks() -> Iterator[Progress]:
        """Blocks a thread."""
        told.began.set()
        try:
            while not told.release.wait(0.02):
                yield Progress("still here")
        finally:
            told.closed.append(time.monotonic())

    async def deaf() -> str:
        """Does not listen to a cancellation."""
        told.began.set()
        while not told.release.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                told.cancelled.append(time.monotonic())
        return "late"

    registry = Registry()
    for one in (waits, blocks, deaf):
        registry.add(specialist(name=one.__name__, timeout=30)(one))
    registry.add(specialist(name="reads", timeout=30, activates_on=["text"])(waits))
    with brain_served(registry) as server:
        yield server
        told.release.set()


def hang_up(server: Server, until: str | None, began: Callable[[], bool], **sent: Any) -> float:
    """Asks, reads up to an event, waits until something began, and hangs up; says when."""
    with streaming(server.url, until=until, json={"message": "hi", "conversation_id": "c", **sent}) as answer:
        assert answer.status == 200
        assert began()
        return time.monotonic()


def free(server: Server) -> bool:
    """Whether the conversation can be gone on with."""
    server.play(Player(["Hello again."]))
    return post(server.url, json={"message": "hi", "conversation_id": "c"}).status == 200


@pytest.mark.alone
def test_hanging_up_during_text(server: Server) -> None:
    player = Player(["So far. ", 60.0])
    server.play(player)
    left = hang_up(server, "event: token", lambda: True)
    assert server.left(SOON) == []
    assert player.closed[0] - left < SOON
    assert free(server)


@pytest.mark.alone
def test_hanging_up_before_the_first_token(server: Server) -> None:
    player = Player([60.0])
    server.play(player)
    left = hang_up(server, "turn_start", lambda: player.open.wait(5))
    assert server.left(SOON) == []
    assert player.closed[0] - left < SOON
    assert free(server)


@pytest.mark.alone
def test_hanging_up_during_a_call(server: Server, told: Told) -> None:
    player = Player(["SPECIALIST_REQUEST[waits]", " ", 60.0])
    server.play(player)
    left = hang_up(server, "specialist_start", lambda: told.began.wait(5))
    assert server.left(SOON) == []
    assert told.cancelled[0] - left < SOON
    assert player.closed[0] - left < SOON
    assert free(server)


@pytest.mark.alone
def test_hanging_up_during_a_call_in_a_thread(server: Server, told: Told) -> None:
    server.play(Player(["SPECIALIST_REQUEST[blocks]"]))
    left = hang_up(server, "specialist_progress", lambda: told.began.wait(5))
    assert server.left(SOON) == []
    time.sleep(0.05)
    assert told.closed[0] - left < SOON
    assert free(server)


@pytest.mark.alone
def test_hanging_up_during_a_call_that_does_not_listen(server: Server, told: Told) -> None:
    server.play(Player(["SPECIALIST_REQUEST[deaf]"]))
    left = hang_up(server, "specialist_start", lambda: told.began.wait(5))
    server.left(SOON)
    assert told.cancelled[0] - left < SOON
    assert free(server)
    told.release.set()
    assert server.left() == []


@pytest.mark.alone
def test_hanging_up_during_a_call_of_an_attachment(server: Server, told: Told) -> None:
    player = Player(["unheard"])
    server.play(player)
    files = [{"name": "a.txt", "text": "a"}, {"name": "b.txt", "text": "b"}]
    left = hang_up(server, "specialist_start", lambda: told.began.wait(5), attachments=files)
    assert server.left(SOON) == []
    assert [at - left < SOON for at in told.cancelled] == [True, True]
    assert player.asked == []
    assert free(server)


def test_what_was_said_before_hanging_up_is_remembered(server: Server) -> None:
    server.play(Player(["So far. ", 60.0]))
    hang_up(server, "event: token", lambda: True)
    assert server.left() == []
    player = Player(["And on."])
    server.play(player)
    post(server.url, json={"message": "go on", "conversation_id": "c"})
    said = [message.content.rpartition(".\n\n")[2] for message in player.asked[0][1:]]  # without the clock
    assert said == ["hi", "So far. ", "go on"]


def test_leaving_in_the_middle_of_the_body(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(
            b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"message": '
        )
        time.sleep(0.1)
    assert server.left() == []
    assert free(server)


def test_a_body_that_stops_coming_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.server.routes.requests.BODY_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(
            b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"message": '
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_comes_in_drops_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.server.routes.requests.BODY_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(
            b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n"
        )
        connection.setblocking(False)
        answer = b""
        end = time.monotonic() + 3
        while not answer and time.monotonic() < end:
            time.sleep(0.05)
            connection.send(b" ")
            with suppress(BlockingIOError):
                answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_large_body_has_more_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.server.routes.requests.BODY_SECONDS", 0.3)
    pieces = [b'{"message": "hi", "system": "', *[b"a" * 9_000] * 10, b'"}']

    def slowly() -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            time.sleep(0.08)

    answer = post(server.url, content=slowly(), headers={"content-type": "application/json"})
    assert answer.status == 200


class Endless(Player):
    """Writes for as long as somebody takes it."""

    written = 0

    async def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        try:
            while True:
                await asyncio.sleep(0)
                self.written += 4096
                yield "a" * 4096
        finally:
            self.closed.append(time.monotonic())


@pytest.fixture
def unread() -> Iterator[tuple[Server, Endless, socket.socket]]:
    """A turn that writes a lot, for a reader that reads nothing."""
    body = json.dumps({"message": "hi"}).encode()
    with brain_served(HEARTBEAT_SECONDS=0.15) as server:
        endless = Endless()
        server.play(endless)
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = "POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            yield server, endless, connection


@pytest.mark.alone
def test_a_reader_that_reads_nothing_holds_up_nobody_and_is_given_up(
    unread: tuple[Server, Endless, socket.socket],
) -> None:
    server, endless, _ = unread
    written = -1
    while written != endless.written:
        written = endless.written  # until the model waits for the reader, too
        time.sleep(0.3)
    server.play(Player(["quick"]))
    began = time.monotonic()
    assert post(server.url, json={"message": "hi"}).last["text"] == "quick"
    assert time.monotonic() - began < SOON
    assert endless.written == written < 16 * 1024 * 1024
    while not endless.closed:
        assert time.monotonic() - began < 3
        time.sleep(0.02)
    assert server.left() == []


# A server that is told to stop


def stream_in_thread(url: str) -> "tuple[threading.Thread, list[Event]]":
    events: list[Event] = []

    def read() -> None:
        events.extend(post(url, json={"message": "hi"}).events)

    thread = threading.Thread(target=read)
    thread.start()
    return thread, events


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_server_told_to_stop_says_so_to_its_readers(tmp_path: Path, how: signal.Signals) -> None:
    chunks = {"chunks": ["So far.", *[" more"] * 100], "delay_ms": 300}
    with Process("serve", "--port", "0", "--model", script(tmp_path, chunks)) as brain:
        with streaming(brain.url(), until="event: token", json={"message": "hi"}) as answer:
            assert answer.names[-1] == "token"
            thread, events = stream_in_thread(brain.url())
            time.sleep(0.2)
        brain.process.send_signal(how)
        began = time.monotonic()
        code, out, err = brain.end()
        thread.join()
    assert time.monotonic() - began < 4
    assert events[-1].name == "error"
    assert events[-1].data["code"] == "shutdown"
    assert events[-1].data["recoverable"] is True
    assert events[-2].name == "usage"
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert "ERROR" not in err


CALLS = {
    "blocker": "def blocker() -> str:\n    'Blocks.'\n    time.sleep(60)\n    return ''\n",
    "deaf": "async def deaf() -> str:\n    'Does not listen.'\n    while True:\n"
    "        try:\n            await asyncio.sleep(60)\n        except asyncio.CancelledError:\n            pass\n",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_server_told_to_stop_ends_running_calls(tmp_path: Path, name: str) -> None:
    source = f"import asyncio, time\nfrom brain import specialist\n\n@specialist(timeout=60)\n{CALLS[name]}"
    (tmp_path / "some.py").write_text(source)
    model = script(tmp_path, [f"SPECIALIST_REQUEST[{name}]"])
    env = {"BRAIN_SPECIALISTS_FOLDER": str(tmp_path)}
    with Process("serve", "--port", "0", "--model", model, env=env) as brain:
        thread, events = stream_in_thread(brain.url())
        time.sleep(0.5)
        began = time.monotonic()
        brain.process.send_signal(signal.SIGTERM)
        code, _, err = brain.end()
        thread.join()
    assert time.monotonic() - began < 4
    assert [event.name for event in events[-3:]] == ["specialist_error", "usage", "error"]
    assert (events[-3].data["code"], events[-1].data["code"]) == ("cancelled", "shutdown")
    assert code == 0
    assert "Traceback" not in err


def test_a_turn_that_comes_while_the_server_leaves_is_told_so() -> None:
    with brain_served() as server:
        server.play(Player(["unheard", 60.0]))
        server.engine.leaving = True
        answer = post(server.url, json={"message": "hi"})
    assert answer.names == ["turn_start", "usage", "error"]
    assert answer.last["code"] == "shutdown"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_stops_at_once(how: signal.Signals) -> None:
    with Process("serve", "--port", "0", "--model", "builtin") as brain:
        brain.url()
        began = time.monotonic()
        brain.process.send_signal(how)
        code, out, err = brain.end()
    assert time.monotonic() - began < 1.5
    assert (code, out) == (0, "")
    assert "Traceback" not in err
