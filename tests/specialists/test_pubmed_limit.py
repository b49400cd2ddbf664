"""The shared rate limit: how many begin in a second, in which order, and what a cancelled one leaves behind."""

import asyncio
import threading
import time

import pytest

from specialists._pubmed.eutils import RateLimit, shared_limit


def most_within(times: list[float], seconds: float) -> int:
    """The largest number of moments in any window of that length."""
    return max(sum(start <= moment < start + seconds for moment in times) for start in times)


async def take(limit: RateLimit, begun: list[float], seconds: float = 0.0, until: float = 10.0) -> None:
    async with limit.acquire(time.monotonic() + until):
        begun.append(time.monotonic())
        await asyncio.sleep(seconds)


def test_no_more_than_allowed_begin_in_any_window() -> None:
    limit, begun = RateLimit(3, 0.1), list[float]()

    async def all_at_once() -> None:
        await asyncio.gather(*(take(limit, begun, 0.01 * (n % 3)) for n in range(12)))

    asyncio.run(all_at_once())
    assert len(begun) == 12
    assert most_within(begun, 0.1) == 3
    assert max(begun) - min(begun) < 3


def test_threads_with_loops_of_their_own_share_it() -> None:
    limit, begun = RateLimit(3, 0.1), list[float]()

    async def some() -> None:
        await asyncio.gather(*(take(limit, begun) for _ in range(3)))

    threads = [threading.Thread(target=lambda: asyncio.run(some())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == 12
    assert most_within(begun, 0.1) == 3


def test_a_slow_request_keeps_its_place_until_it_was_answered() -> None:
    limit, begun = RateLimit(1, 0.05), list[float]()

    async def two() -> None:
        await asyncio.gather(take(limit, begun, 0.1), take(limit, begun))

    asyncio.run(two())
    assert begun[1] - begun[0] >= 0.15


def test_first_come_first_served() -> None:
    order: list[int] = []

    async def queue() -> None:
        limit = RateLimit(1, 0.01)

        async def one(number: int) -> None:
            async with limit.acquire(time.monotonic() + 5):
                order.append(number)

        tasks = []
        for number in range(10):
            tasks.append(asyncio.create_task(one(number)))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    asyncio.run(queue())
    assert order == list(range(10))


@pytest.mark.alone
def test_a_cancelled_one_gives_its_turn_to_the_next() -> None:
    async def queue() -> float:
        limit, begun = RateLimit(1, 0.1), list[float]()
        await take(limit, begun)
        waiting = [asyncio.create_task(take(limit, begun)) for _ in range(3)]
        await asyncio.sleep(0.02)
        waiting[0].cancel()
        waiting[1].cancel()
        started = time.monotonic()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert len(begun) == 2
        assert not limit.is_busy or begun[-1] > 0
        return time.monotonic() - started

    assert asyncio.run(queue()) < 0.2


def test_who_has_no_time_left_is_not_kept() -> None:
    async def late() -> None:
        limit = RateLimit(1, 5)
        await take(limit, [])
        assert limit.is_busy
        with pytest.raises(TimeoutError):
            await take(limit, [], until=0.05)

    asyncio.run(late())


def test_nobody_begins_while_the_server_wants_quiet() -> None:
    async def held() -> float:
        limit, begun = RateLimit(3, 0.01), list[float]()
        started = time.monotonic()
        limit.pause(0.1)
        assert limit.is_busy
        await take(limit, begun)
        return begun[0] - started

    assert asyncio.run(held()) >= 0.1


def test_there_is_one_limit_a_server() -> None:
    assert shared_limit("https://a.example/", 3) is shared_limit("https://a.example/", 3)
    assert shared_limit("https://a.example/", 3) is not shared_limit("https://b.example/", 3)
