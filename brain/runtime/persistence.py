"""Stores the exchange of a turn: the question at its start, the answer at its end. One turn per conversation runs."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from brain.errors import StoreError
from brain.messages import Call, Exchange, new_message_id
from brain.runtime.run import Run
from brain.runtime.runs import RunRegistry
from brain.runtime.stored_exchange import Key, StoredExchange, TaskEnd
from brain.store import conversations
from brain.store.store import Store
from brain.store.turns import ConversationBusy, QuestionOptions
from brain.turn_request import TurnRequest

ENDING_SECONDS = 10.0
"""Time for a stopped turn to end. After it, the next turn of its conversation is rejected."""
RETRY_SECONDS = 0.01
"""Time between two tries to begin, while a turn has just begun and has no run yet."""

T = TypeVar("T")

log = logging.getLogger("brain")


class Persistence:
    """Begins and ends the stored exchanges of one process.

    Args:
        turns: Finds the runs of a conversation.
        recent: Limit of earlier exchanges for a turn.
    """

    def __init__(self, store: Store, turns: RunRegistry, recent: int) -> None:
        self._store = store
        self._turns = turns
        self._recent = recent
        self._tasks: dict[Key, set[asyncio.Task[Any]]] = {}

    async def store_question(
        self,
        request: TurnRequest,
        conversation_id: str,
        question: Exchange,
        resume: str = "",
        task_end: TaskEnd | None = None,
    ) -> StoredExchange:
        """Store a question, so that other processes find the turn.

        Args:
            resume: How another process can continue the turn; empty if none can.

        Raises:
            BadRequest: `busy`: another turn of it runs. `too_large`. `not_found`: there is no exchange to replace.
                `unavailable`: the question cannot be stored.
            RunsElsewhere: Another turn of it runs in another process that takes requests.
        """
        user = request.user or ""
        question.source, question.question_id = request.source, new_message_id()

        async def write_question() -> StoredExchange:
            question.started = datetime.now(UTC)
            replaces = request.replaces or await self._find_question(user, conversation_id, question)
            options = QuestionOptions(
                replaces=replaces,
                reused_files=request.reused_files,
                recent=self._recent,
                request_id=request.request_id,
                resume=resume,
                private=request.private,
            )
            history = await self._store.write_question(user, conversation_id, question, request.attachments, options)
            return StoredExchange(self._store, history, replaces=replaces is not None, task_end=task_end)

        try:
            is_background = request.source in ("task", "report")
            return await self.run_alone(
                request.user, conversation_id, write_question, stops=request.barge_in, stops_report=not is_background
            )
        except StoreError as error:
            log.error("a question could not be stored: %s", error)  # noqa: TRY400
            raise error.rejection() from None

    async def _find_question(self, user: str, conversation_id: str, question: Exchange) -> str | None:
        """Return the ID of the stored question if this one repeats it with results of the client's tool calls."""
        results = {part.id for part in question.parts if isinstance(part, Call)}
        page = await self._store.read(conversations.read_page, user, conversation_id, limit=1) if results else None
        for newest in page.exchanges if page is not None else ():
            if any(isinstance(part, Call) and part.id in results for part in newest.parts):
                return newest.question_id
        return None

    async def run_alone(
        self,
        user: str | None,
        conversation_id: str,
        work: Callable[[], Awaitable[T]],
        *,
        stops: bool,
        stops_report: bool = False,
    ) -> T:
        """Do work that needs a conversation without a running turn.

        Args:
            work: Raises `ConversationBusy` while a turn runs.
            stops: Whether to stop a running turn and wait for its end.
            stops_report: The same for a report on tasks, which no person has asked for.

        Raises:
            RunsElsewhere: The turn runs in another process that takes requests.
        """
        until = time.monotonic() + ENDING_SECONDS
        processes = self._turns.processes
        while True:
            await self._wait_for_turns_here(user, conversation_id, stops=stops)
            try:
                return await work()
            except ConversationBusy as busy:
                if processes is not None:
                    if await processes.interrupt(conversation_id, user or ""):
                        continue
                    await processes.raise_if_elsewhere(busy.process)
                stops = stops or (busy.is_report and stops_report)
                if not stops or time.monotonic() >= until:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _wait_for_turns_here(self, user: str | None, conversation_id: str, *, stops: bool) -> None:
        """Wait until a stopped turn of this process is stored; with `stops`, stop it first."""
        run = self._turns.find_newest_here(conversation_id, user)
        if run is not None and stops:
            run.stop()
        if run is not None and run.is_stopping:
            await _wait_ended(run, time.monotonic() + ENDING_SECONDS)
        if tasks := self._tasks.get((user or "", conversation_id)):
            await asyncio.wait(tasks)

    def store_in_background(self, stored: StoredExchange, exchange: Exchange | None) -> asyncio.Task[Any]:
        """Store an exchange in a separate task. With None, delete its question."""
        task: asyncio.Task[Any] = asyncio.create_task(
            stored.drop() if exchange is None else stored.store(exchange), name="store"
        )
        tasks = self._tasks.setdefault(stored.key, set())
        tasks.add(task)

        def discard(task: asyncio.Task[Any]) -> None:
            tasks.discard(task)
            if not tasks and self._tasks.get(stored.key) is tasks:
                del self._tasks[stored.key]

        task.add_done_callback(discard)
        return task

    async def wait_stored(self) -> None:
        """Wait for all tasks of `store_in_background`."""
        while tasks := [task for some in self._tasks.values() for task in some]:
            await asyncio.wait(tasks)


async def _wait_ended(run: Run, until: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(until - time.monotonic()):
            await run.wait_ended()
