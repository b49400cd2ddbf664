"""What the routes share, from the start of the server to its end."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

from brain.errors import StoreError
from brain.plugins.registry import Registry
from brain.runtime.engine import Engine
from brain.server.accepting import Acceptor
from brain.server.admission import Admission, Connections
from brain.server.event_stream import SHUTDOWN_SECONDS, server_stops
from brain.server.rate_limits import UserRateLimits
from brain.settings import Settings
from brain.telemetry.telemetry import Telemetry
from brain.telemetry.watchdog import UNKNOWN, Blocked, Watchdog

MEASURE_SECONDS = 0.1
"""How often the lag of the event loop is measured."""
START_SECONDS = 1.0
"""After so long it is measured for the first time: a start blocks the loop."""
DESCRIPTORS_RESERVED = 128
"""For the store, specialists, child processes, the log, and connections that are refused."""

log = logging.getLogger("brain")


class ServerState(Engine):
    """The engine of a server, with what its users may do, what its operator sees, and the answers that are given.

    Attributes:
        acceptor: knows the server's sockets.
        make_protocol: makes the protocol of a connection.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        super().__init__(settings, registry)
        self.allowances = UserRateLimits(settings.rights)
        self.watch = Telemetry(settings, registry)
        self.admission = Admission()
        self.connections: Connections[Any] = Connections(connections_most(), settings.connections_per_address)
        self.acceptor = Acceptor(())
        self.make_protocol: Callable[[], asyncio.Protocol] | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        self.watch.open()
        stack.push_async_callback(self.watch.close)
        await super()._open(stack)
        report = partial(self._on_blocked, asyncio.get_running_loop())
        stack.enter_context(Watchdog(self.registry, report))
        watcher = asyncio.create_task(self._say_farewell(), name="farewell")
        stack.callback(watcher.cancel)
        loop = asyncio.get_running_loop()
        self._measuring = loop.call_later(START_SECONDS, lambda: self._measure_from(loop.time()))
        stack.callback(lambda: self._measuring.cancel())
        stack.callback(lambda: self.acceptor.close())

    def _measure_from(self, now: float) -> None:
        self._measured = now
        self._measuring = asyncio.get_running_loop().call_at(now + MEASURE_SECONDS, self._measure)

    def _measure(self) -> None:
        """Compare when this should have run with when it runs, and accept what an overloaded server is to refuse."""
        now = asyncio.get_running_loop().time()
        elapsed = now - self._measured
        admission, before = self.admission, self.admission.is_overloaded
        admission.measure(now, elapsed, elapsed - MEASURE_SECONDS, self.acceptor.waiting)
        self.watch.metrics.lag(admission.lag)
        if before != admission.is_overloaded:
            state = (
                "no longer overloaded" if before else "overloaded: turns beyond what can start soon are answered 503"
            )
            log.warning(
                "%s (lag %.2f s, turns that start %d, that run %d)",
                state,
                admission.lag,
                len(admission.starts),
                len(self.turns.running),
            )
        if (admission.is_overloaded or self.acceptor.unread) and self.make_protocol is not None:
            for _ in range(self.acceptor.accept(asyncio.get_running_loop(), self.make_protocol, admission.room)):
                self.watch.metrics.refused("overload")
        self.acceptor.answer(now)
        self._measure_from(now)

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
        self.acceptor.close()
        self.store.hurry(SHUTDOWN_SECONDS)
        for run in self.turns.running:
            run.stop("shutdown")


def connections_most() -> int:
    """Connections that this process may hold: each may need a second descriptor, for a model server."""
    try:
        import resource  # which Windows has not
    except ImportError:
        return 4096
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 32_768 if soft == resource.RLIM_INFINITY else max(16, (soft - DESCRIPTORS_RESERVED) // 2)
