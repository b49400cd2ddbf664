"""Stopping: who cancels or leaves stops the model server and the calls; and a server that stops ends every turn."""

import asyncio
import itertools
import json
import random
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from answering import Pass, Served, Wait, in_thread
from eventsource import EventSource, Message, read
from playing import registry_of
from servers import OpenAIServer, models
from serving import Process, Server, brain_served, client_of, post, problem, script, settings

from brain import Progress, Registry, specialist
from brain.cli.serve import _forget_the_deaf

LONG = "".join(random.Random(4).choices("abcdefgh ", k=4_000))
"""Text that does not repeat itself within a few hundred characters, which would end the pass."""


class Calls:
    """What the specialists of these tests saw."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.release = threading.Event()

    def registry(self) -> Registry:
        async def waits() -> str:
            """Waits for ever."""
            self.started.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return "never"

        async def deaf() -> str:
            """Ignores a cancellation."""
            self.started.set()
            while not self.release.is_set():
                try:
                    await asyncio.to_thread(self.release.wait)
                except asyncio.CancelledError:
                    self.cancelled.set()
            return "late"

        def blocks() -> Iterator[Progress]:
            """Blocks a thread."""
            self.started.set()
            try:
                while not self.release.wait(0.02):
                    yield Progress("still here")
            finally:
                self.cancelled.set()

        async def letter() -> str:
            """Sends a letter."""
            return "Sent."

        return registry_of(
            *(specialist(timeout=30)(one) for one in (waits, deaf, blocks)),
            specialist(approval="always")(letter),
            specialist(name="reads", timeout=30, activates_on=["text"])(waits),
        )


class Stage:
    """Brain in front of a model server on a port."""

    def __init__(self, brain: Server, server: OpenAIServer, calls: Calls, client: httpx.Client) -> None:
        self.brain = brain
        self.server = server
        self.calls = calls
        self.client = client

    @property
    def served(self) -> Served:
        (found,) = self.server.served
        return found

    def events(self, turn_id: str) -> list[Message]:
        """All events of a turn, once it has ended."""
        return read(self.client.get(f"/v1/turns/{turn_id}/events").raise_for_status().content)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait while the server's loop runs."""

        async def wait() -> None:
            while not condition():  # noqa: ASYNC110 - of another thread, or of a socket
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(wait(), self.brain.loop).result(30)


@contextmanager
def staged(*passes: Pass, **values: object) -> Iterator[Stage]:
    calls = Calls()
    with ExitStack() as stack:
        server = OpenAIServer(*passes, answers=models("m", owned_by="vllm"))
        stack.enter_context(in_thread(server))
        brain = stack.enter_context(brain_served(calls.registry(), MODEL="openai:m", MODEL_URL=server.url, **values))
        yield Stage(brain, server, calls, stack.enter_context(client_of(brain)))
        calls.release.set()
        assert brain.left() == []


CALL = "SPECIALIST_REQUEST[waits]"
FILE = {"attachments": [{"name": "a.txt", "text": "a"}]}
PLACES: dict[str, tuple[Sequence[Any], str, list[tuple[str, str]], dict[str, Any]]] = {
    "before the first token": ([Wait(30)], "turn_start", [], {}),
    "in the middle": ([LONG, Wait(30)], "event: token", [], {}),
    "during a call": (["a", CALL, Wait(30)], "specialist_start", [("waits", "cancelled")], {}),
    "during a call, after the pass": ([CALL, "more"], "specialist_start", [("waits", "cancelled")], {}),
    "during a call in a thread": (["SPECIALIST_REQUEST[blocks]"], "specialist_progress", [("blocks", "cancelled")], {}),
    "during a call that ignores it": (["SPECIALIST_REQUEST[deaf]"], "specialist_start", [("deaf", "cancelled")], {}),
    "during an approval": (["SPECIALIST_REQUEST[letter]"], "approval_required", [("letter", "cancelled")], {}),
    "during a call of an attachment": ([], "specialist_start", [("reads", "cancelled")], FILE),
}


@pytest.mark.parametrize("cancels", [True, False], ids=["cancels", "leaves"])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_turn_is_stopped_wherever_it_is(
    place: tuple[Sequence[Any], str, list[tuple[str, str]], dict[str, Any]], cancels: bool
) -> None:
    passes, until, ended, more = place
    with staged(Pass(passes), Pass(["again"])) as stage:
        sent = {"message": "hi", "conversation_id": "c", **more}
        with stage.client.stream("POST", "/v1/chat/stream", json=sent) as response:
            pieces, found = response.iter_text(), ""
            while until not in found or not found.endswith("\n\n"):
                found += next(pieces)
            turn_id = read(found.encode())[0].last_event_id.partition(".")[0]
            if not more:
                stage.until(lambda: bool(stage.server.served))
            if cancels:
                assert stage.client.post(f"/v1/turns/{turn_id}/cancel").status_code == 202
                assert read((found + "".join(pieces)).encode()) == stage.events(turn_id)
        events = stage.events(turn_id)
        if not more:
            stage.until(stage.served.closed.is_set)
        if ended and ended[0][0] != "letter":
            assert stage.calls.cancelled.wait(10)
        data = [(message.type, json.loads(message.data)) for message in events]
        assert [(one["name"], one["code"]) for name, one in data if name == "specialist_error"] == ended
        assert [name for name, _ in data][-2:] == ["usage", "done"]
        assert data[-1][1]["stop_reason"] == "cancelled"
        assert data[-1][1]["text"] == "".join(one["text"] for name, one in data if name == "token")
        asked = len(stage.server.generated)
        assert asked == (0 if more else 1)
        assert post(stage.brain.url, json={"message": "hi", "conversation_id": "c"}).names[-1] in ("done", "error")
        assert len(stage.server.generated) == asked + 1


def test_a_client_that_leaves_within_its_body_leaves_nothing() -> None:
    with brain_served() as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(
                b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b'Content-Length: 100\r\n\r\n{"message": '
            )
        assert server.left() == []


# Clients that read nothing


def stalled(stage: Stage, path: str, body: dict[str, Any] | None = None) -> socket.socket:
    """A connection on which a response arrives that nobody reads."""
    stage.brain.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32_768)  # also of connections that it accepts
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
    connection.settimeout(30)
    connection.connect(("127.0.0.1", stage.brain.port))
    data = json.dumps(body).encode() if body is not None else b""
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    connection.sendall(f"{head}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def rest_of(connection: socket.socket) -> list[Message]:
    """What a client finds that reads at last, to the end of the response."""
    found = b""
    while not found.endswith(b"\r\n0\r\n\r\n"):
        data = connection.recv(65_536)
        assert data, "the response breaks off"
        found += data
    chunks = found.partition(b"\r\n\r\n")[2]
    source, events = EventSource(), list[Message]()
    while chunks:
        length, _, chunks = chunks.partition(b"\r\n")
        events += source.feed(chunks[: int(length, 16)])
        chunks = chunks[int(length, 16) + 2 :]
    return events


def test_a_client_that_reads_nothing_delays_neither_the_turn_nor_its_cancellation() -> None:
    with staged(Pass([*[LONG] * 500, Wait(60)])) as stage:
        sent = {"message": "hi", "request_id": "r"}
        with stalled(stage, "/v1/chat/stream", sent) as slow:
            stage.until(lambda: bool(stage.server.served) and stage.served.text == LONG * 500)
            (run,) = stage.brain.engine.turns.running
            assert stage.client.post(f"/v1/turns/{run.id}/cancel").status_code == 202
            stage.until(stage.served.closed.is_set)
            events = rest_of(slow)
        assert [message.last_event_id for message in events] == [f"{run.id}.{n}" for n in range(1, len(events) + 1)]
        done = json.loads(events[-1].data)
        texts = [json.loads(message.data)["text"] for message in events if message.type == "token"]
        assert (done["stop_reason"], done["text"]) == ("cancelled", "".join(texts))
        assert stage.events(run.id) == events


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    with staged(Pass([LONG] * 1_000), HEARTBEAT_SECONDS=0.2) as stage:
        turn_id = stage.client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        run = stage.brain.engine.turns._runs[turn_id]
        with stalled(stage, f"/v1/turns/{turn_id}/events") as slow:
            events = stage.events(turn_id)
            assert json.loads(events[-1].data)["text"] == LONG * 1_000
            stage.until(lambda: not run.readers)
            assert slow.recv(1)
        assert stage.events(turn_id) == events


def test_a_client_too_slow_for_the_replay_buffer_gets_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 1_000_000)
    monkeypatch.setattr("brain.server.event_stream.PENDING_BYTES", 1_000_000)
    with staged(Pass([LONG] * 2_000)) as stage:
        turn_id = stage.client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        with stalled(stage, f"/v1/turns/{turn_id}/events") as slow:
            stage.until(lambda: not stage.brain.engine.turns.running)
            events = rest_of(slow)
        last = {"last-event-id": events[-1].last_event_id}
        assert problem(stage.client.get(f"/v1/turns/{turn_id}/events", headers=last))[:2] == (410, "gone")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits how long a client may read nothing")
def test_a_client_that_reads_nothing_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.cli.serve.LOST_SECONDS", 0.5)
    with staged(Pass(itertools.repeat(LONG))) as stage:
        _forget_the_deaf(stage.brain.sock, settings(HEARTBEAT_SECONDS=0.1))
        with stalled(stage, "/v1/chat/stream", {"message": "hi"}):
            stage.until(lambda: bool(stage.server.served))
            stage.until(stage.served.closed.is_set)
            stage.until(lambda: not stage.brain.server_state.connections)
            stage.until(lambda: not stage.brain.engine.turns.running)


# A server that stops

SPECIALISTS = '''
import asyncio, os, signal, time
from brain import specialist

@specialist(timeout=60)
async def waits() -> str:
    """Waits."""
    await asyncio.sleep(60)
    return ""

@specialist(timeout=60)
async def deaf() -> str:
    """Ignores a cancellation."""
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

@specialist(timeout=60)
def blocks() -> str:
    """Blocks a thread."""
    time.sleep(60)
    return ""

@specialist(approval="always")
async def letter() -> str:
    """Sends a letter."""
    return "Sent."

@specialist
async def crashes() -> str:
    """Kills the process like a fault in C code."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""
'''
CALLS = ("waits", "deaf", "blocks", "letter")


@contextmanager
def process(folder: Path, *passes: Any, workers: int = 1) -> Iterator[Process]:
    (folder / "some.py").write_text(SPECIALISTS)
    arguments = ("serve", "--port", "0", "--workers", str(workers), "--model", script(folder, *passes))
    with Process(*arguments, env={"BRAIN_SPECIALISTS_FOLDER": str(folder)}) as brain:
        yield brain


def start(url: str) -> str:
    """Start a turn: its URL."""
    return str(httpx.post(f"{url}/v1/turns", json={"message": "hi"}, trust_env=False).headers["location"])


class Reader(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, url: str, method: str, path: str, **options: Any) -> None:
        super().__init__()
        self._request = method, f"{url}{path}"
        self._options = options
        self.started = threading.Event()
        self.text = ""
        self.start()

    def run(self) -> None:
        method, url = self._request
        with httpx.stream(method, url, timeout=30, trust_env=False, **self._options) as response:
            for piece in response.iter_text():
                self.text += piece
                if "approval_required" in self.text and self.text.count("specialist_start") == 3:
                    self.started.set()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_all_turns_end_and_all_readers_are_told(tmp_path: Path, how: signal.Signals) -> None:
    with process(tmp_path, ["So far. ", *(f"SPECIALIST_REQUEST[{name}]" for name in CALLS)]) as brain:
        url = brain.url()
        paths = [start(url) for _ in CALLS]
        readers = [
            Reader(url, "POST", "/v1/chat/stream", json={"message": "hi"}),
            Reader(url, "GET", "/v1/chat/stream", params={"message": "hi"}),
            *(Reader(url, "GET", f"{path}/events") for path in paths[:2]),
        ]
        assert all(reader.started.wait(20) for reader in readers)
        brain.process.send_signal(how)
        code, out, err = brain.end()
        for reader in readers:
            reader.join(10)
    for reader in readers:
        events = read(reader.text.encode())
        assert [message.type for message in events[-2:]] == ["usage", "error"]
        error = json.loads(events[-1].data)
        assert (error["code"], error["recoverable"]) == ("shutdown", True)
        ended = [json.loads(message.data) for message in events if message.type == "specialist_error"]
        assert sorted((one["name"], one["code"]) for one in ended) == sorted((name, "cancelled") for name in CALLS)
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert "ERROR" not in err
    assert err.count(": shutdown, native") == len(CALLS) + 2


def test_clients_that_read_or_send_nothing_do_not_delay_the_stop(tmp_path: Path) -> None:
    with process(tmp_path, ["a" * 4_000] * 5_000) as brain, ExitStack() as stack:
        url = brain.url()
        download = f"GET {start(url)}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        upload = "POST /v1/turns HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for request in (download, f"{upload}Content-Length: 9\r\n\r\n{{"):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            connection.sendall(request.encode())
        brain.process.send_signal(signal.SIGTERM)
        code, _, err = brain.end()
    assert code == 0
    assert "Traceback" not in err
    assert "ERROR" not in err


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_every_stop_is_logged_with_its_reason(tmp_path: Path, how: signal.Signals, workers: int) -> None:
    with process(tmp_path, ["Hello."], workers=workers) as brain:
        brain.url()
        brain.process.send_signal(how)
        code, _, err = brain.end()
    assert code == 0
    assert "Traceback" not in err
    begun = re.findall(r"^INFO brain: the server stops on (.*);", err, re.M)
    ended = re.findall(
        r"^INFO brain: the server stopped on (.*); the stop took [0-9.]+ s, the run [0-9.]+ s$", err, re.M
    )
    assert begun == ended == ["Ctrl-C (SIGINT)" if how is signal.SIGINT else how.name]
    stopped = re.findall(r"^INFO brain: worker [0-9]+ stopped on SIGTERM; the stop took", err, re.M)
    assert len(stopped) == (2 if workers == 2 else 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_crash_of_the_interpreter_leaves_its_stacks(tmp_path: Path, workers: int) -> None:
    with process(tmp_path, ["SPECIALIST_REQUEST[crashes]"], workers=workers) as brain:
        start(brain.url())
        assert "Fatal Python error: Segmentation fault" in brain.said("in crashes")
