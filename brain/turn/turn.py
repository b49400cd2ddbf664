"""One turn: send a request to the model, run the calls in its text, send the results, until the answer is complete.

*Pause* means that Brain closes the stream of a pass. *Resume* is the next request, with the whole text so far and the
blocks after it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from brain.errors import BadRequest, Interruption, ModelError
from brain.events import CallCode, Done, Error, Event, Notice, Rewind, Role, StopReason, Token, TurnStart
from brain.markers.neutralize import neutralize
from brain.messages import Call, Exchange, RoundRecord, Steer, Text
from brain.prompts import blocks
from brain.prompts.transcript import answer_text, question_text
from brain.task import task_change
from brain.text import utf8_size
from brain.turn import notices
from brain.turn.call_group import CallGroup
from brain.turn.deadline import Deadline
from brain.turn.model_pass import SEPARATOR, ModelPass
from brain.turn.participant import DEFAULT_OPTIONS, Participant, PromptOptions
from brain.turn.setup import TurnSetup
from brain.turn.state import Emit, TurnState
from brain.turn.strategy import Answer, PassResult, Plan, RunCall, Strategy
from brain.turn.text_filters import StopSequences

log = logging.getLogger("brain")

MAX_STEERING = 20
MAX_ROUND_TEXT = 2_000
"""Characters of the text of a round."""
COMPLETE: Collection[StopReason] = ("complete", "deliverable", "ready", "converged", "round_limit", "step_limit")
"""Reasons for which a turn ends with an answer. Without any text, it has failed."""
OWN_FAILURES: Collection[CallCode] = ("failed", "refused", "timeout", "unavailable")
"""Failures of specialists. Others are limits and mistakes of the model."""


class Turn:
    """One turn. `run` executes it once.

    `stop` records a reason and cancels the task of the turn; `run` then ends the turn with an event that gives the
    reason. Any other cancellation ends the turn as `cancelled`, and `run` raises it afterwards.

    Args:
        strategy: Makes the strategy of this turn.

    Attributes:
        is_continued: Whether another process continues the turn after `stop("shutdown")`.
    """

    def __init__(self, setup: TurnSetup, strategy: Callable[["Turn"], Strategy]) -> None:
        self.setup = setup
        self.state = TurnState(setup)
        self._strategy = strategy(self)
        self._writer = self._strategy.writer
        self.state.shows_all = self._writer.exchange is self.state.exchange
        self._use_participant(self._writer)
        if setup.checkpoint is not None:
            store = setup.checkpoint
            self.state.checkpoint = lambda: store(self.snapshot())
        self._pass: ModelPass | None = None  # the current pass
        self._unknown_tool: str | None = None  # that the model called in the last pass
        self._finish: StopReason = "complete"
        self._task: asyncio.Task[object] | None = None  # executes the turn, as long as it can be stopped
        self._stop_reason: Interruption | None = None
        self.is_continued = setup.request.task is not None
        self._ending: Sequence[Event] = ()

    def _use_participant(self, participant: Participant) -> None:
        self.state.model = participant.model
        self.state.exchange.model = self._writer.model.name
        self.state.max_block_bytes = min(one.max_block_bytes for one in self._strategy.participants)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called in time."""
        return self._stop_reason is not None

    # For strategies

    def add_participant(
        self, role: Role = "actor", options: PromptOptions = DEFAULT_OPTIONS, *, is_private: bool = True
    ) -> Participant:
        """Return a participant with the models of a role.

        Args:
            is_private: Whether the user and later turns see no text of it but what the strategy shows.
        """
        exchange = self.state.exchange
        if is_private:
            exchange = msgspec.structs.replace(exchange, parts=[*exchange.parts])
        return Participant(self.setup, self.setup.role_models.get(role, self.setup.models), exchange, options)

    @property
    def instructions(self) -> str:
        """The instructions of the operator and the client."""
        client = neutralize(self.setup.request.system, self.setup.tokens)
        return "\n\n".join(filter(None, (self.setup.operator, client)))

    def can_assist(self, name: str, params: Mapping[str, Any]) -> bool:
        """Whether Brain may make a call that the model did not ask for: it only reads, and needs no approval."""
        return self.state.policy.may_run_unasked(name, params)

    @property
    def can_call(self) -> bool:
        """Whether specialists can still run: the limit of calls is not reached, and there is time."""
        return not self.state.policy.is_last_pass and not self.is_answer_time

    @property
    def results(self) -> list[Call]:
        """The calls of the model, or for it, with results so far, each once."""
        calls = self.state.policy.calls
        return [one for one in calls if one.by in ("model", "assist") and one.outcome == "ok" and not one.cached]

    @property
    def results_text(self) -> str:
        """The results, and which specialists failed, as an answer without a model; empty without results."""
        results = self.results
        is_too_long = self._finish == "length" and self.state.shows_all
        if not results or is_too_long or self.setup.request.sampling.format is not None:
            return ""
        shown = [one for one in self.state.policy.calls if one in results or one.code in OWN_FAILURES]
        return blocks.write_answer(map(blocks.read_result, shown))

    @property
    def is_answer_time(self) -> bool:
        """Whether only the time for the answer is left."""
        return self.state.deadline.call_seconds_left() <= 0

    @property
    def rounds(self) -> int:
        """Number of rounds so far."""
        return len(self.state.rounds)

    # Commands

    def stop(self, reason: Interruption) -> None:
        """End the turn with an event that gives the reason. The first reason counts; an ending turn ignores all."""
        self.state.approvals.is_closed = True
        if self._stop_reason is None and not self._ending:
            self._stop_reason = reason
            if self._task is not None:
                self._task.cancel()

    def steer(self, message: str) -> None:
        """Inject a message of the user at the next safe place: between passes, or after a sentence.

        Raises:
            BadRequest: The turn has ended, or the limit of messages is reached.
        """
        state = self.state
        if self._ending or self._stop_reason is not None:
            raise BadRequest("This turn has ended. Send the message as a new one.", code="gone", status=410)
        if len(state.policy.steering) >= MAX_STEERING:
            message = f"The limit of {MAX_STEERING} added messages per turn is reached."
            raise BadRequest(message, "message", code="rate_limited", status=429)
        state.policy.steering.append(message)
        state.inbox.append(message)
        if self._pass is not None:
            self._pass.steer()

    # Execution

    async def run(self, emit: Emit) -> None:
        """Execute the turn. `emit` takes events that happen together; `end` returns the last ones.

        Raises:
            CancelledError: Something other than `stop` cancelled the task. The turn has ended.
        """
        task = asyncio.current_task()
        assert task is not None
        cancellations = task.cancelling()
        setup, state = self.setup, self.state
        state.emit = emit
        self._announce()
        deadline = state.deadline = state.approvals.deadline = Deadline(
            setup.request.limits,
            partial(self.stop, "deadline"),
            self._fail_silent_pass,
            silence=setup.timeouts.silence,
            first_token=setup.timeouts.first_token,
            on_answer_time=None if state.shows_all else self._end_unshown_pass,
        )
        was_stopped = self._stop_reason is not None  # before there was a task to cancel
        self._task = task
        error = None
        is_delivered = False
        try:
            if was_stopped:
                self._set_question()
            else:
                await self._answer()
        except asyncio.CancelledError:
            is_delivered = True
        except ModelError as failure:
            log.warning("turn %s: %s", setup.turn_id, failure)
            error = Error(
                failure.code,
                failure.message,
                failure.recoverable,
                status=failure.status,
                retry_after=failure.retry_after,
            )
        except Exception:
            log.exception("turn %s failed", setup.turn_id)
            error = Error("internal", "Something went wrong on the server. Its log has the details.", recoverable=True)
        self._task = None
        deadline.close()
        if self._ending:  # the run has abandoned this task
            return
        has_cancelled = self._stop_reason is not None and not was_stopped
        if is_delivered and self._stop_reason is None:
            self._stop_reason = "cancelled"
        self._complete(error)
        if has_cancelled:
            if not is_delivered:  # `stop` came in the last step, so the cancellation is still to come
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            task.uncancel()
        problem = None
        if setup.store is not None:
            with suppress(asyncio.CancelledError):  # a caller that cancels now does not wait for the store
                problem = await setup.store(state.exchange)
        if problem:
            self._ending = (Notice("unkept", problem), *self._ending)
        if task.cancelling() > cancellations:
            raise asyncio.CancelledError

    def end(self) -> Sequence[Event]:
        """End the turn if it still runs. Return its last events."""
        if not self._ending:
            if self._stop_reason != "shutdown":
                self._stop_reason = "cancelled"
            self._complete(None)
        self.state.emit = lambda events: None  # an abandoned task may still run
        self.state.checkpoint = None  # which refers to the turn: memory is free without the garbage collector
        return self._ending

    def _announce(self) -> None:
        """Emit the events before the first pass."""
        setup, state, model = self.setup, self.state, self._writer.model
        request = setup.request
        if setup.resumes_after is not None and request.task is None:
            state.emit((Rewind(setup.resumes_after, state.exchange.answer),))
        else:
            start = TurnStart(setup.turn_id, setup.history.id, model.name, request.strategy, request.limits)
            history_notices = map(state.annotations.add_notice, notices.history_notices(setup.history))
            state.emit((start, *([notices.DEMO] if model.is_demo else []), *history_notices))
        if setup.assistance is not None and setup.assistance.refusal:
            state.show_notice(Notice("assist", setup.assistance.refusal))
        for one in self._strategy.participants:
            if one.model is not one.chosen:
                skipped = notices.skipped(one.chosen.name, one.model.name)
                state.show_notice(skipped, *map(notices.skipped_fallback, one.skipped[1:]))

    async def _answer(self) -> None:
        """Do what the strategy plans until it ends and there are no messages to inject."""
        setup, state = self.setup, self.state
        if setup.tasks is not None:
            setup.tasks.on_change = lambda task: state.emit((task_change(task),))
            setup.tasks.origin = lambda: state.policy.origin
        if setup.resumes_after is not None and state.exchange.question:
            pass  # the process that died has asked it
        elif setup.request.attachments:
            await self._run_automatic_calls()
        elif not state.exchange.question or state.is_new:
            self._set_question()
        if await self._resume_calls():
            return
        while True:
            first = len(state.exchange.parts)
            try:
                is_explained = await self._follow_strategy()
                text = "" if is_explained else self._strategy.best_text(self.results_text)
            except ModelError:
                text = "" if state.shows_all else self.results_text
                if not text or self._has_shown(first):
                    raise
                state.show_notice(notices.without_model(state.model.name))
                is_explained, self._finish = False, "complete"
            if text and not self._has_shown(first) and self._show(text):
                is_explained, self._finish = True, "complete"
            if not state.inbox:
                break
        has_text = bool(self._visible_text().strip() or self._strategy.best_text())
        if self._final_reason() in COMPLETE and not is_explained and not has_text:
            raise notices.empty_answer(self._unknown_tool)

    async def _follow_strategy(self) -> bool:
        """Do what the strategy plans. Return whether the answer ends because the client wants it to."""
        passes = self._strategy.passes()
        step = next(passes)
        while True:
            result = PassResult()
            match step:
                case Answer(text):
                    if self._show(text):
                        return True
                case RunCall():
                    result = await self._run_call(step)
                    if result.has_client_call or result.is_suspended:
                        self._finish = "suspended" if result.is_suspended else "complete"
                        return True
                case Plan():
                    if self._is_at_token_limit():
                        self._finish = "length"
                        return False
                    result = await self._run_plan(step)
                    self._finish = result.finish
                    if result.is_stopped or result.has_client_call or result.is_suspended:
                        return True
                    if self.state.characters_left <= 0:
                        return False
            try:
                step = passes.send(result)
            except StopIteration as end:
                self._finish = end.value
                return False

    async def _run_plan(self, plan: Plan) -> PassResult:
        """Run a pass. If a model fails, its successor continues it."""
        state = self.state
        while state.inbox:
            state.emit(self._inject(is_followed=True))
        if plan.round is not None:
            self._begin_round(plan)
        state.policy.offers = plan.offers and not plan.reads_on
        while True:
            was_last = state.policy.is_last_pass
            ended, failure = await self._run_pass(plan)
            if failure is not None and self._fall_back(plan, failure):
                continue
            if failure is not None or not (ended.has_given_way and ended.was_interrupted):
                break
        self._unknown_tool = ended.unknown_tool
        if ended.unknown_tool is not None:
            state.show_notice(notices.unknown_tool(ended.unknown_tool))
        is_suspended = bool(ended.calls.suspended)
        return PassResult(
            ended.calls.calls,
            "suspended" if is_suspended else ended.finish,
            unknown_tool=ended.unknown_tool,
            was_last=was_last,
            is_interrupted=bool(state.inbox) and not ended.is_paused,
            is_stopped=ended.is_stopped,
            has_client_call=ended.calls.has_client_call,
            is_suspended=is_suspended,
        )

    async def _run_pass(self, plan: Plan) -> tuple[ModelPass, ModelError | None]:
        """Let the present model of a participant write a pass, and run its calls. Return also why the model failed."""
        state, participant, failure, timer = self.state, plan.participant, None, None
        with ExitStack() as model_use:
            state.deadline.pause()
            model_use.callback(await self.setup.use_model(self._give_way))
            state.deadline.resume()
            self._use_participant(participant)
            state.annotations.parts_before = len(state.exchange.automatic_calls) + len(state.exchange.parts)
            state.annotations.turn_pass = len(state.accounting.passes) + 1
            current = self._pass = ModelPass(self.setup, state, plan)
            if plan.seconds is not None:
                timer = asyncio.get_running_loop().call_later(plan.seconds, current.end_unshown)
            try:
                await current.read()
                model_use.close()
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
        return current, failure

    def _fall_back(self, plan: Plan, failure: ModelError) -> bool:
        """Let another model continue a pass whose model failed. Return False if the answer continues without the pass.

        Raises:
            ModelError: There is no such model, and the answer needs the pass.
        """
        state, participant = self.state, plan.participant
        state.accounting.update_last_pass(error=failure.code, status=failure.status)
        try:
            for notice in participant.fall_back(failure):
                state.show_notice(notice)
        except ModelError:
            if not plan.may_fail:
                raise
            log.info("turn %s continues without a pass that failed: %s", self.setup.turn_id, failure)
            if plan.round is not None:
                state.show_notice(notices.without_round(participant.model.name))
            return False
        return True

    def _record(self, ended: ModelPass, participant: Participant) -> None:
        """Add the parts of a finished pass to the exchange, and the whole text to that of the participant."""
        if self._ending:  # the run has abandoned this task
            return
        exchange, accounting, parts = self.state.exchange, self.state.accounting, ended.parts()
        prompt_bytes = None
        if participant.exchange is exchange:
            prompt_bytes = utf8_size(exchange.question) + utf8_size(answer_text(exchange.parts))
        else:
            participant.exchange.parts += ended.raw_parts()
        exchange.parts += parts
        self._finish = ended.finish
        self.state.characters_left -= ended.text_length
        accounting.end_pass(ended.first_text, ended.finish)
        if prompt_bytes is not None:
            block_bytes = sum(utf8_size(part.block) for part in parts if isinstance(part, Call))
            exchange.tokens = accounting.count_exchange(prompt_bytes, block_bytes)

    @asynccontextmanager
    async def _open_calls(self, turn_pass: int) -> AsyncIterator[CallGroup]:
        """Run calls outside a pass: those that the block starts."""
        group = CallGroup(self.setup, self.state, turn_pass)
        try:
            yield group
            group.close()
            await group.wait()
        finally:
            await group.end(self._call_ending)

    async def _run_call(self, step: RunCall) -> PassResult:
        """Run a call that the strategy read in a text."""
        call, participant, state = step.call, step.participant, self.state
        state.policy.offers = True
        try:
            async with self._open_calls(len(state.accounting.passes)) as group:
                group.start(call)
                state.exchange.parts.append(call)
        finally:
            if participant.exchange is not state.exchange:
                participant.exchange.parts.append(msgspec.structs.replace(call, marker=""))
        return PassResult([call], has_client_call=group.has_client_call, is_suspended=bool(group.suspended))

    async def _run_automatic_calls(self) -> None:
        """Run automatic calls for the attachments. Their blocks go before the user's text."""
        setup, state = self.setup, self.state
        try:
            async with self._open_calls(0) as group:
                for attachment in setup.request.attachments if setup.automatic else ():
                    for specialist in setup.usable:
                        if attachment.kind in specialist.activates_on:
                            group.start_automatic(specialist.name, attachment)
                state.exchange.automatic_calls = tuple(group.calls)
        finally:
            self._set_question([call.block for call in state.exchange.automatic_calls])

    async def _resume_calls(self) -> bool:
        """Continue calls that had no block when the turn was interrupted. Return whether one waits for approval."""
        calls = tuple(self.state.policy.calls)
        if self.setup.resumes_after is None or not calls:
            return False
        async with self._open_calls(calls[-1].turn_pass) as group:
            for call in calls:
                group.resume(call)
        if group.suspended:
            self._finish = "suspended"
        return bool(group.suspended)

    @property
    def _call_ending(self) -> CallCode:
        """The code of calls that the end of the turn stops. The next process continues `interrupted` ones."""
        if self._stop_reason == "shutdown" and self.is_continued:
            return "interrupted"
        return "deadline" if self._stop_reason == "deadline" else "cancelled"

    def _give_way(self) -> None:
        """Interrupt the current pass for a turn that is more urgent. The next pass continues its text."""
        if self._pass is not None:
            self._pass.give_way()

    def _fail_silent_pass(self, seconds: float) -> None:
        if self._pass is not None:
            self._pass.fail_silent(seconds)

    def _end_unshown_pass(self) -> None:
        rounds = self.state.rounds
        if self._pass is not None and rounds and rounds[-1].role != "writer":
            self._pass.end_unshown()

    def _begin_round(self, plan: Plan) -> None:
        assert plan.round is not None
        self._end_round()
        rounds, number = self.state.rounds, self.rounds + 1
        record = RoundRecord(
            number,
            max(self._strategy.max_rounds, number),
            plan.round.role,
            plan.participant.model.name,
            plan.round.text[:MAX_ROUND_TEXT],
            self.state.accounting.milliseconds(),
        )
        rounds.append(record)
        self.state.annotations.round = record.n
        self.state.emit((record.event,))

    def _end_round(self) -> None:
        rounds = self.state.rounds
        if rounds and rounds[-1].ms is None:
            ms = self.state.accounting.milliseconds() - rounds[-1].began_ms
            rounds[-1] = msgspec.structs.replace(rounds[-1], ms=ms)

    def _set_question(self, result_blocks: Sequence[str] = ()) -> None:
        request, history = self.setup.request, self.setup.history
        notes = [history.recalled.note, "" if history.task_news is None else history.task_news.text]
        if request.task is not None:  # the files of its conversation are new to the model
            request = replace(request, attachments=tuple(history.attachments))
        question = question_text(request, self.state.max_block_bytes, result_blocks, notes, self.setup.tokens)
        for exchange in (self.state.exchange, *(one.exchange for one in self._strategy.participants)):
            exchange.question = question

    def _show(self, text: str) -> bool:
        """Add text to the answer. Return whether the client wants it to end there."""
        stops, state = StopSequences(self.setup.request.stop), self.state
        if text := stops.feed(text) + stops.close():
            state.exchange.parts.append(Text(text, len(state.accounting.passes)))
            state.accounting.record_first_text()
            state.emit((Token(text),))
        return stops.is_found

    def _has_shown(self, first: int) -> bool:
        """Whether the answer has visible text from this part on."""
        return any(isinstance(part, Text) and part.text.strip() for part in self.state.exchange.parts[first:])

    def _visible_text(self) -> str:
        return "".join(part.text for part in self.state.own_parts if isinstance(part, Text))

    def _is_at_token_limit(self) -> bool:
        limit = self.setup.request.sampling.max_tokens
        return bool(self.state.accounting.passes) and self.state.tokens_left(limit) == 0

    def _inject(self, *, is_followed: bool) -> list[Event]:
        """Inject the messages of the inbox, after a separator if text follows text."""
        state = self.state
        inbox, state.inbox[:] = state.inbox[:], []
        events: list[Event] = [Notice("steered", message) for message in inbox]
        last = state.own_parts[-1] if state.own_parts else None
        if is_followed and isinstance(last, Text) and not last.text.endswith("\n"):
            state.exchange.parts.append(Text(SEPARATOR, last.turn_pass))
            events.insert(0, Token(SEPARATOR))
        number = len(state.accounting.passes)
        added = [Steer(neutralize(message, self.setup.tokens), number) for message in inbox]
        state.exchange.parts += added
        for participant in self._strategy.participants:
            if participant.exchange is not state.exchange:
                participant.exchange.parts += added
        return events

    # Ending

    def _complete(self, error: Error | None) -> None:
        """Complete the exchange and build the last events."""
        state, accounting, reason = self.state, self.state.accounting, self._stop_reason
        exchange, current, self._pass = state.exchange, self._pass, None
        if current is not None:  # of a task that is abandoned
            exchange.parts += current.parts()
            accounting.end_pass(current.first_text, current.finish)
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
        stops = StopSequences(self.setup.request.stop)
        known = self.results_text if reason == "deadline" else ""
        best_text = "" if self._visible_text().strip() else self._strategy.best_text(known)
        news = self.setup.history.task_news
        if self.setup.request.source == "report" and news is not None and reason != "shutdown":
            if error is not None:
                self._finish = "complete"
            if error is not None or not (best_text or self._visible_text()).strip():
                best_text = f"{SEPARATOR if self._visible_text() else ''}{news.fixed_text}"
            error = None
        if text := stops.feed(best_text) + stops.close():
            exchange.parts.append(Text(text, len(accounting.passes)))
            unread.append(Token(text))
        self._fill(exchange)
        last = error or Done(
            stop_reason=self._final_reason(),
            message_id=exchange.answer_id,
            text=self._visible_text(),
            calls=state.policy.counted,
            passes=len(accounting.passes),
            first_token_ms=accounting.first_token_ms,
            total_ms=exchange.duration_ms,
        )
        exchange.ended = datetime.now(UTC)
        exchange.outcome = last.code if isinstance(last, Error) else last.stop_reason
        exchange.error = error
        self._ending = (*unread, accounting.usage, last)

    def _final_reason(self) -> StopReason:
        policy = self.state.policy
        if self._finish == "suspended":
            return "suspended"
        if policy.is_exhausted:
            return "call_limit"
        return "deadline" if policy.is_out_of_time and self._finish != "cancelled" else self._finish

    # Reports

    def snapshot(self) -> Exchange:
        """Return question and answer so far, including the current pass and its running calls."""
        exchange = self.state.exchange
        if self._ending:
            return exchange
        copied = msgspec.structs.replace(exchange, parts=[*exchange.parts])
        self._fill(copied)
        return copied

    def _fill(self, exchange: Exchange) -> None:
        """Give an exchange what the turn knows of it so far."""
        state, accounting, current = self.state, self.state.accounting, self._pass
        running = [] if current is None else [accounting.make_record(current.first_text)]
        first_token_ms = accounting.first_token_ms, *(one.first_token_ms for one in running)
        exchange.parts += [] if current is None else current.parts()
        exchange.untrusted, exchange.private_data = state.policy.marks
        exchange.annotations = state.annotations.snapshot()
        exchange.rounds = tuple(state.rounds)
        exchange.passes = (*accounting.passes, *running)
        exchange.usage = accounting.usage
        exchange.first_token_ms = next((ms for ms in first_token_ms if ms is not None), None)
        exchange.total_ms = accounting.milliseconds()
