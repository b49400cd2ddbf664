"""Rooms: the turns of this process, those that run and, for a while, those that ended."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial

from brain.ask import Ask
from brain.errors import BadRequest, Interruption
from brain.events import Event
from brain.journal import Journal
from brain.report import TurnReport
from brain.turn import Turn

KEPT_SECONDS = 300.0
"""How long a turn is kept behind its end."""
BYTES_MOST = 256 * 1024 * 1024
"""Of all journals together. Turns that ended make room first, then the beginnings of those that run."""
OVER_MOST = 10_000
SWEEP_SECONDS = 5.0
COMES_BACK_SECONDS = 30.0
"""How long who left to approve a call may still come back when the time to approve it is over."""

Settle = Callable[[TurnReport], None]


class Run:
    """One turn: it is led once, followed by any number of readers, and steered from outside.

    Args:
        wire: the protocol of who asked.
        settle: records the turn, once, before anybody reads that it ended.
        journal: what it told; None for a turn that nobody can join.
        survives: seconds that the turn goes on when its last reader has left; None for ever.

    Attributes:
        hurry: told when the turn is stopped, for a leader whose reader takes nothing.
        left_at: the event behind which the one who asked left, to come back with an approval.
    """

    __slots__ = (
        "__weakref__", "_grace", "_readers", "_report", "_settle", "_task", "_turn", "_waiters", "conversation_id",
        "hurry", "id", "journal", "left_at", "request_id", "survives", "user", "wire",
    )  # fmt: skip

    def __init__(
        self, turn: Turn, ask: Ask, wire: str, settle: Settle, journal: Journal | None, survives: float | None
    ) -> None:
        self.id = turn.id
        self.user = ask.user
        self.conversation_id = turn.conversation_id
        self.request_id = ask.request_id
        self.wire = wire
        self.journal = journal
        self.survives = survives
        self.hurry: Callable[[], None] | None = None
        self.left_at = 0
        self._turn: Turn | None = turn
        self._settle: Settle | None = settle
        self._report: TurnReport | None = None
        self._readers = 0
        self._grace: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def over(self) -> bool:
        """Whether the turn has ended."""
        return self._turn is None

    @property
    def stopped(self) -> bool:
        """Whether it was told to end, and has not yet."""
        return self._turn is not None and self._turn.stopped

    @property
    def waits(self) -> bool:
        """Whether a person is to approve a call."""
        return self._turn is not None and self._turn.waits

    @property
    def readers(self) -> int:
        """How many follow it."""
        return self._readers

    def report(self) -> TurnReport:
        """What happened so far."""
        if self._turn is not None:
            return self._turn.report(self.wire)
        assert self._report is not None
        return self._report

    def stop(self, reason: Interruption = "cancelled") -> None:
        """Ends the turn at its next wait, which is now; nothing for one that is over."""
        if self._turn is not None:
            self._turn.stop(reason)
            if self.hurry is not None:
                self.hurry()

    def steer(self, message: str) -> None:
        """As `Turn.steer`."""
        if self._turn is None:
            raise BadRequest("This turn is over; send the message as a new one.", code="gone", status=410)
        self._turn.steer(message)

    def decide(self, call_id: str, approve: bool) -> None:
        """As `Turn.decide`."""
        if self._turn is None:
            raise BadRequest("This turn is over; nothing waits for an approval.", code="gone", status=410)
        self._turn.decide(call_id, approve)

    async def lead(self) -> AsyncGenerator[Sequence[Event], None]:
        """Runs the turn, once: the events that came together. Closing the generator ends the turn at once."""
        try:
            async with aclosing(self.batches()) as batches:
                async for batch in batches:
                    self.told(batch)
                    yield batch
                    del batch  # not kept while the next are waited for
        finally:
            self.cut()

    def batches(self) -> AsyncGenerator[Sequence[Event], None]:
        """The same for who calls `told` with each before it is read, and `cut` behind all: one step less a token."""
        assert self._turn is not None
        return self._turn.batches()

    def told(self, batch: Sequence[Event]) -> None:
        """Notes what the turn told, and whether it ended with it."""
        if self.journal is not None:
            self.journal.add(batch)  # first: readers are to find its end, whatever fails behind it
        if self._turn is not None and self._turn.last is not None:
            self._end(self._turn)

    def cut(self) -> None:
        """Ends a turn that is led no further, if it is not over; its readers are told."""
        if self._turn is not None:
            self.told(self._turn.cut())

    def alone(self) -> None:
        """Runs the turn in a task of its own, whoever reads."""
        self._task = asyncio.create_task(self._lead_on(), name="turn")
        if self.survives:
            self._begin_grace(self.survives)

    async def _lead_on(self) -> None:
        async with aclosing(self.lead()) as batches:
            async for _ in batches:
                pass

    async def give_up(self) -> None:
        """Ends a turn that runs alone without waiting for its own end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self.cut()

    async def end(self) -> None:
        """Waits until it is over."""
        if not self.over:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def joined(self) -> None:
        """A reader follows."""
        self._readers += 1
        if self._grace is not None:
            self._grace.cancel()

    def left(self, *, comes_back: bool = False) -> None:
        """A reader follows no more; one that comes back with an approval is waited for, as long as that may take."""
        self._readers -= 1
        if self._readers or self.survives is None or self._turn is None:
            return
        waits = comes_back and self._turn.waits
        self._begin_grace(self._turn.approval_seconds + COMES_BACK_SECONDS if waits else self.survives)

    def _begin_grace(self, seconds: float) -> None:
        self._grace = asyncio.get_running_loop().call_later(seconds, self.stop)

    def _end(self, turn: Turn) -> None:
        """Settles, and lets go of all that the turn held."""
        settle, self._settle = self._settle, None
        if settle is not None:
            self._report = turn.report(self.wire)
            self._turn = None
            if self._grace is not None:
                self._grace.cancel()
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            settle(self._report)


class Turns:
    """All turns of this process by their ids, and by the ids that clients gave their requests."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._asked: dict[tuple[str | None, str], str] = {}
        self._newest: dict[tuple[str | None, str], str] = {}  # of each conversation
        self._over: OrderedDict[str, float] = OrderedDict()
        self._beginning: dict[tuple[str | None, str], asyncio.Event] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def running(self) -> list[Run]:
        """Those that are not over."""
        return [run for run in self._runs.values() if not run.over]

    def begin(
        self,
        turn: Turn,
        ask: Ask,
        wire: str,
        settle: Settle,
        *,
        joinable: bool = True,
        survives: float | None = None,
    ) -> Run:
        """Takes on a turn, to be led."""
        settled = partial(self._settled, turn.id, settle)
        run = self._runs[turn.id] = Run(turn, ask, wire, settled, Journal() if joinable else None, survives)
        self._newest[ask.user, turn.conversation_id] = turn.id
        if ask.request_id is not None:
            self._asked[ask.user, ask.request_id] = turn.id
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        return run

    def _settled(self, turn_id: str, settle: Settle, report: TurnReport) -> None:
        self._over[turn_id] = time.monotonic()
        settle(report)

    def find(self, turn_id: str, user: str | None) -> Run | None:
        """The turn, if it is kept and the user's own."""
        run = self._runs.get(turn_id)
        return run if run is not None and run.user == user else None

    def asked(self, ask: Ask) -> Run | None:
        """The turn that the user began with the same id of their own, if one was given."""
        if ask.request_id is None:
            return None
        return self.find(self._asked.get((ask.user, ask.request_id), ""), ask.user)

    async def once(self, ask: Ask, begin: Callable[[], Awaitable[Run]]) -> tuple[Run, bool]:
        """The turn that this request asked for before, or that `begin` begins; and whether it is new.

        Of requests of one id that come at the same time, one begins it and the others wait for that.
        """
        if ask.request_id is None:
            return await begin(), True
        key = ask.user, ask.request_id
        while (earlier := self._beginning.get(key)) is not None:
            await earlier.wait()
        if (run := self.asked(ask)) is not None:
            return run, False
        begun = self._beginning[key] = asyncio.Event()
        try:
            return await begin(), True
        finally:
            del self._beginning[key]
            begun.set()

    def newest(self, conversation_id: str, user: str | None) -> Run | None:
        """The newest turn of a conversation of the user's."""
        return self._runs.get(self._newest.get((user, conversation_id), ""))

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
        while self._over and (next(iter(self._over.values())) < oldest or len(self._over) > OVER_MOST):
            self._forget_oldest()
        used = sum(map(_bytes, self._runs.values()))
        while used > BYTES_MOST and self._over:
            used -= self._forget_oldest()
        for run in sorted(self.running, key=_bytes, reverse=True) if used > BYTES_MOST else ():
            if used <= BYTES_MOST or run.journal is None:
                break
            used -= _bytes(run)
            run.journal.shorten()
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
        return _bytes(run)


def _bytes(run: Run) -> int:
    return run.journal.bytes if run.journal is not None else 0
