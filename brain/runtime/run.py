"""A run: the one task that executes a turn. All readers follow its event log."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from brain.errors import BadRequest, Interruption, is_private
from brain.events import Event
from brain.messages import Exchange
from brain.runtime.commands import CancelTurn, Command, Decide, SteerTurn, StopTurn
from brain.runtime.event_log import EventLog, Notify, Unsubscribe
from brain.turn.approvals import stopped_before
from brain.turn.turn import Turn

log = logging.getLogger("brain")

RECONNECT_SECONDS = 30.0
"""Time for a client to reconnect after the approval timeout, if it disconnected to approve a call."""

REPLAY_SECONDS = 300.0
"""Time for which a turn can be replayed after it ends."""

ABORT_SECONDS = 1.0
"""Time for a cancelled task to end. After it, the turn ends without the task."""

OnEnd = Callable[["Run"], None]
"""Records the end of a run."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The needs of a run's clients.

    Attributes:
        replayable: Whether clients can subscribe later. Brain stores the events then.
        unread_seconds: Time for which the run continues without a reader, in seconds. None means to its end.
        is_detached: Whether another process that continues the turn does so at once. Otherwise a client must come back.
        client_options: Options that the protocol needs when a client reconnects.
    """

    replayable: bool = True
    unread_seconds: float | None = None
    is_detached: bool = False
    client_options: str = ""


DEFAULT_OPTIONS = RunOptions()


class Run:
    """One turn as a task. Readers join and leave; they neither execute nor delay any part of it.

    Args:
        protocol: Protocol of the client.
        epoch: How many processes continued the turn before this one.

    Attributes:
        log: The events so far.
        readers: Number of readers.
        last_received: Number of the last event that the last reader received before it left.
        commands: What clients asked for and the turn accepted, with the times on the clock of the event loop.
        on_end: Called once, in order, before any reader learns of the end.
    """

    __slots__ = ("__weakref__", "_ended", "_exchange", "_task", "_turn", "_unread_timer", "commands",
                 "conversation_id", "id", "last_received", "log", "on_end", "options", "protocol",
                 "readers", "request_id", "text_length", "unread_seconds", "user")  # fmt: skip

    def __init__(self, turn: Turn, protocol: str, options: RunOptions = DEFAULT_OPTIONS, *, epoch: int = 0) -> None:
        request = turn.setup.request
        turn.state.exchange.wire = protocol
        self.id = turn.setup.turn_id
        self.user = request.user
        self.conversation_id = turn.setup.history.id
        self.request_id = request.request_id
        self.protocol = protocol
        self.options = options
        self.text_length = 0
        self.commands: list[tuple[float, Command]] = []
        self.on_end: list[OnEnd] = []
        self.log = EventLog(self.id, replayable=options.replayable, epoch=epoch)
        self.unread_seconds = options.unread_seconds
        self.last_received = 0
        self._turn: Turn | None = turn
        self._exchange = turn.state.exchange
        self.readers = 0
        self._unread_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended: asyncio.Event | None = None  # if a caller waits for the end

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
        """Whether a call waits for approval."""
        return self._turn is not None and self._turn.state.approvals.is_waiting

    def is_waiting_for(self, call_ids: Collection[str]) -> bool:
        """Whether all of these calls wait for approval."""
        return {call.id for call in self.snapshot().calls if call.approval == "asked"}.issuperset(call_ids)

    def snapshot(self) -> Exchange:
        """Return question and answer so far."""
        return self._exchange if self._turn is None else self._turn.snapshot()

    def start(self) -> None:
        """Start the task of the turn. The reader of a run that is not replayable must join first."""
        self._task = asyncio.create_task(self._execute(), name=f"run {self.id}")
        if not self.readers:
            self._stop_if_unread()

    async def _execute(self) -> None:
        assert self._turn is not None
        turn = self._turn
        is_private.set(turn.setup.request.private)  # in this task, and in all that it creates
        try:
            await turn.run(self.log.append)
        finally:
            self._end()

    def _end(self) -> None:
        """End the turn if it could not end by itself. Record its end, and append its last events."""
        if self._turn is None:
            return
        events, self._turn = self._turn.end(), None
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        exchange = self._exchange
        callbacks, self.on_end = self.on_end, []  # frees the objects that they refer to
        for record in callbacks:
            try:
                record(self)
            except Exception:  # readers must still learn of the end
                log.exception("turn %s: the end could not be recorded", self.id)
        # what later readers of the report do not need
        self._exchange = msgspec.structs.replace(exchange, question="", messages_before=(), messages_after=())
        self.text_length = len(exchange.answer) + sum(len(one.text) for one in exchange.annotations)
        if self._ended is not None:
            self._ended.set()
        self.log.append(events)

    def apply(self, command: Command) -> Exchange:
        """Carry out a command of a client, and return question and answer after it.

        Raises:
            BadRequest: The turn cannot do that now, or has ended.
        """
        turn = self._turn
        match command:
            case _ if turn is None:
                check_ended(command, self._exchange)
            case StopTurn(reason):
                turn.stop(reason)
            case CancelTurn():
                if turn.state.approvals.has_just_approved and not turn.is_stopped:
                    message = "A call of this turn was approved a moment ago. Send the request again to stop the turn."
                    raise BadRequest(message, code="decided", status=409)
                turn.stop("cancelled")
            case SteerTurn(message):
                turn.steer(message)
            case Decide(call_id, approve):
                turn.state.approvals.decide(call_id, approve)
        is_known = not isinstance(command, SteerTurn) and any(one == command for _, one in self.commands)
        if turn is not None and not is_known:
            self.commands.append((asyncio.get_running_loop().time(), command))
        return self.snapshot()

    def stop(self, reason: Interruption = "cancelled") -> None:
        """End the turn with an event that gives the reason. A turn that has ended ignores this."""
        self.apply(StopTurn(reason))

    def decide(self, call_id: str, approve: bool) -> None:
        """Approve or decline a call; see `apply`."""
        self.apply(Decide(call_id, approve))

    def hand_over(self) -> None:
        """Stop the turn, which another process continues. Its readers must connect again."""
        if self._turn is not None:
            self._turn.is_continued = True
            self._turn.stop("shutdown")
        self.log.cut_off()

    async def abort(self) -> None:
        """End a turn that did not stop in time. Abandon a task that ignores its cancellation."""
        if self._task is not None:
            self._task.cancel()
            _, pending = await asyncio.wait({self._task}, timeout=ABORT_SECONDS)
            if pending:
                log.error("turn %s: the task does not end", self.id)
        self._end()  # a task that was cancelled before its first step did not do this

    async def wait_ended(self) -> None:
        """Wait until the turn has ended."""
        if self._turn is not None:
            self._ended = self._ended or asyncio.Event()
            await self._ended.wait()

    # Readers

    def join(self, notify: Notify) -> Unsubscribe:
        """Add a reader. Call `notify` for all events from now on."""
        self.readers += 1
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        return self.log.subscribe(notify)

    def leave(self, *, will_reconnect: bool = False) -> None:
        """Remove a reader. If it will reconnect with an approval, the run waits for it."""
        self.readers -= 1
        if not self.readers:
            self._stop_if_unread(will_reconnect=will_reconnect)

    def _stop_if_unread(self, *, will_reconnect: bool = False) -> None:
        if self.unread_seconds is None or self._turn is None:
            return
        waits = will_reconnect and self._turn.state.approvals.is_waiting
        seconds = self._turn.state.approvals.seconds + RECONNECT_SECONDS if waits else self.unread_seconds
        if seconds:
            self._unread_timer = asyncio.get_running_loop().call_later(seconds, self.stop)
        else:
            self.stop()

    async def events(self) -> AsyncGenerator[Sequence[Event], None]:
        """Start the run and yield its events. Leaving early stops the run and waits for its end.

        Raises:
            BadRequest: `unavailable`: another process continues the turn.
        """
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
                    if not (events := pending.popleft()):
                        message = "Another process of Brain took over this turn. Its answer is in the conversation."
                        raise BadRequest(message, code="unavailable", status=503)
                    yield events
        finally:
            unsubscribe()
            self.leave()
            if not self.has_ended:
                self.stop()
                await self.wait_ended()


def check_ended(command: Command, exchange: Exchange) -> None:
    """Check that a command is allowed for a turn that has ended.

    Raises:
        BadRequest: It is not allowed.
    """
    match command:
        case SteerTurn():
            raise BadRequest("This turn has ended. Send the message as a new one.", code="gone", status=410)
        case Decide(call_id) if any(call.id == call_id and call.approval == "asked" for call in exchange.calls):
            raise stopped_before()
        case Decide():
            raise BadRequest("This turn has ended. No call waits for approval.", code="gone", status=410)
