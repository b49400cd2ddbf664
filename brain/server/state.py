"""The state that all routes share while the server runs."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from brain.errors import StoreError
from brain.models.circuit_breaker import BreakerState
from brain.plugins.registry import Registry
from brain.runtime.engine import Engine
from brain.server.admission import Acceptor, Admission, ConnectionLimits
from brain.server.auth import KeyStore
from brain.server.event_stream import SHUTDOWN_SECONDS, Heartbeats, wait_for_shutdown
from brain.server.forwarding import Forwarding
from brain.server.rate_limits import UserRateLimits
from brain.settings import Settings
from brain.store import server_data
from brain.telemetry.telemetry import Telemetry
from brain.telemetry.watchdog import UNKNOWN, Blocked, Watchdog

MEASURE_SECONDS = 0.1
"""Interval at which the lag of the event loop is measured."""
FIRST_MEASURE_SECONDS = 1.0
"""Delay of the first measurement, since a start blocks the loop."""
RESERVED_DESCRIPTORS = 128
"""File descriptors for the store, specialists, child processes, the log and rejected connections."""

log = logging.getLogger("brain")


class ServerState:
    """The engine of a server, with its keys, limits and telemetry.

    Attributes:
        task_readers: number of open streams of `GET /v1/tasks/events` per user.
        socket_folder: where this process listens for forwarded requests; None if it cannot.
    """

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self.engine = Engine(settings, registry)
        self.keys = KeyStore(settings.keys)
        self.rate_limits = UserRateLimits(settings.rights)
        self.telemetry = Telemetry(settings, registry)
        self.admission = Admission()
        self.connections = ConnectionLimits(connection_limit(), settings.connections_per_address)
        self.forwarding = Forwarding(self.engine, self.connections, self.telemetry.metrics.set_connections)
        self.heartbeats = Heartbeats(settings.heartbeat_seconds)
        self.acceptor = Acceptor(())
        self.socket_folder: Path | None = None
        self.task_readers: Counter[str] = Counter()
        self._written = 0
        self._model_states: Mapping[str, BreakerState] = {}
        self._stopping: asyncio.Task[None] | None = None
        self.make_protocol: Callable[[], asyncio.Protocol] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Open the engine and watch the event loop until the block ends.

        Raises:
            BrainError: the server cannot start with these settings.
        """
        loop = asyncio.get_running_loop()

        def report_blocked(blocked: Blocked) -> None:  # runs in the thread of the watchdog
            self.telemetry.metrics.count_block(blocked.specialist)
            if blocked.specialist != UNKNOWN:
                asyncio.run_coroutine_threadsafe(self._store_blocked(blocked), loop)

        async with AsyncExitStack() as stack:
            self.telemetry.open()
            stack.push_async_callback(self.telemetry.close)
            await self.engine.open(
                self.telemetry.record_task,
                lambda run: self.telemetry.record_background(run.snapshot(), run.conversation_id, run.user),
            )
            stack.push_async_callback(self.engine.close)
            stack.enter_context(Watchdog(self.engine.registry, report_blocked))
            stopping = asyncio.create_task(self._stop_at_shutdown(), name="stop turns at shutdown")
            stack.callback(stopping.cancel)
            measuring = asyncio.create_task(self._measure_forever(), name="measure the lag")
            stack.callback(measuring.cancel)
            stack.callback(lambda: self.acceptor.close())
            yield

    async def _measure_forever(self) -> None:
        """Measure the lag of the event loop by the delay of this task."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(FIRST_MEASURE_SECONDS)
        while True:
            began = loop.time()
            await asyncio.sleep(MEASURE_SECONDS)
            self._measure(loop.time() - began)

    def _measure(self, elapsed: float) -> None:
        """Update the limits after this time since the last measurement, and reject connections under overload."""
        loop, admission = asyncio.get_running_loop(), self.admission
        admission.measure(elapsed, elapsed - MEASURE_SECONDS, self.acceptor.backlog)
        self.telemetry.metrics.set_lag(admission.lag)
        written, self._written = self._written, self.engine.store.database.written
        self.telemetry.metrics.count_written(self._written - written)
        states = self.engine.model_states()  # a pause ends without a turn
        if states != self._model_states:
            self._model_states = states
            self.telemetry.metrics.set_model_states(states)
        if admission.is_overloaded and self.make_protocol is not None:
            for _ in range(self.acceptor.accept(loop, self.make_protocol, admission.capacity)):
                self.record_overload()
        self.acceptor.answer_rejected(loop.time())

    def record_overload(self) -> None:
        """Count and log a new turn that is rejected. A lag that rejects nothing is only a metric."""
        self.telemetry.metrics.count_rejection("overload")
        lag, waiting, running = self.admission.lag, self.admission.waiting, len(self.engine.runs.running)
        message = "The server is overloaded: a new turn gets 503 (lag %.2f s, %d turns waiting, %d running)"
        log.warning(message, lag, waiting, running)

    async def _store_blocked(self, blocked: Blocked) -> None:
        """Store the report for `brain check`."""
        with suppress(StoreError):
            await self.engine.store.write_unsynced(server_data.add_blocked, blocked.specialist, blocked.place)

    async def _stop_at_shutdown(self) -> None:
        """Stop all turns when the ASGI server shuts down. Brain's own server does it itself."""
        await wait_for_shutdown()
        await self.stop_turns()

    async def stop_turns(self) -> None:
        """Take no more turns; end those that no other process continues, after `Engine.drain`. Can be called twice."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop_turns(), name="stop turns")
        await asyncio.shield(self._stopping)

    async def _stop_turns(self) -> None:
        self.acceptor.close()
        await self.engine.drain()
        self.engine.store.database.limit_waiting(SHUTDOWN_SECONDS)
        self.engine.tasks.notify()  # the readers of the channel end
        for run in self.engine.runs.running:
            run.stop("shutdown")


def connection_limit() -> int:
    """Return the connection limit of this process: each one can need a second descriptor, for a model server."""
    try:
        import resource  # not on Windows
    except ImportError:
        return 4096
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 32_768 if soft == resource.RLIM_INFINITY else max(16, (soft - RESERVED_DESCRIPTORS) // 2)
