"""Removes what deleted rows and words leave in the file.

What is deleted is hidden first (see `hidden.py`); its rows are removed in small steps, and overwritten. Its words stay
in the full-text indexes until these are merged, and what was in a page before stays in the log until that is emptied:
both is done beside all else, in small steps. What once moved from one page to another may stay in a gap until the whole
file is written anew.
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

SWEEP_SECONDS = 5.0
REST = 20
"""The next sweep waits for so many times as long as one took: merging a large index reads and writes all of it."""
PAGES = 128
"""Pages of an index that are merged in one transaction: some milliseconds, for which others wait."""
PATIENCE_SECONDS = 0.1
"""How long a sweep waits for readers of the log; meanwhile nobody writes."""
SCRUB_PATIENCE_SECONDS = 5.0

log = logging.getLogger("brain")


class Vacuum:
    """Removes traces from one file. The file says that there are some, so that any process continues with them.

    Args:
        now: microseconds since 1970.
    """

    def __init__(self, database: Database, now: Callable[[], int]) -> None:
        self._database = database
        self._now = now

    async def sweep_forever(self) -> None:
        """Sweep every few seconds."""
        pause = SWEEP_SECONDS
        while True:
            await asyncio.sleep(pause)
            started = time.monotonic()
            await self.sweep()
            pause = max(SWEEP_SECONDS, REST * (time.monotonic() - started))

    async def remove(self, user: int, until: float = math.inf) -> bool:
        """Remove all of a hidden user; whether there was time for it.

        Raises:
            StoreError: when it cannot be removed now.
        """
        return await self._database.write_in_steps(partial(hidden.remove_some, user=user), until=until)

    async def sweep(self, seconds: float = math.inf) -> None:
        """Remove what is left of hidden users, and in the indexes and the log.

        Args:
            seconds: what is not done by then is left to the next sweep.
        """
        until = time.monotonic() + seconds
        try:
            for user in await self._database.read(lambda db: hidden.removable(db, self._now())):
                await self.remove(user, until)
            row = await self._database.read(
                lambda db: db.execute("SELECT removed FROM leftover WHERE removed > swept").fetchone()
            )
            if row is not None and await self._merge(until) and await self._empty_log(PATIENCE_SECONDS):
                query = "UPDATE leftover SET swept = max(swept, ?)"
                await self._database.write(lambda db: db.execute(query, row), durable=False)
        except StoreError as error:
            log.warning("the store cannot remove traces of what was deleted: %s", error)

    async def scrub(self) -> None:
        """Remove all traces. For as long as it takes to write the file anew, nobody else can write.

        Raises:
            StoreError: when some are left, for want of room or because others use the file.
        """
        for user in await self._database.read(lambda db: hidden.removable(db, self._now())):
            await self.remove(user)
        await self._merge(math.inf)
        await self._database.run_outside(_write_anew)
        if not await self._empty_log(SCRUB_PATIENCE_SECONDS):
            raise StoreError("Somebody reads what is kept; try again.", "the log is in use")

    async def _merge(self, until: float) -> bool:
        """Merge the indexes, after which deleted words are in none; whether there was time for it."""
        for index in ("exchange_words", "item_words"):
            pages = -PAGES  # begins to merge all of the index; from then on, that is continued
            while await self._database.write(partial(_merge_some, index=index, pages=pages), durable=False):
                pages = PAGES
                if time.monotonic() >= until:
                    return False
        return True

    async def _empty_log(self, patience: float) -> bool:
        """Empty the log, unless somebody reads what is only there for longer than this; whether it was emptied."""

        def empty(db: sqlite3.Connection) -> bool:
            db.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")
            try:
                ((is_busy, _, _),) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                db.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}")
            return not is_busy

        return await self._database.run_outside(empty)


def _merge_some(db: sqlite3.Connection, index: str, pages: int) -> bool:
    """Merge some of an index; whether there was anything to merge, which FTS5 tells by how many rows it changed."""
    before = db.total_changes
    db.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('merge', ?)", (pages,))
    return db.total_changes - before >= 2


def _write_anew(db: sqlite3.Connection) -> None:
    """Write the file anew, by way of the folder for temporary files: it may be larger than the memory."""
    db.execute("PRAGMA temp_store = FILE")
    try:
        db.execute("VACUUM")
    finally:
        db.execute("PRAGMA temp_store = MEMORY")
