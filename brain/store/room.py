"""Wing: how much may be kept. On the disk, who has too much keeps no more; in memory the longest unused makes room."""

import sqlite3

from brain.errors import BadRequest

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


def check_user(db: sqlite3.Connection, user: int, field: str) -> None:
    """The same for all that a user keeps."""
    ((size,),) = db.execute("SELECT bytes FROM user WHERE key = ?", (user,))
    if size > USER_BYTES_MOST:
        sentence = f"A user may keep {USER_BYTES_MOST // MIB} MiB; delete conversations that are not needed."
        raise BadRequest(sentence, field, code="too_large", status=413)


def make(db: sqlite3.Connection, conversation: int) -> None:
    """Forgets the longest unused conversations as long as there is too much, but not this one, nor one that runs."""
    ((user,),) = db.execute("SELECT user FROM conversation WHERE key = ?", (conversation,))
    while _bytes(db, user) > MEMORY_USER_BYTES_MOST and _forget_oldest(db, conversation, user):
        pass
    while _too_much(db) and _forget_oldest(db, conversation, None):
        pass


def _bytes(db: sqlite3.Connection, user: int) -> int:
    ((size,),) = db.execute("SELECT bytes FROM user WHERE key = ?", (user,))
    return int(size)


def _too_much(db: sqlite3.Connection) -> bool:
    ((size,),) = db.execute("SELECT sum(bytes) FROM user")
    ((conversations,),) = db.execute("SELECT count(*) FROM conversation")
    return bool(size > MEMORY_BYTES_MOST or conversations > MEMORY_CONVERSATIONS_MOST)


def _forget_oldest(db: sqlite3.Connection, kept: int, user: int | None) -> bool:
    """Forgets one conversation; false when all are in use."""
    forgotten = db.execute(
        "DELETE FROM conversation WHERE key = "
        "(SELECT key FROM conversation c WHERE key <> ? AND (? IS NULL OR user = ?) AND NOT EXISTS "
        "(SELECT 1 FROM exchange WHERE conversation = c.key AND outcome = '') ORDER BY updated, key LIMIT 1)",
        (kept, user, user),
    )
    return forgotten.rowcount > 0
