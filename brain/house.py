"""Roof: what the routes share, from the start of the server to its end."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import anyio.lowlevel

from brain.errors import BadRequest
from brain.models import AnyModel, Opened, opened
from brain.rates import Allowances
from brain.registry import Registry
from brain.response import TurnResponse, server_stops
from brain.settings import Settings
from brain.store.memory import MemoryStore
from brain.turns import Turns
from brain.watch import Counted, Watch

SHUTDOWN_SECONDS = 5.0


@dataclass(eq=False)
class House:
    """What the routes share, from the start of the server to its end."""

    settings: Settings
    registry: Registry
    store: MemoryStore = field(default_factory=MemoryStore)
    models: list[Opened] = field(default_factory=list)
    turns: Turns = field(default_factory=Turns)
    allowances: Allowances = field(init=False)
    watch: Watch = field(init=False)
    answers: set[TurnResponse] = field(init=False)
    leaving: bool = False
    closing: AsyncExitStack | None = None

    def __post_init__(self) -> None:
        self.allowances = Allowances(self.settings.rights)
        self.watch = Watch(self.settings, self.registry)
        self.answers = Counted(self.watch.metrics.streams)

    async def open(self) -> None:
        """Opens the models, and starts the specialists that have something to start."""
        if self.closing is not None:
            return
        await anyio.lowlevel.checkpoint()  # anyio loads the half of itself that runs: now, and not in the first turn
        async with AsyncExitStack() as stack:
            self.watch.open()
            stack.push_async_callback(self.watch.close)
            await stack.enter_async_context(self.registry.running())
            self.models = await opened(self.settings, self.registry.usable())
            for one in self.models:
                stack.push_async_callback(one.model.aclose)
            stack.push_async_callback(self._give_up)
            self.leaving = False
            watcher = asyncio.create_task(self._say_farewell(), name="farewell")
            stack.callback(watcher.cancel)
            self.closing = stack.pop_all()

    async def close(self) -> None:
        """Closes what `open` opened."""
        if self.closing is not None:
            closing, self.closing = self.closing, None
            await closing.aclose()

    async def _say_farewell(self) -> None:
        """When the server is told to stop: ends all turns in a sentence, then those that did not listen."""
        await server_stops()
        self.leaving = True
        for run in self.turns.running:
            run.stop("shutdown")
        await asyncio.sleep(SHUTDOWN_SECONDS)
        for answer in list(self.answers):
            answer.leave()

    async def _give_up(self) -> None:
        """Ends what still runs without a reader, before the models are closed."""
        await asyncio.gather(*(run.give_up() for run in self.turns.running))
        self.turns.close()

    def names(self) -> frozenset[str]:
        """The models a request may name."""
        return frozenset(self.settings.model) | {one.model.name for one in self.models}

    def model(self, name: str | None) -> AnyModel:
        """The model of this name; the default without one."""
        if not self.models:
            raise BadRequest("The server is not ready yet.", code="unavailable", status=503)
        for wanted, one in zip(self.settings.model, self.models, strict=True):
            if name in (None, wanted, one.model.name):
                return one.model
        raise BadRequest(f"model must be one of: {', '.join(sorted(self.names()))}.", "model")
