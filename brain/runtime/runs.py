"""The registry of runs of this process, also for a while after their end."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from brain.runtime.processes import Processes
from brain.runtime.run import DEFAULT_OPTIONS, REPLAY_SECONDS, Run, RunOptions
from brain.store.turns import RequestTaken
from brain.text import ID
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

MAX_BYTES = 256 * 1024 * 1024
"""Size limit of all logs. Over it, ended runs are dropped first, then the older events of running ones."""
MAX_ENDED_BYTES = 16 * 1024 * 1024
"""Size limit of the logs of ended runs: about 5,000 short ones."""
RUN_BYTES = 2048
"""Estimated size of a run without its log."""
SWEEP_SECONDS = 5.0
QUIET_SECONDS = 5.0
"""Time after a turn in which background work does not use the model, since the user may send the next message."""

Key = tuple[str | None, str]
"""A user, and an ID that is unique for this user."""


class RunRegistry:
    """All runs by turn ID, by request ID and by conversation.

    Attributes:
        processes: Finds the turns of other processes. None without a shared store.
    """

    def __init__(self) -> None:
        self.processes: Processes | None = None
        self._runs: dict[str, Run] = {}
        self._by_request: dict[Key, str] = {}
        self._newest: dict[Key, str] = {}
        self._running: dict[str, Run] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()  # time of the end, on the monotonic clock
        self._sizes: dict[str, int] = {}  # of ended runs, since the first sweep after their end
        self._ended_bytes = 0  # the sum of these
        self._beginning: dict[Key, asyncio.Event] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._last_end = -math.inf

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def running(self) -> list[Run]:
        """The runs of this process that have not ended."""
        return [run for run in self._running.values() if not run.has_ended]

    @property
    def is_idle(self) -> bool:
        """Whether no turn runs or ended in the last `QUIET_SECONDS`."""
        return time.monotonic() >= self._last_end + QUIET_SECONDS and not self.running

    def add(self, turn: Turn, protocol: str, options: RunOptions = DEFAULT_OPTIONS, *, epoch: int = 0) -> Run:
        """Create the run of a turn; the caller starts it. See `Run` for the arguments."""
        run = self._runs[turn.setup.turn_id] = Run(turn, protocol, options, epoch=epoch)
        self._running[run.id] = run
        run.on_end.append(self._record_end)
        self._newest[run.user, run.conversation_id] = run.id
        if run.request_id is not None:
            self._by_request[run.user, run.request_id] = run.id
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        return run

    def _record_end(self, run: Run) -> None:
        self._last_end = time.monotonic()
        if self._runs.get(run.id) is run:  # otherwise another run continues the turn
            del self._running[run.id]
            self._ended[run.id] = self._last_end

    async def find(self, turn_id: str, user: str | None) -> Run | None:
        """Return a run of the user by its turn ID.

        Raises:
            RunsElsewhere: Another process has it.
        """
        run = self._runs.get(turn_id)
        if run is None and self.processes is not None and ID.fullmatch(turn_id):
            run = await self.processes.find(turn_id, user) or self._runs.get(turn_id)  # which may have begun since then
        return run if run is not None and run.user == user else None

    async def find_requested(self, request: TurnRequest) -> Run | None:
        """Return the run that the user began with the same request ID, if the request has one.

        Raises:
            RunsElsewhere: Another process has it.
        """
        if request.request_id is None:
            return None
        run = self._runs.get(self._by_request.get((request.user, request.request_id), ""))
        if run is None and self.processes is not None:
            return await self.processes.find_requested(request.user or "", request.request_id)
        return run

    async def find_or_begin(self, request: TurnRequest, begin: Callable[[], Awaitable[Run]]) -> tuple[Run, Run | None]:
        """Begin a turn, unless there is one with the same request ID.

        If several requests with one ID arrive together, one begins the turn and the others wait for it.

        Returns:
            The run, and again the run if it is new and the caller must start it.

        Raises:
            RunsElsewhere: Another process has the turn.
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
        except RequestTaken:  # another process began the turn first
            if (found := await self.find_requested(request)) is None:
                raise
            return found, None
        else:
            return run, run
        finally:
            del self._beginning[key]
            has_begun.set()

    def find_newest_here(self, conversation_id: str, user: str | None) -> Run | None:
        """Return the newest run of a conversation in this process."""
        return self._runs.get(self._newest.get((user, conversation_id), ""))

    async def find_newest(self, conversation_id: str, user: str | None) -> Run | None:
        """Return the newest run of a conversation.

        Raises:
            RunsElsewhere: Another process has it.
        """
        run = self.find_newest_here(conversation_id, user)
        if self.processes is None or (run is not None and not run.has_ended):
            return run
        return await self.processes.find_newest(conversation_id, user or "") or run

    def forget(self, conversation_id: str, user: str | None) -> None:
        """Drop the ended runs of a conversation."""
        for turn_id in list(self._ended):
            run = self._runs[turn_id]
            if (run.conversation_id, run.user) == (conversation_id, user):
                self._drop(turn_id)

    def hand_over(self, run: Run) -> None:
        """Stop a run, which another process continues. It may be called again."""
        run.hand_over()
        if self._runs.get(run.id) is not run:
            return
        if run.has_ended:  # its answer was written late, when another process had the turn
            self._drop(run.id)
        else:
            del self._runs[run.id], self._running[run.id]

    def close(self) -> None:
        """Drop all runs."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for runs in (self._runs, self._running, self._ended, self._sizes, self._by_request, self._newest):
            runs.clear()
        self._ended_bytes = 0

    def _sweep(self) -> None:
        """Drop runs that ended long ago, and keep within the size limits. It repeats while there are runs."""
        oldest = time.monotonic() - REPLAY_SECONDS
        for turn_id in reversed(self._ended):
            if turn_id in self._sizes:
                break  # all before it ended before the last sweep
            self._sizes[turn_id] = _size(self._runs[turn_id])
            self._ended_bytes += self._sizes[turn_id]
        running = self.running
        used = sum(map(_size, running))
        while self._ended:
            turn_id, ended = next(iter(self._ended.items()))
            if ended >= oldest and self._ended_bytes <= min(MAX_ENDED_BYTES, MAX_BYTES - used):
                break
            self._drop(turn_id)
        if used > MAX_BYTES:
            for run in sorted(running, key=_size, reverse=True):
                before = _size(run)
                run.log.discard_older_half()
                used += _size(run) - before
                if used <= MAX_BYTES:
                    break
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep) if self._runs else None

    def _drop(self, turn_id: str) -> None:
        """Drop an ended run."""
        del self._ended[turn_id]
        self._ended_bytes -= self._sizes.pop(turn_id, 0)
        run = self._runs.pop(turn_id)
        if run.request_id is not None and self._by_request.get((run.user, run.request_id)) == turn_id:
            del self._by_request[run.user, run.request_id]
        if self._newest.get((run.user, run.conversation_id)) == turn_id:
            del self._newest[run.user, run.conversation_id]


def _size(run: Run) -> int:
    return RUN_BYTES + run.log.bytes + run.text_length
