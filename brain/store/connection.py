"""Whether a file of the store can be used, for who runs the server and wants to know before users do."""

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
from contextlib import AbstractAsyncContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from brain.errors import StoreError
from brain.store.schema import Strange, check, migrate

MIB = 1024 * 1024
FREE_BYTES_LEAST = 100 * MIB
PATIENCE_SECONDS = 5.0


def find_problem(path: Path) -> str | None:
    """What is wrong with a file that can be opened: it cannot be written, is damaged, or its disk is full.

    Raises:
        StoreError: when it cannot be written, or read any more.
    """
    with as_store_errors(), closing(sqlite3.connect(path, PATIENCE_SECONDS, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        ((found,),) = db.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        return f"it is damaged: put a copy in its place that is whole ({found})"
    free = shutil.disk_usage(path.parent).free
    return f"only {size(free)} are free on its disk: make some room" if free < FREE_BYTES_LEAST else None


def describe_size(path: Path) -> str:
    """How large it is, with what is not yet in the file itself, and how much is free beside it, in words."""
    files = (path, path.with_name(f"{path.name}-wal"))
    used = sum(file.stat().st_size for file in files if file.exists())
    return f"{size(used)}, {size(shutil.disk_usage(path.parent).free)} free"


def size(count: int) -> str:
    """A number of bytes in words."""
    if count < MIB:
        return f"{-(-count // 1024):,} KiB"
    return f"{count / MIB:,.0f} MiB" if count < 10 * 1024 * MIB else f"{count / (1024 * MIB):,.0f} GiB"


if sys.platform != "win32":
    import fcntl

log = logging.getLogger("brain")

BUSY_SECONDS = 30.0
"""How long one process waits for another that writes: all that waits for the same one, as long together."""
CACHE_KIB = 16_384
JOURNAL_BYTES = 64 * 1024 * 1024
"""How much of the write-ahead log stays on the disk when it is not in use."""


@contextmanager
def presence(path: Path | None, stack: ExitStack) -> Iterator[bool]:
    """Holds the lock beside the file until the stack is closed, inside if possible alone; whether it is alone."""
    if path is None or sys.platform == "win32":
        yield False
        return
    _make(path)
    lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    stack.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield False
    else:
        yield True
        fcntl.flock(lock, fcntl.LOCK_SH)


def _make(path: Path) -> None:
    """Sees that the file is there, for its owner alone; SQLite gives the files beside it the same rights."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    for one in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(FileNotFoundError):
            if one.stat().st_mode & 0o077:
                _close_to_others(one)


def _close_to_others(path: Path) -> None:
    try:
        path.chmod(0o600)
    except PermissionError:
        log.warning("%s is open to others than its owner, and its rights cannot be changed", path)


def for_writing(
    path: Path | None, stack: ExitStack, alone: Callable[[sqlite3.Connection], None] | None
) -> sqlite3.Connection:
    """A connection to a file whose tables are up to date; `alone` is done in the same transaction."""
    db = connected(path)
    stack.callback(db.close)
    check(db)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA foreign_keys = OFF")  # a table that is made anew is dropped without what refers to it
    with transaction(db):
        migrate(db)
    db.execute("PRAGMA foreign_keys = ON")
    with transaction(db):
        if alone is not None:
            alone(db)
    return db


def for_reading(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """A connection by which nothing can be changed."""
    db = connected(path)
    stack.callback(db.close)
    db.execute("PRAGMA query_only = ON")
    return db


def connected(path: Path | None) -> sqlite3.Connection:
    """A connection, as all of them are; None for memory."""
    db = sqlite3.connect(
        path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        db.text_factory = _text
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        db.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
    except BaseException:
        db.close()
        raise
    return db


def _text(kept: bytes) -> str:
    """A text, also where it was damaged."""
    return kept.decode(errors="replace")


@contextmanager
def transaction(db: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """A transaction, undone when something is raised inside."""
    db.execute(begin)
    with ended(db):
        yield


@contextmanager
def ended(db: sqlite3.Connection) -> Iterator[None]:
    """The end of a transaction that was begun."""
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


FREE_LEAST = 1024 * 1024
"""Bytes: with less room on its disk, a file counts as one that cannot be written."""
PROBE_BYTES = 65_536
PROBE_SECONDS = 5.0
PROBE_PERIOD_SECONDS = 1.0

LOOK_LEAST_SECONDS, LOOK_MOST_SECONDS = 0.0003, 0.02
"""How long it waits between two looks whether another process still writes: longer and longer."""
REST_SECONDS = 0.1
"""How long small transactions of one piece of work wait for each other at most."""
GROUP_MOST = 64
"""Pieces of work in one transaction."""
SHARE = 2
"""So many reads of one user wait for a thread at a time."""

_SENTENCES = {
    sqlite3.SQLITE_FULL: "There is no room left to keep this.",
    sqlite3.SQLITE_READONLY: "What is kept cannot be written.",
    sqlite3.SQLITE_CANTOPEN: "What is kept cannot be opened.",
    sqlite3.SQLITE_IOERR: "What is kept cannot be read or written.",
    sqlite3.SQLITE_BUSY: "What is kept is in use by another process; try again.",
    sqlite3.SQLITE_LOCKED: "What is kept is in use; try again.",
    sqlite3.SQLITE_NOTADB: "What is kept is damaged.",
    sqlite3.SQLITE_CORRUPT: "What is kept is damaged.",
    sqlite3.SQLITE_TOOBIG: "This is too large to be kept.",
}
_REMEDIES = {
    sqlite3.SQLITE_FULL: "has no room on its disk; make some",
    sqlite3.SQLITE_READONLY: "cannot be written; check its owner and permissions",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check the folder and its permissions",
    sqlite3.SQLITE_BUSY: "is held by another process; end that, or name another file",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check its disk",
    sqlite3.SQLITE_NOTADB: "is no database; name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; put a copy in its place that is whole, or name another file. "
    "Brain leaves it as it is; sqlite3's .recover saves what can be read: see What is kept in docs/operations.md",
}
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNWRITABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


class Database:
    """A file, or a database in memory, that is opened once and closed once.

    Args:
        path: None for memory; what is in it ends with `close`.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._threads = [ThreadPoolExecutor(1, f"brain-store-{name}") for name in ("writes", "reads", "searches")]
        self._connections: list[sqlite3.Connection] = []  # one for each thread; in memory only the first
        self._shares: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()
        self._waiting: deque[_Write] = deque()
        self._closing = ExitStack()
        self._last = math.inf
        self._file: os.stat_result | None = None
        self._is_damaged = False
        self._is_unwritable = False
        self._wal: int | None = (
            None  # the write-ahead log, which is synchronized after the lock for writing is released
        )
        self._probed = -math.inf

    async def open(self, alone: Work[None]) -> None:
        """Opens it, with its tables up to date.

        Args:
            alone: is done first when no other process uses the file.

        Raises:
            StoreError: naming the file, and what to do.
        """
        await self._on(0, partial(self._open, alone))

    async def close(self) -> None:
        """Closes it when what was begun is done."""
        for reading in self._threads[1:]:
            await _in(reading, lambda: None)
        await self._on(0, self._closing.close)
        for thread in self._threads:
            thread.shutdown()

    def writing(self, work: Work[T], *, durable: bool = True, alone: bool = False) -> "asyncio.Future[T]":
        """Do something to the database; it is done whether or not somebody waits for it.

        Everything that waits for the writing thread is done in one transaction, each in a savepoint of its own, so that
        turns which end together share one commit.

        Args:
            durable: whether it is on the disk at the end, as far as the disk can be believed; else it outlives this
                process in any case, but not the machine.
            alone: whether it needs a transaction of its own, since it cannot be done again.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(work, durable, alone, time.monotonic() + BUSY_SECONDS, future))
        self._threads[0].submit(self._write_waiting)
        return future

    def limit_waiting(self, seconds: float) -> None:
        """Lets nothing wait any longer than so many seconds for another process that writes."""
        self._last = min(self._last, time.monotonic() + seconds)

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """The same, waited for.

        Raises:
            StoreError: when it cannot be written. Nothing has changed then.
        """
        return await asyncio.shield(self.writing(work, durable=durable))

    async def in_turns(self, work: Work[bool], *, until: float = math.inf) -> bool:
        """Does something in small transactions, between which it waits as long as they took: others get their turn.

        Args:
            work: is done again as long as it returns true.
            until: no transaction begins after this time, by `time.monotonic`.

        Returns:
            Whether it was done to the end.

        Raises:
            StoreError: when it cannot be written. What was done before stays.
        """
        more = True
        while more and (began := time.monotonic()) < until:
            writing = self.writing(work, durable=False, alone=True)
            try:
                more = await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait({writing})  # what it works with may be closed next
                raise
            if more:
                await asyncio.sleep(min(time.monotonic() - began, REST_SECONDS))
        return not more

    async def read(self, work: Work[T], *, user: str | None = None, aside: bool = False) -> T:
        """Looks something up, in one consistent state.

        Args:
            user: for whom. Of one user's, few wait for a thread at a time: others come before the rest of them.
            aside: whether it may take long, and no turn is to wait behind it.

        Raises:
            StoreError: when it cannot be read.
        """
        thread = min(2 if aside else 1, len(self._connections) - 1)
        async with self._share(user, thread):
            return await self._on(thread, partial(self._read, self._connections[thread], work))

    def _share(self, user: str | None, thread: int) -> AbstractAsyncContextManager[None]:
        return nullcontext() if user is None else self._shares.setdefault((user, thread), asyncio.Semaphore(SHARE))

    async def walk(self, begin: Callable[[sqlite3.Connection], Iterator[T]]) -> AsyncGenerator[T, None]:
        """Goes through what an iterator finds, in one consistent state, while others write and read."""
        if self.path is None:
            for one in await self.read(lambda db: list(begin(db))):
                yield one
            return
        found, thread = _found(self.path, begin), ThreadPoolExecutor(1, "brain-store-walks")
        try:
            while (one := await _in(thread, partial(next, found, None))) is not None:
                yield one
        finally:
            thread.submit(found.close)  # behind what it may be at
            thread.shutdown(wait=False)

    async def outside(self, work: Work[T]) -> T:
        """Does what no transaction may surround."""
        return await asyncio.shield(self._on(0, partial(self._outside, work)))

    def _on(self, thread: int, function: Callable[[], T]) -> "asyncio.Future[T]":
        return _in(self._threads[thread], function)

    def _open(self, alone: Work[None]) -> None:
        with ExitStack() as stack, _as_refusal(self.path):
            if self.path is not None:
                _check_kind(self.path)
            with presence(self.path, stack) as is_alone:
                self._connections = [for_writing(self.path, stack, alone if is_alone else None)]
            if self.path is not None:
                self._connections += [for_reading(self.path, stack) for _ in self._threads[1:]]
                self._file = self.path.stat()
                self._wal = _open_wal(self.path, stack)
            self._closing = stack.pop_all()

    def check_place(self) -> None:
        """Looks whether the file is still where it was opened: what is written to one that was deleted is lost.

        Raises:
            StoreError: when it is not.
        """
        if self.path is None or self._file is None:
            return
        try:
            is_there = os.path.samestat(self.path.stat(), self._file)
        except OSError:
            is_there = False
        if not is_there:
            raise StoreError("What is kept was deleted or moved while it was in use; restart Brain.")

    async def find_problem(self) -> str | None:
        """Find out whether the file can be read and written; what is wrong, in a sentence without its place.

        A write that failed is tried again with some pages, since a small one may find room where a larger one does not.
        """
        if self.path is None:
            return None
        try:
            self.check_place()
            if self._is_damaged:
                return _SENTENCES[sqlite3.SQLITE_CORRUPT]
            if shutil.disk_usage(self.path.parent).free < FREE_LEAST:
                return _SENTENCES[sqlite3.SQLITE_FULL]
            if self._is_unwritable or time.monotonic() - self._probed >= PROBE_PERIOD_SECONDS:
                self._probed = time.monotonic()
                async with asyncio.timeout(PROBE_SECONDS):
                    await self.write(_write_pages if self._is_unwritable else _write_page, durable=False)
        except StoreError as error:
            return error.message
        except OSError:
            return _SENTENCES[sqlite3.SQLITE_IOERR]
        except TimeoutError:  # other work is before it, which may succeed
            return _SENTENCES[sqlite3.SQLITE_IOERR] if self._is_unwritable else None
        return None

    @contextmanager
    def _noting(self, *, writes: bool) -> Iterator[None]:
        """Log the first error that shows that the file is damaged or cannot be written, and remember it."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            code = _code(error) if self.path is not None else sqlite3.SQLITE_OK
            if code in _DAMAGE and not self._is_damaged:
                self._is_damaged = True
                log.error("%s %s", self.path, _REMEDIES[sqlite3.SQLITE_CORRUPT])  # noqa: TRY400
            elif writes and code in _UNWRITABLE and not self._is_unwritable:
                self._is_unwritable = True
                log.error("%s %s", self.path, _REMEDIES[code])  # noqa: TRY400
            raise
        if writes and self._is_unwritable:
            self._is_unwritable = False
            log.info("%s can be written again", self.path)

    def _write_waiting(self) -> None:
        """Take what waits, write it, and give everybody its outcome. There is one call for each that was added."""
        group: list[_Write] = []
        while self._waiting and len(group) < GROUP_MOST and not (group and (group[0].alone or self._waiting[0].alone)):
            group.append(self._waiting.popleft())
        if group:
            outcomes = self._write(group)
            group[0].future.get_loop().call_soon_threadsafe(_deliver, group, outcomes)

    def _write(self, group: Sequence["_Write"]) -> Sequence[Any]:
        """What each returned or raised. If the whole group is undone by one of them, each is done by itself."""
        try:
            with as_store_errors(), self._noting(writes=True):
                db = self._connections[0]
                self.check_place()
                is_durable = any(one.durable for one in group)
                db.execute(f"PRAGMA synchronous = {'FULL' if is_durable and self._wal is None else 'NORMAL'}")
                self._begin(db, max(one.until for one in group))
                with ended(db):
                    if len(group) == 1:
                        outcomes = [group[0].work(db)]
                    else:
                        outcomes = [_in_savepoint(db, one.work) for one in group]
                if is_durable and self._wal is not None:
                    _sync(self._wal)
                return outcomes
        except _Undone:
            return [outcome for one in group for outcome in self._write([one])]
        except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
            return [error] * len(group)

    def _begin(self, db: sqlite3.Connection, until: float) -> None:
        """Begins to write, and waits until then for another process that does."""
        db.execute("PRAGMA busy_timeout = 0")  # SQLite's own waits grow to 100 ms, and others write for few
        pause = LOOK_LEAST_SECONDS
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= min(until, self._last):
                    raise
            else:
                return
            time.sleep(pause)
            pause = min(pause * 1.2, LOOK_MOST_SECONDS)

    def _read(self, db: sqlite3.Connection, work: Work[T]) -> T:
        with as_store_errors(), self._noting(writes=False), transaction(db, "BEGIN"):
            return work(db)

    def _outside(self, work: Work[T]) -> T:
        with as_store_errors(), self._noting(writes=True):
            self._connections[0].execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")
            return work(self._connections[0])


def _open_wal(path: Path, stack: ExitStack) -> int | None:
    """The write-ahead log, for `_sync`; None where the system lets only SQLite have it.

    SQLite synchronizes it, too, but holds the lock for writing meanwhile, so that other processes wait for the disk.
    """
    if sys.platform == "win32":
        return None
    try:
        wal = os.open(f"{path}-wal", os.O_RDONLY)
    except FileNotFoundError:
        return None
    stack.callback(os.close, wal)
    return wal


def _sync(wal: int) -> None:
    try:
        getattr(os, "fdatasync", os.fsync)(wal)
    except OSError as error:
        failure = sqlite3.OperationalError(str(error))
        failure.sqlite_errorcode = sqlite3.SQLITE_IOERR
        failure.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise failure from None


class _Write(NamedTuple):
    """Something that waits for the writing thread."""

    work: Work[Any]
    durable: bool
    alone: bool
    until: float
    future: "asyncio.Future[Any]"


class _Undone(Exception):
    """SQLite undid the whole transaction, as it does when the disk is full."""


def _in_savepoint(db: sqlite3.Connection, work: Work[Any]) -> Any:
    """What a piece of work returns, or the error by which it is undone."""
    db.execute("SAVEPOINT work")
    try:
        with as_store_errors():
            outcome = work(db)
    except Exception as error:
        if not db.in_transaction:
            raise _Undone from error
        db.execute("ROLLBACK TO work")
        outcome = error
    db.execute("RELEASE work")
    return outcome


def _deliver(group: Sequence[_Write], outcomes: Sequence[Any]) -> None:
    for one, outcome in zip(group, outcomes, strict=True):
        if one.future.cancelled():
            continue
        if isinstance(outcome, BaseException):
            one.future.set_exception(outcome)
        else:
            one.future.set_result(outcome)


def _in(thread: ThreadPoolExecutor, function: Callable[[], T]) -> "asyncio.Future[T]":
    """Hands a function over at once, in the order of the calls."""
    return asyncio.get_running_loop().run_in_executor(thread, function)


@contextmanager
def as_store_errors() -> Iterator[None]:
    """Errors of SQLite as ours, in words that tell nothing of where things are.

    What SQLite itself says of an error may quote what was kept or looked for; its name does not.
    """
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        sentence = _SENTENCES.get(_code(error), "What is kept cannot be used.")
        raise StoreError(sentence, getattr(error, "sqlite_errorname", type(error).__name__)) from None


@contextmanager
def _as_refusal(path: Path | None) -> Iterator[None]:
    """Errors at the start, for whoever runs the server."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise StoreError(f"{path} {_REMEDIES.get(_code(error), f'cannot be used: {error}')}.") from error
    except Strange as error:
        raise StoreError(f"{path} {error}.") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; check the folder and its permissions.") from error


def _found(path: Path, begin: Callable[[sqlite3.Connection], Iterator[T]]) -> Generator[T]:
    with as_store_errors(), closing(connected(path)) as db, transaction(db, "BEGIN"):
        yield from begin(db)


def _check_kind(path: Path) -> None:
    """Look whether SQLite may have the file.

    Raises:
        Strange: when it is a folder; when it was emptied, since SQLite would delete the log beside it, too.
    """
    wal = Path(f"{path}-wal")
    if path.is_dir():
        raise Strange("is a folder; name a file")
    if path.exists() and not path.stat().st_size and wal.exists() and wal.stat().st_size:
        raise Strange(f"is empty, but {wal.name} beside it is not; put a copy in its place that is whole, or move both")


def _write_page(db: sqlite3.Connection) -> None:
    ((version,),) = db.execute("PRAGMA user_version")
    db.execute(f"PRAGMA user_version = {version}")


def _write_pages(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE probe (room BLOB)")
    db.execute("INSERT INTO probe VALUES (zeroblob(?))", (PROBE_BYTES,))
    db.execute("DROP TABLE probe")


def _code(error: sqlite3.Error | UnicodeDecodeError) -> int:
    """SQLite's own number of what happened, without its details; errors of Python's own side have none.

    A message of SQLite that quotes a damaged schema may be no UTF-8, which Python raises instead.
    """
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
