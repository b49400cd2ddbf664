"""The exchange of a turn in the store: its question as it begins, its answer as it ends, one turn at a time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from brain.errors import BadRequest, StoreError
from brain.messages import Call, Exchange, History, new_message_id
from brain.runtime.commands import Show, Stop
from brain.runtime.run import AnyRun, Run
from brain.runtime.runs import RunRegistry
from brain.store.sqlite import SQLite
from brain.store.turn_log import NewTurn, RequestTaken
from brain.turn_request import TurnRequest

ENDING_SECONDS = 2.0
"""How long a turn that was stopped may take to end, before the next one of its conversation is rejected."""
RETRY_SECONDS = 0.01
"""How soon it is tried again to begin while another turn, which has hardly begun, cannot be found yet."""

Key = tuple[str, str]
T = TypeVar("T")

log = logging.getLogger("brain")


class ExchangeLease:
    """The stored exchange of a turn that runs.

    Args:
        replaces: whether it replaces earlier exchanges.

    Attributes:
        is_stored: whether the answer is stored, as far as it can be.
    """

    def __init__(self, store: SQLite, history: History, *, replaces: bool = False) -> None:
        self.history = history
        self.replaces = replaces
        self.is_stored = False
        self._store = store

    @property
    def key(self) -> Key:
        """The user, and the ID of the conversation."""
        return self.history.user, self.history.id

    async def store(self, exchange: Exchange) -> str | None:
        """Store how the turn ended; what went wrong, in a sentence."""
        try:
            await self._store.end(self.history, exchange)
        except StoreError as error:
            log.error("conversation %s: an answer was not kept: %s", self.history.id, error)  # noqa: TRY400
            self.is_stored = True
            return error.message
        self.is_stored = True
        return None

    async def drop(self) -> None:
        """Delete the question."""
        try:
            await self._store.drop(self.history)
        except StoreError as error:
            log.error("conversation %s: a question was not removed: %s", self.history.id, error)  # noqa: TRY400


class Persistence:
    """Begins and ends the stored exchanges of one process.

    Args:
        turns: finds the turns of a conversation.
        recent: how many earlier exchanges a turn gets at most.
    """

    def __init__(self, store: SQLite, turns: RunRegistry, recent: int) -> None:
        self._store = store
        self._turns = turns
        self._recent = recent
        self._tasks: dict[Key, set[asyncio.Task[Any]]] = {}

    async def begin(
        self, request: TurnRequest, conversation_id: str, question: Exchange, turn: NewTurn
    ) -> ExchangeLease:
        """Store a question, and lease its conversation; other processes find the turn from now on.

        Raises:
            BadRequest: `busy`, while another turn of it runs; `too_large`; `not_found`, for what is to be replaced;
                `unavailable`, when it cannot be stored.
        """
        user = request.user or ""
        question.source, question.question_id = request.source, new_message_id()

        async def begin() -> ExchangeLease:
            question.started = datetime.now(UTC)
            replaces = request.replaces or await self._find_question(user, conversation_id, question)
            history = await self._store.begin(
                user,
                conversation_id,
                question,
                request.attachments,
                replaces=replaces,
                references=request.file_references,
                recent=self._recent,
                turn=turn,
            )
            return ExchangeLease(self._store, history, replaces=replaces is not None)

        try:
            return await self.run_alone(request.user, conversation_id, begin, stops=request.barge_in)
        except StoreError as error:
            log.error("a question could not be kept: %s", error)  # noqa: TRY400
            raise BadRequest(error.message, code="unavailable", status=503) from None

    async def _find_question(self, user: str, conversation_id: str, question: Exchange) -> str | None:
        """The ID of the stored question that this one is, with the results of calls that the client has made since."""
        results = {part.id for part in question.parts if isinstance(part, Call)}
        page = await self._store.conversation(user, conversation_id, limit=1) if results else None
        for newest in page.exchanges if page is not None else ():
            if any(isinstance(part, Call) and part.id in results for part in newest.parts):
                return newest.question_id
        return None

    async def run_alone(
        self, user: str | None, conversation_id: str, work: Callable[[], Awaitable[T]], *, stops: bool
    ) -> T:
        """Do something while no turn of a conversation runs.

        Args:
            work: raises `busy` while one does.
            stops: whether a turn that runs, or begins, is stopped and may take a moment to end.
        """
        until = time.monotonic() + ENDING_SECONDS
        while True:
            await self._wait_for_turns_here(user, conversation_id, stops=stops)
            try:
                return await work()
            except RequestTaken:
                raise
            except BadRequest as error:
                if error.code != "busy":
                    raise
                is_ending = await self._is_ending_elsewhere(user, conversation_id, until, stops=stops)
                if not stops and not is_ending:
                    raise
                if time.monotonic() >= until:
                    message = (
                        "A turn of this conversation is running in another process, or does not end; "
                        "try again when it has ended."
                    )
                    raise BadRequest(message, "conversation_id", code="busy", status=409) from None
            await asyncio.sleep(RETRY_SECONDS)

    async def _wait_for_turns_here(self, user: str | None, conversation_id: str, *, stops: bool) -> None:
        """Wait until a turn of this process that was stopped, or is stopped now, is stored."""
        run = self._turns.find_newest_here(conversation_id, user)
        if run is not None and stops:
            run.stop()
        if run is not None and run.is_stopping:
            await _wait_ended(run, time.monotonic() + ENDING_SECONDS)
        if tasks := self._tasks.get((user or "", conversation_id)):
            await asyncio.wait(tasks)

    async def _is_ending_elsewhere(self, user: str | None, conversation_id: str, until: float, *, stops: bool) -> bool:
        """Wait for a turn of another process that was stopped, or is stopped now; whether there is one."""
        run = await self._turns.find_newest(conversation_id, user)
        if run is None or isinstance(run, Run):
            return False
        try:
            report = await run.control(Stop() if stops else Show())
        except BadRequest:
            return False
        if run.is_stopping:
            await _wait_ended(run, until)
        return run.is_stopping or report.state in ("done", "error")

    def store_in_background(self, lease: ExchangeLease, exchange: Exchange | None) -> asyncio.Task[Any]:
        """Have a turn stored for which nobody can wait; with None, its question is deleted."""
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
        """Wait until everything is stored for which nobody waited."""
        while tasks := [task for some in self._tasks.values() for task in some]:
            await asyncio.wait(tasks)


async def _wait_ended(run: AnyRun, until: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(until - time.monotonic()):
            await run.wait_ended()
