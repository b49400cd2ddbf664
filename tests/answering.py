"""Servers that say exactly what a test tells them to, on a real port; `servers` are those that speak as models' do."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from beside import beside

Json = Any


@dataclass(frozen=True)
class ThinkerRun:
    """Reasoning, in the field where this server has it."""

    text: str
    field: str = "reasoning_content"


@dataclass(frozen=True)
class Raw:
    """Bytes of the body, written as they are."""

    data: bytes


@dataclass(frozen=True)
class Wait:
    """Silence."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """The connection ends here: reset, or closed in the middle of the body."""

    reset: bool = False


Item = str | ThinkerRun | Raw | Wait | Cut


@dataclass(frozen=True)
class Pass:
    """What one generating request is answered with.

    Attributes:
        said: texts and the like, one frame each; may be endless.
        every: seconds before each of them.
        finish: why it stopped; None leaves the last frame out.
        usage: prompt, completion and cached tokens.
        done: whether `[DONE]` is sent, where the protocol has it.
        echo: whether the started answer is repeated first.
        newline: how lines end.
        piece: how many bytes go into one write; 0 for one frame each, -1 for all at once.
        status, answer, kind: of a request that is refused, or not answered with a stream.
    """

    said: Iterable[Item] = ()
    every: float = 0.0
    finish: str | None = "stop"
    usage: tuple[int, int, int | None] | None = (10, 3, None)
    done: bool = True
    echo: bool = False
    newline: bytes = b"\n"
    piece: int = 0
    status: int = 200
    answer: Json = None
    kind: str = "application/json"


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json


@dataclass
class Served:
    """What became of one generating request: when its text held the marker, what was said behind it, when it ended."""

    text: str = ""
    marker_at: float | None = None
    tokens_after_marker: int = 0
    closed_at: float | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def seconds_until_closed(self) -> float:
        """From the end of the marker until the client closed the connection."""
        assert self.marker_at is not None
        assert self.closed_at is not None
        return self.closed_at - self.marker_at


class Server:
    """A server that answers generating requests with `passes`, one after the other, and others with `answers`.

    Args:
        answers: status and JSON (or bytes) by method and path.
        marker: text from whose end on tokens are counted.
        refuses_prefill: the text of the 400 for a message of the assistant that is to be gone on with.
        silent: accept connections and never answer.

    Attributes:
        asked: all requests, in order.
        served: one entry a generating request that was answered with 200.
        marked: set when an answer has held the marker.
    """

    generating = ""
    content_type = ""

    def __init__(
        self,
        *passes: Pass,
        answers: Mapping[str, tuple[int, Json]] | None = None,
        marker: str = "]",
        refuses_prefill: str | None = None,
        silent: bool = False,
    ) -> None:
        self.asked: list[Asked] = []
        self.served: list[Served] = []
        self.marked = asyncio.Event()
        self.url = ""
        self._passes = iter(passes)
        self._answers = dict(answers or {})
        self._marker = marker
        self._refuses_prefill = refuses_prefill
        self._silent = silent
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def lines(self) -> list[str]:
        """Method and path of all requests."""
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    @property
    def generated(self) -> list[Json]:
        """The bodies of the generating requests."""
        return [asked.body for asked in self.asked if asked.path == self.generating]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{self.prefix}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    prefix = ""

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if self._silent:
                await asyncio.sleep(3600)
            asked = await _read(reader)
            if asked is not None:
                self.asked.append(asked)
                await self._answer(asked, reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asked.method != "POST" or asked.path != self.generating:
            status, answer = self._answers.get(f"{asked.method} {asked.path}", (404, {"error": "not found"}))
            await _send(writer, status, answer)
            return
        if self._refuses_prefill is not None and asked.body["messages"][-1]["role"] == "assistant":
            await _send(writer, 400, self.refusal(self._refuses_prefill))
            return
        told = next(self._passes)
        if told.status != 200 or told.answer is not None:
            await _send(writer, told.status, told.answer, told.kind)
            return
        served = Served()
        self.served.append(served)
        watcher = asyncio.create_task(_watch(reader, served))
        try:
            await self._generate(told, asked.body, served, writer)
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(served.closed.wait(), 1)
            watcher.cancel()

    async def _generate(self, told: Pass, body: Json, served: Served, writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {self.content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )
        held = b""
        async for frame in self._frames(told, body, served):
            if isinstance(frame, Cut):
                await _write(writer, held)
                await writer.drain()
                await asyncio.sleep(0.02)
                if frame.reset:
                    writer.transport.abort()
                served.closed.set()
                return
            held += frame.replace(b"\n", told.newline) if told.newline != b"\n" else frame
            if told.piece == 0:
                await _write(writer, held)
                held = b""
            while 0 < told.piece <= len(held):
                await _write(writer, held[: told.piece])
                held = held[told.piece :]
            if served.closed.is_set():
                return
        await _write(writer, held)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.write_eof()

    async def _frames(self, told: Pass, body: Json, served: Served) -> AsyncIterator[bytes | Cut]:
        for frame in self.opening(body):
            yield frame
        started = body["messages"][-1]
        echo = [started["content"]] if told.echo and started["role"] == "assistant" else []
        for said in (*echo, *told.said) if isinstance(told.said, Sequence) else told.said:
            await asyncio.sleep(said.seconds if isinstance(said, Wait) else told.every)
            if isinstance(said, Wait):
                continue
            yield said if isinstance(said, Cut) else said.data if isinstance(said, Raw) else self.frame(said)
            if isinstance(said, str):
                self._count(served, said)
        for frame in self.closing(told, body):
            yield frame

    def _count(self, served: Served, said: str) -> None:
        if served.marker_at is not None:
            served.tokens_after_marker += 1
        served.text += said
        if served.marker_at is None and self._marker in served.text:
            served.marker_at = time.monotonic()
            self.marked.set()

    def refusal(self, text: str) -> Json:
        """How this server words a 400."""
        raise NotImplementedError

    def opening(self, body: Json) -> Iterator[bytes]:
        """Frames before the first text."""
        yield from ()

    def frame(self, said: str | ThinkerRun) -> bytes:
        """One text."""
        raise NotImplementedError

    def closing(self, told: Pass, body: Json) -> Iterator[bytes]:
        """Frames after the last text."""
        raise NotImplementedError


@contextmanager
def in_thread(server: Server) -> Iterator[Server]:
    """The server on a loop of its own, for tests that are not asynchronous."""

    async def serve(ready: threading.Event, over: threading.Event) -> None:
        async with server:
            ready.set()
            await asyncio.to_thread(over.wait)

    with beside(serve):
        yield server


async def _watch(reader: asyncio.StreamReader, served: Served) -> None:
    with suppress(ConnectionError):
        await reader.read()
    served.closed_at = time.monotonic()
    served.closed.set()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
    data = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, json.loads(data) if data else None)


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if data:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
        await asyncio.sleep(0)


async def _send(writer: asyncio.StreamWriter, status: int, answer: Json, kind: str = "application/json") -> None:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    writer.write(
        f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()
