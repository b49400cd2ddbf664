"""Exchanges, and what follows from them for their conversation: counts, index of words, title, place in the list."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from brain.messages import RECALL_NOTE, Attachment, Exchange, Source
from brain.store import rows, search_terms
from brain.store.schema import EXCHANGES
from brain.text import strip_invisible

TITLE_LENGTH = 60
GIVEN_TITLE_LENGTH = 200
"""Characters of a title that the user gave."""
USED_SECONDS = 60
"""How old the time of use may be of a conversation that is first in the list."""
SHORT_BYTES = 2048
INDEXED_AT_ONCE = 64
SOURCES: Mapping[Source, int] = {"chat": 1, "voice": 2, "api": 4}
"""The bits of a conversation's sources."""
RUNNING = "exchange e INDEXED BY exchange_unindexed WHERE e.unindexed = 1 AND e.outcome = ''"
"""The exchanges `e` that run."""
IN_CONVERSATION = f"e.key BETWEEN c.key << {EXCHANGES} AND (c.key + 1) << {EXCHANGES}"
"""Whether an exchange `e` is one of a conversation `c`."""

_UNINDEXED = f"SELECT {rows.EXCHANGE} FROM exchange INDEXED BY exchange_unindexed WHERE unindexed = 1 AND outcome <> ''"
_NOTE = re.compile(rf"^{RECALL_NOTE}.*\n*", re.MULTILINE)


def span(conversation: int) -> tuple[int, int]:
    """The first and the last key that an exchange of a conversation may have."""
    return (conversation << EXCHANGES) + 1, ((conversation + 1) << EXCHANGES) - 1


# reading


def read(db: sqlite3.Connection, key: int) -> Exchange | None:
    """An exchange; None if there is none, or it is damaged, which is logged."""
    found = db.execute(f"SELECT {rows.EXCHANGE} FROM exchange WHERE key = ?", (key,))
    return next(rows.readable(rows.read_exchange, found), None)


def history_rows(
    db: sqlite3.Connection, conversation: int, after: int, before: int, limit: int
) -> Sequence[tuple[Any, ...]]:
    """The rows of the newest exchanges between two keys that later turns read, oldest first."""
    first, last = span(conversation)
    newest = db.execute(
        f"SELECT {rows.EXCHANGE} FROM exchange WHERE key BETWEEN ? AND ? AND in_history = 1 ORDER BY key DESC LIMIT ?",
        (max(first, after + 1), min(last, before - 1), limit),
    ).fetchall()
    return newest[::-1]


def exists_in(db: sqlite3.Connection, conversation: int) -> bool:
    """Whether a conversation has an exchange."""
    query = "SELECT 1 FROM exchange WHERE key BETWEEN ? AND ? LIMIT 1"
    return db.execute(query, span(conversation)).fetchone() is not None


def user_of(db: sqlite3.Connection, conversation: int) -> int:
    """The key of the user of a conversation."""
    ((user,),) = db.execute("SELECT user FROM conversation WHERE key = ?", (conversation,))
    return int(user)


# writing


def insert(db: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> int:
    """Add a row; returns its key."""
    marks = ", ".join("?" * len(columns))
    added = db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values()))
    assert added.lastrowid is not None
    return added.lastrowid


def add(
    db: sqlite3.Connection, conversation: int, exchange: Exchange, files: Sequence[Attachment] = (), **columns: Any
) -> int:
    """Add an exchange to its conversation as the newest one; returns its key.

    The size of a short question is counted with its answer.

    Args:
        files: those of the exchange.
        columns: others than those of the exchange itself.
    """
    query = "UPDATE conversation SET last = last + 1, sources = sources | ? WHERE key = ? RETURNING last"
    ((last,),) = db.execute(query, (SOURCES[exchange.source], conversation)).fetchall()
    key: int = conversation << EXCHANGES | last
    own = rows.exchange_columns(exchange)
    size = len(own["data"].encode()) + sum(len(file.data) for file in files)
    insert(db, "exchange", {"key": key, **own, "bytes": size if size > SHORT_BYTES else 0, **columns})
    return key


def add_file(db: sqlite3.Connection, conversation: int, exchange: int | None, file: Attachment) -> None:
    """Add a file; its exchange may come later."""
    columns = {"id": file.id, "size": len(file.data), "name": file.name, "type": file.type, "data": file.data}
    insert(db, "file", {"conversation": conversation, "exchange": exchange, **columns})


def write(db: sqlite3.Connection, key: int, exchange: Exchange, **columns: Any) -> None:
    """Write all of an exchange, with its size and other columns."""
    changed = {**rows.exchange_columns(exchange), **columns}
    changed["bytes"] = len(changed["data"].encode())
    if exchange.files:
        ((files,),) = db.execute("SELECT coalesce(sum(size), 0) FROM file WHERE exchange = ?", (key,))
        changed["bytes"] += files
    assigned = ", ".join(f"{column} = ?" for column in changed)
    db.execute(f"UPDATE exchange SET {assigned} WHERE key = ?", (*changed.values(), key))


def remove(db: sqlite3.Connection, key: int) -> None:
    """Remove an exchange, and its conversation if it is the only one."""
    conversation = key >> EXCHANGES
    db.execute("DELETE FROM exchange WHERE key = ?", (key,))
    if exists_in(db, conversation):
        update_sources(db, conversation)
        update_times(db, conversation)
        list_by_time(db, conversation)
        set_title(db, conversation)
    else:
        remove_conversation(db, conversation)


def remove_conversation(db: sqlite3.Connection, conversation: int) -> None:
    """Remove a conversation with its memories. Its facts stay, without the message that they quote."""
    remove_memories(db, conversation)
    db.execute("DELETE FROM conversation WHERE key = ?", (conversation,))


def remove_memories(db: sqlite3.Connection, conversation: int) -> None:
    """Remove the memories of a conversation."""
    db.execute("DELETE FROM item WHERE conversation = ? AND kind = 'memory'", (conversation,))
    db.execute("DELETE FROM item WHERE key = (SELECT memory FROM conversation WHERE key = ?)", (conversation,))


def remove_recalled(exchange: Exchange) -> None:
    """Remove what was recalled from a question, which later turns read again, and from what the user reads."""
    exchange.question = _NOTE.sub("", exchange.question, count=1)
    exchange.recalled_ids = ()
    exchange.annotations = tuple(one for one in exchange.annotations if one.code != "recalled")


# the conversation


def update_sources(db: sqlite3.Connection, conversation: int) -> None:
    """Note how the messages that are left were sent."""
    found = db.execute("SELECT DISTINCT source FROM exchange WHERE key BETWEEN ? AND ?", span(conversation)).fetchall()
    bits = sum(SOURCES.get(source, 0) for (source,) in found)
    db.execute("UPDATE conversation SET sources = ? WHERE key = ?", (bits, conversation))


def update_times(db: sqlite3.Connection, conversation: int) -> None:
    """Note when something last happened in a conversation, and whether its memory lacks an exchange."""
    first, last = span(conversation)
    db.execute(
        "UPDATE conversation SET updated = "
        "(SELECT coalesce(ended, started) FROM exchange WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1) "
        "WHERE key = ?",
        (first, last, conversation),
    )
    # by itself, and only where it changes: what is assigned is written to its index also when it stays the same
    db.execute(
        "UPDATE conversation SET unsummarised = NOT unsummarised WHERE key = ? AND unsummarised <> EXISTS "
        "(SELECT 1 FROM exchange WHERE key BETWEEN max(?, summarised_to + 1) AND ? AND in_history = 1)",
        (conversation, first, last),
    )


def set_summary(db: sqlite3.Connection, conversation: int, memory: int, last: int) -> None:
    """Note that a memory sums up a conversation up to the exchange `last`, unless it has another memory."""
    query = "UPDATE conversation SET memory = ?, summarised_to = ? WHERE key = ? AND memory IS NULL"
    db.execute(query, (memory, last, conversation))
    update_times(db, conversation)


def list_first(db: sqlite3.Connection, conversation: int) -> None:
    """Put a conversation first in its user's list; also where a clock that was ahead has used others.

    Where it is first already, its time of use is not written with every turn.
    """
    db.execute(
        "UPDATE conversation SET used = max(updated, 1 + newest.used) FROM (SELECT key, used FROM conversation "
        "WHERE user = (SELECT user FROM conversation WHERE key = :key) ORDER BY used DESC, key DESC LIMIT 1) newest "
        "WHERE conversation.key = :key AND (newest.key <> :key OR conversation.used < updated - :recent)",
        {"key": conversation, "recent": USED_SECONDS * rows.SECOND},
    )


def list_by_time(db: sqlite3.Connection, conversation: int) -> None:
    """Put a conversation into its user's list by the time of its last use."""
    db.execute("UPDATE conversation SET used = updated WHERE key = ?", (conversation,))


def set_title(db: sqlite3.Connection, conversation: int) -> None:
    """Make the first words, or the names of the files that came without words, the title, unless the user gave one."""
    ((key,),) = db.execute("SELECT min(key) FROM exchange WHERE key BETWEEN ? AND ?", span(conversation))
    exchange = read(db, key)
    if exchange is None:
        return
    files = db.execute("SELECT name FROM file WHERE exchange = ? ORDER BY id", (key,)).fetchall()
    title = _title_of(exchange.message) or _title_of(" ".join(name for (name,) in files))
    query = "SELECT title FROM conversation WHERE key = ? AND NOT named AND title <> ?"
    former = db.execute(query, (conversation, title)).fetchone()
    if former == ("",) and _title_of(exchange.message):  # it is found by its first exchange, which has these words
        db.execute("UPDATE conversation SET title = ? WHERE key = ?", (title, conversation))
    elif former is not None:
        rename(db, conversation, title, user_of(db, conversation))


def rename(db: sqlite3.Connection, conversation: int, title: str, user: int) -> None:
    """Give a conversation a title, of one line, by which the user finds it, too."""
    line = " ".join(strip_invisible(title).split())[:GIVEN_TITLE_LENGTH]
    db.execute("UPDATE conversation SET title = ? WHERE key = ?", (line, conversation))
    _index(db, conversation << EXCHANGES, user, line)


def _title_of(text: str) -> str:
    """The first words of a text, in one line."""
    line = " ".join(strip_invisible(text[: 4 * TITLE_LENGTH]).split())
    if len(line) <= TITLE_LENGTH:
        return line
    whole, space, _ = line[:TITLE_LENGTH].rpartition(" ")
    return f"{whole if space else line[: TITLE_LENGTH - 1]}…"


# the index of words


def term_prefix(user: int) -> str:
    """What the words of a user's conversations begin with in the index."""
    return f"{user}q"


def index(db: sqlite3.Connection, key: int, exchange: Exchange, user: int) -> None:
    """Let a user find an exchange by the words of its message and its answer."""
    _index(db, key, user, exchange.message, exchange.answer)


def has_unindexed(db: sqlite3.Connection) -> bool:
    """Whether an exchange has ended whose words are not in the index."""
    return db.execute(f"{_UNINDEXED} LIMIT 1").fetchone() is not None


def index_some(db: sqlite3.Connection) -> bool:
    """Index the words of exchanges that have ended; whether there are more.

    This is done for many turns at once, since each time writes some pages of the index.
    """
    found = db.execute(f"{_UNINDEXED} LIMIT ?", (INDEXED_AT_ONCE,)).fetchall()
    for row in found:
        for exchange in rows.readable(rows.read_exchange, [row]):
            index(db, row[0], exchange, user_of(db, row[0] >> EXCHANGES))
        db.execute("UPDATE exchange SET unindexed = 0 WHERE key = ?", row[:1])
    return len(found) == INDEXED_AT_ONCE


def _index(db: sqlite3.Connection, key: int, user: int, *texts: str) -> None:
    terms = " ".join(search_terms.index_terms(term_prefix(user), text) for text in texts)
    db.execute("INSERT OR REPLACE INTO exchange_words (rowid, words) VALUES (?, ?)", (key, terms))
