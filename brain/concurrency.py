"""Runs plain functions off the event loop, in threads that can be abandoned.

A thread cannot be stopped from outside. The thread of a cancelled call is abandoned: its value is dropped, a generator
in it is closed at its next `yield`, and it is counted until it ends, so the number of threads stays bounded. Threads
are daemons: a hanging one does not keep the process from ending.
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
    """Too many threads run, most likely abandoned ones."""


def count_threads() -> int:
    """Returns the number of running threads, with the abandoned ones."""
    return _running


def count_abandoned() -> int:
    """Returns the number of abandoned threads that still run."""
    with _lock:
        return _abandoned.total()


async def run_in_thread(
    name: str, function: Callable[[], Any], on_item: Callable[[Any], None] = lambda _item: None
) -> Any:
    """Calls `function` in a thread.

    Args:
        name: what abandoned threads are counted under.
        function: returns a value, or a generator whose items go to `on_item`, on the loop, as they come.

    Raises:
        NoThread: when too many threads run, or too many are abandoned.
    """
    thread = _Thread(name, function, on_item)
    thread.start()
    try:
        return await thread.done
    finally:
        thread.abandon()


async def call_in_thread(name: str, function: Callable[[], Any]) -> Any:
    """Calls a plain function in a thread, or a coroutine function; returns its value.

    Raises:
        NoThread: as `run_in_thread`.
    """
    value = await run_in_thread(name, function)
    return await value if isawaitable(value) else value


class _Thread:
    """One call in a thread. `start`, `abandon` and callbacks of `_post` run on the loop, the rest does not."""

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
        except RuntimeError as error:  # the system has no more
            with _lock:
                _running -= 1
            raise NoThread from error

    def abandon(self) -> None:
        """Stops waiting; a thread that has not ended counts as abandoned until it has."""
        with _lock:
            self._abandoned.set()
            if not self._ended:
                _abandoned[self._name] += 1
        self._item_taken.set()

    def _work(self) -> None:
        global _running
        settle, value = self.done.set_result, None
        try:
            value = self._function()
            if isgenerator(value):
                with closing(value) as items:
                    self._drain(items)
                value = None
        except StopIteration as error:  # which no future can carry
            settle, value = self.done.set_exception, RuntimeError(f"raised {error!r}")
        except BaseException as error:  # noqa: BLE001 - the caller judges what a function raises
            settle, value = self.done.set_exception, error
        with _lock:
            self._ended = True
            _running -= 1
            if self._abandoned.is_set():
                _abandoned[self._name] -= 1
        self._post(settle, value)

    def _drain(self, items: Iterator[Any]) -> None:
        """Passes on each item and waits until it is taken, so that a fast generator cannot flood the loop."""
        for item in items:
            self._item_taken.clear()
            if self._abandoned.is_set() or not self._post(self._take, item):
                return
            self._item_taken.wait()

    def _take(self, item: Any) -> None:
        try:
            self._on_item(item)
        finally:
            self._item_taken.set()

    def _post(self, callback: Callable[[Any], None], value: Any) -> bool:
        """Calls back on the loop, unless the call is done by then; False when the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._unless_done, callback, value)
        except RuntimeError:
            return False
        return True

    def _unless_done(self, callback: Callable[[Any], None], value: Any) -> None:
        if not self.done.done():
            try:
                callback(value)
            except Exception as error:  # noqa: BLE001 - an item that cannot be taken ends the call
                self.done.set_exception(error)


T = TypeVar("T")


async def iterate(found: AsyncIterable[T] | Iterable[T]) -> AsyncGenerator[T, None]:
    """Any iterable as an asynchronous one, that is closed when it is left."""
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
