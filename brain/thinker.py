"""Rooms: conversations for programs: a session is told each token as it comes, and gives a whole response.

It is a thin wrapper: each `think` is one turn of the engine, kept, cancelled and remembered as any other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from inspect import isawaitable
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, get_args
from zoneinfo import ZoneInfo

from brain.ask import Ask, Attachment, Source, renumbered
from brain.engine import Engine
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
from brain.kept import ChatMessage, chat_messages
from brain.registry import Registry
from brain.schema import Schema
from brain.settings import LOCAL_USER, read
from brain.specialist import Options
from brain.turns import Run

State = Literal["idle", "processing", "tool_calling", "generating", "complete", "cancelled", "error"]
Called = SpecialistResult | SpecialistError
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
    calls: Sequence[Called]
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
class _Callbacks:
    token: Callback[str] | None
    call: Callback[SpecialistStart] | None
    result: Callback[Called] | None
    approval: Callable[[ApprovalRequired], Awaitable[bool] | bool] | None


class Thinker:
    """Brain inside a program: `async with Thinker(model="ollama:llama3.2") as thinker`.

    Args:
        registry: the specialists; those that are installed when left out.
        config: a settings file. The environment is not read.
        settings: any of the settings by their names in lower case, such as `store="memory:"`.

    Raises:
        SettingsError: naming the setting, its value and what is allowed.
    """

    def __init__(self, registry: Registry | None = None, *, config: Path | None = None, **settings: Any) -> None:
        found = read({}, config, {key.upper(): value for key, value in settings.items()})
        self._registry = registry if registry is not None else Registry(found).discover()
        self._engine = Engine(found, self._registry)

    async def __aenter__(self) -> "Thinker":
        """Opens the store and the model, and starts the specialists.

        Raises:
            BrainError: what is set does not let it start.
        """
        await self._engine.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Ends what still runs, and closes all."""
        await self._engine.close()

    def register(
        self, name: str, description: str, parameters: Schema, handler: Callable[..., Any], **options: Unpack[Options]
    ) -> None:
        """Adds a tool that brings its JSON Schema; `handler` is called with the parameters as one mapping.

        Raises:
            RegistrationError: naming it and what is wrong; for a taken name, both origins.
        """
        self._registry.register(name, description, parameters, handler, **options)

    def create_session(
        self,
        conversation_id: str | None = None,
        *,
        on_token: Callback[str] | None = None,
        on_call: Callback[SpecialistStart] | None = None,
        on_result: Callback[Called] | None = None,
        on_approval: Callable[[ApprovalRequired], Awaitable[bool] | bool] | None = None,
        system: str = "",
        user: str = LOCAL_USER,
        model: str | None = None,
    ) -> "Session":
        """A conversation to think in: a new one, or one that goes on.

        Args:
            on_token: is called with each piece of the answer when it arrives; `on_call` when a specialist starts,
                `on_result` when it found something or failed.
            on_approval: says whether a call may run; without it, calls that must be approved are declined.
            system: instructions for this session.
            user: whose conversation it is, and whose memory is recalled.
            model: one of those on offer; the first when left out.
        """
        if not user:
            raise BadRequest("user must be a name.", "user")
        callbacks = _Callbacks(on_token, on_call, on_result, on_approval)
        return Session(self._engine, conversation_id, user, system, model, callbacks)


class Session:
    """One conversation. Made by `Thinker.create_session`.

    Attributes:
        conversation_id: that of its first turn on, when it was not given.
    """

    def __init__(
        self,
        engine: Engine,
        conversation_id: str | None,
        user: str,
        system: str,
        model: str | None,
        callbacks: _Callbacks,
    ) -> None:
        self.conversation_id = conversation_id
        self._engine = engine
        self._callbacks = callbacks
        self._newest: _Thought | None = None
        settings = engine.settings
        self._ask = Ask(
            message="",
            user=user,
            limits=settings.limits,
            syntax=settings.syntax,
            time_zone=settings.time_zone,
            model=model,
            system=system,
            asks_person=callbacks.approval is not None,
        )

    @property
    def state(self) -> State:
        """Where the newest `think` is."""
        return self._newest.state if self._newest is not None else "idle"

    @property
    def metrics(self) -> Metrics:
        """What the newest `think` took so far."""
        return self._newest.metrics if self._newest is not None else Metrics()

    async def think(
        self,
        text: str,
        source: Source = "chat",
        *,
        attachments: Sequence[Attachment] = (),
        memory: bool = True,
        barge_in: bool = False,
    ) -> Response:
        """Answers a message; the callbacks are called meanwhile.

        Args:
            source: how it was said; what was spoken is answered for the ear.
            memory: whether facts and memories of the user are recalled.
            barge_in: cancels a `think` of the same conversation that still runs, instead of being refused.

        Raises:
            BadRequest: when the message is empty, another turn of the conversation runs, or the thinker is closed.
        """
        if not isinstance(text, str) or not text.strip():
            raise BadRequest("text must say something.", "text")
        if source not in get_args(Source):
            raise BadRequest(f"source must be one of: {', '.join(get_args(Source))}.", "source")
        ask = replace(
            self._ask,
            message=text,
            conversation_id=self.conversation_id,
            attachments=renumbered(tuple(attachments), after=0),
            now=datetime.now(ZoneInfo(self._ask.time_zone)),
            source=source,
            memory=memory,
            barge_in=barge_in,
        )
        earlier, thought = self._newest, _Thought(self._callbacks)
        self._newest = thought
        try:
            run = await self._engine.begin(ask, "session")
        except BaseException:
            self._newest = earlier
            raise
        self.conversation_id = run.conversation_id
        return await thought.led(run)

    def cancel(self) -> None:
        """Ends the newest `think`, within moments; nothing when none runs."""
        if self._newest is not None:
            self._newest.cancel()

    async def context(self) -> list[ChatMessage]:
        """The messages that the model reads before the next question, oldest first."""
        if self.conversation_id is None:
            return []
        model, user = self._engine.model(self._ask.model), self._ask.user or ""
        window = await self._engine.window(user, self.conversation_id, model)
        return [entry for exchange in window for entry in chat_messages(exchange)]


class _Thought:
    """One `think`."""

    def __init__(self, callbacks: _Callbacks) -> None:
        self.state: State = "processing"
        self._callbacks = callbacks
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._took = 0
        self._run: Run | None = None
        self._cancelled = False
        self._said: list[str] = []
        self._open: set[str] = set()
        self._calls: list[Called] = []
        self._tokens = 0
        self._first_token_ms: int | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    @property
    def metrics(self) -> Metrics:
        running = self.state not in ("complete", "cancelled", "error")
        usage = self._run.report().usage if running and self._run is not None else None
        tokens = self._tokens if usage is None else usage.prompt_tokens + usage.completion_tokens
        total = self._now() if running else self._took
        return Metrics(tokens, len(self._calls), self._first_token_ms, total, self.state == "cancelled")

    def cancel(self) -> None:
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
            async with aclosing(run.lead()) as batches:
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
