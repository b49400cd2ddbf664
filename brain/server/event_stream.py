"""Streams a run to one client in any protocol; the only module that imports sse_starlette."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache, partial
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
STALLED = "disconnected a client that does not read its stream"
CHECKS_PER_HEARTBEAT = 8
"""Checks for silence per heartbeat interval."""
SHUTDOWN_SECONDS = 5.0
"""Time limit for turns to end at shutdown."""
WRITE_EXTENSION = "brain.write"
"""ASGI extension of `uvicorn_protocol`: writes one chunk of the body immediately, or returns False."""
ABORT_EXTENSION = "brain.abort"
"""ASGI extension of `uvicorn_protocol`: closes the connection in the middle of a response, so that the client knows
that the response is incomplete."""
STREAM_EXTENSION = "brain.stream"
"""ASGI extension of `uvicorn_protocol`: takes the `Reader` of a stream, and returns the `Channel` that it begins after
the head of the response. The application may return then."""
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


@dataclass(frozen=True, slots=True)
class Channel:
    """The rest of one response on Brain's own server, whose head was sent.

    Until its end, the connection calls `Reader.resume` when the client can receive again, and `Reader.close` when it
    has disconnected.

    Attributes:
        write: Writes a chunk of the body. Returns False, without writing, if the client is not ready for it.
        end: Ends the response.
        abort: Closes the connection, so that the client knows that the response is incomplete.
    """

    write: Callable[[bytes], bool]
    end: Callable[[], None]
    abort: Callable[[], object]


class Heartbeats:
    """The heartbeats of all readers, with one timer.

    Args:
        seconds: Silence after which a stream has a heartbeat, at the latest.

    Attributes:
        step: Seconds between two checks.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.step = seconds / CHECKS_PER_HEARTBEAT
        self._readers: dict[Reader, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, reader: "Reader") -> None:
        """Check the silence of this reader until it is discarded."""
        self._readers[reader] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.step, self._check)

    def discard(self, reader: "Reader") -> None:
        """Stop the checks of this reader. Further calls do nothing."""
        self._readers.pop(reader, None)
        if not self._readers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.step, self._check)
        now = loop.time()
        for reader in [*self._readers]:
            reader.check_silence(now)


class Reader:
    """One client of a run: gets the bytes to send, with a heartbeat after a silence.

    On Brain's own server, a reader needs no task: after `begin`, the task of the run writes events to the socket. On
    others, a reader is an async iterator.

    Args:
        encoder: None for the native protocol, whose frames are in the log.
        after: the number of the last event that the client has.
        owns_run: whether the run stops when this client disconnects, even if it has other readers.

    Attributes:
        is_closed: whether it has left the run.
        on_close: called when it leaves the run.

    Raises:
        BadRequest: `gone`, if the events after `after` have expired.
        ConnectionAbortedError: from the iterator: another process continues the turn.
    """

    __slots__ = (
        "_answered", "_channel", "_heartbeats", "_is_blocked", "_is_over", "_last_encoded", "_last_given", "_last_sent",
        "_loop", "_owns_run", "_pending", "_pending_bytes", "_pending_limit", "_run", "_sent_at", "_unsubscribe",
        "_waiter", "encoder", "is_closed", "on_close",
    )  # fmt: skip

    def __init__(
        self,
        run: Run,
        encoder: Encoder | None = None,
        after: int = 0,
        *,
        heartbeats: Heartbeats,
        owns_run: bool = False,
    ) -> None:
        self.encoder = encoder
        self.is_closed = False
        self.on_close: Callable[[], None] | None = None
        self._run = run
        self._owns_run = owns_run
        self._loop = asyncio.get_running_loop()
        self._answered: asyncio.Future[Error | None] | None = self._loop.create_future()
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
        self._channel: Channel | None = None
        self._is_blocked = False  # the client is not ready for more
        self._waiter: asyncio.Future[None] | None = None
        self._sent_at = self._loop.time()
        self._heartbeats = heartbeats
        heartbeats.add(self)
        self._unsubscribe = run.join(self._notify)

    def _notify(self, events: Sequence[Event], frames: bytes) -> None:
        if self._is_over:
            return
        encoder, run = self.encoder, self._run
        if not events:
            self._is_over = True
            self._set_answered(None)
            self._send_pending()
            return
        if self._answered is not None:
            if isinstance(events[-1], Error):
                self._set_answered(events[-1])
            elif not all(isinstance(event, OPENING) for event in events):
                self._set_answered(None)
        try:
            data = frames if encoder is None else encoder.encode(events)
        except Exception:  # an error in one protocol must not end the run
            log.exception("turn %s: its events could not be encoded", run.id)
            self._is_over = True
            self._send_pending()
            return
        self._last_encoded = run.log.last
        self._is_over = run.log.has_ended or (encoder is not None and encoder.closed)
        if (
            self._channel is not None
            and not self._pending
            and not self._is_blocked
            and not self._is_over
            and self._channel.write(data)
        ):
            self._last_given = self._last_sent = self._last_encoded
            if data:
                self._sent_at = self._loop.time()
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > self._pending_limit:
            self._is_over = True
            self._pending.clear()
        self._send_pending()

    def _set_answered(self, error: Error | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(error)

    def _send_pending(self) -> None:
        if self._channel is not None:
            if not self._is_blocked:
                self._write(self._channel)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def begin(self, channel: Channel) -> None:
        """Write everything to this channel from now on. The reader closes itself at the end."""
        self._answered = None
        self._channel = channel
        self._write(channel)

    def resume(self) -> None:
        """Continue to write: the client can receive again."""
        if self._channel is not None and self._is_blocked:
            self._is_blocked = False
            self._write(self._channel)

    def _write(self, channel: Channel) -> None:
        """Write what is pending until the client is not ready. Then end the response, if no more data will come."""
        while self._pending:
            data, count = self._join_pending()
            if not channel.write(data):
                self._is_blocked = True
                return
            self._remove_pending(data, count)
            self._last_sent = self._last_given
        if self._is_over:
            self.close()
            if self._run.log.is_cut_off:
                channel.abort()
            else:
                channel.end()

    def _join_pending(self) -> tuple[bytes, int]:
        """Return the next bytes to send, and of how many pieces they are."""
        if len(self._pending) == 1:
            return self._pending[0], 1
        count, size = 0, 0
        while count < len(self._pending) and size < CHUNK_BYTES:
            size += len(self._pending[count])
            count += 1
        return b"".join(self._pending[:count]), count

    def _remove_pending(self, data: bytes, count: int) -> None:
        del self._pending[:count]
        self._pending_bytes -= len(data)
        if not self._pending:
            self._last_given = self._last_encoded
        if data:
            self._sent_at = self._loop.time()

    def check_silence(self, now: float) -> None:
        """Send a heartbeat before the silence is too long. Disconnect a client that does not read.

        A response whose head was not sent has no heartbeats.
        """
        silence, limit = now - self._sent_at, self._heartbeats.seconds
        if self._is_blocked:
            if silence >= limit * UNREAD_HEARTBEATS:
                self._disconnect()
        elif silence > limit - self._heartbeats.step and not self._pending and (self._channel or self._waiter):
            self._pending.append(HEARTBEAT if self.encoder is None else self.encoder.heartbeat)
            self._pending_bytes += len(self._pending[0])
            self._send_pending()

    def _disconnect(self) -> None:
        log.info(STALLED)
        channel = self._channel
        self.close()
        if channel is not None:
            channel.abort()

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
        data, count = self._join_pending()
        self._remove_pending(data, count)
        return data

    async def wait_for_error(self) -> Error | None:
        """Wait for the first text, at most one heartbeat interval. Return the error if the turn fails before it.

        Returns None at once if the client disconnects.
        """
        assert self._answered is not None
        await asyncio.wait({self._answered}, timeout=self._heartbeats.seconds)
        return self._answered.result() if self._answered.done() else None

    def close(self) -> None:
        """Leave the run. Further calls do nothing."""
        if self.is_closed:
            return
        self.is_closed = self._is_over = True
        self._channel = None
        self._set_answered(None)
        self._heartbeats.discard(self)
        self._unsubscribe()
        del self._unsubscribe  # breaks a reference cycle
        self._run.last_received = self._last_sent
        if self._owns_run:
            self._run.stop()
        self._run.leave(will_reconnect=self.encoder is not None and self.encoder.closed)
        if self.on_close is not None:
            self.on_close()

    async def aclose(self) -> None:
        """Leave the run, as `aclosing` expects."""
        self.close()


class EventStreamResponse:
    """The response that sends a stream until its end, or until the client disconnects.

    On Brain's own server, a `Reader` gets the connection, and the request ends. Other streams are sent by the loop of
    this class, and on other ASGI servers by sse-starlette, whose tasks cost 16 KiB per stream and two thirds more time
    per token.

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
        stream = self._stream
        attach: Attach | None = scope.get("extensions", {}).get(STREAM_EXTENSION)
        self._count_streams(1)
        if isinstance(stream, Reader) and attach is not None:
            stream.on_close = partial(self._count_streams, -1)
            try:
                await self._begin(stream, attach, scope, send)
            except BaseException:
                stream.close()
                raise
            return
        try:
            async with aclosing(stream):
                with anyio.CancelScope() as connected:
                    disconnect = asyncio.create_task(wait_for_disconnect(receive), name="disconnect")
                    disconnect.add_done_callback(lambda _: connected.cancel())
                    try:
                        await self._respond(scope, send)
                    finally:
                        disconnect.cancel()
        except* TimeoutError:
            log.info(STALLED)
        finally:
            self._count_streams(-1)

    async def _begin(self, reader: Reader, attach: "Attach", scope: Scope, send: Send) -> None:
        """Begin the response, and give the reader the rest of it."""
        channel = attach(reader)
        if await self._reject(reader, scope, send):
            reader.close()
            return
        await asyncio.sleep(0)  # a run that has just started has its first event then, which goes out with the headers
        if not reader.is_closed:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers(reader.encoder)})
        if not reader.is_closed:
            reader.begin(channel)

    async def _reject(self, reader: Reader, scope: Scope, send: Send) -> bool:
        """Respond with an HTTP status if the turn fails before its first text. Return whether it did."""
        error = None if self._rejects is None else await reader.wait_for_error()
        if error is None or self._rejects is None or not self._rejects(error):
            return False
        await error_response(as_rejection(error), scope)(scope, _receive_nothing, send)
        return True

    @staticmethod
    def _headers(encoder: Encoder | None) -> list[tuple[bytes, bytes]]:
        """Return a new list, since middleware adds headers to it."""
        return [*_raw_headers(None)] if encoder is None else [*_raw_headers(encoder.content_type), *encoder.headers]

    async def _respond(self, scope: Scope, send: Send) -> None:
        stream = self._stream
        if isinstance(stream, Reader) and await self._reject(stream, scope, send):
            return
        headers = self._headers(stream.encoder if isinstance(stream, Reader) else None)
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
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for data in stream:
            if not write(data):
                with anyio.fail_after(self._send_seconds):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        with anyio.fail_after(self._send_seconds):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


Attach = Callable[[Reader], Channel]


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
