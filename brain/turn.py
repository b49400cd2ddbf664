"""Rooms: the loop. Ask the model, read its text, run what it calls for, ask again with the results, until it is done.

*Pause* is the place where a pass's stream is closed; *resume* is the next request, with all that was said and the
blocks behind it. Cancelling is task cancellation from outside; `stop` ends a turn with a last event of its own.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Protocol

import anyio

from brain import blocks, prompts, transcript
from brain.alarm import Alarm
from brain.ask import Ask, Attachment
from brain.calls import Calls
from brain.desk import Desk
from brain.echo import Echo
from brain.errors import Interrupted, Interruption, ModelError, PrefillRefused
from brain.events import Done, Error, Event, Notice, StopReason, Thinking, Token, TurnStart
from brain.messages import Chunk, Exchange, Message, PassUsage, Resume, Said
from brain.registry import Registry
from brain.scanner import Call, Piece, Scanner
from brain.specialist import ModelView
from brain.usage import BYTES_A_TOKEN, Counted, size

log = logging.getLogger("brain")

CLOSING_SECONDS = 0.1
"""How long a model's stream may take to close; one that takes longer is let go."""

LEAST_OF_A_FILE = 256
"""Bytes of a text file that a model reads at least, however many there are."""

LAST_WORD_SECONDS = 2.0
"""How long a stream may take to tell its usage and to end, once the model has finished."""


class Model(ModelView, Protocol):
    """Whatever streams chunks for messages. Its errors are `ModelError`s.

    Attributes:
        name: as it is configured, such as `ollama:llama3`.
        stand_in: whether it is no language model.
        resume: how it goes on after a block; it may change when the server refuses.
        context_tokens: the room for prompt and answer, when known.
    """

    @property
    def name(self) -> str: ...
    @property
    def stand_in(self) -> bool: ...
    @property
    def resume(self) -> Resume: ...
    @property
    def context_tokens(self) -> int | None: ...

    def stream(self, messages: Sequence[Message], turn_pass: int = 0) -> AsyncGenerator[Chunk, None]:
        """Pass number `turn_pass` of a turn, from 0. Closing the generator closes the connection to the server."""


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
    """

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
        self._echo = Echo("")
        self._began = time.monotonic()
        self._system = prompts.system_prompt(
            registry.usable(ask.specialists), ask.limits, ask.syntax, system, blocks.harmless(ask.system)
        )
        attachments = (*conversation.attachments, *ask.attachments)
        self._desk = Desk(ask, registry, model, conversation.id, attachments, _block_bytes(model.context_tokens))
        self._alarm: Alarm | None = None
        self._stopped: Interruption | None = None
        self._passes = 0
        self._finish: StopReason = "complete"
        self._last_word: float | None = None  # until when a stream whose model has finished is read
        self._first_token: float | None = None
        self._ended = "cancelled"
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
        """The turn, as it happens. Closing the generator ends everything that runs for it."""
        yield TurnStart(self.id, self._conversation.id, self._model.name, "mono", self._ask.limits)
        if self._model.stand_in:
            yield Notice("stand_in", "No language model is connected: a rule-based stand-in answers.")
        if self._conversation.trimmed:
            yield _left_out(self._conversation.trimmed)
        self._alarm = Alarm(self._ask.limits.turn_seconds, self._silence)
        if self._stopped is not None:
            self._alarm.ring(self._stopped)
        error = None
        try:
            async with aclosing(self._work(self._alarm)) as work:
                async for event in work:
                    yield event
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
            self._alarm.close()
        last = error or self._done()
        self._ended = last.code if isinstance(last, Error) else last.stop_reason
        yield self._usage.total()
        yield last

    async def _work(self, alarm: Alarm) -> AsyncGenerator[Event, None]:
        async with aclosing(self._one_way(alarm)) as before:
            async for event in before:
                yield event
        while True:
            overdrawn = self._desk.budget.overdrawn
            self._passes += 1
            calls = Calls(self._desk, self._passes)
            async with aclosing(self._pass(alarm, calls)) as events:
                async for event in events:
                    yield event
            if not calls or overdrawn:
                return

    async def _one_way(self, alarm: Alarm) -> AsyncGenerator[Event, None]:
        """What attachments ask for by themselves; its blocks stand before the user's text."""
        calls = Calls(self._desk, self._passes)
        new = self._ask.attachments
        question = blocks.harmless(self._ask.message)
        notes = [] if self._ask.now is None else [prompts.clock_note(self._ask.now, self._ask.time_zone)]
        notes += [prompts.attachments_note(new), *self._texts(new)] if new else []
        for attachment in new if self._with_one_way else ():
            for specialist in self._registry.usable(self._ask.specialists):
                if attachment.kind in specialist.activates_on:
                    calls.take_one_way(specialist.name, attachment)
        calls.complete()
        try:
            async with aclosing(self._told(calls, alarm)) as events:
                async for event in events:
                    yield event
        finally:
            self.exchange.question = "\n\n".join([*notes, *(part.block for part in calls.parts()), question])

    def _texts(self, attachments: Sequence[Attachment]) -> list[str]:
        """The text files among them, all together about as large as a block may be."""
        texts = [(attachment, text) for attachment in attachments if (text := attachment.text)]
        found, room = [], self._desk.block_bytes
        for n, (attachment, text) in enumerate(texts):
            shown = blocks.result_text(text, max(LEAST_OF_A_FILE, room // (len(texts) - n)))
            room -= size(shown)
            found.append(prompts.attachment_text(attachment, shown))
        return found

    async def _pass(self, alarm: Alarm, calls: Calls) -> AsyncGenerator[Event, None]:
        """One request to the model, and the calls in its answer."""
        scanner = Scanner(self._ask.syntax)
        said: list[str] = []
        self._finish, self._last_word, over = "complete", None, False
        try:
            stream, chunk = await self._opened(alarm)
        except BaseException:
            self._usage.pass_ended()
            raise
        async with AsyncExitStack() as leaving:
            leaving.callback(self._record, said, calls)
            leaving.push_async_callback(calls.stop, "cancelled")
            leaving.push_async_callback(_closed, stream)
            if self._passes == 1 and len(self._earlier) < len(self._conversation.exchanges):
                yield _left_out(len(self._conversation.exchanges) - len(self._earlier))
            while not over and not calls:
                over = chunk is None
                for piece in self._scanned(scanner, chunk):
                    if isinstance(piece, str):
                        if self._first_token is None:
                            self._first_token = time.monotonic()
                        said.append(piece)
                        yield Token(piece)
                    elif isinstance(piece, Thinking):
                        yield piece
                    elif not _taken(calls, piece):
                        over = True
                        break
                if not over and not calls:
                    chunk = await self._next(stream, alarm)
            if over:
                await _closed(stream)
                calls.complete()
            else:
                reader = asyncio.create_task(self._read_on(stream, scanner, calls), name="read on")
                leaving.push_async_callback(_ended, reader)
            async with aclosing(self._told(calls, alarm)) as events:
                async for event in events:
                    yield event

    async def _opened(self, alarm: Alarm) -> tuple[AsyncGenerator[Chunk, None], Chunk | None]:
        """The model's stream and its first chunk.

        Asked once more when the server does not continue an answer, or has no room for all that was said before.
        """
        for _ in range(2):
            messages = transcript.messages(self._system, self._exchanges(), self._model.resume)
            resumed = messages[-1].role == "assistant"
            self._echo = Echo(messages[-1].content if resumed else "")
            self._usage.asked(messages)
            stream = self._model.stream(messages, self._passes - 1)
            try:
                with alarm:
                    return stream, await anext(stream, None)
            except PrefillRefused:
                await _closed(stream)
                log.info("model %s does not continue a started answer; it is asked to go on instead", self._model.name)
            except BaseException as error:
                await _closed(stream)
                if not (isinstance(error, ModelError) and error.code == "model_context" and self._trim()):
                    raise
                log.info("turn %s: its history was too long for the model", self.id)
        raise ModelError("model_failed", "The model server refused the request.")

    async def _next(self, stream: AsyncGenerator[Chunk, None], alarm: Alarm) -> Chunk | None:
        """The next chunk; None at the end, also when a model that has finished leaves its stream open."""
        if self._last_word is None:
            with alarm:
                return await anext(stream, None)
        try:
            with alarm:
                async with asyncio.timeout_at(self._last_word):
                    return await anext(stream, None)
        except TimeoutError:
            log.info("turn %s: the model's stream was left open behind its end", self.id)
            return None

    def _exchanges(self) -> list[Exchange]:
        return [*self._earlier, self.exchange]

    def _trim(self) -> bool:
        """Leaves out the older half of the history when it was the first to be asked with, once; whether it did."""
        if self._passes > 1 or len(self._earlier) < max(1, len(self._conversation.exchanges)):
            return False
        self._earlier = self._earlier[(len(self._earlier) + 1) // 2 :]
        return True

    def _scanned(self, scanner: Scanner, chunk: Chunk | None) -> Sequence[Piece]:
        """The pieces that a chunk, or the end of the pass, settles."""
        if isinstance(chunk, str):
            if not self._echo.settled:
                chunk = self._echo.feed(chunk)
            self._usage.heard(chunk)
            return scanner.feed(chunk)
        if chunk is None:
            held = self._echo.close()
            self._usage.heard(held)
            return [*scanner.feed(held), *scanner.close()]
        if isinstance(chunk, Thinking):
            self._usage.heard(chunk.text)
            return (chunk,)
        if isinstance(chunk, PassUsage):
            self._usage.counted(chunk)
        else:
            self._finish = "length" if chunk.reason == "length" else "complete"
            now = asyncio.get_running_loop().time()
            self._last_word = now + min(LAST_WORD_SECONDS, self._silence / 2)
        return ()

    async def _read_on(self, stream: AsyncGenerator[Chunk, None], scanner: Scanner, calls: Calls) -> None:
        """Behind a call: reads on for further calls, until something else comes.

        What fails here fails behind a complete call, and ends the pass as a closing would.
        """
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(self._silence) as silence:
                async for chunk in stream:
                    if not all(_taken(calls, piece) for piece in self._scanned(scanner, chunk)):
                        return
                    silence.reschedule(self._last_word or clock() + self._silence)
                all(_taken(calls, piece) for piece in self._scanned(scanner, None))
        except (ModelError, TimeoutError) as failure:
            log.info("turn %s: the model's stream ended behind a call: %s", self.id, failure)
        except Exception:
            log.exception("turn %s: the model's stream failed behind a call", self.id)
        finally:
            await _closed(stream)
            calls.complete()

    async def _told(self, calls: Calls, alarm: Alarm) -> AsyncGenerator[Event, None]:
        """What happens to the calls; when the turn is interrupted, how each of them ended."""
        alarm.patient = True
        try:
            async with aclosing(calls.events(alarm)) as events:
                async for event in events:
                    yield event
        except Interrupted as interruption:
            for event in await calls.stop("deadline" if interruption.reason == "deadline" else "cancelled"):
                yield event
            raise
        finally:
            alarm.patient = False
            await calls.stop("cancelled")

    def _record(self, said: list[str], calls: Calls) -> None:
        if said:
            self.exchange.parts.append(Said("".join(said), self._passes))
        self.exchange.parts += calls.parts()
        self._usage.pass_ended()

    def _done(self) -> Done:
        now = time.monotonic()
        first = self._first_token
        return Done(
            stop_reason="call_limit" if self._desk.budget.overdrawn else self._finish,
            message_id=self.message_id,
            text=self.exchange.visible,
            calls=self._desk.budget.calls,
            passes=self._passes,
            first_token_ms=None if first is None else round((first - self._began) * 1000),
            total_ms=round((now - self._began) * 1000),
        )


def _left_out(trimmed: int) -> Notice:
    return Notice("trimmed", f"The oldest {trimmed} messages no longer fit and were left out.")


def _taken(calls: Calls, piece: Piece) -> bool:
    """Takes on a call; false when the pass is over: at whatever is none, or with a call over the cap."""
    return isinstance(piece, Call) and calls.take(piece)


async def _closed(stream: AsyncGenerator[Chunk, None]) -> None:
    """Closes a stream, also when whoever waits is being cancelled; how its closing fails matters to nobody."""
    with anyio.move_on_after(CLOSING_SECONDS, shield=True):
        try:
            await stream.aclose()
        except Exception:
            log.warning("a model's stream failed while it was closed", exc_info=True)


async def _ended(reader: "asyncio.Task[None]") -> None:
    """Cancels the reader unless it is done, and waits until it is."""
    reader.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({reader})


def _block_bytes(context_tokens: int | None) -> int:
    """How large a block may be: a fifth of the model's context, if that is less than the usual."""
    if context_tokens is None:
        return blocks.BLOCK_BYTES
    return min(blocks.BLOCK_BYTES, max(512, context_tokens * BYTES_A_TOKEN // 5))


def _interruption_error(interruption: Interrupted) -> Error:
    if interruption.reason == "shutdown":
        return Error("shutdown", "The server is shutting down; ask again in a moment.", recoverable=True)
    return Error("model_failed", "The model stopped sending; ask again.", recoverable=True)
