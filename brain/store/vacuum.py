"""Removes the rows of deleted data, and their traces from the file.

Rows without an owner (see `schema.py`) are removed and overwritten in small transactions. Their words stay in the
full-text indexes until these are merged, and old page contents stay in the write-ahead log until it is emptied. All of
it happens in the background. Copies of rows that moved between pages may stay in free space until `scrub` rewrites the
file.
"""

import asyncio
import logging
import math
import sqlite3
import time
from collections.abc import Iterator
from functools import partial

from brain.errors import StoreError
from brain.store import exchanges
from brain.store.connection import BUSY_SECONDS
from brain.store.database import Database
from brain.store.transfer import LEASE
from brain.store.tx import Tx

SWEEP_SECONDS = 5.0
REST = 20
"""Pause between sweeps, as a multiple of the last sweep's duration: merging a large index rewrites all of it."""
PAGES = 128
"""Index pages merged per transaction; other writers wait a few milliseconds."""
PATIENCE_SECONDS = 0.1
"""How long a sweep waits for readers of the log, in seconds. Writers wait, too."""
SCRUB_PATIENCE_SECONDS = 5.0
REMOVED_ROWS, REMOVED_BYTES = 64, 1024 * 1024
"""Approximate limits of one transaction that removes rows."""

_IS_DELETED = (
    "(user IN (SELECT key FROM user WHERE name IS NULL) OR "
    "(user IS NULL AND (import IS NULL OR import NOT IN (SELECT key FROM import WHERE until > 0))))"
)
"""Whether a conversation or item is deleted, and not of an import that is running."""

log = logging.getLogger("brain")


class Vacuum:
    """Removes deleted data from one store. The store records pending work, so that any process can continue it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sweep_forever(self) -> None:
        """Sweep every few seconds."""
        pause = SWEEP_SECONDS
        while True:
            await asyncio.sleep(pause)
            started = time.monotonic()
            await self.sweep()
            pause = max(SWEEP_SECONDS, REST * (time.monotonic() - started))

    async def remove(self, until: float = math.inf, conversation: int | None = None) -> None:
        """Remove the rows of a deleted conversation, or all deleted rows.

        Raises:
            StoreError: the rows cannot be removed now.
        """
        await self._database.write_in_steps(partial(_remove_some, conversation=conversation), until=until)

    async def sweep(self, seconds: float = math.inf) -> None:
        """Remove deleted rows, merge the indexes and empty the log.

        Args:
            seconds: time limit; the next sweep continues.
        """
        until = time.monotonic() + seconds
        try:
            if await self._database.read(_has_deleted):
                await self.remove(until)
            if self._database.path is None:
                return
            query = "SELECT removed FROM leftover WHERE removed > swept"
            row = await self._database.read(lambda tx: tx.execute(query).fetchone())
            if row is not None and await self._merge(until) and await self._empty_log(PATIENCE_SECONDS):
                update = "UPDATE leftover SET swept = max(swept, ?)"
                await self._database.write_unsynced(lambda tx: tx.execute(update, row) and None)
        except StoreError as error:
            log.warning("traces of deleted data cannot be removed: %s", error)

    async def scrub(self) -> None:
        """Remove all traces and rewrite the file, which blocks all writers.

        Raises:
            StoreError: traces are left, because the disk is full or the file is in use.
        """
        await self.remove()
        await self._merge(math.inf)
        await self._database.run_outside(_rewrite_file)
        if not await self._empty_log(SCRUB_PATIENCE_SECONDS):
            raise StoreError("Another process is reading the database. Try again.", "the log is in use")

    async def _merge(self, until: float) -> bool:
        """Merge the indexes, which removes deleted words; return whether it finished in time."""
        for index in ("exchange_words", "item_words"):
            pages = -PAGES  # a negative number starts a full merge, a positive one continues it
            while await self._database.write_unsynced(_merge_some, index, pages):
                pages = PAGES
                if time.monotonic() >= until:
                    return False
        return True

    async def _empty_log(self, patience: float) -> bool:
        """Empty the write-ahead log, waiting up to `patience` seconds for its readers; return whether it is empty."""

        def empty(db: sqlite3.Connection) -> bool:
            db.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")
            try:
                ((is_busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                db.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")
            return not is_busy

        return await self._database.run_outside(empty)


def _has_deleted(tx: Tx) -> bool:
    lapsed = "SELECT 1 FROM import WHERE until NOT BETWEEN ? AND ?"
    query = f"SELECT 1 FROM conversation WHERE {_IS_DELETED} UNION ALL SELECT 1 FROM user WHERE name IS NULL"
    return tx.execute(f"{query} UNION ALL {lapsed} LIMIT 1", (tx.now, tx.now + LEASE)).fetchone() is not None


def _remove_some(tx: Tx, conversation: int | None) -> bool:
    """Remove some rows of a deleted conversation, or some of all deleted rows; return whether there are more."""
    room = REMOVED_ROWS
    for cost in _remove(tx) if conversation is None else _remove_conversation(tx, conversation):
        room -= cost
        if room <= 0:
            return True
    return False


def _remove(tx: Tx) -> Iterator[int]:
    """Remove all deleted rows, yielding what each costs."""
    # a lease that ends too far in the future came from a wrong clock
    tx.execute("UPDATE import SET until = 0 WHERE until NOT BETWEEN ? AND ?", (tx.now, tx.now + LEASE))
    query = f"SELECT key FROM conversation WHERE {_IS_DELETED} LIMIT 1"
    while (row := tx.execute(query).fetchone()) is not None:
        yield from _remove_conversation(tx, row[0])
    erased = "user IN (SELECT key FROM user WHERE name IS NULL)"
    for table, where in (("item", _IS_DELETED), ("channel", erased)):
        query = f"SELECT key FROM {table} WHERE {where} LIMIT ?"
        while found := tx.execute(query, (REMOVED_ROWS,)).fetchall():
            for key in found:
                tx.execute(f"DELETE FROM {table} WHERE key = ?", key)
                yield 1
    tx.execute("DELETE FROM user WHERE name IS NULL")
    for (user,) in tx.execute("DELETE FROM import WHERE until = 0 RETURNING user").fetchall():
        tx.execute(  # a user who was added for the import
            "DELETE FROM user WHERE key = :user AND recalls = 1 AND private_data = 0 "
            "AND NOT EXISTS (SELECT 1 FROM import WHERE user = :user) "
            "AND NOT EXISTS (SELECT 1 FROM answer WHERE user = :user) "
            "AND NOT EXISTS (SELECT 1 FROM conversation WHERE user = :user) "
            "AND NOT EXISTS (SELECT 1 FROM item WHERE user = :user) "
            "AND NOT EXISTS (SELECT 1 FROM task WHERE user = :user)",
            {"user": user},
        )


def _remove_conversation(tx: Tx, conversation: int) -> Iterator[int]:
    queries = {
        "exchange": ("SELECT key, bytes FROM exchange WHERE key BETWEEN ? AND ? LIMIT ?", exchanges.span(conversation)),
        "file": ("SELECT key, size FROM file WHERE conversation BETWEEN ? AND ? LIMIT ?", (conversation, conversation)),
    }
    for table, (query, span) in queries.items():
        while found := tx.execute(query, (*span, REMOVED_ROWS)).fetchall():
            for key, size in found:
                tx.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
                yield 1 + size * REMOVED_ROWS // REMOVED_BYTES
    tx.execute("DELETE FROM conversation WHERE key = ?", (conversation,))
    yield 1


def _merge_some(tx: Tx, index: str, pages: int) -> bool:
    """Merge some pages of an index; return whether FTS5 merged anything, which its change count shows."""
    query = "SELECT total_changes()"
    ((before,),) = tx.execute(query)
    tx.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('merge', ?)", (pages,))
    ((after,),) = tx.execute(query)
    return bool(after - before >= 2)


def _rewrite_file(db: sqlite3.Connection) -> None:
    """Rewrite the file through the temporary directory, since it may be larger than memory."""
    db.execute("PRAGMA temp_store = FILE")
    try:
        db.execute("VACUUM")
    finally:
        db.execute("PRAGMA temp_store = MEMORY")
