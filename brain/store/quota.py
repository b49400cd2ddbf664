"""How much may be kept. On the disk, who has too much keeps no more; in memory the longest unused makes room.

It is that of whoever has the most, so that nobody's much drives out what others have.
"""

import sqlite3

from brain.errors import BadRequest
from brain.store import exchanges

MIB = 1024 * 1024
CONVERSATION_BYTES_MOST = 64 * MIB
USER_BYTES_MOST = 1024 * MIB
MEMORY_USER_BYTES_MOST = 256 * MIB
MEMORY_BYTES_MOST = 512 * MIB
MEMORY_CONVERSATIONS_MOST = 1000


def check_conversation(db: sqlite3.Connection, conversation: int, field: str) -> None:
    """Looks whether a conversation may be as large as it has become.

    Raises:
        BadRequest: `too_large`, when it may not.
    """
    ((size,),) = db.execute("SELECT bytes FROM conversation WHERE key = ?", (conversation,))
    if size > CONVERSATION_BYTES_MOST:
        sentence = f"A conversation may hold {CONVERSATION_BYTES_MOST // MIB} MiB with its files; begin a new one."
        raise BadRequest(sentence, field, code="too_large", status=413)


def claim(
    db: sqlite3.Connection, user: int, field: str, *, conversation: int | None = None, hidden: int | None = None
) -> None:
    """Sees whether a user may keep as much as it has become. In memory, other conversations make room for it.

    Args:
        conversation: makes no room.
        hidden: a hidden user, of whom all is to be the user's, too.

    Raises:
        BadRequest: `too_large`, when it is too much.
    """
    most = USER_BYTES_MOST
    if in_memory(db):
        make(db, user, conversation)
        most = MEMORY_USER_BYTES_MOST
    if _bytes(db, user) + (0 if hidden is None else _bytes(db, hidden)) > most:
        sentence = f"A user may keep {most // MIB} MiB; delete what is not needed."
        raise BadRequest(sentence, field, code="too_large", status=413)
    if in_memory(db) and _all_bytes(db) > MEMORY_BYTES_MOST:
        raise BadRequest("There is no room left to keep this.", field, code="too_large", status=413)


def in_memory(db: sqlite3.Connection) -> bool:
    """Whether there is no file."""
    ((_, _, file), *_) = db.execute("PRAGMA database_list")
    return not file


def make(db: sqlite3.Connection, user: int, kept: int | None) -> None:
    """Forgets the longest unused conversations as long as there is too much, but not this one, nor one that runs."""
    while _bytes(db, user) > MEMORY_USER_BYTES_MOST and _forget_oldest(db, kept, user):
        pass
    while (heaviest := _too_much(db)) and any(_forget_oldest(db, kept, one) for one in heaviest):
        pass


def _bytes(db: sqlite3.Connection, user: int) -> int:
    ((size,),) = db.execute("SELECT bytes FROM user WHERE key = ?", (user,))
    return int(size)


def _all_bytes(db: sqlite3.Connection) -> int:
    ((size,),) = db.execute("SELECT sum(bytes) FROM user")
    return int(size)


def _too_much(db: sqlite3.Connection) -> list[int]:
    """The users, who has the most of what there is too much of first; none when there is not."""
    ((conversations,),) = db.execute("SELECT count(*) FROM conversation")
    query = None
    if _all_bytes(db) > MEMORY_BYTES_MOST:
        query = "SELECT key FROM user ORDER BY bytes DESC"
    elif conversations > MEMORY_CONVERSATIONS_MOST:
        query = "SELECT user FROM conversation GROUP BY user ORDER BY count(*) DESC, min(used)"
    return [] if query is None else [user for (user,) in db.execute(query).fetchall()]


def _forget_oldest(db: sqlite3.Connection, kept: int | None, user: int) -> bool:
    """Forgets one conversation of a user; false when all are in use."""
    oldest = db.execute(
        "SELECT key FROM conversation c WHERE key IS NOT ? AND user = ? AND NOT EXISTS "
        "(SELECT 1 FROM exchange WHERE conversation = c.key AND outcome = '') ORDER BY used, key LIMIT 1",
        (kept, user),
    ).fetchone()
    if oldest is not None:
        exchanges.remove_all(db, oldest[0])
    return oldest is not None
