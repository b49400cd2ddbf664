"""One `think` of a session: what it tells while its turn goes on, and what came of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from inspect import isawaitable
from typing import Literal, TypeVar

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    Event,
    SpecialistError,
    SpecialistResult,
    SpecialistStart,
    Token,
    Usage,
)
from brain.runtime.run import Run

State = Literal["idle", "processing", "tool_calling", "generating", "complete", "cancelled", "error"]
Call = SpecialistResult | SpecialistError
T = TypeVar("T")
Callback = Callable[[T], Awaitable[None] | None]
"""Is called with what happened, and waited for when it is asynchronous. What it raises ends the turn and is raised."""


@dataclass(frozen=True, slots=True)
class Response:
    """What came of one `think`.

    Attributes:
        text: the visible answer; of a turn that failed or was cancelled, as far as it came.
        calls: the specialists that were called, with what they found or why they failed, as they finished.
        latency_ms: from the call of `think` to the end of its answer.
        tokens: of prompts and answers, summed over all passes.
        error: what failed, where the state is `error`.
    """

    text: str
    message_id: str
    conversation_id: str
    citations: Sequence[Citation]
    calls: Sequence[Call]
    latency_ms: int
    tokens: int
    state: State
    error: Error | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the newest `think` took so far; times in milliseconds since it began, tokens of the passes that ended."""

    total_tokens: int = 0
    calls: int = 0
    first_token_ms: int | None = None
    total_ms: int = 0
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Who is told of what."""

    token: Callback[str] | None
    call: Callback[SpecialistStart] | None
    result: Callback[Call] | None
    approval: Callable[[ApprovalRequired], Awaitable[bool] | bool] | None


class ThinkerRun:
    """One `think`."""

    def __init__(self, callbacks: Callbacks) -> None:
        self.state: State = "processing"
        self._callbacks = callbacks
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._took = 0
        self._run: Run | None = None
        self._cancelled = False
        self._said: list[str] = []
        self._open: set[str] = set()
        self._calls: list[Call] = []
        self._tokens = 0
        self._first_token_ms: int | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    @property
    def metrics(self) -> Metrics:
        """What it took so far."""
        running = self.state not in ("complete", "cancelled", "error")
        usage = self._run.report().usage if running and self._run is not None else None
        tokens = self._tokens if usage is None else usage.prompt_tokens + usage.completion_tokens
        total = self._now() if running else self._took
        return Metrics(tokens, len(self._calls), self._first_token_ms, total, self.state == "cancelled")

    def cancel(self) -> None:
        """Ends it, also before its turn began."""
        self._cancelled = True
        if self._run is not None:
            self._run.stop()

    async def led(self, run: Run) -> Response:
        """Leads the turn to its end."""
        self._run = run
        if self._cancelled:
            run.stop()
        last: Event | None = None
        try:
            async with aclosing(run.events()) as batches:
                async for batch in batches:
                    for event in batch:
                        last = event
                        await self._tell(event)
        finally:
            self._took = self._now()
            if not isinstance(last, Done | Error):
                self.state = "cancelled"
            for task in self._asking:
                task.cancel()
        if self._failure is not None:
            raise self._failure
        assert isinstance(last, Done | Error)
        return self._response(run, last)

    async def _tell(self, event: Event) -> None:
        callbacks = self._callbacks
        match event:
            case Token(text):
                self.state = "generating"
                if self._first_token_ms is None:
                    self._first_token_ms = self._now()
                self._said.append(text)
                await _call(callbacks.token, text)
            case SpecialistStart(call_id):
                self.state = "tool_calling"
                self._open.add(call_id)
                await _call(callbacks.call, event)
            case SpecialistResult(call_id) | SpecialistError(call_id):
                self._open.discard(call_id)
                self._calls.append(event)
                self.state = "tool_calling" if self._open else "processing"
                await _call(callbacks.result, event)
            case ApprovalRequired():
                task = asyncio.create_task(self._decide(event), name="approval")
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
            case Usage():
                self._tokens = event.prompt_tokens + event.completion_tokens
            case Done(stop_reason):
                self.state = "cancelled" if stop_reason == "cancelled" else "complete"
            case Error():
                self.state = "error"

    async def _decide(self, event: ApprovalRequired) -> None:
        assert self._callbacks.approval is not None
        assert self._run is not None
        try:
            answer = self._callbacks.approval(event)
            approved = await answer if isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001 - the program's own, raised where it can be caught
            self._failure = error
            self._run.stop()
            return
        with suppress(BadRequest):  # it expired meanwhile
            self._run.decide(event.call_id, approved is True)

    def _response(self, run: Run, last: Done | Error) -> Response:
        return Response(
            text="".join(self._said),
            message_id=run.report().message_id,
            conversation_id=run.conversation_id,
            citations=[
                citation for call in self._calls if isinstance(call, SpecialistResult) for citation in call.citations
            ],
            calls=self._calls,
            latency_ms=self._took,
            tokens=self._tokens,
            state=self.state,
            error=last if isinstance(last, Error) else None,
        )

    def _now(self) -> int:
        return round((self._clock() - self._began) * 1000)


async def _call(callback: Callback[T] | None, value: T) -> None:
    if callback is not None:
        done = callback(value)
        if isawaitable(done):
            await done
