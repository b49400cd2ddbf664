"""One answer of a session: reads a run, calls the program's callbacks and returns the response."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
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
    Rewind,
    Round,
    SpecialistError,
    SpecialistResult,
    SpecialistStart,
    StopReason,
    Token,
)
from brain.messages import Call, Exchange, Part, Source
from brain.runtime.run import Run

SessionState = Literal["idle", "processing", "tool_calling", "generating", "complete", "cancelled", "error"]
CallEnd = SpecialistResult | SpecialistError
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
        exchange: The message and its answer, as stored.
        calls: The specialist calls with their results or reasons, in the order in which they ended.
        latency_ms: Milliseconds from the call of `think` to the end of the answer.
    """

    exchange: Exchange
    conversation_id: str
    calls: Sequence[CallEnd]
    latency_ms: int
    state: SessionState

    @property
    def text(self) -> str:
        """The visible answer. If the turn failed, a sentence at its end tells people what happened."""
        answer, error = self.exchange.answer, self.exchange.error
        return answer if error is None else f"{answer.rstrip()}\n\n{SPOKEN_ERRORS[error.code]}".lstrip()

    @property
    def message_id(self) -> str:
        """The ID of the answer."""
        return self.exchange.answer_id

    @property
    def citations(self) -> list[Citation]:
        """The sources of all results."""
        return [one for call in self.calls if isinstance(call, SpecialistResult) for one in call.citations]

    @property
    def tokens(self) -> int:
        """Prompt and answer tokens of all passes."""
        return _count_tokens(self.exchange)

    @property
    def error(self) -> Error | None:
        """The error, if the state is `error`; otherwise `stop_reason` tells why the answer ended."""
        return self.exchange.error

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the answer ended."""
        return self.exchange.stop_reason

    @property
    def calls_by_name(self) -> Mapping[str, int]:
        """The number of calls of each specialist."""
        return self.exchange.calls_by_name

    @property
    def rounds(self) -> list[Round]:
        """The rounds of the strategy, in order."""
        return [one.event for one in self.exchange.rounds]

    @property
    def usage(self) -> Mapping[str, ModelUsage]:
        """Tokens of each model, by its name."""
        return self.exchange.total_usage.models or {self.exchange.model: self.exchange.total_usage}


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation for its user.

    Attributes:
        time: Time of the question, or of the end of the answer; None while the answer is written.
        text: The user's own words, or the visible answer.
        parts: Parts of an answer: the automatic calls, then texts, calls and added messages in order.
        outcome: How an answer ended; empty while it is written.
    """

    id: str
    role: Literal["user", "assistant"]
    time: datetime | None
    source: Source
    text: str
    parts: Sequence[Part] = ()
    outcome: str = ""

    @property
    def call_ids(self) -> list[str]:
        """The IDs of its calls, in order."""
        return [part.id for part in self.parts if isinstance(part, Call)]

    @property
    def citations(self) -> list[Citation]:
        """The citations of all its calls."""
        return [citation for part in self.parts if isinstance(part, Call) for citation in part.citations]


def messages_of(exchange: Exchange) -> tuple[ChatMessage, ChatMessage]:
    """Return the two messages of an exchange."""
    question = ChatMessage(exchange.question_id, "user", exchange.started, exchange.source, exchange.message)
    answer = ChatMessage(
        exchange.answer_id,
        "assistant",
        exchange.ended,
        exchange.source,
        exchange.answer,
        (*exchange.automatic_calls, *exchange.parts),
        exchange.outcome,
    )
    return question, answer


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
    result: Callback[CallEnd] | None
    approval: Callable[[ApprovalRequired], Awaitable[bool] | bool] | None


class ThinkerRun:
    """One `think`."""

    def __init__(self, callbacks: Callbacks) -> None:
        self.state: SessionState = "processing"
        self._callbacks = callbacks
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._ended: float | None = None
        self._run: Run | None = None
        self._is_cancelled = False
        self._running_calls: set[str] = set()
        self._calls: list[CallEnd] = []
        self._first_token_ms: int | None = None
        self._approval_tasks: set[asyncio.Task[None]] = set()
        self._approval_error: Exception | None = None

    @property
    def metrics(self) -> Metrics:
        """Metrics so far."""
        is_cancelled = self.state == "cancelled"
        tokens = 0 if self._run is None else _count_tokens(self._run.snapshot())
        return Metrics(tokens, len(self._calls), self._first_token_ms, self._elapsed_ms(), is_cancelled)

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
        return Response(run.snapshot(), run.conversation_id, self._calls, self._elapsed_ms(), self.state)

    async def _handle(self, event: Event) -> None:
        match event:
            # `Rewind` begins a run that another process continues, so no text, call or round came before it
            case Token(text) | Rewind(text=text) if text:
                self.state = "generating"
                if self._first_token_ms is None:
                    self._first_token_ms = self._elapsed_ms()
                await _call(self._callbacks.token, text)
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

    def _elapsed_ms(self) -> int:
        return round(((self._clock() if self._ended is None else self._ended) - self._began) * 1000)


async def _call(callback: Callback[T] | None, value: T) -> None:
    result = callback(value) if callback is not None else None
    if isawaitable(result):
        await result


def _count_tokens(exchange: Exchange) -> int:
    return exchange.usage.prompt_tokens + exchange.usage.completion_tokens if exchange.usage is not None else 0
