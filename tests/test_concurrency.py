import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from brain import concurrency
from brain.concurrency import NoThread, count_abandoned, count_threads, run_in_thread


def nothing(item: Any) -> None: ...


def soon(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 5
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_a_value_comes_back_from_another_thread() -> None:
    async def main() -> Any:
        return await run_in_thread("a", threading.current_thread, nothing)

    thread = asyncio.run(main())
    assert thread.name == "brain-a"
    assert thread.daemon
    assert soon(lambda: count_threads() == 0)


def test_context_variables_are_seen() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    async def main() -> Any:
        variable.set("seen")
        return await run_in_thread("a", variable.get, nothing)

    assert asyncio.run(main()) == "seen"


def test_items_of_a_generator_come_in_order_on_the_loop() -> None:
    seen: list[Any] = []

    def items() -> Iterator[int]:
        yield from range(1_000)

    async def main() -> Any:
        loop_thread = threading.get_ident()
        return await run_in_thread("a", items, lambda item: seen.append((item, threading.get_ident() == loop_thread)))

    assert asyncio.run(main()) is None
    assert seen == [(n, True) for n in range(1_000)]


def test_a_fast_generator_does_not_flood_the_loop() -> None:
    produced = 0

    def endless() -> Iterator[int]:
        nonlocal produced
        while True:
            produced += 1
            yield produced

    async def main() -> int:
        took = 0

        def take(item: int) -> None:
            nonlocal took
            took += 1

        task = asyncio.ensure_future(run_in_thread("a", endless, take))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})
        return took

    took = asyncio.run(main())
    assert soon(lambda: count_threads() == 0)
    assert took <= produced <= took + 2


@pytest.mark.parametrize("error", [ValueError("x"), StopIteration("x"), SystemExit(3), asyncio.CancelledError()])
def test_what_is_raised_comes_back(error: BaseException) -> None:
    def function() -> None:
        raise error

    async def main() -> None:
        await run_in_thread("a", function, nothing)

    expected = RuntimeError if isinstance(error, StopIteration) else type(error)
    with pytest.raises(expected):
        asyncio.run(main())
    assert soon(lambda: count_threads() == 0)


def test_an_item_that_cannot_be_taken_ends_the_call() -> None:
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.set()

    def take(item: int) -> None:
        raise ValueError(item)

    async def main() -> None:
        await run_in_thread("a", items, take)

    with pytest.raises(ValueError, match="1"):
        asyncio.run(main())
    assert closed.wait(5)


@pytest.mark.alone
def test_abandoned_threads_are_counted_and_bounded_by_name() -> None:
    end = threading.Event()

    async def main() -> None:
        calls = [asyncio.ensure_future(run_in_thread("hangs", lambda: end.wait(30), nothing)) for _ in range(8)]
        await asyncio.sleep(0)
        assert (count_threads(), count_abandoned()) == (8, 0)
        for call in calls:
            call.cancel()
        began = time.monotonic()
        await asyncio.wait(calls)
        assert time.monotonic() - began < 0.1
        assert (count_threads(), count_abandoned()) == (8, 8)
        with pytest.raises(NoThread):
            await run_in_thread("hangs", lambda: 1, nothing)
        assert await run_in_thread("other", lambda: 1, nothing) == 1
        end.set()
        assert await asyncio.to_thread(soon, lambda: count_threads() == 0)
        assert count_abandoned() == 0
        assert await run_in_thread("hangs", lambda: 1, nothing) == 1

    asyncio.run(main())


def test_abandoned_threads_are_bounded_altogether() -> None:
    end = threading.Event()

    async def main() -> None:
        calls = [
            asyncio.ensure_future(run_in_thread(f"hangs{n % 5}", lambda: end.wait(30), nothing)) for n in range(32)
        ]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        with pytest.raises(NoThread):
            await run_in_thread("other", lambda: 1, nothing)
        end.set()

    asyncio.run(main())
    assert soon(lambda: (count_threads(), count_abandoned()) == (0, 0))


def test_many_calls_at_once_are_no_reason_to_refuse() -> None:
    async def main() -> list[int]:
        barrier = threading.Barrier(100)  # all of them run at the same time
        found: list[int] = await asyncio.gather(*(run_in_thread("busy", barrier.wait, nothing) for _ in range(100)))
        return found

    assert sorted(asyncio.run(main())) == list(range(100))
    assert soon(lambda: count_threads() == 0)


def test_threads_are_bounded_altogether() -> None:
    end = threading.Event()

    async def main() -> None:
        calls = [
            asyncio.ensure_future(run_in_thread("a", lambda: end.wait(30), nothing)) for _ in range(concurrency.PLACES)
        ]
        await asyncio.sleep(0)
        with pytest.raises(NoThread):
            await run_in_thread("b", lambda: 1, nothing)
        end.set()
        await asyncio.gather(*calls)

    asyncio.run(main())
    assert soon(lambda: count_threads() == 0)


def test_a_system_without_more_threads_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with pytest.raises(NoThread):
            await run_in_thread("a", lambda: 1, nothing)

    monkeypatch.setattr(threading.Thread, "start", start)
    asyncio.run(main())
    assert (count_threads(), count_abandoned()) == (0, 0)


def test_an_abandoned_generator_is_closed_at_its_next_item() -> None:
    go_on, closed = threading.Event(), threading.Event()
    seen: list[int] = []

    def items() -> Iterator[int]:
        try:
            yield 1
            go_on.wait(30)
            yield 2
            yield 3
        finally:
            closed.set()

    async def main() -> None:
        came = asyncio.Event()

        def take(item: int) -> None:
            seen.append(item)
            came.set()

        call = asyncio.ensure_future(run_in_thread("a", items, take))
        await came.wait()
        call.cancel()
        await asyncio.wait({call})
        go_on.set()
        assert await asyncio.to_thread(closed.wait, 5)

    asyncio.run(main())
    assert seen == [1]


def test_a_thread_that_outlives_its_loop_does_no_harm() -> None:
    end = threading.Event()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_in_thread("a", lambda: end.wait(30), nothing), 0.01)

    asyncio.run(main())
    end.set()
    assert soon(lambda: (count_threads(), count_abandoned()) == (0, 0))
