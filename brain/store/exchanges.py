"""Exchanges, and what fits them of the conversation in which they stand: counts, index, title."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from brain.messages import NOTE_OPENS, Attachment, Exchange
from brain.store import answers, rows, search_terms
from brain.store.schema import EXCHANGES
from brain.text import strip_invisible

TITLE_LENGTH = 60
TITLE_LENGTH_MOST = 200
"""Of one that its user gave."""

_NOTE = re.compile(rf"^{re.escape(NOTE_OPENS)}.*\n*", re.MULTILINE)
_TEXTS = ("said", "question", "before", "behind", "parts", "about", "recalled", "files")


def add(db: sqlite3.Connection, conversation: int, columns: Mapping[str, Any]) -> int:
    """Adds an exchange behind the others of its conversation, which was last used when it was asked; its key."""
    ((last,),) = db.execute(
        "UPDATE conversation SET last = last + 1, updated = ? WHERE key = ? RETURNING last",
        (columns["asked"], conversation),
    ).fetchall()
    key: int = conversation << EXCHANGES | last
    insert(db, "exchange", {"key": key, "conversation": conversation, **columns})
    return key


def asked_columns(question: Exchange, now: int) -> dict[str, Any]:
    """What never changes of a question."""
    return {
        "said": question.said,
        "source": question.source,
        "question_id": question.question_id,
        "asked": now if question.asked is None else rows.micros(question.asked),
    }


def update(db: sqlite3.Connection, key: int, columns: Mapping[str, Any]) -> None:
    """Changes an exchange."""
    assigned = ", ".join(f"{column} = ?" for column in columns)
    db.execute(f"UPDATE exchange SET {assigned} WHERE key = ?", (*columns.values(), key))


def insert(db: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> int:
    """Adds a row; its key."""
    marks = ", ".join("?" * len(columns))
    added = db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values()))
    assert added.lastrowid is not None
    return added.lastrowid


def add_file(db: sqlite3.Connection, conversation: int, exchange: int | None, file: Attachment) -> None:
    """Adds a file; its exchange may come later."""
    columns = {"id": file.id, "size": len(file.data), "name": file.name, "type": file.type, "data": file.data}
    insert(db, "file", {"conversation": conversation, "exchange": exchange, **columns})


def size_of(columns: Mapping[str, Any], files: Sequence[Attachment]) -> int:
    """What an exchange takes that is added with these columns and files, in bytes."""
    return sum(len(columns.get(column, "[]").encode()) for column in _TEXTS) + sum(len(file.data) for file in files)


def measure(db: sqlite3.Connection, key: int) -> None:
    """Counts what an exchange takes by now."""
    texts = " + ".join(f"length(CAST({column} AS BLOB))" for column in _TEXTS)
    db.execute(
        f"UPDATE exchange SET bytes = {texts} "
        "+ (SELECT coalesce(sum(size), 0) FROM file WHERE exchange = exchange.key) WHERE key = ?",
        (key,),
    )


def untell(db: sqlite3.Connection, key: int) -> None:
    """Takes what was recalled out of a question, which later turns read again, and out of what its user was told."""
    ((question, about),) = db.execute("SELECT question, about FROM exchange WHERE key = ?", (key,))
    untold = {"question": _NOTE.sub("", question, count=1), "recalled": "[]", "about": answers.untold(about)}
    update(db, key, untold)
    measure(db, key)


def index(db: sqlite3.Connection, key: int, user: int | None = None) -> None:
    """Has an exchange be found by what was said and answered.

    Args:
        user: who will find it, unless it is who has it now.
    """
    ((said, parts),) = db.execute("SELECT said, parts FROM exchange WHERE key = ?", (key,))
    user = user_of(db, key >> EXCHANGES) if user is None else user
    terms = " ".join(search_terms.indexed(owner(user), text) for text in (said, answers.visible(parts)))
    db.execute("DELETE FROM said WHERE rowid = ?", (key,))
    db.execute("INSERT INTO said (rowid, words) VALUES (?, ?)", (key, terms))


def remove(db: sqlite3.Connection, key: int) -> None:
    """Removes an exchange, and its conversation if it is the only one."""
    conversation = key >> EXCHANGES
    db.execute("DELETE FROM exchange WHERE key = ?", (key,))
    if has_any(db, conversation):
        settle(db, conversation)
        use_as_dated(db, conversation)
        entitle(db, conversation)
    else:
        remove_all(db, conversation)


def remove_all(db: sqlite3.Connection, conversation: int) -> None:
    """Removes a conversation and all that was made of it. What its user stated stays, and loses where it was said."""
    remove_memories(db, conversation)
    db.execute("DELETE FROM conversation WHERE key = ?", (conversation,))


def remove_memories(db: sqlite3.Connection, conversation: int) -> None:
    """Removes what was made of a conversation."""
    db.execute("DELETE FROM item WHERE conversation = ? AND kind = 'memory'", (conversation,))
    db.execute("DELETE FROM item WHERE key = (SELECT memory FROM conversation WHERE key = ?)", (conversation,))


def has_any(db: sqlite3.Connection, conversation: int) -> bool:
    """Whether a conversation has any exchange."""
    query = "SELECT 1 FROM exchange WHERE key BETWEEN ? AND ? LIMIT 1"
    return db.execute(query, span(conversation)).fetchone() is not None


def summarise(db: sqlite3.Connection, conversation: int, memory: int, upto: int) -> None:
    """Notes that a memory sums up a conversation up to one of its exchanges, unless it has another memory."""
    query = "UPDATE conversation SET memory = ?, summarised_to = ? WHERE key = ? AND memory IS NULL"
    db.execute(query, (memory, upto, conversation))
    settle(db, conversation)


def settle(db: sqlite3.Connection, conversation: int) -> None:
    """Notes when something last happened in a conversation, and whether its memory holds all of it."""
    db.execute(
        "UPDATE conversation SET updated = "
        "(SELECT coalesce(answered, asked) FROM exchange WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1), "
        "unsummarised = EXISTS "
        "(SELECT 1 FROM exchange WHERE conversation = conversation.key AND told = 1 AND key > summarised_to) "
        "WHERE key = ?",
        (*span(conversation), conversation),
    )


def use(db: sqlite3.Connection, conversation: int) -> None:
    """Puts a conversation on top of its user's list, also where a clock that was ahead has used others."""
    db.execute(
        "UPDATE conversation SET used = max(updated, 1 + coalesce((SELECT used FROM conversation o WHERE "
        "o.user = conversation.user AND o.key <> conversation.key ORDER BY o.used DESC LIMIT 1), 0)) WHERE key = ?",
        (conversation,),
    )


def use_as_dated(db: sqlite3.Connection, conversation: int) -> None:
    """Puts a conversation where it belongs by the time when it was last used."""
    db.execute("UPDATE conversation SET used = updated WHERE key = ?", (conversation,))


def entitle(db: sqlite3.Connection, conversation: int) -> None:
    """Calls a conversation by its first words, or by the files that came without, unless its user named it."""
    query = "SELECT key, substr(said, 1, ?) FROM exchange WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1"
    ((first, said),) = db.execute(query, (4 * TITLE_LENGTH, *span(conversation)))
    files = db.execute("SELECT name FROM file WHERE exchange = ? ORDER BY id", (first,)).fetchall()
    title = title_of(said) or title_of(" ".join(name for (name,) in files))
    row = db.execute("SELECT title FROM conversation WHERE key = ? AND NOT named AND title <> ?", (conversation, title))
    former = row.fetchone()
    if former == ("",) and title_of(said):  # found by its first exchange, whose words these are
        db.execute("UPDATE conversation SET title = ? WHERE key = ?", (title, conversation))
    elif former is not None:
        name(db, conversation, title)


def name(db: sqlite3.Connection, conversation: int, title: str, user: int | None = None) -> None:
    """Gives a conversation a title, of one line, by which it is found, too.

    Args:
        user: as for `index`.
    """
    line = " ".join(strip_invisible(title).split())[:TITLE_LENGTH_MOST]
    terms = search_terms.indexed(owner(user_of(db, conversation) if user is None else user), line)
    db.execute("UPDATE conversation SET title = ? WHERE key = ?", (line, conversation))
    db.execute("DELETE FROM said WHERE rowid = ?", (conversation << EXCHANGES,))
    db.execute("INSERT INTO said (rowid, words) VALUES (?, ?)", (conversation << EXCHANGES, terms))


def title_of(text: str) -> str:
    """The first words of a text, in one line."""
    line = " ".join(strip_invisible(text[: 4 * TITLE_LENGTH]).split())
    if len(line) <= TITLE_LENGTH:
        return line
    whole, space, _ = line[:TITLE_LENGTH].rpartition(" ")
    return f"{whole if space else line[: TITLE_LENGTH - 1]}…"


def told(db: sqlite3.Connection, conversation: int, after: int, before: int, most: int) -> Sequence[tuple[Any, ...]]:
    """The rows of the newest exchanges between two keys that later turns are told of, oldest first."""
    newest = db.execute(
        f"SELECT {rows.EXCHANGE} FROM exchange WHERE conversation = ? AND told = 1 AND key > ? AND key < ? "
        "ORDER BY key DESC LIMIT ?",
        (conversation, after, before, most),
    ).fetchall()
    return newest[::-1]


def owner(user: int) -> str:
    """What stands before each word of a user's conversations in the index."""
    return f"{user}q"


def user_of(db: sqlite3.Connection, conversation: int) -> int:
    """Whose it is."""
    ((user,),) = db.execute("SELECT user FROM conversation WHERE key = ?", (conversation,))
    return int(user)


def span(conversation: int) -> tuple[int, int]:
    """The keys between which its exchanges are."""
    return (conversation << EXCHANGES) + 1, ((conversation + 1) << EXCHANGES) - 1
