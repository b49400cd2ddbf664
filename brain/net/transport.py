"""A transport for httpx that uses httptools, a parser in C, and wakes the reader once per read.

It supports HTTP/1.1 with TLS and keep-alive. A connection whose response was not read completely is aborted, which
stops the server immediately.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import Any

import httptools
import httpx

MAX_UNREAD_BYTES = 256 * 1024
MAX_HEAD_BYTES = 64 * 1024
DIRECT_BYTES = 16 * 1024
"""Largest read that is given to a callback."""

BODY = "body"
"""Response extension that contains the body."""

Origin = tuple[bool, str, int]
"""Whether it uses TLS, the host and the port."""


def find_origin(request: httpx.Request) -> Origin:
    """Return where to send a request."""
    is_secure = request.url.scheme == "https"
    return is_secure, request.url.raw_host.decode("ascii"), request.url.port or (443 if is_secure else 80)


def encode_head(request: httpx.Request) -> bytes:
    """Return the request line and the headers, without the empty line after them."""
    head = [b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.url.raw_path)]
    head += [b"%b: %b\r\n" % (name, value) for name, value in request.headers.raw]
    return b"".join(head)


class Transport(httpx.AsyncBaseTransport):
    """Connections to servers, reused after their last response was read completely."""

    def __init__(self) -> None:
        self._idle: dict[Origin, list[_Connection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and wait for the headers of the response.

        If an idle connection is closed before the first byte, the request is repeated once on a new connection.
        """
        body = await request.aread()
        return await self.send(request, find_origin(request), b"%b\r\n%b" % (encode_head(request), body))

    async def send(self, request: httpx.Request, origin: Origin, message: bytes) -> httpx.Response:
        """Send a message as `handle_async_request` sends a request.

        Args:
            request: has the method and the timeouts.
        """
        timeouts = request.extensions.get("timeout", {})
        idle = self._idle[origin] = [one for one in self._idle.get(origin, ()) if one.is_open]
        if idle:
            connection = idle.pop()
            try:
                return await self._send(connection, message, request, timeouts)
            except httpx.RemoteProtocolError:
                if connection.has_received:
                    raise
        connection = await self._connect(origin, timeouts.get("connect"))
        return await self._send(connection, message, request, timeouts)

    async def aclose(self) -> None:
        """Close idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()

    async def _send(
        self, connection: "_Connection", message: bytes, request: httpx.Request, timeouts: dict[str, Any]
    ) -> httpx.Response:
        try:
            async with asyncio.timeout(timeouts.get("read")):
                await connection.send(message, without_body=request.method == "HEAD")
        except TimeoutError as error:
            connection.abort()
            raise httpx.ReadTimeout("no response in time", request=request) from error
        except BaseException:
            connection.abort()
            raise
        body = Body(connection, self, timeouts.get("read"))
        headers, connection.headers = connection.headers, []
        return httpx.Response(connection.status, headers=headers, stream=body, request=request, extensions={BODY: body})

    def add_idle(self, connection: "_Connection") -> None:
        """Store a connection for reuse."""
        self._idle.setdefault(connection.origin, []).append(connection)

    async def _connect(self, origin: Origin, seconds: float | None) -> "_Connection":
        is_secure, host, port = origin
        if is_secure and self._tls is None:
            self._tls = httpx.create_ssl_context()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(origin), host, port, ssl=self._tls if is_secure else None
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout("no connection in time") from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection, one response at a time."""

    __slots__ = (
        "_has_head", "_is_kept_alive", "_parser", "_transport", "_until_close", "_without_body", "error",
        "has_received", "headers", "is_complete", "is_paused", "loop", "on_body", "origin", "parts", "status",
        "take", "unread", "waiter",
    )  # fmt: skip

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.has_received = False
        self.is_complete = True
        self._transport: asyncio.Transport
        self._parser: Any = None
        self.parts: list[bytes] = []
        self.on_body = self.parts.append  # httptools calls it for each chunk of each read
        self.unread = 0
        self.take: Callable[[bytes], bool] | None = None
        self.is_paused = False
        self._has_head = False
        self._without_body = False
        self._until_close = False
        self._is_kept_alive = False
        self.error: httpx.TransportError | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.loop = asyncio.get_running_loop()

    @property
    def is_open(self) -> bool:
        """Whether the connection can send a request."""
        return not self._transport.is_closing()

    async def send(self, message: bytes, *, without_body: bool) -> None:
        """Send a request, and wait for the headers of the response."""
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers, self.has_received, self.is_complete = 0, [], False, False
        self._has_head, self._without_body = False, without_body
        self._until_close = self._is_kept_alive = False
        self.unread, self.take = 0, None
        self._transport.write(message)
        while not self._has_head:
            if self.error is not None:
                raise self.error
            self.waiter = self.loop.create_future()
            await self.waiter

    def read(self) -> bytes:
        """Return the received bytes of the body."""
        data = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts.clear()
        self.unread = 0
        if self.is_paused:
            self.is_paused = False
            self._transport.resume_reading()
        return data

    def _give_directly(self) -> bool:
        """Give the data to the callback. Return False if the iterator must continue."""
        if self.take is None or not self.parts or self.unread > DIRECT_BYTES:
            return False
        if not self.take(self.read()):
            self.parts.append(b"")
            return False
        return not self.is_complete and self.error is None

    @property
    def is_reusable(self) -> bool:
        """Whether the response was read completely and the server keeps the connection open."""
        return self.is_complete and not self.parts and self._is_kept_alive and self.is_open

    def abort(self) -> None:
        """Close the connection immediately."""
        self._transport.abort()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.is_complete:  # without a request, data is a timeout message or an error
            self.abort()
            return
        self.has_received = True
        self.unread += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.error = httpx.RemoteProtocolError(f"not HTTP: {error}")
            self.abort()
        if not self._has_head and self.unread > MAX_HEAD_BYTES:
            self.error = httpx.RemoteProtocolError("the response headers are too large")
            self.abort()
        if self.unread > MAX_UNREAD_BYTES and not self.is_paused:
            self.is_paused = True
            self._transport.pause_reading()
        if self.waiter is not None and not self.waiter.done() and not self._give_directly():
            self.waiter.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._has_head and self._until_close and error is None:
            self.is_complete = True
        elif self.error is None:
            self.error = httpx.RemoteProtocolError("the server closed the connection")
        self._parser = None  # breaks a reference cycle
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    # Called by httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:  # an interim response; the real one follows
            return
        names = {name.lower() for name, _ in self.headers}
        self._until_close = not names & {b"content-length", b"transfer-encoding"} and self.status not in (204, 304)
        self._has_head = True
        if self._without_body:
            self.is_complete = True

    def on_message_complete(self) -> None:
        if self._has_head:
            self.is_complete = True
            self._is_kept_alive = bool(self._parser.should_keep_alive())
        else:
            self.headers = []


class Body(httpx.AsyncByteStream):
    """The body of one response."""

    def __init__(self, connection: _Connection, transport: Transport, seconds: float | None) -> None:
        self._connection = connection
        self._pool = transport
        self._seconds = seconds
        self._is_closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    def set_callback(self, take: Callable[[bytes], bool]) -> None:
        """Give data that arrives while the iterator waits to `take`; if that returns False, the iterator returns b"".

        This saves the wake-up of a task per read, which costs as much as all other work of a token. Larger reads than
        `DIRECT_BYTES` go to the iterator.
        """
        self._connection.take = take

    async def __anext__(self) -> bytes:
        """Return all received bytes of the body, at least one."""
        connection = self._connection
        while not connection.parts:
            if connection.is_complete:
                raise StopAsyncIteration
            if connection.error is not None:
                raise connection.error
            waiter = connection.waiter = connection.loop.create_future()
            try:
                async with asyncio.timeout(self._seconds) if self._seconds else nullcontext():
                    await waiter
            except TimeoutError as error:
                raise httpx.ReadTimeout("no data in time") from error
        return connection.read()

    async def aclose(self) -> None:
        """Store the connection for reuse if the response was read completely, else abort it."""
        if not self._is_closed:
            self._is_closed = True
            self._connection.take = None
            if self._connection.is_reusable:
                self._pool.add_idle(self._connection)
            else:
                self._connection.abort()
