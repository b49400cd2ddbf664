"""Claims idle conversations for summaries, and links the summaries."""

from datetime import datetime

from brain.messages import IdleConversation, Item
from brain.store import exchanges, items, rows
from brain.store.rows import SECOND
from brain.store.schema import EXCHANGES
from brain.store.tx import Tx

MAX_EXCHANGES = 40
"""A summary covers at most this many exchanges, the newest."""
CLAIM = 300 * SECOND
"""How long a claim of one process keeps other processes away."""


def claim(tx: Tx, before: datetime, limit: int, *, alone: bool = False) -> list[IdleConversation]:
    """Claim conversations that were not used since `before` and whose summary lacks an exchange, none private.

    The newest come first: after an import, hundreds of old ones wait. Times in the future come from a wrong clock and
    do not count.

    Args:
        alone: claim nothing while any process runs a turn.
    """
    where = "" if alone else f"AND {exchanges.IN_CONVERSATION} "
    found = tx.execute(
        "SELECT c.key, c.user, u.name, c.id, c.title, c.summarised_to, c.memory "
        "FROM conversation c JOIN user u ON u.key = c.user "
        "WHERE c.unsummarised = 1 AND c.private = 0 AND u.hidden = 0 AND c.updated NOT BETWEEN ? AND ? "
        "AND c.claimed NOT BETWEEN ? AND ? "
        f"AND NOT EXISTS (SELECT 1 FROM {exchanges.RUNNING} {where}AND e.until > ?) "
        "ORDER BY c.updated DESC, c.key DESC LIMIT ?",
        (rows.micros(before), tx.now, tx.now + 1, tx.now + CLAIM, tx.now, limit),
    ).fetchall()
    tx.executemany("UPDATE conversation SET claimed = ? WHERE key = ?", [(tx.now + CLAIM, row[0]) for row in found])
    claimed = list[IdleConversation]()
    for key, number, user, conversation_id, title, summarised_to, memory in found:
        newest = exchanges.history_rows(tx, key, summarised_to, exchanges.span(key)[1] + 1, MAX_EXCHANGES)
        earlier = next((item for _, item in items.of_keys(tx, number, [] if memory is None else [memory])), None)
        read = list(rows.readable(rows.read_exchange, newest))
        claimed.append(IdleConversation(user, conversation_id, title, read, earlier, newest[-1][0]))
    return claimed


def set_memory(tx: Tx, idle: IdleConversation, item: Item | None) -> None:
    """Store the summary of a conversation, replacing the former one, unless the conversation was deleted.

    An item that exists already then stands for this conversation, too. A former one that stands for others stays.
    """
    conversation = idle.last_key >> EXCHANGES
    query = "SELECT c.memory FROM conversation c JOIN user u ON u.key = c.user WHERE c.key = ? AND u.name = ?"
    row = tx.execute(query, (conversation, idle.user)).fetchone()
    if row is None:
        return
    if item is not None:
        memory = items.put(tx, idle.user, item)
        tx.execute("UPDATE conversation SET memory = ? WHERE key = ?", (memory, conversation))
        others = "SELECT 1 FROM conversation c WHERE c.memory = item.key"
        tx.execute(f"DELETE FROM item WHERE key = ? AND NOT EXISTS ({others})", row)
    tx.execute("UPDATE conversation SET summarised_to = ?, claimed = 0 WHERE key = ?", (idle.last_key, conversation))
    exchanges.update_times(tx, conversation)
