"""The index of one user's documents, a SQLite file: roots, files, passages and embeddings."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

VERSION = 1
BUSY_SECONDS = 20.0
USED_SECONDS = 3600.0
MIN_COMMON = 20
"""Words in fewer passages are not counted."""
_DISK_ERRORS = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_BUSY")
"""Errors of the disk or caused by other processes; the file may be intact."""
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
    """The file is not an index of this version."""


class Unreachable(Exception):
    """The disk is full or read-only, or the file cannot be opened; the index may be intact."""


Kind = Literal["folder", "setting", "conversation"]
P = ParamSpec("P")
T = TypeVar("T")


class Root(NamedTuple):
    """A folder or conversation in the index; `place` is a path or a conversation's id."""

    id: int
    kind: Kind
    place: str


class IndexedFile(NamedTuple):
    """A file in the index; `problem` is why it, or a part of it, could not be read."""

    id: int
    name: str
    size: int
    changed: int
    hash: bytes
    problem: str | None


class Count(NamedTuple):
    """The number of files, passages and embeddings of a root."""

    files: int
    passages: int
    embeddings: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage to write; `place` is its position in the file, such as `page=3`."""

    heading: tuple[str, ...]
    place: str
    text: str

    @property
    def title(self) -> str:
        return " › ".join(self.heading)


def path_for(folder: Path, user: str | None) -> Path:
    """Return the file of a user's index. Different names have different files, even if the disk ignores case."""
    if user is None:
        return folder / "nobody.db"
    readable = "".join(c for c in user if c.isascii() and c.isalnum())[:30].lower() or "user"
    return folder / f"{readable}-{blake2b(user.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}.db"


@contextmanager
def hold_lock(path: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Hold the lock for indexing folders; yields whether it is free. It ends with the process."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(sqlite3.connect(path.with_suffix(".lock"), timeout=seconds, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            yield False
            return
        yield True


@contextmanager
def _classify_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        is_of_disk = getattr(error, "sqlite_errorname", "").startswith(_DISK_ERRORS)
        raise (Unreachable if is_of_disk else Damaged)(str(error)) from error


class Index:
    """A connection to an index, which is created if it does not exist.

    Raises:
        Damaged, Unreachable: if the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unreachable(error.strerror) from error
        with _classify_errors():
            self.db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self.db.close()
                raise

    def _prepare(self) -> None:
        self.db.execute("PRAGMA foreign_keys = ON")
        self.db.execute("PRAGMA synchronous = NORMAL")  # with WAL, a crash may undo the last files, but damages none
        if self._value("PRAGMA user_version") == VERSION:
            return
        self.db.execute("PRAGMA journal_mode = WAL")
        with self.transaction():
            version = self._value("PRAGMA user_version")  # another process may have been first
            if version == 0:
                statement = ""
                for line in _SCHEMA.splitlines():  # `executescript` would commit the transaction
                    statement += line + "\n"
                    if sqlite3.complete_statement(statement):
                        self.db.execute(statement)
                        statement = ""
                self.db.execute(f"PRAGMA user_version = {VERSION}")
                os.chmod(self.path, 0o600)
            elif version != VERSION:
                raise Damaged(f"it has version {version}, not {VERSION}")

    def close(self) -> None:
        self.db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a write transaction, with a rollback after an exception.

        Raises:
            Damaged, Unreachable: if it fails.
        """
        with _classify_errors():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:  # SQLite itself rolls back on a full disk
                    self.db.execute("ROLLBACK")
                raise

    def _value(self, query: str, *parameters: Any) -> Any:
        """Return the first column of the first row, or None."""
        row = self.db.execute(query, parameters).fetchone()
        return row[0] if row else None

    # roots

    def roots(self, *kinds: Kind) -> list[Root]:
        rows = self.db.execute("SELECT id, kind, place FROM root ORDER BY place")
        return [Root(*row) for row in rows if not kinds or row[1] in kinds]

    def add_root(self, kind: Kind, place: str) -> Root:
        """Return the root at this place, after adding it if it is new; marks it as used now."""
        with self.transaction():
            self.db.execute(
                "INSERT INTO root (kind, place, used) VALUES (?, ?, ?) "
                "ON CONFLICT (kind, place) DO UPDATE SET used = excluded.used",
                (kind, place, time.time()),
            )
            return Root(self._value("SELECT id FROM root WHERE kind = ? AND place = ?", kind, place), kind, place)

    def touch_root(self, kind: Kind, place: str) -> None:
        """Mark a root as used, about once per hour."""
        used = self._value("SELECT used FROM root WHERE kind = ? AND place = ?", kind, place)
        if used is not None and used < time.time() - USED_SECONDS:
            self.add_root(kind, place)

    def remove_root(self, number: int) -> None:
        """Remove a root with all its files."""
        with self.transaction():
            self.db.execute("DELETE FROM root WHERE id = ?", (number,))

    def expire_conversations(self, keep: str, max_characters: int, seconds: float) -> None:
        """Remove conversations.

        Args:
            keep: a conversation that stays.
            max_characters: of all texts; the least recently used conversations go first.
            seconds: time since the last use after which a conversation is removed.
        """
        sized = self.db.execute(
            "SELECT r.id, r.place, r.used, coalesce(sum(length(c.text)), 0) FROM root r "
            "LEFT JOIN file f ON f.root = r.id LEFT JOIN chunk c ON c.file = f.id "
            "WHERE r.kind = 'conversation' GROUP BY r.id ORDER BY r.used DESC"
        ).fetchall()
        total, oldest = 0, time.time() - seconds
        for number, place, used, size in sized:
            total += size
            if place != keep and (total > max_characters or used < oldest):
                self.remove_root(number)

    # files

    def files(self, root: Root) -> dict[str, IndexedFile]:
        rows = self.db.execute("SELECT id, name, size, changed, hash, trouble FROM file WHERE root = ?", (root.id,))
        return {row[1]: IndexedFile(*row) for row in rows}

    def touch(self, file: IndexedFile, size: int, changed: int) -> None:
        """Store size and time of a file with unchanged content."""
        with self.transaction():
            self.db.execute("UPDATE file SET size = ?, changed = ? WHERE id = ?", (size, changed, file.id))

    def write(
        self,
        root: Root,
        name: str,
        stamp: tuple[int, int, bytes],
        chunks: Sequence[Chunk],
        problem: str | None = None,
    ) -> None:
        """Write or replace a file; unchanged passages keep their embeddings.

        Args:
            stamp: size, modification time, and hash of the content.
        """
        with self.transaction():
            vectors = dict(
                self.db.execute(
                    "SELECT v.hash, v.value FROM vector v JOIN chunk c ON c.id = v.chunk JOIN file f ON f.id = c.file "
                    "WHERE f.root = ? AND f.name = ?",
                    (root.id, name),
                )
            )
            self.db.execute("DELETE FROM file WHERE root = ? AND name = ?", (root.id, name))
            if self._value("SELECT 1 FROM root WHERE id = ?", root.id) is None:
                return  # removed in the meantime
            file = self.db.execute(
                "INSERT INTO file (root, name, size, changed, hash, trouble) VALUES (?, ?, ?, ?, ?, ?)",
                (root.id, name, *stamp, problem),
            ).lastrowid
            for chunk in chunks:
                row = (file, chunk.place, name, chunk.title, chunk.text)
                number = self.db.execute(
                    "INSERT INTO chunk (file, place, name, heading, text) VALUES (?, ?, ?, ?, ?)", row
                ).lastrowid
                digest = hash_bytes(format_for_embedding(name, chunk.title, chunk.text).encode())
                if digest in vectors:
                    vector = (number, digest, vectors[digest])
                    self.db.execute("INSERT INTO vector (chunk, hash, value) VALUES (?, ?, ?)", vector)

    def remove(self, file: IndexedFile) -> None:
        with self.transaction():
            self.db.execute("DELETE FROM file WHERE id = ?", (file.id,))

    def count(self, root: Root) -> Count:
        """Count a root's files that have passages, its passages and its embeddings."""
        row = self.db.execute(
            "SELECT count(DISTINCT c.file), count(c.id), count(v.chunk) FROM file f JOIN chunk c ON c.file = f.id "
            "LEFT JOIN vector v ON v.chunk = c.id AND length(v.value) > 0 WHERE f.root = ?",
            (root.id,),
        ).fetchone()
        return Count(*row)

    def passages(self) -> int:
        """Return the number of passages in the index."""
        return int(self._value("SELECT count(*) FROM chunk"))

    def problems(self, roots: Iterable[Root]) -> list[tuple[str, str]]:
        """Return name and problem of files that could not be read completely."""
        numbers = ", ".join(str(root.id) for root in roots)
        where = f"trouble IS NOT NULL AND root IN ({numbers})"
        return self.db.execute(f"SELECT name, trouble FROM file WHERE {where} ORDER BY name").fetchall()

    def names(self, roots: Iterable[Root]) -> list[tuple[int, int, str]]:
        """Return number, root and name of each file that has passages."""
        numbers = ", ".join(str(root.id) for root in roots)
        where = f"root IN ({numbers}) AND EXISTS (SELECT 1 FROM chunk WHERE file = f.id)"
        return self.db.execute(f"SELECT id, root, name FROM file f WHERE {where} ORDER BY name").fetchall()

    # the whole index

    def get_note(self, key: str) -> Any:
        return self._value("SELECT value FROM note WHERE key = ?", key)

    def set_abilities(self, reader: int, abilities: str) -> None:
        """Store how files are read now.

        A new reader version marks all files as changed, new abilities mark the files with problems.
        """
        before = self.get_note("reader"), self.get_note("able")
        if before == (reader, abilities):
            return
        with self.transaction():
            unread = "" if before[0] != reader else " WHERE trouble IS NOT NULL"
            self.db.execute(f"UPDATE file SET changed = -1, hash = x''{unread}")
            self.db.executemany("INSERT OR REPLACE INTO note VALUES (?, ?)", [("reader", reader), ("able", abilities)])

    def retry(self, problem: str) -> None:
        """Mark the files with this problem as changed."""
        with self.transaction():
            self.db.execute("UPDATE file SET changed = -1 WHERE trouble = ?", (problem,))

    def count_common_words(self) -> None:
        """Count the common words after an update, so that searches need not."""
        with self.transaction():
            self.db.execute("DELETE FROM common")
            self.db.execute("INSERT INTO common SELECT term, doc FROM word WHERE doc >= ?", (MIN_COMMON,))
            self.db.execute("INSERT OR REPLACE INTO note VALUES ('passages', ?)", (self.passages(),))
        self.db.execute("PRAGMA wal_checkpoint(PASSIVE)")


async def with_index(path: Path, function: Callable[Concatenate[Index, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function with an index in a thread. It has its own connection, because it may outlive an abandoned call.

    Raises:
        Damaged, Unreachable: if the file cannot be used.
    """

    def work() -> T:
        with closing(Index(path)) as index:
            return function(index, *args, **kwargs)

    return await asyncio.to_thread(work)


def format_for_embedding(name: str, title: str, text: str) -> str:
    """Return the text to embed for a passage: file name and headings, then the passage."""
    return f"{' › '.join(filter(None, (name, title)))}\n{text}"


def hash_bytes(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
