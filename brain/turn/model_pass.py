"""One pass of a turn. A request to the model, its answer scanned read by read, and the calls in it."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Protocol, Self

import anyio

from brain.errors import ModelError, PrefillRefused
from brain.events import Event, Notice, Resume, StopReason, SyntaxName, Thinking, Token
from brain.markers.scanner import Piece, Scanner
from brain.messages import Call, Chunk, Finish, Message, NativeCall, Part, PassUsage, PromptProgress, Text
from brain.plugins.context import ModelView
from brain.prompts.templates import clock_of, marker
from brain.text import TextBuffer
from brain.turn import notices
from brain.turn.accounting import Counted
from brain.turn.call_group import CallGroup
from brain.turn.call_policy import CallPolicy
from brain.turn.deadline import Deadline
from brain.turn.prefill_echo import Echo
from brain.turn.repetition import Guard
from brain.turn.stop_sequences import Stops
from brain.turn_request import UNSAID, Sampling

log = logging.getLogger("brain")

ADJACENT_SECONDS = 0.1
"""Time limit for the model's next chunk after a call, once all calls are answered; covers 10 tokens per second."""

LATE_SECONDS = 0.02
"""An event loop whose timer fires later than that was held up, and has not read yet what came meanwhile."""

CLOSING_SECONDS = 0.1
"""How long a model's stream may take to close; one that takes longer is let go."""

SENTENCE_ENDS = (".", "!", "?", "…", ":", "。", "！", "？")
SENTENCE_CLOSERS = "\"'”’»)]*_」』）"
"""What may stand behind the end of a sentence and belongs to it."""

PROMPT_LONG = 256
"""Tokens; a prompt of which fewer are to be read is read before anybody wonders."""
PROMPT_STEP = 0.05
"""Between two notices, the server has read at least this part of the prompt."""

LAST_WORD_SECONDS = 2.0
"""How long a stream may take to tell its usage and to end, once the model has finished."""


class Model(ModelView, Protocol):
    """Whatever streams chunks for messages. Its errors are `ModelError`s.

    Attributes:
        name: as it is configured, such as `ollama:llama3`.
        is_demo: whether it is no language model.
        resume: how it goes on after a block; it may change when the server refuses.
        context_tokens: the room for prompt and answer, when known.
        template: what its server tells of its chat template, if anything.
    """

    @property
    def name(self) -> str: ...
    @property
    def is_demo(self) -> bool: ...
    @property
    def resume(self) -> Resume: ...
    @property
    def context_tokens(self) -> int | None: ...
    @property
    def template(self) -> str: ...

    def stream(
        self, messages: Sequence[Message], turn_pass: int = 0, sampling: Sampling = UNSAID
    ) -> AsyncGenerator[Chunk, None]:
        """Pass number `turn_pass` of a turn, from 0. Closing the generator closes the connection to the server."""


class Pass:
    """One pass: `read` until it is over, then `told` of the calls. Leaving closes the stream and ends the calls.

    Args:
        number: counts the passes of the turn from 1.
        messages: what the model is asked, as it resumes at the moment.
        trim: leaves out a part of the history; false when there is nothing left to leave out.
        silence: seconds without anything from the model behind a call, after which the pass ends.
        sampling: how the client wants the model to write.

    Attributes:
        began: when (`time.monotonic`).
        calls: those that the model made, if any.
        finish: why the model stopped.
        first_text: when the first text came (`time.monotonic`), if any did.
        unknown_tool: the name of a native tool call that is no specialist's, and was left out.
    """

    __slots__ = (
        "_alarm", "_desk", "_echo", "_guard", "_heard_at", "_last_word", "_messages", "_model", "_next_step",
        "_number", "_over", "_patience", "_reader", "_room", "_said", "_sampling", "_scanner", "_silence", "_stops",
        "_stream", "_thought_guard", "_trim", "_usage", "began", "calls", "finish", "first_text", "unknown_tool",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        model: Model,
        messages: Callable[[], list[Message]],
        trim: Callable[[], bool],
        desk: CallPolicy,
        alarm: Deadline,
        usage: Counted,
        silence: float,
        sampling: Sampling = UNSAID,
    ) -> None:
        self.began = time.monotonic()
        self.calls: CallGroup | None = None
        self.finish: StopReason = "complete"
        self.first_text: float | None = None
        self.unknown_tool: str | None = None
        self._number = number
        self._model = model
        self._messages = messages
        self._trim = trim
        self._desk = desk
        self._room = desk.room
        self._alarm = alarm
        self._usage = usage
        self._silence = silence
        self._stream: AsyncGenerator[Chunk, None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._scanner = Scanner(desk.ask.syntax)
        self._echo = Echo("")
        self._said = TextBuffer()
        self._sampling = sampling
        self._stops = Stops(desk.ask.stop) if desk.ask.stop else None
        self._guard, self._thought_guard = Guard(), Guard()
        self._over = False
        self._next_step = 0.0
        self._last_word: float | None = None  # until when a stream whose model has finished is read
        self._heard_at = 0.0  # when the last chunk after a call came, or reading on began
        self._patience: asyncio.TimerHandle | None = None  # while the stream is read after a call

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            await self._close()
        finally:
            if self.calls is not None:
                await self.calls.stop("cancelled")

    async def read(self) -> Sequence[Event]:
        """What the model says, as much as comes at once; nothing when it is over or made a call."""
        while not self._over and self.calls is None:
            if self._desk.inbox and self._may_be_left():
                self._over = True
                return self._flushed()
            if self._stream is None:
                chunk = await self._opened()
            elif self._last_word is None:
                chunk = await self._next(self._stream)
            else:
                chunk = await self._last(self._stream, self._last_word)
            if events := self._heard(chunk):
                return events
        return ()

    def nudge(self) -> None:
        """Something is to be put in: a wait for the model's next words ends, if what it said may stand alone."""
        if self.calls is None and self._may_be_left():
            self._alarm.nudge()

    async def told(self) -> AsyncGenerator[Sequence[Event], None]:
        """What happens to the calls; meanwhile the stream is read on for further ones."""
        if self.calls is None:
            return
        if self._over:
            await self._close()
            self.calls.complete()
        elif self._stream is not None:
            complete = self.calls.complete
            self._reader = asyncio.create_task(self._read_on(self._stream), name="read on")
            self._reader.add_done_callback(lambda reader: complete())
        async with aclosing(self.calls.events(self._alarm)) as batches:
            async for events in batches:
                yield events

    def parts(self) -> list[Part]:
        """What was said, and the calls with their blocks."""
        said = self._said.whole()
        return [*([Text(said, self._number)] if said else ()), *(self.calls.parts() if self.calls is not None else ())]

    async def _opened(self) -> Chunk | None:
        """The first chunk of the model's stream.

        Asked once more when the server does not continue an answer, or has no room for all that was said before.
        """
        for _ in range(2):
            messages = self._messages()
            last = messages[-1]
            is_started = last.role == "assistant"
            self._echo = Echo(last.content if is_started else clock_of(last.content), is_line=not is_started)
            self._usage.asked(messages)
            self._alarm.await_first_token()
            stream = self._stream = self._model.stream(messages, self._number - 1, self._sampling)
            try:
                return await self._next(stream)
            except PrefillRefused:
                await _closed(stream)
                log.info("model %s does not continue a started answer; it is asked to go on instead", self._model.name)
            except ModelError as error:
                await _closed(stream)
                if error.code != "model_context" or not self._trim():
                    raise
                log.info("the history was too long for the model")
        raise ModelError("model_failed", "The model server refused the request.")

    async def _next(self, stream: AsyncGenerator[Chunk, None]) -> Chunk | None:
        """The next chunk; None at the end."""
        with self._alarm:
            try:
                return await stream.__anext__()  # anext() with a default costs as much as all the rest of this
            except StopAsyncIteration:
                self._stream = None  # it closed itself
                return None
        return ""  # nudged

    async def _last(self, stream: AsyncGenerator[Chunk, None], until: float) -> Chunk | None:
        """The next chunk of a model that has finished; None at the end, also when it leaves its stream open."""
        try:
            async with asyncio.timeout_at(until):
                return await self._next(stream)
        except TimeoutError:
            log.info("the model's stream was left open behind its end")
            return None

    def _heard(self, chunk: Chunk | None) -> Sequence[Event]:
        """What a chunk, or the end of the stream, lets happen; calls are taken on."""
        if isinstance(chunk, PromptProgress):
            self._usage.counted(PassUsage(chunk.of + chunk.cached, 0, chunk.cached))
            return self._prompt_read(chunk)
        self._alarm.end_first_wait()
        events: list[Event] = []
        self._over = chunk is None
        for piece in self._scanned(chunk):
            if isinstance(piece, str):
                text = piece if self._stops is None else self._stops.feed(piece)
                if text:
                    events.append(self._token(text))
                if self._guard.found:
                    events.append(self._repeated())
                    break
                if self._stops is not None and self._stops.found:
                    self._over = True
                    break
            elif isinstance(piece, Thinking):
                thought = self._thought_guard.feed(piece.text)
                self._desk.asides.think(thought, self._room - self._desk.room)
                events.append(Thinking(thought))
                if self._thought_guard.found:
                    events.append(self._repeated())
                    break
            else:
                events += self._flushed()
                if not self._taken(piece):
                    self._over = True
                    break
        return events if chunk is not None else [*events, *self._flushed()]

    def _prompt_read(self, progress: PromptProgress) -> Sequence[Event]:
        """Tells how much of a long prompt the server has read, in steps, so that no server can flood the reader."""
        fraction = progress.read / progress.of if progress.of >= PROMPT_LONG else 1.0
        if fraction < self._next_step or fraction == 1.0:
            return ()
        self._next_step = fraction + PROMPT_STEP
        return (notices.prompt_progress(progress.read, progress.of),)

    def _repeated(self) -> Notice:
        """Ends the pass. The answer is what was streamed, up to here."""
        self._over, self.finish = True, "repetition"
        return notices.repetition()

    def _token(self, text: str) -> Token:
        text = self._guard.feed(text)
        if self.first_text is None:
            self.first_text = time.monotonic()
        self._said.add(text)
        self._desk.room -= len(text)
        if self._desk.room <= 0:
            self._over, self.finish = True, "length"
        return Token(text)

    def _flushed(self) -> Sequence[Event]:
        """What was held back of the text, for it could have been the beginning of a stop."""
        held = self._stops.close() if self._stops is not None and not self._guard.found else ""
        return (self._token(held),) if held else ()

    @property
    def stopped(self) -> bool:
        """Whether one of the client's stop texts came, so that the answer is complete."""
        return self._stops is not None and self._stops.found

    def _may_be_left(self) -> bool:
        """Whether what was said in this pass may stand alone: it is nothing yet, or ends a sentence or a line."""
        if self._scanner.holds or self._last_word is not None:
            return False
        end = self._said.end()
        return not end or end.endswith("\n") or end.rstrip().rstrip(SENTENCE_CLOSERS).endswith(SENTENCE_ENDS)

    def _scanned(self, chunk: Chunk | None) -> Sequence[Piece]:
        """The pieces that a chunk, or the end of the stream, settles."""
        if isinstance(chunk, str):
            if not self._echo.settled:
                chunk = self._echo.feed(chunk)
            self._usage.heard(chunk)
            return self._scanner.feed(chunk)
        if chunk is None:
            self._usage.read_whole()
            return self._closed_scanner()
        if isinstance(chunk, Thinking):
            self._usage.heard(chunk.text)
            return (chunk,)
        if isinstance(chunk, NativeCall):
            return self._native(chunk)
        if isinstance(chunk, PassUsage):
            self._usage.counted(chunk)
        elif isinstance(chunk, Finish):
            self._usage.read_whole()
            self.finish = "length" if chunk.reason == "length" else "complete"
            now = asyncio.get_running_loop().time()
            self._last_word = now + min(LAST_WORD_SECONDS, self._silence / 2)
        return ()

    def _closed_scanner(self) -> list[Piece]:
        """The pieces that were held back."""
        held = self._echo.close()
        self._usage.heard(held)
        return [*self._scanner.feed(held), *self._scanner.close()]

    def _native(self, chunk: NativeCall) -> Sequence[Piece]:
        """A native call of a specialist ends the text of the pass as a marker does; another one is left out."""
        self._usage.heard(chunk.name + chunk.arguments)
        if chunk.name not in self._desk.tools and self._desk.registry.get(chunk.name) is None:
            self.unknown_tool = chunk.name
            return ()
        return [*self._closed_scanner(), _as_call(chunk, self._desk.ask.syntax[0])]

    def _taken(self, piece: Piece) -> bool:
        """Takes on a call; false when the pass is over: at whatever is none, or with a call over the cap."""
        if not isinstance(piece, Call):
            return False
        if self.calls is None:
            self.calls = CallGroup(self._desk, self._number, self._set_patience)
        return self.calls.take(piece)

    def _wait_until(self) -> float:
        """Returns the loop time until which the next chunk after a call is awaited.

        A model that has finished does not pause: its usage, which the server reports last, is still to come.
        """
        assert self.calls is not None
        if self._last_word is not None:
            return self._last_word
        is_pending = self.calls.open or self._scanner.holds
        return self._heard_at + (self._silence if is_pending else ADJACENT_SECONDS)

    def _set_patience(self) -> None:
        """Moves the end of the wait for the next chunk, after a chunk and when all calls so far are answered."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = asyncio.get_running_loop().call_at(self._wait_until(), self._lose_patience)

    def _lose_patience(self) -> None:
        """Ends the reading on; if the event loop was held up, only after it has read what came meanwhile."""
        assert self._reader is not None
        loop = asyncio.get_running_loop()
        if loop.time() - self._wait_until() > LATE_SECONDS:
            self._patience = loop.call_later(LATE_SECONDS, self._reader.cancel)
        else:
            self._reader.cancel()

    async def _read_on(self, stream: AsyncGenerator[Chunk, None]) -> None:
        """Reads on for adjacent calls: until something else comes, or nothing does for too long.

        A failure here comes after a complete call, and ends the pass as the end of the stream would.
        """
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        self._patience = loop.call_at(self._wait_until(), self._lose_patience)
        try:
            async for chunk in stream:
                if not all(self._taken(piece) for piece in self._scanned(chunk)):
                    return
                self._heard_at = loop.time()
                self._set_patience()
            all(self._taken(piece) for piece in self._scanned(None))
        except ModelError as failure:
            log.info("the model's stream ended behind a call: %s", failure)
        except Exception:
            log.exception("the model's stream failed behind a call")
        finally:
            self._patience.cancel()
            self._patience = None
            self._over = True
            await _closed(stream)

    async def _close(self) -> None:
        """Closes the stream, by its reader if there is one."""
        if self._reader is not None:
            self._reader.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({self._reader})
            self._reader = None  # its cancellation remembers us
        if self._stream is not None:  # also behind a reader that was cancelled before its first step
            await _closed(self._stream)
            self._stream = None


async def _closed(stream: AsyncGenerator[Chunk, None]) -> None:
    """Closes a stream, also when whoever waits is being cancelled; how its closing fails matters to nobody."""
    with anyio.move_on_after(CLOSING_SECONDS, shield=True):
        try:
            await stream.aclose()
        except Exception:
            log.warning("a model's stream failed while it was closed", exc_info=True)


def _as_call(native: NativeCall, syntax: SyntaxName) -> Call:
    """Reads a native call as if the model had written it as a marker, under the same limits.

    What cannot be read does not get into the transcript, since no scanner looked for delimiters in it.
    """
    scanner = Scanner(("bracket",))
    pieces = [*scanner.feed(f"SPECIALIST_REQUEST[{native.name}:{native.arguments.strip() or '{}'}]"), *scanner.close()]
    call = pieces[0] if pieces else None
    if isinstance(call, Call) and call.code is not None:
        call.marker = ""
        return call
    if not isinstance(call, Call) or call.params is None or len(pieces) > 1:
        reason = "its arguments are no JSON object; write the request again"
        return Call(native.name, code="malformed", text=reason)
    call.marker = marker(call.name, call.params, syntax)
    return call
