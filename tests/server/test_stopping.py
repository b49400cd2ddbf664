"""Stopping a turn: a client that cancels or leaves stops the model server and the calls; slow clients delay nothing."""

import asyncio
import itertools
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest
from brain_servers import Server, brain_served, client_of, post, settings
from limits import WAIT_SECONDS
from model_servers import Generation, OpenAIServer, Pass, Wait, in_thread, models
from sse_events import Event, read
from turn_helpers import registry_of

from brain import Progress, Registry, specialist
from brain.cli.serve import drop_stalled_clients

LONG = "".join(random.Random(4).choices("abcdefgh ", k=4_000))
"""Text that does not repeat itself within a few hundred characters, which would end the pass."""
PIECES = 100
"""So many of them are more than all buffers of a connection hold."""


class Calls:
    """Specialists that wait, and what they saw."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.release = threading.Event()

    def registry(self) -> Registry:
        async def waits() -> str:
            """Waits for ever."""
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
            return "never"

        async def deaf() -> str:
            """Ignores a cancellation."""
            while not self.release.is_set():
                try:
                    await asyncio.to_thread(self.release.wait)
                except asyncio.CancelledError:
                    self.cancelled.set()
            return "late"

        def blocks() -> Iterator[Progress]:
            """Blocks a thread."""
            try:
                while not self.release.wait(0.02):
                    yield Progress("still here")
            finally:
                self.cancelled.set()

        async def letter() -> str:
            """Sends a letter."""
            return "Sent."

        return registry_of(
            *(specialist(timeout=60, read_only=True)(one) for one in (waits, deaf, blocks)),
            specialist(approval="always")(letter),
            specialist(name="reads", timeout=60, read_only=True, activates_on=["text"])(waits),
        )


class Stage:
    """Brain in front of a model server on a port."""

    def __init__(self, brain: Server, server: OpenAIServer, calls: Calls, client: httpx.Client) -> None:
        self.brain = brain
        self.server = server
        self.calls = calls
        self.client = client

    @property
    def generation(self) -> Generation:
        (found,) = self.server.generations
        return found

    def events(self, turn_id: str) -> list[Event]:
        """All events of a turn, once it has ended."""
        return read(self.client.get(f"/v1/turns/{turn_id}/events").raise_for_status().content)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait while the server's loop runs."""

        async def wait() -> None:
            while not condition():  # noqa: ASYNC110 - of another thread, or of a socket
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(wait(), self.brain.loop).result(WAIT_SECONDS)


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


@pytest.fixture(scope="module")
def running() -> Iterator[Stage]:
    with staged() as stage:
        yield stage


@pytest.fixture
def stage(running: Stage) -> Iterator[Stage]:
    running.calls.cancelled.clear()
    running.calls.release.clear()
    yield running
    running.calls.release.set()
    assert running.brain.left() == []


@pytest.mark.parametrize("cancels", [True, False], ids=["cancels", "leaves"])
@pytest.mark.parametrize(
    ("items", "until", "call"),
    [
        ([Wait(60)], "turn_start", None),
        ([LONG, Wait(60)], "event: token", None),
        (["a", "SPECIALIST_REQUEST[waits]", Wait(60)], "specialist_start", "waits"),
        (["SPECIALIST_REQUEST[waits]", "more"], "specialist_start", "waits"),
        (["SPECIALIST_REQUEST[blocks]"], "specialist_progress", "blocks"),
        (["SPECIALIST_REQUEST[deaf]"], "specialist_start", "deaf"),
        (["SPECIALIST_REQUEST[letter]"], "approval_required", "letter"),
        ([], "specialist_start", "reads"),
    ],
    ids=["before the first token", "in the middle", "during a call", "during a call, after the pass",
         "during a call in a thread", "during a call that ignores it", "during an approval",
         "during a call for an attachment"],
)  # fmt: skip
def test_a_turn_is_stopped_wherever_it_is(
    stage: Stage, items: list[Any], until: str, call: str | None, cancels: bool
) -> None:
    stage.server.play(*[Pass(items)] * bool(items), Pass(["again"]))
    files = [] if items else [{"name": "a.txt", "text": "a"}]
    with stage.client.stream("POST", "/v1/chat/stream", json={"message": "hi", "attachments": files}) as response:
        pieces, found = response.iter_text(), ""
        while until not in found or not found.endswith("\n\n"):
            found += next(pieces)
        started = read(found.encode())[0].data
        turn_id = started["turn_id"]
        if items:
            stage.until(lambda: bool(stage.server.generations))
        if cancels:
            assert stage.client.post(f"/v1/turns/{turn_id}/cancel").status_code == 202
            assert read((found + "".join(pieces)).encode()) == stage.events(turn_id)
    events = [(message.name, message.data) for message in stage.events(turn_id)]
    if items:
        stage.until(stage.generation.closed.is_set)
    if call not in (None, "letter"):
        assert stage.calls.cancelled.wait(WAIT_SECONDS)
    errors = [(one["name"], one["code"]) for name, one in events if name == "specialist_error"]
    assert errors == ([] if call is None else [(call, "cancelled")])
    assert [name for name, _ in events][-2:] == ["usage", "done"]
    assert events[-1][1]["stop_reason"] == "cancelled"
    assert events[-1][1]["text"] == "".join(one["text"] for name, one in events if name == "token")
    assert len(stage.server.generated) == bool(items)
    again = post(stage.brain.url, json={"message": "hi", "conversation_id": started["conversation_id"]})
    assert (again.names[-1], again.last["text"]) == ("done", "again")
    assert len(stage.server.generated) == bool(items) + 1


def test_a_client_that_leaves_within_its_body_leaves_nothing() -> None:
    with brain_served() as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as connection:
            connection.sendall(
                b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b'Content-Length: 100\r\n\r\n{"message": '
            )
        assert server.left() == []


# Clients that read nothing


def stalled(stage: Stage) -> socket.socket:
    """A connection with small buffers, whose client does not read its turn."""
    stage.brain.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32_768)  # also of connections that it accepts
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
    connection.settimeout(WAIT_SECONDS)
    connection.connect(("127.0.0.1", stage.brain.port))
    head = b"POST /v1/chat/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(head + b'Content-Length: 15\r\n\r\n{"message":"a"}')
    return connection


def test_a_client_that_reads_nothing_delays_neither_the_turn_nor_its_cancellation() -> None:
    with staged(Pass([*[LONG] * PIECES, Wait(60)])) as stage:
        with stalled(stage) as slow:
            stage.until(lambda: bool(stage.server.generations) and stage.generation.text == LONG * PIECES)
            (run,) = stage.brain.engine.runs.running
            assert stage.client.post(f"/v1/turns/{run.id}/cancel").status_code == 202
            stage.until(stage.generation.closed.is_set)
            response = HTTPResponse(slow)
            response.begin()
            events = read(response.read())
        assert events[-1].data["stop_reason"] == "cancelled"
        assert stage.events(run.id) == events


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits how long a client may read nothing")
def test_a_client_that_reads_nothing_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.cli.serve.MIN_STALL_SECONDS", 0.5)
    with staged(Pass(itertools.repeat(LONG))) as stage:
        drop_stalled_clients(stage.brain.sock, settings(HEARTBEAT_SECONDS=0.1))
        with stalled(stage):
            stage.until(lambda: bool(stage.server.generations))
            stage.until(stage.generation.closed.is_set)
            stage.until(lambda: not stage.brain.server_state.connections)
            stage.until(lambda: not stage.brain.engine.runs.running)
