"""Removes the rows of deleted data, and their traces from the file.

Rows without an owner (see `schema.py`) are removed and overwritten in small transactions. Their words stay in the
full-text indexes until these are merged, and old page contents stay in the write-ahead log until it is emptied. All of
it happens in the background, and any process continues what is left. Copies of rows that moved between pages may stay
in free space until `scrub` rewrites the file.
"""

import asyncio
import logging
import math
import sqlite3
import time
from functools import partial

from brain.errors import StoreError
from brain.store import deletion
from brain.store.database import Database
from brain.store.tx import Tx

SWEEP_SECONDS = 5.0
REST = 20
"""Pause between sweeps, as a multiple of the last sweep's duration: merging a large index rewrites all of it."""
PAGES = 128
"""Index pages merged per transaction; other writers wait a few milliseconds."""
PATIENCE_SECONDS = 0.1
"""How long a sweep waits for readers of the log, in seconds. Writers wait, too."""
SCRUB_PATIENCE_SECONDS = 5.0

log = logging.getLogger("brain")


async def sweep_forever(database: Database) -> None:
    """Sweep every few seconds."""
    pause = SWEEP_SECONDS
    while True:
        await asyncio.sleep(pause)
        started = time.monotonic()
        await sweep(database)
        pause = max(SWEEP_SECONDS, REST * (time.monotonic() - started))


async def remove(database: Database, until: float = math.inf, conversation: int | None = None) -> None:
    """Remove the rows of a deleted conversation, or all deleted rows.

    Raises:
        StoreError: the rows cannot be removed now.
    """
    await database.write_in_steps(partial(deletion.remove_some, conversation=conversation), until=until)


async def sweep(database: Database, seconds: float = math.inf) -> None:
    """Remove deleted rows, merge the indexes and empty the log.

    Args:
        seconds: time limit; the next sweep continues.
    """
    until = time.monotonic() + seconds
    try:
        if await database.read(deletion.has_rows_to_remove):
            await remove(database, until)
        if database.path is None:
            return
        query = "SELECT removed FROM leftover WHERE removed > swept"
        row = await database.read(lambda tx: tx.execute(query).fetchone())
        if row is not None and await _merge(database, until) and await _empty_log(database, PATIENCE_SECONDS):
            update = "UPDATE leftover SET swept = max(swept, ?)"
            await database.write_unsynced(lambda tx: tx.execute(update, row) and None)
    except StoreError as error:
        log.warning("traces of deleted data cannot be removed: %s", error)


async def scrub(database: Database) -> None:
    """Remove all traces and rewrite the file, which blocks all writers.

    Raises:
        StoreError: traces are left, because the disk is full or the file is in use.
    """
    await remove(database)
    await _merge(database, math.inf)
    await database.run_outside(_rewrite_file)
    if not await _empty_log(database, SCRUB_PATIENCE_SECONDS):
        raise StoreError("Another process is reading the database. Try again.", "the log is in use")


async def _merge(database: Database, until: float) -> bool:
    """Merge the indexes, which removes deleted words; return whether it finished in time."""
    for index in ("exchange_words", "item_words"):
        pages = -PAGES  # a negative number starts a full merge, a positive one continues it
        while await database.write_unsynced(_merge_some, index, pages):
            pages = PAGES
            if time.monotonic() >= until:
                return False
    return True


async def _empty_log(database: Database, patience: float) -> bool:
    """Empty the write-ahead log, waiting up to `patience` seconds for its readers; return whether it is empty."""

    def empty(db: sqlite3.Connection) -> bool:
        db.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")
        ((is_busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return not is_busy

    return await database.run_outside(empty)


def _merge_some(tx: Tx, index: str, pages: int) -> bool:
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
