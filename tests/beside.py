"""Servers beside a test, each on a loop of its own in a thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

Serve = Callable[[threading.Event, threading.Event], Coroutine[Any, Any, None]]
"""Serves; sets the first when it is ready, and ends when the second is set."""


@contextmanager
def beside(serve: Serve) -> Iterator[None]:
    """A server that is ready, until the block ends."""
    ready, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve(ready, over)))
    thread.start()
    try:
        assert ready.wait(5)
        yield
    finally:
        over.set()
        thread.join(10)
    assert not thread.is_alive()
