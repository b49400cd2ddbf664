"""A turn whose user is asked for approvals, what the user decides, and a specialist that needs them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fast_clock import run_jumping
from turn_helpers import WAIT, Item, Player, ask_for, echo, read, registry_of, short, turn_of

from brain import Specialist, specialist
from brain.events import ApprovalRequired, Event
from brain.messages import Call
from brain.plugins.registry import Registry
from brain.turn.turn import Turn
from brain.turn_request import TurnRequest

Decide = Callable[[Turn, ApprovalRequired], None]


class Mailbox:
    """Where `sends` puts its letters."""

    def __init__(self) -> None:
        self.sent: list[str] = []


@specialist(approval="always", timeout=WAIT)
async def sends(to: str = "ada", *, mailbox: Mailbox) -> str:
    """Sends a letter."""
    mailbox.sent.append(to)
    return f"sent to {to}"


def approve(turn: Turn, event: ApprovalRequired) -> None:
    turn.state.approvals.decide(event.call_id, True)


def decline(turn: Turn, event: ApprovalRequired) -> None:
    turn.state.approvals.decide(event.call_id, False)


def wait(turn: Turn, event: ApprovalRequired) -> None:
    """Decide nothing."""


class ApprovalTurn:
    """A turn in which `decide` is called with each approval that is required."""

    def __init__(
        self,
        *passes: Sequence[Item] | str,
        decide: Decide = wait,
        more: Sequence[Specialist[..., Any]] = (),
        ask: TurnRequest | None = None,
        registry: Registry | None = None,
        **options: Any,
    ) -> None:
        mailbox = Mailbox()
        self.sent = mailbox.sent
        self.approvals: list[ApprovalRequired] = []
        self._model = Player(*passes)
        self._decide = decide
        self._registry = registry or registry_of(sends, echo, *more, registry=Registry(provide=[mailbox]))
        self._ask = replace(ask or ask_for(), asks_person=True)
        self._options = options

    def run(self, on_event: Callable[[Turn, Event], None] = lambda turn, event: None) -> list[Any]:
        """Run it on a clock that jumps; return its events, in short."""
        return run_jumping(self._run(on_event))

    async def _run(self, on_event: Callable[[Turn, Event], None]) -> list[Any]:
        turn = self.turn = turn_of(self._model, self._registry, self._ask, **self._options)

        def look(event: Event) -> None:
            on_event(turn, event)
            if isinstance(event, ApprovalRequired):
                self.approvals.append(event)
                self._decide(turn, event)

        events = short(await read(turn, look))
        assert self._model.open == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return events

    @property
    def calls(self) -> Sequence[Call]:
        return self.turn.snapshot().calls

    @property
    def blocks(self) -> list[str]:
        return [call.block for call in self.calls]

    @property
    def failures(self) -> list[str | None]:
        return [call.code for call in self.calls if call.code is not None]
