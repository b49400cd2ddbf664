"""Servers beside a test, each on a loop of its own in a thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from limits import WAIT_SECONDS

Serve = Callable[[threading.Event, threading.Event], Coroutine[Any, Any, None]]
"""Serves; sets the first when it is ready, and ends when the second is set."""


async def listen(
    connect: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
    connections: set[asyncio.Task[None]],
    begin: Callable[[str], None],
    over: threading.Event,
) -> None:
    """Serves a port, each connection in a task, until told that it is over.

    Args:
        connections: has these tasks, as long as they run.
        begin: told the address, once it can be asked.
    """

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(connect(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)
        task.add_done_callback(lambda _: writer.close())  # also if it was cancelled before it began

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    begin(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await asyncio.to_thread(over.wait)
    server.close()
    left = set(connections)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def first_of(*ways: Coroutine[None, None, None]) -> None:
    """Runs them until one is over; the others are cancelled."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def beside(serve: Serve) -> Iterator[None]:
    """A server that is ready, until the block ends."""
    ready, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve(ready, over)))
    thread.start()
    try:
        assert ready.wait(WAIT_SECONDS)
        yield
    finally:
        over.set()
        thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
