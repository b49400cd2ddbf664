"""Ground: runs plain functions off the event loop, in threads that nobody has to wait for.

A thread cannot be stopped from outside. One whose call was given up is abandoned: its value is dropped, a generator in
it is closed at its next `yield`, and it holds its place until it ends, so that their number stays bounded. Threads are
daemons: a hanging one does not keep the process from ending.
"""

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from inspect import isgenerator
from typing import Any

PLACES_PER_NAME = 8
PLACES = 32

_lock = threading.Lock()
_taken: Counter[str] = Counter()


class NoThread(Exception):
    """All places are taken, most likely by calls that were given up and still run."""


def taken() -> int:
    """How many threads run now, abandoned ones among them."""
    with _lock:
        return _taken.total()


async def in_thread(name: str, function: Callable[[], Any], on_item: Callable[[Any], None]) -> Any:
    """Calls `function` in a thread.

    Args:
        name: what the places are counted under.
        function: returns a value, or a generator whose items go to `on_item`, on the loop, as they come.

    Raises:
        NoThread: when `name`, or all together, hold as many threads as they may.
    """
    with _lock:
        if _taken[name] >= PLACES_PER_NAME or _taken.total() >= PLACES:
            raise NoThread
        _taken[name] += 1
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    abandoned = threading.Event()

    def post(callback: Callable[..., Any], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(callback, *args)

    def settle(setter: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            setter(value)

    def work() -> None:
        try:
            value = function()
            if isgenerator(value):
                with closing(value) as items:
                    _drain(items, abandoned, lambda item: post(on_item, item))
                value = None
        except StopIteration as error:  # which no future can carry
            post(settle, done.set_exception, RuntimeError(f"generator raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - whatever a stranger's function raises is the caller's to judge
            post(settle, done.set_exception, error)
        else:
            post(settle, done.set_result, value)
        finally:
            with _lock:
                _taken[name] -= 1

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name=f"brain-{name}", daemon=True).start()
    try:
        return await done
    finally:
        abandoned.set()


def _drain(items: Iterator[Any], abandoned: threading.Event, post: Callable[[Any], None]) -> None:
    for item in items:
        if abandoned.is_set():
            return
        post(item)
