"""Decides which turns and connections the server accepts, so that it can serve those that it has."""

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
"""Turns that a calm server accepts at once, however many it can start per second. One core starts them in 2.5 s."""
BURST_PER_SECOND = 100.0
"""How much the next burst grows per second while the server is calm."""
CALM_STARTS = 64
"""A server with at most so many turns to start is calm; an overloaded server may have as many."""
QUEUE_SECONDS = 0.5
"""After its burst, a server queues as many turns as it starts in this time."""
LAG_SECONDS, CALM_LAG_SECONDS = 0.25, 0.1
"""Smoothed lag of the event loop above which a server is overloaded, and below which it no longer is. Tokens are late
by this much, and the first token by about ten times as much, since a turn waits for the loop as often until then."""
SMOOTHING_SECONDS = 1.0
CALM_SECONDS = 1.0
"""A server is no longer overloaded when it was calm for so long."""
STALL_SECONDS = 2.0
"""A longer lag counts as this one: a machine that was suspended for an hour is not overloaded."""
FASTER, SLOWER = 1.1, 0.85
"""An overloaded server multiplies its turns per second by one of these with each measurement: by the second when the
loop lags by `CALM_LAG_SECONDS`, or a turn waits for its start for longer than `QUEUE_SECONDS`."""
MIN_PER_SECOND = 8.0
MIN_SHARE = 0.7
"""An overloaded server accepts at least this share of the turns that end, so that their number falls without a gap."""
RETRY_SECONDS = 2

ACCEPT_LIMIT = 1_000
"""Connections accepted at once."""
REJECTED_LIMIT = 8_192
REJECT_SECONDS = 1.0
"""Delay before a rejected request is answered: clients that retry at once would take all the time."""
ANSWERS_PER_ROUND = 50
"""Rejected requests answered at once. The system takes some 0.1 ms for each."""
TURN_STARTS = frozenset(
    (b"POST", path)
    for path in (b"/v1/chat/stream", b"/v1/turns", b"/v1/chat/completions", b"/api/chat", b"/api/generate")
)
"""Requests that can be rejected by their heads. Other requests that start turns may also join a turn or answer an
approval; they are rejected when it turns out that they start one."""
PENDING_START = "brain.pending_start"
"""The key of a request's scope that holds its `PendingStart`."""

Reason = Literal["address", "connections", "overload"]

_MESSAGES: Mapping[Reason, str] = {
    "address": "This address has too many open connections; close some, or try again later.",
    "connections": "The server has no room for further connections; try again later.",
    "overload": "The server is overloaded; try again later.",
}


def unavailable(reason: Reason) -> BadRequest:
    """The error 503 for a request that the server has no capacity for."""
    return BadRequest(_MESSAGES[reason], code="unavailable", status=503, retry_after=RETRY_SECONDS)


@lru_cache(64)
def raw_rejection(path: bytes, reason: Reason) -> bytes:
    """The whole response 503 in the protocol of a path, after which the connection is closed."""
    response = error_response(unavailable(reason), {"type": "http", "path": path.decode("latin-1")})
    head = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
    return b"HTTP/1.1 503 Service Unavailable\r\n%sconnection: close\r\n\r\n%s" % (head, bytes(response.body))


def starts_turn(method: bytes, url: bytes) -> bool:
    """Whether a request starts a turn and does nothing else, judged by its request line."""
    return (method, url.partition(b"?")[0]) in TURN_STARTS


class PendingStart:
    """A turn between its request and its first event."""

    __slots__ = ("_admission", "requested_at")

    def __init__(self, admission: "Admission", requested_at: float) -> None:
        self.requested_at = requested_at
        self._admission = admission

    def end(self) -> None:
        """The turn has started, or cannot start. Further calls do nothing."""
        self._admission.pending.pop(self, None)


class Admission:
    """Decides whether a turn may start. Pure: the caller passes the time.

    A burst is accepted whole, since it passes. When turns keep coming faster than they start, each would wait for all
    that came before it. So an overloaded server has a short queue, and accepts as many turns per second as its event
    loop can bear.

    Attributes:
        pending: turns that wait for their start, oldest first.
        lag: smoothed lag of the event loop, in seconds.
        is_overloaded: whether requests are rejected, or were until a short while ago.
    """

    def __init__(self) -> None:
        self.pending: dict[PendingStart, None] = {}
        self.lag = 0.0
        self.is_overloaded = False
        self._burst: float = BURST
        self._started = 0  # since the last measurement
        self._per_second = 0.0  # starts; of an overloaded server, those that it allows
        self._ended = 0  # since the last measurement
        self._ended_per_second = 0.0
        self._calm_seconds = 0.0
        self._allowed = 0.0  # turns that an overloaded server may start now

    @property
    def capacity(self) -> int:
        """How many turns may start now."""
        queue = self._queue_limit - len(self.pending)
        return int(self._burst) + max(0, int(min(queue, self._allowed) if self.is_overloaded else queue))

    @property
    def _queue_limit(self) -> float:
        return max(CALM_STARTS, self._per_second * QUEUE_SECONDS)

    def admit(self, now: float) -> PendingStart:
        """Count a turn that is to start. The caller calls `end` of the result in any case."""
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
        """Decide anew whether the server is overloaded.

        Args:
            now: seconds on the clock of `admit`.
            elapsed: seconds since the last measurement.
            lag: seconds by which this measurement is late.
            unaccepted: connections that the system holds for this process to accept.
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
        limit: open connections in total.
        limit_per_address: connections of one address; behind a proxy, requests that are being answered.

    Attributes:
        open_count: connections that are open and not rejected.
        idle: connections that wait for a request, longest first.
        rejected: connections over a limit that wait for the request to answer with 503.
    """

    def __init__(self, limit: int, limit_per_address: int) -> None:
        self.limit = limit
        self.limit_per_address = limit_per_address
        self.idle: dict[Any, None] = {}
        self.rejected: set[Any] = set()
        self.open_count = 0
        self._per_address: Counter[str] = Counter()

    def acquire(self, address: str) -> bool:
        """Count one more connection of an address; False when it has reached its limit."""
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

    The event loop accepts one connection at a time, between all other work, so under overload the others would wait in
    the system's queue, unanswered. A rejection here costs a few system calls: no transport, no protocol, no
    application.

    Args:
        listening: the sockets of the server.

    Attributes:
        silent: connections whose requests had not arrived when they were accepted.
    """

    def __init__(self, listening: Sequence[socket.socket]) -> None:
        self._listening = listening
        self.silent: list[socket.socket] = []
        self._rejected: deque[tuple[float, socket.socket, bytes]] = deque()
        self._is_closing = False
        self._tasks: set[Task[Any]] = set()

    @property
    def backlog(self) -> int:
        """Connections that wait to be accepted; 0 where the system does not report them."""
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
            make_protocol: makes a protocol for connections that are not rejected.
            capacity: how many turns may start.

        Returns:
            How many were rejected.
        """
        count = 0
        earlier = dict.fromkeys(self.silent)
        self.silent = []
        for connection in (*earlier, *self._accept_new()):
            data = _receive(connection, socket.MSG_PEEK)
            if not data and connection not in earlier:
                self.silent.append(connection)  # its request may be on its way
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
            with suppress(OSError):  # none waits any more, or there are no descriptors
                for _ in range(ACCEPT_LIMIT):
                    connection, _ = listening.accept()
                    connection.setblocking(False)
                    yield connection

    def _on_connected(self, task: Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # read, so that asyncio does not log that the client left

    def answer_rejected(self, now: float) -> None:
        """Answer some of the requests that were rejected a while ago."""
        remaining = ANSWERS_PER_ROUND
        while self._rejected and (
            len(self._rejected) > REJECTED_LIMIT or self._is_closing or (remaining > 0 and self._rejected[0][0] <= now)
        ):
            remaining -= 1
            _, connection, data = self._rejected.popleft()
            with connection, suppress(OSError):  # its client left
                _receive(connection, 0)  # unread data would make the system reset the connection
                connection.send(data)

    def close(self) -> None:
        """Stop listening, and answer all rejected requests."""
        for listening in self._listening:
            listening.close()
        self._is_closing = True
        self.answer_rejected(0.0)
        for connection in self.silent:
            connection.close()
        self.silent.clear()


def _path_to_reject(data: bytes) -> bytes:
    """The path of a request that starts a turn and does nothing else; empty for any other, and for half a head."""
    head, complete, _ = data.partition(b"\r\n\r\n")
    line, _, headers = head.partition(b"\r\n")
    method, _, rest = line.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if not complete or (method, path) not in TURN_STARTS:
        return b""
    names = headers.lower()
    # a page gets the response of the application, whose headers allow it to read the error
    return b"" if b"last-event-id:" in names or b"\norigin:" in b"\n" + names else path


def _receive(connection: socket.socket, flags: int) -> bytes:
    with suppress(OSError):
        return connection.recv(65_536, flags)
    return b""
