"""Built in: drops what an index holds of one conversation, or all of it, from the file, too."""

import asyncio
from pathlib import Path

from specialists._knowledge import keeping, vectors
from specialists._knowledge.index import Index, on_index


async def forgotten(path: Path, conversation: str | None) -> None:
    """Drops the uploads of a conversation, or, for None, everything.

    Raises:
        Damaged, Unreachable: when the file cannot be used.
    """
    await keeping.given_up(path, conversation)
    if not await asyncio.to_thread(path.exists):
        return
    if conversation is None:
        await on_index(path, _emptied)
    else:
        await on_index(path, _without, conversation)


def _without(index: Index, conversation: str) -> None:
    index.db.execute("PRAGMA secure_delete = ON")
    for root in index.roots("conversation"):
        if root.place == conversation:
            index.forget(root)
    index.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _emptied(index: Index) -> None:
    """The file stays, with its counters: a number that another process still knows must never mean another passage."""
    index.db.execute("PRAGMA secure_delete = ON")
    with index.writing():
        for table in ("root", "note", "common"):
            index.db.execute(f"DELETE FROM {table}")
        index.db.execute("INSERT INTO passage (passage) VALUES ('delete-all')")
    index.db.execute("VACUUM")
    index.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    vectors.dropped(index.path)
