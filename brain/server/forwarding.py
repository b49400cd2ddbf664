"""Forwards a request to the process that runs its turn, and checks requests that other processes have forwarded.

One connection per request, without a pool: a kept connection may just be closing, and a POST must not be repeated then.
"""

import asyncio
import hmac
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from urllib.parse import quote, unquote

import anyio
import httptools
from starlette.types import Message, Receive, Scope, Send

from brain.errors import BadRequest, RunsElsewhere
from brain.runtime.engine import Engine
from brain.runtime.processes import UNIX
from brain.server.admission import ConnectionLimits, unavailable
from brain.server.event_stream import ABORT_EXTENSION, UNREAD_HEARTBEATS, WRITE_EXTENSION, wait_for_disconnect

HEADER = b"brain-forwarded"
"""`1;PROCESS;USER;UNIX_MS;NONCE;SIGNATURE`: the recipient, the user, percent-encoded, and the time of the store."""
PREFIX_HEADER = b"x-forwarded-prefix"
"""The path below which the client reaches Brain, percent-encoded."""
SIGNED_SECONDS = 60.0
"""Maximum difference between the time of a signature and the store's clock."""
READ_AHEAD = 2
"""Parts of a body that are read to see whether the client disconnects. Small bodies have one or two."""
HEAD_BYTES = 64 * 1024
"""Limit for the head of an owner's response, with what comes before it."""
CONNECT_SECONDS = 3.0
"""Time limit for a connection to the owner: a machine that is off rejects none. After this time, its lease is over."""
PROBE_SECONDS, PROBES = 5, 3
"""Interval of the system's probes of an idle connection between machines, and how many can stay unanswered."""
MISDIRECTED = 421
"""Status of a process that does not have the turn, or is not the recipient. The sender looks for the turn again."""

_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_CHECKED_HERE = frozenset((HEADER, b"authorization", b"cookie", b"expect", b"forwarded", b"origin", b"x-real-ip"))
"""Headers that end here: this process has checked them, and the signature has the user. Without `Origin`, the owner
adds no CORS headers, which this process adds."""
_MESSAGE = frozenset(b"content-encoding content-length content-type host".split())
"""Headers that are never about one connection, even if `Connection` names them: a body needs its framing."""
_OWN = frozenset((b"date", b"server"))
"""Response headers that each server adds itself."""

log = logging.getLogger("brain")

Headers = Iterable[tuple[bytes, bytes]]


class RecordedBody:
    """The body of a request, which can be read again from its start until the response begins."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: list[Message] = []
        self._next = 0
        self._is_recording = True

    async def __call__(self) -> Message:
        if self._next < len(self._messages):
            self._next += 1
            return self._messages[self._next - 1]
        message = await self._receive()
        if self._is_recording and message["type"] == "http.request":
            self._messages.append(message)
            self._next += 1
        return message

    async def has_disconnected(self, seconds: float) -> bool:
        """Wait so long. Return whether the client has disconnected, as far as that is known without reading much."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self._messages) < READ_AHEAD or not self._messages[-1].get("more_body", False):
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        return True
                    self._messages.append(message)
                await asyncio.sleep(seconds)
        return False

    def rewind(self) -> None:
        """Read the body from its start."""
        self._next = 0

    def stop(self) -> None:
        """Drop what was read: the request will not be repeated."""
        self._is_recording = False
        del self._messages[: self._next]
        self._next = 0


class Forwarding:
    """Forwards requests to other processes of the store, and checks the signatures of theirs."""

    def __init__(self, engine: Engine, connections: ConnectionLimits, set_connections: Callable[[int], None]) -> None:
        self._engine = engine
        self._connections = connections
        self._set_connections = set_connections
        self._nonces: set[bytes] = set()
        self._older_nonces: set[bytes] = set()
        self._nonces_until = 0.0

    def verify(self, values: Sequence[bytes], scope: Scope) -> str:
        """Check the values of the header `HEADER`, and return the user.

        Raises:
            BadRequest: `forbidden_header`: the signature is wrong, expired, or was used before. `misdirected`: it is
                for another process, which had the address of this one.
        """
        processes = self._engine.runs.processes
        if processes is None or len(values) != 1:
            raise _not_forwarded()
        signed, _, signature = values[0].rpartition(b";")
        if not hmac.compare_digest(_sign(processes.secret, scope["method"], request_target(scope), signed), signature):
            raise _not_forwarded()
        fields = signed.split(b";")
        if fields[0] != b"1":  # of a newer version of Brain
            raise _not_forwarded()
        _, recipient, user, milliseconds, nonce = fields
        if recipient != processes.process.encode():
            raise misdirected()
        now = processes.clock()
        if abs(now - int(milliseconds) / 1000) > SIGNED_SECONDS or nonce in self._nonces or nonce in self._older_nonces:
            raise _not_forwarded()
        if now >= self._nonces_until:  # a signature is valid for at most twice `SIGNED_SECONDS`
            self._older_nonces, self._nonces, self._nonces_until = self._nonces, set(), now + 2 * SIGNED_SECONDS
        self._nonces.add(nonce)
        return unquote(user.decode())

    def signature(self, method: str, target: bytes, user: str, recipient: str) -> bytes:
        """Return the value of the header `HEADER` for one request to a process."""
        processes = self._engine.runs.processes
        assert processes is not None
        fields = (
            "1",
            recipient,
            quote(user, safe=""),
            str(round(processes.clock() * 1000)),
            secrets.token_hex(12),
        )
        signed = ";".join(fields).encode()
        return signed + b";" + _sign(processes.secret, method, target, signed)

    async def forward(self, scope: Scope, body: RecordedBody, send: Send, user: str, owner: RunsElsewhere) -> bool:
        """Pass a request to the process that runs its turn, and pass its response on.

        If the owner's connection ends before its response, or its lease does, the client's connection is aborted.

        Args:
            user: the user whom this process authenticated.

        Returns:
            False if the request can be repeated, since the owner cannot be reached, or does not have the turn. Nothing
            was sent to the client then.

        Raises:
            BadRequest: `unavailable`: the owner ended before it responded, and may have done what the request asks for.
        """
        processes = self._engine.runs.processes
        assert processes is not None
        if not owner.address:
            return False
        connection: _Connection | None = None
        sending: asyncio.Task[None] | None = None
        has_started = False
        lost = asyncio.create_task(_wait(processes.lost(owner.process)), name="lease of the owner")
        self._count_connections(1)
        try:
            with anyio.CancelScope() as alive:
                lost.add_done_callback(lambda _: alive.cancel())
                try:
                    connection = await _connect(owner.address, scope["method"])
                except OSError:
                    return False
                target = request_target(scope)
                signature = self.signature(scope["method"], target, user, owner.process)
                head, is_chunked = _request_head(scope, target, signature)
                connection.write_request(head)
                sending = asyncio.create_task(connection.send_body(body, is_chunked), name="body and disconnect")
                sending.add_done_callback(lambda _: alive.cancel())
                has_head = await connection.wait_head()
                if connection.status == MISDIRECTED:
                    return False
                if has_head:
                    body.stop()
                    has_started = True
                    if await self._pass_on(connection, scope, send):
                        return True
        except TimeoutError:
            log.info("disconnected a client that does not read its stream")
        finally:
            self._count_connections(-1)
            lost.cancel()
            if connection is not None:
                connection.abort()
            has_disconnected = sending is not None and sending.done()
            if sending is not None:
                sending.cancel()
                await asyncio.wait({sending})  # nothing else may read the body at the same time
        if has_disconnected:
            return True
        if has_started:
            await _abort(scope, body)
        elif connection is not None and scope["method"] not in ("GET", "HEAD"):
            raise unavailable("process")
        return has_started

    def _count_connections(self, number: int) -> None:
        self._connections.open_count += number
        self._set_connections(self._connections.open_count)

    async def _pass_on(self, connection: "_Connection", scope: Scope, send: Send) -> bool:
        """Send the owner's response to the client. Return whether it was complete."""
        seconds = self._engine.settings.heartbeat_seconds * UNREAD_HEARTBEATS
        headers = [*_end_to_end(connection.headers, _OWN)]
        await send({"type": "http.response.start", "status": connection.status, "headers": headers})
        connection.write = write = scope.get("extensions", {}).get(WRITE_EXTENSION)
        while data := await connection.read():
            if write is None or not write(data):
                with anyio.fail_after(seconds):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        if connection.is_complete:
            with anyio.fail_after(seconds):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        return connection.is_complete


def request_target(scope: Scope) -> bytes:
    """Return the path of a request below the mount point of Brain, and its query, as in its first line."""
    root: str = scope.get("root_path", "")
    path: bytes = scope.get("raw_path") or b""
    if not path.startswith(root.encode() + b"/"):  # another server, or a mount point with escaped characters
        path = quote(scope["path"].removeprefix(root)).encode() or b"/"
    else:
        path = path[len(root.encode()) :]
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


def misdirected() -> BadRequest:
    """Return the error for a forwarded request whose turn is not in this process."""
    return BadRequest("The turn of this request is not in this process.", code="misdirected", status=MISDIRECTED)


def _not_forwarded() -> BadRequest:
    message = "This request does not come from a process of this server. Do not send the header brain-forwarded."
    return BadRequest(message, HEADER.decode(), code="forbidden_header", status=403)


def _sign(secret: bytes, method: str, target: bytes, signed: bytes) -> bytes:
    return hmac.digest(secret, b"\n".join((method.encode(), target, signed)), "sha256").hex().encode()


def _request_head(scope: Scope, target: bytes, signature: bytes) -> tuple[bytes, bool]:
    """The head of a forwarded request, and whether its body has chunks."""
    method = scope["method"]
    sent: list[tuple[bytes, bytes]] = scope["headers"]
    names = {name for name, _ in sent}
    is_chunked = b"content-length" not in names and (
        b"transfer-encoding" in names or method not in ("GET", "HEAD")  # HTTP/2 has bodies without either header
    )
    headers = [header for header in _end_to_end(sent, _CHECKED_HERE) if not header[0].startswith(b"x-forwarded-")]
    if scope.get("client"):
        headers.append((b"x-forwarded-for", scope["client"][0].encode()))
    headers += [
        (b"x-forwarded-proto", scope["scheme"].encode()),
        (PREFIX_HEADER, quote(scope.get("root_path", "")).encode()),
        (HEADER, signature),  # no `connection: close`: an owner that rejects a body would close before it has read it
    ]
    if is_chunked:
        headers.append((b"transfer-encoding", b"chunked"))
    # some ASGI servers pass on lines that are not headers
    lines = [b"%b: %b\r\n" % header for header in headers if not any(end in one for one in header for end in b"\r\n")]
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode(), target, b"".join(lines)), is_chunked


def _end_to_end(headers: Headers, without: frozenset[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """The headers that are not about one connection."""
    headers = [*headers]
    named = b",".join(value for name, value in headers if name == b"connection").lower()
    hops = _HOP_BY_HOP | without
    if named:
        hops |= {one.strip() for one in named.split(b",")} - _MESSAGE
    return [header for header in headers if header[0] not in hops]


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _abort(scope: Scope, receive: Receive) -> None:
    """Close the client's connection in the middle of the response."""
    abort = scope.get("extensions", {}).get(ABORT_EXTENSION)
    if abort is None:
        raise ConnectionError("the process that runs the turn has ended")  # other ASGI servers close the connection
    abort()
    await wait_for_disconnect(receive)


def end_if_unreachable(connection: socket.socket) -> None:
    """Let the system end a TCP connection, or those of a listener, if the other machine does not respond any more.

    Its lease may not be over, since it may still reach the database.
    """
    if sys.platform == "linux":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)


async def _connect(address: str, method: str) -> "_Connection":
    """Connect to `unix:PATH` or `http://HOST:PORT`.

    Raises:
        OSError: The process cannot be reached, or the address cannot be that of one.
    """
    loop = asyncio.get_running_loop()
    connection = _Connection(method)
    async with asyncio.timeout(CONNECT_SECONDS):
        if address.startswith(UNIX):
            await loop.create_unix_connection(lambda: connection, address.removeprefix(UNIX))
        else:
            host, _, port = address.removeprefix("http://").rpartition(":")
            try:
                transport, _ = await loop.create_connection(lambda: connection, host.strip("[]"), int(port))
            except (ValueError, OverflowError):  # no port, or no host name, such as `a..b`
                raise OSError("not an address") from None
            system = transport.get_extra_info("socket")
            end_if_unreachable(system)
            if sys.platform == "linux":  # the system probes no connection with unacknowledged data
                milliseconds = (PROBES + 1) * PROBE_SECONDS * 1000
                system.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return connection


async def find_connection_problem(address: str) -> str | None:
    """Return why a process cannot be reached at its address; None if it can."""
    try:
        connection = await _connect(address, "GET")
    except TimeoutError:
        return f"no response within {CONNECT_SECONDS:g} s"
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error).lower()
    connection.abort()
    return None


class _Connection(asyncio.Protocol):
    """The connection to the owner, for one request.

    While the task that passes the response on waits for more, `data_received` writes to the client directly. It stops
    reading from the owner while the client reads nothing.

    Attributes:
        status: the status of the response; 0 until its head has arrived.
        is_complete: whether the end of the response has arrived.
        write: writes to the client, or returns False if that is not possible now.
    """

    _transport: asyncio.Transport

    def __init__(self, method: str) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_complete = False
        self.write: Callable[[bytes], bool] | None = None
        self._method = method
        self._head_size = 0
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []  # of the body, in one read
        self._pending: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        self._is_paused = False
        self._writable = asyncio.Event()
        self._writable.set()

    # The request

    def write_request(self, head: bytes) -> None:
        self._transport.write(head)

    async def send_body(self, receive: Receive, is_chunked: bool) -> None:
        """Pass the body on, then wait until the client disconnects."""
        while (message := await receive())["type"] == "http.request":
            data = message.get("body", b"")
            if is_chunked:
                data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
                if not message.get("more_body", False):
                    data += b"0\r\n\r\n"
            if data and not self._is_closed:
                self._transport.write(data)
                await self._writable.wait()

    def abort(self) -> None:
        self._transport.abort()

    # The response

    async def wait_head(self) -> bool:
        """Wait for the head of the response. Return False if the connection ends before it."""
        while not self.status and not self._is_closed:
            await self._wait()
        return self.status > 0

    async def read(self) -> bytes:
        """Return the next part of the body, or nothing at its end."""
        while not self._pending and not self.is_complete and not self._is_closed:
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            await self._wait()
        data = b"".join(self._pending)
        self._pending.clear()
        return data

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self.is_complete:
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.abort()
            return
        if not self.status:
            self._head_size += len(data)
            if self._head_size > HEAD_BYTES:
                self._transport.abort()
        if self._parts:
            body = b"".join(self._parts)
            self._parts.clear()
            is_waiting = self._waiter is not None and not self._waiter.done()
            if not (is_waiting and self.write is not None and self.write(body)):
                self._pending.append(body)
                if not self._is_paused:
                    self._is_paused = True
                    self._transport.pause_reading()
            elif not self.is_complete:
                return
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Called by httptools

    def on_message_begin(self) -> None:
        if not self.status:
            self.headers = []  # without those of an interim response

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else it is in a trailer
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
            self.is_complete = self._method == "HEAD" or status in (204, 304)

    def on_body(self, body: bytes) -> None:
        if not self.is_complete:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = self.status > 0
