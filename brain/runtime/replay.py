"""Plays a recording: its chunks go through the engine, and its calls get their recorded outcomes.

No model is asked, no specialist runs and nothing is stored.
"""

import asyncio
import selectors
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from brain.errors import BadRequest, Interruption, ModelError, PrefillRefused, ToolsRefused
from brain.events import ApprovalRequired, Event, Notice, SpecialistError, SpecialistResult, SpecialistStart
from brain.messages import (
    Attachment,
    Call,
    CallMessage,
    Chunk,
    Exchange,
    History,
    Item,
    Message,
    RecallResult,
    TaskNews,
)
from brain.models.circuit_breaker import CircuitBreaker
from brain.models.model import Model, PassRequest
from brain.plugins.registry import Registry
from brain.protocols.native.encoder import decode_event
from brain.strategies import find_strategy
from brain.text import utf8_size
from brain.turn.call_group import CallContext, CallGroup
from brain.turn.recording import (
    CHUNKS,
    VERSION,
    ControlLine,
    Emit,
    EndLine,
    EventLine,
    Line,
    PassLine,
    RecordedError,
    RecordedModel,
    TurnLine,
)
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

MAX_BYTES = 256 * 1024 * 1024
"""Size limit of a recording."""
MAX_FILE_BYTES = 1024 * 1024
"""Size limit of the content of files in one message, which is not recorded."""
AT_ONCE_MS = 2.0
"""Time until an event of a call that came while the engine read the call, in milliseconds."""

_decode_line = msgspec.json.Decoder(Line).decode


class ReplayLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own, which only shows the times of timers. So events keep their order.

    Args:
        is_instant: Whether the clock jumps to the next timer. Otherwise, the loop waits for it.
    """

    def __init__(self, *, is_instant: bool) -> None:
        self._clock = _Clock(is_instant=is_instant)
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the time on its clock, in seconds."""
        return self._clock.now


class _Clock(selectors.DefaultSelector):
    def __init__(self, *, is_instant: bool) -> None:
        super().__init__()
        self.now = 0.0
        self._is_instant = is_instant

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began = time.monotonic()
        ready = super().select(0 if self._is_instant and timeout is not None else timeout)
        if ready:
            self.now += min(time.monotonic() - began, timeout or 0.0)
        elif timeout is not None:
            self.now += max(timeout, 0.0)
        return ready


class Recording:
    """A recorded turn.

    Raises:
        BadRequest: The lines are not those of one turn.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        if not lines or not isinstance(lines[0], TurnLine) or not isinstance(lines[-1], EndLine):
            raise BadRequest("The recording is not complete: it needs the lines from `turn` to `end`.")
        self.turn, self.end = lines[0], lines[-1]
        if self.turn.version != VERSION:
            raise BadRequest(f"The recording has version {self.turn.version}; this version of Brain reads {VERSION}.")
        if self.end.is_cut:
            raise BadRequest("The turn was too long to be recorded whole, so it cannot be played.")
        if not self.turn.setup.models:
            raise BadRequest("The recording has no models.")
        self.passes = [line for line in lines if isinstance(line, PassLine)]
        self.controls = [line for line in lines if isinstance(line, ControlLine)]
        self.calls = {call.id: call for call in self.end.calls}
        try:
            self.request = msgspec.convert({**self.turn.request, "user": self.turn.user}, TurnRequest)
            self.steps = _steps([line for line in lines if isinstance(line, EventLine)])
            self.chunks = [[(ms, _read_chunk(chunk)) for ms, chunk in line.chunks] for line in self.passes]
            self.messages = [[_read_message(message) for message in line.messages] for line in self.passes]
        except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
            raise BadRequest(f"The recording has a wrong value: {error}.") from None


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        BadRequest: It is no recording.
        OSError: The file cannot be read.
    """
    if path.stat().st_size > MAX_BYTES:
        raise BadRequest(f"{path} has {path.stat().st_size:,} bytes; the limit is {MAX_BYTES:,}.")
    lines = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                lines.append(_decode_line(line))
            except msgspec.MsgspecError as error:
                raise BadRequest(f"{path}, line {number}: not a line of a recording ({error}).") from None
    return Recording(lines)


def make_turn(recording: Recording) -> Turn:
    """Return the recorded turn, ready to run again."""
    recorded, setup = recording.turn, recording.turn.setup
    used = {line.model for line in recording.passes}
    replay = _Replay(recording)
    models = {
        one.name: _RecordedModel(one, replay, is_used=one.name in used)
        for one in (*setup.models, *(one for some in setup.role_models.values() for one in some))
    }
    registry = Registry()
    assisted = {call.name for call in recording.end.calls if call.by == "assist"}
    for name, kinds in setup.specialists.items():
        schema = {"type": "object"}
        registry.register(name, "Recorded.", schema, _never_called, activates_on=kinds, read_only=name in assisted)
    began = recorded.began or datetime.now(UTC)
    relevant = tuple(Item("", "fact", text, began, began) for text in recorded.relevant)
    history = History(
        recorded.conversation_id,
        [Exchange("") for _ in range(recorded.earlier)],
        user=recorded.user or "",
        trimmed=recorded.trimmed,
        after_idle=recorded.after_idle,
        recalled=RecallResult(sentence=recorded.recalled, relevant=relevant),
        task_news=TaskNews(fixed_text=recorded.fixed_text) if recorded.fixed_text else None,
    )
    files = tuple(Attachment(file.id, file.name, file.type, b"") for file in recorded.files)
    request = replace(recording.request, attachments=files)

    async def store(exchange: Exchange) -> str | None:
        return recording.end.unkept or None

    async def skip(exchange: Exchange) -> None:
        pass

    turn = Turn(
        request,
        history,
        models[setup.models[0].name],
        registry,
        find_strategy(request.strategy, setup.assistance),
        fallbacks=[models[one.name] for one in setup.models[1:]],
        role_models={role: [models[one.name] for one in some] for role, some in setup.role_models.items()},
        turn_id=recorded.turn_id,
        silence=setup.silence,
        first_token=setup.first_token,
        approval_seconds=setup.approval_seconds,
        store=store,
        checkpoint=skip if recording.end.outcome == "suspended" else None,
        assistance=setup.assistance,
        observer=replay,
    )
    replay.turn = turn
    for control in recording.controls:
        if control.ms <= 0 and control.stop is not None:
            turn.stop(control.stop)
    return turn


class _RecordedModel(Model):
    def __init__(self, recorded: RecordedModel, replay: "_Replay", *, is_used: bool) -> None:
        super().__init__(recorded.name)
        self.resume = recorded.resume
        self.context_tokens = recorded.context_tokens
        self.is_demo = recorded.is_demo
        self.is_base = recorded.is_base
        self.template = recorded.template
        self.breaker = _Breaker(is_used=is_used)
        self._replay = replay

    def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        return self._replay.play_next()


class _Breaker(CircuitBreaker):
    """Skips the models that the recorded turn did not ask."""

    def __init__(self, *, is_used: bool) -> None:
        super().__init__()
        self._is_used = is_used

    def allow(self) -> bool:
        return self._is_used


class _Replay:
    """Follows the turn, and gives it the recorded streams, calls and messages at their times."""

    turn: Turn

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.pending = dict.fromkeys(range(sum(map(len, recording.steps.values()))))  # numbers of steps to come
        self._next = 0  # request to a model
        self._now = asyncio.get_running_loop().time
        self._began = self._now()

    def watch_events(self, emit: Emit) -> Emit:
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        for control in self.recording.controls:
            loop.call_at(self._began + control.ms / 1000, self._act, control)
        return emit

    def _act(self, control: ControlLine) -> None:
        if control.stop is not None:
            self.turn.stop(control.stop)
        else:
            with suppress(BadRequest):  # the turn has ended
                self.turn.steer(control.steer)

    def choose_tools(self, tools: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        found = self.recording.passes
        return found[self._next].tools if self._next < len(found) else tools

    def choose_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        found = self.recording.messages
        return found[self._next] if self._next < len(found) else messages

    def watch_stream(
        self,
        stream: AsyncGenerator[Chunk, None],
        turn_pass: int,
        model: str,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
    ) -> AsyncGenerator[Chunk, None]:
        return stream

    def play_next(self) -> AsyncGenerator[Chunk, None]:
        """Return the stream of the next recorded request, whichever model is asked."""
        self._next += 1
        return self._play(self._next - 1)

    async def _play(self, number: int) -> AsyncGenerator[Chunk, None]:
        if number >= len(self.recording.passes):  # the turn was stopped at that moment
            await asyncio.Event().wait()
        line = self.recording.passes[number]
        for ms, chunk in self.recording.chunks[number]:
            await self.wait_until(ms)
            yield chunk
        if line.error is not None:
            ms, error = line.error
            await self.wait_until(ms)
            raise _make_error(error)
        if line.ended_ms is None:  # Brain closed the stream
            await asyncio.Event().wait()
        else:
            await self.wait_until(line.ended_ms)

    def comes_now(self, step: "_Step") -> bool:
        """Return whether an event is the next one of all calls, and came while the engine read the call."""
        ms = (self._now() - self._began) * 1000
        return step.ms - ms < AT_ONCE_MS and next(iter(self.pending), None) == step.number

    @property
    def is_at_stop(self) -> bool:
        """Whether all that is left of the recording is that the turn was stopped."""
        is_stopped = any(control.stop is not None for control in self.recording.controls)
        return is_stopped and not self.pending and self._next >= len(self.recording.passes)

    async def wait_until(self, ms: float) -> None:
        """Wait until this time of the recording."""
        seconds = self._began + ms / 1000 - self._now()
        if seconds > 0:
            await asyncio.sleep(seconds)

    def note_steer(self, message: str) -> None:
        pass

    def note_stop(self, reason: Interruption) -> None:
        pass

    def new_group(self, context: CallContext, turn_pass: int, on_idle: Callable[[], None] | None) -> CallGroup:
        return _RecordedCalls(context, turn_pass, on_idle, self)


class _RecordedCalls(CallGroup):
    """Calls that get the events and outcomes of a recording instead of running."""

    def __init__(
        self, context: CallContext, turn_pass: int, on_idle: Callable[[], None] | None, replay: _Replay
    ) -> None:
        super().__init__(context, turn_pass, on_idle)
        self._replay = replay

    def start(self, call: Call) -> bool:
        policy = self._context.policy
        failure = policy.check(call, self._context.deadline.call_seconds_left())
        self._add(call)
        if failure is None and call.name in policy.tools:
            self._give_to_client(call)
        else:
            self._follow(call)
        return call.code not in ("call_limit", "deadline")

    async def wait(self) -> None:
        await super().wait()
        if self._replay.is_at_stop:  # nothing follows from the calls
            await asyncio.Event().wait()

    def start_automatic(self, name: str, attachment: Attachment) -> None:
        call = Call(name, params={}, by="auto")
        self._add(call)
        self._follow(call)

    def _follow(self, call: Call) -> None:
        recording = self._replay.recording
        recorded = recording.calls.get(call.id)
        if recorded is not None and recorded.approval == "asked" and recording.end.outcome == "suspended":
            call.approval = "asked"
            self.suspended.append(call)
            self._check_done()
            return
        steps = deque(recording.steps.get(call.id, ()))
        while steps and self._replay.comes_now(steps[0]):
            self._show(call, steps.popleft())
        if steps:
            self._spawn(call, self._show_later(call, steps))

    async def _show_later(self, call: Call, steps: "deque[_Step]") -> None:
        for step in steps:
            if isinstance(step.event, SpecialistError) and step.event.code in ("cancelled", "deadline"):
                return  # the engine ends the call
            await self._replay.wait_until(step.ms)
            if not call.block:
                self._show(call, step)

    def _show(self, call: Call, step: "_Step") -> None:
        """Emit an event of a call; the last one completes it."""
        approvals, event = self._context.approvals, step.event
        self._replay.pending.pop(step.number, None)
        if isinstance(event, ApprovalRequired):
            approvals.open(call)
            call.preview = event.text
            self._emit((event,))
        elif isinstance(event, SpecialistResult | SpecialistError):
            approvals.close(call)
            recorded = self._replay.recording.calls.get(call.id)
            for name in ("code", "reason", "citations", "cached", "untrusted", "approval", "preview", "ms"):
                if recorded is not None:
                    setattr(call, name, getattr(recorded, name))
            self._complete(call, event.name if recorded is None else recorded.block, event)
        else:
            if isinstance(event, SpecialistStart):
                approvals.close(call)
            self._emit((event,))

    def _complete(self, call: Call, block: str, event: Event) -> None:
        for step in self._replay.recording.steps.get(call.id, ()):
            self._replay.pending.pop(step.number, None)
        super()._complete(call, block, event)


class _Step(NamedTuple):
    """An event of a call, with its number among the events of all calls."""

    number: int
    ms: float
    event: Event


def _steps(lines: Sequence[EventLine]) -> dict[str, list[_Step]]:
    """Return the events of each call. A notice belongs to the call of the next event."""
    steps: dict[str, list[_Step]] = {}
    count = 0
    notices: list[tuple[float, Event]] = []
    for line in lines:
        event = decode_event(line.event, line.data)
        if isinstance(event, Notice):
            notices.append((line.ms, event))
            continue
        call_id: str = event.call_id  # type: ignore[union-attr]
        for ms, one in (*notices, (line.ms, event)):
            steps.setdefault(call_id, []).append(_Step(count, ms, one))
            count += 1
        notices.clear()
    return steps


def _read_chunk(recorded: Any) -> Chunk:
    if isinstance(recorded, str):
        return recorded
    ((name, fields),) = msgspec.convert(recorded, dict[str, Any]).items()
    chunk: Chunk = msgspec.convert(fields, CHUNKS[name])
    return chunk


def _read_message(recorded: dict[str, Any]) -> Message:
    """Return a message without images, filled up to the size of the original one."""
    fields = {name: value for name, value in recorded.items() if name not in ("images", "size")}
    message = msgspec.convert(fields, CallMessage if "calls" in fields else Message)
    missing = recorded.get("size", 0) - utf8_size(message.content)
    return replace(message, content=message.content + " " * min(max(0, missing), MAX_FILE_BYTES))


def _make_error(recorded: RecordedError) -> Exception:
    if recorded.is_prefill_refused:
        return PrefillRefused()
    if recorded.are_tools_refused:
        return ToolsRefused()
    if recorded.code is None:
        return RuntimeError("a recorded fault")
    return ModelError(
        recorded.code,
        recorded.message,
        recoverable=recorded.recoverable,
        status=recorded.status,
        retry_after=recorded.retry_after,
    )


async def _never_called(params: dict[str, Any]) -> str:
    raise NotImplementedError
