"""Conversations for programs: a session is told each token as it comes, and gives a whole response.

It is a thin wrapper: each `think` is one turn of the engine, kept, cancelled and remembered as any other.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack, get_args
from zoneinfo import ZoneInfo

from brain.errors import BadRequest
from brain.events import ApprovalRequired, SpecialistStart
from brain.library.answer import Call, Callback, Callbacks, Metrics, Response, State, ThinkerRun
from brain.messages import Attachment, ChatMessage, Source, chat_messages, renumbered
from brain.plugins.registry import Registry
from brain.plugins.schema import Schema
from brain.plugins.specialist import Options
from brain.runtime.engine import Engine
from brain.settings import LOCAL_USER, read
from brain.turn_request import TurnRequest


class Thinker:
    """Brain inside a program: `async with Thinker(model="ollama:llama3.2") as thinker`.

    Args:
        registry: the specialists; those that are installed when left out.
        config: a settings file. Of the environment, only the variables are read that `key_env` of a model names.
        settings: any of the settings by their names in lower case, such as `store="memory:"`.

    Raises:
        SettingsError: naming the setting, its value and what is allowed.
    """

    def __init__(self, registry: Registry | None = None, *, config: Path | None = None, **settings: Any) -> None:
        overrides = {key.upper(): value for key, value in settings.items()}
        found = read({}, config, overrides, variables=os.environ)
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
        on_result: Callback[Call] | None = None,
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
        callbacks = Callbacks(on_token, on_call, on_result, on_approval)
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
        callbacks: Callbacks,
    ) -> None:
        self.conversation_id = conversation_id
        self._engine = engine
        self._callbacks = callbacks
        self._newest: ThinkerRun | None = None
        settings = engine.settings
        self._ask = TurnRequest(
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
        earlier, thought = self._newest, ThinkerRun(self._callbacks)
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
