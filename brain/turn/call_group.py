"""Runs the calls of a pass concurrently. Each call gets exactly one block."""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from brain.errors import Interruption
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
from brain.markers.template_tokens import ALL_TOKENS, ControlTokens
from brain.messages import Attachment, Call, Chunk, History, Message
from brain.models.model import Model
from brain.plugins.context import Context, MemoryView, ModelView, Progress, Result, TaskView, WithoutEmbeddings
from brain.plugins.executor import FAILED, Arguments, CallResult, Dependencies, Failure, Outcome, execute, prepare
from brain.plugins.registry import CacheKey, Entry, Registry
from brain.plugins.specialist import Specialist
from brain.prompts import blocks
from brain.prompts.templates import (
    CLIENT_RUNS_TOOL,
    NO_APPROVER,
    NO_APPROVER_PRIVATE,
    NO_APPROVER_TO_SEND,
    TOO_LONG_TO_APPROVE,
    TOO_LONG_TO_PREVIEW,
)
from brain.text import escape_invisible
from brain.turn.approvals import MAX_PREVIEW_LENGTH, PREVIEW_SECONDS, Approvals, make_preview, preview_text
from brain.turn.call_policy import CallPolicy, call_key
from brain.turn.deadline import Deadline
from brain.turn_request import TurnRequest

PROGRESS_SECONDS = 0.05
"""Shortest time between two progress events of a call. Progress in between is dropped."""
APPROVAL_BATCH_SECONDS = 1.0
"""Time that a call waits for further calls of its pass, so that a person sees all approvals together."""
MIN_WAIT_SECONDS = 0.05
"""Shortest wait for the deadline of calls, whose clock stops while a person decides."""
CANCEL_SECONDS = 0.1
"""Time limit for cancelled calls to end: longer than the executor waits for a specialist that does not react."""
MAX_SENT_LENGTH = 1_600
"""Characters that a call may send to other hosts with an approval. A person sees all of them."""
MAX_CACHED_LENGTH = 65_536
"""Longest result, in characters, that is cached whole. Longer ones are cut to the size of a block first."""

SUSPENDED = Failure("cancelled", "the call waits for an approval")
NOT_REPEATED: tuple[CallCode | None, ...] = ("declined", "interrupted")
"""Codes of failures that identical calls share. After others, they are tried again."""

Emit = Callable[[Sequence[Event]], None]

log = logging.getLogger("brain")


NewGroup = Callable[["CallContext", int, Callable[[], None] | None], "CallGroup"]


class Observer(Protocol):
    """Follows a turn. A turn without one does nothing for it."""

    @property
    def new_group(self) -> NewGroup | None:
        """Makes the `CallGroup` of a pass; None for the usual one."""

    def watch_events(self, emit: Emit) -> Emit:
        """Return what takes the events of the turn."""

    def watch_stream(
        self,
        stream: AsyncGenerator[Chunk, None],
        turn_pass: int,
        model: str,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
    ) -> AsyncGenerator[Chunk, None]:
        """Return the stream of a request to a model."""

    def choose_tools(self, tools: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the tools of the next request."""

    def choose_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages of the next request."""

    def note_steer(self, message: str) -> None:
        """The user added a message."""

    def note_stop(self, reason: Interruption) -> None:
        """The turn is stopped."""


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that is ready to run: its specialist, its checked arguments, and what else it may read."""

    entry: Entry
    params: Mapping[str, Any]
    arguments: Arguments
    message: str
    attachments: Sequence[Attachment]


@dataclass(slots=True)
class CallContext:
    """State that all calls of one turn share.

    Attributes:
        emit: Receives the events of the calls.
        began: Start of the turn on the `time.monotonic` clock.
        max_block_bytes: Size limit of one result block.
        tokens: Control tokens of the model.
        memory: The user's memory, for specialists.
        tasks: The user's background tasks, for specialists.
        key: Begins the IDs of calls for specialists.
        round: Number of the current round of the strategy; 0 without one.
        observer: Follows the turn.
        checkpoint: Stores the answer so far, if an interrupted turn continues later. Its calls then wait for approvals
            after the turn has ended.
        outcomes: Outcomes of calls that run or have ended, by `call_key`.
    """

    request: TurnRequest
    history: History
    registry: Registry
    model: Model
    policy: CallPolicy
    approvals: Approvals
    deadline: Deadline
    emit: Emit
    turn_id: str = ""
    began: float = field(default_factory=time.monotonic)
    max_block_bytes: int = sys.maxsize
    tokens: ControlTokens = ALL_TOKENS
    memory: MemoryView | None = None
    tasks: TaskView | None = None
    key: str = ""
    round: int = 0
    observer: Observer | None = None
    checkpoint: Callable[[], Awaitable[None]] | None = None
    outcomes: dict[Hashable, "asyncio.Future[Outcome]"] = field(default_factory=dict)

    @property
    def attachments(self) -> Sequence[Attachment]:
        """All files of the conversation."""
        return (*self.history.attachments, *self.request.attachments)

    def seconds_for(self, specialist: Specialist[..., Any]) -> float:
        """Return the time limit of a call: the specialist's, else the operator's, capped by the request's."""
        seconds = self.registry.call_seconds if specialist.timeout is None else specialist.timeout
        return seconds if self.request.call_seconds is None else min(seconds, self.request.call_seconds)

    def dependencies(
        self,
        call: Call,
        prepared: PreparedCall,
        seconds: float,
        approved: Result | None = None,
        *,
        is_preview: bool = False,
    ) -> Dependencies:
        """Return the values for the keyword-only parameters of a specialist.

        In a private conversation, only a call that a person approved can fetch, and no remote model makes embeddings.
        A specialist that sends something reads only what it declares to send, so that nothing else can leave.

        Args:
            seconds: Time limit of the call.
            approved: The preview that a person approved.
            is_preview: Whether they are for the preview of a call.
        """
        private, specialist = self.request.private, prepared.entry.specialist
        fetch = self.registry.fetch
        model: ModelView = self.model
        if private and not self.model.embeds_locally:
            model = WithoutEmbeddings(model)
        if private and (is_preview or not specialist.sends):
            fetch = replace(fetch, is_closed=True)
        context = Context(
            user=self.request.user,
            conversation_id=self.history.id,
            message=prepared.message,
            attachments=prepared.attachments,
            time_zone=self.request.time_zone,
            deadline=time.monotonic() + min(seconds, self.deadline.call_seconds_left()),
            settings=prepared.entry.settings,
            model=model,
            fetch=fetch,
            private=private,
            memory=None if specialist.sends else self.memory,
            approved=approved,
            key=f"{self.key}-{call.id}",
            tasks=None if specialist.sends else self.tasks,
        )
        return {**self.registry.dependencies, **prepared.entry.dependencies, Context: context}

    def cache_key(self, prepared: PreparedCall) -> CacheKey:
        """Return the cache key of a call. Calls of other turns with this key get the same result."""
        files = tuple((file.id, file.name, len(file.data), hash(file.data)) for file in prepared.attachments)
        key = call_key(prepared.entry.specialist.name, prepared.params)
        return self.request.user, (key, files, self.model.name, self.model.sees_images)


class CallGroup:
    """The calls of one pass.

    Args:
        turn_pass: Number of the pass; 0 for automatic calls.
        on_idle: Called when no call is running and more may come.

    Attributes:
        calls: The calls in the order in which the model wrote them.
        has_client_call: Whether the client must answer one of them, which ends the turn.
        suspended: Calls that wait for an approval after the turn has ended.
    """

    def __init__(self, context: CallContext, turn_pass: int, on_idle: Callable[[], None] | None = None) -> None:
        self.calls: list[Call] = []
        self.has_client_call = False
        self.suspended: list[Call] = []
        self._context = context
        self._emit = context.emit
        self._turn_pass = turn_pass
        self._on_idle = on_idle
        self._began: dict[str, float] = {}  # by call ID, on the `time.monotonic` clock
        self._futures: dict[str, asyncio.Future[Outcome]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._no_more_calls = asyncio.Event()
        self._all_done = asyncio.Event()  # no more calls will come, and none is running
        self._unready: set[str] = set()  # IDs of calls that need approval and have no preview yet
        self._ready: dict[str, asyncio.Event] = {}  # calls with a preview; the event means that approval was requested

    @property
    def is_running(self) -> bool:
        """Whether any call has no block yet, except suspended ones."""
        return any(not call.block and call not in self.suspended for call in self.calls)

    def start(self, call: Call) -> bool:
        """Start a call of the model if it is allowed. Return False if no further call can run."""
        policy = self._context.policy
        failure = policy.check(call, self._context.deadline.call_seconds_left())
        self._add(call)
        if failure is not None:
            self._finish(call, failure)
        elif call.name in policy.tools:
            self._give_to_client(call)
        else:
            self._start_once(call)
        return failure is None or failure.code not in ("call_limit", "deadline")

    def resume(self, call: Call) -> None:
        """Continue a call of a turn that was interrupted or waited for an approval.

        If it has a result, identical calls get the same one. If it had started, it runs again only if it is read-only.
        """
        policy, code = self._context.policy, call.code
        if not call.block:
            self.calls.append(call)
            self._began[call.id] = time.monotonic()
            code = policy.check_access(call.name)
            if call.approval == "declined":
                code = "declined"
            elif code is None and call.has_started and not policy.is_read_only(call.name, call.params or {}):
                code = "interrupted"
            if code is None:
                self._start_once(call)
                return
            self._finish(call, policy.failure(code))
        if code is None:
            outcome: Outcome = CallResult(blocks.block_content(call.name, call.block, failed=False), call.citations)
        elif code in NOT_REPEATED:
            outcome = policy.failure(code)
        else:
            return
        done = self._context.outcomes[call_key(call.name, call.params)] = _new_future()
        done.set_result(outcome)

    def start_automatic(self, name: str, attachment: Attachment) -> None:
        """Start an automatic call for an attachment. It does not count against the limits."""
        call = Call(name, params={}, by="auto")
        code = self._context.policy.check_access(name)
        self._add(call)
        if code is None:
            self._start(call, (attachment,))
        else:
            self._finish(call, self._context.policy.failure(code))

    def close(self) -> None:
        """Accept no more calls."""
        self._no_more_calls.set()
        self._on_idle = None  # breaks the reference cycle with the pass, which the garbage collector would have to free
        if not self.is_running:
            self._all_done.set()

    async def wait(self) -> None:
        """Wait until all calls have ended. At the deadline of calls, end the rest with `deadline`."""
        deadline = self._context.deadline
        while not self._all_done.is_set():
            left = deadline.call_seconds_left()
            if left <= 0:
                await self.end("deadline")
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(max(left, MIN_WAIT_SECONDS)):
                    await self._all_done.wait()

    def cancel(self) -> None:
        """Cancel all running calls."""
        for task in self._tasks.values():
            task.cancel()

    async def end(self, code: CallCode) -> None:
        """Cancel all running calls and end them with this code. `interrupted` ones get no block, and continue later."""
        self._no_more_calls.set()
        self._on_idle = None
        self._ready = {}  # no more approval requests
        self.cancel()
        try:
            running = [task for task in self._tasks.values() if not task.done()]
            if running:
                await asyncio.wait(running, timeout=CANCEL_SECONDS)
        finally:
            for call in self.calls:
                if not call.block and call not in self.suspended and code != "interrupted":
                    self._finish(call, self._context.policy.failure(code))

    def _add(self, call: Call) -> None:
        now, calls = time.monotonic(), self._context.policy.calls
        call.id, call.turn_pass, call.round = f"c{len(calls) + 1}", self._turn_pass, self._context.round
        call.began_ms, call.code, call.reason = round((now - self._context.began) * 1000), None, ""
        self._began[call.id] = now
        self.calls.append(call)
        calls.append(call)

    def _give_to_client(self, call: Call) -> None:
        self.has_client_call = True
        call.id, call.by, call.ms = f"call_{self._context.turn_id}_{call.id}", "client", 0
        event = ToolCall(call.id, self._context.policy.tools[call.name].name, call.params or {})
        self._complete(call, blocks.result_block(call.name, CLIENT_RUNS_TOOL), event)

    def _start_once(self, call: Call) -> None:
        """Start a call, unless an identical one is running, has a result, or failed so that it must not run again."""
        outcomes, key = self._context.outcomes, call_key(call.name, call.params)
        earlier = outcomes.get(key)
        outcome = earlier.result() if earlier is not None and earlier.done() else None
        if isinstance(outcome, Failure) and outcome.code in NOT_REPEATED:
            self._finish(call, outcome)
        elif earlier is None or isinstance(outcome, Failure):
            self._futures[call.id] = outcomes[key] = _new_future()
            self._start(call, self._context.attachments)
        else:
            self._spawn(call, self._repeat(call, earlier))

    async def _repeat(self, call: Call, earlier: "asyncio.Future[Outcome]") -> None:
        """Give a call the result of an identical earlier one. If that one failed, try the call again."""
        await asyncio.wait({earlier})
        outcome = earlier.result()
        if isinstance(outcome, Failure):
            self._start_once(call)
            return
        text = f"The model repeated a call of {call.name}. Brain reused the earlier result."
        self._emit((Notice("repeated_call", text),))
        self._finish(call, outcome, is_cached=True)

    def _start(self, call: Call, attachments: Sequence[Attachment]) -> None:
        context = self._context
        params: Mapping[str, Any] = call.params or {}
        entry = context.registry[call.name]
        specialist = entry.specialist
        if specialist.sends and not specialist.activates_on:
            attachments = ()
        files = attachments if specialist.sends and (call.by != "auto" or context.request.private) else ()
        arguments = prepare(specialist, params)
        if isinstance(arguments, Failure):
            self._finish(call, arguments)
            return
        sending = context.policy.plan_sending(specialist, params, files)
        if isinstance(sending, Failure):
            self._finish(call, sending)
            return
        if sending.params != params:
            call.params = params = dict(sending.params)
            arguments = prepare(specialist, params)
            if isinstance(arguments, Failure):  # the function for `sends` added them
                self._finish(call, FAILED)
                return
        prepared = PreparedCall(entry, params, arguments, sending.message, attachments)
        sent = [escape_invisible(value) for value in sending.asks]
        call.picks = sending.picks
        if not sent and not context.policy.needs_approval(specialist, params):
            self._execute(call, prepared)
        elif context.checkpoint is None and not context.request.asks_person:
            reasons = NO_APPROVER_TO_SEND if sent else NO_APPROVER
            reasons = NO_APPROVER_PRIVATE if context.request.private else reasons
            self._finish(call, Failure("declined", *reasons))
        elif sum(map(len, sent)) > MAX_SENT_LENGTH:
            self._finish(call, Failure("declined", *TOO_LONG_TO_APPROVE))
        elif context.checkpoint is not None:
            self._spawn(call, self._suspend(call, prepared, sent))
        else:
            self._unready.add(call.id)
            self._spawn(call, self._execute_if_approved(call, prepared, sent))

    async def _suspend(self, call: Call, prepared: PreparedCall, sent: Sequence[str]) -> None:
        """Execute a call whose effect a person approved, otherwise let it wait for an approval."""
        was_approved, former = call.approval == "approved", call.preview
        preview = await self._preview(call, prepared, sent)
        if isinstance(preview, Failure):
            self._finish(call, preview)
        elif was_approved and call.preview == former:
            self._execute(call, prepared, preview)
        else:
            call.approval = "asked"
            self.suspended.append(call)
            self._futures.pop(call.id).set_result(SUSPENDED)  # identical calls of the pass wait for approval, too
            self._check_done()

    async def _preview(self, call: Call, prepared: PreparedCall, sent: Sequence[str]) -> Result | Failure | None:
        """Set what a person reads before the approval of a call, and return the specialist's preview."""
        context, specialist = self._context, prepared.entry.specialist
        seconds = min(PREVIEW_SECONDS, context.registry.call_seconds, context.seconds_for(specialist))
        preview = await make_preview(
            specialist, prepared.params, context.dependencies(call, prepared, seconds, is_preview=True), seconds
        )
        if not isinstance(preview, Failure):
            lines = [preview_text(preview)] if preview is not None else []
            if sum(map(len, lines)) > MAX_PREVIEW_LENGTH:
                return Failure("declined", *TOO_LONG_TO_PREVIEW)
            call.preview = "\n".join([*lines, *(f"Sends to another server: {value}" for value in sent)]) or None
        return preview

    async def _execute_if_approved(self, call: Call, prepared: PreparedCall, sent: Sequence[str]) -> None:
        """Execute a call once a person approves it. All calls of the pass request approval together."""
        context, approvals = self._context, self._context.approvals
        gathering_until = asyncio.get_running_loop().time() + APPROVAL_BATCH_SECONDS
        preview = await self._preview(call, prepared, sent)
        if isinstance(preview, Failure):
            self._finish(call, preview)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(gathering_until):
                await self._no_more_calls.wait()
        is_asked = self._ready[call.id] = asyncio.Event()
        self._set_ready(call)
        try:
            await is_asked.wait()
            is_approved = await approvals.wait(call)
        finally:
            approvals.close(call)
            self._began[call.id] = time.monotonic()
        if approvals.is_closed:
            return  # the turn ends, and so does this call
        if is_approved:
            self._execute(call, prepared, preview)
        else:
            self._finish(call, context.policy.failure("declined"))

    def _set_ready(self, call: Call) -> None:
        """Request approval of all ready calls, in order, if this was the last call without a preview."""
        self._unready.discard(call.id)
        if self._unready or not self._ready:
            return
        events = [
            ApprovalRequired(one.id, one.name, one.params or {}, self._context.approvals.open(one), one.preview)
            for one in self.calls
            if one.id in self._ready
        ]
        for is_asked in self._ready.values():
            is_asked.set()
        self._ready = {}
        self._emit(events)

    def _execute(self, call: Call, prepared: PreparedCall, approved: Result | None = None) -> None:
        context = self._context
        if prepared.entry.specialist.cache_seconds:
            cached = context.registry.find_cached(context.cache_key(prepared))
            if cached is not None:
                self._finish(call, cached, is_cached=True)
                return
        self._emit((SpecialistStart(call.id, call.name, prepared.params, call.by, call.round or None),))
        self._spawn(call, self._run(call, prepared, approved))

    async def _run(self, call: Call, prepared: PreparedCall, approved: Result | None) -> None:
        context, specialist = self._context, prepared.entry.specialist
        seconds = context.seconds_for(specialist)
        last: Progress | None = None
        last_at = 0.0

        def report(progress: Progress) -> None:
            nonlocal last, last_at
            now = time.monotonic()
            if not call.block and now - last_at >= PROGRESS_SECONDS and progress != last:
                last, last_at = progress, now
                self._emit((SpecialistProgress(call.id, progress.text, progress.fraction),))

        dependencies = context.dependencies(call, prepared, seconds, approved)
        call.has_started = True
        if context.checkpoint is not None:
            await context.checkpoint()
        outcome = await execute(specialist, prepared.arguments, dependencies, report, timeout=seconds)
        if isinstance(outcome, CallResult) and specialist.cache_seconds:
            is_long = len(outcome.text) > MAX_CACHED_LENGTH
            text = blocks.result_text(outcome.text, more=outcome.more) if is_long else outcome.text
            context.registry.cache(context.cache_key(prepared), replace(outcome, text=text), specialist.cache_seconds)
        self._finish(call, outcome)
        if context.checkpoint is not None:
            await context.checkpoint()

    def _spawn(self, call: Call, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a step of a call in a task. If the task fails, the call fails."""

        def check(task: "asyncio.Task[None]") -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None and not call.block:
                log.error("call of specialist %s failed", call.name, exc_info=error)
                self._finish(call, FAILED)

        task = self._tasks[call.id] = asyncio.create_task(coroutine, name=f"call {call.name}")
        task.add_done_callback(check)

    def _finish(self, call: Call, outcome: Outcome, *, is_cached: bool = False) -> None:
        """Complete a call with its outcome."""
        context = self._context
        call.cached, call.ms = is_cached, round((time.monotonic() - self._began[call.id]) * 1000)
        context.policy.mark(call, outcome)
        event: SpecialistResult | SpecialistError
        if isinstance(outcome, CallResult):
            text = blocks.result_text(outcome.text, context.max_block_bytes, outcome.more, context.tokens)
            block, call.citations = blocks.result_block(call.name, text), outcome.citations
            params, citations = call.params or {}, call.citations
            by: Literal["assist"] | None = "assist" if call.by == "assist" else None
            event = SpecialistResult(
                call.id, call.name, params, text, citations, is_cached, call.ms, call.approval, call.round or None, by
            )
        else:
            call.code, call.reason = outcome.code, blocks.reason_text(outcome.reason, context.tokens)
            advice = blocks.reason_text(outcome.advice, context.tokens) if outcome.advice else ""
            block = blocks.error_block(call.name, call.reason, advice)
            event = SpecialistError(
                call.id, call.name, call.params, call.code, call.reason, call.ms, call.approval, call.round or None
            )
        if call.id in self._futures:
            self._futures[call.id].set_result(outcome)
        self._complete(call, block, event)

    def _complete(self, call: Call, block: str, event: Event) -> None:
        """Set the block of a call, and emit its event."""
        assert not call.block
        call.block = block
        self._emit((event,))
        self._set_ready(call)
        self._check_done()

    def _check_done(self) -> None:
        if self.is_running:
            return
        if self._no_more_calls.is_set():
            self._all_done.set()
        elif self._on_idle is not None:
            self._on_idle()


def _new_future() -> "asyncio.Future[Outcome]":
    return asyncio.get_running_loop().create_future()


def open_group(context: CallContext, turn_pass: int, on_idle: Callable[[], None] | None = None) -> CallGroup:
    """Return a new group of calls. See `CallGroup` for the arguments."""
    observer = context.observer
    new_group = CallGroup if observer is None or observer.new_group is None else observer.new_group
    return new_group(context, turn_pass, on_idle)
