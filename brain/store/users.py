"""What is kept of a user as a whole."""

import sqlite3

from brain.messages import Counts
from brain.store import hidden, turn_log, turns
from brain.store.conversations import known


def users(db: sqlite3.Connection) -> list[str]:
    """Those of whom anything is kept."""
    found = db.execute(
        "SELECT name FROM user u WHERE hidden = 0 AND (NOT recalls OR EXISTS (SELECT 1 FROM conversation WHERE "
        "user = u.key) OR EXISTS (SELECT 1 FROM item WHERE user = u.key)) ORDER BY name"
    )
    return [name for (name,) in found]


def recalls(db: sqlite3.Connection, user: str) -> bool:
    """Whether the user lets Brain recall."""
    row = db.execute("SELECT recalls FROM user WHERE name = ?", (user,)).fetchone()
    return row is None or bool(row[0])


def set_recalls(db: sqlite3.Connection, user: str, on: bool) -> None:
    """Notes whether the user lets Brain recall."""
    db.execute("UPDATE user SET recalls = ? WHERE key = ?", (on, turns.user_key(db, user)))


def counted(db: sqlite3.Connection, user: str) -> Counts:
    """How much is kept of a user."""
    return counted_by_key(db, known(db, user))


def counted_by_key(db: sqlite3.Connection, number: int | None) -> Counts:
    """The same, of the user of this key."""
    ((conversations, messages),) = db.execute(
        "SELECT count(*), coalesce(sum(messages), 0) FROM conversation WHERE user = ?", (number,)
    )
    ((files,),) = db.execute(
        "SELECT count(*) FROM file f JOIN conversation c ON c.key = f.conversation WHERE c.user = ?", (number,)
    )
    items = dict(db.execute("SELECT kind, count(*) FROM item WHERE user = ? GROUP BY kind", (number,)).fetchall())
    return Counts(conversations, messages, files, items.get("fact", 0), items.get("memory", 0))


def forget(db: sqlite3.Connection, user: str, lease: turns.Lease) -> tuple[Counts, int | None]:
    """Deletes all of a user: how much it was, and the hidden user whose rows are left to be removed.

    Raises:
        BadRequest: `busy`, while a turn of the user's runs.
    """
    number = known(db, user)
    if number is None:
        return Counts(), None
    query = "SELECT DISTINCT c.key FROM exchange e JOIN conversation c ON c.key = e.conversation "
    for (conversation,) in db.execute(f"{query} WHERE e.outcome = '' AND c.user = ?", (number,)).fetchall():
        if turns.running(db, conversation, lease):
            raise turns.busy()
    counts = counted(db, user)
    turn_log.forget(db, user)
    hidden.hide_user(db, number)
    return counts, number
