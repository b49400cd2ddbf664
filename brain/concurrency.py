"""Runs plain functions in threads that can be abandoned.

Python cannot stop a thread from outside, so a cancelled call abandons its thread: it drops the value and closes a
generator at the next `yield`. Abandoned threads count until they end, which bounds their number. All threads are
daemons, so a hanging thread does not block the end of the process.
"""

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from contextlib import closing
from inspect import isawaitable, isgenerator
from typing import Any, TypeVar

import anyio

MAX_ABANDONED_PER_NAME = 8
MAX_ABANDONED = 32
MAX_THREADS = 256

_lock = threading.Lock()
_abandoned: Counter[str] = Counter()
_running = 0


class NoThread(Exception):
    """Too many threads are running, most likely abandoned ones."""


def count_threads() -> int:
    """Return the number of running threads, including abandoned ones."""
    return _running


def count_abandoned() -> int:
    """Return the number of abandoned threads that still run."""
    with _lock:
        return _abandoned.total()


async def run_in_thread(
    name: str, function: Callable[[], Any], on_item: Callable[[Any], None] = lambda _item: None
) -> Any:
    """Call `function` in a thread and return its value.

    Args:
        name: Name under which abandoned threads count.
        function: Returns a value, or a generator.
        on_item: Called on the event loop with each item of the generator.

    Raises:
        NoThread: Too many threads run, or too many are abandoned.
    """
    thread = _Thread(name, function, on_item)
    thread.start()
    try:
        return await thread.done
    finally:
        thread.abandon()


async def call_in_thread(name: str, function: Callable[[], Any]) -> Any:
    """Call a function in a thread, await its value if it is a coroutine, and return the result.

    Raises:
        NoThread: As for `run_in_thread`.
    """
    value = await run_in_thread(name, function)
    return await value if isawaitable(value) else value


class _Thread:
    """One call in a thread. `start`, `abandon` and callbacks of `_post` run on the event loop; the rest does not."""

    def __init__(self, name: str, function: Callable[[], Any], on_item: Callable[[Any], None]) -> None:
        self._name = name
        self._function = function
        self._on_item = on_item
        self._loop = asyncio.get_running_loop()
        self._abandoned = threading.Event()
        self._item_taken = threading.Event()
        self._ended = False
        self.done: asyncio.Future[Any] = self._loop.create_future()

    def start(self) -> None:
        global _running
        with _lock:
            if (
                _running >= MAX_THREADS
                or _abandoned.total() >= MAX_ABANDONED
                or _abandoned[self._name] >= MAX_ABANDONED_PER_NAME
            ):
                raise NoThread
            _running += 1
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(self._work,), name=f"brain-{self._name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more threads
            with _lock:
                _running -= 1
            raise NoThread from error

    def abandon(self) -> None:
        """Stop waiting. A thread that still runs counts as abandoned until it ends."""
        with _lock:
            self._abandoned.set()
            if not self._ended:
                _abandoned[self._name] += 1
        self._item_taken.set()

    def _work(self) -> None:
        global _running
        complete, value = self.done.set_result, None
        try:
            value = self._function()
            if isgenerator(value):
                with closing(value) as items:
                    self._drain(items)
                value = None
        except StopIteration as error:  # a future cannot hold it
            complete, value = self.done.set_exception, RuntimeError(f"raised {error!r}")
        except BaseException as error:  # noqa: BLE001 - the caller handles exceptions of the function
            complete, value = self.done.set_exception, error
        with _lock:
            self._ended = True
            _running -= 1
            if self._abandoned.is_set():
                _abandoned[self._name] -= 1
        self._post(complete, value)

    def _drain(self, items: Iterator[Any]) -> None:
        """Post each item and wait until it is taken, so that a fast generator cannot flood the event loop."""
        for item in items:
            self._item_taken.clear()
            if self._abandoned.is_set() or not self._post(self._take, item):
                return
            self._item_taken.wait()

    def _take(self, item: Any) -> None:
        self._on_item(item)
        self._item_taken.set()

    def _post(self, callback: Callable[[Any], None], value: Any) -> bool:
        """Schedule a callback on the event loop, unless the call is done. Return False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._unless_done, callback, value)
        except RuntimeError:
            return False
        return True

    def _unless_done(self, callback: Callable[[Any], None], value: Any) -> None:
        if not self.done.done():
            try:
                callback(value)
            except Exception as error:  # noqa: BLE001 - an error in `on_item` ends the call
                self.done.set_exception(error)


T = TypeVar("T")


async def iterate(found: AsyncIterable[T] | Iterable[T]) -> AsyncGenerator[T, None]:
    """Yield the items of an iterable or async iterable, and close it at the end."""
    try:
        if isinstance(found, AsyncIterable):
            iterator = aiter(found)
            try:
                async for one in iterator:
                    yield one
            finally:
                if iterator is not found and isinstance(iterator, AsyncGenerator):
                    await iterator.aclose()
        else:
            for one in found:
                yield one
    finally:
        close = getattr(found, "aclose", None) or getattr(found, "close", None)
        closing = close() if close is not None else None
        if isawaitable(closing):
            with anyio.CancelScope(shield=True):
                await closing
