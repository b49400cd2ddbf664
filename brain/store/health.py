"""Wing: whether a file of the store can be used, for who runs the server and wants to know before users do."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from brain.store.database import as_store_errors
from brain.store.room import MIB

FREE_BYTES_LEAST = 100 * MIB
PATIENCE_SECONDS = 5.0


def trouble_of(path: Path) -> str | None:
    """What is wrong with a file that can be opened: it cannot be written, is damaged, or its disk is full.

    Raises:
        StoreError: when it cannot be written, or read any more.
    """
    with as_store_errors(), closing(sqlite3.connect(path, PATIENCE_SECONDS, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        ((found,),) = db.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        return f"it is damaged: put a copy in its place that is whole ({found})"
    free = shutil.disk_usage(path.parent).free
    return f"only {size(free)} are free on its disk: make some room" if free < FREE_BYTES_LEAST else None


def room_of(path: Path) -> str:
    """How large it is, with what is not yet in the file itself, and how much is free beside it, in words."""
    files = (path, path.with_name(f"{path.name}-wal"))
    used = sum(file.stat().st_size for file in files if file.exists())
    return f"{size(used)}, {size(shutil.disk_usage(path.parent).free)} free"


def size(count: int) -> str:
    """A number of bytes in words."""
    if count < MIB:
        return f"{-(-count // 1024):,} KiB"
    return f"{count / MIB:,.0f} MiB" if count < 10 * 1024 * MIB else f"{count / (1024 * MIB):,.0f} GiB"
