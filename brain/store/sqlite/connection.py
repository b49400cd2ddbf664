"""Opens and checks the database file, and maps SQLite's errors to `StoreError`."""

import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from brain.errors import StoreError
from brain.store import schema, upgrade
from brain.store.rows import MIB

if sys.platform != "win32":
    import fcntl

MIN_FREE_BYTES = 100 * MIB
"""`find_problem` reports less free disk space."""
PATIENCE_SECONDS = 5.0
BUSY_SECONDS = 30.0
"""How long to wait for another process that writes."""
CACHE_KIB = 16_384
JOURNAL_BYTES = 64 * MIB
"""Size to which SQLite truncates an idle write-ahead log."""

DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
SENTENCES = {
    sqlite3.SQLITE_FULL: "The disk is full.",
    sqlite3.SQLITE_READONLY: "The database is read-only.",
    sqlite3.SQLITE_CANTOPEN: "The database cannot be opened.",
    sqlite3.SQLITE_IOERR: "The database cannot be read or written.",
    sqlite3.SQLITE_BUSY: "Another process is using the database. Try again.",
    sqlite3.SQLITE_NOTADB: "The database is damaged.",
    sqlite3.SQLITE_CORRUPT: "The database is damaged.",
}
"""For users, without the path of the file."""
UNWRITABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
"""The file cannot be written now."""
REMEDIES = {
    sqlite3.SQLITE_FULL: "is on a full disk; free some space",
    sqlite3.SQLITE_READONLY: "cannot be written; check its owner and permissions",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check the directory and its permissions",
    sqlite3.SQLITE_BUSY: "is locked by another process; stop it, or use another file",
    sqlite3.SQLITE_IOERR: "cannot be read or written; check its disk",
    sqlite3.SQLITE_NOTADB: "is not a database; use another file",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore a backup, or use another file. Brain does not change it. "
    "SQLite's .recover command saves the readable rows: see docs/how-to/backup.md",
}
"""For operators, after the path of the file."""

log = logging.getLogger("brain")


class _IncompatibleFile(Exception):
    """The file cannot be used by this version; the message has the reason and the remedy."""


def open_writer(
    path: Path | None, stack: ExitStack, take_over: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    """Open the connection that writes, and bring the tables up to date.

    Args:
        path: None for memory.
        stack: closes the connection, and releases the lock that marks the file as open.
        take_over: called if no other process has the file open.

    Raises:
        StoreError: the file cannot be used; the message has its path and the remedy.
    """
    try:
        if path is not None:
            _check_kind(path)
        with _locked(path, stack) as is_alone:
            db = connect(path)
            stack.callback(db.close)
            _check_version(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA foreign_keys = OFF")  # dropping a replaced table must not delete rows that refer to it
            with transaction(db):
                _prepare_tables(db, is_alone=is_alone or path is None or sys.platform == "win32")
            db.execute("PRAGMA foreign_keys = ON")
            if is_alone:
                with transaction(db):
                    take_over(db)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise StoreError(f"{path} {REMEDIES.get(code_of(error), f'cannot be used: {error}')}.") from error
    except _IncompatibleFile as error:
        raise StoreError(f"{path} {error}.") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; check the directory and its permissions.") from error
    return db


def open_reader(path: Path, stack: ExitStack) -> sqlite3.Connection:
    """Open a read-only connection."""
    db = connect(path)
    stack.callback(db.close)
    db.execute("PRAGMA query_only = ON")
    return db


def connect(path: Path | None) -> sqlite3.Connection:
    """Open a connection with the common settings."""
    db = sqlite3.connect(
        path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        db.text_factory = lambda stored: stored.decode(errors="replace")  # damaged text must not raise
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
    """Run the block in a transaction; roll back on an error.

    Args:
        begin: the statement that begins it; None if it already began.
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
    """Raise SQLite's errors as `StoreError`, without their messages, which may quote stored text or queries."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise_store_error(error)


def raise_store_error(error: sqlite3.Error | UnicodeDecodeError) -> NoReturn:
    """Raise an error of SQLite as `StoreError`."""
    code = code_of(error)
    sentence = SENTENCES.get(code, "The database cannot be used.")
    detail = getattr(error, "sqlite_errorname", type(error).__name__)
    may_pass = code in (*UNWRITABLE, sqlite3.SQLITE_BUSY)
    raise StoreError(sentence, detail, may_pass=may_pass) from None


def code_of(error: sqlite3.Error | UnicodeDecodeError) -> int:
    """Return SQLite's primary result code of an error.

    Python raises UnicodeDecodeError for an SQLite message that quotes a damaged schema and is not valid UTF-8.
    """
    if isinstance(error, UnicodeDecodeError):
        return sqlite3.SQLITE_CORRUPT
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def find_problem(path: Path) -> str | None:
    """Return the problem of a file that can be opened, for operators; None if it has none.

    Raises:
        StoreError: the file cannot be read or written.
    """
    with as_store_errors(), closing(sqlite3.connect(path, PATIENCE_SECONDS, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        ((found,),) = db.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        return f"it is damaged: restore a backup ({found})"
    free = shutil.disk_usage(path.parent).free
    return f"its disk has only {_format_size(free)} free: free some space" if free < MIN_FREE_BYTES else None


def describe_size(path: Path) -> str:
    """Return the size of the file with its write-ahead log, and the free disk space, for people."""
    files = (path, path.with_name(f"{path.name}-wal"))
    used = sum(file.stat().st_size for file in files if file.exists())
    return f"{_format_size(used)}, {_format_size(shutil.disk_usage(path.parent).free)} free"


def _format_size(count: int) -> str:
    if count < MIB:
        return f"{-(-count // 1024):,} KiB"
    return f"{count / MIB:,.0f} MiB" if count < 10 * 1024 * MIB else f"{count / (1024 * MIB):,.0f} GiB"


def _check_kind(path: Path) -> None:
    """Check that SQLite may open the path. It would delete the write-ahead log of an emptied file.

    Raises:
        _IncompatibleFile: the path is a directory, or the file is empty and its log is not.
    """
    wal = Path(f"{path}-wal")
    if path.is_dir():
        raise _IncompatibleFile("is a directory; use a file")
    if path.exists() and not path.stat().st_size and wal.exists() and wal.stat().st_size:
        raise _IncompatibleFile(f"is empty, but {wal.name} is not; restore a backup, or move both files away")


def _check_version(db: sqlite3.Connection) -> None:
    """Check that this version can use the file.

    Raises:
        _IncompatibleFile: it is another program's, newer, or of a version that was never released.
    """
    ((version,),) = db.execute("PRAGMA user_version")
    ((application,),) = db.execute("PRAGMA application_id")
    ((tables,),) = db.execute("SELECT count(*) FROM sqlite_schema")
    if application != schema.APPLICATION and (version, tables) != (0, 0):
        raise _IncompatibleFile("is a database of another program; use another file")
    if version > schema.VERSION:
        raise _IncompatibleFile("was written by a newer version of Brain; use that version, or another file")
    if version not in (0, *upgrade.VERSIONS, schema.VERSION):
        raise _IncompatibleFile(
            "was written by an unreleased version of Brain; export its data with that version, then import it"
        )


def _prepare_tables(db: sqlite3.Connection, *, is_alone: bool) -> None:
    """Create the tables, or bring those of an older version up to date.

    Raises:
        _IncompatibleFile: a process of the older version may be using them.
    """
    ((version,),) = db.execute("PRAGMA user_version")  # again: another process may have done it meanwhile
    if version == schema.VERSION:
        return
    if version == 0:
        for statement in (*schema.CREATE, *schema.add_secrets()):
            db.execute(statement)
    elif not is_alone:
        raise _IncompatibleFile("is in use by an older version of Brain; stop its processes, then start this version")
    else:
        upgrade.upgrade(db, version)
    db.execute(f"PRAGMA user_version = {schema.VERSION}")
    db.execute(f"PRAGMA application_id = {schema.APPLICATION}")


@contextmanager
def _locked(path: Path | None, stack: ExitStack) -> Iterator[bool]:
    """Hold a lock file until the stack closes; exclusively inside the block if no other process holds it.

    Yields:
        Whether no other process has the file open.
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
    """Create the file with permissions for its owner only, or restrict them. SQLite copies them to its log."""
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
            log.warning("%s is accessible to other system users, and its permissions cannot be changed", file)
