"""Deletes conversations and users at once, and removes their rows later, in small transactions.

A conversation without a user and a user without a name are deleted: see `schema.py`.
"""

from collections.abc import Iterator

from brain.store import counts, exchanges
from brain.store.rows import SECOND
from brain.store.tx import Tx

IMPORT_LEASE = 30 * SECOND
"""An import that does not renew its lease for this long, in microseconds, is deleted."""
MAX_LEASE = 2 * IMPORT_LEASE
"""A lease that ends later than this is from a wrong clock. Transactions that began a little later have longer ones."""
REMOVED_ROWS, REMOVED_BYTES = 64, 1024 * 1024
"""Approximate limits of one transaction that removes rows. A file may have 16 MiB, all of which is overwritten."""

_IS_ERASED = "account IN (SELECT key FROM account WHERE name IS NULL)"
_IS_DELETED = (
    f"({_IS_ERASED} OR "
    "(account IS NULL AND (import IS NULL OR import NOT IN (SELECT key FROM import WHERE until > 0))))"
)
"""Whether a conversation or item is deleted, and not of an import that is running."""


def delete_conversation(tx: Tx, conversation: int) -> None:
    """Delete a conversation with its memories at once. Its rows are removed later, in small transactions.

    Facts stay, without their source message.
    """
    exchanges.remove_memories(tx, conversation)
    tx.execute("UPDATE item SET conversation = NULL, exchange = NULL WHERE conversation = ?", (conversation,))
    ((account, size),) = tx.execute("SELECT account, bytes FROM conversation WHERE key = ?", (conversation,))
    counts.change_account(tx, account, -size)
    tx.execute("UPDATE conversation SET account = NULL, memory = NULL WHERE key = ?", (conversation,))


def erase_user(tx: Tx, user: int) -> None:
    """Erase a user at once. The rows are removed later, in small transactions; tasks now, so that none runs."""
    for table in ("task", "channel_cursor"):
        tx.execute(f"DELETE FROM {table} WHERE account = ?", (user,))
    tx.execute("UPDATE import SET until = 0 WHERE account = ?", (user,))
    tx.execute("UPDATE account SET name = NULL WHERE key = ?", (user,))


def has_rows_to_remove(tx: Tx) -> bool:
    """Return whether there are rows of deleted conversations, erased users or expired imports."""
    lapsed = "SELECT 1 FROM import WHERE until NOT BETWEEN ? AND ?"
    query = f"SELECT 1 FROM conversation WHERE {_IS_DELETED} UNION ALL SELECT 1 FROM account WHERE name IS NULL"
    return tx.execute(f"{query} UNION ALL {lapsed} LIMIT 1", (tx.now, tx.now + MAX_LEASE)).fetchone() is not None


def remove_some(tx: Tx, conversation: int | None = None) -> bool:
    """Remove some rows of a deleted conversation, or some of all deleted rows; return whether there are more."""
    room = REMOVED_ROWS
    for cost in _remove(tx) if conversation is None else _remove_conversation(tx, conversation):
        room -= cost
        if room <= 0:
            return True
    return False


def remove_accounts(tx: Tx) -> None:
    """Remove erased users who have no rows left, and users who were only added for an import.

    It needs to be alone: a user who has nothing may be about to have something.
    """
    erased = _has_nothing("conversation", "item", "channel")
    tx.execute(f"DELETE FROM account WHERE name IS NULL AND {erased}")
    added = _has_nothing("import", "answer", "conversation", "item", "task")
    for user in tx.execute("DELETE FROM import WHERE until = 0 RETURNING account").fetchall():
        tx.execute(f"DELETE FROM account WHERE key = ? AND recalls = 1 AND private_data = 0 AND {added}", user)


def _has_nothing(*tables: str) -> str:
    return " AND ".join(f"NOT EXISTS (SELECT 1 FROM {table} WHERE account = account.key)" for table in tables)


def _remove(tx: Tx) -> Iterator[int]:
    """Remove all deleted rows, yielding what each costs."""
    tx.execute("UPDATE import SET until = 0 WHERE until NOT BETWEEN ? AND ?", (tx.now, tx.now + MAX_LEASE))
    query = f"SELECT key FROM conversation WHERE {_IS_DELETED} LIMIT 1"
    while (row := tx.execute(query).fetchone()) is not None:
        yield from _remove_conversation(tx, row[0])
    query = f"SELECT key FROM item WHERE {_IS_DELETED} LIMIT ?"
    while found := tx.execute(query, (REMOVED_ROWS,)).fetchall():
        for key in found:
            counts.delete_items(tx, "key = ?", key)
            yield 1
    query = f"SELECT key FROM channel WHERE {_IS_ERASED} LIMIT ?"
    while found := tx.execute(query, (REMOVED_ROWS,)).fetchall():
        for key in found:
            tx.execute("DELETE FROM channel WHERE key = ?", key)
            yield 1


def _remove_conversation(tx: Tx, conversation: int) -> Iterator[int]:
    query = "SELECT key, bytes FROM exchange WHERE key BETWEEN ? AND ? LIMIT ?"
    while found := tx.execute(query, (*exchanges.span(conversation), REMOVED_ROWS)).fetchall():
        for key, size in found:
            counts.delete_exchanges(tx, key, key)
            yield _cost(size)
    query = "SELECT key, size FROM file WHERE conversation = ? LIMIT ?"
    while found := tx.execute(query, (conversation, REMOVED_ROWS)).fetchall():
        for key, size in found:
            tx.execute("DELETE FROM file WHERE key = ?", (key,))
            yield _cost(size)
    counts.delete_conversation(tx, conversation)
    yield 1


def _cost(size: int) -> int:
    return 1 + size * REMOVED_ROWS // REMOVED_BYTES
