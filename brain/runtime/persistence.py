"""A turn's place in the store. One turn of a conversation is filed at a time, and what becomes of it is kept."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from brain.errors import BadRequest, StoreError
from brain.messages import (
    Attachment,
    Call,
    ConversationPage,
    Exchange,
    FileReference,
    History,
    new_conversation_id,
    new_message_id,
)
from brain.runtime.commands import Show, Stop
from brain.runtime.run import AnyRun, Run
from brain.runtime.runs import RunRegistry
from brain.store.turn_log import NewTurn, RequestTaken
from brain.turn_request import TurnRequest

ENDING_SECONDS = 2.0
"""How long a turn that was told to end may take, before the next one of its conversation is refused."""
AGAIN_SECONDS = 0.01
"""How often is looked whether another turn of the conversation, which has hardly begun, is there to be told to end."""

Key = tuple[str, str]
T = TypeVar("T")

log = logging.getLogger("brain")


class Store(Protocol):
    """Where conversations are kept."""

    async def begin(
        self,
        user: str,
        conversation_id: str,
        question: Exchange,
        files: Sequence[Attachment],
        *,
        replaces: str | None = None,
        references: Sequence[FileReference] = (),
        recent: int = 20,
        turn: NewTurn | None = None,
    ) -> History:
        """Keeps a question, and holds its conversation for the turn that answers it.

        Raises:
            BadRequest: `busy`, while another turn holds it; `not_found`, for what it is to replace; `too_large`; naming
                a file that is to be taken along and is not there.
            StoreError: when it cannot be kept.
        """

    async def end(self, history: History, exchange: Exchange) -> None:
        """Keeps what came of it, and lets the conversation go."""

    async def drop(self, history: History) -> None:
        """Takes the question back: its turn cannot begin."""

    async def conversation(
        self, user: str, conversation_id: str, *, before: str | None = None, limit: int = 50
    ) -> ConversationPage | None:
        """The newest of it."""


class ExchangeLease:
    """The place of one turn.

    Args:
        replaces: whether it takes the place of earlier ones.

    Attributes:
        is_stored: whether it was told how the turn ended.
    """

    def __init__(self, store: Store, history: History, *, replaces: bool = False) -> None:
        self.history = history
        self.replaces = replaces
        self.is_stored = False
        self._store = store

    @property
    def key(self) -> Key:
        """Whose conversation it is."""
        return self.history.user, self.history.id

    async def store(self, exchange: Exchange) -> str | None:
        """Keeps a turn that ended, however it did; what went wrong, in a sentence."""
        try:
            await self._store.end(self.history, exchange)
        except StoreError as error:
            log.error("conversation %s: an answer was not kept: %s", self.history.id, error)  # noqa: TRY400
            self.is_stored = True  # as far as it can be
            return error.message
        self.is_stored = True
        return None

    async def drop(self) -> None:
        """Takes the question back."""
        try:
            await self._store.drop(self.history)
        except StoreError as error:
            log.error("conversation %s: a question was not taken back: %s", self.history.id, error)  # noqa: TRY400


class Persistence:
    """Those of one process.

    Args:
        turns: by which the turns of a conversation are found.
        recent: how many of the exchanges before it a turn wants to know at most.
    """

    def __init__(self, store: Store, turns: RunRegistry, recent: int) -> None:
        self._store = store
        self._turns = turns
        self._recent = recent
        self._keeping: dict[Key, set[asyncio.Task[Any]]] = {}

    async def begin(self, ask: TurnRequest, question: Exchange, turn: NewTurn) -> ExchangeLease:
        """Keeps what is asked, and holds its conversation; other processes find the turn from now on.

        Raises:
            BadRequest: `busy`, while another turn of it runs; `too_large`; `not_found`, for what is to be replaced;
                `unavailable`, when it cannot be kept.
        """
        user, conversation_id = ask.user or "", ask.conversation_id or new_conversation_id()
        question.source, question.question_id = ask.source, new_message_id()

        async def begun() -> ExchangeLease:
            question.started = datetime.now(UTC)
            replaces = ask.replaces or (await self._answered_in_part((user, conversation_id), question))
            history = await self._store.begin(
                user,
                conversation_id,
                question,
                ask.attachments,
                replaces=replaces,
                references=ask.file_references,
                recent=self._recent,
                turn=turn,
            )
            return ExchangeLease(self._store, history, replaces=replaces is not None)

        try:
            lease = await self.run_alone(ask.user, conversation_id, begun, stops=ask.barge_in)
        except StoreError as error:
            log.error("a question could not be kept: %s", error)  # noqa: TRY400
            raise BadRequest(error.message, code="unavailable", status=503) from None
        return lease

    async def _answered_in_part(self, key: Key, question: Exchange) -> str | None:
        """The same question's id, if it is kept: its answer ended with calls, which the client has answered since."""
        answered = _call_ids(question)
        found = await self._store.conversation(*key, limit=1) if answered else None
        newest = found.exchanges[-1] if found is not None and found.exchanges else None
        return newest.question_id if newest is not None and answered & _call_ids(newest) else None

    async def run_alone(
        self, user: str | None, conversation_id: str, work: Callable[[], Awaitable[T]], *, stops: bool
    ) -> T:
        """Does what no turn of the conversation may run beside.

        Args:
            stops: whether one that runs is told to end, and given a moment for it; also one that only begins.
        """
        until = time.monotonic() + ENDING_SECONDS
        while True:
            await self._others_end(user, conversation_id, stops=stops)
            try:
                return await work()
            except RequestTaken:
                raise
            except BadRequest as error:
                if error.code != "busy":
                    raise
                is_ending = await self._end_elsewhere(user, conversation_id, until, stops=stops)
                if not stops and not is_ending:
                    raise
                if time.monotonic() >= until:
                    raise _elsewhere() from None
            await asyncio.sleep(AGAIN_SECONDS)

    async def _others_end(self, user: str | None, conversation_id: str, *, stops: bool) -> None:
        """Waits for a turn of the conversation that was told to end, or is told so now, until it is kept."""
        run = self._turns.find_newest_here(conversation_id, user)
        if run is not None and stops:
            run.stop()
        if run is not None and run.is_stopping:
            await _ended(run, time.monotonic() + ENDING_SECONDS)
        if keeping := self._keeping.get((user or "", conversation_id)):
            await asyncio.wait(keeping)

    async def _end_elsewhere(self, user: str | None, conversation_id: str, until: float, *, stops: bool) -> bool:
        """The same for a turn that another process runs; whether one ends."""
        run = await self._turns.find_newest(conversation_id, user)
        if run is None or isinstance(run, Run):
            return False
        try:
            report = await run.control(Stop() if stops else Show())
        except BadRequest:
            return False
        if run.is_stopping:
            await _ended(run, until)
        return run.is_stopping or report.state in ("done", "error")

    def store_later(self, lease: ExchangeLease, exchange: Exchange | None) -> asyncio.Task[Any]:
        """Has a turn kept for which nobody can wait; None takes its question back."""
        return self._do(lease.key, lease.drop() if exchange is None else lease.store(exchange))

    def _do(self, key: Key, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name="store")
        tasks = self._keeping.setdefault(key, set())
        tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            tasks.discard(task)
            if not tasks and self._keeping.get(key) is tasks:
                del self._keeping[key]

        task.add_done_callback(done)
        return task

    async def wait_stored(self) -> None:
        """Waits until all is kept that nobody waited for."""
        while tasks := [task for some in self._keeping.values() for task in some]:
            await asyncio.wait(tasks)


def _call_ids(exchange: Exchange) -> set[str]:
    return {part.id for part in exchange.parts if isinstance(part, Call)}


async def _ended(run: AnyRun, until: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(until - time.monotonic()):
            await run.wait_ended()


def _elsewhere() -> BadRequest:
    message = "A turn of this conversation is running in another process, or does not end; try again when it has ended."
    return BadRequest(message, "conversation_id", code="busy", status=409)
