"""Streams a run to one client in any protocol; the only module that imports sse_starlette."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cache
from typing import Protocol

import anyio
from sse_starlette import EventSourceResponse
from starlette.types import Message, Receive, Scope, Send

from brain.events import Error, Event, Notice, TurnStart
from brain.protocols.encoding import HEARTBEAT, as_rejection
from brain.runtime.run import Run
from brain.server.responses import SAFE_HEADERS, error_response

log = logging.getLogger("brain")

CHUNK_BYTES = 64 * 1024
PENDING_BYTES = 8 * 1024 * 1024
"""Limit for unsent data. A slower client is disconnected; it can reconnect and read the event log."""
UNREAD_HEARTBEATS = 4
"""Heartbeat intervals after which a client that reads nothing is disconnected."""
CHECKS_PER_HEARTBEAT = 4
"""Checks for silence per heartbeat interval."""
SHUTDOWN_SECONDS = 5.0
"""Time limit for turns to end at shutdown."""
WRITE_EXTENSION = "brain.write"
"""ASGI extension of `uvicorn_protocol`: writes one chunk of the body immediately, or returns False."""
ABORT_EXTENSION = "brain.abort"
"""ASGI extension of `uvicorn_protocol`: closes the connection in the middle of a response, so that the client knows
that the response is incomplete."""
OPENING = (TurnStart, Notice)
"""Events before the first text of the model."""

_HEADERS = {**SAFE_HEADERS, "Cache-Control": "no-cache, no-transform"}


class Encoder(Protocol):
    """Encodes the events of one turn in one protocol. Events in, bytes out, no I/O.

    Attributes:
        content_type: the media type of the stream.
        headers: further response headers.
        heartbeat: bytes to send after a silence, to stop proxies from closing the connection.
        closed: whether the stream has ended. It ends before the turn if the client sends approvals in a new request.
    """

    @property
    def content_type(self) -> bytes: ...
    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...
    @property
    def heartbeat(self) -> bytes: ...
    @property
    def closed(self) -> bool: ...

    def encode(self, events: Sequence[Event]) -> bytes:
        """Encode events; after the last event, also the end of the stream."""


class Reader:
    """One client of a run: an async iterator of the bytes to send, with a heartbeat after a silence.

    If the client is up to date and the server supports it, the task of the run writes new events directly to the
    socket, without waking the task of the response.

    Args:
        encoder: None for the native protocol, whose frames are in the log.
        after: the number of the last event that the client has.
        heartbeat: seconds of silence before a heartbeat.
        owns_run: whether the run stops when this client disconnects, even if it has other readers.

    Raises:
        BadRequest: `gone`, if the events after `after` have expired.
        ConnectionAbortedError: from the iterator: another process continues the turn.
    """

    def __init__(
        self, run: Run, encoder: Encoder | None = None, after: int = 0, *, heartbeat: float, owns_run: bool = False
    ) -> None:
        self.encoder = encoder
        self.write: Callable[[bytes], bool] | None = None
        self._run = run
        self._owns_run = owns_run
        self._loop = asyncio.get_running_loop()
        self._answered: asyncio.Future[Error | None] = self._loop.create_future()
        self._pending: list[bytes] = []
        if after or run.log.last:
            if encoder is None:
                self._pending = run.log.frames(after)
            elif events := run.log.events(after):
                self._pending = [encoder.encode(events)]
        self._pending_bytes = sum(map(len, self._pending))
        self._pending_limit = self._pending_bytes + PENDING_BYTES
        # the numbers of the last events that this stream has, that it gave to the server, and that the server has sent
        self._last_encoded, self._last_given, self._last_sent = run.log.last, after, after
        ends = run.log.has_ended or run.log.is_cut_off or (encoder is not None and encoder.closed)
        self._is_over = ends  # no more data will come
        self._waiter: asyncio.Future[None] | None = None
        self._heartbeat = heartbeat
        self._sent_at = self._loop.time()
        self._timer = self._loop.call_later(heartbeat, self._beat)
        self._is_closed = False
        self._unsubscribe = run.join(self._notify)

    def _notify(self, events: Sequence[Event], frames: bytes) -> None:
        if self._is_over:
            return
        encoder, run = self.encoder, self._run
        if not events:
            self._is_over = True
            if not self._answered.done():
                self._answered.set_result(None)
            self._wake()
            return
        if not self._answered.done():
            if isinstance(events[-1], Error):
                self._answered.set_result(events[-1])
            elif not all(isinstance(event, OPENING) for event in events):
                self._answered.set_result(None)
        try:
            data = frames if encoder is None else encoder.encode(events)
        except Exception:  # an error in one protocol must not end the run
            log.exception("turn %s: its events could not be encoded", run.id)
            self._is_over = True
            self._wake()
            return
        self._last_encoded = run.log.last
        if run.log.has_ended or (encoder is not None and encoder.closed):
            self._is_over = True
        # without a waiter, earlier data is not sent yet
        elif self.write is not None and self._waiter is not None and not self._waiter.done() and self.write(data):
            self._last_given = self._last_sent = self._last_encoded
            if data:
                self._sent_at = self._loop.time()
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > self._pending_limit:
            self._is_over = True
            self._pending.clear()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _beat(self) -> None:
        silence = self._loop.time() - self._sent_at
        if silence < self._heartbeat:
            self._timer = self._loop.call_later(self._heartbeat - silence, self._beat)
            return
        if self._waiter is not None and not self._pending:
            self._pending.append(HEARTBEAT if self.encoder is None else self.encoder.heartbeat)
            self._pending_bytes += len(self._pending[0])
            self._wake()
        self._timer = self._loop.call_later(self._heartbeat, self._beat)

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> bytes:
        self._last_sent = self._last_given
        while not self._pending:
            if self._run.log.is_cut_off:
                raise ConnectionAbortedError("another process continues the turn")
            if self._is_over:
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        count, size = 0, 0
        while count < len(self._pending) and size < CHUNK_BYTES:
            size += len(self._pending[count])
            count += 1
        data = b"".join(self._pending[:count])
        del self._pending[:count]
        self._pending_bytes -= size
        if not self._pending:
            self._last_given = self._last_encoded
        if data:
            self._sent_at = self._loop.time()
        return data

    async def wait_for_error(self) -> Error | None:
        """Wait for the first text, at most one heartbeat interval. Return the error if the turn fails before it."""
        await asyncio.wait({self._answered}, timeout=self._heartbeat)
        return self._answered.result() if self._answered.done() else None

    async def aclose(self) -> None:
        """Leave the run. Further calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._timer.cancel()
        self._unsubscribe()
        del self._unsubscribe  # which refers to this reader
        self._run.last_received = self._last_sent
        if self._owns_run:
            self._run.stop()
        self._run.leave(will_reconnect=self.encoder is not None and self.encoder.closed)


class EventStreamResponse:
    """The response that sends a stream until its end, or until the client disconnects.

    On Brain's own server, the loop of this class sends. On other ASGI servers, sse-starlette does; its tasks cost
    16 KiB per stream and two thirds more time per token.

    Args:
        heartbeat: the interval of heartbeats in the stream, in seconds.
        count_streams: called with 1 when a stream opens, with -1 when it closes.
        rejects: for a `Reader`: returns whether a turn that fails with this error before its first text gets an HTTP
            status instead of a stream. With it, the response starts with the first text or after one heartbeat
            interval, so that it can have the status of the model server.
    """

    def __init__(
        self,
        stream: Reader | AsyncGenerator[bytes, None],
        *,
        heartbeat: float,
        count_streams: Callable[[int], None],
        rejects: Callable[[Error], bool] | None = None,
    ) -> None:
        self._stream = stream
        self._count_streams = count_streams
        self._send_seconds = heartbeat * UNREAD_HEARTBEATS
        self._rejects = rejects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._count_streams(1)
        try:
            async with aclosing(self._stream):
                with anyio.CancelScope() as connected:
                    disconnect = asyncio.create_task(wait_for_disconnect(receive), name="disconnect")
                    disconnect.add_done_callback(lambda _: connected.cancel())
                    try:
                        await self._respond(scope, send)
                    finally:
                        disconnect.cancel()
        except* TimeoutError:
            log.info("disconnected a client that does not read its stream")
        finally:
            self._count_streams(-1)

    async def _respond(self, scope: Scope, send: Send) -> None:
        stream = self._stream
        encoder = stream.encoder if isinstance(stream, Reader) else None
        if self._rejects is not None and isinstance(stream, Reader):
            error = await stream.wait_for_error()
            if error is not None and self._rejects(error):
                await error_response(as_rejection(error), scope)(scope, _receive_nothing, send)
                return
        # a new list, since middleware adds headers to it
        headers = [*_raw_headers(None)] if encoder is None else [*_raw_headers(encoder.content_type), *encoder.headers]
        write = scope.get("extensions", {}).get(WRITE_EXTENSION)
        if write is None:
            response = EventSourceResponse(
                stream,
                ping=0,  # the stream has heartbeats
                sep="\n",
                shutdown_event=anyio.Event(),
                shutdown_grace_period=SHUTDOWN_SECONDS,
                send_timeout=self._send_seconds,
            )
            response.raw_headers = headers
            await response(scope, _receive_nothing, send)
            return
        if isinstance(stream, Reader):
            stream.write = write
        await asyncio.sleep(0)  # a run that has just started has its first event then, which goes out with the headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for data in stream:
                if not write(data):
                    with anyio.fail_after(self._send_seconds):
                        await send({"type": "http.response.body", "body": data, "more_body": True})
        except ConnectionAbortedError:
            scope["extensions"][ABORT_EXTENSION]()
            await _receive_nothing()  # until the disconnect
        with anyio.fail_after(self._send_seconds):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


@cache
def _raw_headers(content_type: bytes | None) -> list[tuple[bytes, bytes]]:
    """The headers of a stream: those of `EventSourceResponse` and Brain's."""
    response = EventSourceResponse(iter(()), headers=_HEADERS)
    if content_type is not None:
        response.headers["content-type"] = content_type.decode()
    return response.raw_headers


async def _receive_nothing() -> Message:
    """Wait forever: `EventStreamResponse` itself receives the disconnect."""
    return await asyncio.Future()


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def wait_for_shutdown() -> None:
    """Wait until the ASGI server shuts down; works with any server."""
    await EventSourceResponse._listen_for_exit_signal()
