"""The loop. Ask the model, read its text, run what it calls for, ask again with the results, until it is done.

*Pause* is the place where a pass's stream is closed; *resume* is the next request, with all that was said and the
blocks behind it. Cancelling is task cancellation from outside; `stop` ends a turn with a last event of its own.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

from brain.errors import BadRequest, Interrupted, Interruption, ModelError
from brain.events import Done, Error, Event, Notice, StopReason, Token, TurnStart
from brain.markers.neutralize import neutralize
from brain.markers.template_tokens import of_template
from brain.messages import (
    AnswerDetails,
    Call,
    Exchange,
    History,
    Message,
    State,
    Steer,
    Text,
    TurnReport,
    new_message_id,
    new_turn_id,
)
from brain.plugins.context import MemoryView
from brain.plugins.registry import Registry
from brain.prompts import blocks
from brain.prompts.client_tools import name_tools
from brain.prompts.system_prompt import system_prompt
from brain.prompts.transcript import Transcript, answer_text, neutralize_exchange, question_text
from brain.text import utf8_size
from brain.turn import notices
from brain.turn.accounting import Accounting
from brain.turn.approvals import Approvals
from brain.turn.call_group import CallGroup
from brain.turn.call_policy import CallPolicy
from brain.turn.deadline import Deadline
from brain.turn.model_pass import Model, Pass
from brain.turn_request import TurnRequest

log = logging.getLogger("brain")

STEERS_MOST = 20
ANSWER_LENGTH = 8 * 1024 * 1024
"""Characters of visible text; a model that writes more would never end."""
APART = "\n\n"
"""What stands between the text before and behind a message that was put in."""


Keep = Callable[[Exchange], Awaitable[str | None]]
"""Keeps a turn that ended; what went wrong, in a sentence."""


class Turn:
    """One turn: made of what was asked, then read through `events`, once.

    Args:
        turn_id: its ID; without one it gets a new one.
        system: the operator's instructions.
        silence: seconds without anything from the model, after which it has failed.
        first_token: seconds that the model may take to its first token; None for `silence`.
        automatic: whether attachments may call specialists before the model does.
        approval_seconds: how long a person may take to approve a call.
        keep: is waited for before the end is told; None for a turn that nobody keeps.
        memory: what specialists may know of the user.

    Attributes:
        exchange: question and answer so far, to be recorded however the turn ends.
        last: the event that ended it, once it is over.
    """

    __slots__ = (
        "_account", "_alarm", "_ask", "_asked_again", "_automatic", "_before", "_conversation", "_desk", "_ending",
        "_finish", "_first_token", "_keep", "_model", "_pass", "_registry", "_silence", "_steered", "_stopped",
        "_transcript", "_untold", "approval_seconds", "exchange", "id", "last", "message_id",
    )  # fmt: skip

    def __init__(
        self,
        ask: TurnRequest,
        conversation: History,
        model: Model,
        registry: Registry,
        *,
        turn_id: str = "",
        system: str = "",
        silence: float = 60.0,
        first_token: float | None = None,
        automatic: bool = True,
        approval_seconds: float = 600.0,
        keep: Keep | None = None,
        memory: MemoryView | None = None,
    ) -> None:
        self.id = turn_id or new_turn_id()
        self.message_id = new_message_id()
        self.exchange = _begun(conversation, self.message_id, model.name)
        self._keep = keep
        self._before = len(self.exchange.parts)
        self._ask = ask
        self._conversation = conversation
        self._model = model
        self._registry = registry
        self._silence = silence
        self._first_token = first_token
        self._automatic = automatic
        self._account = Accounting()
        usable = registry.usable(ask.specialists)
        tools = name_tools(ask.tools, {specialist.name for specialist in usable})
        tokens = of_template(model.template)
        front = system_prompt(
            usable, ask.limits, ask.syntax, system, ask.system, tools,
            must_call=ask.must_call, tokens=tokens, context_tokens=model.context_tokens,
        )  # fmt: skip
        earlier = [neutralize_exchange(exchange, tokens) for exchange in conversation.exchanges]
        self._transcript = Transcript(front, earlier, self.exchange)
        self.approval_seconds = approval_seconds
        block_bytes, approvals = blocks.max_block_bytes(model.context_tokens), Approvals(approval_seconds)
        self._desk = CallPolicy(
            ask, registry, model, conversation, block_bytes, approvals,
            turn_id=self.id, tools=tools, room=ANSWER_LENGTH, memory=memory, tokens=tokens, operator=system,
        )  # fmt: skip
        self._alarm: Deadline | None = None
        self._stopped: Interruption | None = None
        self._pass: Pass | None = None  # that is being read
        self._finish: StopReason = "complete"
        self._steered = 0
        self._asked_again = False  # without a tool call that nobody asked for
        self._untold: Notice | None = None
        self._ending: Sequence[Event] = ()
        self.last: Done | Error | None = None

    def stop(self, reason: Interruption) -> None:
        """Ends the turn with an event that says why, at its next wait."""
        self._stopped = self._stopped or reason
        self._desk.approvals.closed = True
        if self._alarm is not None:
            self._alarm.ring(reason)

    def steer(self, message: str) -> None:
        """Puts a message of the user in at the next safe place: between passes, or behind a sentence.

        Raises:
            BadRequest: when the turn is over, or was steered too often.
        """
        if self._ending or self._stopped is not None:
            raise BadRequest("This turn is over; send the message as a new one.", code="gone", status=410)
        if self._steered >= STEERS_MOST:
            raise BadRequest(f"A turn can be steered {STEERS_MOST} times.", "message", code="rate_limited", status=429)
        self._steered += 1
        self._desk.inbox.append(message)
        self._desk.steered.append(message)
        if self._pass is not None:
            self._pass.nudge()

    def decide(self, call_id: str, approve: bool) -> None:
        """Says for a person whether a call may run.

        Raises:
            BadRequest: when none of this id waits, or it expired, or was decided otherwise.
        """
        self._desk.approvals.decide(call_id, approve)

    @property
    def just_approved(self) -> bool:
        """Whether a person approved a call a moment ago."""
        return self._desk.approvals.just_approved

    @property
    def conversation_id(self) -> str:
        """The conversation that it belongs to."""
        return self._conversation.id

    @property
    def stopped(self) -> bool:
        """Whether it was told to end."""
        return self._stopped is not None

    @property
    def waits(self) -> bool:
        """Whether a person is to approve a call."""
        return self._desk.approvals.waiting

    async def events(self) -> AsyncGenerator[Event, None]:
        """The turn, event by event. Closing the generator ends everything that runs for it."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def run(self, emit: Callable[[Sequence[Event]], None]) -> None:
        """Execute the turn; `emit` is given the events that happen together. Cancelling ends all that runs for it."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                emit(batch)

    async def batches(self) -> AsyncGenerator[Sequence[Event], None]:
        """The turn, as it happens: the events that came together. Closing the generator ends all that runs for it."""
        yield self._beginning()
        alarm = Deadline(self._ask.limits.turn_seconds, self._silence, self._first_token)
        self._alarm = self._desk.approvals.alarm = alarm
        if self._stopped is not None:
            alarm.ring(self._stopped)
        error = None
        try:
            if self._ask.attachments:
                async with aclosing(self._one_way(alarm)) as before:
                    async for events in before:
                        yield events
            else:
                self.exchange.question = self._question()
            more = True
            while more:
                while self._desk.inbox:
                    yield self._put_in(goes_on=True)
                is_last = self._desk.is_last_pass
                one = self._pass = self._next_pass(alarm)
                try:
                    async with one:
                        while events := await one.read():
                            yield events if self._untold is None else [*self._trimmed(), *events]
                            events = ()  # not kept while the next are waited for
                        async with aclosing(one.told()) as told:
                            async for events in told:
                                yield events
                finally:
                    self._pass = None  # it knows us: the two would wait for the garbage collector
                    self._record(one)
                if one.unknown_tool is not None:
                    yield (self._told(notices.unknown_tool(one.unknown_tool)),)
                more = self._goes_on(one, is_last) or bool(self._desk.inbox)
            self._require_answer(one)
        except Interrupted as interruption:
            if interruption.reason in ("deadline", "cancelled"):
                self._finish = interruption.reason
                self._account.cut(interruption.reason)
            else:
                error = notices.interrupted(interruption)
        except ModelError as failure:
            log.warning("turn %s: %s", self.id, failure)
            error = Error(failure.code, failure.message, recoverable=failure.recoverable, status=failure.status)
        except Exception:
            log.exception("turn %s failed", self.id)
            error = Error("internal", "Something went wrong on the server; it was logged.", recoverable=True)
        finally:
            alarm.close()
        ending = self._ending = self._ended(error)
        trouble = await self._kept()
        yield [*trouble, *self._over(ending)]

    def snapshot(self) -> Exchange:
        """Question and answer as far as they are now, also of the pass that runs."""
        parts = [*self.exchange.parts, *(self._pass.parts() if self._pass else [])]
        return replace(
            self.exchange, parts=parts, outside=self._desk.outside, about=AnswerDetails(self._desk.asides.snapshot())
        )

    def _question(self, before: Sequence[str] = ()) -> str:
        desk, recalled = self._desk, self._conversation.recalled.note
        return question_text(self._ask, desk.block_bytes, before, recalled, desk.tokens)

    async def _kept(self) -> Sequence[Event]:
        """Has the turn kept; says so when it could not be."""
        trouble = await self._keep(self.exchange) if self._keep is not None else None
        return (Notice("unkept", trouble),) if trouble else ()

    def _goes_on(self, one: Pass, is_last: bool) -> bool:
        """Whether a pass is followed by another: it made calls, and none of them ends the turn."""
        if one.calls is None and one.unknown_tool is not None and not self._asked_again:
            self._asked_again = True
            return True
        if one.calls is None or one.stopped or one.calls.handed or is_last or self._desk.room <= 0:
            return False
        if self._tokens_left() == 0:
            self._finish = "length"
            return False
        return True

    def _require_answer(self, last: Pass) -> None:
        """Checks that a model that ended by itself answered something.

        Raises:
            ModelError: when it did not, and neither a stop text nor a call of the client's tool explains it.
        """
        is_explained = last.stopped or (last.calls is not None and last.calls.handed)
        if self._stop_reason() == "complete" and not is_explained and not self._text().strip():
            raise notices.empty(last.unknown_tool)

    def _put_in(self, *, goes_on: bool) -> Sequence[Event]:
        """What the user wanted to be put in; text that was left for it is parted from what comes behind."""
        inbox, self._desk.inbox[:] = self._desk.inbox[:], []
        told: list[Event] = [Notice("steered", message) for message in inbox]
        last = self.exchange.parts[-1] if len(self.exchange.parts) > self._before else None
        if goes_on and isinstance(last, Text) and not last.text.endswith("\n"):
            self.exchange.parts.append(Text(APART, last.turn_pass))
            told.insert(0, Token(APART))
        steered = [neutralize(message, self._desk.tokens) for message in inbox]
        self.exchange.parts += [Steer(message, len(self._account.passes)) for message in steered]
        return told

    def cut(self) -> Sequence[Event]:
        """The last events of a turn whose generator was closed before it had told them."""
        if not self._ending:  # else it was being kept
            self._finish = "cancelled"
            self._account.cut("cancelled")
            self._ending = self._ended(None)
        return self._over(self._ending)

    def _ended(self, error: Error | None) -> Sequence[Event]:
        """The last events; who asks before they are told hears that it still runs."""
        if error is not None:
            self._account.fail(error.code)
        unread = self._put_in(goes_on=False)
        last = error or self._done()
        self.exchange.answered, self.exchange.outside = datetime.now(UTC), self._desk.outside
        self.exchange.outcome = last.code if isinstance(last, Error) else last.stop_reason
        self.exchange.about = self._about(last)
        return *unread, self._account.usage, last

    def _about(self, last: Done | Error) -> AnswerDetails:
        account = self._account
        total_ms = last.total_ms if isinstance(last, Done) else account.now()
        failure = last if isinstance(last, Error) else None
        return AnswerDetails(self._desk.asides.snapshot(), account.usage, account.first_token_ms, total_ms, failure)

    def _over(self, ending: Sequence[Event]) -> Sequence[Event]:
        last = ending[-1]
        assert isinstance(last, Done | Error)
        self.last = last
        return ending

    def _beginning(self) -> Sequence[Event]:
        """What can be told before anything is asked."""
        told = list(notices.beginning(self._conversation, is_demo=self._model.is_demo))
        for notice in told:
            if notice.code != "stand_in":  # which is the model's, not this answer's
                self._told(notice)
        return TurnStart(self.id, self._conversation.id, self._model.name, "mono", self._ask.limits), *told

    async def _one_way(self, alarm: Deadline) -> AsyncGenerator[Sequence[Event], None]:
        """What attachments ask for by themselves; its blocks stand before the user's text."""
        calls = CallGroup(self._desk, 0)
        for attachment in self._ask.attachments if self._automatic else ():
            for specialist in self._registry.usable(self._ask.specialists):
                if attachment.kind in specialist.activates_on:
                    calls.take_one_way(specialist.name, attachment)
        calls.complete()
        try:
            async with aclosing(calls.events(alarm)) as batches:
                async for events in batches:
                    yield events
        finally:
            self.exchange.one_way = tuple(calls.parts())
            self.exchange.question = self._question([part.block for part in self.exchange.one_way])

    def _next_pass(self, alarm: Deadline) -> Pass:
        self._desk.asides.before = len(self.exchange.one_way) + len(self.exchange.parts)
        number, sampling = len(self._account.passes) + 1, self._ask.sampling
        if sampling.max_tokens is not None:
            sampling = replace(sampling, max_tokens=max(1, self._tokens_left() or 1))
        tokens = self._account.tokens
        return Pass(number, self._model, self._messages, self._trim, self._desk, alarm, tokens, self._silence, sampling)

    def _tokens_left(self) -> int | None:
        """How many tokens the model may still write; None when the client did not say."""
        most = self._ask.sampling.max_tokens
        return None if most is None else max(0, most - self._account.usage.completion_tokens)

    def _messages(self) -> list[Message]:
        return self._transcript.messages(self._model.resume)

    def _trim(self) -> bool:
        """Leaves out the older half of the history when it was the first to be asked with, once; whether it did."""
        left_out = 0 if self._account.passes else self._transcript.shorten()
        if left_out:
            self._untold = self._told(notices.left_out(left_out))
        return left_out > 0

    def _told(self, notice: Notice) -> Notice:
        """Records a notice for the answer's reader, and returns it."""
        self._desk.asides.tell(notice)
        return notice

    def _trimmed(self) -> Sequence[Event]:
        """What is still to be told of it."""
        untold, self._untold = self._untold, None
        return () if untold is None else (untold,)

    def _record(self, one: Pass) -> None:
        """Keeps what a pass said, however it ended."""
        asked = utf8_size(self.exchange.question) + utf8_size(answer_text(self.exchange.parts))
        said = one.parts()
        self.exchange.parts += said
        self._finish = one.finish
        self._account.take(one.began, one.first_text, one.finish)
        unread = sum(utf8_size(part.block) for part in said if isinstance(part, Call))
        self.exchange.tokens = self._account.tokens_of(asked, unread)

    def _done(self) -> Done:
        return Done(
            stop_reason=self._stop_reason(),
            message_id=self.message_id,
            text=self._text(),
            calls=self._desk.budget.calls,
            passes=len(self._account.passes),
            first_token_ms=self._account.first_token_ms,
            total_ms=self._account.now(),
        )

    def _stop_reason(self) -> StopReason:
        if self._desk.budget.overdrawn:
            return "call_limit"
        return "deadline" if self._desk.timed_out and self._finish != "cancelled" else self._finish

    def _text(self) -> str:
        """The visible answer."""
        return "".join(part.text for part in self.exchange.parts[self._before :] if isinstance(part, Text))

    def _first_token_ms(self) -> int | None:
        """When the first visible text came, also when that was in the pass that runs."""
        first = self._pass.first_text if self._pass is not None else None
        if self._account.first_token_ms is not None or first is None:
            return self._account.first_token_ms
        return self._account.since(first)

    def report(self, wire: str) -> TurnReport:
        """What happened so far; `wire` is the protocol of who asked."""
        last, account = self.last, self._account
        return TurnReport(
            turn_id=self.id,
            conversation_id=self._conversation.id,
            message_id=self.message_id,
            user=self._ask.user,
            wire=wire,
            model=self._model.name,
            state=_state(last, self.waits),
            began=account.began_at,
            total_ms=last.total_ms if isinstance(last, Done) else account.now(),
            first_token_ms=self._first_token_ms(),
            stop_reason=last.stop_reason if isinstance(last, Done) else None,
            error=last.code if isinstance(last, Error) else None,
            usage=account.usage,
            passes=(
                *account.passes,
                *([account.running(self._pass.began, self._pass.first_text)] if self._pass else []),
            ),
            calls=tuple(self._desk.calls),
        )


def _begun(conversation: History, message_id: str, model: str) -> Exchange:
    """The exchange that goes on, or a new one, whose answer this is."""
    exchange = conversation.begun or Exchange(question="")
    exchange.answer_id, exchange.model = message_id, model
    exchange.recalled = tuple(item.id for item in conversation.recalled.items)
    return exchange


def _state(last: Done | Error | None, waits: bool) -> State:
    if last is None:
        return "waiting" if waits else "running"
    return "error" if isinstance(last, Error) else "done"
