"""One turn: send a request to the model, run the calls in its text, send the results, until the answer is complete.

*Pause* means that Brain closes the stream of a pass. *Resume* is the next request, with the whole text so far and the
blocks after it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from brain.assist.assistance import Assistance
from brain.errors import BadRequest, Interruption, ModelError
from brain.events import CallCode, Done, Error, Event, Notice, Resume, Role, Round, StopReason, Token, TurnStart
from brain.markers.neutralize import neutralize
from brain.markers.template_tokens import find_control_tokens
from brain.messages import (
    Annotation,
    Call,
    Exchange,
    History,
    RoundRecord,
    Steer,
    Text,
    new_turn_id,
    to_answer_id,
)
from brain.models.model import Model
from brain.plugins.context import MemoryView, TaskView
from brain.plugins.registry import Registry
from brain.prompts import blocks, templates
from brain.prompts.client_tools import name_tools
from brain.prompts.system_prompt import SystemPrompt
from brain.prompts.transcript import answer_text, question_text
from brain.task import task_change
from brain.text import utf8_size
from brain.turn import notices
from brain.turn.accounting import Accounting
from brain.turn.approvals import Approvals
from brain.turn.call_group import CallContext, CallGroup, Emit, OpenStream
from brain.turn.call_policy import CallPolicy
from brain.turn.deadline import Deadline
from brain.turn.model_pass import SENTENCE_ENDS, ModelPass
from brain.turn.notices import Annotations
from brain.turn.participant import Participant
from brain.turn.strategy import Answer, PassResult, Plan, RunCall, Strategy
from brain.turn.text_filters import StopSequences
from brain.turn_request import TurnRequest

log = logging.getLogger("brain")

MAX_STEERING = 20
MAX_ANSWER_LENGTH = 8 * 1024 * 1024
"""Characters of visible text. A model that writes more would never end."""
MAX_ROUND_TEXT = 2_000
"""Characters of the text of a round."""
COMPLETE: Collection[StopReason] = ("complete", "deliverable", "ready", "converged", "round_limit", "step_limit")
"""Reasons for which a turn ends with an answer. Without any text, it has failed."""
OWN_FAILURES: Collection[CallCode] = ("failed", "refused", "timeout", "unavailable")
"""Failures of specialists. Others are limits and mistakes of the model."""
SEPARATOR = "\n\n"
"""Separates the text before an injected message from the text after it."""

StoreExchange = Callable[[Exchange], Awaitable[str | None]]
"""Stores the exchange of a finished turn. Returns an error message for people, or None."""
UseModel = Callable[[Callable[[], None]], AbstractAsyncContextManager[None]]


class Turn:
    """One turn. `run` executes it once.

    `stop` records a reason and cancels the task of the turn; `run` then ends the turn with an event that gives the
    reason. Any other cancellation ends the turn as `cancelled`, and `run` raises it afterwards.

    Args:
        strategy: Makes the strategy of this turn.
        fallbacks: Models that take over, in this order, when `model` fails.
        role_models: Models for some roles of the strategy, each with those that take over.
        turn_id: ID of the turn (default: a new one).
        system: Instructions of the operator.
        silence: Seconds without a chunk after which the model has failed.
        first_token: Time limit for the model's first token, in seconds. None means `silence`.
        automatic: Whether attachments may cause calls before the first pass.
        approval_seconds: Time limit for an approval.
        store: Awaited before the last events. None if the turn is not stored.
        memory: The user's memory, for specialists.
        tasks: The user's background tasks, for specialists.
        checkpoint: Stores the answer so far of a turn that continues if its process ends. Such a turn does not wait
            for approvals; it ends as `suspended`. The question may have parts, from which the turn continues.
        use_model: Entered while a pass uses its model. It may wait, while the clock of the turn stands still, and call
            its argument to interrupt the pass.
        assistance: What Brain does for a model that calls no specialists.
        open_stream: Opens the streams of the models (default: `Model.stream`).

    Attributes:
        request: The request.
        history: The conversation before the turn.
        assistance: What Brain does for a model that calls no specialists.
        usable: The specialists that the model may call.
        tools: The client's tools, by the names that the model uses.
        operator: Instructions of the operator.
        exchange: Question and answer so far.
        approvals: Approval requests and decisions.
        last: The event that ended the turn, or None while it runs.
    """

    def __init__(
        self,
        request: TurnRequest,
        history: History,
        model: Model,
        registry: Registry,
        strategy: Callable[["Turn"], Strategy],
        *,
        fallbacks: Sequence[Model] = (),
        role_models: Mapping[Role, Sequence[Model]] | None = None,
        turn_id: str = "",
        system: str = "",
        silence: float = 60.0,
        first_token: float | None = None,
        automatic: bool = True,
        approval_seconds: float = 600.0,
        store: StoreExchange | None = None,
        memory: MemoryView | None = None,
        tasks: TaskView | None = None,
        checkpoint: Callable[[Exchange], Awaitable[None]] | None = None,
        use_model: UseModel = lambda give_way: nullcontext(),
        assistance: Assistance | None = None,
        open_stream: OpenStream | None = None,
    ) -> None:
        self.id = turn_id or new_turn_id()
        self.message_id = to_answer_id(self.id)
        self.conversation_id = history.id
        self.exchange = history.question or Exchange(question="")
        self.exchange.answer_id = self.message_id
        self.exchange.started = self.exchange.started or datetime.now(UTC)
        self.exchange.recalled_ids = tuple(item.id for item in history.recalled.items)
        self.exchange.told_tasks = () if history.task_news is None else history.task_news.task_ids
        self.exchange.strategy = request.strategy
        self.approvals = Approvals(approval_seconds)
        self.last: Done | Error | None = None
        self.request = request
        self.history = history
        self.assistance = assistance
        self._registry = registry
        self._silence = silence
        self._first_token = first_token
        self._automatic = automatic
        self._store = store
        self._key = self.id if request.task is None else f"{request.task.id}-{request.task.run}"
        self._memory = memory
        self._tasks = tasks
        self._checkpoint = checkpoint
        self._use_model = use_model
        self._open_stream = open_stream
        self._accounting = Accounting()
        self._annotations = Annotations()
        self.usable = registry.usable(request.specialists)
        usable_names = [specialist.name for specialist in self.usable]
        tools = name_tools(request.tools, frozenset(usable_names))
        self._policy = CallPolicy(request, history, registry, usable=usable_names, tools=tools, operator=system)
        self._models = (model, *fallbacks)
        self._role_models = role_models or {}
        self.tools = tools
        self.operator = system
        models = [*self._models, *(model for models in self._role_models.values() for model in models)]
        self.template_tokens = find_control_tokens(*(one.template for one in models))
        self._parts_before = len(self.exchange.parts)
        self._earlier_annotations: tuple[Annotation, ...] = ()
        self._passes_by_model: Counter[int] = Counter()
        self._rounds: list[RoundRecord] = []
        if checkpoint is not None:
            self._continue_exchange()
        self._strategy = strategy(self)
        self._writer = self._strategy.writer
        self._note_model(self._writer)
        self._characters_left = MAX_ANSWER_LENGTH
        self._unknown_tool: str | None = None  # that the model called in the last pass
        self._inbox: list[str] = []  # messages of the user to inject
        self._deadline: Deadline | None = None
        self._pass: ModelPass | None = None  # the current pass
        self._finish: StopReason = "complete"
        self._task: asyncio.Task[object] | None = None  # executes the turn, as long as it can be stopped
        self._stop_reason: Interruption | None = None
        self._ending: Sequence[Event] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called in time."""
        return self._stop_reason is not None

    @property
    def _shows_all(self) -> bool:
        """Whether the user sees all text of the model."""
        return self._writer.exchange is self.exchange

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for approval."""
        return self.approvals.is_waiting

    def _continue_exchange(self) -> None:
        """Take over what the turn did before it was interrupted."""
        exchange = self.exchange
        self._policy.resume([part for part in exchange.parts if isinstance(part, Call)])
        self._accounting.resume(exchange.passes, max((part.turn_pass for part in exchange.parts), default=0))
        self._passes_by_model[id(self._models[0])] = len(self._accounting.passes)
        self._earlier_annotations, self._rounds = exchange.annotations, list(exchange.rounds)

    def _note_model(self, participant: Participant) -> None:
        self._accounting.model = participant.model.name
        self.exchange.model = self._writer.model.name

    # For strategies

    def add_participant(
        self,
        role: Role = "actor",
        instructions: str = "",
        *,
        system: Callable[[int | None], str] | None = None,
        offers: bool = True,
        is_private: bool = True,
        history: History | None = None,
        examples: Sequence[Exchange] = (),
        resume: Resume | None = None,
        continue_text: str = templates.CONTINUE,
    ) -> Participant:
        """Return a participant with the models of a role.

        Args:
            instructions: Instructions of the strategy, after those of the operator.
            system: Returns the whole system message for a context size instead.
            offers: Whether the system message describes the specialists.
            is_private: Whether the user and later turns see no text of it but what the strategy shows.
            history: What it reads instead of the whole history.
            examples, resume, continue_text: See `Participant`.
        """
        request = self.request
        prompt = SystemPrompt(
            self.usable if offers else (), request.limits, request.syntax, self.operator, request.system,
            self.tools if offers else {}, instructions, request.must_call if offers else False, self.template_tokens,
        )  # fmt: skip
        exchange = self.exchange
        if is_private:
            exchange = msgspec.structs.replace(exchange, parts=[*exchange.parts])
        return Participant(
            self._role_models.get(role, self._models),
            system or prompt.text,
            self.history if history is None else history,
            exchange,
            self.template_tokens,
            self._models[0].context_tokens,
            native_prompt=prompt.native if system is None else lambda context_tokens: None,
            examples=examples,
            resume=resume,
            continue_text=continue_text,
        )

    @property
    def model(self) -> Model:
        """The chosen model."""
        return self._models[0]

    @property
    def instructions(self) -> str:
        """The instructions of the operator and the client."""
        return "\n\n".join(filter(None, (self.operator, neutralize(self.request.system, self.template_tokens))))

    def can_assist(self, name: str, params: Mapping[str, Any]) -> bool:
        """Whether Brain may make a call that the model did not ask for: it only reads, and needs no approval."""
        return self._policy.may_run_unasked(name, params)

    @property
    def can_call(self) -> bool:
        """Whether specialists can still run: the limit of calls is not reached, and there is time."""
        return not self._policy.is_last_pass and not self.is_answer_time

    @property
    def results(self) -> list[Call]:
        """The calls of the model, or for it, with results so far, each once."""
        calls = self._policy.calls
        return [
            one for one in calls if one.by in ("model", "assist") and one.block and one.code is None and not one.cached
        ]

    @property
    def results_text(self) -> str:
        """The results, and which specialists failed, as an answer without a model; empty without results."""
        results = self.results
        is_too_long = self._finish == "length" and self._shows_all
        if not results or is_too_long or self.request.sampling.format is not None:
            return ""
        shown = [one for one in self._policy.calls if one in results or one.code in OWN_FAILURES]
        return blocks.write_answer(map(blocks.read_result, shown))

    @property
    def is_answer_time(self) -> bool:
        """Whether only the time for the answer is left."""
        return self._deadline is not None and self._deadline.call_seconds_left() <= 0

    @property
    def _call_ending(self) -> CallCode:
        """The code of calls that the end of the turn stops. The next process continues `interrupted` ones."""
        if self._stop_reason == "shutdown" and self._checkpoint is not None:
            return "interrupted"
        return "deadline" if self._stop_reason == "deadline" else "cancelled"

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        return len(self._rounds)

    # Control from outside

    def stop(self, reason: Interruption) -> None:
        """End the turn with an event that gives the reason. The first reason counts; an ending turn ignores all."""
        self.approvals.is_closed = True
        if self._stop_reason is None and not self._ending:
            self._stop_reason = reason
            if self._task is not None:
                self._task.cancel()

    def _give_way(self) -> None:
        """Interrupt the current pass for a turn that is more urgent. The next pass continues its text."""
        if self._pass is not None:
            self._pass.give_way()

    def steer(self, message: str) -> None:
        """Inject a message of the user at the next safe place: between passes, or after a sentence.

        Raises:
            BadRequest: The turn has ended, or the limit of messages is reached.
        """
        if self._ending or self._stop_reason is not None:
            raise BadRequest("This turn has ended. Send the message as a new one.", code="gone", status=410)
        if len(self._policy.steering) >= MAX_STEERING:
            message = f"The limit of {MAX_STEERING} added messages per turn is reached."
            raise BadRequest(message, "message", code="rate_limited", status=429)
        self._policy.steering.append(message)
        self._inbox.append(message)
        if self._pass is not None:
            self._pass.steer()

    def decide(self, call_id: str, approve: bool) -> None:
        """Approve or decline a call; see `Approvals.decide`."""
        self.approvals.decide(call_id, approve)

    # Execution

    async def run(self, emit: Emit) -> None:
        """Execute the turn. `emit` takes events that happen together.

        Raises:
            CancelledError: Something other than `stop` cancelled the task. The turn has ended.
        """
        task = asyncio.current_task()
        assert task is not None
        cancellations = task.cancelling()
        model, request = self._writer.model, self.request
        start = TurnStart(self.id, self.history.id, model.name, request.strategy, request.limits)
        history_notices = map(self._annotations.add_notice, notices.history_notices(self.history))
        emit((start, *([notices.DEMO] if model.is_demo else []), *history_notices))
        if self.assistance is not None and self.assistance.refusal:
            emit((self._annotations.add_notice(Notice("assist", self.assistance.refusal)),))
        for one in self._strategy.participants:
            if one.model is not one.chosen:
                found = [notices.skipped(one.chosen.name, one.model.name)]
                found += map(notices.skipped_fallback, one.skipped[1:])
                emit([*map(self._annotations.add_notice, found)])
        deadline = self._deadline = self.approvals.deadline = Deadline(
            request.limits,
            partial(self.stop, "deadline"),
            self._fail_silent_pass,
            silence=self._silence,
            first_token=self._first_token,
            on_answer_time=None if self._shows_all else self._end_unshown_pass,
        )
        was_stopped = self._stop_reason is not None  # before there was a task to cancel
        self._task = task
        error = None
        is_delivered = False
        try:
            if was_stopped:
                self._set_question()
            else:
                await self._answer(emit, deadline)
        except asyncio.CancelledError:
            is_delivered = True
        except ModelError as failure:
            log.warning("turn %s: %s", self.id, failure)
            error = Error(
                failure.code,
                failure.message,
                failure.recoverable,
                status=failure.status,
                retry_after=failure.retry_after,
            )
        except Exception:
            log.exception("turn %s failed", self.id)
            error = Error("internal", "Something went wrong on the server. Its log has the details.", recoverable=True)
        self._task = None
        deadline.close()
        has_cancelled = self._stop_reason is not None and not was_stopped
        if is_delivered and self._stop_reason is None:
            self._stop_reason = "cancelled"
        self._end(error)
        if has_cancelled:
            if not is_delivered:  # `stop` came in the last step, so the cancellation is still to come
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            task.uncancel()
        problem = None
        if self._store is not None:
            with suppress(asyncio.CancelledError):  # a caller that cancels now does not wait for the store
                problem = await self._store(self.exchange)
        emit((*([Notice("unkept", problem)] if problem else []), *self.cut()))
        if task.cancelling() > cancellations:
            raise asyncio.CancelledError

    def cut(self) -> Sequence[Event]:
        """End the turn if it still runs. Return its last events."""
        if not self._ending:
            if self._stop_reason != "shutdown":
                self._stop_reason = "cancelled"
            self._end(None)
        last = self._ending[-1]
        assert isinstance(last, Done | Error)
        self.last = last
        return self._ending

    async def _answer(self, emit: Emit, deadline: Deadline) -> None:
        """Do what the strategy plans until it ends and there are no messages to inject."""
        context = CallContext(
            self.request, self.history, self._registry, self._writer.model, self._policy, self.approvals, deadline,
            emit, turn_id=self.id, began=self._accounting.began, max_block_bytes=self._max_block_bytes(),
            tokens=self.template_tokens, memory=self._memory, tasks=self._tasks, key=self._key,
            open_stream=self._open_stream,
            checkpoint=None if self._checkpoint is None else self._store_checkpoint,
        )  # fmt: skip
        if self._tasks is not None:
            self._tasks.on_change = lambda task: emit((task_change(task),))
            self._tasks.origin = lambda: self._policy.origin
        if self.request.attachments:
            await self._run_automatic_calls(context)
        elif not self.exchange.question or not self._parts_before:
            self._set_question()
        if await self._resume_calls(context):
            return
        while True:
            first = len(self.exchange.parts)
            try:
                is_explained = await self._follow_strategy(context)
                text = "" if is_explained else self._strategy.best_text(self.results_text)
            except ModelError:
                text = "" if self._shows_all else self.results_text
                if not text or self._has_shown(first):
                    raise
                context.emit((self._annotations.add_notice(notices.without_model(self._accounting.model)),))
                is_explained, self._finish = False, "complete"
            if text and not self._has_shown(first) and self._show(text, context):
                is_explained, self._finish = True, "complete"
            if not self._inbox:
                break
        has_text = bool(self._visible_text().strip() or self._strategy.best_text())
        if self._final_reason() in COMPLETE and not is_explained and not has_text:
            raise notices.empty_answer(self._unknown_tool)

    async def _resume_calls(self, context: CallContext) -> bool:
        """Continue calls that had no block when the turn was interrupted. Return whether one waits for approval."""
        if self._checkpoint is None or not self._policy.calls:
            return False
        group = CallGroup(context, self._policy.calls[-1].turn_pass)
        try:
            for call in tuple(self._policy.calls):
                group.resume(call)
            group.close()
            await group.wait()
        finally:
            await group.end(self._call_ending)
        if group.suspended:
            self._finish = "suspended"
        return bool(group.suspended)

    async def _store_checkpoint(self) -> None:
        assert self._checkpoint is not None
        await self._checkpoint(self.snapshot())

    async def _follow_strategy(self, context: CallContext) -> bool:
        """Do what the strategy plans. Return whether the answer ends because the client wants it to."""
        passes = self._strategy.passes()
        step = next(passes)
        while True:
            result = PassResult()
            match step:
                case Answer(text):
                    if self._show(text, context):
                        return True
                case RunCall():
                    result = await self._run_call(step, context)
                    if result.has_client_call or result.is_suspended:
                        self._finish = "suspended" if result.is_suspended else "complete"
                        return True
                case Plan():
                    if self._is_at_token_limit():
                        self._finish = "length"
                        return False
                    ended = await self._run_plan(step, context)
                    result, self._finish = ended, ended.finish
                    if ended.is_stopped or ended.has_client_call or ended.is_suspended:
                        return True
                    if self._characters_left <= 0:
                        return False
            try:
                step = passes.send(result)
            except StopIteration as end:
                self._finish = end.value
                return False

    def _show(self, text: str, context: CallContext) -> bool:
        """Add text to the answer. Return whether the client wants it to end there."""
        stops = StopSequences(self.request.stop)
        if text := stops.feed(text) + stops.close():
            self.exchange.parts.append(Text(text, len(self._accounting.passes)))
            self._accounting.note_first_text()
            context.emit((Token(text),))
        return stops.is_found

    def _has_shown(self, first: int) -> bool:
        """Whether the answer has visible text from this part on."""
        return any(isinstance(part, Text) and part.text.strip() for part in self.exchange.parts[first:])

    async def _run_plan(self, plan: Plan, context: CallContext) -> PassResult:
        """Run a pass. If a model fails, its successor continues it."""
        participant = plan.participant
        while self._inbox:
            context.emit(self._inject(is_followed=True))
        if plan.round is not None:
            self._begin_round(plan, context)
        self._policy.offers = plan.offers and not plan.reads_on
        assert self._deadline is not None
        while True:
            failure = timer = None
            async with AsyncExitStack() as model_use:
                self._deadline.pause()
                await model_use.enter_async_context(self._use_model(self._give_way))
                self._deadline.resume()
                was_last = self._policy.is_last_pass
                self._note_model(participant)
                context.model = participant.model
                current = self._pass = self._next_pass(plan, context)
                if plan.seconds is not None:
                    timer = asyncio.get_running_loop().call_later(plan.seconds, current.end_unshown)
                try:
                    await current.read()
                    await model_use.aclose()
                    await current.wait_calls()
                    if current.text_length or not current.was_interrupted:
                        participant.model.breaker.record_success()
                except ModelError as error:
                    failure = error
                finally:
                    if timer is not None:
                        timer.cancel()
                    try:
                        await current.close(self._call_ending)
                    finally:
                        self._pass = None
                        self._record(current, participant)
            if failure is None and current.has_given_way and current.was_interrupted:
                continue
            if failure is None:
                break
            self._accounting.update_last_pass(error=failure.code, status=failure.status)
            try:
                for notice in participant.fall_back(failure):
                    context.emit((self._annotations.add_notice(notice),))
            except ModelError:
                if not plan.may_fail:
                    raise
                log.info("turn %s continues without a pass that failed: %s", self.id, failure)
                if plan.round is not None:
                    context.emit((self._annotations.add_notice(notices.without_round(participant.model.name)),))
                break
            context.max_block_bytes = self._max_block_bytes()
        self._unknown_tool = current.unknown_tool
        if current.unknown_tool is not None:
            context.emit((self._annotations.add_notice(notices.unknown_tool(current.unknown_tool)),))
        calls = current.all_calls
        is_suspended = current.calls is not None and bool(current.calls.suspended)
        return PassResult(
            calls,
            "suspended" if is_suspended else current.finish,
            unknown_tool=current.unknown_tool,
            was_last=was_last,
            is_interrupted=bool(self._inbox) and current.calls is None,
            is_stopped=current.is_stopped,
            has_client_call=current.calls is not None and current.calls.has_client_call,
            is_suspended=is_suspended,
        )

    async def _run_call(self, step: RunCall, context: CallContext) -> PassResult:
        """Run a call that the strategy read in a text."""
        call, participant = step.call, step.participant
        self._policy.offers = True
        group = CallGroup(context, len(self._accounting.passes))
        try:
            group.start(call)
            group.close()
            await group.wait()
        finally:
            try:
                await group.end(self._call_ending)
            finally:
                if participant.exchange is not self.exchange:
                    participant.exchange.parts.append(msgspec.structs.replace(call, marker=""))
                self.exchange.parts.append(call)
        return PassResult([call], has_client_call=group.has_client_call, is_suspended=bool(group.suspended))

    def _begin_round(self, plan: Plan, context: CallContext) -> None:
        assert plan.round is not None
        self._end_round()
        record = RoundRecord(
            len(self._rounds) + 1,
            max(self._strategy.max_rounds, len(self._rounds) + 1),
            plan.round.role,
            plan.participant.model.name,
            plan.round.text[:MAX_ROUND_TEXT],
            self._accounting.milliseconds(),
        )
        self._rounds.append(record)
        self._annotations.round = context.round = self._accounting.round = record.n
        context.emit((Round(record.n, record.of, record.role, record.model, record.text or None),))

    def _end_round(self) -> None:
        if self._rounds and self._rounds[-1].ms is None:
            last = self._rounds[-1]
            ms = self._accounting.milliseconds() - last.began_ms
            self._rounds[-1] = msgspec.structs.replace(last, ms=ms)

    def _max_block_bytes(self) -> int:
        return min(participant.max_block_bytes for participant in self._strategy.participants)

    def _fail_silent_pass(self, seconds: float) -> None:
        if self._pass is not None:
            self._pass.fail_silent(seconds)

    def _end_unshown_pass(self) -> None:
        if self._pass is not None and self._rounds and self._rounds[-1].role != "writer":
            self._pass.end_unshown()

    async def _run_automatic_calls(self, context: CallContext) -> None:
        """Run automatic calls for the attachments. Their blocks go before the user's text."""
        group = CallGroup(context, 0)
        try:
            for attachment in self.request.attachments if self._automatic else ():
                for specialist in self._registry.usable(self.request.specialists):
                    if attachment.kind in specialist.activates_on:
                        group.start_automatic(specialist.name, attachment)
            self.exchange.automatic_calls = tuple(group.calls)
            group.close()
            await group.wait()
        finally:
            try:
                await group.end(self._call_ending)
            finally:
                self._set_question([call.block for call in group.calls])

    def _set_question(self, result_blocks: Sequence[str] = ()) -> None:
        history, tokens = self.history, self.template_tokens
        notes = [history.recalled.note, "" if history.task_news is None else history.task_news.text]
        request = self.request
        if request.task is not None:  # the files of its conversation are new to the model
            request = replace(request, attachments=tuple(history.attachments))
        question = question_text(request, self._max_block_bytes(), result_blocks, notes, tokens)
        for exchange in (self.exchange, *(one.exchange for one in self._strategy.participants)):
            exchange.question = question

    def _next_pass(self, plan: Plan, context: CallContext) -> ModelPass:
        participant, sampling = plan.participant, self.request.sampling
        self._annotations.parts_before = len(self.exchange.automatic_calls) + len(self.exchange.parts)
        self._annotations.turn_pass = len(self._accounting.passes) + 1
        max_tokens = self._tokens_left()
        if plan.max_tokens is not None:
            max_tokens = plan.max_tokens if max_tokens is None else min(max_tokens, plan.max_tokens)
        if max_tokens != sampling.max_tokens:
            sampling = replace(sampling, max_tokens=None if max_tokens is None else max(1, max_tokens))
        if plan.temperature is not None and sampling.temperature is None:
            sampling = replace(sampling, temperature=plan.temperature)
        if sampling.format is not None and not plan.is_json:
            more = {name: value for name, value in sampling.more.items() if name != "response_format"}
            sampling = replace(sampling, format=None, more=more)
        if plan.format is not None:
            sampling = replace(sampling, format=plan.format)
        is_first, participant.is_new = participant.is_new, False
        nth = self._passes_by_model[id(participant.model)]
        self._passes_by_model[id(participant.model)] += 1
        return ModelPass(
            len(self._accounting.passes) + 1,
            nth,
            participant.model,
            participant.transcript,
            context,
            self._accounting,
            self._annotations,
            self._inbox,
            max_length=self._characters_left,
            silence=self._silence,
            sampling=sampling,
            decoding=plan.decoding,
            is_first=is_first,
            separator=self._separator(),
            output=plan.output,
            reads_on=plan.reads_on,
        )

    def _separator(self) -> str:
        """Return what to put between the text before a call and a new message after it."""
        parts = self.exchange.parts[self._parts_before :]
        texts = [part.text for part in parts if isinstance(part, Text)]
        if not texts or isinstance(parts[-1], Text | Steer) or texts[-1][-1:].isspace():
            return ""
        return SEPARATOR if texts[-1].endswith(SENTENCE_ENDS) else " "

    def _record(self, ended: ModelPass, participant: Participant) -> None:
        """Add the parts of a finished pass to the exchange, and the whole text to that of the participant."""
        parts = ended.parts()
        if participant.exchange is self.exchange:
            prompt_bytes = utf8_size(self.exchange.question) + utf8_size(answer_text(self.exchange.parts))
        else:
            participant.exchange.parts += ended.raw_parts()
        self.exchange.parts += parts
        self._finish = ended.finish
        self._characters_left -= ended.text_length
        self._accounting.end_pass(ended.began, ended.first_text, ended.finish)
        if participant.exchange is self.exchange:
            block_bytes = sum(utf8_size(part.block) for part in parts if isinstance(part, Call))
            self.exchange.tokens = self._accounting.count_exchange(prompt_bytes, block_bytes)

    def _tokens_left(self) -> int | None:
        """Return the tokens that a pass may write, or None if the client set no limit.

        The passes of one model share the limit. With a strategy, each pass has it for itself, because most of them
        write nothing that the client reads.
        """
        limit = self.request.sampling.max_tokens
        if limit is None or not self._shows_all:
            return limit
        return max(0, limit - self._accounting.usage.completion_tokens)

    def _is_at_token_limit(self) -> bool:
        return bool(self._accounting.passes) and self._tokens_left() == 0

    def _inject(self, *, is_followed: bool) -> list[Event]:
        """Inject the messages of the inbox, after a separator if text follows text."""
        inbox, self._inbox[:] = self._inbox[:], []
        events: list[Event] = [Notice("steered", message) for message in inbox]
        last = self.exchange.parts[-1] if len(self.exchange.parts) > self._parts_before else None
        if is_followed and isinstance(last, Text) and not last.text.endswith("\n"):
            self.exchange.parts.append(Text(SEPARATOR, last.turn_pass))
            events.insert(0, Token(SEPARATOR))
        number = len(self._accounting.passes)
        added = [Steer(neutralize(message, self.template_tokens), number) for message in inbox]
        self.exchange.parts += added
        for participant in self._strategy.participants:
            if participant.exchange is not self.exchange:
                participant.exchange.parts += added
        return events

    # Ending

    def _end(self, error: Error | None) -> None:
        """Complete the exchange and build the last events."""
        accounting, reason = self._accounting, self._stop_reason
        if reason in ("deadline", "cancelled") and error is None:
            self._finish = reason
            accounting.update_last_pass(finish=reason)
        elif reason == "shutdown" and error is None:
            message = "The server is shutting down. Send the message again in a moment."
            error = Error("shutdown", message, recoverable=True)
        if error is not None:
            accounting.update_last_pass(error=error.code, status=error.status)
        unread = self._inject(is_followed=False)
        self._end_round()
        stops = StopSequences(self.request.stop)
        known = self.results_text if reason == "deadline" else ""
        best_text = "" if self._visible_text().strip() else self._strategy.best_text(known)
        if self.request.source == "report" and self.history.task_news is not None and reason != "shutdown":
            if error is not None:
                self._finish = "complete"
            if error is not None or not (best_text or self._visible_text()).strip():
                best_text = f"{SEPARATOR if self._visible_text() else ''}{self.history.task_news.fixed_text}"
            error = None
        if text := stops.feed(best_text) + stops.close():
            self.exchange.parts.append(Text(text, len(accounting.passes)))
            unread.append(Token(text))
        total_ms = accounting.milliseconds()
        last = error or Done(
            stop_reason=self._final_reason(),
            message_id=self.message_id,
            text=self._visible_text(),
            calls=self._policy.counted,
            passes=len(accounting.passes),
            first_token_ms=accounting.first_token_ms,
            total_ms=total_ms,
        )
        self.exchange.ended = datetime.now(UTC)
        self.exchange.untrusted, self.exchange.private_data = self._policy.marks
        self.exchange.outcome = last.code if isinstance(last, Error) else last.stop_reason
        self.exchange.annotations, self.exchange.usage = self._all_annotations(), accounting.usage
        self.exchange.rounds = tuple(self._rounds)
        self.exchange.first_token_ms, self.exchange.total_ms = accounting.first_token_ms, total_ms
        self.exchange.passes = tuple(accounting.passes)
        self.exchange.error = error
        self._ending = (*unread, accounting.usage, last)

    def _final_reason(self) -> StopReason:
        if self._finish == "suspended":
            return "suspended"
        if self._policy.is_exhausted:
            return "call_limit"
        return "deadline" if self._policy.is_out_of_time and self._finish != "cancelled" else self._finish

    def _visible_text(self) -> str:
        return "".join(part.text for part in self.exchange.parts[self._parts_before :] if isinstance(part, Text))

    def snapshot(self) -> Exchange:
        """Return question and answer so far, including the current pass and its running calls."""
        if self._ending:
            return self.exchange
        accounting, current = self._accounting, self._pass
        running = [] if current is None else [accounting.report_pass(current.began, current.first_text)]
        first_token_ms = accounting.first_token_ms, *(one.first_token_ms for one in running)
        untrusted, private_data = self._policy.marks
        return msgspec.structs.replace(
            self.exchange,
            parts=[*self.exchange.parts, *(current.parts() if current is not None else [])],
            untrusted=untrusted,
            private_data=private_data,
            annotations=self._all_annotations(),
            rounds=tuple(self._rounds),
            passes=(*accounting.passes, *running),
            usage=accounting.usage,
            first_token_ms=next((ms for ms in first_token_ms if ms is not None), None),
            total_ms=accounting.milliseconds(),
        )

    def _all_annotations(self) -> tuple[Annotation, ...]:
        return (*self._earlier_annotations, *self._annotations.snapshot())
