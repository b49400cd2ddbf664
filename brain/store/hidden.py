"""Hidden rows: those of an unfinished import, and deleted ones that are not removed yet.

They belong to hidden users, which no name finds. So rows are added and removed in small transactions that leave room
for other writers, and still appear or vanish at once. An import renews its lease. Any process that has the file open
removes deleted rows and those of abandoned imports.
"""

import secrets
from collections.abc import Iterator

from brain.errors import StoreError
from brain.store import exchanges
from brain.store.rows import SECOND
from brain.store.tx import Tx

LEASE = 30 * SECOND
"""An import that does not renew its lease for this long is abandoned."""
REMOVED_ROWS, REMOVED_BYTES = 64, 1024 * 1024
"""Approximate limits of one transaction that removes rows."""
_TO_REMOVE = 1


def add_staging_user(tx: Tx, target: int) -> int:
    """Add a hidden user for an import; `publish` gives its rows to `target`."""
    return _add_user(tx, tx.now + LEASE, target)


def keep_alive(tx: Tx, user: int) -> None:
    """Renew the lease of an import.

    Raises:
        StoreError: the import was abandoned, or its target was erased.
    """
    query = (
        "UPDATE user SET hidden = ? WHERE key = ? AND hidden > ? "
        "AND EXISTS (SELECT 1 FROM user t WHERE t.key = user.target AND t.hidden = 0)"
    )
    if not tx.execute(query, (tx.now + LEASE, user, _TO_REMOVE)).rowcount:
        raise StoreError("The import paused for too long, or its user was erased. Start it again.")


def abandon(tx: Tx, user: int) -> None:
    """Mark the imported rows for removal."""
    tx.execute("UPDATE user SET hidden = ? WHERE key = ? AND hidden > 0", (_TO_REMOVE, user))


def abandon_all(tx: Tx) -> None:
    """Abandon all imports. Requires that no other process has the file open."""
    tx.execute("UPDATE user SET hidden = ? WHERE hidden > 0", (_TO_REMOVE,))


def publish(tx: Tx, user: int) -> None:
    """Give the imported rows to their target, except rows whose IDs the target already has."""
    ((target, before),) = tx.execute("SELECT target, bytes FROM user WHERE key = ?", (user,))
    left = 0
    for table in ("conversation", "item"):
        tx.execute(f"UPDATE OR IGNORE {table} SET user = ? WHERE user = ?", (target, user))
        ((size,),) = tx.execute(f"SELECT coalesce(sum(bytes), 0) FROM {table} WHERE user = ?", (user,))
        left += size
    tx.execute("UPDATE task SET user = ? WHERE user = ?", (target, user))
    tx.execute("UPDATE user SET bytes = bytes + ? WHERE key = ?", (before - left, target))
    tx.execute("UPDATE user SET bytes = ?, hidden = ? WHERE key = ?", (left, _TO_REMOVE, user))


def hide_user(tx: Tx, user: int) -> None:
    """Hide a user; `remove_some` removes the rows. Tasks vanish at once, so that none runs."""
    for table in ("task", "channel_cursor"):
        tx.execute(f"DELETE FROM {table} WHERE user = ?", (user,))
    tx.execute("UPDATE user SET name = ?, hidden = ? WHERE key = ?", (_unused_name(), _TO_REMOVE, user))


def hide_conversation(tx: Tx, conversation: int) -> int:
    """Hide a conversation with its memories; return the hidden user that owns the rows now.

    Facts stay, without their source message.
    """
    ((user, size),) = tx.execute("SELECT user, bytes FROM conversation WHERE key = ?", (conversation,))
    exchanges.remove_memories(tx, conversation)
    tx.execute("UPDATE item SET conversation = NULL, exchange = NULL WHERE conversation = ?", (conversation,))
    hidden = _add_user(tx, _TO_REMOVE)
    tx.execute("UPDATE conversation SET user = ?, memory = NULL WHERE key = ?", (hidden, conversation))
    tx.execute("UPDATE user SET bytes = bytes + ? WHERE key = ?", (size, hidden))
    tx.execute("UPDATE user SET bytes = bytes - ? WHERE key = ?", (size, user))
    return hidden


def removable(tx: Tx) -> list[int]:
    """Return the hidden users whose rows are to be removed. A lease too far in the future came from a wrong clock."""
    query = "SELECT key FROM user WHERE hidden > 0 AND NOT hidden BETWEEN ? AND ? ORDER BY key"
    return [key for (key,) in tx.execute(query, (tx.now, tx.now + LEASE))]


def remove_some(tx: Tx, user: int) -> bool:
    """Remove some rows of a hidden user, and in the end the user; whether there are more."""
    abandon(tx, user)  # first: an import must not continue without its rows
    room = REMOVED_ROWS
    for cost in _remove(tx, user):
        room -= cost
        if room <= 0:
            return True
    return False


def _remove(tx: Tx, user: int) -> Iterator[int]:
    """Remove a hidden user row by row, yielding what each row costs."""
    queries = {
        "exchange": "SELECT key, bytes FROM exchange WHERE key BETWEEN ? AND ? LIMIT ?",
        "file": "SELECT key, size FROM file WHERE conversation BETWEEN ? AND ? LIMIT ?",
    }
    while (row := tx.execute("SELECT key FROM conversation WHERE user = ? LIMIT 1", (user,)).fetchone()) is not None:
        (conversation,) = row
        spans = {"exchange": exchanges.span(conversation), "file": (conversation, conversation)}
        for table, query in queries.items():
            while found := tx.execute(query, (*spans[table], REMOVED_ROWS)).fetchall():
                for key, size in found:
                    tx.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
                    yield 1 + size * REMOVED_ROWS // REMOVED_BYTES
        tx.execute("DELETE FROM conversation WHERE key = ?", row)
        yield 1
    while found := tx.execute("SELECT key FROM item WHERE user = ? LIMIT ?", (user, REMOVED_ROWS)).fetchall():
        for item in found:
            tx.execute("DELETE FROM item WHERE key = ?", item)
            yield 1
    while found := tx.execute("SELECT key FROM channel WHERE user = ? LIMIT ?", (user, REMOVED_ROWS)).fetchall():
        for packet in found:
            tx.execute("DELETE FROM channel WHERE key = ?", packet)
            yield 1
    for (target,) in tx.execute("DELETE FROM user WHERE key = ? AND hidden > 0 RETURNING target", (user,)).fetchall():
        tx.execute(  # a user who was added for the import
            "DELETE FROM user WHERE key = :target AND hidden = 0 AND recalls "
            "AND NOT EXISTS (SELECT 1 FROM user WHERE target = :target) "
            "AND NOT EXISTS (SELECT 1 FROM conversation WHERE user = :target) "
            "AND NOT EXISTS (SELECT 1 FROM item WHERE user = :target) "
            "AND NOT EXISTS (SELECT 1 FROM task WHERE user = :target)",
            {"target": target},
        )


def _add_user(tx: Tx, until: int, target: int | None = None) -> int:
    return exchanges.insert(tx, "user", {"name": _unused_name(), "hidden": until, "target": target})


def _unused_name() -> str:
    return f"\n{secrets.token_hex(8)}"
