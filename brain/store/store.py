"""The store: the database, and what takes more than one transaction."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast

import msgspec

from brain.errors import BadRequest, OutcomeUnknown, StoreError
from brain.messages import Attachment, Exchange, History
from brain.store import conversations, copying, deletion, exchanges, processes, tasks, transfer, turns, vectors
from brain.store.conversations import Conversation
from brain.store.database import Database
from brain.store.tasks import ReportEnd, RunEnd
from brain.store.tx import Tx
from brain.store.unwritten import UnwrittenAnswers
from brain.store.users import Counts

CLOSING_SECONDS = 2.0
CLOSE_SECONDS = 5.0
"""How long closing waits for other processes that write, in seconds."""
MAINTAIN_SECONDS = 5.0
"""How often new answers are added to the search index (a search adds them, too), and lost writes are repeated."""
SWEEP_SECONDS = 5.0
REST = 20
"""Pause between sweeps, as a multiple of the last sweep's duration: merging a large index rewrites all of it."""

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("brain")


class _Undo(Exception):
    """Undoes a write that was only tried, and has its result."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class DeferredStore:
    """Collects writes of one user, such as those of a report on tasks. Each is tried at once, with those before it.

    Reads see the writes. Nothing is stored until `ReportEnd` makes them.

    Attributes:
        writes: The writes so far.
    """

    def __init__(self, store: "Store") -> None:
        self.writes: list[Callable[[Tx], object]] = []
        self._store = store

    async def read(self, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not self.writes:
            return await self._store.read(function, *args, **kwargs)
        return await self._try(lambda tx: function(tx, *args, **kwargs), *args[:1])

    async def write(self, function: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:

        def write(tx: Tx) -> T:
            return function(tx, *args, **kwargs)

        result = await self._try(write, *args[:1])
        self.writes.append(write)
        return result

    async def _try(self, function: Callable[[Tx], T], *owner: object) -> T:
        writes = tuple(self.writes)

        def try_and_undo(tx: Tx, *owner: object) -> NoReturn:
            for write in writes:
                with suppress(BadRequest):  # as `tasks.end_report` does
                    write(tx)
            raise _Undo(function(tx))

        try:
            await self._store.write_unsynced(try_and_undo, *owner)
        except _Undo as undone:
            return cast("T", undone.result)


class Store:
    """Conversations, facts, memories and tasks of all users.

    `read`, `search` and `write` call the functions of this package, none of which reads, counts or searches data of
    another user. What needs more than one transaction is a method here. Several processes may use one database.

    Attributes:
        signs: The signs of vectors, for `vectors.search`.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.read, self.search = database.read, database.search
        self.write, self.write_unsynced = database.write, database.write_unsynced
        self.now = database.now
        self._unwritten = UnwrittenAnswers(database)
        self._tasks: list[asyncio.Task[None]] = []
        self._dropping: set[asyncio.Task[None]] = set()
        self.signs = vectors.SignCache()

    async def open(self) -> None:
        """Open the store.

        Raises:
            StoreError: With the place of the database and the remedy.
        """
        await self.database.open(_take_over)
        try:
            await self._end_copying()
        except BaseException:
            await self.database.close()
            raise
        work = [self._maintain_forever(), self._sweep_forever()]
        self._tasks = [asyncio.create_task(one, name="maintenance") for one in work]

    async def _end_copying(self) -> None:
        """Let copies of the store count as outdated from now on.

        Raises:
            StoreError: The database is an unfinished copy.
        """
        marks = await self.database.read(copying.marks)
        if copying.UNFINISHED in marks:
            advice = "Run the same `brain copy-store` again, or use another database."
            raise StoreError(f"{self.database.place}: it is an unfinished copy. {advice}")
        if marks:
            await self.database.write(copying.remove_marks)

    async def close(self) -> None:
        """Close the store after pending work, which waits for other processes only for a few seconds."""
        self.database.limit_waiting(CLOSE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._dropping)
        await self._unwritten.close()
        if self.database.is_shared:
            await self.sweep(CLOSING_SECONDS)
        await self.database.close()

    # turns

    async def write_question(
        self,
        user: str,
        conversation_id: str,
        question: Exchange,
        files: Sequence[Attachment],
        options: turns.QuestionOptions = turns.QuestionOptions(),  # noqa: B008 - it is immutable
    ) -> History:
        """Write a question and lease its conversation for the turn that answers it, until `end` or `drop`.

        Raises:
            NothingToReport: a report has nothing to tell, because another process was faster.
            BadRequest: `busy`, another turn of the conversation runs in any process; `not_found`, the message to
                replace does not exist; `too_large`; an unknown file reference; or a turn that is no run in the
                conversation of a task.
        """
        await self._unwritten.write_again((user, conversation_id))  # the end of the last turn there
        write = partial(
            turns.write_question,
            user=user,
            conversation_id=conversation_id,
            question=question,
            files=files,
            options=options,
        )
        # if the server crashes, the turn continues, and needs its question
        beginning = self.database.submit(write, user, durable=self.database.is_remote)
        try:
            history, earlier_files = await asyncio.shield(beginning)
            if earlier_files:
                history.attachments = await self.read(turns.attachments, earlier_files)
        except (asyncio.CancelledError, StoreError):
            dropping = asyncio.create_task(self._drop_late(beginning, user, conversation_id, question), name="drop")
            self._dropping.add(dropping)
            dropping.add_done_callback(self._dropping.discard)
            raise
        return history

    async def _drop_late(
        self,
        beginning: "asyncio.Future[tuple[History, Sequence[int]]]",
        user: str,
        conversation_id: str,
        question: Exchange,
    ) -> None:
        try:
            history, _ = await beginning
        except OutcomeUnknown:
            history = History(conversation_id, user=user, question=question)
            drop = turns.drop_unknown
        except (BadRequest, StoreError):
            return
        else:
            drop = turns.drop
        try:
            await self._unwritten.write(history, partial(drop, history=history))
        except StoreError as error:
            log.warning("the question of a turn that did not begin could not be deleted: %s", error)

    async def end(self, history: History, exchange: Exchange, task_end: RunEnd | ReportEnd | None = None) -> bool:
        """Write the answer. Without an answer, exchanges that were to be replaced stay.

        Return False if another process has claimed the turn.

        It may be called again with a longer answer. The question does not change. An answer that cannot be written now,
        such as on a full disk, is written later.

        Args:
            task_end: the end of a run of a task, or of a report on tasks, for the same transaction.
        """
        question = history.question
        assert question is not None
        ended = msgspec.structs.replace(
            exchange,
            parts=list(exchange.parts),  # the list may grow during the write
            message=question.message,
            question_id=question.question_id,
            source=question.source,
            files=question.files,
            started=question.started,
            ended=self.now() if exchange.ended is None else exchange.ended,
        )

        is_taken = False

        def write(tx: Tx) -> None:
            nonlocal is_taken
            existed = turns.end(tx, history, ended)
            is_taken = not existed and turns.is_taken(tx, history)
            if isinstance(task_end, RunEnd):
                tasks.end_run(tx, task_end._replace(exchange=ended))
            elif task_end is not None and existed:
                tasks.end_report(tx, task_end)

        await self._unwritten.write(history, write, ended)
        return not is_taken

    async def wait_written(self, history: History) -> None:
        """Wait until an answer that `end` could not write is written, or lost."""
        await self._unwritten.wait_written(history)

    async def drop(self, history: History) -> None:
        """Delete the question of a turn that did not begin."""
        await self._unwritten.write(history, lambda tx: turns.drop(tx, history))

    # conversations

    async def list_conversations(
        self, user: str, *, words: str = "", before: str | None = None, limit: int = 50
    ) -> list[Conversation]:
        """List the user's conversations, newest first.

        Args:
            words: must occur in the title, or in one message and its answer; the last one may be a prefix.
            before: the ID of the last conversation of the previous page.
        """
        if words:
            with suppress(StoreError):  # a read-only file can still be searched
                await self._index_words()
        return await self.search(conversations.list_conversations, user, words, before, limit)

    async def _maintain_forever(self) -> None:
        """Write what could not be written, and add new answers to the search index."""
        while True:
            await asyncio.sleep(MAINTAIN_SECONDS)
            with suppress(StoreError):  # was logged
                await self._unwritten.write_again()
            try:
                await self._index_words()
            except StoreError as error:
                log.warning("answers cannot be added to the search index: %s", error)

    async def _index_words(self) -> None:
        if await self.search(exchanges.has_unindexed):
            await self.database.write_in_steps(exchanges.index_some, "index")

    async def _sweep_forever(self) -> None:
        """Sweep every few seconds."""
        pause = SWEEP_SECONDS
        while True:
            await asyncio.sleep(pause)
            started = time.monotonic()
            await self.sweep()
            pause = max(SWEEP_SECONDS, REST * (time.monotonic() - started))

    async def sweep(self, seconds: float = math.inf) -> None:
        """Remove deleted rows and their traces.

        Args:
            seconds: Time limit; the next sweep continues.
        """
        until = time.monotonic() + seconds
        try:
            if await self.read(deletion.has_rows_to_remove):
                await self._remove(until=until)
            await self.database.sweep(until)
        except StoreError as error:
            log.warning("traces of deleted data cannot be removed: %s", error)

    async def _remove(self, conversation: int | None = None, until: float = math.inf) -> None:
        """Remove the rows of a deleted conversation, or all deleted rows, which no other write needs.

        Raises:
            StoreError: The rows cannot be removed now.
        """
        step = partial(deletion.remove_some, conversation=conversation)
        await self.database.write_in_steps(step, "deleted rows", until=until)
        if conversation is None:
            await self.write(deletion.remove_accounts)

    async def delete(self, user: str, conversation_id: str) -> bool:
        """Delete a conversation with its files and summary; return whether it existed. Facts stay.

        It vanishes at once; its rows are removed in small transactions.

        Raises:
            BadRequest: `busy`, a turn of it is running.
        """
        await self._unwritten.write_again((user, conversation_id))
        key = await self.write(conversations.delete, user, conversation_id)
        if key is not None:
            await self._remove_deleted(conversation=key)
        return key is not None

    async def export(self, user: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield all data of the user as JSON records from one snapshot; `import_user` reads them."""
        async with aclosing(self.database.walk(transfer.export, user)) as pieces:
            async for piece in pieces:
                for record in piece:
                    yield record

    async def import_user(
        self, user: str, records: AsyncIterable[Any] | Iterable[Any], sanitizer: transfer.Sanitizer
    ) -> Counts:
        """Import the records of an export, all or none. Records with existing IDs are skipped.

        Raises:
            BadRequest: with the number of the record and its field.
        """
        with SpooledTemporaryFile(transfer.MAX_IN_MEMORY) as spooled:
            await transfer.check(records, spooled)
            spooled.seek(0)
            new = transfer.Import(user, spooled, sanitizer)
            import_key = await self.write_unsynced(new.begin)
            try:
                await self.database.write_in_steps(new.insert_some, user)
                counts = await self.write(new.end)
            except BaseException as error:
                with suppress(StoreError):  # its lease ends soon
                    await self.write_unsynced(transfer.expire, import_key)
                if not isinstance(error, asyncio.CancelledError):
                    await self._remove_deleted()
                raise
        await self._remove_deleted()
        return counts

    async def forget(self, user: str) -> Counts:
        """Delete all data of the user. Traces may stay in the file until `scrub`.

        Raises:
            BadRequest: `busy`, a turn of the user is running.
            StoreError: the rows cannot be removed now; they are removed later.
        """
        counts = await self.write(conversations.delete_user, user)
        await self._remove()
        return counts

    async def scrub(self) -> None:
        """Remove all traces of deleted data, which blocks all writers.

        Raises:
            StoreError: Traces are left, because the disk is full or the database is in use.
        """
        await self._remove()
        await self.database.scrub()

    async def _remove_deleted(self, conversation: int | None = None) -> None:
        try:
            await self._remove(conversation)
        except StoreError as error:
            log.warning("deleted rows will be removed later: %s", error)


def _take_over(tx: Tx) -> None:
    """Clean up after processes that ended: no other process uses the database."""
    if copying.UNFINISHED in copying.marks(tx):
        return
    processes.remove_all(tx)
    has_more = True
    while has_more:
        _, has_more = turns.claim(tx, 0, continues=False)
    tasks.recover(tx)
    transfer.expire_all(tx)
