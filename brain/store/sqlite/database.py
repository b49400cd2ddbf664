"""SQLite: a file or memory, with one writer thread and two reader threads. Waiting writes share one commit."""

import asyncio
import logging
import math
import os
import shutil
import sqlite3
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, NamedTuple
from weakref import WeakValueDictionary

from brain.errors import StoreError
from brain.store import users
from brain.store.database import Database, P, T, Work
from brain.store.rows import MIB, SECOND
from brain.store.schema import TABLES
from brain.store.sqlite import connection
from brain.store.sqlite.connection import (
    DAMAGE,
    REMEDIES,
    SENTENCES,
    UNWRITABLE,
    as_store_errors,
    code_of,
    raise_store_error,
    transaction,
)
from brain.store.sqlite.words import Fts5
from brain.store.tx import FullText, Tx

MIN_FREE_BYTES = MIB
"""With less free space on its disk, a file counts as full."""
PROBE_BYTES = 65_536
PROBE_SECONDS = 5.0
PROBE_PERIOD_SECONDS = 1.0
MIN_BUSY_PAUSE, MAX_BUSY_PAUSE = 0.0003, 0.02
"""Seconds between attempts to write while another process is writing; they grow."""
MAX_GROUP = 64
"""Maximum number of writes per transaction."""
MAX_READS = 2
"""Maximum number of waiting reads per user."""
PAGES = 128
"""Index pages merged per transaction; other writers wait a few milliseconds."""
PATIENCE_SECONDS = 0.1
"""How long a sweep waits for readers of the log, in seconds. Writers wait, too."""
SCRUB_PATIENCE_SECONDS = 5.0

_WRITES, _READS, _SEARCHES = range(3)

log = logging.getLogger("brain")


class _Write(NamedTuple):
    """A write that waits for the writer thread; `until` limits its wait for other processes."""

    work: Work[Any]
    is_durable: bool
    is_alone: bool
    until: float
    future: "asyncio.Future[Any]"


class _TransactionUndone(Exception):
    """SQLite rolled back the whole transaction, as it does when the disk is full."""


class SQLiteTx:
    """A transaction of SQLite: see `Tx`."""

    __slots__ = ("_database", "execute", "executemany", "now", "process", "uptime")
    words: FullText = Fts5()
    lock_rows = ""

    def __init__(self, db: sqlite3.Connection, database: "SQLite") -> None:
        self.execute = db.execute
        self.executemany = db.executemany
        self.process = database.process
        self.now = round(database.clock() * SECOND)
        self.uptime = round(database.uptime() * SECOND)
        self._database = database

    def count(self, *written: str | bytes) -> None:
        self._database.written += sum(map(len, written))

    def last_key(self, table: str) -> int:
        row = self.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        return 0 if row is None else int(row[0])

    def set_last_key(self, table: str, key: int) -> None:
        """Set it, if SQLite does not look for the greatest key in the table itself."""
        self.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        if "AUTOINCREMENT" in TABLES[table]:
            self.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, key))


class SQLite(Database):
    """A database file, or a database in memory.

    Args:
        path: None for memory, where the least recently used conversations make room for new ones.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock, uptime)
        self.place = "memory" if path is None else str(path)
        self.is_shared = path is not None
        self.path = path
        self._threads = [ThreadPoolExecutor(1, f"brain-store-{name}") for name in ("writes", "reads", "searches")]
        self._connections: list[sqlite3.Connection] = []  # one per thread; in memory, only the first
        self._reads: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()
        self._waiting: deque[_Write] = deque()
        self._closing = ExitStack()
        self._give_up_at = math.inf
        self._file: os.stat_result | None = None
        self._wal: int | None = None
        self._is_damaged = False
        self._is_unwritable = False
        self._probed_at = -math.inf

    async def open(self, take_over: Work[None]) -> None:
        await self._run(_WRITES, partial(self._open, take_over))

    async def close(self) -> None:
        for thread in (_READS, _SEARCHES):
            await self._run(thread, lambda: None)
        await self._run(_WRITES, self._closing.close)
        for executor in self._threads:
            executor.shutdown()

    async def exists(self) -> bool:
        return self.path is not None and self.path.exists()

    async def data_version(self) -> int:
        return await self.run_outside(self._read_version)

    def _read_version(self, db: sqlite3.Connection) -> int:
        read_at = time.monotonic()
        ((version,),) = db.execute("PRAGMA data_version")
        self.known_version = int(version), read_at
        return int(version)

    def limit_waiting(self, seconds: float) -> None:
        self._give_up_at = min(self._give_up_at, time.monotonic() + seconds)

    def submit(
        self, work: Work[T], owner: str | None = None, *, durable: bool = True, alone: bool = False
    ) -> "asyncio.Future[T]":
        """Queue a write as `Database` says.

        Waiting writes run in one transaction, each in its own savepoint, so that turns that end together share one
        commit.
        """
        if self.path is None:
            work = partial(_write_in_memory, work)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        until = time.monotonic() + connection.BUSY_SECONDS
        self._waiting.append(_Write(work, durable, alone, until, future))
        self._threads[_WRITES].submit(self._write_waiting)
        return future

    async def run_read(self, work: Work[T], owner: str | None, *, slow: bool) -> T:
        """Read in a thread. A user whose reads wait does not make others wait."""
        thread = min(_SEARCHES if slow else _READS, len(self._connections) - 1)
        db = self._connections[thread]

        def read() -> T:
            with self._noting(), transaction(db, "BEGIN"):
                return work(SQLiteTx(db, self))

        if owner is None:
            return await self._run(thread, read)
        async with self._reads.setdefault((owner, thread), asyncio.Semaphore(MAX_READS)):
            return await self._run(thread, read)

    async def walk(
        self, function: Callable[Concatenate[Tx, P], Iterator[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        if self.path is None:
            for one in await self.read(lambda tx: list(function(tx, *args, **kwargs))):
                yield one
            return
        found = self._walk(self.path, lambda tx: function(tx, *args, **kwargs))
        thread = ThreadPoolExecutor(1, "brain-store-walks")
        try:
            while (one := await _run_in(thread, partial(next, found, None))) is not None:
                yield one
        finally:
            thread.submit(found.close)  # after its current step
            thread.shutdown(wait=False)

    async def run_outside(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work in the writer thread outside a transaction."""

        def run() -> T:
            with self._noting(writes=True):
                db = self._connections[_WRITES]
                _set_busy_timeout(db, connection.BUSY_SECONDS)
                try:
                    return work(db)
                finally:
                    _set_busy_timeout(db, 0)

        return await asyncio.shield(self._run(_WRITES, run))

    def check_place(self) -> None:
        """Check that the file is still at its path. Writes to a deleted file would be lost.

        Raises:
            StoreError: the file was deleted or moved.
        """
        if self.path is None or self._file is None:
            return
        try:
            is_there = os.path.samestat(self.path.stat(), self._file)
        except OSError:
            is_there = False
        if not is_there:
            raise StoreError("The database file was deleted or moved while in use. Restart Brain.")

    async def find_problem(self) -> str | None:
        """Return why the file cannot be read or written, as `Database` says.

        After a failed write, it writes several pages, since a small write may succeed on a nearly full disk.
        """
        if self.path is None:
            return None
        try:
            self.check_place()
            if self._is_damaged:
                return SENTENCES[sqlite3.SQLITE_CORRUPT]
            if shutil.disk_usage(self.path.parent).free < MIN_FREE_BYTES:
                return SENTENCES[sqlite3.SQLITE_FULL]
            if self._is_unwritable or time.monotonic() - self._probed_at >= PROBE_PERIOD_SECONDS:
                self._probed_at = time.monotonic()
                async with asyncio.timeout(PROBE_SECONDS):
                    await self.write_unsynced(_write_pages if self._is_unwritable else _write_page)
        except StoreError as error:
            return error.message
        except TimeoutError:  # earlier writes in the queue may still succeed
            return SENTENCES[sqlite3.SQLITE_IOERR] if self._is_unwritable else None
        return None

    async def diagnose(self) -> tuple[str | None, str]:
        if self.path is None:
            return None, "data is lost when the process ends"
        problem = await asyncio.to_thread(connection.find_problem, self.path)
        return problem, "" if problem else f"SQLite {sqlite3.sqlite_version}, {connection.describe_size(self.path)}"

    async def sweep(self, until: float) -> None:
        """Merge the indexes and empty the log.

        Words of deleted rows stay in the full-text indexes until these are merged, and old page contents stay in the
        write-ahead log until it is emptied. Any process continues what is left. Copies of rows that moved between pages
        may stay in free space until `scrub` rewrites the file.
        """
        self.check_place()
        if self.path is None:
            return
        query = "SELECT removed FROM leftover WHERE removed > swept"
        row = await self.read(lambda tx: tx.execute(query).fetchone())
        if row is not None and await self._merge(until) and await self._empty_log(PATIENCE_SECONDS):
            update = "UPDATE leftover SET swept = ? WHERE swept < ?"
            await self.write_unsynced(lambda tx: tx.execute(update, (*row, *row)) and None)

    async def scrub(self) -> None:
        """Rewrite the file, which blocks all writers."""
        if self.path is None:
            return
        await self._merge(math.inf)
        await self.run_outside(_rewrite_file)
        if not await self._empty_log(SCRUB_PATIENCE_SECONDS):
            raise StoreError("Another process is reading the database. Try again.", "the log is in use")

    async def _merge(self, until: float) -> bool:
        """Merge the indexes, which removes deleted words; return whether it finished in time."""
        for index in ("exchange_words", "item_words"):
            pages = -PAGES  # a negative number starts a full merge, a positive one continues it
            while await self.write_unsynced(_merge_some, pages, index):
                pages = PAGES
                if time.monotonic() >= until:
                    return False
        return True

    async def _empty_log(self, patience: float) -> bool:
        """Empty the write-ahead log, waiting up to `patience` seconds for its readers; return whether it is empty."""

        def empty(db: sqlite3.Connection) -> bool:
            _set_busy_timeout(db, patience)
            ((is_busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return not is_busy

        return await self.run_outside(empty)

    def _open(self, take_over: Work[None]) -> None:
        def begin_alone(db: sqlite3.Connection) -> None:
            self.is_alone = True
            take_over(SQLiteTx(db, self))

        with ExitStack() as stack:
            self.is_alone = self.path is None or sys.platform == "win32"
            self._connections = [connection.open_writer(self.path, stack, begin_alone)]
            # SQLite's own waits grow to 100 ms, but other writers need only a few; see `_begin`
            _set_busy_timeout(self._connections[_WRITES], 0)
            if self.path is not None:
                self._connections += [connection.open_reader(self.path, stack) for _ in (_READS, _SEARCHES)]
                self._file = self.path.stat()
                self._wal = _open_wal(self.path, stack)
            self._connections[_WRITES].execute("PRAGMA synchronous = NORMAL")  # `_sync` does the rest
            self._closing = stack.pop_all()

    def _walk(self, path: Path, begin: Work[Iterator[T]]) -> Generator[T]:
        with as_store_errors(), closing(connection.connect(path)) as db, transaction(db, "BEGIN"):
            yield from begin(SQLiteTx(db, self))

    def _run(self, thread: int, function: Callable[[], T]) -> "asyncio.Future[T]":
        return _run_in(self._threads[thread], function)

    @contextmanager
    def _noting(self, *, writes: bool = False) -> Iterator[None]:
        """Raise SQLite's errors as `StoreError`. Log the first one that shows a damaged or unwritable file."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            code = code_of(error) if self.path is not None else sqlite3.SQLITE_OK
            if code in DAMAGE and not self._is_damaged:
                self._is_damaged = True
                log.error("%s %s", self.path, REMEDIES[sqlite3.SQLITE_CORRUPT])  # noqa: TRY400
            elif writes and code in UNWRITABLE and not self._is_unwritable:
                self._is_unwritable = True
                log.error("%s %s", self.path, REMEDIES[code])  # noqa: TRY400
            raise_store_error(error)
        if writes and self._is_unwritable:
            self._is_unwritable = False
            log.info("%s is writable again", self.path)

    def _write_waiting(self) -> None:
        """Write a group of waiting writes and deliver their outcomes. It is called once per submitted write."""
        group: list[_Write] = []
        while self._waiting and len(group) < MAX_GROUP:
            if group and (group[0].is_alone or self._waiting[0].is_alone):
                break
            group.append(self._waiting.popleft())
        if group:
            outcomes = self._write(group)
            group[0].future.get_loop().call_soon_threadsafe(_deliver, group, outcomes)

    def _write(self, group: Sequence[_Write]) -> Sequence[Any]:
        """Return the result or exception of each write. If one rolls back the group, each is retried by itself."""
        try:
            with self._noting(writes=True):
                db = self._connections[_WRITES]
                self.check_place()
                is_durable = any(one.is_durable for one in group)
                if self.path is not None and self._wal is None:
                    db.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
                self._begin(db, max(one.until for one in group))
                with transaction(db, begin=None):
                    if len(group) == 1:
                        outcomes = [group[0].work(SQLiteTx(db, self))]
                    else:
                        outcomes = [self._write_in_savepoint(db, one.work) for one in group]
                    self._read_version(db)  # in the transaction, since SQLite need not lock the file again
                if is_durable and self._wal is not None:
                    _sync(self._wal)
                return outcomes
        except _TransactionUndone:
            return [outcome for one in group for outcome in self._write([one])]
        except BaseException as error:  # noqa: BLE001 - the waiting caller raises it
            return [error] * len(group)

    def _write_in_savepoint(self, db: sqlite3.Connection, work: Work[Any]) -> Any:
        """Return the result of the work, or the error for which it was rolled back."""
        db.execute("SAVEPOINT work")
        try:
            with as_store_errors():
                outcome = work(SQLiteTx(db, self))
        except Exception as error:
            if not db.in_transaction:
                raise _TransactionUndone from error
            db.execute("ROLLBACK TO work")
            outcome = error
        db.execute("RELEASE work")
        return outcome

    def _begin(self, db: sqlite3.Connection, until: float) -> None:
        """Begin a write transaction, waiting for other processes until then."""
        pause = MIN_BUSY_PAUSE
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= min(until, self._give_up_at):
                    raise
            else:
                return
            time.sleep(pause)
            pause = min(pause * 1.2, MAX_BUSY_PAUSE)


def _write_in_memory(work: Work[T], tx: Tx) -> T:
    result = work(tx)
    users.keep_within_memory(tx)
    return result


def _deliver(group: Sequence[_Write], outcomes: Sequence[Any]) -> None:
    for one, outcome in zip(group, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            one.future.set_exception(outcome)
        else:
            one.future.set_result(outcome)


def _run_in(thread: ThreadPoolExecutor, function: Callable[[], T]) -> "asyncio.Future[T]":
    return asyncio.get_running_loop().run_in_executor(thread, function)


def _open_wal(path: Path, stack: ExitStack) -> int | None:
    """Open the write-ahead log for `_sync`; None if the platform does not allow it.

    SQLite can sync the log itself, but holds the write lock while it does, so that other processes wait for the disk.
    """
    if sys.platform == "win32":
        return None
    try:
        wal = os.open(f"{path}-wal", os.O_RDONLY)
    except FileNotFoundError:
        return None
    stack.callback(os.close, wal)
    return wal


def _set_busy_timeout(db: sqlite3.Connection, seconds: float) -> None:
    db.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


def _sync(wal: int) -> None:
    try:
        getattr(os, "fdatasync", os.fsync)(wal)
    except OSError as error:
        failure = sqlite3.OperationalError(str(error))
        failure.sqlite_errorcode = sqlite3.SQLITE_IOERR
        failure.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise failure from None


def _write_page(tx: Tx) -> None:
    ((version,),) = tx.execute("PRAGMA user_version")
    tx.execute(f"PRAGMA user_version = {version}")


def _write_pages(tx: Tx) -> None:
    tx.execute("CREATE TABLE probe (room BLOB)")
    tx.execute("INSERT INTO probe VALUES (zeroblob(?))", (PROBE_BYTES,))
    tx.execute("DROP TABLE probe")


def _merge_some(tx: Tx, pages: int, index: str) -> bool:
    """Merge some pages of an index; return whether FTS5 merged anything, which its change count shows."""
    query = "SELECT total_changes()"
    ((before,),) = tx.execute(query)
    tx.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('merge', ?)", (pages,))
    ((after,),) = tx.execute(query)
    return bool(after - before >= 2)


def _rewrite_file(db: sqlite3.Connection) -> None:
    """Rewrite the file through the temporary directory, since it may be larger than memory.

    Only `brain forget` does this, at its end.
    """
    db.execute("PRAGMA temp_store = FILE")
    db.execute("VACUUM")
