"""Rooms: the loop. Ask the model, read its text, run what it calls for, ask again with the results, until it is done.

*Pause* is the place where a pass's stream is closed; *resume* is the next request, with all that was said and the
blocks behind it. Cancelling is task cancellation from outside; `stop` ends a turn with a last event of its own.
"""

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from brain import blocks, prompts, transcript
from brain.alarm import Alarm
from brain.ask import Ask, Attachment
from brain.calls import Calls
from brain.desk import Desk
from brain.errors import Interrupted, Interruption, ModelError
from brain.events import Done, Error, Event, Notice, StopReason, TurnStart
from brain.messages import Exchange, Message
from brain.passes import Model, Pass
from brain.registry import Registry
from brain.usage import BYTES_A_TOKEN, Counted, size

log = logging.getLogger("brain")

LEAST_OF_A_FILE = 256
"""Bytes of a text file that a model reads at least, however many there are."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a turn goes on from: what was said before, and the files that came with it.

    `trimmed` says how many of the oldest exchanges were left out.
    """

    id: str
    exchanges: Sequence[Exchange] = ()
    attachments: Sequence[Attachment] = ()
    trimmed: int = 0


class Turn:
    """One turn: made of what was asked, then read through `events`, once.

    Args:
        system: the operator's instructions.
        silence: seconds without anything from the model, after which it has failed.
        one_way: whether attachments may call specialists before the model does.

    Attributes:
        exchange: question and answer so far, to be recorded however the turn ends.
        began: when, as `time.monotonic` tells it.
    """

    __slots__ = (
        "_alarm", "_ask", "_conversation", "_desk", "_earlier", "_ended", "_finish", "_first_token", "_left_out",
        "_model", "_passes", "_registry", "_silence", "_stopped", "_system", "_usage", "_with_one_way", "began",
        "exchange", "id", "message_id",
    )  # fmt: skip

    def __init__(
        self,
        ask: Ask,
        conversation: Conversation,
        model: Model,
        registry: Registry,
        *,
        system: str = "",
        silence: float = 60.0,
        one_way: bool = True,
    ) -> None:
        self.id = f"t{secrets.token_hex(8)}"
        self.message_id = f"m{secrets.token_hex(8)}"
        self.exchange = Exchange(question="")
        self._ask = ask
        self._conversation = conversation
        self._earlier = list(conversation.exchanges)
        self._model = model
        self._registry = registry
        self._silence = silence
        self._with_one_way = one_way
        self.began = time.monotonic()
        self._system = prompts.system_prompt(
            registry.usable(ask.specialists), ask.limits, ask.syntax, system, blocks.harmless(ask.system)
        )
        attachments = (*conversation.attachments, *ask.attachments)
        self._desk = Desk(ask, registry, model, conversation.id, attachments, _block_bytes(model.context_tokens))
        self._alarm: Alarm | None = None
        self._stopped: Interruption | None = None
        self._passes = 0
        self._finish: StopReason = "complete"
        self._first_token: float | None = None
        self._ended = "cancelled"
        self._left_out = 0  # exchanges, of which is still to be told
        self._usage = Counted()

    def stop(self, reason: Interruption) -> None:
        """Ends the turn with an event that says why, at its next wait."""
        self._stopped = self._stopped or reason
        if self._alarm is not None:
            self._alarm.ring(reason)

    @property
    def outcome(self) -> str:
        """How it ended, in a few words for the log."""
        return f"{self._ended}, {self._desk.budget.calls} calls, {self._passes} passes"

    async def events(self) -> AsyncGenerator[Event, None]:
        """The turn, event by event. Closing the generator ends everything that runs for it."""
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(self) -> AsyncGenerator[Sequence[Event], None]:
        """The turn, as it happens: the events that came together. Closing the generator ends all that runs for it."""
        yield self._beginning()
        self._alarm = alarm = Alarm(self._ask.limits.turn_seconds, self._silence)
        if self._stopped is not None:
            alarm.ring(self._stopped)
        error = None
        try:
            if self._ask.attachments:
                async with aclosing(self._one_way(alarm)) as before:
                    async for event in before:
                        yield (event,)
            else:
                self.exchange.question = "\n\n".join([*self._notes(), self._question()])
            more = True
            while more:
                overdrawn = self._desk.budget.overdrawn
                self._passes += 1
                one = self._pass(alarm)
                try:
                    async with one:
                        while events := await one.read():
                            yield events if not self._left_out else [self._trimmed(), *events]
                            events = ()  # not kept while the next are waited for
                        async with aclosing(one.told()) as told:
                            async for event in told:
                                yield (event,)
                finally:
                    self._record(one)
                more = one.calls is not None and not overdrawn
        except Interrupted as interruption:
            if interruption.reason == "deadline":
                self._finish = "deadline"
            else:
                error = _interruption_error(interruption)
        except ModelError as failure:
            log.warning("turn %s: %s", self.id, failure)
            error = Error(failure.code, failure.message, recoverable=failure.recoverable)
        except Exception:
            log.exception("turn %s failed", self.id)
            error = Error("internal", "Something went wrong on the server; it was logged.", recoverable=True)
        finally:
            alarm.close()
        last = error or self._done()
        self._ended = last.code if isinstance(last, Error) else last.stop_reason
        yield self._usage.total(), last

    def _beginning(self) -> Sequence[Event]:
        """What can be told before anything is asked."""
        events: list[Event] = [TurnStart(self.id, self._conversation.id, self._model.name, "mono", self._ask.limits)]
        if self._model.stand_in:
            events.append(Notice("stand_in", "No language model is connected: a rule-based stand-in answers."))
        if self._conversation.trimmed:
            events.append(_left_out(self._conversation.trimmed))
        return events

    async def _one_way(self, alarm: Alarm) -> AsyncGenerator[Event, None]:
        """What attachments ask for by themselves; its blocks stand before the user's text."""
        new = self._ask.attachments
        notes = [*self._notes(), prompts.attachments_note(new), *self._texts(new)]
        calls = Calls(self._desk, self._passes)
        for attachment in new if self._with_one_way else ():
            for specialist in self._registry.usable(self._ask.specialists):
                if attachment.kind in specialist.activates_on:
                    calls.take_one_way(specialist.name, attachment)
        calls.complete()
        try:
            async with aclosing(calls.events(alarm)) as events:
                async for event in events:
                    yield event
        finally:
            self.exchange.question = "\n\n".join([*notes, *(part.block for part in calls.parts()), self._question()])

    def _notes(self) -> list[str]:
        return [] if self._ask.now is None else [prompts.clock_note(self._ask.now, self._ask.time_zone)]

    def _question(self) -> str:
        return blocks.harmless(self._ask.message)

    def _texts(self, attachments: Sequence[Attachment]) -> list[str]:
        """The text files among them, all together about as large as a block may be."""
        texts = [(attachment, text) for attachment in attachments if (text := attachment.text)]
        found, room = [], self._desk.block_bytes
        for n, (attachment, text) in enumerate(texts):
            shown = blocks.result_text(text, max(LEAST_OF_A_FILE, room // (len(texts) - n)))
            room -= size(shown)
            found.append(prompts.attachment_text(attachment, shown))
        return found

    def _pass(self, alarm: Alarm) -> Pass:
        return Pass(
            self._passes, self._model, self._messages, self._trim, self._desk, alarm, self._usage, self._silence
        )

    def _messages(self) -> list[Message]:
        return transcript.messages(self._system, [*self._earlier, self.exchange], self._model.resume)

    def _trim(self) -> bool:
        """Leaves out the older half of the history when it was the first to be asked with, once; whether it did."""
        if self._passes > 1 or len(self._earlier) < max(1, len(self._conversation.exchanges)):
            return False
        self._earlier = self._earlier[(len(self._earlier) + 1) // 2 :]
        self._left_out = len(self._conversation.exchanges) - len(self._earlier)
        return True

    def _trimmed(self) -> Event:
        left_out, self._left_out = self._left_out, 0
        return _left_out(left_out)

    def _record(self, one: Pass) -> None:
        """Keeps what a pass said, however it ended."""
        self.exchange.parts += one.parts()
        self._usage.pass_ended()
        self._finish = one.finish
        if self._first_token is None:
            self._first_token = one.first_text

    def _done(self) -> Done:
        now = time.monotonic()
        first = self._first_token
        return Done(
            stop_reason="call_limit" if self._desk.budget.overdrawn else self._finish,
            message_id=self.message_id,
            text=self.exchange.visible,
            calls=self._desk.budget.calls,
            passes=self._passes,
            first_token_ms=None if first is None else round((first - self.began) * 1000),
            total_ms=round((now - self.began) * 1000),
        )


def _left_out(trimmed: int) -> Notice:
    return Notice("trimmed", f"The oldest {trimmed} messages no longer fit and were left out.")


def _block_bytes(context_tokens: int | None) -> int:
    """How large a block may be: a fifth of the model's context, if that is less than the usual."""
    if context_tokens is None:
        return blocks.BLOCK_BYTES
    return min(blocks.BLOCK_BYTES, max(512, context_tokens * BYTES_A_TOKEN // 5))


def _interruption_error(interruption: Interrupted) -> Error:
    if interruption.reason == "shutdown":
        return Error("shutdown", "The server is shutting down; ask again in a moment.", recoverable=True)
    return Error("model_failed", "The model stopped sending; ask again.", recoverable=True)
