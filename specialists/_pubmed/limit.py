"""Built in: how many requests a second `pubmed` makes, counted over all turns, event loops and threads of a process."""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_STEP = 0.01
_STEP_MOST = 0.2


class RateLimit:
    """So many places, first come first served; each is free again a while after the request in it was answered.

    Counting from the answer, and not from the sending, keeps the limit at the server too, however late a request comes
    there. It is used from several event loops, hence the lock and the looking again instead of waking.
    """

    def __init__(self, requests: int, seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._free_at = [0.0] * requests
        self._held_until = 0.0
        self._queue: deque[object] = deque()
        self._lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether the next request has to wait."""
        now = time.monotonic()
        with self._lock:
            return bool(self._queue) or max(self._held_until, min(self._free_at)) > now

    def hold(self, seconds: float) -> None:
        """Lets nobody begin for so long: the server asked for it."""
        with self._lock:
            self._held_until = max(self._held_until, time.monotonic() + seconds)

    @asynccontextmanager
    async def place(self, until: float) -> AsyncIterator[None]:
        """A place for one request.

        Args:
            until: when there is no use for it any more, on the clock of `time.monotonic`.

        Raises:
            TimeoutError: when there is none before.
        """
        number = await self._waited(until)
        try:
            yield
        finally:
            with self._lock:
                self._free_at[number] = time.monotonic() + self._seconds

    async def _waited(self, until: float) -> int:
        ticket = object()
        with self._lock:
            self._queue.append(ticket)
        try:
            while (number := self._taken(ticket)) is None:
                if time.monotonic() >= until:
                    raise TimeoutError
                await asyncio.sleep(min(_STEP * self._place_in_queue(ticket), _STEP_MOST))
            return number
        finally:
            with self._lock:
                self._queue.remove(ticket)

    def _place_in_queue(self, ticket: object) -> int:
        with self._lock:
            return self._queue.index(ticket) + 1

    def _taken(self, ticket: object) -> int | None:
        """The number of a free place, if it is this one's turn."""
        with self._lock:
            now = time.monotonic()
            if self._queue[0] is not ticket or now < self._held_until:
                return None
            for number, free_at in enumerate(self._free_at):
                if free_at <= now:
                    self._free_at[number] = math.inf
                    return number
        return None


_limits: dict[tuple[str, int], RateLimit] = {}
_limits_lock = threading.Lock()


def shared(server: str, requests: int) -> RateLimit:
    """The one limit of this process for a server: `requests` a second."""
    with _limits_lock:
        return _limits.setdefault((server, requests), RateLimit(requests))
