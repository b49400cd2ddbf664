"""A run: the one task that executes a turn. Everything else reads its log."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import Protocol

from brain.errors import BadRequest, Interruption
from brain.events import Event
from brain.messages import TurnReport
from brain.runtime.commands import Cancel, Command, Decide, Join, Leave, Steer, Stop
from brain.runtime.event_log import EventLog, MemoryEventLog, Notify, Unsubscribe
from brain.turn.approvals import stopped_before
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

log = logging.getLogger("brain")

RECONNECT_SECONDS = 30.0
"""How long a client that left to approve a call may take to reconnect, after the time for the approval."""

KEPT_SECONDS = 300.0
"""How long a turn can be found after its end."""

ABORT_SECONDS = 1.0
"""How long a task that was cancelled may take, before its turn is ended without it."""

Settle = Callable[[TurnReport], None]
"""Records a turn that ended."""


class AnyRun(Protocol):
    """A run as its readers see it: of this process (`Run`) or of another one (`RemoteRun`).

    Attributes:
        options: what its protocol needs when a client reconnects.
        last_received: the number of the last event that the reader who left last had received.
    """

    last_received: int

    @property
    def id(self) -> str: ...
    @property
    def user(self) -> str | None: ...
    @property
    def conversation_id(self) -> str: ...
    @property
    def options(self) -> str: ...
    @property
    def log(self) -> EventLog: ...
    @property
    def has_ended(self) -> bool: ...
    @property
    def is_stopping(self) -> bool: ...
    @property
    def readers(self) -> int: ...

    async def control(self, command: Command) -> TurnReport:
        """Carry out a command of a client.

        Raises:
            BadRequest: when the turn cannot do that now, or has ended.
        """

    async def catch_up(self, number: int = 0) -> None:
        """Wait until `log` has what is known to have happened: all before a report, and event `number`."""

    def is_waiting_for(self, call_ids: Collection[str]) -> bool:
        """Whether all of these calls wait for a person, as far as this process knows."""

    def stop(self) -> None:
        """End the turn, soon."""

    def join(self, notify: Notify) -> Unsubscribe:
        """Add a reader; `notify` is called for each event from now on."""

    def leave(self, *, will_reconnect: bool = False) -> None:
        """Remove a reader. One that comes back with a person's approval has as long as that may take."""

    async def wait_ended(self) -> None:
        """Wait until the turn has ended."""


class Run:
    """One turn as a task. Readers join and leave it; they never execute any part of it, nor delay it.

    Args:
        protocol: the protocol of the client.
        options: what that protocol needs when a client reconnects.
        settle: records the turn, once, before any reader learns that it ended.
        unread_seconds: how long the run continues without a reader; None: to its end.

    Attributes:
        log: the events so far.
        last_received: the number of the last event that the reader who left last had received.
        on_left: called when a reader has left after the end.
    """

    __slots__ = ("__weakref__", "_ended", "_readers", "_report", "_settle", "_task", "_turn", "_unread_timer",
                 "conversation_id", "id", "last_received", "log", "on_left", "options", "protocol", "request_id",
                 "unread_seconds", "user")  # fmt: skip

    def __init__(
        self,
        turn: Turn,
        request: TurnRequest,
        protocol: str,
        settle: Settle,
        *,
        replayable: bool,
        unread_seconds: float | None,
        options: str = "",
    ) -> None:
        self.id = turn.id
        self.user = request.user
        self.conversation_id = turn.conversation_id
        self.request_id = request.request_id
        self.protocol = protocol
        self.options = options
        self.on_left: Callable[[], None] | None = None
        self.log = MemoryEventLog(turn.id, replayable=replayable)
        self.unread_seconds = unread_seconds
        self.last_received = 0
        self._turn: Turn | None = turn
        self._settle = settle
        self._report: TurnReport | None = None
        self._readers = 0
        self._unread_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether the turn has ended."""
        return self._turn is None

    @property
    def is_stopping(self) -> bool:
        """Whether the turn was stopped and has not ended yet."""
        return self._turn is not None and self._turn.is_stopped

    @property
    def is_waiting(self) -> bool:
        """Whether a person is asked to approve a call."""
        return self._turn is not None and self._turn.is_waiting

    @property
    def readers(self) -> int:
        """How many readers it has."""
        return self._readers

    async def catch_up(self, number: int = 0) -> None:
        """As `AnyRun.catch_up`: it is here."""

    def is_waiting_for(self, call_ids: Collection[str]) -> bool:
        """As `AnyRun.is_waiting_for`."""
        return {call.id for call in self.report().calls if call.approval == "asked"}.issuperset(call_ids)

    def report(self) -> TurnReport:
        """What happened so far."""
        if self._turn is not None:
            return self._turn.report(self.protocol)
        assert self._report is not None
        return self._report

    def start(self) -> None:
        """Execute the turn in a task of its own. A run that is not to be replayed needs its reader before."""
        self._task = asyncio.create_task(self._execute(), name=f"run {self.id}")
        if not self._readers:
            self._stop_if_unread()

    async def _execute(self) -> None:
        assert self._turn is not None
        turn = self._turn
        try:
            await turn.run(self._append)
        finally:
            self._cut()

    def _append(self, events: Sequence[Event]) -> None:
        turn = self._turn
        if turn is None:  # a task that did not end in time goes on
            return
        if turn.last is None:
            self.log.append(events)
            return
        self._report, self._turn = turn.report(self.protocol), None
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        settle, self._settle = self._settle, _ignore  # what it refers to can be freed
        try:
            settle(self._report)
        except Exception:  # readers learn of the end in any case
            log.exception("turn %s: its end could not be recorded", self.id)
        self._ended.set()
        self.log.append(events)

    async def control(self, command: Command) -> TurnReport:
        """As `AnyRun.control`."""
        self.apply(command)
        return self.report()

    def apply(self, command: Command) -> None:
        """Carry out a command.

        Raises:
            BadRequest: when the turn cannot do that now, or has ended.
        """
        turn = self._turn
        match command:
            case Join():
                self._count_reader()
            case Leave(last_received, will_reconnect):
                self.last_received = max(self.last_received, last_received)
                self.leave(will_reconnect=will_reconnect)
            case _ if turn is None:
                check_ended(command, self.report())
            case Stop(reason):
                turn.stop(reason)
            case Cancel():
                if turn.approvals.has_just_approved and not turn.is_stopped:
                    message = "A call of this turn was approved at the same moment. Send the request again to stop it."
                    raise BadRequest(message, code="decided", status=409)
                turn.stop("cancelled")
            case Steer(message):
                turn.steer(message)
            case Decide(call_id, approve):
                turn.decide(call_id, approve)

    def stop(self, reason: Interruption = "cancelled") -> None:
        """End the turn with an event that says why; nothing for a turn that has ended."""
        self.apply(Stop(reason))

    def decide(self, call_id: str, approve: bool) -> None:
        """Approve or decline a call; as `apply`."""
        self.apply(Decide(call_id, approve))

    async def abort(self) -> None:
        """End a turn that did not stop in time. A task that ignores its cancellation is abandoned."""
        if self._task is not None:
            self._task.cancel()
            _, pending = await asyncio.wait({self._task}, timeout=ABORT_SECONDS)
            if pending:
                log.error("turn %s: its task does not end", self.id)
        self._cut()  # a task that was cancelled before its first step has not done that

    def _cut(self) -> None:
        """End a turn that could not end by itself."""
        if self._turn is not None:
            self._append(self._turn.cut())

    async def wait_ended(self) -> None:
        """Wait until the turn has ended."""
        await self._ended.wait()

    # readers

    def join(self, notify: Notify) -> Unsubscribe:
        """As `AnyRun.join`."""
        self._count_reader()
        return self.log.subscribe(notify)

    def _count_reader(self) -> None:
        self._readers += 1
        if self._unread_timer is not None:
            self._unread_timer.cancel()

    def leave(self, *, will_reconnect: bool = False) -> None:
        """As `AnyRun.leave`."""
        self._readers -= 1
        if not self._readers:
            self._stop_if_unread(will_reconnect=will_reconnect)
        if self._turn is None and self.on_left is not None:
            self.on_left()

    def _stop_if_unread(self, *, will_reconnect: bool = False) -> None:
        if self.unread_seconds is None or self._turn is None:
            return
        waits = will_reconnect and self._turn.is_waiting
        seconds = self._turn.approvals.seconds + RECONNECT_SECONDS if waits else self.unread_seconds
        if seconds:
            self._unread_timer = asyncio.get_running_loop().call_later(seconds, self.stop)
        else:
            self.stop()

    async def events(self) -> AsyncGenerator[Sequence[Event], None]:
        """Start the run and read it, as the events come. Leaving early stops the run and waits for its end."""
        pending: deque[Sequence[Event]] = deque()
        arrived = asyncio.Event()

        def notify(events: Sequence[Event], frames: bytes) -> None:
            pending.append(events)
            arrived.set()

        unsubscribe = self.join(notify)
        self.start()
        try:
            while pending or not self.has_ended:
                await arrived.wait()
                arrived.clear()
                while pending:
                    yield pending.popleft()
        finally:
            unsubscribe()
            self.leave()
            if not self.has_ended:
                self.stop()
                await self.wait_ended()


def check_ended(command: Command, report: TurnReport) -> None:
    """Check that a command is allowed for a turn that has ended.

    Raises:
        BadRequest: when it is not.
    """
    match command:
        case Steer():
            raise BadRequest("This turn is over; send the message as a new one.", code="gone", status=410)
        case Decide(call_id) if any(call.id == call_id and call.approval == "asked" for call in report.calls):
            raise stopped_before()
        case Decide():
            raise BadRequest("This turn is over; nothing waits for an approval.", code="gone", status=410)


def _ignore(report: TurnReport) -> None:
    """Do nothing: the turn is recorded."""
