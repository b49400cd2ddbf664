"""Built in: the SQLite file of an index: how it is opened, written and locked, and what may be wrong with it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

VERSION = 1
BUSY_SECONDS = 20.0
_OUTER = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_BUSY")
"""Errors that are not of the file, but of the disk it lies on, or of who else uses it."""

_SCHEMA = """
CREATE TABLE note (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE root (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, place TEXT NOT NULL, used REAL NOT NULL,
    UNIQUE (kind, place));
CREATE TABLE file (id INTEGER PRIMARY KEY AUTOINCREMENT, root INTEGER NOT NULL REFERENCES root ON DELETE CASCADE,
    name TEXT NOT NULL, size INTEGER NOT NULL, changed INTEGER NOT NULL, hash BLOB NOT NULL, trouble TEXT,
    UNIQUE (root, name));
CREATE TABLE chunk (id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL REFERENCES file ON DELETE CASCADE,
    place TEXT NOT NULL, name TEXT NOT NULL, heading TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX chunk_file ON chunk (file);
CREATE TABLE vector (id INTEGER PRIMARY KEY AUTOINCREMENT, chunk INTEGER NOT NULL UNIQUE REFERENCES chunk
    ON DELETE CASCADE, hash BLOB NOT NULL, value BLOB NOT NULL);
CREATE TABLE common (word TEXT PRIMARY KEY, passages INTEGER NOT NULL) WITHOUT ROWID;
CREATE VIRTUAL TABLE passage USING fts5(name, heading, text, content='chunk', content_rowid='id',
    tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE word USING fts5vocab('passage', 'row');
CREATE TRIGGER chunk_added AFTER INSERT ON chunk BEGIN
    INSERT INTO passage (rowid, name, heading, text) VALUES (new.id, new.name, new.heading, new.text);
END;
CREATE TRIGGER chunk_removed AFTER DELETE ON chunk BEGIN
    INSERT INTO passage (passage, rowid, name, heading, text)
        VALUES ('delete', old.id, old.name, old.heading, old.text);
END;
"""


class Damaged(Exception):
    """The file of the index is none, or one of another version."""


class Unreachable(Exception):
    """The file may be as it should be, but the disk is full, read-only, or closed to us."""


def opened(path: Path) -> sqlite3.Connection:
    """A connection to an index, which is made when there is none.

    Raises:
        Damaged, Unreachable: when the file cannot be used.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unreachable(error.strerror) from error
    with _judged():
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db, path)
        except BaseException:
            db.close()
            raise
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction for writing, undone when something is raised inside.

    Raises:
        Damaged, Unreachable: when it cannot be done.
    """
    with _judged():
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # SQLite has undone it already when the disk is full
                db.execute("ROLLBACK")
            raise


@contextmanager
def _judged() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        outer = getattr(error, "sqlite_errorname", "").startswith(_OUTER)
        raise (Unreachable if outer else Damaged)(str(error)) from error


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA synchronous = NORMAL")  # with WAL, a crash may undo the last files, and breaks none
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == VERSION:
        return
    db.execute("PRAGMA journal_mode = WAL")
    with transaction(db):
        (version,) = db.execute("PRAGMA user_version").fetchone()  # another process may have been first
        if version == 0:
            for statement in _statements(_SCHEMA):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")
            os.chmod(path, 0o600)
        elif version != VERSION:
            raise Damaged(f"version {version}")


@contextmanager
def alone(path: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Whether this process is the only one to index folders now; ends with the process, however that ends."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(sqlite3.connect(path.with_suffix(".lock"), timeout=seconds, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            yield False
            return
        yield True


def _statements(script: str) -> Iterator[str]:
    held = ""
    for line in script.splitlines():
        held += line + "\n"
        if sqlite3.complete_statement(held):
            yield held
            held = ""
