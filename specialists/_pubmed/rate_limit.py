"""The rate limit for requests to PubMed, shared by all turns, event loops and threads of a process."""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

_STEP = 0.01
_MAX_STEP = 0.2


class RateLimit:
    """A number of slots, first come first served. Each is free again some time after the response to its request.

    Counting from the response, not from the request, keeps the limit at the server too, however late a request
    arrives. Several event loops use the limit, so waiting requests poll.

    Args:
        requests: number of slots.
        seconds: time after a response until its slot is free.
    """

    def __init__(
        self,
        requests: int,
        seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock, self._sleep = clock, sleep
        self._free_at = [0.0] * requests
        self._paused_until = 0.0
        self._queue: deque[object] = deque()
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether the next request has to wait."""
        now = self._clock()
        with self._lock:
            return bool(self._queue) or max(self._paused_until, min(self._free_at)) > now

    def pause(self, seconds: float) -> None:
        """Start no request for some seconds, because the server asked for it."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._clock() + seconds)

    @asynccontextmanager
    async def acquire(self, until: float) -> AsyncIterator[None]:
        """Hold a slot for one request.

        Args:
            until: deadline on the clock, in seconds.

        Raises:
            TimeoutError: if there is no slot before the deadline.
        """
        ticket = object()
        with self._lock:
            self._queue.append(ticket)
        try:
            while (slot := self._take_slot(ticket)) is None:
                if self._clock() >= until:
                    raise TimeoutError
                with self._lock:
                    position = self._queue.index(ticket) + 1
                await self._sleep(min(_STEP * position, _MAX_STEP))
        finally:
            with self._lock:
                self._queue.remove(ticket)
        try:
            yield
        finally:
            with self._lock:
                self._free_at[slot] = self._clock() + self._seconds

    def _take_slot(self, ticket: object) -> int | None:
        """Return a free slot if this ticket is the next one."""
        with self._lock:
            now = self._clock()
            slot = min(range(len(self._free_at)), key=self._free_at.__getitem__)
            if self._queue[0] is not ticket or now < max(self._paused_until, self._free_at[slot]):
                return None
            self._free_at[slot] = math.inf
            return slot


_limits: dict[tuple[str, int], RateLimit] = {}
_limits_lock = threading.Lock()


def shared_limit(server: str, requests: int) -> RateLimit:
    """Return this process's limit for a server: `requests` per second."""
    with _limits_lock:
        return _limits.setdefault((server, requests), RateLimit(requests))
