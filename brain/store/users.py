"""Users, their counts and their quotas.

In a file, a user over quota cannot store more. In memory, the least recently used conversations make room, first
those of the user who stores most, so that no user displaces the conversations of others.
"""

import sqlite3

from brain.errors import BadRequest
from brain.messages import Counts
from brain.store import exchanges
from brain.store.connection import MIB

MAX_CONVERSATION_BYTES = 64 * MIB
MAX_USER_BYTES = 1024 * MIB
MAX_MEMORY_USER_BYTES = 256 * MIB
MAX_MEMORY_BYTES = 512 * MIB
MAX_MEMORY_CONVERSATIONS = 1000


def find(db: sqlite3.Connection, user: str) -> int | None:
    """Return the key of a user; None if the user has no data."""
    row = db.execute("SELECT key FROM user WHERE name = ?", (user,)).fetchone()
    return None if row is None else int(row[0])


def add(db: sqlite3.Connection, user: str) -> int:
    """Return the key of a user, adding the user if needed."""
    key = find(db, user)
    return exchanges.insert(db, "user", {"name": user}) if key is None else key


def names(db: sqlite3.Connection) -> list[str]:
    """Return the names of users with data or preferences."""
    found = db.execute(
        "SELECT name FROM user u WHERE hidden = 0 AND (NOT recalls OR EXISTS (SELECT 1 FROM conversation WHERE "
        "user = u.key) OR EXISTS (SELECT 1 FROM item WHERE user = u.key) "
        "OR EXISTS (SELECT 1 FROM task WHERE user = u.key)) ORDER BY name"
    )
    return [name for (name,) in found]


def note_private_data(db: sqlite3.Connection, user: int) -> None:
    """Record that a turn of a user read private data, which its answer may repeat."""
    db.execute("UPDATE user SET private_data = 1 WHERE key = ? AND private_data = 0", (user,))


def has_private_data(db: sqlite3.Connection, user: int | None) -> bool:
    """Return whether a turn of a user has read private data, or memory has some to read."""
    query = "SELECT private_data OR EXISTS (SELECT 1 FROM item WHERE user = u.key) FROM user u WHERE key = ?"
    row = db.execute(query, (user,)).fetchone()
    return row is not None and bool(row[0])


def recalls(db: sqlite3.Connection, user: str) -> bool:
    """Return whether recall is on for the user."""
    row = db.execute("SELECT recalls FROM user WHERE name = ?", (user,)).fetchone()
    return row is None or bool(row[0])


def set_recalls(db: sqlite3.Connection, user: str, on: bool) -> None:
    """Turn recall on or off for the user."""
    db.execute("UPDATE user SET recalls = ? WHERE key = ?", (on, add(db, user)))


def count(db: sqlite3.Connection, user: int | None) -> Counts:
    """Return the counts of a user's data."""
    ((conversations, messages),) = db.execute(
        f"SELECT count(*), coalesce(sum(messages), 0) FROM conversation c WHERE user = ? AND {exchanges.IS_LISTED}",
        (user,),
    )
    query = "SELECT count(*) FROM file f JOIN conversation c ON c.key = f.conversation WHERE c.user = ?"
    ((files,),) = db.execute(f"{query} AND {exchanges.IS_LISTED}", (user,))
    ((tasks,),) = db.execute("SELECT count(*) FROM task WHERE user = ?", (user,))
    items = dict(db.execute("SELECT kind, count(*) FROM item WHERE user = ? GROUP BY kind", (user,)).fetchall())
    return Counts(conversations, messages, files, items.get("fact", 0), items.get("memory", 0), tasks)


def check_conversation(db: sqlite3.Connection, conversation: int, field: str) -> None:
    """Check the size of a conversation.

    Raises:
        BadRequest: `too_large`, it is over the limit.
    """
    ((size,),) = db.execute("SELECT bytes FROM conversation WHERE key = ?", (conversation,))
    if size > MAX_CONVERSATION_BYTES:
        message = (
            f"This conversation and its files have {-(-size // MIB)} MiB; "
            f"the limit is {MAX_CONVERSATION_BYTES // MIB} MiB. Start a new one."
        )
        raise BadRequest(message, field, code="too_large", status=413)


def check_quota(
    db: sqlite3.Connection, user: int, field: str, *, conversation: int | None = None, hidden: int | None = None
) -> None:
    """Check the quota of a user. In memory, old conversations make room first.

    Args:
        conversation: never deleted to make room.
        hidden: a hidden user whose rows will belong to the user.

    Raises:
        BadRequest: `too_large`, the quota is exceeded.
    """
    most = MAX_USER_BYTES
    has_no_file = is_in_memory(db)
    if has_no_file:
        make_room(db, user, conversation)
        most = MAX_MEMORY_USER_BYTES
    if _size(db, user) + (0 if hidden is None else _size(db, hidden)) > most:
        sentence = f"The storage limit of {most // MIB} MiB per user is reached. Delete conversations or files."
        raise BadRequest(sentence, field, code="too_large", status=413)
    if has_no_file and _total_size(db) > MAX_MEMORY_BYTES:
        message = f"The server's storage limit of {MAX_MEMORY_BYTES // MIB} MiB in memory is reached."
        raise BadRequest(message, field, code="too_large", status=413)


def is_in_memory(db: sqlite3.Connection) -> bool:
    """Return whether the database is in memory."""
    ((_, _, file), *_) = db.execute("PRAGMA database_list")
    return not file


def make_room(db: sqlite3.Connection, user: int, conversation: int | None) -> None:
    """Delete the conversations not used for longest while there is too much; not this one, nor one that runs."""
    while _size(db, user) > MAX_MEMORY_USER_BYTES and _delete_oldest(db, conversation, user):
        pass
    limit = MAX_MEMORY_CONVERSATIONS  # over the limit, delete several at once: finding the largest users is slow
    while (users := _largest_users(db, limit)) and any(_delete_oldest(db, conversation, one) for one in users):
        limit = MAX_MEMORY_CONVERSATIONS - MAX_MEMORY_CONVERSATIONS // 50


def _size(db: sqlite3.Connection, user: int) -> int:
    ((size,),) = db.execute("SELECT bytes FROM user WHERE key = ?", (user,))
    return int(size)


def _total_size(db: sqlite3.Connection) -> int:
    ((size,),) = db.execute("SELECT sum(bytes) FROM user")
    return int(size)


def _largest_users(db: sqlite3.Connection, max_conversations: int) -> list[int]:
    """Return the users by size, or by number of conversations, whichever is over the limit; none if neither is."""
    if _total_size(db) > MAX_MEMORY_BYTES:
        query = "SELECT key FROM user ORDER BY bytes DESC"
    elif db.execute("SELECT count(*) FROM conversation").fetchone()[0] > max_conversations:
        query = "SELECT user FROM conversation GROUP BY user ORDER BY count(*) DESC, min(used)"
    else:
        return []
    return [user for (user,) in db.execute(query).fetchall()]


def _delete_oldest(db: sqlite3.Connection, conversation: int | None, user: int) -> bool:
    """Delete the oldest conversation of a user; return False if turns or tasks use all of them."""
    active = "FROM task WHERE user = :user AND is_active = 1"
    used = f"SELECT conversation {active} UNION ALL SELECT 'work' || substr(id, 5) {active}"
    query = (
        "SELECT key FROM conversation c WHERE key IS NOT :conversation AND user = :user AND NOT EXISTS "
        f"(SELECT 1 FROM {exchanges.RUNNING} AND {exchanges.IN_CONVERSATION}) AND id NOT IN ({used}) "
        "ORDER BY used, key LIMIT 1"
    )
    oldest = db.execute(query, {"conversation": conversation, "user": user}).fetchone()
    if oldest is not None:
        exchanges.remove_conversation(db, oldest[0])
    return oldest is not None
