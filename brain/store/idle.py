"""Conversations that rest, and the memories that are made of them."""

import sqlite3

from brain.messages import IdleConversation, Item
from brain.store import exchanges, items, rows
from brain.store.rows import SECOND
from brain.store.schema import EXCHANGES

TAKEN_MOST = 40
"""Exchanges that a memory is made of at once, the newest ones."""
CLAIM = 300 * SECOND
"""How long a conversation is left to who asked for it first."""


def resting(db: sqlite3.Connection, before: int, limit: int, now: int, *, alone: bool) -> list[IdleConversation]:
    """Conversations in which nothing happened since `before`, and of which a memory is to be made; each is claimed.

    The newest come first: after an import, hundreds of old ones wait.

    Args:
        alone: whether there are none while a turn runs, in whatever process.
    """
    which = "" if alone else "conversation = c.key AND"
    found = db.execute(
        "SELECT c.key, c.user, u.name, c.id, c.title, c.summarised_to, c.memory "
        "FROM conversation c JOIN user u ON u.key = c.user "
        "WHERE c.unsummarised = 1 AND u.hidden = 0 AND c.updated < ? AND c.claimed <= ? AND NOT EXISTS "
        f"(SELECT 1 FROM exchange WHERE {which} outcome = '' AND until > ?) "
        "ORDER BY c.updated DESC, c.key DESC LIMIT ?",
        (before, now, now, limit),
    ).fetchall()
    db.executemany("UPDATE conversation SET claimed = ? WHERE key = ?", [(now + CLAIM, row[0]) for row in found])
    return [_resting(db, *row) for row in found]


def rested(db: sqlite3.Connection, resting: IdleConversation, item: Item | None) -> None:
    """Notes what was made of a conversation, unless that was deleted; a memory takes the place of the earlier one."""
    conversation = resting.upto >> EXCHANGES
    query = "SELECT c.memory FROM conversation c JOIN user u ON u.key = c.user WHERE c.key = ? AND u.name = ?"
    row = db.execute(query, (conversation, resting.user)).fetchone()
    if row is None:
        return
    if item is not None:
        memory = items.put(db, resting.user, item)
        db.execute("UPDATE conversation SET memory = ? WHERE key = ?", (memory, conversation))
        db.execute("DELETE FROM item WHERE key = ? AND key <> ?", (row[0], memory))
    db.execute("UPDATE conversation SET summarised_to = ?, claimed = 0 WHERE key = ?", (resting.upto, conversation))
    exchanges.settle(db, conversation)


def _resting(
    db: sqlite3.Connection,
    key: int,
    number: int,
    user: str,
    conversation_id: str,
    title: str,
    summarised_to: int,
    memory: int | None,
) -> IdleConversation:
    newest = exchanges.told(db, key, summarised_to, exchanges.span(key)[1], TAKEN_MOST)
    earlier = next((item for _, item in items.of_keys(db, number, [] if memory is None else [memory])), None)
    said = list(rows.readable(rows.exchange_of, newest))
    return IdleConversation(user, conversation_id, title, said, earlier, newest[-1][0])
