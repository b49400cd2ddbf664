"""Functions in threads: values, items, errors, abandoned threads, and their limits."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from limits import WAIT_SECONDS

from brain import concurrency
from brain.concurrency import NoThread, call_in_thread, count_abandoned, count_threads, iterate, run_in_thread


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("brain-"):
            thread.join(WAIT_SECONDS)
    assert (count_threads(), count_abandoned()) == (0, 0)


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """Lets hanging threads end."""
    event = threading.Event()
    yield event
    event.set()


async def start(count: int, function: Callable[[], Any], name: str = "a{n}") -> list[asyncio.Task[Any]]:
    """Starts calls, each in a thread."""
    calls = [asyncio.create_task(run_in_thread(name.format(n=n), function)) for n in range(count)]
    await asyncio.sleep(0)
    return calls


async def abandon(calls: list[asyncio.Task[Any]]) -> None:
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


def test_a_value_comes_from_a_daemon_thread_with_the_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    async def main() -> None:
        variable.set("set")
        thread = await run_in_thread("a", threading.current_thread)
        assert (thread.name, thread.daemon) == ("brain-a", True)
        assert await run_in_thread("a", variable.get) == "set"

    asyncio.run(main())


def test_a_plain_or_a_coroutine_function() -> None:
    async def coroutine() -> str:
        return threading.current_thread().name

    async def main() -> list[str]:
        return [
            await call_in_thread("a", coroutine),
            await call_in_thread("a", lambda: threading.current_thread().name),
        ]

    assert asyncio.run(main()) == ["MainThread", "brain-a"]


def test_items_come_in_order_on_the_loop() -> None:
    items: list[Any] = []

    async def main() -> Any:
        loop_thread = threading.get_ident()
        return await run_in_thread(
            "a",
            lambda: (n for n in range(1_000)),
            lambda item: items.append((item, threading.get_ident() == loop_thread)),
        )

    assert asyncio.run(main()) is None
    assert items == [(n, True) for n in range(1_000)]


@pytest.mark.parametrize("error", [ValueError("x"), StopIteration("x"), SystemExit(3), asyncio.CancelledError()])
def test_an_error_comes_back(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)):
        asyncio.run(run_in_thread("a", fail))


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

    with pytest.raises(ValueError, match="1"):
        asyncio.run(run_in_thread("a", items, take))
    assert closed.wait(WAIT_SECONDS)


def test_an_abandoned_generator_is_one_item_ahead_at_most_and_closed() -> None:
    closed = threading.Event()
    produced, taken = 0, 0

    def endless() -> Iterator[int]:
        nonlocal produced
        try:
            while True:
                produced += 1
                yield produced
        finally:
            closed.set()

    async def main() -> None:
        nonlocal taken
        some = asyncio.Event()

        def take(item: int) -> None:
            nonlocal taken
            taken += 1
            if item == 100:
                some.set()

        call = asyncio.create_task(run_in_thread("a", endless, take))
        await some.wait()
        await abandon([call])
        assert await asyncio.to_thread(closed.wait, 60)

    asyncio.run(main())
    assert taken <= produced <= taken + 2


def test_abandoned_threads_are_limited_by_name(end: threading.Event) -> None:
    async def main() -> None:
        calls = await start(8, end.wait, "hangs")
        assert (count_threads(), count_abandoned()) == (8, 0)
        await abandon(calls)
        assert (count_threads(), count_abandoned()) == (8, 8)
        with pytest.raises(NoThread):
            await run_in_thread("hangs", int)
        assert await run_in_thread("other", int) == 0

    asyncio.run(main())


def test_abandoned_threads_are_limited_altogether(end: threading.Event) -> None:
    async def main() -> None:
        await abandon(await start(32, end.wait))
        with pytest.raises(NoThread):
            await run_in_thread("other", int)

    asyncio.run(main())


def test_threads_are_limited_altogether(end: threading.Event) -> None:
    async def main() -> None:
        calls = await start(concurrency.MAX_THREADS, end.wait)
        with pytest.raises(NoThread):
            await run_in_thread("b", int)
        end.set()
        assert await asyncio.gather(*calls) == [True] * concurrency.MAX_THREADS

    asyncio.run(main())


def test_many_threads_run_at_the_same_time() -> None:
    async def main() -> list[int]:
        barrier = threading.Barrier(100)
        found: list[int] = await asyncio.gather(*await start(100, barrier.wait))
        return found

    assert sorted(asyncio.run(main())) == list(range(100))


def test_a_system_without_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(NoThread):
        asyncio.run(run_in_thread("a", int))


def test_a_thread_may_outlive_its_loop(end: threading.Event) -> None:
    async def main() -> None:
        await abandon(await start(1, end.wait))

    asyncio.run(main())
    assert count_abandoned() == 1


def test_a_source_is_closed_in_a_scope_that_is_cancelled() -> None:
    class Source:
        is_closed = False

        def __aiter__(self) -> "Source":
            return self

        async def __anext__(self) -> int:
            return 1

        async def aclose(self) -> None:
            await asyncio.sleep(0)
            self.is_closed = True

    async def main() -> bool:
        source = Source()
        with anyio.CancelScope() as scope:
            async with aclosing(iterate(source)) as items:
                async for _ in items:
                    scope.cancel()
                    break
        return source.is_closed

    assert asyncio.run(main())
