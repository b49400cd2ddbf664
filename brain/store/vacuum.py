"""What deleted rows and words leave in the file, and how it is removed.

What is deleted is hidden first (see `hidden.py`); its rows are removed in small steps. A row is overwritten then. Its
words stay in the full-text indexes until these are merged, and what was in a page before stays in the log until that is
emptied: both is done beside all else, in small steps. What once moved from one page to another may stay in a gap until
the whole file is written anew.
"""

import asyncio
import logging
import math
import sqlite3
import time
from collections.abc import Callable
from functools import partial

from brain.errors import StoreError
from brain.store import hidden
from brain.store.connection import BUSY_SECONDS
from brain.store.database import Database

log = logging.getLogger("brain")

SWEEP_SECONDS = 5.0
REST = 20
"""So many times as long as a sweep took, the next one waits: merging a large index reads and writes all of it."""
PAGES = 128
"""Of an index, merged in one transaction: some milliseconds, for which others wait."""
PATIENCE_SECONDS = 0.1
"""How long a sweep waits for those who read the log; meanwhile nobody writes."""
SCRUB_PATIENCE_SECONDS = 5.0

_INDEXES = ("exchange_words", "item_words")


class Vacuum:
    """What is left in one file. That there is something stands in the file, so that any process goes on with it.

    Args:
        now: microseconds since 1970.
    """

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now

    async def sweep_forever(self) -> None:
        """Removes every few seconds what is left in indexes and log."""
        pause = SWEEP_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            await self.sweep()
            pause = max(SWEEP_SECONDS, REST * (time.monotonic() - began))

    async def remove(self, user: int, until: float = math.inf) -> bool:
        """Removes all of a hidden user; whether there was time for it.

        Raises:
            StoreError: when it cannot be removed now.
        """
        return await self._database.write_in_steps(partial(hidden.remove_some, user=user), until=until)

    async def sweep(self, most: float = math.inf) -> None:
        """Removes what is left of hidden users, and in indexes and log, if anything is.

        Args:
            most: seconds; what is not done by then is left to the next time.
        """
        until = time.monotonic() + most
        try:
            for user in await self._database.read(lambda db: hidden.dead(db, self._now())):
                await self.remove(user, until)
            removed = await self._database.read(_removed)
            if removed is not None and await self._merge(until) and await self._empty(PATIENCE_SECONDS):
                await self._database.write(partial(_note, removed=removed), durable=False)
        except StoreError as error:
            log.warning("the store cannot remove traces of what was deleted: %s", error)

    async def scrub(self) -> None:
        """Removes all that is left of what was deleted. For as long as it takes to write the file, nobody else can.

        Raises:
            StoreError: when something is left, for want of room or because others use the file.
        """
        for user in await self._database.read(lambda db: hidden.dead(db, self._now())):
            await self.remove(user)
        await self._merge(math.inf)
        await self._database.run_outside(_write_anew)
        if not await self._empty(SCRUB_PATIENCE_SECONDS):
            raise StoreError("Somebody reads what is kept; try again.", "the log is in use")

    async def _merge(self, until: float) -> bool:
        """Merges the indexes, after which deleted words are in none; whether there was time for it."""
        for index in _INDEXES:
            pages = -PAGES  # takes all of the index on; from then on, what was taken on is gone on with
            while await self._database.write(partial(_merged, index=index, pages=pages), durable=False):
                pages = PAGES
                if time.monotonic() >= until:
                    return False
        return True

    async def _empty(self, patience: float) -> bool:
        return await self._database.run_outside(partial(_emptied, patience=patience))


def _removed(db: sqlite3.Connection) -> int | None:
    """How much was ever removed, if any of it may be left."""
    row = db.execute("SELECT removed FROM leftover WHERE removed > swept").fetchone()
    return None if row is None else int(row[0])


def _note(db: sqlite3.Connection, removed: int) -> None:
    db.execute("UPDATE leftover SET swept = max(swept, ?)", (removed,))


def _merged(db: sqlite3.Connection, index: str, pages: int) -> bool:
    """Merges some of an index; whether there was anything to merge, which FTS5 tells by how many rows it changed."""
    before = db.total_changes
    db.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('merge', ?)", (pages,))
    return db.total_changes - before >= 2


def _emptied(db: sqlite3.Connection, patience: float) -> bool:
    """Empties the log beside the file, unless somebody reads what is only there; whether it did."""
    db.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")
    try:
        ((is_busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        db.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")
    return not is_busy


def _write_anew(db: sqlite3.Connection) -> None:
    """Writes the file anew, by way of the folder for temporary files: it may be larger than the memory."""
    db.execute("PRAGMA temp_store = FILE")
    try:
        db.execute("VACUUM")
    finally:
        db.execute("PRAGMA temp_store = MEMORY")
