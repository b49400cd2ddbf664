"""One pass of a turn: a request to the model, the scanned answer, and the calls in it."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from brain.errors import ModelError, PrefillRefused, ToolsRefused
from brain.events import CallCode, Event, MarkerSyntax, Notice, StopReason, Thinking, Token
from brain.markers.cursor import MARKER_LIMIT, TOO_LONG, UNNAMED
from brain.markers.scanner import PASS_END, Piece, ReasoningEnd, Scanner
from brain.messages import Call, Chunk, Finish, NativeCall, Part, PassUsage, PromptProgress, Steer, Text
from brain.models.circuit_breaker import short_wait
from brain.models.model import PassRequest
from brain.models.native_calls import find_offered
from brain.prompts.templates import clock_of, marker
from brain.strict_json import decode_object
from brain.text import SPECIALIST_NAME, TextBuffer
from brain.turn import notices
from brain.turn.call_group import CallGroup
from brain.turn.setup import TurnSetup
from brain.turn.state import TurnState
from brain.turn.strategy import Plan
from brain.turn.tag_filter import OutputFilter, Shown
from brain.turn.text_filters import PrefillEcho, RepetitionGuard, StopSequences
from brain.turn_request import Sampling, marker_syntaxes

log = logging.getLogger("brain")

ADJACENT_SECONDS = 0.1
"""Time limit for the model's next chunk after a call, once all calls have ended; enough for 10 tokens per second."""
LATE_SECONDS = 0.02
"""If a timer fires later than this, the event loop was blocked and has chunks to read first."""
CLOSE_SECONDS = 0.1
"""Time limit for closing a model's stream."""
LAST_CHUNK_SECONDS = 2.0
"""Time limit for the usage and the end of the stream, once the model has finished."""

SEPARATOR = "\n\n"
"""Separates the text before an injected message from the text after it."""
SENTENCE_ENDS = (".", "!", "?", "…", ":", "。", "！", "？")
SENTENCE_CLOSERS = "\"'”’»)]*_」』）"
"""Characters after the end of a sentence that belong to it."""

LONG_PROMPT = 256
"""Shortest prompt, in tokens, whose progress is shown."""
PROMPT_STEP = 0.05
"""Share of the prompt between two notices."""

UNUSED = Scanner(())
"""The scanner of a pass that has not sent its request. It is fed nothing."""
NO_ARGUMENTS = "the call has no arguments; send an object, {} if none is needed"
PROPERTY_KEYWORDS = ("properties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf")
"""Keywords of JSON Schema that may give an object properties."""


class ModelPass:
    """One pass: `read`, then `wait_calls`. `close` ends the stream and the calls, even if these fail.

    Attributes:
        first_text: Time of the first text on the `time.monotonic` clock, in seconds.
        calls: The calls of the model.
        is_paused: Whether the model waits for a call, so no text after it counts.
        finish: Why the model stopped.
        unknown_tool: Name of an unknown tool whose native call was ignored.
        text_length: Characters of text so far.
        was_interrupted: Whether Brain ended the pass before the model did.
        has_given_way: Whether a more urgent turn interrupted the pass, which is to be continued.
    """

    __slots__ = (
        "_call_timer", "_cancellations", "_echo", "_has_native_call", "_is_first", "_is_interrupted", "_is_native",
        "_is_open", "_is_over", "_is_reading", "_last_chunk_at", "_model", "_next_step", "_nth", "_number", "_output",
        "_plan", "_raw", "_read_until", "_sampling", "_scanner", "_separator", "_setup", "_shown_length",
        "_silent_seconds", "_state", "_stops", "_stream", "_task", "_text", "_text_guard", "_thinking_guard", "calls",
        "finish", "first_text", "has_given_way", "is_paused", "text_length", "unknown_tool", "was_interrupted",
    )  # fmt: skip

    def __init__(self, setup: TurnSetup, state: TurnState, plan: Plan) -> None:
        participant = plan.participant
        self.is_paused = False
        self.finish: StopReason = "complete"
        self.first_text: float | None = None
        self.unknown_tool: str | None = None
        self.text_length = 0
        self.was_interrupted = False
        self.has_given_way = False
        self._setup = setup
        self._state = state
        self._plan = plan
        self._model = participant.model
        self._is_first, participant.is_new = participant.is_new, False
        self._number = len(state.accounting.passes) + 1
        self.calls = CallGroup(setup, state, self._number, self._set_timer)
        self._nth = state.accounting.begin_pass(self._model)
        self._sampling = choose_sampling(setup, state, plan)
        self._separator = find_separator(state.own_parts)
        self._silent_seconds: float | None = None
        self._stream: AsyncGenerator[Chunk, None] | None = None
        self._echo = PrefillEcho("")
        self._is_native = False  # the request of the pass has tools
        self._has_native_call = False
        self._scanner = UNUSED
        self._stops = StopSequences(setup.request.stop) if setup.request.stop else None
        self._output = plan.output
        self._text = TextBuffer()  # of the answer
        self._raw = self._text if plan.output is None else TextBuffer()  # as the model wrote it
        self._shown_length = 0
        self._text_guard, self._thinking_guard = RepetitionGuard(), RepetitionGuard()
        self._is_open = False  # the first chunk was read
        self._is_over = False
        self._next_step = 0.0  # share of the prompt at which the next notice is due
        self._read_until: float | None = None  # when to stop reading after the model has finished
        self._last_chunk_at = 0.0  # time of the last chunk after a call
        self._call_timer: asyncio.TimerHandle | None = None  # interrupts a read after a call or the model's finish
        self._task: asyncio.Task[object] | None = None
        self._cancellations = 0  # of the task, before the pass
        self._is_reading = False
        self._is_interrupted = False

    async def read(self) -> None:
        """Read the model's stream, emit its text, and start its calls. The stream is closed if there are any.

        If the stream fails after a complete call, the pass ends as if the stream had ended.
        """
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancellations = self._task.cancelling()
        try:
            await self._open()
            self._is_open = True
            if self._stream is not None:
                await self._read(self._stream)
            if events := self._flush_text():
                self._state.emit(events)
        except Exception as failure:
            if not self.is_paused:
                if self._output is not None and self._stops is not None and (text := self._stops.close()):
                    self._state.emit((self._answer(text),))  # another model that continues reads it
                raise
            log.info("model stream failed after a call", exc_info=not isinstance(failure, ModelError))
        self._state.deadline.expect_nothing()
        if self.is_paused:
            self._stop_timer()
            await self._close_stream()
            self.calls.close()

    async def wait_calls(self) -> None:
        """Wait for the calls."""
        self.calls.close()
        await self.calls.wait()

    async def close(self, code: CallCode) -> None:
        """Close the stream. End calls that still run with this code."""
        self._state.deadline.expect_nothing()
        self._stop_timer()
        self.calls.cancel()
        try:
            await self._close_stream()
        finally:
            await self.calls.end(code)

    def steer(self) -> None:
        """End the current read for a message in the inbox, if the text so far can end here."""
        if not self.is_paused and self._can_be_interrupted():
            self._interrupt()

    def take(self, chunk: str | Thinking) -> bool:
        """Take a text while `_read` waits, without waking its task. Return False if `_read` must take it.

        It takes no text that may start a call or let a message of the inbox end the pass.
        """
        is_usual = self._is_reading and self._is_open and not self.is_paused and self._read_until is None
        is_text = isinstance(chunk, Thinking) or (self._echo.is_settled and self._scanner.is_plain(chunk))
        if not is_usual or not is_text or self._state.inbox:
            return False
        self._take(chunk)
        if self._is_over:
            self._interrupt()
        return True

    def give_way(self) -> None:
        """End the pass at once, for a turn that is more urgent, unless it runs calls."""
        if not self.is_paused:
            self.has_given_way = True
            self._interrupt()

    def end_unshown(self) -> None:
        """End the pass, because its time is over, unless it is writing the answer or runs calls."""
        if not self.is_paused and not self.has_shown:
            self._interrupt()

    def fail_silent(self, seconds: float) -> None:
        """Fail the pass, because the model sent nothing for this time."""
        self._silent_seconds = seconds
        self._interrupt()

    @property
    def has_shown(self) -> bool:
        """Whether the pass has shown text of the answer."""
        return self.first_text is not None

    def parts(self) -> list[Part]:
        """Return the text of the answer and the calls."""
        return self._parts(self._text.whole())

    def raw_parts(self) -> list[Part]:
        """Return the whole text, with tags, and the calls."""
        return self._parts(self._raw.whole())

    def _parts(self, text: str) -> list[Part]:
        return [*([Text(text, self._number)] if text else []), *self.calls.calls]

    @property
    def is_stopped(self) -> bool:
        """Whether a stop sequence of the client ended the answer."""
        return self._stops is not None and self._stops.is_found

    # Reading

    async def _open(self) -> None:
        """Send the request and take the first chunk.

        Try again, once each, if the server rejects a prefill or tools, has no room for the whole history, or asks for
        a short wait.
        """
        transcript, syntax = self._plan.participant.transcript, self._setup.request.syntax
        has_waited = False
        for _ in range(5):
            tools = transcript.tools
            if tools and not self._model.accepts_tools:
                tools = ()
            self._is_native = bool(tools)
            messages = transcript.messages(self._model.resume, is_native=self._is_native)
            last = messages[-1]
            is_started = last.is_unfinished
            self._scanner = Scanner(
                marker_syntaxes(syntax, is_native=self._is_native),
                self._model.template,
                is_continued=is_started,
                find_schema=self._state.policy.find_schema,
                stops=not self._plan.reads_on,
            )
            if is_started:
                self._separator = ""
            self._echo = PrefillEcho(last.content if is_started else clock_of(last.content), is_line=not is_started)
            self._state.accounting.begin_request(messages, tools)
            self._state.deadline.expect_first_token()
            choice = self._choose_tool() if tools else "auto"
            request = PassRequest(messages, self._nth, self._sampling, tools, choice, self._plan.decoding, self.take)
            self._stream = stream = self._setup.open_stream(self._model, self._number, request)
            try:
                await self._read(stream, is_first=True)
            except ToolsRefused:
                await self._close_stream()
                self._state.accounting.are_tools_refused = True
                transcript.use_markers()
                log.info("model %s rejects tools; Brain describes them in the prompt instead", self._model.name)
            except PrefillRefused:
                await self._close_stream()
                self._state.accounting.is_prefill_refused = True
                log.info("model %s rejects a prefill; Brain sends a message to continue instead", self._model.name)
            except ModelError as error:
                await self._close_stream()
                if error.code == "model_unreachable" or error.status is not None:
                    self._state.accounting.cancel_request()
                seconds = short_wait(error)
                if seconds is not None and not has_waited and seconds < self._state.deadline.seconds_left():
                    log.info("model %s is busy; Brain asks again in %d s", self._model.name, seconds)
                    has_waited = True
                    await self._wait(seconds)
                    if self._is_over:
                        return
                    continue
                left_out = transcript.shorten() if error.code == "model_context" and self._is_first else 0
                if not left_out:
                    raise
                log.info("history too long for the model; Brain leaves out %d exchanges", left_out)
                self._state.show_notice(notices.trimmed(left_out))
            else:
                return
        raise ModelError("model_failed", "The model server rejected the request.")

    def _choose_tool(self) -> str:
        """Return the `tool_choice` of a request with tools: what the client asks for, while the model may call."""
        policy, choice = self._state.policy, self._setup.request.must_call
        if not policy.offers or policy.is_last_pass or self._sampling.format is not None:
            return "none"
        if isinstance(choice, bool):
            return "required" if choice else "auto"
        return next((name for name, tool in policy.tools.items() if tool.name == choice), "required")

    async def _read(self, stream: AsyncGenerator[Chunk, None], *, is_first: bool = False) -> None:
        """Take the chunks of a stream, or the first one. An interruption ends the pass."""
        task = self._task
        assert task is not None
        chunk: Chunk | None
        while not self._is_over and self._stream is not None:
            if not is_first and self._state.inbox and self._can_be_interrupted():
                return
            self._is_reading = True
            try:
                chunk = await stream.__anext__()  # anext() with a default costs as much as the rest of this method
            except StopAsyncIteration:
                self._stream = chunk = None
            except asyncio.CancelledError:
                if not self._is_interrupted:
                    raise
                chunk = ""
            except Exception:
                if task.cancelling() == self._cancellations:
                    raise
                log.warning("model stream failed during cancellation", exc_info=True)
                chunk = ""
            finally:
                self._is_reading = False
                is_interrupted, self._is_interrupted = self._is_interrupted, False
                if is_interrupted:
                    task.uncancel()
            if task.cancelling() > self._cancellations:  # the turn was stopped, but the stream swallowed this
                await asyncio.sleep(0)
                raise asyncio.CancelledError
            if self._silent_seconds is not None:
                unit = "second" if self._silent_seconds == 1 else "seconds"
                raise ModelError("model_failed", f"The model sent nothing for {self._silent_seconds:g} {unit}.")
            if is_interrupted and not self.is_paused and self._read_until is not None:
                log.info("model stream stayed open after the model finished")
                chunk = None
            elif is_interrupted:
                self.was_interrupted = not self._is_over  # `take` may have ended the pass
                self._is_over = True
                chunk = ""
            self._take(chunk)
            if is_first:
                return

    async def _wait(self, seconds: float) -> None:
        """Wait before a request. Like a read, the wait can be interrupted."""

        async def pause() -> AsyncGenerator[Chunk, None]:
            await asyncio.sleep(seconds)
            yield ""

        self._state.deadline.expect_nothing()
        self._stream = pause()
        await self._read(self._stream, is_first=True)
        await self._close_stream()

    def _interrupt(self) -> None:
        """End the current read, and with it the pass."""
        if self._is_reading and not self._is_interrupted and asyncio.current_task() is not self._task:
            assert self._task is not None
            self._is_interrupted = True
            self._task.cancel()

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await stream.aclose()
        except TimeoutError:
            log.info("model stream took longer than %g seconds to close", CLOSE_SECONDS)
        except Exception:
            log.warning("model stream failed to close", exc_info=True)

    def _wait_until(self) -> float:
        """Return the loop time until which to wait for the next chunk after a call, or after the model has finished.

        A finished model does not pause: only its usage is still to come.
        """
        if self._read_until is not None:
            return self._read_until
        is_native = self._is_native and self._has_native_call  # servers send native calls whole
        if self.calls.is_running or is_native or self._scanner.is_holding:
            return asyncio.get_running_loop().time() + self._state.deadline.call_seconds_left()
        return self._last_chunk_at + ADJACENT_SECONDS

    def _set_timer(self) -> None:
        """Limit the wait for the next chunk, if a call pauses the model or it has finished."""
        self._stop_timer()
        if self.is_paused or self._read_until is not None:
            self._call_timer = asyncio.get_running_loop().call_at(self._wait_until(), self._end_wait)

    def _stop_timer(self) -> None:
        if self._call_timer is not None:
            self._call_timer.cancel()
            self._call_timer = None

    def _end_wait(self) -> None:
        """Interrupt the read. If the event loop was blocked, first let it read the chunks that arrived."""
        loop = asyncio.get_running_loop()
        late = loop.time() - self._wait_until()
        if late < 0:  # the turn's clock was paused
            self._set_timer()
        elif late > LATE_SECONDS:
            self._call_timer = loop.call_later(LATE_SECONDS, self._interrupt)
        else:
            self._interrupt()

    # Processing chunks

    def _take(self, chunk: Chunk | None) -> None:
        """Emit the events of a chunk or of the end of the stream, and start the calls in it."""
        if isinstance(chunk, PromptProgress):
            self._take_prompt_progress(chunk)
            return
        events: list[Event] = []
        for piece in self._scan(chunk):
            if self._output is not None and isinstance(piece, str) and not self.is_paused:
                events += self._sort(self._output, piece)
                guard = self._text_guard
            elif isinstance(piece, str) and not self.is_paused:
                text = piece if self._stops is None else self._stops.feed(piece)
                if text:
                    events.append(self._token(text))
                guard = self._text_guard
            elif isinstance(piece, Thinking) and not self.is_paused:
                guard = self._thinking_guard
                events.append(self._think(guard.feed(piece.text)))
            elif isinstance(piece, ReasoningEnd):
                events += self._take_back_text()
                continue
            elif isinstance(piece, Call):
                if events := [*events, *self._flush_text()]:
                    self._state.emit(events)
                    events = []
                if not self._plan.reads_on or piece.code == "forged":
                    self.is_paused = True
                if self.calls.start(piece):
                    continue
                self._is_over = True
                break
            else:  # after a call, only further calls count; after a forged block, nothing does
                self._is_over = True
                break
            if guard.is_found:
                events.append(notices.REPETITION)
                self._is_over, self.finish = True, "repetition"
                break
            if (self._stops is not None and self._stops.is_found) or (
                self._output is not None and self._output.is_done
            ):
                self._is_over = True
                break
        if events:
            self._state.emit(events)
        self._state.deadline.expect_next_token()
        if self.is_paused:
            self._last_chunk_at = asyncio.get_running_loop().time()
            self._set_timer()

    def _scan(self, chunk: Chunk | None) -> Sequence[Piece]:
        """Return the pieces that a chunk or the end of the stream completes."""
        if isinstance(chunk, str):
            if self._has_native_call:
                return (PASS_END,) if chunk.strip() else ()
            if not self._echo.is_settled:
                chunk = self._echo.feed(chunk)
            self._state.accounting.add_text(chunk)
            return self._scanner.feed(chunk)
        if chunk is None:
            self._is_over = True
            self._state.accounting.mark_final()
            return self._close_scanner(is_cut=self.finish == "length")
        if isinstance(chunk, Thinking):
            self._state.accounting.add_text(chunk.text)
            self._scanner.skip_reasoning()
            return (chunk,)
        if isinstance(chunk, NativeCall):  # it ends the text of the pass as a marker does
            self._state.accounting.add_text(chunk.name + chunk.arguments)
            policy = self._state.policy
            name = find_offered(chunk.name, policy.offered) or chunk.name
            if self._is_native or not name or name in policy.offered or name in self._setup.registry:
                self._has_native_call = True
                syntax = marker_syntaxes(self._setup.request.syntax)[0]
                call = read_native_call(replace(chunk, name=name), syntax, policy.find_schema(name))
                return [*self._close_scanner(is_cut=True), call]
            self.unknown_tool = chunk.name  # of tools that the model was not given, so the call is ignored
        elif isinstance(chunk, PassUsage):
            self._state.accounting.set_usage(chunk)
        elif isinstance(chunk, Finish):
            self._state.accounting.mark_final()
            self.finish = "complete" if chunk.reason == "stop" else chunk.reason
            now = asyncio.get_running_loop().time()
            self._read_until = now + min(LAST_CHUNK_SECONDS, self._setup.timeouts.silence / 2)
            self._set_timer()
        return ()

    def _close_scanner(self, *, is_cut: bool) -> list[Piece]:
        text = self._echo.close()
        self._state.accounting.add_text(text)
        return [*self._scanner.feed(text), *self._scanner.close(is_cut=is_cut)]

    def _take_back_text(self) -> Sequence[Event]:
        """Make the text so far reasoning. Clients have seen it, so a notice tells them what it was."""
        held = "" if self._stops is None else self._stops.close()
        reasoning = self._raw.whole() + held
        self._text = TextBuffer()
        self._raw = self._text if self._output is None else TextBuffer()
        self._text_guard = RepetitionGuard()
        self.first_text, self.text_length, self._shown_length = None, 0, 0
        if self._output is not None:
            self._output.restart()
        if not reasoning.strip():
            return ()
        self._state.annotations.add_thinking(reasoning, 0)
        return (notices.REASONING,)

    def _sort(self, output: OutputFilter, text: str) -> Sequence[Event]:
        """Take text with tags. Return what to show of it."""
        text = self._text_guard.feed(text)
        self._raw.add(text)
        self.text_length += len(text)
        events = self._show(output.feed(text))
        if self.text_length >= self._state.characters_left:
            self._is_over, self.finish = True, "length"
        return events

    def _show(self, pieces: Sequence[tuple[Shown, str]]) -> Sequence[Event]:
        events: list[Event] = []
        for kind, text in pieces:
            if kind == "thinking":
                events.append(self._think(text))
                continue
            if self._stops is not None:
                text = self._stops.feed(text)
            if text:
                events.append(self._answer(text))
        return events

    def _think(self, text: str) -> Thinking:
        self._state.annotations.add_thinking(text, self.text_length if self._output is None else self._shown_length)
        return Thinking(text)

    def _answer(self, text: str) -> Token:
        if self.first_text is None:
            text = self._begin_answer(text)
        self._text.add(text)
        self._shown_length += len(text)
        return Token(text)

    def _begin_answer(self, text: str) -> str:
        self.first_text = time.monotonic()
        return text if text[:1].isspace() else self._separator + text

    def _token(self, text: str) -> Token:
        text = self._text_guard.feed(text)
        if self.first_text is None:
            text = self._begin_answer(text)
        self._text.add(text)
        self.text_length += len(text)
        if self.text_length >= self._state.characters_left:
            self._is_over, self.finish = True, "length"
        return Token(text)

    def _flush_text(self) -> list[Event]:
        """Return the text that was held back as a possible start of a tag or a stop sequence."""
        if self._text_guard.is_found:
            return []
        events = [] if self._output is None else [*self._show(self._output.close())]
        text = "" if self._stops is None else self._stops.close()
        if text:
            events.append(self._token(text) if self._output is None else self._answer(text))
        return events

    def _take_prompt_progress(self, progress: PromptProgress) -> None:
        """Emit progress on a long prompt, in steps, so that no server can flood the reader."""
        self._state.accounting.set_usage(PassUsage(progress.of + progress.cached, 0, progress.cached))
        fraction = progress.read / progress.of if progress.of >= LONG_PROMPT else 1.0
        if self._next_step <= fraction < 1.0:
            self._next_step = fraction + PROMPT_STEP
            text = f"The model is reading the conversation: {progress.read:,} of {progress.of:,} tokens."
            self._state.emit((Notice("prompt_progress", text, fraction),))

    def _can_be_interrupted(self) -> bool:
        """Whether the text of the pass can end here: it is empty, or ends with a sentence or a line."""
        is_holding = self._scanner.is_holding or (self._output is not None and self._output.is_holding)
        if is_holding or self._read_until is not None:
            return False
        end = self._raw.end()
        return not end or end.endswith("\n") or end.rstrip().rstrip(SENTENCE_CLOSERS).endswith(SENTENCE_ENDS)


def choose_sampling(setup: TurnSetup, state: TurnState, plan: Plan) -> Sampling:
    """Return the client's sampling options for a pass, as far as its plan does not change them."""
    sampling = setup.request.sampling
    limits = [limit for limit in (state.tokens_left(sampling.max_tokens), plan.max_tokens) if limit is not None]
    if limits and min(limits) != sampling.max_tokens:
        sampling = replace(sampling, max_tokens=max(1, min(limits)))
    if plan.temperature is not None and sampling.temperature is None:
        sampling = replace(sampling, temperature=plan.temperature)
    if sampling.format is not None and not plan.is_json:
        more = {name: value for name, value in sampling.more.items() if name != "response_format"}
        sampling = replace(sampling, format=None, more=more)
    return sampling if plan.format is None else replace(sampling, format=plan.format)


def find_separator(parts: Sequence[Part]) -> str:
    """Return what to put between the text before a call and a new message after it."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    if not texts or isinstance(parts[-1], Text | Steer) or texts[-1][-1:].isspace():
        return ""
    return SEPARATOR if texts[-1].endswith(SENTENCE_ENDS) else " "


def read_native_call(native: NativeCall, syntax: MarkerSyntax, schema: Mapping[str, Any] | None = None) -> Call:
    """Parse a native call as if the model had written a marker, within the same limits.

    Without arguments, which servers also lose, it runs only if its JSON Schema has no parameters.

    A call that cannot be parsed stays out of the transcript, because no scanner has checked it for delimiters.
    """
    if not SPECIALIST_NAME.fullmatch(native.name):
        return Call(UNNAMED, code="malformed", reason=native.problem or "the call has no valid name")
    if native.problem:
        return Call(native.name, code="malformed", reason=native.problem)
    if len(native.arguments) > MARKER_LIMIT:
        return Call(native.name, code="oversized", reason=TOO_LONG)
    arguments = native.arguments.strip()
    if not arguments and schema is not None and any(map(schema.get, PROPERTY_KEYWORDS)):
        return Call(native.name, code="malformed", reason=NO_ARGUMENTS)
    params, problem = decode_object(arguments or "{}")
    if params is None:
        return Call(native.name, code="malformed", reason=problem)
    return Call(native.name, marker(native.name, params, syntax), params)
