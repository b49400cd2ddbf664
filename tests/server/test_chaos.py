"""Hundreds of clients over all protocols, half of which disconnect at any moment: they leave nothing."""

import asyncio
import contextlib
import gc
import json
import logging
import math
import os
import random
import resource
import socket
import struct
import threading
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from brain_servers import Server, brain_served
from limits import WAIT_SECONDS
from turn_helpers import Player, prose

from brain import Progress, Registry, specialist
from brain.errors import ModelError
from brain.messages import Chunk
from brain.models.model import PassRequest
from brain.store import users

CLIENTS = 300
TURNS_AT_ONCE = 2 * CLIENTS
CONNECTING = 100
"""Clients that connect at once: fewer than the system lets wait."""
LEFT_OBJECTS = 2 * CLIENTS
LEFT_BYTES = 600_000
"""Allowed growth after as many clients again: larger tables, but no turn (one has dozens of objects)."""

LONG = [prose(4_000, n) for n in range(3)]
NAP = 'SPECIALIST_REQUEST[nap:{"seconds":0.05}]'
TALKS = 8


def passes(talk: int) -> Sequence[Sequence[Any]]:
    """The passes of a model. Each call creates them, since a raised error references its traceback."""
    talks: Sequence[Sequence[Sequence[Any]]] = (
        [["Hello ", 0.02, "there."]],
        [[*[item for n in range(15) for item in (f"Wört{n} ", 0.01)]]],
        [["One moment. ", NAP, NAP], ["Rested ", 0.01, "well."]],
        [[0.2, "late"]],
        [["SPECIALIST_REQUEST[letter]"], ["Sent."]],
        [["Half ", 0.01, ModelError("model_failed", "The model failed.")]],
        [["A long one: ", *LONG]],
        [[NAP, " ", 0.3]],
    )
    return talks[talk]


@specialist(timeout=5)
async def nap(seconds: float) -> AsyncGenerator[Progress | str, None]:
    """Sleeps."""
    yield Progress("falls asleep", 0.5)
    await asyncio.sleep(seconds)
    yield "Rested."


@specialist(approval="always")
async def letter() -> str:
    """Sends a letter."""
    return "Sent."


class Talker(Player):
    """Says what its question asks for, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = 0

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        question = next(message.content for message in reversed(request.messages) if message.role == "user")
        player = Player(*passes(int(question[-1])))
        self.streams += 1
        try:
            async with aclosing(player.stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self.streams -= 1


def posted(path: str, body: Any, *headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers)
    return "\r\n".join([*lines, f"Content-Length: {len(data)}", "Connection: close", "", ""]).encode() + data


def got(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "Connection: close", "", ""]).encode()


def openai(number: int, stream: bool) -> bytes:
    return posted(
        "/v1/chat/completions",
        {"model": "brain", "messages": [{"role": "user", "content": f"{number}"}], "stream": stream},
    )


ROUTES = {
    "chat": lambda n, client: posted("/v1/chat/stream", {"message": f"{n}"}),
    "get": lambda n, client: got(f"/v1/chat/stream?message={n}&request_id=r{client}"),
    "turns": lambda n, client: posted("/v1/turns", {"message": f"{n}", "request_id": f"t{client}"}),
    "openai": lambda n, client: openai(n, stream=True),
    "openai, whole": lambda n, client: openai(n, stream=False),
    "ollama": lambda n, client: posted(
        "/api/chat", {"model": "brain", "messages": [{"role": "user", "content": f"{n}"}]}
    ),
    "ollama, generate": lambda n, client: posted("/api/generate", {"model": "brain", "prompt": f"{n}"}),
    "ai sdk": lambda n, client: posted(
        "/ai-sdk/chat",
        {
            "id": f"chat{client}",
            "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": f"{n}"}]}],
            "trigger": "submit-message",
            **({"resumable": True} if client % 2 else {}),
        },
    ),
    "ag-ui": lambda n, client: posted(
        "/ag-ui/run",
        {
            "threadId": f"thread{client}",
            "runId": f"run{client}",
            "state": {},
            "messages": [{"id": "1", "role": "user", "content": f"{n}"}],
            "tools": [],
            "context": [],
            "forwardedProps": {},
        },
    ),
}


class Client:
    """A client that may disconnect: before it has sent its request, directly after, or after some bytes."""

    def __init__(self, port: int, number: int, chance: random.Random) -> None:
        self._port = port
        self.route = list(ROUTES)[number % len(ROUTES)]
        self._request: bytes = ROUTES[self.route](chance.randrange(TALKS), number)
        self._sends = len(self._request) if chance.random() < 0.9 else chance.randrange(len(self._request))
        self._takes = chance.choice((0, 1, 200, 500, 1_000, 3_000))
        self._stays = number % 2 == 0
        self._resets = chance.random() < 0.5

    async def run(self, connecting: asyncio.Semaphore) -> str:
        """Return the outcome."""
        async with connecting:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            if self._stays:
                return await self._read_all(reader, writer)
            writer.write(self._request[: self._sends])
            with contextlib.suppress(asyncio.IncompleteReadError):
                if self._sends == len(self._request):
                    await reader.readexactly(self._takes)
            return "vanished"
        finally:
            if self._resets and not self._stays:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

    async def _read_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(self._request)
        answer = await reader.read()
        status = answer[9:12].decode()
        if self.route == "turns":
            reader, other = await asyncio.open_connection("127.0.0.1", self._port)
            place = json.loads(answer.partition(b"\r\n\r\n")[2])["events"]
            other.write(got(place))
            answer = await reader.read()
            other.transport.abort()
        whole = b"content-length" in answer.lower() or answer.endswith(b"\r\n0\r\n\r\n")
        return f"{status} {'whole' if whole else 'broken off'}"


async def crowd(port: int, clients: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    connecting = asyncio.Semaphore(CONNECTING)
    made = [Client(port, number, chance) for number in range(clients)]
    async with asyncio.timeout(300):
        return Counter(await asyncio.gather(*(one.run(connecting) for one in made)))


@pytest.fixture
def many_files() -> Iterator[None]:
    """Clients and server are one process here, which has both ends of each connection."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def no_log() -> Iterator[None]:
    """Disable the log: pytest stores all records with their errors."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, many_files: None, no_log: None) -> Iterator[Server]:
    monkeypatch.setattr("brain.server.routes.turns.UNREAD_SECONDS", 0.3)
    monkeypatch.setattr(
        "brain.server.admission.LAG_SECONDS", math.inf
    )  # what a slow machine would refuse, leaves nothing
    monkeypatch.setattr("brain.server.admission.WAITING_TURNS", 1_000_000)
    monkeypatch.setattr("brain.runtime.runs.REPLAY_SECONDS", 0.5)
    monkeypatch.setattr("brain.runtime.runs.SWEEP_SECONDS", 0.05)
    registry = Registry()
    registry.add(nap)
    registry.add(letter)
    with brain_served(registry, APPROVAL_SECONDS=0.3, HEARTBEAT_SECONDS=0.2, TURNS_AT_ONCE=TURNS_AT_ONCE) as server:
        yield server


def is_idle(server: Server) -> bool:
    """Wait until everything that the clients started has ended."""

    async def wait() -> None:
        while len(server.engine.runs) or server.server_state.connections:  # noqa: ASYNC110 - they end without an event
            await asyncio.sleep(0)
        await server.engine.store.write(users.set_recalls, "none", True)  # a write, after all others

    assert server.left() == []
    asyncio.run_coroutine_threadsafe(wait(), server.loop).result(WAIT_SECONDS)
    assert b"\nbrain_streams_open 0.0\n" in server.state.telemetry.metrics.expose("")[0]
    for _ in range(TURNS_AT_ONCE):  # a turn that were still counted would take one of them
        server.state.rate_limits.acquire(None, 0.0)
    for _ in range(TURNS_AT_ONCE):
        server.state.rate_limits.release(None)
    return True


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def held() -> tuple[int, int]:
    """Number of objects, and traced memory in bytes."""
    gc.collect()
    return len(gc.get_objects()), tracemalloc.get_traced_memory()[0]


@pytest.mark.timeout(600)
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux alone tells a process which files it has open")
def test_nothing_is_left_of_hundreds_of_clients(server: Server) -> None:
    model = Talker()
    server.play(model)
    asyncio.run(crowd(server.port, CLIENTS, seed=1))
    assert is_idle(server)
    opened, threads = files(), threading.active_count()
    tracemalloc.start()  # the first clients filled what stays
    try:
        objects, size = held()
        came = asyncio.run(crowd(server.port, CLIENTS, seed=2))
        assert is_idle(server)
        more_objects, more_size = held()
    finally:
        tracemalloc.stop()
    assert came.pop("vanished") == CLIENTS // 2
    assert came.pop("200 whole") + came.pop("201 whole") + came.pop("502 whole", 0) == CLIENTS // 2
    assert came == {}
    assert (files(), threading.active_count(), model.streams) == (opened, threads, 0)
    assert more_objects - objects < LEFT_OBJECTS
    assert more_size - size < LEFT_BYTES
