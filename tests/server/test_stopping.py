"""Stop reaches the model server at once, wherever a turn is, whoever stops it, and whatever its reader does."""

import asyncio
import itertools
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest
from answering import Pass, Served, Wait, in_thread
from eventsource import EventSource, Message, read
from servers import OpenAIServer, models
from serving import Server, brain_served, settings

from brain import Registry, specialist
from brain.cli.serve import _forget_the_deaf

SOON = 0.25
"""100 ms are promised; the rest is for a machine that is busy with other tests."""
EVERY = 0.01
"""Seconds between two tokens of the model."""


class Told:
    """What the specialists of these tests saw, and when."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.cancelled: list[float] = []


def everyone(told: Told) -> Registry:
    async def waits() -> str:
        """Waits for ever."""
        told.began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            told.cancelled.append(time.monotonic())
            raise
        return "never"

    async def deaf() -> str:
        """Does not listen to a cancellation."""
        told.began.set()
        end = time.monotonic() + 0.4
        while (left := end - time.monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        return "late"

    async def letter() -> str:
        """Sends a letter."""
        told.began.set()
        return "Sent."

    registry = Registry()
    registry.add(specialist(timeout=30)(waits))
    registry.add(specialist(timeout=30)(deaf))
    registry.add(specialist(approval="always")(letter))
    registry.add(specialist(name="reads", timeout=30, activates_on=["text"])(waits))
    return registry


class Stage:
    """Brain in front of a model server that is no double of Brain's own model, but a server on a port."""

    def __init__(self, brain: Server, server: OpenAIServer, told: Told, client: httpx.Client) -> None:
        self.brain = brain
        self.server = server
        self.told = told
        self.client = client

    @property
    def served(self) -> Served:
        (found,) = self.server.served
        return found

    def cancel(self, turn_id: str) -> None:
        assert self.client.post(f"/v1/turns/{turn_id}/cancel").status_code == 202

    def events(self, turn_id: str) -> list[Message]:
        """All that the turn told, once it is over."""
        return read(self.client.get(f"/v1/turns/{turn_id}/events").raise_for_status().content)


@contextmanager
def staged(*passes: Pass, **values: object) -> Iterator[Stage]:
    told = Told()
    with ExitStack() as stack:
        server = OpenAIServer(*passes, answers=models("m", owned_by="vllm"))
        stack.enter_context(in_thread(server))
        brain = stack.enter_context(brain_served(everyone(told), MODEL="openai:m", MODEL_URL=server.url, **values))
        client = stack.enter_context(httpx.Client(base_url=brain.url, timeout=10, trust_env=False))
        yield Stage(brain, server, told, client)
        assert brain.left(1.5) == []


@contextmanager
def posted(stage: Stage, until: bytes, sent: dict[str, Any]) -> Iterator[str]:
    """A turn whose reader reads on in a thread: its id."""
    with _streamed(stage, "POST", "/v1/chat/stream", until, json=sent) as turn_id:
        yield turn_id


@contextmanager
def got(stage: Stage, until: bytes, sent: dict[str, Any]) -> Iterator[str]:
    query = {name: value if isinstance(value, str) else json.dumps(value) for name, value in sent.items()}
    with _streamed(stage, "GET", "/v1/chat/stream", until, params=query) as turn_id:
        yield turn_id


@contextmanager
def detached(stage: Stage, until: bytes, sent: dict[str, Any]) -> Iterator[str]:
    turn_id: str = stage.client.post("/v1/turns", json=sent).json()["turn_id"]
    with _streamed(stage, "GET", f"/v1/turns/{turn_id}/events", until):
        pass
    yield turn_id


@contextmanager
def _streamed(stage: Stage, method: str, address: str, until: bytes, **options: Any) -> Iterator[str]:
    with stage.client.stream(method, address, **options) as response:
        assert response.status_code == 200, response.read()
        found = b""
        pieces = response.iter_raw()
        for piece in pieces:
            found += piece
            if until in found:
                break
        assert until in found
        yield read(found)[0].last_event_id.partition(".")[0]


class Where:
    """A place that a turn is at when it is stopped.

    Args:
        said: what the model says in its first pass.
        until: what a reader sees there.
        calls: how the calls end then.
        asked: how often the model is asked.
    """

    def __init__(self, said: Sequence[Any], until: bytes, *calls: tuple[str, str], asked: int = 1, **sent: Any) -> None:
        self.said = said
        self.until = until
        self.calls = list(calls)
        self.asked = asked
        self.sent = {"message": "hi", **sent}


CALL = "SPECIALIST_REQUEST[waits]"
PLACES = {
    "before the first token": Where([Wait(30)], b"turn_start"),
    "in the middle": Where(["word "] * 5_000, b'"word "'),
    "during a call, while it is read on": Where(
        ["a", CALL, *[" "] * 5_000], b"specialist_start", ("waits", "cancelled")
    ),
    "during a call, while the model is silent": Where([CALL, Wait(30)], b"specialist_start", ("waits", "cancelled")),
    "during a call that does not listen": Where(
        ["SPECIALIST_REQUEST[deaf]", *[" "] * 5_000], b"specialist_start", ("deaf", "cancelled")
    ),
    "during a call, when the model is closed": Where([CALL, "more"], b"specialist_start", ("waits", "cancelled")),
    "during an open approval": Where(
        ["SPECIALIST_REQUEST[letter]", Wait(30)], b"approval_required", ("letter", "cancelled")
    ),
    "during two calls": Where(
        [CALL, "SPECIALIST_REQUEST[letter]", Wait(30)],
        b"approval_required",
        ("waits", "cancelled"),
        ("letter", "cancelled"),
    ),
    "during what attachments ask for": Where(
        [],
        b"specialist_start",
        ("reads", "cancelled"),
        asked=0,
        attachments=[{"name": "a.txt", "text": "a"}],
    ),
}


@pytest.mark.alone
@pytest.mark.parametrize("way", [posted, detached])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_who_cancels_is_heard_at_once(place: Where, way: Any) -> None:
    stop_and_look(place, way, Stage.cancel)


@pytest.mark.alone
def test_who_cancels_what_was_asked_for_with_get_is_heard_at_once() -> None:
    stop_and_look(PLACES["in the middle"], got, Stage.cancel)


@pytest.mark.alone
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_who_leaves_is_noticed_at_once(place: Where) -> None:
    stop_and_look(place, posted, None)


def stop_and_look(place: Where, way: Any, stop: Callable[[Stage, str], None] | None) -> None:
    with staged(Pass(place.said, every=EVERY), Pass(["again"])) as stage:
        with way(stage, place.until, {**place.sent, "conversation_id": "c"}) as turn_id:
            if place.asked:
                wait_until(lambda: bool(stage.server.served))
            time.sleep(0.05)
            stopped = time.monotonic()
            said = len(stage.served.text) if place.asked else 0
            if stop is not None:
                stop(stage, turn_id)
                told = stage.events(turn_id)
                assert time.monotonic() - stopped < SOON
        if stop is None:
            told = stage.events(turn_id)
        assert len(stage.server.generated) == place.asked
        if place.asked:
            wait_until(stage.served.closed.is_set)
            assert stage.served.closed_at is not None
            assert stage.served.closed_at - stopped < SOON
            assert len(stage.served.text) - said <= 5 * SOON / EVERY
        honest(told, place)
        listening = [name for name, _ in place.calls if name in ("waits", "reads")]
        assert [at - stopped < SOON for at in stage.told.cancelled] == [True] * len(listening)
        again = stage.client.post("/v1/chat/stream", json={"message": "hi", "conversation_id": "c"})
        assert again.status_code == 200
        assert len(stage.server.generated) == place.asked + 1


def honest(told: Sequence[Message], place: Where) -> None:
    """Whether all calls ended as they should, and the turn with a word on it."""
    data = [(message.type, json.loads(message.data)) for message in told]
    ended = [(one["name"], one["code"]) for name, one in data if name == "specialist_error"]
    assert sorted(ended) == sorted(place.calls)
    assert [name for name, _ in data][-2:] == ["usage", "done"]
    done = data[-1][1]
    assert done["stop_reason"] == "cancelled"
    assert done["text"] == "".join(one["text"] for name, one in data if name == "token")
    assert [message.last_event_id.rpartition(".")[2] for message in told] == [str(n) for n in range(1, len(told) + 1)]


def wait_until(condition: Callable[[], bool], seconds: float = 3.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


# A reader that takes nothing


def stalled(stage: Stage, address: str, body: dict[str, Any] | None) -> socket.socket:
    """A connection on which an answer comes that nobody reads."""
    stage.brain.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32_768)  # as of connections that it accepts
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
    connection.settimeout(5)
    connection.connect(("127.0.0.1", stage.brain.port))
    data = json.dumps(body).encode() if body is not None else b""
    method = "GET" if body is None else "POST"
    head = f"{method} {address} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def rest_of(connection: socket.socket) -> list[Message]:
    """What the reader finds when it reads at last, to the end of the answer."""
    found = b""
    while not found.endswith(b"\r\n0\r\n\r\n"):
        data = connection.recv(65_536)
        assert data, "the answer breaks off"
        found += data
    chunks = found.partition(b"\r\n\r\n")[2]
    source, events = EventSource(), []
    while chunks:
        length, _, chunks = chunks.partition(b"\r\n")
        size = int(length, 16)
        events += source.feed(chunks[:size])
        chunks = chunks[size + 2 :]
    return events


LONG = "".join(random.Random(4).choices("abcdefgh ", k=4_000))
"""Text that does not repeat itself within a few hundred characters, which would end the pass."""


@pytest.mark.alone
def test_a_reader_that_takes_nothing_keeps_no_cancelled_turn_open() -> None:
    with staged(Pass([*[LONG] * 500, Wait(60)])) as stage:
        connection = stalled(stage, "/v1/chat/stream", {"message": "hi", "request_id": "r"})
        with connection:
            wait_until(lambda: bool(stage.server.served))
            wait_until(lambda: stage.served.text == LONG * 500)  # the model does not wait for the reader
            (run,) = stage.brain.engine.turns.running
            stopped = time.monotonic()
            stage.cancel(run.id)
            wait_until(stage.served.closed.is_set)
            assert stage.served.closed_at is not None
            assert stage.served.closed_at - stopped < SOON
            wait_until(lambda: run.over)
            told = rest_of(connection)
        assert [message.last_event_id for message in told] == [f"{run.id}.{n}" for n in range(1, len(told) + 1)]
        texts = [json.loads(message.data)["text"] for message in told if message.type == "token"]
        done = json.loads(told[-1].data)
        assert (done["stop_reason"], done["text"]) == ("cancelled", "".join(texts))
        assert stage.events(run.id) == told


def test_a_follower_that_takes_nothing_holds_up_neither_the_turn_nor_other_readers() -> None:
    with staged(Pass([LONG] * 1_000), HEARTBEAT_SECONDS=0.2) as stage:
        turn_id = stage.client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        with stalled(stage, f"/v1/turns/{turn_id}/events", None) as slow:
            began = time.monotonic()
            told = stage.events(turn_id)
            assert time.monotonic() - began < 3
            assert json.loads(told[-1].data)["text"] == LONG * 1_000
            wait_until(lambda: not stage.brain.engine.turns._runs[turn_id].readers, 3)  # it is disconnected
            assert slow.recv(1)
        assert stage.events(turn_id) == told


def test_a_follower_too_slow_for_what_is_kept_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.runtime.event_log.LOG_BYTES", 1_000_000)
    monkeypatch.setattr("brain.server.event_stream.PENDING_BYTES", 1_000_000)
    with staged(Pass([LONG] * 2_000)) as stage:
        turn_id = stage.client.post("/v1/turns", json={"message": "hi"}).json()["turn_id"]
        with stalled(stage, f"/v1/turns/{turn_id}/events", None) as slow:
            wait_until(lambda: not stage.brain.engine.turns.running, 5)
            told = rest_of(slow)
        assert told[-1].type == "token"
        last = {"last-event-id": told[-1].last_event_id}
        gone = stage.client.get(f"/v1/turns/{turn_id}/events", headers=last)
        assert (gone.status_code, gone.json()["error"]["code"]) == (410, "gone")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone lets a server say how long nothing may be taken")
def test_a_client_that_takes_nothing_leaves_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.cli.serve.LOST_SECONDS", 0.5)
    with staged(Pass(itertools.repeat(LONG))) as stage:
        _forget_the_deaf(stage.brain.sock, settings(HEARTBEAT_SECONDS=0.1))
        with stalled(stage, "/v1/chat/stream", {"message": "hi"}):
            wait_until(lambda: bool(stage.server.served))
            wait_until(stage.served.closed.is_set, 5)
            wait_until(lambda: not stage.brain.server_state.connections)
            wait_until(lambda: not stage.brain.engine.turns.running)
