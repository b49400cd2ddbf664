"""Conversations for programs: a session calls back with each token and returns a whole response.

Each `think` is one turn of the engine. Brain stores it and remembers it like any other turn.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack, get_args
from zoneinfo import ZoneInfo

from brain.errors import BadRequest, SettingsError
from brain.events import ApprovalRequired, SpecialistStart, StrategyName
from brain.library.answer import (
    Callback,
    Callbacks,
    CallEnd,
    ChatMessage,
    Metrics,
    Response,
    SessionState,
    ThinkerRun,
    messages_of,
)
from brain.messages import Attachment, ClientSource, renumber
from brain.plugins.registry import Registry
from brain.plugins.schema import Schema
from brain.plugins.specialist import Options
from brain.protocols.common import parse_context
from brain.runtime.engine import Engine
from brain.settings import KEYS, LOCAL_USER, read
from brain.text import replace_surrogates, suggest
from brain.turn_request import STRATEGY_OPTIONS, TurnRequest
from brain.validation import quote_value


class Thinker:
    """Brain inside a program.

    Args:
        registry: The specialists (default: the installed ones).
        config: A settings file. Brain reads only the environment variables that `key_env` of a model names.
        settings: Any setting by its name in lower case, such as `store="memory:"`.

    Raises:
        SettingsError: The message has the setting, its value and the allowed values.

    Example:
        async with Thinker(model="ollama:llama3.2") as thinker:
            response = await thinker.create_session().think("Hi")
    """

    def __init__(self, registry: Registry | None = None, *, config: Path | None = None, **settings: Any) -> None:
        known = [name.lower() for name in KEYS]
        for name in settings:
            if name not in known:
                raise SettingsError(f"Unknown argument '{name}'.{suggest(name, known)}")
        overrides = {name.upper(): value for name, value in settings.items()}
        engine_settings = read({}, config, overrides, variables=os.environ, label="argument ")
        self._registry = registry if registry is not None else Registry(engine_settings).discover()
        self._engine = Engine(engine_settings, self._registry)

    async def __aenter__(self) -> "Thinker":
        """Open the store and the model, and start the specialists.

        Raises:
            BrainError: Brain cannot start with these settings.
        """
        await self._engine.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop all turns and close everything."""
        await self._engine.close()

    def register(
        self, name: str, description: str, parameters: Schema, handler: Callable[..., Any], **options: Unpack[Options]
    ) -> None:
        """Add a tool with a JSON Schema; see `brain.register`."""
        self._registry.register(name, description, parameters, handler, **options)

    def create_session(
        self,
        conversation_id: str | None = None,
        *,
        on_token: Callback[str] | None = None,
        on_call: Callback[SpecialistStart] | None = None,
        on_result: Callback[CallEnd] | None = None,
        on_approval: Callable[[ApprovalRequired], Awaitable[bool] | bool] | None = None,
        system: str = "",
        user: str = LOCAL_USER,
        model: str | None = None,
        strategy: StrategyName | None = None,
        critic: bool = False,
        private: bool = False,
    ) -> "Session":
        """Return a session: a new conversation, or a stored one to continue.

        Args:
            on_token: Called with each piece of the answer.
            on_call: Called when a specialist starts.
            on_result: Called when a specialist succeeds or fails.
            on_approval: Returns whether a call may run. Without it, Brain declines calls that need approval.
            system: Instructions for this session.
            user: Owner of the conversation and of the recalled memory.
            model: Name of a configured model (default: the first).
            strategy: How a turn uses models (default: the setting STRATEGY).
            critic: Whether the strategy `dual` checks the answer before it is shown.
            private: Whether only local models may read the conversation, from now on.
        """
        for field, name in (("user", user), ("conversation_id", conversation_id or "-")):
            if not name or not name.isprintable():
                raise BadRequest(f"`{field}` is {quote_value(name)}; use printable characters.", field)
        settings = self._engine.settings
        strategy = strategy or settings.strategy
        if strategy not in get_args(StrategyName):
            raise BadRequest(f"`strategy` must be one of: {', '.join(get_args(StrategyName))}.", "strategy")
        if critic and "critic" not in STRATEGY_OPTIONS[strategy]:
            raise BadRequest(f"`critic` has no effect on the strategy {strategy}; leave it out.", "critic")
        request = TurnRequest(
            message="",
            user=user,
            limits=settings.limits(strategy),
            syntax=settings.syntax,
            time_zone=settings.time_zone,
            conversation_id=conversation_id,
            model=model,
            strategy=strategy,
            critic=critic,
            private=private,
            system=replace_surrogates(system),
            asks_person=on_approval is not None,
        )
        return Session(self._engine, request, Callbacks(on_token, on_call, on_result, on_approval))


class Session:
    """One conversation, from `Thinker.create_session`.

    Attributes:
        conversation_id: None before the first turn of a new conversation.
    """

    def __init__(self, engine: Engine, request: TurnRequest, callbacks: Callbacks) -> None:
        self.conversation_id = request.conversation_id
        self._engine = engine
        self._request = request  # of each turn, without its message
        self._callbacks = callbacks
        self._newest: ThinkerRun | None = None

    @property
    def state(self) -> SessionState:
        """The state of the newest `think`."""
        return self._newest.state if self._newest is not None else "idle"

    @property
    def metrics(self) -> Metrics:
        """Metrics of the newest `think` so far."""
        return self._newest.metrics if self._newest is not None else Metrics()

    async def think(
        self,
        text: str,
        source: ClientSource = "chat",
        *,
        attachments: Sequence[Attachment] = (),
        context: Mapping[str, str] | None = None,
        memory: bool = True,
        barge_in: bool = False,
    ) -> Response:
        """Answer a message and call the callbacks.

        Args:
            source: How the user wrote the message. A spoken message (`voice`) gets an answer to listen to.
            context: Texts that the model reads before the message, as data: `goal`, `background`, `knowledge`,
                `previous_output` and `lessons`.
            memory: Whether to recall facts and memories of the user.
            barge_in: Whether to cancel a running `think` of the same conversation. Otherwise the new one is rejected.

        Raises:
            BadRequest: The message is empty, `context` is not valid, another turn of the conversation runs, or the
                thinker is closed.
        """
        if not isinstance(text, str) or not text.strip():
            raise BadRequest("`text` is empty; write a message.", "text")
        if source not in get_args(ClientSource):
            raise BadRequest(f"`source` must be one of: {', '.join(get_args(ClientSource))}.", "source")
        request = replace(
            self._request,
            message=replace_surrogates(text),
            conversation_id=self.conversation_id,
            attachments=renumber(
                tuple(replace(one, name=replace_surrogates(one.name)) for one in attachments), after=0
            ),
            now=datetime.now(ZoneInfo(self._request.time_zone)),
            source=source,
            context=parse_context(context),
            memory=memory,
            barge_in=barge_in,
        )
        previous, current = self._newest, ThinkerRun(self._callbacks)
        self._newest = current
        try:
            run = await self._engine.begin(request, "session")
        except BaseException:
            self._newest = previous
            raise
        self.conversation_id = run.conversation_id
        return await current.read(run)

    def cancel(self) -> None:
        """Cancel the newest `think` if it runs."""
        if self._newest is not None:
            self._newest.cancel()

    async def context(self) -> list[ChatMessage]:
        """Return the messages that the model will read before the next question, oldest first."""
        if self.conversation_id is None:
            return []
        model, user = (
            self._engine.find_model(self._request.model, private=self._request.private),
            self._request.user or "",
        )
        window = await self._engine.context_exchanges(user, self.conversation_id, model)
        return [message for exchange in window for message in messages_of(exchange)]
