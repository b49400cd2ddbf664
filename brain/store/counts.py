"""What is stored beside rows of exchanges, conversations and items: counts and words.

A conversation counts its exchanges. An account counts the bytes of its conversations and items, and the changes of its
items. Functions that insert or change rows call `change_conversation`, `change_account` and `change_items`; rows are
deleted by the functions here. An item's embeddings are deleted with it by their reference.
"""

from brain.store.schema import EXCHANGES
from brain.store.tx import Tx, Values


def change_account(tx: Tx, account: int | None, size: int) -> None:
    """Add to the bytes of an account; None for what belongs to no account."""
    if account is not None and size:
        tx.execute("UPDATE account SET bytes = bytes + ? WHERE key = ?", (size, account))


def change_items(tx: Tx, account: int | None, size: int) -> None:
    """Add to the bytes of an account, and count a change of its items or of their embeddings."""
    tx.execute("UPDATE account SET bytes = bytes + ?, revision = revision + 1 WHERE key = ?", (size, account))


def change_conversation(tx: Tx, conversation: int, size: int, messages: int, history: int) -> None:
    """Add to the counts of a conversation and of its account, and set its time to that of its newest exchange.

    Args:
        history: exchanges that later turns read.
    """
    newest = "SELECT coalesce(ended, started) FROM exchange WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
    query = (
        "UPDATE conversation SET bytes = bytes + ?, messages = messages + ?, history = history + ?, "
        f"updated = coalesce(({newest}), updated) WHERE key = ?"
    )
    span = conversation << EXCHANGES, (conversation + 1) << EXCHANGES
    tx.execute(query, (size, messages, history, *span, conversation))
    account = "(SELECT account FROM conversation WHERE key = ?)"
    tx.execute(f"UPDATE account SET bytes = bytes + ? WHERE key = {account}", (size, conversation))


def delete_exchanges(tx: Tx, first: int, last: int) -> bool:
    """Delete the exchanges of a conversation between two keys, which are included; return whether there were any."""
    query = "DELETE FROM exchange WHERE key BETWEEN ? AND ? RETURNING key, bytes, messages, in_history"
    deleted = tx.execute(query, (first, last)).fetchall()
    if deleted:
        keys, *counts = zip(*deleted, strict=True)
        change_conversation(tx, first >> EXCHANGES, *(-sum(column) for column in counts))
        for key in keys:
            tx.words.remove(tx, "exchange_words", key)
    return bool(deleted)


def delete_conversation(tx: Tx, conversation: int) -> None:
    """Delete a conversation with its exchanges. Its memories stay."""
    delete_exchanges(tx, conversation << EXCHANGES, (conversation + 1) << EXCHANGES)
    deleted = tx.execute("DELETE FROM conversation WHERE key = ? RETURNING account, bytes", (conversation,)).fetchall()
    for account, size in deleted:
        change_account(tx, account, -size)
        tx.words.remove(tx, "exchange_words", conversation << EXCHANGES)


def delete_embeddings(tx: Tx, item: int) -> None:
    """Delete the embeddings of an item that has another text now."""
    tx.execute("DELETE FROM embedding WHERE item = ?", (item,))
    tx.execute("UPDATE item SET embedded = '' WHERE key = ? AND embedded <> ''", (item,))


def delete_items(tx: Tx, where: str, values: Values) -> bool:
    """Delete the items for which a condition is true; return whether there were any."""
    deleted = tx.execute(f"DELETE FROM item WHERE {where} RETURNING key, account, bytes", values).fetchall()
    for key, account, size in deleted:
        change_items(tx, account, -size)
        tx.words.remove(tx, "item_words", key)
    return bool(deleted)
