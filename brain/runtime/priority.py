"""Gives the model server to people first: tasks wait, and interrupt their passes, while a pass of a person runs.

A turn that waits for an approval, a specialist or a client uses no model and delays no task.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

MAX_WAIT_SECONDS = 30.0
"""Longest wait of a task before a pass, so that it continues on a server that is always busy."""


class Priority:
    """The passes of one process that use models now."""

    def __init__(self) -> None:
        self._background: set[Callable[[], None]] = set()
        self._persons = 0
        self._is_free = asyncio.Event()
        self._is_free.set()

    async def person(self, give_way: Callable[[], None]) -> Callable[[], None]:
        """Interrupt the passes of tasks, and let no other begin until the returned function is called."""
        self._persons += 1
        self._is_free.clear()
        for interrupt in tuple(self._background):
            interrupt()
        return self._end_person

    def _end_person(self) -> None:
        self._persons -= 1
        if not self._persons:
            self._is_free.set()

    async def background(self, give_way: Callable[[], None]) -> Callable[[], None]:
        """Wait until no pass of a person runs, up to `MAX_WAIT_SECONDS`; then call `give_way` when one begins."""
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await self._is_free.wait()
        self._background.add(give_way)
        return partial(self._background.discard, give_way)
