"""Users, their counts and their quotas.

In a file, a user over quota cannot store more. In memory, the least recently used conversations make room, first
those of the user who stores most, so that no user displaces the conversations of others.
"""

from dataclasses import dataclass

from brain.errors import BadRequest
from brain.store import exchanges
from brain.store.rows import MIB
from brain.store.tx import Tx

MAX_CONVERSATION_BYTES = 64 * MIB
MAX_USER_BYTES = 1024 * MIB
MAX_MEMORY_USER_BYTES = 256 * MIB
MAX_MEMORY_BYTES = 512 * MIB
MAX_MEMORY_CONVERSATIONS = 1000


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of a user's items that are stored, deleted or imported."""

    conversations: int = 0
    messages: int = 0
    files: int = 0
    facts: int = 0
    memories: int = 0
    tasks: int = 0


def find(tx: Tx, user: str) -> int | None:
    """Return the key of a user; None if the user has no data."""
    row = tx.execute("SELECT key FROM account WHERE name = ?", (user,)).fetchone()
    return None if row is None else int(row[0])


def add(tx: Tx, user: str) -> int:
    """Return the key of a user, adding the user if needed."""
    key = find(tx, user)
    return exchanges.insert(tx, "account", {"name": user}) if key is None else key


def names(tx: Tx) -> list[str]:
    """Return the names of users with data or preferences."""
    found = tx.execute(
        "SELECT name FROM account a WHERE name IS NOT NULL AND (recalls = 0 "
        "OR EXISTS (SELECT 1 FROM conversation WHERE account = a.key) "
        "OR EXISTS (SELECT 1 FROM item WHERE account = a.key) "
        "OR EXISTS (SELECT 1 FROM task WHERE account = a.key)) ORDER BY name"
    )
    return [name for (name,) in found]


def mark_private_data(tx: Tx, user: int) -> None:
    """Record that a turn of a user read private data, which its answer may repeat."""
    tx.execute("UPDATE account SET private_data = 1 WHERE key = ? AND private_data = 0", (user,))


def has_private_data(tx: Tx, user: int | None) -> bool:
    """Return whether a turn of a user has read private data, or memory has some to read."""
    has_some = "private_data = 1 OR EXISTS (SELECT 1 FROM item WHERE account = a.key)"
    return tx.execute(f"SELECT 1 FROM account a WHERE key = ? AND ({has_some})", (user,)).fetchone() is not None


def recalls(tx: Tx, user: str) -> bool:
    """Return whether recall is on for the user."""
    row = tx.execute("SELECT recalls FROM account WHERE name = ?", (user,)).fetchone()
    return row is None or bool(row[0])


def set_recalls(tx: Tx, user: str, on: bool) -> None:
    """Turn recall on or off for the user."""
    tx.execute("UPDATE account SET recalls = ? WHERE key = ?", (on, add(tx, user)))


def count(tx: Tx, user: str) -> Counts:
    """Return the counts of a user's data."""
    return count_rows(tx, find(tx, user))


def count_rows(tx: Tx, user: int | None) -> Counts:
    """Return the counts of a user's data, by the key of the user."""
    ((conversations, messages),) = tx.execute(
        f"SELECT count(*), coalesce(sum(messages), 0) FROM conversation c WHERE account = ? AND {exchanges.IS_LISTED}",
        (user,),
    )
    query = "SELECT count(*) FROM file f JOIN conversation c ON c.key = f.conversation WHERE c.account = ?"
    ((files,),) = tx.execute(f"{query} AND {exchanges.IS_LISTED}", (user,))
    ((tasks,),) = tx.execute("SELECT count(*) FROM task WHERE account = ?", (user,))
    items = dict(tx.execute("SELECT kind, count(*) FROM item WHERE account = ? GROUP BY kind", (user,)).fetchall())
    return Counts(conversations, messages, files, items.get("fact", 0), items.get("memory", 0), tasks)


def check_quota(tx: Tx, user: int, field: str) -> None:
    """Check the quota of a user.

    Raises:
        BadRequest: `too_large`, it is exceeded.
    """
    ((size,),) = tx.execute("SELECT bytes FROM account WHERE key = ?", (user,))
    check_bytes(size, 0, field)


def check_bytes(of_user: int, of_conversation: int, field: str) -> None:
    """Check the bytes of a user and of a conversation.

    Raises:
        BadRequest: `too_large`, they are over the limit.
    """
    if of_user > MAX_USER_BYTES:
        raise _too_much(MAX_USER_BYTES, field)
    if of_conversation > MAX_CONVERSATION_BYTES:
        message = (
            f"This conversation and its files have {-(-of_conversation // MIB)} MiB; "
            f"the limit is {MAX_CONVERSATION_BYTES // MIB} MiB. Start a new one."
        )
        raise BadRequest(message, field, code="too_large", status=413)


def _too_much(limit: int, field: str | None = None) -> BadRequest:
    message = f"The storage limit of {limit // MIB} MiB per user is reached. Delete conversations or files."
    return BadRequest(message, field, code="too_large", status=413)


def keep_within_memory(tx: Tx) -> None:
    """After a write in memory, delete the conversations not used for longest while there is too much; none that runs.

    Raises:
        BadRequest: `too_large`, there still is too much. The write then changes nothing.
    """
    over = "SELECT key FROM account WHERE bytes > ? LIMIT 1"
    while (row := tx.execute(over, (MAX_MEMORY_USER_BYTES,)).fetchone()) is not None:
        if not _delete_oldest(tx, row[0]):
            raise _too_much(MAX_MEMORY_USER_BYTES)
    limit = MAX_MEMORY_CONVERSATIONS  # over the limit, delete several at once: finding the largest users is slow
    while (users := _largest_users(tx, limit)) and any(_delete_oldest(tx, one) for one in users):
        limit = MAX_MEMORY_CONVERSATIONS - MAX_MEMORY_CONVERSATIONS // 50
    if _total_size(tx) > MAX_MEMORY_BYTES:
        message = f"The server's storage limit of {MAX_MEMORY_BYTES // MIB} MiB in memory is reached."
        raise BadRequest(message, code="too_large", status=413)


def _total_size(tx: Tx) -> int:
    ((size,),) = tx.execute("SELECT coalesce(sum(bytes), 0) FROM account")
    return int(size)


def _largest_users(tx: Tx, max_conversations: int) -> list[int]:
    """Return the users by size, or by number of conversations, whichever is over the limit; none if neither is."""
    if _total_size(tx) > MAX_MEMORY_BYTES:
        query = "SELECT key FROM account ORDER BY bytes DESC"
    elif tx.execute("SELECT count(*) FROM conversation").fetchone()[0] > max_conversations:
        query = "SELECT account FROM conversation GROUP BY account ORDER BY count(*) DESC, min(used)"
    else:
        return []
    return [user for (user,) in tx.execute(query).fetchall()]


def _delete_oldest(tx: Tx, user: int) -> bool:
    """Delete the oldest conversation of a user; return False if turns or tasks use all of them."""
    active = "FROM task WHERE account = ? AND is_active = 1"
    used = f"SELECT conversation {active} UNION ALL SELECT 'work' || substr(id, 5) {active}"
    query = (
        "SELECT key FROM conversation c WHERE account = ? AND NOT EXISTS "
        f"(SELECT 1 FROM {exchanges.RUNNING} AND {exchanges.IN_CONVERSATION}) AND id NOT IN ({used}) "
        "ORDER BY used, key LIMIT 1"
    )
    oldest = tx.execute(query, (user,) * 3).fetchone()
    if oldest is not None:
        exchanges.remove_conversation(tx, oldest[0])
    return oldest is not None
