"""The runs of this process, those that ended for a while, and through the store those of other processes."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from brain.messages import TurnReport
from brain.runtime.relay import Relay
from brain.runtime.run import KEPT_SECONDS, AnyRun, Run, Settle
from brain.store.turn_log import RequestTaken, TurnLog
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

MAX_BYTES = 256 * 1024 * 1024
"""Size of all logs together. Turns that ended make room first, then the beginnings of those that run."""
MAX_ENDED_BYTES = 16 * 1024 * 1024
"""Size of the logs of turns that ended: about five thousand short ones."""
RUN_BYTES = 2048
"""About what a run takes besides its log."""
SWEEP_SECONDS = 5.0
QUIET_SECONDS = 5.0
"""How long after a turn background work leaves the model alone: the same person may send the next message."""

Key = tuple[str | None, str]
"""A user, and an ID that is unique for that user."""


class RunRegistry:
    """All runs by their turn IDs, by the IDs that clients gave their requests, and by their conversations.

    Attributes:
        relay: finds the runs of other processes; None where there are none.
    """

    def __init__(self) -> None:
        self.relay: Relay | None = None
        self._runs: dict[str, Run] = {}
        self._by_request: dict[Key, str] = {}
        self._newest: dict[Key, str] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()  # when, by the monotonic clock
        self._beginning: dict[Key, asyncio.Event] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._last_end = -math.inf

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def running(self) -> list[Run]:
        """The runs of this process that have not ended."""
        return [run for run in self._runs.values() if not run.has_ended]

    @property
    def is_idle(self) -> bool:
        """Whether no turn runs, or ended in the last `QUIET_SECONDS`."""
        return time.monotonic() >= self._last_end + QUIET_SECONDS and not self.running

    def add(
        self,
        turn: Turn,
        request: TurnRequest,
        protocol: str,
        settle: Settle,
        *,
        replayable: bool = True,
        unread_seconds: float | None = None,
        options: str = "",
    ) -> Run:
        """Make the run of a turn; the caller starts it. The arguments are those of `Run`."""

        def settle_run(report: TurnReport) -> None:
            self._last_end = time.monotonic()
            if run.id in self._runs:
                self._ended[run.id] = self._last_end
            settle(report)

        run = self._runs[turn.id] = Run(
            turn, request, protocol, settle_run, replayable=replayable, unread_seconds=unread_seconds, options=options
        )
        self._newest[run.user, run.conversation_id] = run.id
        if run.request_id is not None:
            self._by_request[run.user, run.request_id] = run.id
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        return run

    async def open_relay(self, turn_log: TurnLog) -> Relay:
        """Find the runs of other processes from now on, and let other processes find those of this one."""
        self.relay = Relay(turn_log, self._runs)
        await self.relay.open()
        return self.relay

    async def find(self, turn_id: str, user: str | None) -> AnyRun | None:
        """A run of the user by its turn ID."""
        run = self._runs.get(turn_id)
        if run is None and self.relay is not None:
            return await self.relay.find(turn_id, user)
        return run if run is not None and run.user == user else None

    async def find_requested(self, request: TurnRequest) -> AnyRun | None:
        """The run that the user began with the same request ID, if the request has one."""
        if request.request_id is None:
            return None
        run = self._runs.get(self._by_request.get((request.user, request.request_id), ""))
        if run is None and self.relay is not None:
            return await self.relay.find_requested(request.user, request.request_id)
        return run

    async def begin_once(self, request: TurnRequest, begin: Callable[[], Awaitable[Run]]) -> tuple[AnyRun, Run | None]:
        """Begin a turn, unless one was begun with the same request ID.

        Of concurrent requests with one ID, one begins the turn and the others wait for that.

        Returns:
            The run; and the run again if it is new and has to be started.
        """
        if request.request_id is None:
            run = await begin()
            return run, run
        key = request.user, request.request_id
        while (earlier := self._beginning.get(key)) is not None:
            await earlier.wait()
        has_begun = self._beginning[key] = asyncio.Event()
        try:
            if (found := await self.find_requested(request)) is not None:
                return found, None
            run = await begin()
        except RequestTaken:  # by another process, meanwhile
            if (found := await self.find_requested(request)) is None:
                raise
            return found, None
        else:
            return run, run
        finally:
            del self._beginning[key]
            has_begun.set()

    def find_newest_here(self, conversation_id: str, user: str | None) -> Run | None:
        """The newest run of a conversation in this process."""
        return self._runs.get(self._newest.get((user, conversation_id), ""))

    async def find_newest(self, conversation_id: str, user: str | None) -> AnyRun | None:
        """The newest run of a conversation in any process."""
        run = self.find_newest_here(conversation_id, user)
        if self.relay is None or (run is not None and not run.has_ended):
            return run
        return await self.relay.find_newest(user, conversation_id) or run

    def forget(self, conversation_id: str, user: str | None) -> None:
        """Delete the runs of a conversation that have ended."""
        for turn_id in list(self._ended):
            run = self._runs[turn_id]
            if (run.conversation_id, run.user) == (conversation_id, user):
                self._drop(turn_id)

    def close(self) -> None:
        """Delete all runs."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for runs in (self._runs, self._ended, self._by_request, self._newest):
            runs.clear()

    def _sweep(self) -> None:
        """Delete runs that ended long ago, and make room; called regularly, as long as there is any run."""
        oldest = time.monotonic() - KEPT_SECONDS
        used = sum(map(_size, self._runs.values()))
        used_by_ended = sum(_size(self._runs[turn_id]) for turn_id in self._ended)
        while self._ended:
            turn_id, ended = next(iter(self._ended.items()))
            if ended >= oldest and used_by_ended <= MAX_ENDED_BYTES and used <= MAX_BYTES:
                break
            freed = self._drop(turn_id)
            used, used_by_ended = used - freed, used_by_ended - freed
        if used > MAX_BYTES:
            for run in sorted(self.running, key=_size, reverse=True):
                before = _size(run)
                run.log.discard_older_half()
                used += _size(run) - before
                if used <= MAX_BYTES:
                    break
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep) if self._runs else None

    def _drop(self, turn_id: str) -> int:
        """Delete a run that has ended; return its size in bytes."""
        del self._ended[turn_id]
        run = self._runs.pop(turn_id)
        if run.request_id is not None and self._by_request.get((run.user, run.request_id)) == turn_id:
            del self._by_request[run.user, run.request_id]
        if self._newest.get((run.user, run.conversation_id)) == turn_id:
            del self._newest[run.user, run.conversation_id]
        if self.relay is not None:
            self.relay.delete(turn_id)
        return _size(run)


def _size(run: Run) -> int:
    return RUN_BYTES + run.log.bytes
