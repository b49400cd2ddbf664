"""Rooms: one turn as it is led: it fills its journal, and is stopped, steered and approved from outside."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from brain.approvals import stopped_before
from brain.ask import Ask
from brain.errors import BadRequest, Interruption
from brain.events import Event
from brain.journal import Journal
from brain.report import TurnReport
from brain.turn import Turn

COMES_BACK_SECONDS = 30.0
"""How long who left to approve a call may still come back when the time to approve it is over."""

Settle = Callable[[TurnReport], None]
"""Records a turn that ended."""


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

    def cancel(self) -> None:
        """Stops the turn for a person.

        Raises:
            BadRequest: when a call of it was approved at the same moment.
        """
        if self._turn is not None and self._turn.just_approved and not self._turn.stopped:
            message = "A call of this turn was approved at the same moment. Send the request again to stop the turn."
            raise BadRequest(message, code="decided", status=409)
        self.stop()

    def steer(self, message: str) -> None:
        """As `Turn.steer`."""
        if self._turn is None:
            raise BadRequest("This turn is over; send the message as a new one.", code="gone", status=410)
        self._turn.steer(message)

    def decide(self, call_id: str, approve: bool) -> None:
        """As `Turn.decide`."""
        if self._turn is None:
            if any(call.call_id == call_id and call.approval == "asked" for call in self.report().calls):
                raise stopped_before()
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
