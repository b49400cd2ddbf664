"""A turn in which a person can be asked, and what the person says; a specialist that asks for it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from playing import WAIT, Item, Player, ask_for, echo, read, registry_of, short, turn_of

from brain import Specialist, specialist
from brain.events import ApprovalRequired, Event
from brain.messages import Call
from brain.plugins.registry import Registry
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

Say = Callable[[Turn, ApprovalRequired], None]


class Post:
    """Where `sends` puts its letters."""

    def __init__(self) -> None:
        self.sent: list[str] = []


@specialist(approval="always", timeout=WAIT)
async def sends(to: str = "ada", *, post: Post) -> str:
    """Sends a letter."""
    post.sent.append(to)
    return f"sent to {to}"


def yes(turn: Turn, asked: ApprovalRequired) -> None:
    turn.decide(asked.call_id, True)


def no(turn: Turn, asked: ApprovalRequired) -> None:
    turn.decide(asked.call_id, False)


def silent(turn: Turn, asked: ApprovalRequired) -> None:
    """Says nothing."""


class Asked:
    """A turn in which somebody can be asked. `say` is called with each approval that is required."""

    def __init__(
        self,
        *passes: Sequence[Item] | str,
        say: Say = silent,
        more: Sequence[Specialist[..., Any]] = (),
        ask: TurnRequest | None = None,
        **options: Any,
    ) -> None:
        self.post = Post()
        self.model = Player(*passes)
        self.say = say
        self.registry = options.pop("registry", None) or registry_of(
            sends, echo, *more, registry=Registry(provide=[self.post])
        )
        self.ask = replace(ask or ask_for(), asks_person=True)
        self.options = options

    async def lead(self, on_event: Callable[[Turn, Event], None] = lambda turn, event: None) -> list[Any]:
        self.turn = turn_of(self.model, self.registry, self.ask, **self.options)

        def look(event: Event) -> None:
            on_event(self.turn, event)
            if isinstance(event, ApprovalRequired):
                self.say(self.turn, event)

        self.events = await read(self.turn, look)
        assert self.model.open == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return short(self.events)

    def told(self) -> list[Any]:
        return asyncio.run(self.lead())

    @property
    def blocks(self) -> list[str]:
        return [part.block for part in self.turn.exchange.parts if isinstance(part, Call)]
