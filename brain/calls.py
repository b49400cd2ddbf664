"""Rooms: the calls of one pass. Each is admitted or refused, runs beside the others, and ends in exactly one block."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import anyio

from brain import blocks
from brain.alarm import Alarm
from brain.ask import Attachment, Tool
from brain.context import Progress, Result
from brain.desk import Desk, identity
from brain.errors import Interrupted
from brain.events import (
    Approval,
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
from brain.inquiries import Inquiries, Inquiry
from brain.messages import Called
from brain.preview import shown
from brain.prompts import HANDED_OVER, NOBODY_TO_ASK
from brain.registry import Entry
from brain.report import CallReport
from brain.running import FAILED, Answer, Arguments, Failure, Outcome, prepare, run
from brain.scanner import Call

log = logging.getLogger("brain")

PROGRESS_SECONDS = 0.05
"""Progress of one call is told at most so often, and not twice the same; what comes in between is left out."""

LETTING_GO_SECONDS = 0.1
"""How long cancelled calls are waited for: longer than `run` waits for a specialist that does not listen."""


By = Literal["model", "auto"]


@dataclass(slots=True)
class _Open:
    """A call that was taken on, until its outcome is known; `began` is set again when a person let it run."""

    call_id: str
    name: str
    params: Mapping[str, Any] | None
    marker: str
    by: By
    turn_pass: int
    taken: float
    began: float
    outcome: "asyncio.Future[Outcome]"
    cached: bool = False
    handed: bool = False
    ended: float | None = None
    part: Called | None = None
    task: "asyncio.Task[None] | None" = None
    told: Progress | None = None
    told_at: float = 0.0
    inquiry: Inquiry | None = None

    @property
    def approval(self) -> Approval | None:
        """What came of asking a person, if one was asked."""
        return None if self.inquiry is None else self.inquiry.decision

    def report(self, turn_began: float) -> CallReport:
        """How it stands with the call."""
        return CallReport(
            self.call_id,
            self.name,
            self.params,
            "client" if self.handed else self.by,
            self.turn_pass,
            began_ms=_milliseconds(self.taken - turn_began),
            ms=None if self.ended is None else _milliseconds(self.ended - self.began),
            outcome=None if self.part is None else (self.part.outcome or "ok"),
            cached=self.cached,
            approval=self.approval,
            preview=None if self.inquiry is None else self.inquiry.text,
        )


class Calls:
    """The calls of one pass: taken on in the order of the requests, told of as things happen.

    `answered` is called when none is open, as long as more may come.

    Attributes:
        handed: whether one is the client's to answer, so that the turn cannot go on.
    """

    def __init__(self, desk: Desk, turn_pass: int, answered: Callable[[], None] | None = None) -> None:
        self._desk = desk
        self._pass = turn_pass
        self._answered = answered
        self._open: list[_Open] = []
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._complete = False
        self._all_taken = asyncio.Event()
        self._inquiries = Inquiries(desk.approvals, self._all_taken)
        self.handed = False

    def __len__(self) -> int:
        return len(self._open)

    def take(self, call: Call) -> bool:
        """Takes on a call of the model, which starts at once; false when it was over the cap, or comes too late."""
        if self._complete:
            return False
        opened = self._opened(call.name, call.params, call.raw, "model")
        failure = self._desk.refusal(call)
        if failure is None and call.name in self._desk.tools:
            self._hand_over(opened, self._desk.tools[call.name])
        elif failure is None:
            self._start(opened, self._desk.registry[call.name], self._desk.attachments)
        else:
            self._end(opened, failure)
        return failure is None or failure.code != "call_limit"

    def take_one_way(self, name: str, attachment: Attachment) -> None:
        """Takes on a call that an attachment asks for; it counts against no limit."""
        entry = self._desk.registry[name]
        opened = self._opened(name, {}, "", "auto")
        barred = self._desk.barred(name, entry)
        if barred is None:
            self._run(opened, entry, (attachment,))
        else:
            self._end(opened, self._desk.failure(barred))

    def complete(self) -> None:
        """Says that no more calls will come."""
        self._complete = True
        self._all_taken.set()
        self._answered = None  # whose pass knows us: the two would wait for the garbage collector
        self._tell_if_over()

    async def events(self, alarm: Alarm) -> AsyncGenerator[Event, None]:
        """What happens, as it happens, until no call is open and none will come.

        Raises:
            Interrupted: when the alarm rings, after the events of how each call ended then.
        """
        alarm.patient = True
        try:
            while True:
                with alarm:
                    event = await self._events.get()
                if event is None:
                    return
                yield event
        except Interrupted as interruption:
            for event in await self.stop("deadline" if interruption.reason == "deadline" else "cancelled"):
                yield event
            raise
        finally:
            alarm.patient = False
            await self.stop("cancelled")

    async def stop(self, code: CallCode) -> list[Event]:
        """Ends what still runs, with this code; the events of it."""
        self._complete = True
        try:
            await self._let_go()
        finally:
            for opened in self._open:
                if opened.part is None:
                    self._end(opened, self._desk.failure(code))
        events = [self._events.get_nowait() for _ in range(self._events.qsize())]
        return [event for event in events if event is not None]

    def parts(self) -> list[Called]:
        """The calls with their blocks, in the order of the requests."""
        return [opened.part for opened in self._open if opened.part is not None]

    def _opened(self, name: str, params: Mapping[str, Any] | None, marker: str, by: By) -> _Open:
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        now = time.monotonic()
        opened = _Open(self._desk.next_id(), name, params, marker, by, self._pass, now, now, outcome)
        self._open.append(opened)
        self._desk.calls.append(opened)
        return opened

    def _hand_over(self, opened: _Open, tool: Tool) -> None:
        """Leaves a call of the client's own tool to the client."""
        self.handed = opened.handed = True
        call_id = f"call_{self._desk.turn_id}_{opened.call_id}"
        block = blocks.result_block(opened.name, HANDED_OVER)
        self._events.put_nowait(ToolCall(call_id, tool.name, opened.params or {}))
        self._settle(
            opened, Answer(""), Called(call_id, opened.name, opened.params, opened.marker, None, block, (), self._pass)
        )

    def _start(self, opened: _Open, entry: Entry, attachments: Sequence[Attachment]) -> None:
        """Runs a call of the model, unless an identical one was answered, is being answered, or was declined."""
        assert opened.params is not None
        key = identity(opened.name, opened.params)
        earlier = self._desk.answered.get(key)
        outcome = earlier.result() if earlier is not None and earlier.done() else None
        if isinstance(outcome, Failure) and outcome.code == "declined":
            self._end(opened, outcome)
        elif earlier is None or isinstance(outcome, Failure):
            self._desk.answered[key] = opened.outcome
            self._run(opened, entry, attachments)
        else:
            self._spawn(opened, self._answer_again(opened, entry, earlier))

    def _run(self, opened: _Open, entry: Entry, attachments: Sequence[Attachment]) -> None:
        params = opened.params or {}
        arguments = prepare(entry.specialist, params)
        if isinstance(arguments, Failure):
            self._end(opened, arguments)
        elif not self._desk.must_ask(entry.specialist, params):
            self._begin(opened, entry, arguments, attachments)
        elif self._desk.ask.asks_person:
            opened.inquiry = inquiry = self._inquiries.add(opened.call_id)
            self._spawn(opened, self._begin_if_approved(opened, inquiry, entry, arguments, attachments))
        else:
            self._end(opened, Failure("declined", NOBODY_TO_ASK))

    async def _begin_if_approved(
        self, opened: _Open, inquiry: Inquiry, entry: Entry, arguments: Arguments, attachments: Sequence[Attachment]
    ) -> None:
        approvals = self._desk.approvals
        try:
            asked = self._desk.preview(entry, opened.params or {}, attachments)
            preview = await self._inquiries.previewed(inquiry, asked)
            if isinstance(preview, Failure):
                self._end(opened, preview)
                return
            inquiry.text = None if preview is None else shown(preview)
            about = opened.call_id, opened.name, opened.params or {}
            expires_at = approvals.open(opened.call_id)
            self._events.put_nowait(ApprovalRequired(*about, expires_at, inquiry.text))
        finally:
            inquiry.over.set()
        try:
            approved = await approvals.decided(opened.call_id)
        finally:
            opened.began = time.monotonic()
        if approved:
            self._begin(opened, entry, arguments, attachments, preview)
        else:
            self._end(opened, self._desk.failure("declined"))

    def _begin(
        self,
        opened: _Open,
        entry: Entry,
        arguments: Arguments,
        attachments: Sequence[Attachment],
        approved: Result | None = None,
    ) -> None:
        kept = self._desk.kept(entry, opened.params, attachments)
        if kept is not None:
            self._end(opened, kept, cached=True)
            return
        self._events.put_nowait(SpecialistStart(opened.call_id, opened.name, opened.params or {}, opened.by))
        self._spawn(opened, self._answer(opened, entry, arguments, attachments, approved))

    def _spawn(self, opened: _Open, work: Coroutine[Any, Any, None]) -> None:
        opened.task = asyncio.create_task(work, name=f"call {opened.name}")
        opened.task.add_done_callback(partial(self._check, opened))

    def _check(self, opened: _Open, task: "asyncio.Task[None]") -> None:
        """Gives a call its block when its task failed; a cancelled one gets it from who cancelled."""
        error = None if task.cancelled() else task.exception()
        if error is not None and opened.part is None:
            log.error("the call of specialist %s failed", opened.name, exc_info=error)
            self._end(opened, FAILED)

    async def _answer(
        self,
        opened: _Open,
        entry: Entry,
        arguments: Arguments,
        attachments: Sequence[Attachment],
        approved: Result | None,
    ) -> None:
        seconds = self._desk.seconds_for(entry.specialist)
        provided = self._desk.provided(entry, attachments, seconds, approved)

        def tell(progress: Progress) -> None:
            now = time.monotonic()
            early = now - opened.told_at < PROGRESS_SECONDS
            if opened.part is None and not early and progress != opened.told:
                opened.told_at, opened.told = now, progress
                self._events.put_nowait(SpecialistProgress(opened.call_id, progress.text, progress.fraction))

        outcome = await run(entry.specialist, arguments, provided, tell, timeout=seconds)
        if isinstance(outcome, Answer):
            self._desk.keep(entry, opened.params, attachments, outcome)
        self._end(opened, outcome)

    async def _answer_again(self, opened: _Open, entry: Entry, earlier: "asyncio.Future[Outcome]") -> None:
        """Answers an identical call from the first, once that is known; a failed one may be tried once more."""
        await asyncio.wait({earlier})
        outcome = earlier.result()
        if isinstance(outcome, Failure):
            self._start(opened, entry, self._desk.attachments)
            return
        self._events.put_nowait(
            Notice("repeated_call", f"{opened.name} was asked the same again: its first answer counts.")
        )
        self._end(opened, outcome, cached=True)

    def _end(self, opened: _Open, outcome: Outcome, *, cached: bool = False) -> None:
        """Puts the one block of a call, and tells of it."""
        milliseconds = _milliseconds(time.monotonic() - opened.began)
        event: SpecialistResult | SpecialistError
        if isinstance(outcome, Answer):
            text = blocks.result_text(outcome.text, self._desk.block_bytes, outcome.more)
            block, code, citations = blocks.result_block(opened.name, text), None, outcome.citations
            event = SpecialistResult(
                opened.call_id, opened.name, opened.params or {}, text, citations, cached, milliseconds, opened.approval
            )
        else:
            reason = blocks.reason_text(outcome.reason)
            block, code, citations = blocks.error_block(opened.name, reason), outcome.code, ()
            event = SpecialistError(
                opened.call_id, opened.name, opened.params, outcome.code, reason, milliseconds, opened.approval
            )
        opened.cached = cached
        self._events.put_nowait(event)
        about = opened.call_id, opened.name, opened.params, opened.marker
        outside = self._desk.from_outside(opened.name, outcome)
        how = cached, milliseconds, opened.approval
        self._settle(opened, outcome, Called(*about, code, block, citations, self._pass, outside, *how))

    def _settle(self, opened: _Open, outcome: Outcome, part: Called) -> None:
        assert opened.part is None
        opened.part, opened.ended = part, time.monotonic()
        opened.outcome.set_result(outcome)
        self._desk.outside = self._desk.outside or part.outside
        self._tell_if_over()

    @property
    def open(self) -> bool:
        """Whether any call has no block yet."""
        return any(opened.part is None for opened in self._open)

    def _tell_if_over(self) -> None:
        if self.open:
            return
        if self._complete:
            self._events.put_nowait(None)
        elif self._answered is not None:
            self._answered()

    async def _let_go(self) -> None:
        """Cancels what runs and waits a moment, also when whoever waits is being cancelled."""
        running = {opened.task for opened in self._open if opened.task is not None and not opened.task.done()}
        for task in running:
            task.cancel()
        if running:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(running, timeout=LETTING_GO_SECONDS)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
