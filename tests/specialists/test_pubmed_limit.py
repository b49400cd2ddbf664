"""The shared rate limit: requests per second, their order, and slots freed by cancelled requests."""

import asyncio
import threading
from collections.abc import Awaitable

import pytest

from specialists._pubmed.rate_limit import RateLimit


class Requests:
    """Requests under a limit, on a clock that only `sleep` moves, and the times at which they began."""

    def __init__(self, allowed: int, seconds: float) -> None:
        self.now = 0.0
        self.starts: list[float] = []
        self.order: list[int] = []
        self.limit = RateLimit(allowed, seconds, lambda: self.now, self.sleep)
        self._lock = threading.Lock()

    async def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds
        await asyncio.sleep(0)

    async def send(self, duration: float = 0.0, until: float = 1000.0, number: int = 0) -> None:
        async with self.limit.acquire(until):
            self.starts.append(self.now)
            self.order.append(number)
            await self.sleep(duration)

    def most_within(self, seconds: float) -> int:
        """Return the largest number of starts in any window of that length."""
        return max(sum(first <= start < first + seconds for start in self.starts) for first in self.starts)


async def gather(*requests: Awaitable[None]) -> None:
    await asyncio.gather(*requests)


def test_no_window_has_more_requests_than_allowed_and_their_order_is_kept() -> None:
    requests = Requests(3, 0.1)
    asyncio.run(gather(*(requests.send(0.01 * (number % 3), number=number) for number in range(12))))
    assert requests.order == list(range(12))
    assert requests.most_within(0.1) <= 3


def test_threads_share_the_limit() -> None:
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


def test_a_slot_is_free_only_some_time_after_the_response() -> None:
    requests = Requests(1, 0.05)
    asyncio.run(gather(requests.send(0.1), requests.send()))
    assert requests.starts[1] - requests.starts[0] >= 0.15


def test_cancelled_late_and_paused_requests() -> None:
    requests = Requests(1, 5)

    async def main() -> None:
        await requests.send()
        waiting = [asyncio.create_task(requests.send()) for _ in range(3)]
        await asyncio.sleep(0)
        for task in waiting[:2]:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert len(requests.starts) == 2
        assert requests.limit.is_busy
        with pytest.raises(TimeoutError):
            await requests.send(until=requests.now + 0.05)
        requests.limit.pause(100)
        begun = requests.now
        await requests.send()
        assert requests.starts[-1] >= begun + 100

    asyncio.run(main())
