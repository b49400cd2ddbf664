"""Roof: what the routes share, from the start of the server to its end."""

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial

from brain.engine import Engine
from brain.errors import StoreError
from brain.rates import Allowances
from brain.registry import Registry
from brain.response import TurnResponse, server_stops
from brain.settings import Settings
from brain.watch import Counted, Watch
from brain.watchdog import UNKNOWN, Blocked, Watchdog

SHUTDOWN_SECONDS = 5.0


class House(Engine):
    """The engine of a server, with what its users may do, what its operator sees, and the answers that are given."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        super().__init__(settings, registry)
        self.allowances = Allowances(settings.rights)
        self.watch = Watch(settings, registry)
        self.answers: set[TurnResponse] = Counted(self.watch.metrics.streams)

    async def _open(self, stack: AsyncExitStack) -> None:
        self.watch.open()
        stack.push_async_callback(self.watch.close)
        await super()._open(stack)
        report = partial(self._on_blocked, asyncio.get_running_loop())
        stack.enter_context(Watchdog(self.registry, report))
        watcher = asyncio.create_task(self._say_farewell(), name="farewell")
        stack.callback(watcher.cancel)

    def _on_blocked(self, loop: asyncio.AbstractEventLoop, found: Blocked) -> None:
        """Runs in the watching thread."""
        self.watch.metrics.blocked(found.specialist)
        if found.specialist != UNKNOWN:
            asyncio.run_coroutine_threadsafe(self._store_blocked(found), loop)

    async def _store_blocked(self, found: Blocked) -> None:
        """Keeps it for `brain check`."""
        with suppress(StoreError):
            await self.store.add_blocked(found.specialist, found.place)

    async def _say_farewell(self) -> None:
        """When the server is told to stop: ends all turns in a sentence, then those that did not listen."""
        await server_stops()
        self.leaving = True
        self.store.hurry(SHUTDOWN_SECONDS)
        for run in self.turns.running:
            run.stop("shutdown")
        await asyncio.sleep(SHUTDOWN_SECONDS)
        for answer in list(self.answers):
            answer.leave()
