"""One call, from where it was taken on to its block: how it stands, and what is told of it."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from brain.errors import Interrupted
from brain.events import (
    ApprovalRequired,
    CallCode,
    Event,
    Notice,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    ToolCall,
)
from brain.messages import Attachment, Call
from brain.plugins.context import Progress, Result
from brain.plugins.executor import FAILED, Answer, Failure, Outcome, execute, prepare
from brain.plugins.registry import Entry
from brain.prompts import blocks
from brain.prompts.templates import CLIENT_RUNS_TOOL, NO_APPROVER, NO_APPROVER_TO_SEND, TOO_LONG_TO_APPROVE
from brain.text import escape_invisible
from brain.turn.approvals import PendingApproval, PendingApprovals, shown
from brain.turn.call_policy import CallPolicy, Work, identity
from brain.turn.deadline import Deadline
from brain.turn_request import Tool

PROGRESS_SECONDS = 0.05
"""Progress of one call is told at most so often, and not twice the same; what comes in between is left out."""


@dataclass(slots=True)
class OpenCall:
    """A call that was taken on, and what runs for it; `began` is set again when a person let it run."""

    call: Call
    began: float
    outcome: "asyncio.Future[Outcome]"
    task: "asyncio.Task[None] | None" = None
    told: Progress | None = None
    told_at: float = 0.0

    def progressed(self, progress: Progress) -> SpecialistProgress | None:
        """What is told of it; None when it is not: too soon, the same again, or over."""
        now = time.monotonic()
        if self.call.block or now - self.told_at < PROGRESS_SECONDS or progress == self.told:
            return None
        self.told_at, self.told = now, progress
        return SpecialistProgress(self.call.id, progress.text, progress.fraction)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


log = logging.getLogger("brain")

CLOCK_SECONDS = 0.05
"""The time for calls is looked at again no sooner, while the turn's clock stands still."""
LETTING_GO_SECONDS = 0.1
"""How long cancelled calls are waited for: longer than `run` waits for a specialist that does not listen."""


SENT_LENGTH = 1_600
"""Characters of what a call would send that a person is shown; it is all of it, or the call is declined."""


class CallGroup:
    """The calls of one pass: taken on in the order of the requests, told of as things happen.

    `answered` is called when none is open, as long as more may come.

    Attributes:
        handed: whether one is the client's to answer, so that the turn cannot go on.
    """

    def __init__(self, desk: CallPolicy, turn_pass: int, answered: Callable[[], None] | None = None) -> None:
        self._desk = desk
        self._pass = turn_pass
        self._answered = answered
        self._open: list[OpenCall] = []
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._asked: list[ApprovalRequired] = []
        self._complete = False
        self._all_taken = asyncio.Event()
        self._inquiries = PendingApprovals(self._all_taken)
        self.handed = False

    def __len__(self) -> int:
        return len(self._open)

    def take(self, call: Call) -> bool:
        """Takes on a call of the model, which starts at once; false when no further call can run."""
        if self._complete:
            return False
        failure = self._desk.refusal(call)
        one = self._taken(call)
        if failure is None and call.name in self._desk.tools:
            self._hand_over(one, self._desk.tools[call.name])
        elif failure is None:
            self._start(one, self._desk.registry[call.name])
        else:
            self._end(one, failure)
        return failure is None or failure.code not in ("call_limit", "deadline")

    def take_one_way(self, name: str, attachment: Attachment) -> None:
        """Takes on a call that an attachment asks for; it counts against no limit."""
        entry = self._desk.registry[name]
        one = self._taken(Call(name, params={}, by="auto"))
        check_access = self._desk.check_access(name, entry)
        if check_access is None:
            self._run(one, entry, (attachment,))
        else:
            self._end(one, self._desk.failure(check_access))

    def complete(self) -> None:
        """Says that no more calls will come."""
        self._complete = True
        self._all_taken.set()
        self._answered = None  # whose pass knows us: the two would wait for the garbage collector
        self._tell_if_over()

    async def events(self, alarm: Deadline) -> AsyncGenerator[Sequence[Event], None]:
        """The events that came together, until no call is open and none will come, or the time for calls is over.

        Raises:
            Interrupted: when the alarm rings, after the events of how each call ended then.
        """
        alarm.patient = True
        try:
            while True:
                events = await self._next(alarm)
                if not events:
                    break
                yield events
            if self.open and (events := await self.stop("deadline")):
                yield events
        except Interrupted as interruption:
            if events := await self.stop("deadline" if interruption.reason == "deadline" else "cancelled"):
                yield events
            raise
        finally:
            alarm.patient = False
            await self.stop("cancelled")

    async def _next(self, alarm: Deadline) -> Sequence[Event]:
        """The next events; none when all calls are over, or the time for them is."""
        while (left := self._desk.deadline - time.monotonic()) > 0 or not self._events.empty():
            with suppress(TimeoutError):  # too early where the turn's clock stood still meanwhile
                async with asyncio.timeout(max(left, CLOCK_SECONDS)):
                    with alarm:
                        return self._together(await self._events.get())
        return ()

    def _together(self, event: Event | None) -> Sequence[Event]:
        """An event and all that wait behind it."""
        events: list[Event] = []
        while event is not None:
            events.append(event)
            if self._events.empty():
                return events
            event = self._events.get_nowait()
        if events:
            self._events.put_nowait(None)
        return events

    async def stop(self, code: CallCode) -> list[Event]:
        """Ends what still runs, with this code; the events of it."""
        self._complete = True
        try:
            await self._let_go()
        finally:
            for one in self._open:
                if not one.call.block:
                    self._end(one, self._desk.failure(code))
        events = [self._events.get_nowait() for _ in range(self._events.qsize())]
        return [event for event in events if event is not None]

    def parts(self) -> list[Call]:
        """The calls with their blocks, in the order of the requests."""
        return [one.call for one in self._open if one.call.block]

    def _taken(self, call: Call) -> OpenCall:
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        now = time.monotonic()
        call.id, call.turn_pass = self._desk.next_id(), self._pass
        call.began_ms, call.code, call.text = _milliseconds(now - self._desk.began), None, ""
        one = OpenCall(call, now, outcome)
        self._open.append(one)
        self._desk.calls.append(call)
        return one

    def _hand_over(self, one: OpenCall, tool: Tool) -> None:
        """Leaves a call of the client's own tool to the client."""
        call, self.handed = one.call, True
        call.id, call.by = f"call_{self._desk.turn_id}_{call.id}", "client"
        self._events.put_nowait(ToolCall(call.id, tool.name, call.params or {}))
        self._settle(one, Answer(""), blocks.result_block(call.name, CLIENT_RUNS_TOOL))

    def _start(self, one: OpenCall, entry: Entry) -> None:
        """Runs a call of the model, unless an identical one was answered, is being answered, or was declined."""
        assert one.call.params is not None
        key = identity(one.call.name, one.call.params)
        earlier = self._desk.answered.get(key)
        outcome = earlier.result() if earlier is not None and earlier.done() else None
        if isinstance(outcome, Failure) and outcome.code == "declined":
            self._end(one, outcome)
        elif earlier is None or isinstance(outcome, Failure):
            self._desk.answered[key] = one.outcome
            self._run(one, entry, self._desk.attachments)
        else:
            self._spawn(one, self._answer_again(one, entry, earlier))

    def _run(self, one: OpenCall, entry: Entry, attachments: Sequence[Attachment]) -> None:
        params = one.call.params or {}
        arguments = prepare(entry.specialist, params)
        if isinstance(arguments, Failure):
            self._end(one, arguments)
            return
        work = Work(entry, params, arguments, attachments)
        sent = [
            escape_invisible(" ".join(value.split())) for value in self._desk.unknown_values(entry.specialist, params)
        ]
        if not sent and not self._desk.must_ask(entry.specialist, params):
            self._begin(one, work)
        elif not self._desk.ask.asks_person:
            self._end(one, Failure("declined", NO_APPROVER_TO_SEND if sent else NO_APPROVER))
        elif sum(map(len, sent)) > SENT_LENGTH:
            self._end(one, Failure("declined", TOO_LONG_TO_APPROVE))
        else:
            self._spawn(one, self._begin_if_approved(one, self._inquiries.add(), work, sent))

    async def _begin_if_approved(
        self, one: OpenCall, inquiry: PendingApproval, work: Work, sent: Sequence[str]
    ) -> None:
        approvals = self._desk.approvals
        try:
            preview = await self._inquiries.previewed(inquiry, self._desk.preview(work))
            if isinstance(preview, Failure):
                self._end(one, preview)
                return
            texts = [shown(preview)] if preview is not None else []
            texts += [f"Sends to another server: {value}" for value in sent]
            one.call.preview = "\n".join(texts) or None
            expires_at = approvals.open(one.call)
            self._asked.append(ApprovalRequired(one.call.id, one.call.name, work.params, expires_at, one.call.preview))
        finally:
            inquiry.over.set()
            if self._inquiries.are_over:  # asked together, they can be answered together
                asked, self._asked[:] = self._asked[:], []
                for event in asked:
                    self._events.put_nowait(event)
        try:
            approved = await approvals.decided(one.call)
        finally:
            one.began = time.monotonic()
        if approvals.closed:
            return  # who ends the turn ends this call
        if approved:
            self._begin(one, work, preview)
        else:
            self._end(one, self._desk.failure("declined"))

    def _begin(self, one: OpenCall, work: Work, approved: Result | None = None) -> None:
        kept = self._desk.kept(work)
        if kept is not None:
            self._end(one, kept, cached=True)
            return
        self._events.put_nowait(SpecialistStart(one.call.id, one.call.name, work.params, one.call.by))
        self._spawn(one, self._answer(one, work, approved))

    def _spawn(self, one: OpenCall, doing: Coroutine[Any, Any, None]) -> None:
        one.task = asyncio.create_task(doing, name=f"call {one.call.name}")
        one.task.add_done_callback(partial(self._check, one))

    def _check(self, one: OpenCall, task: "asyncio.Task[None]") -> None:
        """Gives a call its block when its task failed; a cancelled one gets it from who cancelled."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not one.call.block:
            log.error("the call of specialist %s failed", one.call.name, exc_info=error)
            self._end(one, FAILED)

    async def _answer(self, one: OpenCall, work: Work, approved: Result | None) -> None:
        seconds = self._desk.seconds_for(work.entry.specialist)
        provided = self._desk.provided(work, seconds, approved)

        def tell(progress: Progress) -> None:
            event = one.progressed(progress)
            if event is not None:
                self._events.put_nowait(event)

        outcome = await execute(work.entry.specialist, work.arguments, provided, tell, timeout=seconds)
        if isinstance(outcome, Answer):
            self._desk.keep(work, outcome)
        self._end(one, outcome)

    async def _answer_again(self, one: OpenCall, entry: Entry, earlier: "asyncio.Future[Outcome]") -> None:
        """Answers an identical call from the first, once that is known; a failed one may be tried once more."""
        await asyncio.wait({earlier})
        outcome = earlier.result()
        if isinstance(outcome, Failure):
            self._start(one, entry)
            return
        self._events.put_nowait(
            Notice("repeated_call", f"{one.call.name} was asked the same again: its first answer counts.")
        )
        self._end(one, outcome, cached=True)

    def _end(self, one: OpenCall, outcome: Outcome, *, cached: bool = False) -> None:
        """Completes a call: puts its one block, and tells of it."""
        call, desk = one.call, self._desk
        call.cached, call.ms = cached, _milliseconds(time.monotonic() - one.began)
        call.untrusted = desk.from_outside(call.name, outcome)
        if isinstance(outcome, Answer):
            text = blocks.result_text(outcome.text, desk.block_bytes, outcome.more, desk.tokens)
            call.citations, block = outcome.citations, blocks.result_block(call.name, text)
            self._events.put_nowait(
                SpecialistResult(
                    call.id, call.name, call.params or {}, text, call.citations, cached, call.ms, call.approval
                )
            )
        else:
            reason = blocks.reason_text(outcome.reason, desk.tokens)
            call.code, block = outcome.code, blocks.error_block(call.name, reason)
            self._events.put_nowait(
                SpecialistError(call.id, call.name, call.params, call.code, reason, call.ms, call.approval)
            )
        self._settle(one, outcome, block)

    def _settle(self, one: OpenCall, outcome: Outcome, block: str) -> None:
        call = one.call
        assert not call.block
        call.block = block
        if call.ms is None:
            call.ms = 0
        self._desk.timed_out = self._desk.timed_out or call.code == "deadline"
        one.outcome.set_result(outcome)
        self._desk.outside = self._desk.outside or call.untrusted
        self._tell_if_over()

    @property
    def open(self) -> bool:
        """Whether any call has no block yet."""
        return any(not one.call.block for one in self._open)

    def _tell_if_over(self) -> None:
        if self.open:
            return
        if self._complete:
            self._events.put_nowait(None)
        elif self._answered is not None:
            self._answered()

    async def _let_go(self) -> None:
        """Cancels what runs and waits a moment, also when whoever waits is being cancelled."""
        running = {one.task for one in self._open if one.task is not None and not one.task.done()}
        for task in running:
            task.cancel()
        if running:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(running, timeout=LETTING_GO_SECONDS)
