"""Carries httpx's requests over httptools: a parser written in C, and one wake-up for all that a read brings.

httpx keeps the interface, and tests their doubles; only the way to the socket is shorter. HTTP/1.1, TLS, keep-alive.
A connection whose response was not read to its end is aborted, so that the server stops at once.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import httptools
import httpx

UNREAD_BYTES_MOST = 256 * 1024
IDLE_CONNECTIONS_MOST = 64
HEAD_BYTES_MOST = 64 * 1024

READS = "reads"
"""The extension of a response that is its body as it comes, with nothing unpacked."""

Origin = tuple[bool, str, int]


class Transport(httpx.AsyncBaseTransport):
    """Connections to servers, kept for the next request when the last one ended well."""

    def __init__(self) -> None:
        self._idle: dict[Origin, list[_Connection]] = {}
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request and waits for the head of its response.

        A kept connection that turns out to be closed before the first byte is replaced by a new one, once.

        Raises:
            httpx.TransportError: as httpx's own transport does.
        """
        origin = _origin(request.url)
        message = await _message(request)
        timeouts = request.extensions.get("timeout", {})
        connection = self._kept(origin)
        if connection is not None:
            try:
                return await self._response(connection, message, request, timeouts)
            except httpx.RemoteProtocolError:
                if connection.heard:
                    raise
        connection = await self._connected(origin, timeouts.get("connect"))
        return await self._response(connection, message, request, timeouts)

    async def aclose(self) -> None:
        """Closes the kept connections; no more are kept."""
        self._closed = True
        kept, self._idle = self._idle, {}
        for connections in kept.values():
            for connection in connections:
                connection.abort()

    async def _response(
        self, connection: "_Connection", message: bytes, request: httpx.Request, timeouts: dict[str, Any]
    ) -> httpx.Response:
        try:
            async with asyncio.timeout(timeouts.get("read")):
                await connection.ask(message, without_body=request.method == "HEAD")
        except TimeoutError as error:
            connection.abort()
            raise httpx.ReadTimeout("no answer in time", request=request) from error
        except BaseException:
            connection.abort()
            raise
        body = _Body(connection, self, timeouts.get("read"))
        headers, connection.headers = connection.headers, []
        return httpx.Response(
            connection.status, headers=headers, stream=body, request=request, extensions={READS: body}
        )

    def _kept(self, origin: Origin) -> "_Connection | None":
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.open:
                return connection
        return None

    def give_back(self, connection: "_Connection") -> None:
        """Keeps a connection whose response was read to its end."""
        idle = [one for one in self._idle.get(connection.origin, ()) if one.open]
        if len(idle) < IDLE_CONNECTIONS_MOST and not self._closed:
            self._idle[connection.origin] = [*idle, connection]
        else:
            connection.abort()

    async def _connected(self, origin: Origin, seconds: float | None) -> "_Connection":
        secure, host, port = origin
        if secure and self._tls is None:
            self._tls = httpx.create_ssl_context()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(origin), host, port, ssl=self._tls if secure else None
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout("no connection in time") from error
        except (OSError, ssl.SSLError) as error:
            raise httpx.ConnectError(str(error)) from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection, one response at a time."""

    __slots__ = (
        "_error", "_head_done", "_kept_alive", "_loop", "_parser", "_parts", "_paused", "_transport", "_unread",
        "_until_close", "_waiter", "_without_body", "complete", "headers", "heard", "on_body", "origin", "status",
    )  # fmt: skip

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.heard = False
        self.complete = True
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._parts: list[bytes] = []
        self.on_body = self._parts.append  # httptools calls it for each chunk of each read
        self._unread = 0
        self._paused = False
        self._head_done = False
        self._without_body = False
        self._until_close = False
        self._kept_alive = False
        self._error: httpx.TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._error is None and self._transport is not None and not self._transport.is_closing()

    async def ask(self, message: bytes, *, without_body: bool) -> None:
        """Sends a request, and waits for the head of the response."""
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers, self.heard, self.complete = 0, [], False, False
        self._head_done, self._without_body = False, without_body
        self._until_close = self._kept_alive = False
        assert self._transport is not None
        self._unread = 0
        self._transport.write(message)
        while not self._head_done:
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter

    async def read(self) -> bytes:
        """All that has come of the body.

        Raises:
            StopAsyncIteration: at its end.
            httpx.TransportError: when it breaks off.
        """
        while not self._parts:
            if self.complete:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._unread = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    @property
    def reusable(self) -> bool:
        """Whether the response was read to its end and the server keeps the connection."""
        return self.complete and not self._parts and self._kept_alive and self.open

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "abort")
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.complete:  # nobody asked: the server says goodbye, or worse
            self.abort()
            return
        self.heard = True
        self._unread += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = httpx.RemoteProtocolError(f"not HTTP: {error}")
            self.abort()
        if not self._head_done and self._unread > HEAD_BYTES_MOST and self._error is None:
            self._error = httpx.RemoteProtocolError("the head is too large")
            self.abort()
        if self._unread > UNREAD_BYTES_MOST and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self._head_done and self._until_close and error is None:
            self.complete = True
        elif self._error is None:
            self._error = httpx.RemoteProtocolError("the server closed the connection")
        self._parser = None  # which knows us: the two would wait for the garbage collector
        self._wake()

    # httptools calls these

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:  # an interim response; the real one follows
            return
        names = {name.lower() for name, _ in self.headers}
        self._until_close = not names & {b"content-length", b"transfer-encoding"} and self.status not in (204, 304)
        self._head_done = True
        if self._without_body:
            self.complete = True

    def on_message_complete(self) -> None:
        if self._head_done:
            self.complete = True
            self._kept_alive = not self._until_close and bool(self._parser.should_keep_alive())
        else:
            self.headers = []


class _Body(httpx.AsyncByteStream):
    """The body of one response, a read at a time."""

    def __init__(self, connection: _Connection, transport: Transport, seconds: float | None) -> None:
        self._connection = connection
        self._pool = transport
        self._seconds = seconds
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    def __anext__(self) -> Awaitable[bytes]:
        return self._connection.read() if self._seconds is None else self._read_in_time(self._seconds)

    async def _read_in_time(self, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                return await self._connection.read()
        except TimeoutError as error:
            raise httpx.ReadTimeout("nothing came in time") from error

    async def aclose(self) -> None:
        """Keeps the connection when the response was read to its end, else aborts it."""
        if not self._closed:
            self._closed = True
            if self._connection.reusable:
                self._pool.give_back(self._connection)
            else:
                self._connection.abort()


def _origin(url: httpx.URL) -> Origin:
    secure = url.scheme == "https"
    return secure, url.raw_host.decode("ascii"), url.port or (443 if secure else 80)


async def _message(request: httpx.Request) -> bytes:
    """The request as it goes over the wire."""
    body = await request.aread()
    head = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    head += [b"%b: %b" % (name, value) for name, value in request.headers.raw]
    return b"\r\n".join([*head, b"", body])
