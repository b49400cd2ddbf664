"""Wing: the file of the store, who may open it, and its connections.

Every process that uses a file holds a shared lock beside it for as long as it lives. Who can have that lock alone knows
that all others are gone, and with them their turns. SQLite's locks are those of one machine: network file systems are
not supported.
"""

import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from brain.store.migrations import check, migrate

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
    with transaction(db):
        migrate(db)
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
