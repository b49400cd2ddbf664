"""One answer of a session: reads a run, calls the program's callbacks and returns the response."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Literal, TypeVar

from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Citation,
    Done,
    Error,
    ErrorCode,
    Event,
    ModelUsage,
    Round,
    SpecialistError,
    SpecialistResult,
    SpecialistStart,
    StopReason,
    Token,
)
from brain.runtime.run import Run

State = Literal["idle", "processing", "tool_calling", "generating", "complete", "cancelled", "error"]
Call = SpecialistResult | SpecialistError
SPOKEN_ERRORS: Mapping[ErrorCode, str] = {
    "model_unreachable": "The language model cannot be reached. Please try again later.",
    "model_failed": "The language model failed. Please try again.",
    "model_context": "This is too long for the language model. Please start a new conversation.",
    "shutdown": "The assistant is shutting down. Please try again later.",
    "internal": "Something went wrong. Please try again.",
}
"""What happened, in words that can be read aloud to a person."""
T = TypeVar("T")
Callback = Callable[[T], Awaitable[None] | None]
"""A function or coroutine function. Its exception stops the turn, and `think` raises it."""


@dataclass(frozen=True, slots=True)
class Response:
    """The result of one `think`.

    Attributes:
        text: The visible answer, or what there is of it. If the turn failed, a sentence at its end tells people what
            happened.
        calls: The specialist calls with their results or reasons, in the order in which they ended.
        latency_ms: Milliseconds from the call of `think` to the end of the answer.
        tokens: Prompt and answer tokens of all passes.
        error: The error, if the state is `error`; otherwise `stop_reason` tells why the answer ended.
        calls_by_name: The number of calls of each specialist.
        rounds: The rounds of the strategy, in order.
        usage: Tokens of each model, by its name.
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
    stop_reason: StopReason | None = None
    calls_by_name: Mapping[str, int] = field(default_factory=dict)
    rounds: Sequence[Round] = ()
    usage: Mapping[str, ModelUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of the newest `think` so far: milliseconds since its start, tokens of finished passes."""

    total_tokens: int = 0
    calls: int = 0
    first_token_ms: int | None = None
    total_ms: int = 0
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The program's callbacks, by event."""

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
        self._ended: float | None = None
        self._run: Run | None = None
        self._is_cancelled = False
        self._texts: list[str] = []
        self._running_calls: set[str] = set()
        self._calls: list[Call] = []
        self._rounds: list[Round] = []
        self._first_token_ms: int | None = None
        self._approval_tasks: set[asyncio.Task[None]] = set()
        self._approval_error: Exception | None = None

    @property
    def metrics(self) -> Metrics:
        """Metrics so far."""
        is_cancelled = self.state == "cancelled"
        return Metrics(self._tokens(), len(self._calls), self._first_token_ms, self._elapsed_ms(), is_cancelled)

    def cancel(self) -> None:
        """Stop the turn. This also works before the turn starts."""
        self._is_cancelled = True
        if self._run is not None:
            self._run.stop()

    async def read(self, run: Run) -> Response:
        """Read the run to its end."""
        self._run = run
        if self._is_cancelled:
            run.stop()
        last: Event | None = None
        try:
            async with aclosing(run.events()) as batches:
                async for batch in batches:
                    for event in batch:
                        last = event
                        await self._handle(event)
        finally:
            self._ended = self._clock()
            if not isinstance(last, Done | Error):
                self.state = "cancelled"
            for task in self._approval_tasks:
                task.cancel()
        if self._approval_error is not None:
            raise self._approval_error
        assert isinstance(last, Done | Error)
        exchange = run.snapshot()
        results = [call for call in self._calls if isinstance(call, SpecialistResult)]
        text = "".join(self._texts)
        return Response(
            text=f"{text.rstrip()}\n\n{SPOKEN_ERRORS[last.code]}".lstrip() if isinstance(last, Error) else last.text,
            message_id=exchange.answer_id,
            conversation_id=run.conversation_id,
            citations=[citation for result in results for citation in result.citations],
            calls=self._calls,
            latency_ms=self._elapsed_ms(),
            tokens=self._tokens(),
            state=self.state,
            error=last if isinstance(last, Error) else None,
            stop_reason=exchange.stop_reason,
            calls_by_name=exchange.calls_by_name,
            rounds=self._rounds,
            usage=exchange.total_usage.models or {exchange.model: exchange.total_usage},
        )

    async def _handle(self, event: Event) -> None:
        match event:
            case Token(text):
                self.state = "generating"
                if self._first_token_ms is None:
                    self._first_token_ms = self._elapsed_ms()
                self._texts.append(text)
                await _call(self._callbacks.token, text)
            case Round():
                self._rounds.append(event)
            case SpecialistStart(call_id):
                self.state = "tool_calling"
                self._running_calls.add(call_id)
                await _call(self._callbacks.call, event)
            case SpecialistResult(call_id) | SpecialistError(call_id):
                self._running_calls.discard(call_id)
                self._calls.append(event)
                self.state = "tool_calling" if self._running_calls else "processing"
                await _call(self._callbacks.result, event)
            case ApprovalRequired():
                task = asyncio.create_task(self._decide(event), name="approval")
                self._approval_tasks.add(task)
                task.add_done_callback(self._approval_tasks.discard)
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
        except Exception as error:  # noqa: BLE001 - `read` raises it to the program
            self._approval_error = error
            self._run.stop()
            return
        with suppress(BadRequest):  # the approval has expired
            self._run.decide(event.call_id, approved is True)

    def _tokens(self) -> int:
        usage = self._run.snapshot().usage if self._run is not None else None
        return usage.prompt_tokens + usage.completion_tokens if usage is not None else 0

    def _elapsed_ms(self) -> int:
        return round(((self._clock() if self._ended is None else self._ended) - self._began) * 1000)


async def _call(callback: Callback[T] | None, value: T) -> None:
    result = callback(value) if callback is not None else None
    if isawaitable(result):
        await result
