"""The SQLite file of an index: how it is opened, written and locked, and what may be wrong with it."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

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


def open_database(path: Path) -> sqlite3.Connection:
    """A connection to an index, which is made when there is none.

    Raises:
        Damaged, Unreachable: when the file cannot be used.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unreachable(error.strerror) from error
    with _classify_errors():
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
    with _classify_errors():
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # SQLite has undone it already when the disk is full
                db.execute("ROLLBACK")
            raise


@contextmanager
def _classify_errors() -> Iterator[None]:
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
def hold_lock(path: Path, seconds: float = 0.0) -> Iterator[bool]:
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
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


P = ParamSpec("P")
T = TypeVar("T")
Kind = Literal["folder", "setting", "conversation"]
USED_SECONDS = 3600.0
COMMON_LEAST = 20
"""Words in fewer passages than this are not counted beforehand."""


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or conversation in the index; `place` is its path, or the conversation's id."""

    id: int
    kind: Kind
    place: str


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file in the index; `trouble` says why it, or some of its pages, could not be read."""

    id: int
    name: str
    size: int
    changed: int
    hash: bytes
    trouble: str | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage to be written; `place` is where in the file, such as `page=3`."""

    heading: tuple[str, ...]
    place: str
    text: str

    @property
    def title(self) -> str:
        return " › ".join(self.heading)


@dataclass(frozen=True, slots=True)
class Count:
    """How much of a root, or of all, is in the index."""

    files: int
    passages: int
    vectors: int


def path_for(folder: Path, user: str | None) -> Path:
    """The file of one user's index. Names that differ never share one, also where upper and lower case are the same."""
    readable = "".join(c for c in (user or "") if c.isascii() and c.isalnum())[:30].lower() or "user"
    digest = blake2b((user or "").encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return folder / (f"{readable}-{digest}.db" if user is not None else "nobody.db")


class Index:
    """One connection to an index.

    Raises:
        Damaged, Unreachable: when the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = open_database(path)

    def close(self) -> None:
        self.db.close()

    def transaction(self) -> AbstractContextManager[None]:
        """A transaction, undone when something is raised inside."""
        return transaction(self.db)

    # roots

    def roots(self, *kinds: Kind) -> list[Root]:
        rows = self.db.execute("SELECT id, kind, place FROM root ORDER BY place")
        return [Root(*row) for row in rows if not kinds or row[1] in kinds]

    def add_root(self, kind: Kind, place: str) -> Root:
        """The root at this place, new or old; for a conversation, it was used now."""
        with self.transaction():
            self.db.execute(
                "INSERT INTO root (kind, place, used) VALUES (?, ?, ?) "
                "ON CONFLICT (kind, place) DO UPDATE SET used = excluded.used",
                (kind, place, time.time()),
            )
            row = self.db.execute("SELECT id FROM root WHERE kind = ? AND place = ?", (kind, place)).fetchone()
        return Root(row[0], kind, place)

    def touch_root(self, kind: Kind, place: str) -> None:
        """Notes that a root is used, about once an hour."""
        row = self.db.execute("SELECT used FROM root WHERE kind = ? AND place = ?", (kind, place)).fetchone()
        if row is not None and row[0] < time.time() - USED_SECONDS:
            self.add_root(kind, place)

    def remove_root(self, root: Root) -> None:
        """Removes a root with all its files."""
        with self.transaction():
            self.db.execute("DELETE FROM root WHERE id = ?", (root.id,))

    def expire_conversations(self, keep: str, most: int, seconds: float) -> None:
        """Removes the conversations used longest ago, until their texts take at most `most` characters."""
        sized = self.db.execute(
            "SELECT r.id, r.place, r.used, coalesce(sum(length(c.text)), 0) FROM root r "
            "LEFT JOIN file f ON f.root = r.id LEFT JOIN chunk c ON c.file = f.id "
            "WHERE r.kind = 'conversation' GROUP BY r.id ORDER BY r.used DESC"
        ).fetchall()
        total, oldest = 0, time.time() - seconds
        for number, place, used, size in sized:
            total += size
            if place != keep and (total > most or used < oldest):
                with self.transaction():
                    self.db.execute("DELETE FROM root WHERE id = ?", (number,))

    # files

    def files(self, root: Root) -> dict[str, IndexedFile]:
        rows = self.db.execute("SELECT id, name, size, changed, hash, trouble FROM file WHERE root = ?", (root.id,))
        return {row[1]: IndexedFile(*row) for row in rows}

    def touch(self, file: IndexedFile, size: int, changed: int) -> None:
        """Notes the time of a file whose content is as it was."""
        with self.transaction():
            self.db.execute("UPDATE file SET size = ?, changed = ? WHERE id = ?", (size, changed, file.id))

    def write(
        self,
        root: Root,
        name: str,
        stamp: tuple[int, int, bytes],
        chunks: Sequence[Chunk],
        trouble: str | None = None,
    ) -> None:
        """Puts a file in, in the place of what it was before; passages that stay the same keep their vectors.

        Args:
            stamp: its size, its time of change and the hash of its content.
        """
        with self.transaction():
            vectors = self._vectors_of(root, name)
            self.db.execute("DELETE FROM file WHERE root = ? AND name = ?", (root.id, name))
            if self.db.execute("SELECT 1 FROM root WHERE id = ?", (root.id,)).fetchone() is None:
                return  # forgotten meanwhile
            file = self.db.execute(
                "INSERT INTO file (root, name, size, changed, hash, trouble) VALUES (?, ?, ?, ?, ?, ?)",
                (root.id, name, *stamp, trouble),
            ).lastrowid
            for chunk in chunks:
                row = (file, chunk.place, name, chunk.title, chunk.text)
                added = self.db.execute(
                    "INSERT INTO chunk (file, place, name, heading, text) VALUES (?, ?, ?, ?, ?)", row
                ).lastrowid
                digest = hash_of(embedding_text(name, chunk.title, chunk.text).encode())
                if digest in vectors:
                    self.db.execute(
                        "INSERT INTO vector (chunk, hash, value) VALUES (?, ?, ?)", (added, digest, vectors[digest])
                    )

    def _vectors_of(self, root: Root, name: str) -> dict[bytes, bytes]:
        return dict(
            self.db.execute(
                "SELECT v.hash, v.value FROM vector v JOIN chunk c ON c.id = v.chunk JOIN file f ON f.id = c.file "
                "WHERE f.root = ? AND f.name = ?",
                (root.id, name),
            )
        )

    def remove(self, file: IndexedFile) -> None:
        with self.transaction():
            self.db.execute("DELETE FROM file WHERE id = ?", (file.id,))

    def count(self, root: Root) -> Count:
        """How much of a root is in the index; files of which nothing could be read do not count."""
        row = self.db.execute(
            "SELECT count(DISTINCT c.file), count(c.id), count(v.chunk) FROM file f JOIN chunk c ON c.file = f.id "
            "LEFT JOIN vector v ON v.chunk = c.id AND length(v.value) > 0 WHERE f.root = ?",
            (root.id,),
        ).fetchone()
        return Count(*row)

    def passages(self) -> int:
        """How many passages are in the whole index."""
        (number,) = self.db.execute("SELECT count(*) FROM chunk").fetchone()
        return int(number)

    def troubles(self, roots: Iterable[Root]) -> list[tuple[str, str]]:
        """Names of files that could not be read, or not wholly, and why."""
        numbers = ", ".join(str(root.id) for root in roots)
        where = f"trouble IS NOT NULL AND root IN ({numbers})"
        return self.db.execute(f"SELECT name, trouble FROM file WHERE {where} ORDER BY name").fetchall()

    def names(self, roots: Iterable[Root]) -> list[tuple[int, int, str]]:
        """Number, root and name of each file with passages in it."""
        numbers = ", ".join(str(root.id) for root in roots)
        found = f"SELECT id, root, name FROM file f WHERE root IN ({numbers})"
        return self.db.execute(f"{found} AND EXISTS (SELECT 1 FROM chunk WHERE file = f.id) ORDER BY name").fetchall()

    # what is known of the whole

    def get_note(self, key: str) -> Any:
        row = self.db.execute("SELECT value FROM note WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set_abilities(self, reader: int, abilities: str) -> None:
        """Notes how files are read now, and what can be; when that changed, all files, or those not read, are new."""
        before = self.get_note("reader"), self.get_note("able")
        if before == (reader, abilities):
            return
        with self.transaction():
            unread = "" if before[0] != reader else " WHERE trouble IS NOT NULL"
            self.db.execute(f"UPDATE file SET changed = -1, hash = x''{unread}")
            self.db.executemany("INSERT OR REPLACE INTO note VALUES (?, ?)", [("reader", reader), ("able", abilities)])

    def retry(self, trouble: str) -> None:
        """Has files with this trouble count as changed."""
        with self.transaction():
            self.db.execute("UPDATE file SET changed = -1 WHERE trouble = ?", (trouble,))

    def count_common_words(self) -> None:
        """After many changes: counts the common words, so that a question need not."""
        with self.transaction():
            self.db.execute("DELETE FROM common")
            self.db.execute("INSERT INTO common SELECT term, doc FROM word WHERE doc >= ?", (COMMON_LEAST,))
            (passages,) = self.db.execute("SELECT count(*) FROM chunk").fetchone()
            self.db.execute("INSERT OR REPLACE INTO note VALUES ('passages', ?)", (passages,))
        self.db.execute("PRAGMA wal_checkpoint(PASSIVE)")


async def with_index(path: Path, function: Callable[Concatenate[Index, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Does something with an index in a thread, on a connection of its own: it may outlive a call that is given up.

    Raises:
        Damaged, Unreachable: when the file cannot be used.
    """

    def work() -> T:
        with closing(Index(path)) as index:
            return function(index, *args, **kwargs)

    return await asyncio.to_thread(work)


def embedding_text(name: str, title: str, text: str) -> str:
    """What a passage's vector is made of: its text below the names of where it stands."""
    return f"{' › '.join(filter(None, (name, title)))}\n{text}"


def hash_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
