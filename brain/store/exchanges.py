"""Reads and writes exchanges, and updates their conversation: sources, place, title, search index."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from brain.messages import RECALL_NOTE, Attachment, Exchange, Source
from brain.store import counts, full_text, rows
from brain.store.schema import EXCHANGES
from brain.store.tx import Tx
from brain.text import first_words, one_line

TITLE_LENGTH = 60
GIVEN_TITLE_LENGTH = 200
"""Maximum length of a title that the user sets."""
USED_SECONDS = 60
"""The newest conversation's time of use is written at most once in this interval."""
SHORT_BYTES = 2048
INDEXED_AT_ONCE = 64
SOURCES: Mapping[Source, int] = {"chat": 1, "voice": 2, "api": 4, "task": 8, "report": 16}
"""Bits of `conversation.sources`."""
RUNNING = "exchange e WHERE e.unindexed = 1 AND e.outcome = ''"
"""Selects the running exchanges `e`, by the index `exchange_unindexed`."""
IS_ALIVE = "(e.process = ? OR e.process IN (SELECT id FROM process))"
"""Whether the process of exchange or task `e` lives; the value is the process that asks."""
IS_LISTED = f"c.sources & {SOURCES['task']} = 0"
"""Whether lists, searches and counts include conversation `c`: not one in which a task runs."""
IN_CONVERSATION = f"e.key BETWEEN c.key << {EXCHANGES} AND (c.key + 1) << {EXCHANGES}"
"""Whether exchange `e` belongs to conversation `c`."""

PLACE = "c.key, c.used, top.key, top.used"
"""The columns of a `Place`, of conversation `c`."""
TOP = (
    "LEFT JOIN conversation top ON top.key = "
    "(SELECT key FROM conversation WHERE account = a.key ORDER BY used DESC, key DESC LIMIT 1)"
)
"""Joins the first conversation in the list of account `a`."""

_UNINDEXED = f"SELECT {rows.EXCHANGE} FROM exchange WHERE unindexed = 1 AND outcome <> ''"
_NOTE = re.compile(rf"^{RECALL_NOTE}.*\n*", re.MULTILINE)


class _Titled(msgspec.Struct):
    """A stored task, without the rest."""

    title: str


def span(conversation: int) -> tuple[int, int]:
    """Return the first and last possible key of a conversation's exchanges."""
    return (conversation << EXCHANGES) + 1, ((conversation + 1) << EXCHANGES) - 1


# reading


def read(tx: Tx, key: int) -> Exchange | None:
    """Return an exchange; None if it is missing or damaged (which is logged)."""
    found = tx.execute(f"SELECT {rows.EXCHANGE} FROM exchange WHERE key = ?", (key,))
    return next(rows.readable(rows.read_exchange, found), None)


def history_rows(tx: Tx, conversation: int, after: int, before: int, limit: int) -> Sequence[tuple[Any, ...]]:
    """Return rows of the newest history exchanges between two keys, oldest first."""
    first, last = span(conversation)
    newest = tx.execute(
        f"SELECT {rows.EXCHANGE} FROM exchange WHERE key BETWEEN ? AND ? AND in_history = 1 ORDER BY key DESC LIMIT ?",
        (max(first, after + 1), min(last, before - 1), limit),
    ).fetchall()
    return newest[::-1]


def exists_in(tx: Tx, conversation: int) -> bool:
    """Return whether a conversation has an exchange."""
    query = "SELECT 1 FROM exchange WHERE key BETWEEN ? AND ? LIMIT 1"
    return tx.execute(query, span(conversation)).fetchone() is not None


def user_of(tx: Tx, conversation: int) -> int | None:
    """Return the key of a conversation's user; None if the conversation is deleted."""
    ((user,),) = tx.execute("SELECT account FROM conversation WHERE key = ?", (conversation,))
    return None if user is None else int(user)


# writing


def insert(tx: Tx, table: str, columns: Mapping[str, Any]) -> int:
    """Insert a row and return its key."""
    marks = ", ".join("?" * len(columns))
    query = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) RETURNING key"
    tx.count(*(one for one in columns.values() if isinstance(one, str | bytes)))
    return int(tx.execute(query, tuple(columns.values())).fetchone()[0])


def add(
    tx: Tx, conversation: int, exchange: Exchange, files: Sequence[Attachment] = (), **columns: Any
) -> tuple[int, int]:
    """Append an exchange to its conversation; return its key and by how many bytes the conversation grew.

    The size of a short question is counted when its answer is written.

    Args:
        files: attachments of the exchange.
        columns: further columns.
    """
    own = rows.exchange_columns(exchange)
    size = len(own["data"].encode()) + sum(len(file.data) for file in files)
    size = size if size > SHORT_BYTES else 0
    query = (
        "UPDATE conversation SET last = last + 1, sources = sources | ?, bytes = bytes + ?, messages = messages + ?, "
        "history = history + ? WHERE key = ? RETURNING last, account"
    )
    added = SOURCES[exchange.source], size, own["messages"], own["in_history"]
    ((last, account),) = tx.execute(query, (*added, conversation)).fetchall()
    counts.change_account(tx, account, size)
    return insert(tx, "exchange", {"key": conversation << EXCHANGES | last, **own, "bytes": size, **columns}), size


def add_file(tx: Tx, conversation: int, exchange: int | None, file: Attachment) -> None:
    """Add a file; its exchange may be added later."""
    texts = {"name": one_line(file.name), "type": one_line(file.type)}
    columns = {"id": file.id, "size": len(file.data), **texts, "data": file.data}
    insert(tx, "file", {"conversation": conversation, "exchange": exchange, **columns})


def write(tx: Tx, key: int, exchange: Exchange, **columns: Any) -> None:
    """Update an exchange, its size and further columns."""
    changed = {**rows.exchange_columns(exchange), **columns}
    changed["bytes"] = len(changed["data"].encode())
    if exchange.files:
        ((files,),) = tx.execute("SELECT coalesce(sum(size), 0) FROM file WHERE exchange = ?", (key,))
        changed["bytes"] += files
    assigned = ", ".join(f"{column} = ?" for column in changed)
    tx.count(changed["data"])
    query = "SELECT bytes, messages, in_history FROM exchange WHERE key = ?"
    ((size, messages, in_history),) = tx.execute(query, (key,))
    tx.execute(f"UPDATE exchange SET {assigned} WHERE key = ?", (*changed.values(), key))
    added = changed["bytes"] - size, changed["messages"] - messages, changed["in_history"] - in_history
    counts.change_conversation(tx, key >> EXCHANGES, *added)


def remove(tx: Tx, key: int) -> None:
    """Delete an exchange, and its conversation if it was the only one."""
    conversation = key >> EXCHANGES
    counts.delete_exchanges(tx, key, key)
    if exists_in(tx, conversation):
        update_sources(tx, conversation)
        update_unsummarised(tx, conversation)
        list_by_time(tx, conversation)
        set_title(tx, conversation)
    else:
        remove_conversation(tx, conversation)


def remove_conversation(tx: Tx, conversation: int) -> None:
    """Delete a conversation and its memories. Facts stay, without their source message."""
    remove_memories(tx, conversation)
    counts.delete_conversation(tx, conversation)


def remove_memories(tx: Tx, conversation: int) -> None:
    """Delete the memories of a conversation. One that also stands for others stays, without its source."""
    memories = "(conversation = ? AND kind = 'memory') OR key = (SELECT memory FROM conversation WHERE key = ?)"
    others = "SELECT 1 FROM conversation c WHERE c.memory = item.key AND c.key <> ?"
    counts.delete_items(tx, f"({memories}) AND NOT EXISTS ({others})", (conversation,) * 3)


def remove_recalled(exchange: Exchange) -> None:
    """Remove recalled items from a question, which later turns read again, and from the notices."""
    exchange.question = _NOTE.sub("", exchange.question, count=1)
    exchange.recalled_ids = ()
    exchange.annotations = tuple(one for one in exchange.annotations if one.code != "recalled")


# the conversation


def update_sources(tx: Tx, conversation: int) -> None:
    """Recompute the sources of a conversation from its messages."""
    found = tx.execute("SELECT DISTINCT source FROM exchange WHERE key BETWEEN ? AND ?", span(conversation)).fetchall()
    bits = sum(SOURCES.get(source, 0) for (source,) in found)
    tx.execute("UPDATE conversation SET sources = ? WHERE key = ?", (bits, conversation))


def update_unsummarised(tx: Tx, conversation: int) -> None:
    """Recompute whether the memory of a conversation lacks an exchange."""
    first, last = span(conversation)
    # conditional: SQLite rewrites the index entry of an assigned column even if its value is the same
    lacking = (
        "EXISTS (SELECT 1 FROM exchange WHERE key "
        "BETWEEN CASE WHEN summarised_to < ? THEN ? ELSE summarised_to + 1 END AND ? "
        "AND in_history = 1 AND sources & ? = 0)"
    )
    tx.execute(
        f"UPDATE conversation SET unsummarised = 1 - unsummarised WHERE key = ? AND (unsummarised = 1) <> {lacking}",
        (conversation, first, first, last, SOURCES["task"]),
    )


def set_summary(tx: Tx, conversation: int, memory: int, last: int) -> None:
    """Link a memory that summarizes a conversation up to exchange `last`, unless it has another memory."""
    query = "UPDATE conversation SET memory = ?, summarised_to = ? WHERE key = ? AND memory IS NULL"
    tx.execute(query, (memory, last, conversation))
    update_unsummarised(tx, conversation)


class Place(NamedTuple):
    """The place of a conversation in its user's list, which is ordered by the time of use.

    Attributes:
        top: the key of the first conversation, and `top_used` its time of use; None without one.
    """

    key: int | None
    used: int | None
    top: int | None
    top_used: int | None


def list_first(tx: Tx, conversation: int, place: Place, updated: int) -> None:
    """Move a conversation to the top of its user's list, even if a wrong clock dated others in the future.

    If it is at the top already, its time of use is not written with every turn.
    """
    if place.used is None or place.key != place.top or place.used < updated - USED_SECONDS * rows.SECOND:
        tx.execute("UPDATE conversation SET used = ? WHERE key = ?", (first_use(place, updated), conversation))


def first_use(place: Place, updated: int) -> int:
    """Return the time of use of a conversation at the top of its user's list."""
    return updated if place.top_used is None else max(updated, place.top_used + 1)


def list_by_time(tx: Tx, conversation: int) -> None:
    """Place a conversation in its user's list by its last use."""
    query = "UPDATE conversation SET used = updated WHERE key = ? AND sources & ? = 0"
    tx.execute(query, (conversation, SOURCES["task"]))


def set_title(tx: Tx, conversation: int) -> None:
    """Set the title to the first words, or else the file names, unless the user has set one."""
    ((key,),) = tx.execute("SELECT min(key) FROM exchange WHERE key BETWEEN ? AND ?", span(conversation))
    exchange = read(tx, key)
    if exchange is None:
        return
    files = tx.execute("SELECT name FROM file WHERE exchange = ? ORDER BY id", (key,)).fetchall()
    words = first_words(exchange.message, TITLE_LENGTH)
    title = words or first_words(" ".join(name for (name,) in files), TITLE_LENGTH)
    if exchange.source == "report":
        query = (
            "SELECT t.data FROM conversation c JOIN task t ON t.account = c.account AND t.conversation = c.id "
            "WHERE c.key = ? ORDER BY t.key LIMIT 1"
        )
        for (data,) in tx.execute(query, (conversation,)).fetchall():
            with suppress(msgspec.MsgspecError):
                title = one_line(msgspec.json.decode(data, type=_Titled).title)
    query = "SELECT title FROM conversation WHERE key = ? AND named = 0 AND title <> ?"
    former = tx.execute(query, (conversation, title)).fetchone()
    if former == ("",) and words:  # the first exchange is indexed with these words
        tx.execute("UPDATE conversation SET title = ? WHERE key = ?", (title, conversation))
    elif former is not None:
        rename(tx, conversation, title, user_of(tx, conversation))


def rename(tx: Tx, conversation: int, title: str, user: int | None) -> None:
    """Set the title of a conversation, as one line, and index its words."""
    line = one_line(title)[:GIVEN_TITLE_LENGTH]
    ((former,),) = tx.execute("SELECT title FROM conversation WHERE key = ?", (conversation,))
    tx.execute("UPDATE conversation SET title = ? WHERE key = ?", (line, conversation))
    if former:
        tx.words.remove(tx, "exchange_words", conversation << EXCHANGES)
    index_title(tx, conversation, line, user)


# the index of words


def term_prefix(user: int) -> str:
    """Return the prefix of index terms for a user's conversations."""
    return f"{user}q"


def index(tx: Tx, key: int, exchange: Exchange, user: int | None) -> None:
    """Index the message and the answer of an exchange for a user."""
    _index(tx, key, user, exchange.message, exchange.answer)


def index_title(tx: Tx, conversation: int, title: str, user: int | None) -> None:
    """Index the title of a conversation for a user."""
    _index(tx, conversation << EXCHANGES, user, title)


def has_unindexed(tx: Tx) -> bool:
    """Return whether an ended exchange is not in the index yet."""
    return tx.execute(f"{_UNINDEXED} LIMIT 1").fetchone() is not None


def index_some(tx: Tx) -> bool:
    """Index some ended exchanges; return whether there are more.

    Many turns are indexed together, since each write changes several pages of the index.
    """
    found = tx.execute(f"{_UNINDEXED} LIMIT ?{tx.lock_rows}", (INDEXED_AT_ONCE,)).fetchall()
    for row in found:
        for exchange in rows.readable(rows.read_exchange, [row]):
            if exchange.source != "task":
                index(tx, row[0], exchange, user_of(tx, row[0] >> EXCHANGES))
        tx.execute("UPDATE exchange SET unindexed = 0 WHERE key = ?", row[:1])
        # one may have been written beside the answer
        tx.execute("DELETE FROM draft WHERE exchange = ?", row[:1])
    return len(found) == INDEXED_AT_ONCE


def _index(tx: Tx, key: int, user: int | None, *texts: str) -> None:
    if user is None:  # the conversation is deleted
        return
    full_text.put(tx, "exchange_words", key, term_prefix(user), *texts)
