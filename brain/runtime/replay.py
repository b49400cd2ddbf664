"""Plays a recording: a turn whose models and specialists give what the recorded ones gave.

No model is asked, no specialist runs and nothing is stored.
"""

import asyncio
import math
import selectors
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from brain.errors import BadRequest, ModelError, PrefillRefused, Refused, ToolsRefused
from brain.events import Event, Notice, SpecialistError, SpecialistProgress, SpecialistResult
from brain.messages import (
    Attachment,
    Call,
    Chunk,
    Exchange,
    History,
    Item,
    RecallResult,
    TaskNews,
)
from brain.models.circuit_breaker import CircuitBreaker
from brain.models.model import Model, PassRequest
from brain.plugins.context import Context, Progress, Result
from brain.plugins.registry import Registry
from brain.plugins.specialist import Options
from brain.protocols.native.encoder import decode_event
from brain.runtime.commands import SteerTurn
from brain.runtime.recording import (
    CHUNKS,
    VERSION,
    ControlLine,
    EndLine,
    EventLine,
    Line,
    PassLine,
    RecordedError,
    RecordedModel,
    TurnLine,
)
from brain.runtime.run import Run, RunOptions
from brain.strategies import find_strategy
from brain.turn.setup import Timeouts, TurnSetup
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

ENDED_BY_TURN = ("cancelled", "deadline", "interrupted")
"""Codes of calls that the end of a turn, or of the time for calls, stops."""

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
        self.passes = [line for line in lines if isinstance(line, PassLine)]
        self.controls = [line for line in lines if isinstance(line, ControlLine)]
        self.calls = {call.id: call for call in self.end.calls}
        try:
            self.request = msgspec.convert({**self.turn.request, "user": self.turn.user}, TurnRequest)
            self.call_events = _call_events([line for line in lines if isinstance(line, EventLine)])
            self.chunks = [[(ms, _read_chunk(chunk)) for ms, chunk in line.chunks] for line in self.passes]
        except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
            raise BadRequest(f"The recording has a wrong value: {error}.") from None


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        BadRequest: It is no recording.
        OSError: The file cannot be read.
    """
    lines = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                lines.append(_decode_line(line))
            except msgspec.MsgspecError as error:
                raise BadRequest(f"{path}, line {number}: not a line of a recording ({error}).") from None
    return Recording(lines)


def make_run(recording: Recording) -> Run:
    """Return a run of the recorded turn, which gets the recorded commands at the same times."""
    recorded, setup = recording.turn, recording.turn.setup
    replay = _Replay(recording)
    models = {
        one.name: _RecordedModel(one, replay)
        for one in (*setup.models, *(one for some in setup.role_models.values() for one in some))
    }
    registry = Registry()
    previewed = {call.name for call in recording.end.calls if call.preview}
    for name, kinds in setup.specialists.items():
        options: Options = {"timeout": math.inf, "read_only": True, "activates_on": kinds}
        options["approval"] = partial(replay.needs_approval, name)
        if name in previewed:
            options["preview"] = partial(replay.preview, name)
        registry.register(name, "Recorded.", {"type": "object"}, replay.play_call, **options)
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

    turn_setup = TurnSetup(
        request=request,
        history=history,
        models=[models[one.name] for one in setup.models],
        registry=registry,
        role_models={role: [models[one.name] for one in some] for role, some in setup.role_models.items()},
        turn_id=recorded.turn_id,
        timeouts=Timeouts(setup.silence, setup.first_token, setup.approval_seconds),
        store=store,
        checkpoint=skip if recording.end.outcome == "suspended" else None,
        assistance=setup.assistance,
    )
    turn = Turn(turn_setup, find_strategy(request.strategy, setup.assistance))
    run = Run(turn, recorded.protocol, RunOptions(replayable=False))
    for control in recording.controls:
        if control.ms <= 0:
            replay.act(run, control)
        else:
            replay.call_at(control.ms, run, control)
    return run


class _RecordedModel(Model):
    def __init__(self, recorded: RecordedModel, replay: "_Replay") -> None:
        super().__init__(recorded.name)
        self.resume = recorded.resume
        self.context_tokens = recorded.context_tokens
        self.is_demo = recorded.is_demo
        self.is_base = recorded.is_base
        self.template = recorded.template
        self.accepts_tools = recorded.accepts_tools
        self.breaker = _Breaker(is_used=replay.is_used(self.name))
        self._replay = replay

    def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        return self._replay.play_request()


class _Breaker(CircuitBreaker):
    """Skips the models that the recorded turn did not ask."""

    def __init__(self, *, is_used: bool) -> None:
        super().__init__()
        self._is_used = is_used

    def allow(self) -> bool:
        return self._is_used


class _Replay:
    """Plays the requests to models and the calls of a recording at their times."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._requests = iter(zip(recording.passes, recording.chunks, strict=True))
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    def is_used(self, model: str) -> bool:
        return any(line.model == model for line in self._recording.passes)

    def call_at(self, ms: float, run: Run, control: ControlLine) -> None:
        self._loop.call_at(self._began + ms / 1000, self.act, run, control)

    @staticmethod
    def act(run: Run, control: ControlLine) -> None:
        """Carry out a recorded command."""
        with suppress(BadRequest):  # the turn has ended
            if control.stop is not None:
                run.stop(control.stop)
            elif control.call_id:
                run.decide(control.call_id, control.approve)
            else:
                run.apply(SteerTurn(control.steer))

    async def play_request(self) -> AsyncGenerator[Chunk, None]:
        found = next(self._requests, None)
        if found is None:  # the turn was stopped at that moment
            await asyncio.Event().wait()
            return
        line, chunks = found
        for ms, chunk in chunks:
            await self._wait_until(ms)
            yield chunk
        if line.error is not None:
            ms, error = line.error
            await self._wait_until(ms)
            raise _make_error(error)
        if line.ended_ms is None:  # Brain closed the stream
            await asyncio.Event().wait()
        else:
            await self._wait_until(line.ended_ms)

    async def play_call(
        self, params: Mapping[str, Any], *, context: Context
    ) -> AsyncGenerator[Progress | Result, None]:
        """Give a call its recorded progress and outcome."""
        call_id = context.key.rpartition("-")[2]
        call = self._recording.calls.get(call_id)
        for ms, event in self._recording.call_events.get(call_id, ()):
            await self._wait_until(ms)
            match event:
                case SpecialistProgress(_, text, fraction):
                    yield Progress(text, fraction)
                case SpecialistResult(text=text, citations=citations):
                    untrusted = None if call is None else call.untrusted
                    yield Result(text, citations, outside=untrusted)
                    return
                case SpecialistError(code=code, reason=reason) if code not in ENDED_BY_TURN:
                    raise Refused(reason)
        await asyncio.Event().wait()

    def _find_call(self, name: str, params: Mapping[str, Any]) -> Call | None:
        calls = self._recording.calls.values()
        return next((one for one in calls if one.name == name and one.params == params and one.approval), None)

    def needs_approval(self, name: str, params: Mapping[str, Any]) -> bool:
        return self._find_call(name, params) is not None

    def preview(self, name: str, params: Mapping[str, Any]) -> str:
        call = self._find_call(name, params)
        return (call.preview or "") if call is not None else ""

    async def _wait_until(self, ms: float) -> None:
        """Wait until this time of the recording."""
        seconds = self._began + ms / 1000 - self._loop.time()
        if seconds > 0:
            await asyncio.sleep(seconds)


def _call_events(lines: Sequence[EventLine]) -> dict[str, list[tuple[float, Event]]]:
    """Return the events of each call, with their times in milliseconds."""
    found: dict[str, list[tuple[float, Event]]] = {}
    for line in lines:
        event = decode_event(line.event, line.data)
        if not isinstance(event, Notice):
            found.setdefault(event.call_id, []).append((line.ms, event))  # type: ignore[union-attr]
    return found


def _read_chunk(recorded: Any) -> Chunk:
    if isinstance(recorded, str):
        return recorded
    ((name, fields),) = msgspec.convert(recorded, dict[str, Any]).items()
    chunk: Chunk = msgspec.convert(fields, CHUNKS[name])
    return chunk


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
