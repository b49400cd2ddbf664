"""Admission control: limits connections, and rejects new turns while the server is overloaded."""

import math
import socket
import sys
from asyncio import AbstractEventLoop, Protocol, Task
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Literal

from brain.errors import RETRY_SECONDS, BadRequest
from brain.server.responses import error_response

WAITING_TURNS = 1_000
"""Turns that can wait for their start at once. One core starts them in 2.5 s."""
CALM_TURNS = 64
"""Waiting turns up to which an overload can end."""
LAG_SECONDS, CALM_LAG_SECONDS = 0.25, 0.1
"""Smoothed lag of the event loop above which overload begins, and below which it can end. Tokens are late by the lag,
and the first token by about ten times as much, since a turn waits for the loop that often before it."""
SMOOTHING_SECONDS = 1.0
CALM_SECONDS = 1.0
"""Overload ends after the server was calm for this time."""
STALL_SECONDS = 2.0
"""Maximum lag of one measurement: a machine that was suspended for an hour is not overloaded."""
SHARE = 0.7
"""Turns that an overloaded server accepts, as a share of turns that end: their number falls until it is calm."""

ACCEPT_LIMIT = 200
"""Connections accepted at once, and so responses to rejected requests at once, each of which takes about 0.1 ms."""
REJECT_SECONDS = 1.0
"""Delay before the response to a rejected request: clients that retry immediately would keep the server busy."""
TURN_STARTS = frozenset(
    (b"POST", path)
    for path in (b"/v1/chat/stream", b"/v1/turns", b"/v1/chat/completions", b"/api/chat", b"/api/generate")
)
"""Requests that can be rejected by their headers. Other routes can start turns, too, but their requests can also
subscribe to a turn or answer an approval; Brain rejects them later, if they start a turn."""

Reason = Literal["address", "connections", "overload", "process", "stopping"]

_RETRY = f"try again in {RETRY_SECONDS} seconds"
_MESSAGES: Mapping[Reason, str] = {
    "address": f"This address has too many open connections. Close some, or {_RETRY}.",
    "connections": f"The server has reached its connection limit; {_RETRY}.",
    "overload": f"The server is overloaded; {_RETRY}.",
    "stopping": f"This server process is stopping; {_RETRY}.",
    "process": f"The process that runs this turn does not respond; {_RETRY}.",
}


def unavailable(reason: Reason) -> BadRequest:
    """Return the error 503 for a request that may succeed soon."""
    return BadRequest(_MESSAGES[reason], code="unavailable", status=503, retry_after=RETRY_SECONDS)


@lru_cache(64)
def raw_rejection(path: bytes, reason: Reason) -> bytes:
    """Return a complete 503 response, in the protocol of the path. It closes the connection."""
    response = error_response(unavailable(reason), {"type": "http", "path": path.decode("latin-1")})
    head = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    return b"HTTP/1.1 503 Service Unavailable\r\n%sconnection: close\r\n\r\n%s" % (head, bytes(response.body))


class Admission:
    """Decides whether turns can start. Pure: the caller passes the time.

    Overload begins if too many turns wait, or if the event loop lags. Then a turn can start when others have ended.
    With the bound on waiting turns alone, 3,000 clients that repeat rejected requests wait four times as long for
    their first token (p99), since turns that have started wait for the event loop, too.

    Attributes:
        lag: smoothed lag of the event loop, in seconds.
        is_overloaded: whether the server rejects requests, or did until a moment ago.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.lag = 0.0
        self.is_overloaded = False
        self._ended = 0  # since the last measurement
        self._calm_seconds = 0.0
        self._allowed = 0.0  # turns that can start now under overload

    @property
    def capacity(self) -> int:
        """Number of turns that can start now."""
        return int(self._allowed) if self.is_overloaded else WAITING_TURNS - self.waiting

    @contextmanager
    def waiting_turn(self) -> Iterator[None]:
        """Count a turn that waits for its start in this block."""
        self._allowed = max(0.0, self._allowed - 1)
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    def count_end(self) -> None:
        """Count a turn that ended."""
        self._ended += 1

    def measure(self, elapsed: float, lag: float, unaccepted: int) -> None:
        """Update `is_overloaded` and the number of allowed turns.

        Args:
            elapsed: seconds since the last measurement.
            lag: seconds by which this measurement is late.
            unaccepted: connections in the kernel's queue for this process.
        """
        self.lag += (min(lag, STALL_SECONDS) - self.lag) * min(1.0, elapsed / SMOOTHING_SECONDS)
        queue = self.waiting + unaccepted
        if not self.is_overloaded:
            self.is_overloaded = self.lag > LAG_SECONDS or queue > WAITING_TURNS
            self._calm_seconds = 0.0
            self._allowed = max(0.0, WAITING_TURNS - self.waiting)
        else:
            is_calm = self.lag <= CALM_LAG_SECONDS and queue <= CALM_TURNS
            self._calm_seconds = self._calm_seconds + elapsed if is_calm else 0.0
            self.is_overloaded = self._calm_seconds < CALM_SECONDS
            more = self._ended * SHARE if lag > CALM_LAG_SECONDS else CALM_TURNS - self.waiting
            self._allowed = max(self._allowed, min(CALM_TURNS, self._allowed + more))
        self._ended = 0


class ConnectionLimits:
    """Counts connections, in total and per address.

    Args:
        limit_per_address: limit for connections of one address; behind a proxy, for its requests in progress.

    Attributes:
        open_count: number of open connections, without rejected ones.
        idle: connections that wait for a request, longest first.
        rejected: connections over a limit, whose request will get a 503.
    """

    def __init__(self, limit: int, limit_per_address: int) -> None:
        self.limit = limit
        self.limit_per_address = limit_per_address
        self.idle: dict[Any, None] = {}
        self.rejected: set[Any] = set()
        self.open_count = 0
        self._per_address: Counter[str] = Counter()

    def acquire(self, address: str) -> bool:
        """Count one more connection of an address, or return False if it has reached its limit."""
        if self._per_address[address] >= self.limit_per_address:
            return False
        self._per_address[address] += 1
        return True

    def release(self, address: str) -> None:
        """Undo an `acquire` that returned True."""
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]


class Acceptor:
    """Accepts waiting connections of an overloaded process, and rejects requests that start turns.

    The event loop accepts one connection at a time between all other work, so under overload the other connections
    would wait in the kernel's queue. A rejection here costs a few system calls, and needs no transport, protocol or
    application.
    """

    def __init__(self, listening: Sequence[socket.socket]) -> None:
        self._listening = listening
        self._rejected: deque[tuple[float, socket.socket, bytes]] = deque()
        self._tasks: set[Task[Any]] = set()

    @property
    def backlog(self) -> int:
        """Number of connections to accept; 0 if the system does not report it."""
        if sys.platform != "linux":
            return 0
        # tcpi_unacked, which is the queue length of a listening socket
        counts = (
            one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)[24:] for one in self._listening if one.fileno() >= 0
        )
        return sum(int.from_bytes(count, sys.byteorder) for count in counts)

    def accept(self, loop: AbstractEventLoop, make_protocol: Callable[[], Protocol], capacity: int) -> int:
        """Accept waiting connections.

        Args:
            make_protocol: creates the protocol of an accepted connection.

        Returns:
            The number of rejected connections.
        """
        count = 0
        for connection in self._accept():
            path = _path_to_reject(_receive(connection, socket.MSG_PEEK))
            if path and capacity < 1:
                self._rejected.append((loop.time() + REJECT_SECONDS, connection, raw_rejection(path, "overload")))
                count += 1
                continue
            capacity -= bool(path)
            task = loop.create_task(loop.connect_accepted_socket(make_protocol, connection))
            self._tasks.add(task)
            task.add_done_callback(self._on_connected)
        return count

    def _accept(self) -> Iterator[socket.socket]:
        for listening in self._listening:
            with suppress(OSError):  # the queue is empty, or there are no descriptors left
                for _ in range(ACCEPT_LIMIT):
                    connection, _ = listening.accept()
                    connection.setblocking(False)
                    yield connection

    def _on_connected(self, task: Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # read it, or asyncio logs that the client disconnected

    def answer_rejected(self, now: float) -> None:
        """Respond to the requests that were rejected `REJECT_SECONDS` ago."""
        while self._rejected and self._rejected[0][0] <= now:
            _, connection, data = self._rejected.popleft()
            with connection, suppress(OSError):  # the client may have disconnected
                _receive(connection, 0)  # with unread data, the kernel would reset the connection
                connection.send(data)

    def close(self) -> None:
        """Stop listening, and respond to all rejected requests."""
        for listening in self._listening:
            listening.close()
        self.answer_rejected(math.inf)


def _path_to_reject(data: bytes) -> bytes:
    """The path of a request that only starts a turn; empty for other requests and for incomplete headers."""
    head, complete, _ = data.partition(b"\r\n\r\n")
    line, _, headers = head.partition(b"\r\n")
    method, _, rest = line.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if not complete or (method, path) not in TURN_STARTS:
        return b""
    names = headers.lower()
    # a web page needs the CORS headers of the application to read the error
    return b"" if b"last-event-id:" in names or b"\norigin:" in b"\n" + names else path


def _receive(connection: socket.socket, flags: int) -> bytes:
    with suppress(OSError):
        return connection.recv(65_536, flags)
    return b""
