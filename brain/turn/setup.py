"""What a turn is given."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from brain.assist.assistance import Assistance
from brain.events import Role
from brain.markers.template_tokens import ControlTokens, find_control_tokens
from brain.messages import Attachment, Chunk, Exchange, History, new_turn_id
from brain.models.model import Model, PassRequest
from brain.plugins.context import MemoryView, TaskView
from brain.plugins.registry import Registry
from brain.plugins.specialist import Specialist
from brain.turn_request import Tool, TurnRequest, name_tools

OpenStream = Callable[[Model, int, PassRequest], AsyncGenerator[Chunk, None]]
"""Opens the stream of a model for the pass with this number."""
UseModel = Callable[[Callable[[], None]], Awaitable[Callable[[], None]]]
"""Awaited before a pass uses its model. It may wait, while the clock of the turn is paused, and call its argument to
interrupt the pass. The pass calls the returned function when it no longer needs the model."""
StoreExchange = Callable[[Exchange], Awaitable[str | None]]
"""Stores the exchange of a finished turn. Returns an error message for people, or None."""
StoreCheckpoint = Callable[[Exchange], Awaitable[None]]
"""Stores the answer so far of a turn that continues if its process ends."""


def open_stream(model: Model, number: int, request: PassRequest) -> AsyncGenerator[Chunk, None]:
    """Open the stream of a model."""
    return model.stream(request)


async def use_at_once(give_way: Callable[[], None]) -> Callable[[], None]:
    """Let a pass use its model without regard to others."""
    return lambda: None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of a turn, in seconds, that the client does not choose.

    Attributes:
        silence: Time without a chunk after which the model has failed.
        first_token: Time to the first token after which it has failed. None means `silence`.
        approval: Time for a person to decide about a call.
    """

    silence: float = 60.0
    first_token: float | None = None
    approval: float = 600.0


@dataclass(frozen=True, kw_only=True)
class TurnSetup:
    """What a turn is given.

    Attributes:
        history: The conversation before the turn, with its new question.
        models: The chosen model, then those that take over, in this order, when it fails.
        role_models: Models for some roles of the strategy, each with those that take over.
        operator: Instructions of the operator.
        automatic: Whether attachments may cause calls before the first pass.
        memory: The user's memory, for specialists.
        tasks: The user's background tasks, for specialists.
        assistance: What Brain does for a model that calls no specialists.
        store: Awaited before the last events. None if the turn is not stored.
        checkpoint: None if the turn ends with its process.
        resumes_after: Number of the last event before the checkpoint from which the turn continues: the parts of the
            question in `history`. 0 for a run of a task; None for another new turn.
    """

    request: TurnRequest
    history: History
    models: Sequence[Model]
    registry: Registry
    role_models: Mapping[Role, Sequence[Model]] = field(default_factory=dict)
    turn_id: str = field(default_factory=new_turn_id)
    operator: str = ""
    timeouts: Timeouts = Timeouts()
    automatic: bool = True
    memory: MemoryView | None = None
    tasks: TaskView | None = None
    assistance: Assistance | None = None
    store: StoreExchange | None = None
    checkpoint: StoreCheckpoint | None = None
    resumes_after: int | None = None
    use_model: UseModel = use_at_once
    open_stream: OpenStream = open_stream

    @cached_property
    def usable(self) -> Sequence[Specialist[..., Any]]:
        """The specialists that the model may call."""
        return self.registry.usable(self.request.specialists)

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """The client's tools, by the names that the model uses."""
        tools = self.request.tools
        return name_tools(tools, frozenset(specialist.name for specialist in self.usable)) if tools else {}

    @cached_property
    def tokens(self) -> ControlTokens:
        """The control tokens of all models of the turn."""
        models = [*self.models, *(model for some in self.role_models.values() for model in some)]
        return find_control_tokens(*(model.template for model in models))

    @property
    def attachments(self) -> Sequence[Attachment]:
        """All files of the conversation."""
        return (*self.history.attachments, *self.request.attachments)
