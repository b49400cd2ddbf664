"""Streams a run to one client in any protocol; the only module that imports sse_starlette."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from typing import Any, Protocol

import anyio
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.types import Message, Receive, Scope, Send

from brain.events import Error, Event, Notice, TurnStart
from brain.protocols.bodies import as_rejection
from brain.protocols.native import HEARTBEAT
from brain.runtime.run import AnyRun
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


class ByteReader(Protocol):
    """One client of a stream: an async iterator of the bytes to send.

    Attributes:
        encoder: None for the native protocol.
        write: writes bytes immediately, or returns False; None if the server cannot.
        sent_at: when the iterator returned bytes last, in seconds of the event loop's clock.
        is_interrupted: whether `interrupt` was called.
    """

    encoder: Encoder | None
    write: Callable[[bytes], bool] | None
    sent_at: float
    is_interrupted: bool

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def __anext__(self) -> bytes: ...
    def interrupt(self) -> None:
        """Make the iterator return empty bytes instead of waiting, until `is_interrupted` is reset."""

    def put_back(self, data: bytes) -> None:
        """Put unsent data back to the front."""

    def close(self) -> None:
        """Unsubscribe; called once."""


class Reader:
    """One client of a run: an async iterator of the bytes to send.

    If the reader is up to date and the server supports it, the task of the run writes new events directly to the
    socket, without waking the reader.

    Args:
        encoder: None for the native protocol, whose frames are in the log.
        after: the number of the last event that the client has.
        owns_run: whether the run stops when this client disconnects, even if it has other readers.

    Raises:
        BadRequest: `gone`, if the events after `after` have expired.
    """

    def __init__(self, run: AnyRun, encoder: Encoder | None = None, after: int = 0, *, owns_run: bool = False) -> None:
        self.encoder = encoder
        self.write: Callable[[bytes], bool] | None = None
        self._run = run
        self._owns_run = owns_run
        self._loop = asyncio.get_running_loop()
        self.sent_at = self._loop.time()
        self.model_answered: asyncio.Future[Error | None] = self._loop.create_future()
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
        self._is_lost = False
        self.is_interrupted = False
        self._waiter: asyncio.Future[None] | None = None
        self._unsubscribe = run.join(self._notify)

    @property
    def is_over(self) -> bool:
        """Whether no more data will come."""
        return self._is_lost or self._run.log.has_ended or (self.encoder is not None and self.encoder.closed)

    def _notify(self, events: Sequence[Event], frames: bytes) -> None:
        if self._is_lost or (self.encoder is not None and self.encoder.closed):
            return
        if not self.model_answered.done():
            if isinstance(events[-1], Error):
                self.model_answered.set_result(events[-1])
            elif not all(isinstance(event, OPENING) for event in events):
                self.model_answered.set_result(None)
        try:
            data = frames if self.encoder is None else self.encoder.encode(events)
        except Exception:  # an error in one protocol must not end the run
            log.exception("turn %s: its events could not be encoded", self._run.id)
            data, self._is_lost = b"", True
        waiter = self._waiter if self._waiter is not None and not self._waiter.done() else None
        self._last_encoded = self._run.log.last
        # without a waiter, earlier events are not sent yet
        if waiter is not None and self.write is not None and not self.is_over and self.write(data):
            self._last_given = self._last_sent = self._last_encoded
            self.sent_at = self._loop.time()
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._is_lost or self._pending_bytes > self._pending_limit:
            self._is_lost = True
            self._pending.clear()
        if waiter is not None:
            waiter.set_result(None)

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> bytes:
        self._last_sent = self._last_given
        while not self._pending:
            if self.is_over:
                raise StopAsyncIteration
            if self.is_interrupted:
                return b""
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
        self.sent_at = self._loop.time()
        return data

    def interrupt(self) -> None:
        """Make the iterator return empty bytes instead of waiting, until `is_interrupted` is reset."""
        self.is_interrupted = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def put_back(self, data: bytes) -> None:
        """Put unsent data back to the front."""
        if data:
            self._pending.insert(0, data)
            self._pending_bytes += len(data)
            self._last_given = self._last_sent

    def close(self) -> None:
        """Unsubscribe from the run."""
        self._unsubscribe()
        self._run.last_received = self._last_sent
        if self._owns_run:
            self._run.stop()
        self._run.leave(will_reconnect=self.encoder is not None and self.encoder.closed)


class EventStreamResponse:
    """The response that sends what a reader reads.

    Args:
        heartbeat: seconds of silence after which a comment is sent.
        count_streams: called with 1 when a stream opens, with -1 when it closes.
        rejects: for a `Reader`: returns whether a turn that fails with this error before its first text gets an HTTP
            status instead of a stream. With it, the response starts with the first text or after one heartbeat
            interval, so that it can have the status of the model server.
    """

    def __init__(
        self,
        reader: ByteReader,
        *,
        heartbeat: float,
        count_streams: Callable[[int], None],
        rejects: Callable[[Error], bool] | None = None,
    ) -> None:
        self._reader = reader
        self._count_streams = count_streams
        self._heartbeat = heartbeat
        self._rejects = rejects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._count_streams(1)
        try:
            if self._rejects is not None and not await self._send_rejection(self._rejects, scope, receive, send):
                return
            self._reader.write = scope.get("extensions", {}).get(WRITE_EXTENSION)
            if self._reader.write is None:
                await self._response()(scope, receive, send)
            elif not await self._send_directly(self._reader.write, receive, send):

                async def send_rest(message: Message) -> None:
                    if message["type"] != "http.response.start":
                        await send(message)

                await self._response()(scope, receive, send_rest)
        except* SendTimeoutError:  # while sending an event, a heartbeat, or both
            log.info("disconnected a client that does not read its stream")
        finally:
            self._count_streams(-1)
            self._reader.close()

    async def _send_rejection(
        self, rejects: Callable[[Error], bool], scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Wait for the first text. Return True then; send the error of a failed turn and return False."""
        assert isinstance(self._reader, Reader)
        answered = self._reader.model_answered
        disconnect = asyncio.create_task(wait_for_disconnect(receive), name="disconnect")
        futures: set[asyncio.Future[Any]] = {answered, disconnect}
        try:
            await asyncio.wait(futures, timeout=self._heartbeat, return_when="FIRST_COMPLETED")
            if disconnect.done():
                return False
        finally:
            disconnect.cancel()
        await asyncio.wait({disconnect})
        if not answered.done() or (error := answered.result()) is None or not rejects(error):
            return True
        await error_response(as_rejection(error), scope)(scope, receive, send)
        return False

    async def _send_directly(self, write: Callable[[bytes], bool], receive: Receive, send: Send) -> bool:
        """Send a short stream to a client that reads fast enough.

        The tasks of `EventSourceResponse`, which heartbeats and slow clients need, cost a fifth of a short turn.

        Returns:
            True if the response is complete or the client disconnected; False if `_response` must send the rest.
        """
        reader = self._reader
        await send({"type": "http.response.start", "status": 200, "headers": self._raw_headers()})
        disconnect = asyncio.create_task(wait_for_disconnect(receive), name="disconnect")
        disconnect.add_done_callback(lambda _: reader.interrupt())
        timer = asyncio.get_running_loop().call_later(self._heartbeat / CHECKS_PER_HEARTBEAT, reader.interrupt)
        try:
            async for data in reader:
                if disconnect.done():
                    return True
                if reader.is_interrupted or not write(data):
                    reader.put_back(data)
                    break
            else:
                if write(b""):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    return True
        finally:
            timer.cancel()
            disconnect.cancel()
        await asyncio.wait({disconnect})
        reader.is_interrupted = False
        return not disconnect.cancelled()

    def _raw_headers(self) -> list[tuple[bytes, bytes]]:
        """A new list, since middleware adds headers to it."""
        encoder = self._reader.encoder
        if encoder is None:
            return [*_raw_headers(None)]
        return [*_raw_headers(encoder.content_type), *encoder.headers]

    def _response(self) -> EventSourceResponse:
        response = EventSourceResponse(
            self._reader,
            ping=self._heartbeat / CHECKS_PER_HEARTBEAT,
            ping_message_factory=self._heartbeat_if_silent,  # type: ignore[arg-type]  # bytes are sent as they are
            sep="\n",
            shutdown_event=anyio.Event(),
            shutdown_grace_period=SHUTDOWN_SECONDS,
            send_timeout=self._heartbeat * UNREAD_HEARTBEATS,
        )
        response.raw_headers = self._raw_headers()
        return response

    def _heartbeat_if_silent(self) -> bytes:
        now = asyncio.get_running_loop().time()
        if now - self._reader.sent_at + self._heartbeat / CHECKS_PER_HEARTBEAT <= self._heartbeat:
            return b""
        self._reader.sent_at = now
        return HEARTBEAT if self._reader.encoder is None else self._reader.encoder.heartbeat


@cache
def _raw_headers(content_type: bytes | None) -> list[tuple[bytes, bytes]]:
    """The headers of a stream: those of `EventSourceResponse` and Brain's."""
    response = EventSourceResponse(iter(()), headers=_HEADERS)
    if content_type is not None:
        response.headers["content-type"] = content_type.decode()
    return response.raw_headers


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def wait_for_shutdown() -> None:
    """Wait until the ASGI server shuts down; works with any server."""
    await EventSourceResponse._listen_for_exit_signal()
