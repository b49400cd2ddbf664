"""The runs of this process, and by way of the store those of others; also, for a while, those that ended."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial

from brain.messages import TurnReport
from brain.runtime.relay import Relay
from brain.runtime.run import KEPT_SECONDS, AnyRun, Run, Settle
from brain.store.turn_log import RequestTaken, TurnLog
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

BYTES_MOST = 256 * 1024 * 1024
"""Of all journals together. Turns that ended make room first, then the beginnings of those that run."""
OVER_BYTES_MOST = 16 * 1024 * 1024
"""Of those that ended: some five thousand short ones, or as many as end within the time for which they are kept."""
RUN_BYTES = 2048
"""About what a turn takes besides its journal."""
SWEEP_SECONDS = 5.0
QUIET_SECONDS = 5.0
"""So long after a turn the next one of the same person may come, and the model is left alone."""


class RunRegistry:
    """All turns by their ids, and by the ids that clients gave their requests.

    Attributes:
        relay: finds those of other processes; None where there are none.
    """

    def __init__(self) -> None:
        self.relay: Relay | None = None
        self._runs: dict[str, Run] = {}
        self._asked: dict[tuple[str | None, str], str] = {}
        self._newest: dict[tuple[str | None, str], str] = {}  # of each conversation
        self._over: OrderedDict[str, float] = OrderedDict()
        self._beginning: dict[tuple[str | None, str], asyncio.Event] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._ended = -math.inf

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def running(self) -> list[Run]:
        """Those that are not over."""
        return [run for run in self._runs.values() if not run.over]

    @property
    def are_quiet(self) -> bool:
        """Whether none runs, nor ended a moment ago."""
        return time.monotonic() >= self._ended + QUIET_SECONDS and not self.running

    def begin(
        self,
        turn: Turn,
        ask: TurnRequest,
        wire: str,
        settle: Settle,
        *,
        replayable: bool = True,
        unread_seconds: float | None = None,
        options: str = "",
    ) -> Run:
        """A run of this turn, which is then to be started."""
        settled = partial(self._settled, turn.id, settle)
        run = self._runs[turn.id] = Run(
            turn, ask, wire, settled, replayable=replayable, unread_seconds=unread_seconds, options=options
        )
        self._newest[ask.user, turn.conversation_id] = turn.id
        if ask.request_id is not None:
            self._asked[ask.user, ask.request_id] = turn.id
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        return run

    def _settled(self, turn_id: str, settle: Settle, report: TurnReport) -> None:
        self._ended = time.monotonic()
        if turn_id in self._runs:
            self._over[turn_id] = self._ended
        settle(report)

    def open_relay(self, turn_log: TurnLog) -> Relay:
        """Find turns of other processes from now on, and let them find those of this one."""
        self.relay = Relay(turn_log, self._runs)
        self.relay.open()
        return self.relay

    async def find(self, turn_id: str, user: str | None) -> AnyRun | None:
        """The turn, if it is known and the user's own."""
        run = self._runs.get(turn_id)
        if run is None and self.relay is not None:
            return await self.relay.find(turn_id, user)
        return run if run is not None and run.user == user else None

    async def requested(self, request: TurnRequest) -> AnyRun | None:
        """The turn that the user began with the same request ID, if one was given."""
        if request.request_id is None:
            return None
        run = self._runs.get(self._asked.get((request.user, request.request_id), ""))
        if run is None and self.relay is not None:
            return await self.relay.requested(request.user, request.request_id)
        return run

    async def once(self, request: TurnRequest, begin: Callable[[], Awaitable[Run]]) -> tuple[AnyRun, Run | None]:
        """Begin a turn, unless one was begun with the same request ID.

        Of requests of one ID that come at the same time, one begins the turn and the others wait for that.

        Returns:
            The turn; and the same again if it is new, and so has to be started.
        """
        if request.request_id is None:
            run = await begin()
            return run, run
        key = request.user, request.request_id
        while (earlier := self._beginning.get(key)) is not None:
            await earlier.wait()
        begun = self._beginning[key] = asyncio.Event()
        try:
            if (found := await self.requested(request)) is not None:
                return found, None
            run = await begin()
        except RequestTaken:  # by another process, meanwhile
            if (found := await self.requested(request)) is None:
                raise
            return found, None
        else:
            return run, run
        finally:
            del self._beginning[key]
            begun.set()

    def newest_here(self, conversation_id: str, user: str | None) -> Run | None:
        """The newest turn of a conversation of the user's that this process ran."""
        return self._runs.get(self._newest.get((user, conversation_id), ""))

    async def newest(self, conversation_id: str, user: str | None) -> AnyRun | None:
        """The newest turn of a conversation of the user's."""
        run = self.newest_here(conversation_id, user)
        if self.relay is None or (run is not None and not run.over):
            return run
        return await self.relay.newest(user, conversation_id) or run

    def forget(self, conversation_id: str, user: str | None) -> None:
        """Forgets the turns of a conversation that are over."""
        for turn_id in [turn_id for turn_id in self._over if self._is_of(turn_id, conversation_id, user)]:
            del self._over[turn_id]
            self._drop(turn_id)

    def _is_of(self, turn_id: str, conversation_id: str, user: str | None) -> bool:
        run = self._runs[turn_id]
        return run.conversation_id == conversation_id and run.user == user

    def close(self) -> None:
        """Forgets all turns."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._runs.clear()
        self._over.clear()
        self._asked.clear()
        self._newest.clear()

    def _sweep(self) -> None:
        """Forgets turns that ended long ago, and makes room; once in a while, as long as there is any turn."""
        oldest = time.monotonic() - KEPT_SECONDS
        used, over = sum(map(_bytes, self._runs.values())), sum(_bytes(self._runs[turn_id]) for turn_id in self._over)
        while self._over and (next(iter(self._over.values())) < oldest or over > OVER_BYTES_MOST or used > BYTES_MOST):
            freed = self._forget_oldest()
            used, over = used - freed, over - freed
        for run in sorted(self.running, key=_bytes, reverse=True) if used > BYTES_MOST else ():
            if used <= BYTES_MOST:
                break
            used -= _bytes(run)
            run.log.discard_older_half()
            used += _bytes(run)
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep) if self._runs else None

    def _forget_oldest(self) -> int:
        turn_id, _ = self._over.popitem(last=False)
        return self._drop(turn_id)

    def _drop(self, turn_id: str) -> int:
        run = self._runs.pop(turn_id)
        if run.request_id is not None and self._asked.get((run.user, run.request_id)) == turn_id:
            del self._asked[run.user, run.request_id]
        if self._newest.get((run.user, run.conversation_id)) == turn_id:
            del self._newest[run.user, run.conversation_id]
        if self.relay is not None:
            self.relay.forget(turn_id)
        return _bytes(run)


def _bytes(run: Run) -> int:
    return RUN_BYTES + run.log.bytes
