"""One turn: send a request to the model, run the calls in its text, send the results, until the answer is complete.

*Pause* means that Brain closes the stream of a pass. *Resume* is the next request, with the whole text so far and the
blocks after it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import msgspec

from brain.errors import BadRequest, Interruption, ModelError
from brain.events import Done, Error, Event, Notice, StopReason, Token, TurnStart
from brain.markers.neutralize import neutralize
from brain.markers.template_tokens import find_control_tokens
from brain.messages import Call, Exchange, History, State, Steer, Text, TurnReport, new_message_id, new_turn_id
from brain.plugins.context import MemoryView
from brain.plugins.registry import Registry
from brain.prompts.client_tools import name_tools
from brain.prompts.system_prompt import system_prompt
from brain.prompts.transcript import answer_text, question_text
from brain.text import utf8_size
from brain.turn import notices
from brain.turn.accounting import Accounting
from brain.turn.approvals import Approvals
from brain.turn.call_group import CallContext, CallGroup, Emit
from brain.turn.call_policy import CallPolicy
from brain.turn.deadline import Deadline
from brain.turn.model_pass import Model, ModelPass
from brain.turn.notices import Annotations
from brain.turn.participant import Participant
from brain.turn_request import TurnRequest

log = logging.getLogger("brain")

MAX_STEERING = 20
MAX_ANSWER_LENGTH = 8 * 1024 * 1024
"""Characters of visible text. A model that writes more would never end."""
SEPARATOR = "\n\n"
"""Separates the text before an injected message from the text after it."""

Store = Callable[[Exchange], Awaitable[str | None]]
"""Stores the exchange of a finished turn. Returns an error message for people, or None."""


class Turn:
    """One turn. `run` executes it once.

    `stop` records a reason and cancels the task of the turn; `run` then ends the turn with an event that gives the
    reason. Any other cancellation ends the turn as `cancelled`, and `run` raises it afterwards.

    Args:
        fallbacks: Models that take over, in this order, when `model` fails.
        turn_id: ID of the turn (default: a new one).
        system: Instructions of the operator.
        silence: Seconds without a chunk after which the model has failed.
        first_token: Time limit for the model's first token, in seconds. None means `silence`.
        automatic: Whether attachments may cause calls before the first pass.
        approval_seconds: Time limit for an approval.
        store: Awaited before the last events. None if the turn is not stored.
        memory: The user's memory, for specialists.

    Attributes:
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
        *,
        fallbacks: Sequence[Model] = (),
        turn_id: str = "",
        system: str = "",
        silence: float = 60.0,
        first_token: float | None = None,
        automatic: bool = True,
        approval_seconds: float = 600.0,
        store: Store | None = None,
        memory: MemoryView | None = None,
    ) -> None:
        self.id = turn_id or new_turn_id()
        self.message_id = new_message_id()
        self.conversation_id = history.id
        self.exchange = history.question or Exchange(question="")
        self.exchange.answer_id = self.message_id
        self.exchange.recalled_ids = tuple(item.id for item in history.recalled.items)
        self.approvals = Approvals(approval_seconds)
        self.last: Done | Error | None = None
        self._request = request
        self._history = history
        self._registry = registry
        self._silence = silence
        self._first_token = first_token
        self._automatic = automatic
        self._store = store
        self._memory = memory
        self._accounting = Accounting()
        self._annotations = Annotations()
        usable = registry.usable(request.specialists)
        usable_names = [specialist.name for specialist in usable]
        tools = name_tools(request.tools, frozenset(usable_names))
        self._policy = CallPolicy(
            request, history, registry, allowed=registry.is_allowed, usable=usable_names, tools=tools, operator=system
        )
        self._template_tokens = find_control_tokens(*(one.template for one in (model, *fallbacks)))
        write_system_prompt = partial(
            system_prompt, usable, request.limits, request.syntax, system, request.system, tools,
            must_call=request.must_call, tokens=self._template_tokens,
        )  # fmt: skip
        self._writer = Participant(
            (model, *fallbacks),
            lambda context_tokens: write_system_prompt(context_tokens=context_tokens),
            history,
            self.exchange,
            self._template_tokens,
        )
        self._note_model()
        self._parts_before = len(self.exchange.parts)
        self._characters_left = MAX_ANSWER_LENGTH
        self._inbox: list[str] = []  # messages of the user to inject
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
    def is_waiting(self) -> bool:
        """Whether a call waits for approval."""
        return self.approvals.is_waiting

    @property
    def _model(self) -> Model:
        return self._writer.model

    def _note_model(self) -> None:
        self.exchange.model = self._accounting.model = self._model.name

    # Control from outside

    def stop(self, reason: Interruption) -> None:
        """End the turn with an event that gives the reason. The first reason counts; an ending turn ignores all."""
        self.approvals.is_closed = True
        if self._stop_reason is None and not self._ending:
            self._stop_reason = reason
            if self._task is not None:
                self._task.cancel()

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
        start = TurnStart(self.id, self._history.id, self._model.name, "mono", self._request.limits)
        history_notices = map(self._annotations.add_notice, notices.history_notices(self._history))
        emit((start, *([notices.DEMO] if self._model.is_demo else []), *history_notices))
        if self._model is not self._writer.chosen:
            notice = notices.skipped(self._writer.chosen.name, self._model.name)
            emit((self._annotations.add_notice(notice),))
        deadline = self.approvals.deadline = Deadline(
            self._request.limits,
            partial(self.stop, "deadline"),
            self._fail_silent_pass,
            silence=self._silence,
            first_token=self._first_token,
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
            error = Error(failure.code, failure.message, recoverable=failure.recoverable, status=failure.status)
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
            self._stop_reason = "cancelled"
            self._end(None)
        last = self._ending[-1]
        assert isinstance(last, Done | Error)
        self.last = last
        return self._ending

    async def _answer(self, emit: Emit, deadline: Deadline) -> None:
        """Run passes until the model makes no more calls and there are no messages to inject."""
        context = CallContext(
            self._request, self._history, self._registry, self._model, self._policy, self.approvals, deadline,
            emit, turn_id=self.id, began=self._accounting.began, max_block_bytes=self._writer.max_block_bytes,
            tokens=self._template_tokens, memory=self._memory,
        )  # fmt: skip
        if self._request.attachments:
            await self._run_automatic_calls(context)
        else:
            self._set_question()
        has_retried = False  # after a call of an unknown tool
        while True:
            while self._inbox:
                emit(self._inject(is_followed=True))
            is_last = self._policy.is_last_pass
            current = self._pass = self._next_pass(context)
            failure = None
            try:
                await current.run()
                self._model.breaker.record_success()
            except ModelError as error:
                failure = error
            finally:
                try:
                    await current.close("deadline" if self._stop_reason == "deadline" else "cancelled")
                finally:
                    self._pass = None
                    self._record(current)
            if failure is not None:
                self._accounting.update_last_pass(error=failure.code)
                emit((self._annotations.add_notice(self._writer.fall_back(failure)),))
                self._note_model()
                context.model, context.max_block_bytes = self._model, self._writer.max_block_bytes
                continue
            calls, tool = current.calls, current.unknown_tool
            if tool is not None:
                emit((self._annotations.add_notice(notices.unknown_tool(tool)),))
            is_client_call = calls is not None and calls.has_client_call
            is_followed = False
            if calls is None:
                is_followed = tool is not None and not has_retried
                has_retried = has_retried or is_followed
            elif not (current.is_stopped or is_client_call or is_last or self._characters_left <= 0):
                is_followed = self._tokens_left() != 0
                if not is_followed:
                    self._finish = "length"
            if not is_followed and not self._inbox:
                break
        is_explained = current.is_stopped or is_client_call
        if self._final_reason() == "complete" and not is_explained and not self._visible_text().strip():
            raise notices.empty_answer(tool)

    def _fail_silent_pass(self, seconds: float) -> None:
        if self._pass is not None:
            self._pass.fail_silent(seconds)

    async def _run_automatic_calls(self, context: CallContext) -> None:
        """Run automatic calls for the attachments. Their blocks go before the user's text."""
        group = CallGroup(context, 0)
        try:
            for attachment in self._request.attachments if self._automatic else ():
                for specialist in self._registry.usable(self._request.specialists):
                    if attachment.kind in specialist.activates_on:
                        group.start_automatic(specialist.name, attachment)
            group.close()
            await group.wait()
        finally:
            try:
                await group.end("deadline" if self._stop_reason == "deadline" else "cancelled")
            finally:
                self.exchange.automatic_calls = tuple(group.calls)
                self._set_question([call.block for call in group.calls])

    def _set_question(self, result_blocks: Sequence[str] = ()) -> None:
        note, tokens = self._history.recalled.note, self._template_tokens
        self.exchange.question = question_text(self._request, self._writer.max_block_bytes, result_blocks, note, tokens)

    def _next_pass(self, context: CallContext) -> ModelPass:
        self._annotations.parts_before = len(self.exchange.automatic_calls) + len(self.exchange.parts)
        sampling = self._request.sampling
        if sampling.max_tokens is not None:
            sampling = replace(sampling, max_tokens=max(1, self._tokens_left() or 1))
        self._writer.passes += 1
        return ModelPass(
            len(self._accounting.passes) + 1,
            self._writer.passes - 1,
            self._model,
            self._writer.transcript,
            context,
            self._accounting,
            self._annotations,
            self._inbox,
            max_length=self._characters_left,
            silence=self._silence,
            sampling=sampling,
        )

    def _record(self, ended: ModelPass) -> None:
        """Add the parts of a finished pass to the exchange."""
        prompt_bytes = utf8_size(self.exchange.question) + utf8_size(answer_text(self.exchange.parts))
        parts = ended.parts()
        self.exchange.parts += parts
        self._finish = ended.finish
        self._characters_left -= ended.text_length
        self._accounting.end_pass(ended.began, ended.first_text, ended.finish)
        block_bytes = sum(utf8_size(part.block) for part in parts if isinstance(part, Call))
        self.exchange.tokens = self._accounting.count_exchange(prompt_bytes, block_bytes)

    def _tokens_left(self) -> int | None:
        """Return the tokens that the model may still write, or None if the client set no limit."""
        limit = self._request.sampling.max_tokens
        return None if limit is None else max(0, limit - self._accounting.usage.completion_tokens)

    def _inject(self, *, is_followed: bool) -> list[Event]:
        """Inject the messages of the inbox, after a separator if text follows text."""
        inbox, self._inbox[:] = self._inbox[:], []
        events: list[Event] = [Notice("steered", message) for message in inbox]
        last = self.exchange.parts[-1] if len(self.exchange.parts) > self._parts_before else None
        if is_followed and isinstance(last, Text) and not last.text.endswith("\n"):
            self.exchange.parts.append(Text(SEPARATOR, last.turn_pass))
            events.insert(0, Token(SEPARATOR))
        number = len(self._accounting.passes)
        self.exchange.parts += [Steer(neutralize(message, self._template_tokens), number) for message in inbox]
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
            accounting.update_last_pass(error=error.code)
        unread = self._inject(is_followed=False)
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
        self.exchange.ended, self.exchange.untrusted = datetime.now(UTC), self._policy.is_untrusted
        self.exchange.outcome = last.code if isinstance(last, Error) else last.stop_reason
        self.exchange.annotations, self.exchange.usage = self._annotations.snapshot(), accounting.usage
        self.exchange.first_token_ms, self.exchange.total_ms = accounting.first_token_ms, total_ms
        self.exchange.error = error
        self._ending = (*unread, accounting.usage, last)

    def _final_reason(self) -> StopReason:
        if self._policy.is_exhausted:
            return "call_limit"
        return "deadline" if self._policy.is_out_of_time and self._finish != "cancelled" else self._finish

    def _visible_text(self) -> str:
        return "".join(part.text for part in self.exchange.parts[self._parts_before :] if isinstance(part, Text))

    # Reports

    def snapshot(self) -> Exchange:
        """Return question and answer so far, including the current pass."""
        return msgspec.structs.replace(
            self.exchange,
            parts=[*self.exchange.parts, *(self._pass.parts() if self._pass is not None else [])],
            untrusted=self._policy.is_untrusted,
            annotations=self._annotations.snapshot(),
        )

    def report(self, wire: str) -> TurnReport:
        """Return a report of the turn so far. `wire` is the protocol of the client."""
        last, accounting, current = self.last, self._accounting, self._pass
        state: State = "waiting" if self.is_waiting else "running"
        if last is not None:
            state = "error" if isinstance(last, Error) else "done"
        running = [] if current is None else [accounting.report_pass(current.began, current.first_text)]
        first_token_ms = accounting.first_token_ms
        if first_token_ms is None and running:
            first_token_ms = running[0].first_token_ms
        return TurnReport(
            turn_id=self.id,
            conversation_id=self.conversation_id,
            message_id=self.message_id,
            user=self._request.user,
            wire=wire,
            model=self._model.name,
            state=state,
            began=accounting.began_at,
            total_ms=last.total_ms if isinstance(last, Done) else accounting.milliseconds(),
            first_token_ms=first_token_ms,
            stop_reason=last.stop_reason if isinstance(last, Done) else None,
            error=last.code if isinstance(last, Error) else None,
            usage=accounting.usage,
            passes=(*accounting.passes, *running),
            calls=tuple(self._policy.calls),
        )
