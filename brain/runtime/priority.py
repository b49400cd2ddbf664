"""Gives the model server to people first: tasks wait, and interrupt their passes, while a person's turn runs."""

import asyncio
from contextlib import suppress

from brain.messages import TurnReport
from brain.runtime.run import Run
from brain.turn.turn import Turn

MAX_WAIT_SECONDS = 30.0
"""Longest wait of a task before a pass, so that it continues on a server that is always busy."""


class Priority:
    """The turns of one process that use models."""

    def __init__(self) -> None:
        self._background: set[Turn] = set()
        self._persons = 0
        self._is_free = asyncio.Event()
        self._is_free.set()

    def add_person(self, run: Run) -> None:
        """Count a person's turn until it ends, and interrupt the passes of tasks."""
        self._persons += 1
        self._is_free.clear()
        run.on_end.append(self._remove_person)
        for turn in self._background:
            turn.give_way()

    def _remove_person(self, report: TurnReport) -> None:
        self._persons -= 1
        if not self._persons:
            self._is_free.set()

    def add_background(self, run: Run, turn: Turn) -> None:
        """Count the turn of a task until it ends."""
        self._background.add(turn)
        run.on_end.append(lambda report: self._background.discard(turn))

    async def wait(self) -> None:
        """Wait until no person's turn runs, up to `MAX_WAIT_SECONDS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await self._is_free.wait()
