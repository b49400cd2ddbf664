"""Connections to the file of the store: how it is opened and checked, and SQLite's errors as `StoreError`."""

import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from brain.errors import StoreError
from brain.store.schema import IncompatibleFile, check, migrate

if sys.platform != "win32":
    import fcntl

MIB = 1024 * 1024
MIN_FREE_BYTES = 100 * MIB
"""With less room on its disk, `find_problem` reports it."""
PATIENCE_SECONDS = 5.0
BUSY_SECONDS = 30.0
"""How long one process waits for another that writes."""
CACHE_KIB = 16_384
JOURNAL_BYTES = 64 * MIB
"""How much of the write-ahead log stays on the disk when it is not in use."""

DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
SENTENCES = {
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
"""For users: nothing tells where the file is."""
REMEDIES = {
    sqlite3.SQLITE_FULL: "has no room on its disk; make some",
    sqlite3.SQLITE_READONLY: "cannot be written; check its owner and permissions",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check the folder and its permissions",
    sqlite3.SQLITE_BUSY: "is held by another process; end that, or name another file",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check its disk",
    sqlite3.SQLITE_NOTADB: "is no database; name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; put a copy in its place that is whole, or name another file. "
    "Brain leaves it as it is; sqlite3's .recover saves what can be read: see docs/how-to/backup.md",
}
"""For operators, after the path of the file."""

log = logging.getLogger("brain")


def open_writer(
    path: Path | None, stack: ExitStack, take_over: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    """Open a connection that writes, with the tables up to date.

    Args:
        path: None for memory.
        stack: closes the connection, and releases the lock that shows that this process has the file open.
        take_over: is done when no other process has it open.

    Raises:
        StoreError: when the file cannot be used, with its path and what to do.
    """
    try:
        if path is not None:
            _check_kind(path)
        with _locked(path, stack) as is_alone:
            db = connect(path)
            stack.callback(db.close)
            check(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA foreign_keys = OFF")  # a table that is made anew is dropped without what refers to it
            with transaction(db):
                migrate(db)
            db.execute("PRAGMA foreign_keys = ON")
            if is_alone:
                with transaction(db):
                    take_over(db)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise StoreError(f"{path} {REMEDIES.get(code_of(error), f'cannot be used: {error}')}.") from error
    except IncompatibleFile as error:
        raise StoreError(f"{path} {error}.") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; check the folder and its permissions.") from error
    return db


def open_reader(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """Open a connection that cannot change anything."""
    db = connect(path)
    stack.callback(db.close)
    db.execute("PRAGMA query_only = ON")
    return db


def connect(path: Path | None) -> sqlite3.Connection:
    """Open a connection with the settings that all of them have."""
    db = sqlite3.connect(
        path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        db.text_factory = lambda stored: stored.decode(errors="replace")  # a text may be damaged
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        db.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def transaction(db: sqlite3.Connection, begin: str | None = "BEGIN IMMEDIATE") -> Iterator[None]:
    """A transaction, which is undone when an error is raised inside.

    Args:
        begin: the statement that begins it; None if it has begun.
    """
    if begin is not None:
        db.execute(begin)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def as_store_errors() -> Iterator[None]:
    """Raise SQLite's errors as `StoreError`, without its messages, which may quote what is stored or looked for."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        sentence = SENTENCES.get(code_of(error), "What is kept cannot be used.")
        raise StoreError(sentence, getattr(error, "sqlite_errorname", type(error).__name__)) from None


def code_of(error: sqlite3.Error | UnicodeDecodeError) -> int:
    """SQLite's primary result code of an error.

    A message of SQLite that quotes a damaged schema may be no UTF-8; Python raises UnicodeDecodeError instead.
    """
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def find_problem(path: Path) -> str | None:
    """What is wrong with a file that can be opened, for operators; None if nothing is.

    Raises:
        StoreError: when it cannot be read or written.
    """
    with as_store_errors(), closing(sqlite3.connect(path, PATIENCE_SECONDS, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        ((found,),) = db.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        return f"it is damaged: put a copy in its place that is whole ({found})"
    free = shutil.disk_usage(path.parent).free
    return f"only {_in_words(free)} are free on its disk: make some room" if free < MIN_FREE_BYTES else None


def describe_size(path: Path) -> str:
    """The size of a file with its write-ahead log, and the free room beside it, in words."""
    files = (path, path.with_name(f"{path.name}-wal"))
    used = sum(file.stat().st_size for file in files if file.exists())
    return f"{_in_words(used)}, {_in_words(shutil.disk_usage(path.parent).free)} free"


def _in_words(count: int) -> str:
    if count < MIB:
        return f"{-(-count // 1024):,} KiB"
    return f"{count / MIB:,.0f} MiB" if count < 10 * 1024 * MIB else f"{count / (1024 * MIB):,.0f} GiB"


def _check_kind(path: Path) -> None:
    """Check whether SQLite may open the path: it would delete the log beside a file that was emptied.

    Raises:
        IncompatibleFile: when it may not.
    """
    wal = Path(f"{path}-wal")
    if path.is_dir():
        raise IncompatibleFile("is a folder; name a file")
    if path.exists() and not path.stat().st_size and wal.exists() and wal.stat().st_size:
        raise IncompatibleFile(
            f"is empty, but {wal.name} beside it is not; put a copy in its place that is whole, or move both"
        )


@contextmanager
def _locked(path: Path | None, stack: ExitStack) -> Iterator[bool]:
    """Hold a lock beside the file until the stack is closed; inside alone, if no other process holds it.

    Yields:
        Whether this process is alone.
    """
    if path is None or sys.platform == "win32":
        yield False
        return
    _make_private(path)
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


def _make_private(path: Path) -> None:
    """Create the file for its owner alone, or take its permissions from others; SQLite copies them to its log."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        try:
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)
        except FileNotFoundError:
            pass
        except PermissionError:
            log.warning("%s is open to others than its owner, and its permissions cannot be changed", file)
