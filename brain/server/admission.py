"""Admission control: limits connections, and rejects new turns while the server is overloaded."""

import socket
import sys
from asyncio import AbstractEventLoop, Protocol, Task
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

from brain.errors import BadRequest
from brain.server.responses import error_response

BURST = 1_000
"""Turns that a calm server accepts at once, in addition to its queue. One core starts them in 2.5 s."""
BURST_PER_SECOND = 100.0
"""Growth of the next burst per second while the server is calm."""
CALM_STARTS = 64
"""Pending turns up to which a server is calm. An overloaded server can have as many."""
QUEUE_SECONDS = 0.5
"""Length of the queue after a burst, in seconds of turn starts."""
LAG_SECONDS, CALM_LAG_SECONDS = 0.25, 0.1
"""Smoothed lag of the event loop above which overload begins, and below which it can end. Tokens are late by the lag,
and the first token by about ten times as much, since a turn waits for the loop that often before it."""
SMOOTHING_SECONDS = 1.0
CALM_SECONDS = 1.0
"""Overload ends after the server was calm for this time."""
STALL_SECONDS = 2.0
"""Maximum lag of one measurement: a machine that was suspended for an hour is not overloaded."""
FASTER, SLOWER = 1.1, 0.85
"""With each measurement, an overloaded server multiplies its turns per second by one of these factors: by `SLOWER` if
the loop lags by `CALM_LAG_SECONDS`, or if a turn has waited longer than `QUEUE_SECONDS` for its start."""
MIN_PER_SECOND = 8.0
MIN_SHARE = 0.7
"""Turns that an overloaded server accepts, as a share of turns that end: their number falls steadily."""
RETRY_SECONDS = 2

ACCEPT_LIMIT = 1_000
"""Connections accepted at once."""
REJECTED_LIMIT = 8_192
REJECT_SECONDS = 1.0
"""Delay before the response to a rejected request: clients that retry immediately would keep the server busy."""
ANSWERS_PER_ROUND = 50
"""Responses to rejected requests per round. Each takes about 0.1 ms in the kernel."""
TURN_STARTS = frozenset(
    (b"POST", path)
    for path in (b"/v1/chat/stream", b"/v1/turns", b"/v1/chat/completions", b"/api/chat", b"/api/generate")
)
"""Requests that can be rejected by their headers. Other routes can start turns, too, but their requests can also
subscribe to a turn or answer an approval; Brain rejects them later, if they start a turn."""
PENDING_START = "brain.pending_start"
"""Key of the `PendingStart` in a request's scope."""

Reason = Literal["address", "connections", "overload"]

_RETRY = f"try again in {RETRY_SECONDS} seconds"
_MESSAGES: Mapping[Reason, str] = {
    "address": f"This address has too many open connections. Close some, or {_RETRY}.",
    "connections": f"The server has reached its connection limit; {_RETRY}.",
    "overload": f"The server is overloaded; {_RETRY}.",
}


def unavailable(reason: Reason) -> BadRequest:
    """Return the error 503 for a request over a limit."""
    return BadRequest(_MESSAGES[reason], code="unavailable", status=503, retry_after=RETRY_SECONDS)


@lru_cache(64)
def raw_rejection(path: bytes, reason: Reason) -> bytes:
    """Return a complete 503 response, in the protocol of the path. It closes the connection."""
    response = error_response(unavailable(reason), {"type": "http", "path": path.decode("latin-1")})
    head = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    return b"HTTP/1.1 503 Service Unavailable\r\n%sconnection: close\r\n\r\n%s" % (head, bytes(response.body))


def starts_turn(method: bytes, url: bytes) -> bool:
    """Whether the request line shows that a request only starts a turn."""
    return (method, url.partition(b"?")[0]) in TURN_STARTS


class PendingStart:
    """A turn that was requested and has not started yet."""

    __slots__ = ("_admission", "requested_at")

    def __init__(self, admission: "Admission", requested_at: float) -> None:
        self.requested_at = requested_at
        self._admission = admission

    def end(self) -> None:
        """Remove the turn from `pending`; it has started or failed. Further calls do nothing."""
        self._admission.pending.pop(self, None)


class Admission:
    """Decides whether turns can start. Pure: the caller passes the time.

    The server accepts a whole burst. If turns keep arriving faster than they start, each of them would wait for all
    earlier ones. So an overloaded server has a short queue, and accepts only as many turns per second as its event loop
    can start.

    Attributes:
        pending: turns that wait for their start, oldest first.
        lag: smoothed lag of the event loop, in seconds.
        is_overloaded: whether the server rejects requests, or did until a moment ago.
    """

    def __init__(self) -> None:
        self.pending: dict[PendingStart, None] = {}
        self.lag = 0.0
        self.is_overloaded = False
        self._burst: float = BURST
        self._started = 0  # since the last measurement
        self._per_second = 0.0  # turns started; under overload, turns allowed
        self._ended = 0  # since the last measurement
        self._ended_per_second = 0.0
        self._calm_seconds = 0.0
        self._allowed = 0.0  # turns that can start now under overload

    @property
    def capacity(self) -> int:
        """Number of turns that can start now."""
        queue = self._queue_limit - len(self.pending)
        return int(self._burst) + max(0, int(min(queue, self._allowed) if self.is_overloaded else queue))

    @property
    def _queue_limit(self) -> float:
        return max(CALM_STARTS, self._per_second * QUEUE_SECONDS)

    def admit(self, now: float) -> PendingStart:
        """Count a turn that will start. The caller must call `end` of the result."""
        if len(self.pending) < self._queue_limit and not (self.is_overloaded and self._allowed < 1):
            self._allowed = max(0.0, self._allowed - 1)
        else:
            self._burst = max(0, self._burst - 1)
        self._started += 1
        self.pending[start := PendingStart(self, now)] = None
        return start

    def count_end(self) -> None:
        """Count a turn that ended."""
        self._ended += 1

    def measure(self, now: float, elapsed: float, lag: float, unaccepted: int) -> None:
        """Update `is_overloaded` and the number of allowed turns.

        Args:
            now: seconds on the clock of `admit`.
            elapsed: seconds since the last measurement.
            lag: seconds by which this measurement is late.
            unaccepted: connections in the kernel's queue for this process.
        """
        weight = min(1.0, elapsed / SMOOTHING_SECONDS)
        self.lag += (min(lag, STALL_SECONDS) - self.lag) * weight
        self._ended_per_second += (self._ended / elapsed - self._ended_per_second) * weight
        queue = len(self.pending) + unaccepted
        if not self.is_overloaded:
            self._per_second += (self._started / elapsed - self._per_second) * weight
            self.is_overloaded = self.lag > LAG_SECONDS or queue > self._burst + self._queue_limit
            self._calm_seconds = 0.0
        else:
            oldest = next(iter(self.pending), None)
            is_slow = lag > CALM_LAG_SECONDS or (oldest is not None and now - oldest.requested_at > QUEUE_SECONDS)
            minimum = max(MIN_PER_SECOND, self._ended_per_second * MIN_SHARE)
            self._per_second = max(minimum, self._per_second * (SLOWER if is_slow else FASTER))
            is_calm = self.lag <= CALM_LAG_SECONDS and queue <= CALM_STARTS
            self._calm_seconds = self._calm_seconds + elapsed if is_calm else 0.0
            self.is_overloaded = self._calm_seconds < CALM_SECONDS
        if not self.is_overloaded and queue <= CALM_STARTS:
            self._burst = min(BURST, self._burst + BURST_PER_SECOND * elapsed)
        self._started = self._ended = 0
        self._allowed = min(self._per_second * 2 * elapsed, self._allowed + self._per_second * elapsed)


class ConnectionLimits:
    """Counts connections, in total and per address.

    Args:
        limit: limit for open connections in total.
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

    Args:
        listening: the listening sockets of the server.

    Attributes:
        silent: accepted connections whose request has not arrived yet.
    """

    def __init__(self, listening: Sequence[socket.socket]) -> None:
        self._listening = listening
        self.silent: list[socket.socket] = []
        self._rejected: deque[tuple[float, socket.socket, bytes]] = deque()
        self._is_closing = False
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
        """Accept all waiting connections.

        Args:
            make_protocol: creates the protocol of an accepted connection.
            capacity: number of turns that can start.

        Returns:
            The number of rejected connections.
        """
        count = 0
        earlier = dict.fromkeys(self.silent)
        self.silent = []
        for connection in (*earlier, *self._accept_new()):
            data = _receive(connection, socket.MSG_PEEK)
            if not data and connection not in earlier:
                self.silent.append(connection)  # its request may arrive soon
                continue
            path = _path_to_reject(data)
            if path and capacity < 1:
                self._rejected.append((loop.time() + REJECT_SECONDS, connection, raw_rejection(path, "overload")))
                count += 1
                continue
            capacity -= bool(path)
            task = loop.create_task(loop.connect_accepted_socket(make_protocol, connection))
            self._tasks.add(task)
            task.add_done_callback(self._on_connected)
        return count

    def _accept_new(self) -> Iterator[socket.socket]:
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
        """Respond to some of the requests that were rejected `REJECT_SECONDS` ago."""
        remaining = ANSWERS_PER_ROUND
        while self._rejected and (
            len(self._rejected) > REJECTED_LIMIT or self._is_closing or (remaining > 0 and self._rejected[0][0] <= now)
        ):
            remaining -= 1
            _, connection, data = self._rejected.popleft()
            with connection, suppress(OSError):  # the client may have disconnected
                _receive(connection, 0)  # with unread data, the kernel would reset the connection
                connection.send(data)

    def close(self) -> None:
        """Stop listening, and respond to all rejected requests."""
        for listening in self._listening:
            listening.close()
        self._is_closing = True
        self.answer_rejected(0.0)
        for connection in self.silent:
            connection.close()
        self.silent.clear()


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
