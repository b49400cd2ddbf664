"""The store: one object with all reads and writes of conversations, facts and memories."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import msgspec

from brain.errors import BadRequest, StoreError
from brain.messages import (
    Attachment,
    Category,
    Conversation,
    ConversationPage,
    Counts,
    Exchange,
    FileReference,
    History,
    IdleConversation,
    Interaction,
    Item,
    ItemEmbedding,
    Kind,
    Marks,
    Query,
)
from brain.store import (
    answers,
    conversations,
    exchanges,
    hidden,
    idle,
    items,
    server_data,
    tasks,
    transfer,
    turns,
    users,
    vectors,
)
from brain.store.database import Database
from brain.store.leases import Leases
from brain.store.rows import SECOND, micros, moment
from brain.store.task_store import TaskStore
from brain.store.tasks import ReportEnd, RunEnd
from brain.store.turn_log import NewTurn, TurnLog
from brain.store.vacuum import Vacuum

CLOSING_SECONDS = 2.0
CLOSE_SECONDS = 5.0
"""How long closing waits for other processes that write, in seconds."""
INDEX_SECONDS = 5.0
"""How often new answers are added to the search index; a search adds them, too."""

log = logging.getLogger("brain")


class SQLite:
    """Conversations, facts and memories of all users. No method reads, counts or searches data of another user.

    Several processes may use one file. All methods raise `StoreError` if it cannot be read or written, and `BadRequest`
    for errors of the client.

    Args:
        path: None for memory, where the least recently used conversations make room for new ones.
        clock: returns seconds since 1970.

    Attributes:
        turn_log: turns of all processes that use the file; None for memory.
        tasks: background tasks.
    """

    def __init__(self, path: Path | None, *, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path)
        self._clock = clock
        self._leases = Leases(self._database, self._now)
        self._signs = vectors.SignCache()
        self._vacuum = Vacuum(self._database, self._now)
        self._tasks: list[asyncio.Task[None]] = []
        self._dropping: set[asyncio.Task[None]] = set()
        self.tasks = TaskStore(self._database, self._leases.owner, self._now)
        self.turn_log = (
            None if path is None else TurnLog(self._database, self._leases.owner, self._now, turns.interrupt)
        )

    async def open(self) -> None:
        """Open the store.

        Raises:
            StoreError: with the path of the file and the remedy.
        """
        await self._database.open(lambda db: _take_over(db, self._now()))
        if self.turn_log is not None:
            self.turn_log.open()
        work = [self._leases.prolong_forever(), self._index_forever()]
        if self._database.path is not None:
            work.append(self._vacuum.sweep_forever())
        self._tasks = [asyncio.create_task(one, name="maintenance") for one in work]

    async def close(self) -> None:
        """Close the store after pending work, which waits for other processes only for a few seconds."""
        self.limit_waiting(CLOSE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._dropping)
        await self._leases.close()
        if self._tasks and self._database.path is not None:
            await self._vacuum.sweep(CLOSING_SECONDS)
        self._tasks.clear()
        if self.turn_log is not None:
            self.turn_log.close()
        await self._database.close()

    def limit_waiting(self, seconds: float) -> None:
        """Limit the wait for other processes that write, because this process is about to end."""
        self._database.limit_waiting(seconds)

    async def find_problem(self) -> str | None:
        """Return why the store cannot be read or written, without the path of the file; None if it can."""
        return await self._database.find_problem()

    async def data_version(self) -> int:
        """Return a number that changes when another process commits a write."""
        return await self._database.run_outside(lambda db: int(db.execute("PRAGMA data_version").fetchone()[0]))

    # turns

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
        private: bool = False,
    ) -> History:
        """Write a question and lease its conversation for the turn that answers it, until `end` or `drop`.

        Args:
            replaces: the ID of a message. Its exchange and later ones are deleted once the new answer is written. The
                turn continues from the exchanges before it.
            references: files of the replaced question to reuse; they come before the new files.
            recent: number of earlier exchanges to return.
            turn: the turn that answers it, for other processes.
            private: make the conversation private, for good.

        Raises:
            NothingToReport: a report has nothing to tell, because another process was faster.
            BadRequest: `busy`, another turn of the conversation runs in any process; `not_found`, the message to
                replace does not exist; `too_large`; or an unknown file reference.
        """
        begin = partial(
            turns.begin,
            user=user,
            conversation_id=conversation_id,
            question=question,
            files=files,
            replaces=replaces,
            references=references,
            recent=recent,
            lease=self._leases.lease,
            turn=turn if self.turn_log is not None else None,
            private=private,
        )

        def work(db: sqlite3.Connection) -> tuple[History, Sequence[int]]:
            if question.source == "report":
                tasks.check_untold(db, user, conversation_id)
            return begin(db)

        await self._leases.write_again((user, conversation_id))  # the end of the last turn there
        beginning = self._database.submit(work, durable=False)
        try:
            history, earlier_files = await asyncio.shield(beginning)
            self._leases.keys.add(history.key)
            if earlier_files:
                history.attachments = await self._database.read(partial(turns.attachments, files=earlier_files))
        except (asyncio.CancelledError, StoreError):
            dropping = asyncio.create_task(self._drop_late(beginning), name="drop")
            self._dropping.add(dropping)
            dropping.add_done_callback(self._dropping.discard)
            raise
        return history

    async def _drop_late(self, beginning: "asyncio.Future[tuple[History, Sequence[int]]]") -> None:
        try:
            history, _ = await beginning
        except (BadRequest, StoreError):
            return
        try:
            await self.drop(history)
        except StoreError as error:
            log.warning("the question of a turn that did not begin could not be deleted: %s", error)

    async def end(self, history: History, exchange: Exchange, task_end: RunEnd | ReportEnd | None = None) -> None:
        """Write the answer. Without an answer, exchanges that were to be replaced stay.

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
            ended=moment(self._now()) if exchange.ended is None else exchange.ended,
        )
        owner, now = self._leases.owner, self._now()

        def write(db: sqlite3.Connection) -> None:
            existed = turns.end(db, history.key, ended)
            if isinstance(task_end, RunEnd):
                tasks.end_run(db, task_end._replace(exchange=ended), owner, now)
            elif task_end is not None and existed:
                tasks.end_report(db, task_end, now)

        await self._leases.end(history, write, ended)

    async def wait_written(self, history: History) -> None:
        """Wait until an answer that `end` could not write is written, or lost."""
        await self._leases.wait_written(history)

    async def checkpoint(self, history: History, exchange: Exchange) -> None:
        """Write the answer so far, from which a task continues if its process ends."""
        await self._database.write(lambda db: turns.checkpoint(db, history.key, exchange))

    async def drop(self, history: History) -> None:
        """Delete the question of a turn that did not begin."""
        await self._leases.end(history, lambda db: exchanges.remove(db, history.key))

    async def attachments(self, user: str, conversation_id: str) -> list[Attachment]:
        """Return all files of a conversation."""
        return await self._database.read(partial(turns.all_attachments, user=user, conversation_id=conversation_id))

    async def history(self, user: str, conversation_id: str, recent: int) -> History:
        """Return the history for a turn that would begin now, without files."""
        return await self._database.read(lambda db: turns.history(db, user, conversation_id, recent), user=user)

    # conversations

    async def conversations(
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
        work = partial(conversations.list_conversations, user=user, text=words, before=before, limit=limit)
        return await self._database.read(partial(work, now=self._now()), user=user, is_search=True)

    async def _index_forever(self) -> None:
        while True:
            await asyncio.sleep(INDEX_SECONDS)
            try:
                await self._index_words()
            except StoreError as error:
                log.warning("answers cannot be added to the search index: %s", error)

    async def _index_words(self) -> None:
        if await self._database.read(exchanges.has_unindexed, is_search=True):
            await self._database.write_in_steps(exchanges.index_some)

    async def conversation(
        self, user: str, conversation_id: str, *, before: str | None = None, limit: int = 50
    ) -> ConversationPage | None:
        """Return a conversation with its newest exchanges.

        Args:
            before: the ID of a question; only earlier exchanges are returned.
        """
        work = partial(conversations.read_page, user=user, conversation_id=conversation_id, before=before, limit=limit)
        return await self._database.read(partial(work, now=self._now()), user=user)

    async def answer(self, user: str, answer_id: str | None) -> tuple[str, Exchange] | None:
        """Return an answer by its ID, or the newest one, with the ID of its conversation. It may search all of them."""
        work = partial(conversations.find_answer, user=user, answer_id=answer_id, now=self._now())
        return await self._database.read(work, user=user, is_search=True)

    async def file(self, user: str, conversation_id: str, number: int) -> Attachment | None:
        """Return a file of a conversation by its ID."""
        work = partial(conversations.file, user=user, conversation_id=conversation_id, number=number)
        return await self._database.read(work, user=user, is_search=True)

    async def rename(self, user: str, conversation_id: str, title: str) -> Conversation | None:
        """Set the title of a conversation; it is not generated again."""
        now = self._now()
        return await self._database.write(lambda db: conversations.rename(db, user, conversation_id, title, now))

    async def delete(self, user: str, conversation_id: str) -> bool:
        """Delete a conversation with its files and summary; return whether it existed. Facts stay.

        It vanishes at once; its rows are removed in small transactions.

        Raises:
            BadRequest: `busy`, a turn of it is running.
        """
        await self._leases.write_again((user, conversation_id))
        work = partial(conversations.delete, user=user, conversation_id=conversation_id, lease=self._leases.lease)
        hidden_user = await self._database.write(work)
        if hidden_user is not None:
            await self._remove_hidden(hidden_user)
        return hidden_user is not None

    async def recent(self, user: str, limit: int) -> list[Interaction]:
        """Return the newest messages and answers of all the user's conversations, newest first."""
        return await self._database.read(lambda db: conversations.recent(db, user, limit), user=user)

    async def claim_idle(self, before: datetime, limit: int, *, alone: bool = False) -> list[IdleConversation]:
        """Claim conversations that were not used since `before` and whose summary lacks an exchange, newest first.

        No other caller in any process gets them for five minutes.

        Args:
            alone: claim nothing while any process runs a turn.
        """
        work = partial(idle.claim, before=micros(before), limit=limit, now=self._now(), alone=alone)
        return await self._database.write(work, durable=False)

    async def set_memory(self, idle_conversation: IdleConversation, item: Item | None) -> None:
        """Replace the summary of a conversation; None if it needs none."""
        await self._database.write(lambda db: idle.set_memory(db, idle_conversation, item))

    # answers of clients that keep their conversations

    async def remember_answer(self, user: str, exchange: Exchange, texts: Sequence[str]) -> None:
        """Store by which texts an answer is recognized, with its marks; see `answers.pieces`."""
        now = self._now()
        work = partial(answers.remember, user=user, exchange=exchange, texts=texts, now=now)
        await self._database.write(work, durable=False)

    async def answer_marks(self, user: str, texts: Sequence[str]) -> Marks:
        """Return the marks of answers that a client sends, from their normalized texts."""
        work = partial(answers.find_marks, user=user, texts=texts, now=self._now())
        return await self._database.read(work, user=user)

    # facts and memories

    async def items(
        self,
        user: str,
        *,
        kind: Kind | None = None,
        category: Category | None = None,
        words: str = "",
        before: str | None = None,
        limit: int = 50,
    ) -> list[Item]:
        """List the user's facts and memories, newest first; with words, those with any of them, best first.

        Args:
            before: the ID of the last item of the previous page.
        """
        work = partial(items.list_items, user=user, kind=kind, category=category, text=words)
        return await self._database.read(partial(work, before=before, limit=limit), user=user, is_search=bool(words))

    async def item(self, user: str, item_id: str) -> Item | None:
        """Return an item by its ID."""
        return await self._database.read(lambda db: items.find(db, user, item_id), user=user)

    async def memory_of(self, user: str, conversation_id: str) -> Item | None:
        """Return the summary of a conversation."""
        return await self._database.read(lambda db: items.memory_of(db, user, conversation_id), user=user)

    async def put(self, user: str, item: Item) -> None:
        """Write an item, replacing the user's item with the same ID."""
        await self._database.write(lambda db: items.put(db, user, item))

    async def erase(self, user: str, item_id: str) -> bool:
        """Delete an item; return whether it existed."""
        return await self._database.write(lambda db: items.erase(db, user, item_id))

    async def search_words(
        self, user: str, words: str, *, kinds: Sequence[Kind], limit: int
    ) -> list[tuple[Item, float]]:
        """Return items with any of the words and their scores, best first. Rare words and short texts score higher."""
        return await self._database.read(lambda db: items.search(db, user, words, kinds, limit), user=user)

    async def search_vectors(
        self, user: str, query: Query, *, kinds: Sequence[Kind], limit: int
    ) -> list[tuple[Item, float, float]]:
        """Return the items with the nearest vectors, their cosine similarity and its z-score, nearest first."""
        return await self._database.read(
            lambda db: vectors.search(db, self._signs, user, query, kinds, limit), user=user
        )

    async def without_vector(self, model: str, limit: int) -> list[tuple[str, Item]]:
        """Return items of any user without a vector of this model, each with its user."""
        return await self._database.read(lambda db: vectors.lacking(db, model, limit), is_search=True)

    async def embed(self, model: str, embedded: Sequence[tuple[str, str, str, ItemEmbedding]]) -> None:
        """Store embeddings as (user, item ID, embedded text, embedding). Items whose text changed are skipped."""
        await self._database.write(lambda db: vectors.write(db, model, embedded), durable=False)

    # the server's data

    async def server_value(self, name: str) -> str | None:
        """Return the value stored under a name: the result of an embedding check, or what is known about a model."""
        return await self._database.read(lambda db: server_data.server_value(db, name))

    async def set_server_value(self, name: str, value: str) -> None:
        """Store a value under a name, for other processes."""
        await self._database.write(lambda db: server_data.set_server_value(db, name, value), durable=False)

    async def blocked(self) -> Sequence[tuple[str, datetime, int, str]]:
        """List specialists that blocked the event loop lately: name, last time, count, code location."""
        rows = await self._database.read(lambda db: server_data.blocked(db, self._now()))
        return [(name, moment(last), times, place) for name, times, last, place in rows]

    async def add_blocked(self, specialist: str, place: str) -> None:
        """Record that a specialist blocked the event loop."""
        now = self._now()
        await self._database.write(lambda db: server_data.add_blocked(db, specialist, place, now), durable=False)

    # all data of a user

    async def users(self) -> list[str]:
        """Return the names of users with data or preferences."""
        return await self._database.read(users.names, is_search=True)

    async def count(self, user: str) -> Counts:
        """Return the counts of a user's data."""
        return await self._database.read(lambda db: users.count(db, users.find(db, user)), user=user, is_search=True)

    async def is_recall_on(self, user: str) -> bool:
        """Return whether recall is on for the user (default: yes)."""
        return await self._database.read(lambda db: users.recalls(db, user), user=user)

    async def set_recall(self, user: str, on: bool) -> None:
        """Turn recall on or off for the user."""
        await self._database.write(lambda db: users.set_recalls(db, user, on))

    async def export(self, user: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield all data of the user as JSON records from one snapshot; `import_user` reads them."""
        now = self._now()
        async with aclosing(self._database.walk(lambda db: transfer.export(db, user, now))) as pieces:
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
            await transfer.spool(records, spooled)
            spooled.seek(0)
            new = transfer.Import(user, spooled, sanitizer)
            hidden_user = await self._database.write(lambda db: new.begin(db, self._now()), durable=False)
            try:
                await self._database.write_in_steps(lambda db: new.take(db, self._now()))
                counts = await self._database.write(lambda db: new.end(db, self._now()))
            except asyncio.CancelledError:
                await self._database.write(lambda db: hidden.abandon(db, hidden_user), durable=False)
                raise
            except Exception:
                await self._remove_hidden(hidden_user)
                raise
        await self._remove_hidden(hidden_user)
        return counts

    async def forget(self, user: str) -> Counts:
        """Delete all data of the user. Traces may stay in the file until `scrub`.

        Raises:
            BadRequest: `busy`, a turn of the user is running.
            StoreError: the hidden rows cannot be removed now; they are removed later.
        """
        work = partial(conversations.delete_user, user=user, lease=self._leases.lease)
        counts, hidden_user = await self._database.write(work)
        if hidden_user is not None:
            await self._vacuum.remove(hidden_user)
        return counts

    async def scrub(self) -> None:
        """Remove traces of deleted data by rewriting the file, which blocks all writers.

        Raises:
            StoreError: traces are left, because the disk is full or the file is in use.
        """
        if self._database.path is not None:
            await self._vacuum.scrub()

    def _now(self) -> int:
        return round(self._clock() * SECOND)

    async def _remove_hidden(self, user: int) -> None:
        try:
            await self._vacuum.remove(user)
        except StoreError as error:
            log.warning("hidden rows will be removed later: %s", error)


def _take_over(db: sqlite3.Connection, now: int) -> None:
    """Clean up after processes that ended: no other process has the file open."""
    turns.interrupt_all(db)
    tasks.recover_all(db, now)
    hidden.abandon_all(db)
