"""The shared rate limit: how many requests begin in a second, in which order, and what a cancelled one frees."""

import asyncio
import threading
from collections.abc import Awaitable

import pytest

from specialists._pubmed.eutils import RateLimit, shared_limit


class Clock:
    """A clock that only `sleep` moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds
        await asyncio.sleep(0)


class Requests:
    """Requests under a limit of `allowed` in `seconds`, and the times at which they began."""

    def __init__(self, allowed: int, seconds: float) -> None:
        self.clock = Clock()
        self.limit = RateLimit(allowed, seconds, self.clock, self.clock.sleep)
        self.starts: list[float] = []

    async def send(self, duration: float = 0.0, until: float = 1000.0) -> None:
        async with self.limit.acquire(until):
            self.starts.append(self.clock())
            await self.clock.sleep(duration)

    def most_within(self, seconds: float) -> int:
        """Return the largest number of starts in any window of that length."""
        return max(sum(first <= start < first + seconds for start in self.starts) for first in self.starts)


async def gather(*requests: Awaitable[None]) -> None:
    await asyncio.gather(*requests)


def test_no_more_than_allowed_begin_in_any_window() -> None:
    requests = Requests(3, 0.1)
    asyncio.run(gather(*(requests.send(0.01 * (number % 3)) for number in range(12))))
    assert len(requests.starts) == 12
    assert requests.most_within(0.1) <= 3


def test_threads_with_loops_of_their_own_share_it() -> None:
    requests = Requests(3, 0.1)
    threads = [
        threading.Thread(target=lambda: asyncio.run(gather(*(requests.send() for _ in range(3))))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(requests.starts) == 12
    assert requests.most_within(0.1) <= 3


def test_a_place_is_free_again_only_after_the_answer() -> None:
    requests = Requests(1, 0.05)
    asyncio.run(gather(requests.send(0.1), requests.send()))
    assert requests.starts[1] - requests.starts[0] >= 0.15


def test_first_come_first_served() -> None:
    order: list[int] = []
    requests = Requests(1, 0.01)

    async def send(number: int) -> None:
        async with requests.limit.acquire(1000):
            order.append(number)

    asyncio.run(gather(*map(send, range(10))))
    assert order == list(range(10))


def test_a_cancelled_request_gives_its_turn_to_the_next() -> None:
    requests = Requests(1, 0.1)

    async def queue() -> None:
        await requests.send()
        waiting = [asyncio.create_task(requests.send()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(queue())
    assert len(requests.starts) == 2


def test_a_request_without_time_left_is_rejected() -> None:
    requests = Requests(1, 5)

    async def late() -> None:
        await requests.send()
        assert requests.limit.is_busy
        with pytest.raises(TimeoutError):
            await requests.send(until=0.05)

    asyncio.run(late())


def test_no_request_begins_during_a_pause() -> None:
    requests = Requests(3, 0.01)
    requests.limit.pause(0.1)
    assert requests.limit.is_busy
    asyncio.run(requests.send())
    assert requests.starts[0] >= 0.1


def test_there_is_one_limit_per_server() -> None:
    assert shared_limit("https://a.example/", 3) is shared_limit("https://a.example/", 3)
    assert shared_limit("https://a.example/", 3) is not shared_limit("https://b.example/", 3)
