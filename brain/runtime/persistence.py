"""Stores the exchange of a turn: the question at its start, the answer at its end. One turn per conversation runs."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from brain.errors import BadRequest, StoreError
from brain.messages import Call, Exchange, History, new_message_id
from brain.runtime.commands import ShowTurn, StopTurn
from brain.runtime.run import AnyRun, Run
from brain.runtime.runs import RunRegistry
from brain.store import conversations, turns
from brain.store.store import Store
from brain.store.tasks import ReportEnd, RunEnd
from brain.store.turn_log import NewTurn
from brain.store.turns import ConversationBusy, QuestionOptions
from brain.turn_request import TurnRequest

ENDING_SECONDS = 10.0
"""Time for a stopped turn to end. After it, the next turn of its conversation is rejected."""
RETRY_SECONDS = 0.01
"""Time between two tries to begin, while a turn of another process has just begun and cannot be found yet."""

STORED_LATER = "Brain stores this answer as soon as that is possible."

Key = tuple[str, str]
TaskEnd = Callable[[Exchange], RunEnd | ReportEnd | None]
"""Returns the end of a run of a task, or of a report on tasks, from the finished exchange."""
T = TypeVar("T")

log = logging.getLogger("brain")


class ExchangeLease:
    """The right of one turn to write its exchange.

    Args:
        replaces: Whether the exchange replaces earlier ones.

    Attributes:
        task_end: Returns what else to store with the finished exchange, in the same transaction.
        is_stored: Whether `store` has run, even if it failed.
    """

    def __init__(
        self, store: Store, history: History, *, replaces: bool = False, task_end: TaskEnd | None = None
    ) -> None:
        self.history = history
        self.replaces = replaces
        self.is_stored = False
        self.task_end = task_end
        self._store = store

    @property
    def key(self) -> Key:
        """The user and the conversation ID."""
        return self.history.user, self.history.id

    async def store(self, exchange: Exchange) -> str | None:
        """Store the finished exchange. Return an error message for people, or None.

        The answer of a task, for which nobody waits, is stored when this returns, even if that takes long.
        """
        try:
            await self._store.end(self.history, exchange, None if self.task_end is None else self.task_end(exchange))
        except StoreError as error:
            log.error("conversation %s: an answer was not stored: %s", self.history.id, error)  # noqa: TRY400
            self.is_stored = True
            if exchange.source == "task":
                await self._store.wait_written(self.history)
            return f"{error.message} {STORED_LATER}" if error.may_pass else error.message
        self.is_stored = True
        return None

    async def checkpoint(self, exchange: Exchange) -> None:
        """Store the answer so far.

        Raises:
            StoreError: The write failed.
        """
        await self._store.write(turns.checkpoint, self.history.key, exchange)

    async def drop(self) -> None:
        """Delete the question."""
        try:
            await self._store.drop(self.history)
        except StoreError as error:
            log.error("conversation %s: a question was not deleted: %s", self.history.id, error)  # noqa: TRY400


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

    async def lease(
        self,
        request: TurnRequest,
        conversation_id: str,
        question: Exchange,
        turn: NewTurn,
        task_end: TaskEnd | None = None,
    ) -> ExchangeLease:
        """Store a question and lease its conversation. Other processes then find the turn.

        Raises:
            BadRequest: `busy`: another turn of it runs. `too_large`. `not_found`: there is no exchange to replace.
                `unavailable`: the question cannot be stored.
        """
        user = request.user or ""
        question.source, question.question_id = request.source, new_message_id()

        async def write_question() -> ExchangeLease:
            question.started = datetime.now(UTC)
            replaces = request.replaces or await self._find_question(user, conversation_id, question)
            options = QuestionOptions(
                replaces=replaces,
                reused_files=request.reused_files,
                recent=self._recent,
                turn=turn,
                private=request.private,
            )
            history = await self._store.write_question(user, conversation_id, question, request.attachments, options)
            return ExchangeLease(self._store, history, replaces=replaces is not None, task_end=task_end)

        try:
            is_background = request.source in ("task", "report")
            return await self.run_alone(
                request.user, conversation_id, write_question, stops=request.barge_in, stops_report=not is_background
            )
        except StoreError as error:
            log.error("a question could not be stored: %s", error)  # noqa: TRY400
            raise BadRequest(error.message, code="unavailable", status=503) from None

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
        """
        until = time.monotonic() + ENDING_SECONDS
        while True:
            await self._wait_for_turns_here(user, conversation_id, stops=stops)
            try:
                return await work()
            except ConversationBusy as busy:
                stops = stops or (busy.is_report and stops_report)
                is_ending = await self._is_ending_elsewhere(user, conversation_id, until, stops=stops)
                if not stops and not is_ending:
                    raise
                if time.monotonic() >= until:
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

    async def _is_ending_elsewhere(self, user: str | None, conversation_id: str, until: float, *, stops: bool) -> bool:
        """Wait for a stopped turn of another process; with `stops`, stop it first. Return whether there is one."""
        run = await self._turns.find_newest(conversation_id, user)
        if run is None or isinstance(run, Run):
            return False
        try:
            exchange = await run.control(StopTurn() if stops else ShowTurn())
        except BadRequest:
            return False
        if run.is_stopping:
            await _wait_ended(run, until)
        return run.is_stopping or bool(exchange.outcome)

    def store_in_background(self, lease: ExchangeLease, exchange: Exchange | None) -> asyncio.Task[Any]:
        """Store an exchange in a separate task. With None, delete its question."""
        task: asyncio.Task[Any] = asyncio.create_task(
            lease.drop() if exchange is None else lease.store(exchange), name="store"
        )
        tasks = self._tasks.setdefault(lease.key, set())
        tasks.add(task)

        def discard(task: asyncio.Task[Any]) -> None:
            tasks.discard(task)
            if not tasks and self._tasks.get(lease.key) is tasks:
                del self._tasks[lease.key]

        task.add_done_callback(discard)
        return task

    async def wait_stored(self) -> None:
        """Wait for all tasks of `store_in_background`."""
        while tasks := [task for some in self._tasks.values() for task in some]:
            await asyncio.wait(tasks)


async def _wait_ended(run: AnyRun, until: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(until - time.monotonic()):
            await run.wait_ended()
