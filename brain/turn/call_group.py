"""Runs the calls of a pass concurrently. Each call gets exactly one block."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from brain.errors import StoreError
from brain.events import (
    ApprovalRequired,
    CallCode,
    Notice,
    SpecialistProgress,
    ToolCall,
)
from brain.messages import Attachment, Call
from brain.plugins.context import Context, ModelView, Progress, Result, WithoutEmbeddings
from brain.plugins.executor import FAILED, NOT_STORED, Failure, Outcome, bind, execute
from brain.plugins.registry import CacheKey, Entry
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
from brain.turn.approvals import MAX_PREVIEW_LENGTH, PREVIEW_SECONDS, make_preview, preview_text
from brain.turn.call_policy import call_key
from brain.turn.setup import TurnSetup
from brain.turn.state import TurnState

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
CANCELLED = Failure("cancelled", "the turn ends")
NOT_REPEATED: tuple[CallCode | None, ...] = ("declined", "interrupted")
"""Codes of failures that identical calls share. After others, they are tried again."""

log = logging.getLogger("brain")


class CallGroup:
    """The calls of one pass. Each runs in a task of its own: check, approval, specialist, block.

    Args:
        turn_pass: Number of the pass; 0 for automatic calls.
        on_end: Called when a call has ended and more may come.

    Attributes:
        calls: The calls in the order in which the model wrote them.
        suspended: Calls that wait for an approval after the turn has ended.
    """

    def __init__(
        self, setup: TurnSetup, state: TurnState, turn_pass: int, on_end: Callable[[], None] | None = None
    ) -> None:
        self.calls: list[Call] = []
        self.suspended: list[Call] = []
        self._setup = setup
        self._state = state
        self._policy = state.policy
        self._turn_pass = turn_pass
        self._on_end = on_end
        self._began: dict[str, float] = {}  # by call ID, on the `time.monotonic` clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._no_more_calls = asyncio.Event()
        self._without_preview: set[str] = set()  # IDs of calls that need approval and have no preview yet
        self._to_ask: dict[str, asyncio.Event] = {}  # calls with a preview; the event means that approval was requested

    @property
    def is_running(self) -> bool:
        """Whether any call has no block yet, except suspended ones."""
        return any(not call.block and call not in self.suspended for call in self.calls)

    @property
    def has_client_call(self) -> bool:
        """Whether the client must answer one of the calls, which ends the turn."""
        return any(call.by == "client" for call in self.calls)

    def start(self, call: Call) -> bool:
        """Start a call of the model if it is allowed. Return False if no further call can run."""
        policy = self._policy
        failure = policy.check(call, self._state.deadline.call_seconds_left())
        self._add(call, self._run(call, failure))
        return failure is None or failure.code not in ("call_limit", "deadline")

    def start_automatic(self, name: str, attachment: Attachment) -> None:
        """Start an automatic call for an attachment. It does not count against the limits."""
        call = Call(name, params={}, by="auto")
        self._add(call, self._run(call, self._policy.check_access(name), attachment))

    def resume(self, call: Call) -> None:
        """Continue a call of a turn that was interrupted or waited for an approval.

        If it has a result, identical calls get the same one. If it had started, it runs again only if it is read-only.
        """
        policy, code = self._policy, call.code
        if not call.block:
            self.calls.append(call)
            self._began[call.id] = time.monotonic()
            failure = policy.check_access(call.name)
            if call.approval == "declined":
                failure = policy.failure("declined")
            elif failure is None and call.has_started and not policy.is_read_only(call.name, call.params or {}):
                failure = policy.failure("interrupted")
            self._tasks[call.id] = asyncio.create_task(self._run(call, failure), name=f"call {call.name}")
            if failure is None:
                return
            code = failure.code
        if code is None:
            outcome: Outcome = Result(blocks.block_content(call.name, call.block, failed=False), call.citations)
        elif code in NOT_REPEATED:
            outcome = policy.failure(code)
        else:
            return
        done = asyncio.get_running_loop().create_future()
        done.set_result(outcome)
        self._state.outcomes[call_key(call.name, call.params)] = done

    def close(self) -> None:
        """Accept no more calls."""
        self._no_more_calls.set()
        self._on_end = None  # breaks the reference cycle with the pass, which the garbage collector would have to free

    async def wait(self) -> None:
        """Wait until all calls have ended. At the deadline of calls, end the rest with `deadline`."""
        if self._tasks:
            await asyncio.sleep(0)  # calls that need no time get their blocks even then
        while running := [task for task in self._tasks.values() if not task.done()]:
            left = self._state.deadline.call_seconds_left()
            if left <= 0:
                await self.end("deadline")
                return
            await asyncio.wait(running, timeout=max(left, MIN_WAIT_SECONDS))

    def cancel(self) -> None:
        """Cancel all running calls."""
        for task in self._tasks.values():
            task.cancel()

    async def end(self, code: CallCode) -> None:
        """Cancel all running calls and end them with this code. `interrupted` ones get no block, and continue later."""
        self.close()
        self._to_ask = {}  # no more approval requests
        self.cancel()
        try:
            running = [task for task in self._tasks.values() if not task.done()]
            if running:
                await asyncio.wait(running, timeout=CANCEL_SECONDS)
        finally:
            for call in self.calls:
                if not call.block and call not in self.suspended and code != "interrupted":
                    self._finish(call, self._policy.failure(code))

    def _add(self, call: Call, run: Coroutine[Any, Any, None]) -> None:
        now, calls = time.monotonic(), self._policy.calls
        call.id, call.turn_pass, call.round = f"c{len(calls) + 1}", self._turn_pass, len(self._state.rounds)
        call.began_ms, call.code, call.reason = round((now - self._state.accounting.began) * 1000), None, ""
        self._began[call.id] = now
        self.calls.append(call)
        calls.append(call)
        self._tasks[call.id] = asyncio.create_task(run, name=f"call {call.name}")

    def _give_to_client(self, call: Call) -> None:
        call.id, call.by, call.ms = f"call_{self._setup.turn_id}_{call.id}", "client", 0
        call.block = blocks.result_block(call.name, CLIENT_RUNS_TOOL)
        self._state.emit((ToolCall(call.id, self._policy.tools[call.name].name, call.params or {}),))

    async def _run(self, call: Call, failure: Failure | None, attachment: Attachment | None = None) -> None:
        """Run a call to its block. With a failure, it only gets the block."""
        if failure is None and call.name in self._policy.tools:
            self._give_to_client(call)
        else:
            try:
                outcome = failure or await (
                    self._find_outcome(call) if attachment is None else self._execute(call, (attachment,))
                )
            except StoreError as error:  # a call that must not run again starts only if all processes will know it
                log.warning("call of specialist %s did not start: %s", call.name, error)
                call.has_started, outcome = False, NOT_STORED if error.may_pass else FAILED
                call.if_interrupted = None
            except Exception:
                log.exception("call of specialist %s failed", call.name)
                outcome = FAILED
            if outcome is SUSPENDED:
                call.approval = "asked"
                self.suspended.append(call)
            elif not call.block:
                must_be_stored = call.if_interrupted is not None
                self._finish(call, outcome)
                if must_be_stored and self._state.checkpoint is not None:
                    await self._store_end(self._state.checkpoint)
        if self._on_end is not None:
            self._on_end()

    async def _store_end(self, checkpoint: Callable[[], Awaitable[None]]) -> None:
        """Store the end of a call. A turn for a person continues if that fails, such as on a full disk."""
        try:
            await checkpoint()
        except StoreError as error:
            if self._setup.request.source == "task" or not error.may_pass:
                raise
            log.warning("the end of a call was not stored: %s", error)

    async def _find_outcome(self, call: Call) -> Outcome:
        """Return the outcome of a call, or that of an identical one unless it may be tried again."""
        outcomes, key = self._state.outcomes, call_key(call.name, call.params)
        while (earlier := outcomes.get(key)) is not None:
            await asyncio.wait({earlier})
            outcome = earlier.result()
            if isinstance(outcome, Result):
                call.cached = True
                text = f"The model repeated a call of {call.name}. Brain reused the earlier result."
                self._state.emit((Notice("repeated_call", text),))
                return outcome
            if outcome.code in NOT_REPEATED:
                return outcome
            if outcomes[key] is earlier:
                break
        done = outcomes[key] = asyncio.get_running_loop().create_future()
        outcome = CANCELLED
        try:
            outcome = await self._execute(call, self._setup.attachments)
        finally:
            done.set_result(outcome)
        return outcome

    async def _execute(self, call: Call, attachments: Sequence[Attachment]) -> Outcome:
        """Return the outcome of a call that the policy allows."""
        setup, params, entry = self._setup, call.params or {}, self._setup.registry[call.name]
        specialist = entry.specialist
        if specialist.sends and not specialist.activates_on:
            attachments = ()
        files = attachments if specialist.sends and (call.by != "auto" or setup.request.private) else ()
        function = bind(specialist, params)
        if isinstance(function, Failure):
            return function
        sending = self._policy.plan_sending(specialist, params, files)
        if isinstance(sending, Failure):
            return sending
        if sending.params != params:
            call.params = params = dict(sending.params)
            function = bind(specialist, params)
            if isinstance(function, Failure):  # the function for `sends` added them
                return FAILED
        call.picks = sending.picks
        context = self._make_context(call, entry, sending.message, attachments)
        if sending.asks or self._policy.needs_approval(specialist, params):
            approved = await self._get_approval(call, entry, context, [*map(escape_invisible, sending.asks)])
            if isinstance(approved, Failure):
                return approved
            context = replace(context, approved=approved)
        if not specialist.cache_seconds:
            return await self._call_specialist(call, entry, function, context)
        key = self._cache_key(call, attachments)
        found: Outcome | None = setup.registry.find_cached(key)
        call.cached = found is not None
        if found is None:
            found = await self._call_specialist(call, entry, function, context)
            if isinstance(found, Result):
                is_long = len(found.text) > MAX_CACHED_LENGTH
                text = blocks.result_text(found.text, more=found.more) if is_long else found.text
                setup.registry.cache(key, replace(found, text=text), specialist.cache_seconds)
        return found

    async def _call_specialist(
        self, call: Call, entry: Entry, function: Callable[..., Any], context: Context
    ) -> Outcome:
        seconds = self._seconds_for(entry.specialist)
        last: Progress | None = None
        last_at = 0.0

        def report(progress: Progress) -> None:
            nonlocal last, last_at
            now = time.monotonic()
            if now - last_at >= PROGRESS_SECONDS and progress != last:
                last, last_at = progress, now
                self._state.emit((SpecialistProgress(call.id, progress.text, progress.fraction),))

        self._state.emit((call.start_event(),))
        call.has_started = True
        if self._state.checkpoint is not None and not self._policy.is_read_only(call.name, call.params or {}):
            unknown = self._policy.failure("interrupted")
            block = blocks.error_block(call.name, unknown.reason, unknown.advice)
            call.if_interrupted = unknown.reason, block
            await self._state.checkpoint()
        dependencies = self._dependencies(entry, context, seconds)
        return await execute(entry.specialist, function, dependencies, report, timeout=seconds)

    def _make_context(self, call: Call, entry: Entry, message: str, attachments: Sequence[Attachment]) -> Context:
        """Return what the specialist of a call may read, apart from the time that is left.

        In a private conversation, only a call that a person approved can fetch, and no remote model makes embeddings.
        A specialist that sends something reads only what it declares to send, so that nothing else can leave.
        """
        setup, request, task = self._setup, self._setup.request, self._setup.request.task
        run = setup.turn_id if task is None else f"{task.id}-{task.run}"  # the same if a run of a task continues
        private, sends, fetch = request.private, entry.specialist.sends, setup.registry.fetch
        model: ModelView = self._state.model
        if private and not self._state.model.embeds_locally:
            model = WithoutEmbeddings(model)
        return Context(
            user=request.user,
            conversation_id=setup.history.id,
            message=message,
            attachments=attachments,
            time_zone=request.time_zone,
            deadline=0.0,
            settings=entry.settings,
            model=model,
            fetch=replace(fetch, is_closed=True) if private and not sends else fetch,
            private=private,
            memory=None if sends else setup.memory,
            key=f"{run}-{call.id}",
            tasks=None if sends else setup.tasks,
        )

    def _dependencies(self, entry: Entry, context: Context, seconds: float) -> Mapping[type, Any]:
        """Return the values for the keyword-only parameters of a specialist, which has so many seconds."""
        registry = self._setup.registry
        left = min(seconds, self._state.deadline.call_seconds_left())
        context = replace(context, deadline=time.monotonic() + left)
        return {**registry.dependencies, **entry.dependencies, Context: context}

    def _seconds_for(self, specialist: Specialist[..., Any]) -> float:
        """Return the time limit of a call: the specialist's, else the operator's, capped by the request's."""
        own, limit = specialist.timeout, self._setup.request.call_seconds
        seconds = self._setup.registry.call_seconds if own is None else own
        return seconds if limit is None else min(seconds, limit)

    def _cache_key(self, call: Call, attachments: Sequence[Attachment]) -> CacheKey:
        """Return the cache key of a call. Calls of other turns with this key get the same result."""
        model = self._state.model
        files = tuple((file.id, file.name, len(file.data), hash(file.data)) for file in attachments)
        return self._setup.request.user, (call_key(call.name, call.params), files, model.name, model.sees_images)

    # Approval

    async def _get_approval(
        self, call: Call, entry: Entry, context: Context, sent: Sequence[str]
    ) -> Result | Failure | None:
        """Return the preview that a person approved, if the specialist has one, or why the call must not run.

        Args:
            sent: What the call sends to other hosts.
        """
        request, approvals = self._setup.request, self._state.approvals
        is_task = request.task is not None  # it can wait for days
        if not is_task and not request.asks_person:
            reasons = NO_APPROVER_TO_SEND if sent else NO_APPROVER
            return Failure("declined", *(NO_APPROVER_PRIVATE if request.private else reasons))
        if sum(map(len, sent)) > MAX_SENT_LENGTH:
            return Failure("declined", *TOO_LONG_TO_APPROVE)
        was_approved, former = call.approval == "approved", call.preview
        gathering_until = asyncio.get_running_loop().time() + APPROVAL_BATCH_SECONDS
        self._without_preview.add(call.id)
        await asyncio.sleep(0)  # until the other calls of the same chunk have begun, too
        try:
            preview = await self._preview(call, entry, context, sent)
            if isinstance(preview, Failure):
                return preview
            if is_task:
                return preview if was_approved and call.preview == former else SUSPENDED
            with suppress(TimeoutError):
                async with asyncio.timeout_at(gathering_until):
                    await self._no_more_calls.wait()
            is_asked = self._to_ask[call.id] = asyncio.Event()
        finally:
            self._without_preview.discard(call.id)
            if not self._without_preview:
                self._ask_person()
        try:
            await is_asked.wait()
            is_approved = await approvals.wait(call)
        finally:
            approvals.close(call)
            self._began[call.id] = time.monotonic()
        if approvals.is_closed:
            raise asyncio.CancelledError  # the turn ends, and so does this call
        return preview if is_approved else self._policy.failure("declined")

    async def _preview(
        self, call: Call, entry: Entry, context: Context, sent: Sequence[str]
    ) -> Result | Failure | None:
        """Set what a person reads before the approval of a call, and return the specialist's preview."""
        specialist = entry.specialist
        seconds = min(PREVIEW_SECONDS, self._setup.registry.call_seconds, self._seconds_for(specialist))
        if context.private:  # nothing may leave before the approval
            context = replace(context, fetch=replace(context.fetch, is_closed=True))
        dependencies = self._dependencies(entry, context, seconds)
        preview = await make_preview(specialist, call.params or {}, dependencies, seconds)
        if not isinstance(preview, Failure):
            lines = [preview_text(preview)] if preview is not None else []
            if sum(map(len, lines)) > MAX_PREVIEW_LENGTH:
                return Failure("declined", *TOO_LONG_TO_PREVIEW)
            call.preview = "\n".join([*lines, *(f"Sends to another server: {value}" for value in sent)]) or None
        return preview

    def _ask_person(self) -> None:
        """Request approval of all calls that have a preview, in order and together."""
        asked, self._to_ask = self._to_ask, {}
        events = [
            ApprovalRequired(one.id, one.name, one.params or {}, self._state.approvals.open(one), one.preview)
            for one in self.calls
            if one.id in asked
        ]
        for is_asked in asked.values():
            is_asked.set()
        if events:
            self._state.emit(events)

    # Ending

    def _finish(self, call: Call, outcome: Outcome) -> None:
        """Set the block of a call, and emit its event."""
        call.ms = round((time.monotonic() - self._began[call.id]) * 1000)
        self._policy.mark(call, outcome)
        call.if_interrupted = None
        tokens, text = self._setup.tokens, ""
        if isinstance(outcome, Result):
            text = blocks.result_text(outcome.text, self._state.max_block_bytes, outcome.more, tokens)
            call.block, call.citations = blocks.result_block(call.name, text), tuple(outcome.citations)
        else:
            call.code, call.reason = outcome.code, blocks.reason_text(outcome.reason, tokens)
            advice = blocks.reason_text(outcome.advice, tokens) if outcome.advice else ""
            call.block = blocks.error_block(call.name, call.reason, advice)
        self._state.emit((call.end_event(text),))
