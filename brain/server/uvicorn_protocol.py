"""One connection: uvicorn's protocol with limits for headers, connections and pipelined requests."""

import asyncio
import logging
from asyncio import TimerHandle, Transport
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from brain.server.admission import Reason, raw_rejection
from brain.server.event_stream import (
    ABORT_EXTENSION,
    SHUTDOWN_SECONDS,
    STREAM_EXTENSION,
    WRITE_EXTENSION,
    Channel,
    Reader,
)
from brain.server.middleware import ONLY_FORWARDED, client_network
from brain.server.state import ServerState

HEAD_BYTES = 64 * 1024
"""Limit for the headers of a request, the trailers of a body, and pipelined data."""
MAX_HEADERS = 256
HEAD_SECONDS = 20.0
"""Time limit for the headers, from the start of the connection or the end of the last response."""
MAX_PIPELINED = 16
"""Pipelined requests that can wait on one connection."""
DRAIN_SECONDS = SHUTDOWN_SECONDS / 2
"""At shutdown: time for clients to read the rest of responses and to send the rest of bodies."""
MAX_REJECTED = 64
"""Connections over a limit that get a 503 response. Further ones are closed immediately."""
REJECTED_HEAD_SECONDS = 2.0

log = logging.getLogger("brain")

_TOO_LARGE = b"The request headers are too large; the limits are %d KiB and %d headers.\r\n" % (
    HEAD_BYTES >> 10,
    MAX_HEADERS,
)
_TOO_LARGE_RESPONSE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)


_SET = asyncio.Event()
"""Replaces the event of a request that no application waits for."""
_SET.set()


class _StopParsing(Exception):
    """Stops the parser."""


def write_chunk(cycle: RequestResponseCycle, data: bytes) -> bool:
    """Write a chunk of a body without an `await`. Return False if the client is not ready for it."""
    if cycle.flow.write_paused or cycle.disconnected:
        return False
    if not cycle.chunked_encoding:
        return cycle.scope["method"] == "HEAD"  # it has no body
    if data:
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
    return True


def end_body(cycle: RequestResponseCycle) -> None:
    """End a response whose body `write_chunk` has written, as uvicorn does."""
    if cycle.disconnected:
        return
    if cycle.chunked_encoding:
        cycle.transport.write(b"0\r\n\r\n")
    cycle.response_complete = True
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    on_response, cycle.on_response = cycle.on_response, lambda: None  # breaks a reference cycle
    on_response()


class Protocol(HttpToolsProtocol):
    """Adds limits for headers, connections and pipelining, and detects a disconnect while requests wait.

    A `Reader` can write the rest of a response after its application has returned. Slots save 1 KiB per connection: a
    dictionary of more than 30 attributes does not share its keys.

    Args:
        is_private: whether only processes of this server connect. They have counted their clients themselves.
        only_forwarded: whether requests without the signature of such a process are rejected.
    """

    __slots__ = (
        "_address", "_buffered", "_cycles", "_is_last", "_is_private", "_is_rejecting", "_limit_reached",
        "_only_forwarded", "_proxies", "_reader", "_state", "_timer",
    )  # fmt: skip

    def __init__(self, *args: Any, is_private: bool = False, only_forwarded: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_private = is_private
        self._only_forwarded = only_forwarded
        self._cycles: list[
            RequestResponseCycle
        ] = []  # of requests without a complete response; the first is in progress
        self._reader: Reader | None = None  # of the request in progress
        self._buffered = 0  # bytes that no request has consumed yet
        self._timer: TimerHandle | None = None
        proxies: Any = self.app  # uvicorn's middleware around the application
        self._proxies = proxies.trusted_hosts
        self._state: ServerState = proxies.app.state.brain
        self._address: str | None = None  # the address that counts this connection
        self._limit_reached: Reason | None = None  # the limit that rejects this connection
        self._is_rejecting = False
        self._is_last = False  # whether the next request is the last one
        if self._state.make_protocol is None:
            self._state.make_protocol = partial(type(self), *args, **kwargs)

    # Called by asyncio, the parser and uvicorn

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connections = self._state.connections
        if self.client is not None and not self._is_private and not self._is_from_proxy():
            self._count_address(self.client[0])
        if self._limit_reached is None and connections.open_count >= connections.limit:
            self._close_idle_connection()
        if self._limit_reached is None:
            connections.open_count += 1
            self._state.telemetry.metrics.set_connections(connections.open_count)
            self._start_head_timer(HEAD_SECONDS)
        elif len(connections.rejected) >= MAX_REJECTED:
            transport.abort()
        else:
            connections.rejected.add(self)
            self._start_head_timer(REJECTED_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
            self._cycles[0].on_response = lambda: None
        self._cycles.clear()
        self._release_address()
        connections = self._state.connections
        connections.rejected.discard(self)
        if self._limit_reached is None:
            connections.open_count -= 1
            self._state.telemetry.metrics.set_connections(connections.open_count)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data. Reading continues while requests wait, to detect a disconnect."""
        self._buffered += len(data)
        super().data_received(data)
        if self._buffered > HEAD_BYTES:
            self._reject_head()
        elif len(self._cycles) > 1:
            self.flow.resume_reading()

    def on_headers_complete(self) -> None:
        """Start a request, or reject it."""
        if self._is_rejecting:
            return
        is_large = len(self.headers) > MAX_HEADERS or (
            self._buffered > HEAD_BYTES
            and len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > HEAD_BYTES
        )
        if is_large or len(self._cycles) > MAX_PIPELINED:
            self._reject_head()
            raise _StopParsing
        self._stop_head_timer()
        if not self._cycles and (reason := self._find_rejection()):
            self._reject(reason)
            return
        super().on_headers_complete()
        self._cycles.append(self.cycle)
        if self._is_last:
            self.cycle.keep_alive = False
        extensions: dict[str, Any] = {
            WRITE_EXTENSION: partial(write_chunk, self.cycle),
            ABORT_EXTENSION: self.transport.abort,
        }
        if self._only_forwarded:
            extensions[ONLY_FORWARDED] = True
        self.scope["extensions"] = extensions
        self._reset_buffered()

    def on_body(self, body: bytes) -> None:
        if not self._is_rejecting:
            super().on_body(body)
            self._reset_buffered()

    def on_message_complete(self) -> None:
        if not self._is_rejecting:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Remove the first request, and limit the time for the next one."""
        for cycle in self._cycles[:1]:
            cycle.scope.pop("extensions", None)  # which refers to the request: its memory is free at once
        del self._cycles[:1]
        self._reader = None
        self._buffered = 0
        super().on_response_complete()
        if not self._cycles and not self.transport.is_closing():
            if self._is_from_proxy():
                self._release_address()
            self._start_head_timer(HEAD_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reader is not None:
            self._reader.resume()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        task = self.loop.create_task(self._run(cycle, app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _run(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Run the application. If a reader writes the rest of the response, the request goes on afterwards."""
        scope: Any = cycle.scope
        # here, so that a uvicorn that starts applications in another way keeps them until the end of a stream
        scope["extensions"][STREAM_EXTENSION] = partial(self._attach, cycle)
        failure: BaseException | None = None
        try:
            await app(scope, cycle.receive, cycle.send)
        except BaseException as error:  # noqa: BLE001
            failure = error
        rest: Any = {"method": scope["method"]}
        cycle.scope = rest  # frees the other objects of the request for the duration of the stream
        if self.scope is scope:
            self.scope, self.headers = rest, []
        if failure is None and self._reader is not None and not cycle.response_complete:
            cycle.message_event = _SET
            return

        async def end(*_: object) -> None:
            if failure is not None:
                raise failure

        await cycle.run_asgi(end)  # checks the response and logs the failure

    def _attach(self, cycle: RequestResponseCycle, reader: Reader) -> Channel:
        self._reader = reader
        if cycle.disconnected:
            reader.close()
        self.flow.resume_reading()  # to notice a disconnect
        return Channel(partial(write_chunk, cycle), partial(end_body, cycle), cycle.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP, unless the request was already rejected."""
        if self._cycles:
            self.transport.abort()  # the response would become part of another one
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    def end_when_idle(self) -> None:
        """Close the connection after its last response, which may be sent: the process takes no more turns.

        A proxy would otherwise send new requests on connections that it keeps. Other processes keep none.
        """
        if self._is_private:
            return
        self._is_last = True
        if self._cycles:
            self._cycles[-1].keep_alive = False
        elif self.cycle is not None:
            self.transport.close()

    def shutdown(self) -> None:
        """Close the connection; abort it later if the client blocks it."""
        super().shutdown()

        def abort_if_stuck() -> None:
            if self.transport.get_write_buffer_size() or (self._cycles and self._cycles[0].more_body):
                self.transport.abort()

        self.loop.call_later(DRAIN_SECONDS, abort_if_stuck)

    # Headers

    def _start_head_timer(self, seconds: float) -> None:
        if self._limit_reached is None:
            self._state.connections.idle[self] = None
        self._timer = self.loop.call_later(seconds, self.transport.close)

    def _stop_head_timer(self) -> None:
        self._state.connections.idle.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _reset_buffered(self) -> None:
        if len(self._cycles) < 2:
            self._buffered = 0

    def _reject_head(self) -> None:
        if self._cycles:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(_TOO_LARGE_RESPONSE)
            self.transport.close()

    # Connection limits

    def _is_from_proxy(self) -> bool:
        """Whether the peer is a trusted proxy, whose requests name their clients; or is gone already."""
        return not self._is_private and (self.client is None or self.client[0] in self._proxies)

    def _count_address(self, host: str) -> None:
        address = client_network(host)
        connections = self._state.connections
        if connections.acquire(address):
            self._address = address
        else:
            self._limit_reached = "address"
            self._state.telemetry.metrics.count_rejection("address")
            limit = connections.limit_per_address
            log.warning("%s has reached the limit of %d connections (CONNECTIONS_PER_ADDRESS)", address, limit)

    def _release_address(self) -> None:
        if self._address is not None:
            self._state.connections.release(self._address)
            self._address = None

    def _close_idle_connection(self) -> None:
        """Close the connection that has been idle longest; if none is idle, reject this one."""
        connections = self._state.connections
        self._state.telemetry.metrics.count_rejection("connections")
        oldest = next(iter(connections.idle), None)
        if oldest is None:
            self._limit_reached = "connections"
            return
        log.warning("The limit of %d connections is reached: the longest idle one is closed", connections.limit)
        oldest._stop_head_timer()
        oldest.transport.abort()

    def _find_rejection(self) -> Reason | None:
        if self._limit_reached is not None:
            return self._limit_reached
        if self._is_from_proxy():
            forwarded = b", ".join(value for name, value in self.headers if name == b"x-forwarded-for")
            host = self._proxies.get_trusted_client_address(forwarded.decode("latin-1"))[0] if forwarded else ""
            if host:
                self._count_address(host)
                # the limit applies to the request, not to the proxy's connection
                reason, self._limit_reached = self._limit_reached, None
                return reason
        return None

    def _reject(self, reason: Reason) -> None:
        """Respond with 503 without the application, and close the connection."""
        self._is_rejecting = True
        self.transport.write(raw_rejection(self.url.partition(b"?")[0], reason))
        self.transport.close()
