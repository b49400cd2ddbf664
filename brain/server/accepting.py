"""Accepts connections that an overloaded server has no time for, and refuses those that start turns.

The event loop accepts one connection at a time, between all other work, so under overload the others would wait in the
system's queue, unanswered. What is refused here costs a few system calls: no transport, no protocol, no application.
"""

import socket
import sys
from asyncio import AbstractEventLoop, Protocol, Task
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from brain.server.admission import Reason, refused
from brain.server.middleware import refusal

ACCEPTED_MOST = 1_000
"""Connections that are accepted at once."""
HELD_MOST = 8_192
HELD_SECONDS = 1.0
"""A refused request is answered after so long at least: clients that try again at once would take all the time."""
ANSWERED_MOST = 50
"""Refused requests that are answered at once. The system takes some 0.1 ms for each."""
STARTS_TURN = frozenset(
    (b"POST", path)
    for path in (b"/v1/chat/stream", b"/v1/turns", b"/v1/chat/completions", b"/api/chat", b"/api/generate")
)
"""Requests that are refused by their heads. Others that start turns may also join one or answer an approval; they are
refused when it turns out that they start one."""


def starts_turn(method: bytes, url: bytes) -> bool:
    """Whether a request starts a turn, by the first line of its head."""
    return (method, url.partition(b"?")[0]) in STARTS_TURN


@lru_cache(64)
def response(path: bytes, reason: Reason) -> bytes:
    """The answer 503 in the form of the protocol that an address belongs to, after which the connection is closed."""
    answer = refusal(refused(reason), {"type": "http", "path": path.decode("latin-1")})
    head = b"".join(b"%s: %s\r\n" % header for header in answer.raw_headers)
    return b"HTTP/1.1 503 Service Unavailable\r\n%sconnection: close\r\n\r\n%s" % (head, bytes(answer.body))


class Acceptor:
    """Accepts what waits, for one process.

    Args:
        listening: the sockets of the server.

    Attributes:
        unread: connections whose requests had not come when they were accepted.
    """

    def __init__(self, listening: Sequence[socket.socket]) -> None:
        self._listening = listening
        self.unread: list[socket.socket] = []
        self._held: deque[tuple[float, socket.socket, bytes]] = deque()
        self._is_closing = False
        self._accepting: set[Task[Any]] = set()

    @property
    def waiting(self) -> int:
        """Connections that wait to be accepted, where the system gives their number."""
        if sys.platform != "linux":
            return 0
        # tcpi_unacked, which of a listening socket is the length of its queue
        told = (
            one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)[24:] for one in self._listening if one.fileno() >= 0
        )
        return sum(int.from_bytes(number, sys.byteorder) for number in told)

    def accept(self, loop: AbstractEventLoop, make: Callable[[], Protocol], room: int) -> int:
        """Accept what waits.

        Args:
            make: makes a protocol for connections that are not refused.
            room: how many turns may start.

        Returns:
            How many were refused.
        """
        number = 0
        before = dict.fromkeys(self.unread)
        self.unread = []
        for connection in (*before, *self._new()):
            data = _read(connection, socket.MSG_PEEK)
            if not data and connection not in before:
                self.unread.append(connection)  # its request may be on its way
                continue
            path = _path_to_refuse(data)
            if path and room < 1:
                self._held.append((loop.time() + HELD_SECONDS, connection, response(path, "overload")))
                number += 1
                continue
            room -= bool(path)
            task = loop.create_task(loop.connect_accepted_socket(make, connection))
            self._accepting.add(task)
            task.add_done_callback(self._accepted)
        return number

    def _new(self) -> Iterator[socket.socket]:
        for listening in self._listening:
            with suppress(OSError):  # none waits any more, or there are no descriptors
                for _ in range(ACCEPTED_MOST):
                    connection, _ = listening.accept()
                    connection.setblocking(False)
                    yield connection

    def answer(self, now: float) -> None:
        """Answer some of those that were refused a while ago."""
        number = ANSWERED_MOST
        while self._held and (
            len(self._held) > HELD_MOST or self._is_closing or (number > 0 and self._held[0][0] <= now)
        ):
            number -= 1
            _, connection, data = self._held.popleft()
            with connection, suppress(OSError):  # its client left
                _read(connection, 0)  # unread data would make the system reset the connection before it is answered
                connection.send(data)

    def close(self) -> None:
        """Listen no longer, and answer all that were refused."""
        for listening in self._listening:
            listening.close()
        self._is_closing = True
        self.answer(0.0)
        for connection in self.unread:
            connection.close()
        self.unread.clear()

    def _accepted(self, task: Task[Any]) -> None:
        self._accepting.discard(task)
        if not task.cancelled():
            task.exception()  # its client left


def _path_to_refuse(data: bytes) -> bytes:
    """The path of a request that starts a turn and does nothing else; empty for any other, and for half a head."""
    head, complete, _ = data.partition(b"\r\n\r\n")
    line, _, headers = head.partition(b"\r\n")
    method, _, rest = line.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if not complete or (method, path) not in STARTS_TURN:
        return b""
    names = headers.lower()
    # a page learns it from the application, with the headers that allow it to read the answer
    return b"" if b"last-event-id:" in names or b"\norigin:" in b"\n" + names else path


def _read(connection: socket.socket, flags: int) -> bytes:
    with suppress(OSError):
        return connection.recv(65_536, flags)
    return b""
