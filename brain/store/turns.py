"""Wing: what a turn puts into the store: the question as it begins, the answer as it ends.

An exchange that runs is the lease of its conversation. Its process prolongs it; when that is gone, the exchange counts
as interrupted. One that takes the place of others stands behind them until it ends well.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from brain.ask import Attachment, renumbered
from brain.errors import BadRequest
from brain.kept import Record
from brain.messages import Exchange
from brain.store import room, rows, words
from brain.store.migrations import EXCHANGES
from brain.store.rows import SECOND

LEASE = 15 * SECOND
TITLE_LENGTH = 60
TEXTS = ("said", "question", "before", "behind", "parts", "recalled", "files")


class Lease(NamedTuple):
    """Who holds a conversation, and since when; `now` in microseconds."""

    owner: str
    now: int

    @property
    def until(self) -> int:
        return self.now + LEASE


def begin(
    db: sqlite3.Connection,
    user: str,
    conversation_id: str,
    question: Exchange,
    files: Sequence[Attachment],
    replaces: str | None,
    recent: int,
    lease: Lease,
    *,
    makes_room: bool,
) -> Record:
    """Files a question and takes hold of its conversation.

    Raises:
        BadRequest: `busy`, `not_found` (what is to be replaced), or `too_large`.
    """
    conversation = _held(db, user, conversation_id, lease)
    key = _next_key(db, conversation)
    replaced = None if replaces is None else _named(db, conversation, replaces)
    attached = renumbered(tuple(files), after=_last_file(db, conversation))
    _file_question(db, key, question, attached, replaced, lease)
    if key == span(conversation)[0]:
        entitle(db, conversation)
    if makes_room:
        room.make(db, conversation)
    else:
        room.check_user(db, _user_of(db, conversation), "attachments" if files else "conversation_id")
    room.check_conversation(db, conversation, "attachments" if files else "conversation_id")
    before = key if replaced is None else replaced
    return Record(
        key,
        user,
        conversation_id,
        _told(db, conversation, before, recent),
        _count(db, conversation, before),
        _attachments(db, conversation, before),
        attached,
    )


def end(db: sqlite3.Connection, key: int, exchange: Exchange, now: int, *, makes_room: bool) -> None:
    """Files how a question was answered. What the user said stays as it began; what was deleted meanwhile stays so."""
    row = db.execute("SELECT conversation, replaces FROM exchange WHERE key = ?", (key,)).fetchone()
    if row is None:
        return
    conversation, replaced = row
    if replaced is not None and not exchange.parts:
        _remove(db, key)
        return
    db.execute("DELETE FROM exchange WHERE conversation = ? AND key >= ? AND key < ?", (conversation, replaced, key))
    answered = now if exchange.answered is None else rows.micros(exchange.answered)
    columns = {**rows.question_columns(exchange), **rows.answer_columns(exchange), "answered": answered}
    _update(db, key, {**columns, "replaces": None, "until": None, "owner": None})
    measure(db, key)
    index(db, key)
    _settle(db, conversation)
    db.execute("UPDATE conversation SET fresh = 1 WHERE key = ? AND ?", (conversation, columns["told"]))
    if replaced is not None:
        entitle(db, conversation)
    if makes_room:
        room.make(db, conversation)


def drop(db: sqlite3.Connection, key: int) -> None:
    """Removes a question whose turn could not begin, with all that came with it."""
    _remove(db, key)


def prolong(db: sqlite3.Connection, keys: Sequence[int], lease: Lease) -> None:
    """Says that these still run, unless somebody else took them for ended."""
    db.executemany(
        "UPDATE exchange SET until = ? WHERE key = ? AND owner = ? AND outcome = ''",
        [(lease.until, key, lease.owner) for key in keys],
    )


def interrupt_all(db: sqlite3.Connection) -> None:
    """Says of all that run that they were interrupted."""
    for (key,) in db.execute("SELECT key FROM exchange WHERE outcome = ''").fetchall():
        _interrupt(db, key)


def running(db: sqlite3.Connection, conversation: int, now: int) -> bool:
    """Whether a turn of it runs; one whose process is gone does not, and is marked."""
    query = "SELECT key, until FROM exchange WHERE conversation = ? AND outcome = ''"
    for key, until in db.execute(query, (conversation,)).fetchall():
        if until > now:
            return True
        _interrupt(db, key)
    return False


def busy() -> BadRequest:
    """The refusal of what cannot be done while a turn runs."""
    sentence = "A turn of this conversation is running; wait for its end, stop it, or send barge_in."
    return BadRequest(sentence, "conversation_id", code="busy", status=409)


def user_key(db: sqlite3.Connection, user: str) -> int:
    """The number of a user, new or old."""
    row = db.execute("SELECT key FROM user WHERE name = ?", (user,)).fetchone()
    if row is not None:
        return int(row[0])
    number = db.execute("INSERT INTO user (name) VALUES (?)", (user,)).lastrowid
    assert number is not None
    return number


def name(db: sqlite3.Connection, conversation: int, title: str) -> None:
    """Gives a conversation a title by which it is found, too."""
    db.execute("UPDATE conversation SET title = ? WHERE key = ?", (title, conversation))
    db.execute("DELETE FROM said WHERE rowid = ?", (conversation << EXCHANGES,))
    terms = words.indexed(owner(_user_of(db, conversation)), title)
    db.execute("INSERT INTO said (rowid, words) VALUES (?, ?)", (conversation << EXCHANGES, terms))


def owner(user: int) -> str:
    """What stands before each word of a user's conversations in the index."""
    return f"{user}q"


def title_of(text: str) -> str:
    """The first words of a text, in one line."""
    line = " ".join(text[: 4 * TITLE_LENGTH].split())
    if len(line) <= TITLE_LENGTH:
        return line
    whole, space, _ = line[:TITLE_LENGTH].rpartition(" ")
    return f"{whole if space else line[: TITLE_LENGTH - 1]}…"


def _held(db: sqlite3.Connection, user: str, conversation_id: str, lease: Lease) -> int:
    number = user_key(db, user)
    row = db.execute("SELECT key FROM conversation WHERE user = ? AND id = ?", (number, conversation_id)).fetchone()
    if row is None:
        added = db.execute(
            "INSERT INTO conversation (user, id, created, updated) VALUES (?, ?, ?, ?)",
            (number, conversation_id, lease.now, lease.now),
        ).lastrowid
        assert added is not None
        return added
    if running(db, row[0], lease.now):
        raise busy()
    return int(row[0])


def _next_key(db: sqlite3.Connection, conversation: int) -> int:
    """The key of a new exchange: its conversation's, and the next number in that. None is given twice."""
    query = "UPDATE conversation SET last = last + 1 WHERE key = ? RETURNING last"
    ((last,),) = db.execute(query, (conversation,)).fetchall()
    return int(conversation << EXCHANGES | last)


def _named(db: sqlite3.Connection, conversation: int, message_id: str) -> int:
    """The exchange that a message belongs to."""
    for column in ("answer_id", "question_id"):
        query = f"SELECT key FROM exchange WHERE conversation = ? AND {column} = ? AND outcome <> ''"
        row = db.execute(query, (conversation, message_id)).fetchone() if message_id else None
        if row is not None:
            return int(row[0])
    message = "This conversation has no message of this id; an answer's is the message_id of its done event."
    raise BadRequest(message, "replace_from", code="not_found", status=404)


def _last_file(db: sqlite3.Connection, conversation: int) -> int:
    ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM file WHERE conversation = ?", (conversation,))
    return int(last)


def _file_question(
    db: sqlite3.Connection,
    key: int,
    question: Exchange,
    files: Sequence[Attachment],
    replaced: int | None,
    lease: Lease,
) -> None:
    conversation = key >> EXCHANGES
    columns = {
        **rows.question_columns(question),
        "messages": rows.messages_in(question),
        "said": question.said,
        "source": question.source,
        "question_id": question.question_id,
        "asked": lease.now if question.asked is None else rows.micros(question.asked),
        "files": rows.encoded([file.id for file in files]),
    }
    held = {"key": key, "conversation": conversation, "until": lease.until, "owner": lease.owner, "replaces": replaced}
    insert(db, "exchange", {**held, **columns})
    for file in files:
        add_file(db, conversation, key, file)
    measure(db, key)
    _settle(db, conversation)


def add_file(db: sqlite3.Connection, conversation: int, exchange: int | None, file: Attachment) -> None:
    """Puts a file in, that came with this exchange."""
    db.execute(
        "INSERT INTO file (conversation, exchange, id, size, name, type, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (conversation, exchange, file.id, len(file.data), file.name, file.type, file.data),
    )


def insert(db: sqlite3.Connection, table: str, columns: Mapping[str, Any]) -> int:
    """Adds a row; its key."""
    marks = ", ".join("?" * len(columns))
    added = db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values()))
    assert added.lastrowid is not None
    return added.lastrowid


def _update(db: sqlite3.Connection, key: int, columns: Mapping[str, Any]) -> None:
    assigned = ", ".join(f"{column} = ?" for column in columns)
    db.execute(f"UPDATE exchange SET {assigned} WHERE key = ?", (*columns.values(), key))


def _settle(db: sqlite3.Connection, conversation: int) -> None:
    """Notes when something last happened in a conversation."""
    db.execute(
        "UPDATE conversation SET updated = (SELECT coalesce(answered, asked) FROM exchange WHERE key BETWEEN ? AND ? "
        "ORDER BY key DESC LIMIT 1) WHERE key = ?",
        (*span(conversation), conversation),
    )


def entitle(db: sqlite3.Connection, conversation: int) -> None:
    """Calls a conversation by its first words, or by the files that came without, unless its user named it."""
    query = "SELECT key, substr(said, 1, ?) FROM exchange WHERE key BETWEEN ? AND ? ORDER BY key LIMIT 1"
    ((first, said),) = db.execute(query, (4 * TITLE_LENGTH, *span(conversation)))
    files = db.execute("SELECT name FROM file WHERE exchange = ? ORDER BY id", (first,)).fetchall()
    title = title_of(said) or title_of(" ".join(name for (name,) in files))
    row = db.execute("SELECT 1 FROM conversation WHERE key = ? AND NOT named AND title <> ?", (conversation, title))
    if row.fetchone() is not None:
        name(db, conversation, title)


def _remove(db: sqlite3.Connection, key: int) -> None:
    """Removes an exchange, and its conversation if it is the only one."""
    conversation = key >> EXCHANGES
    db.execute("DELETE FROM exchange WHERE key = ?", (key,))
    if db.execute("SELECT 1 FROM exchange WHERE key BETWEEN ? AND ?", span(conversation)).fetchone() is not None:
        _settle(db, conversation)
    else:
        db.execute("DELETE FROM conversation WHERE key = ?", (conversation,))


def _interrupt(db: sqlite3.Connection, key: int) -> None:
    columns = {"outcome": "interrupted", "replaces": None, "until": None, "owner": None}
    _update(db, key, columns)
    index(db, key)


def measure(db: sqlite3.Connection, key: int) -> None:
    """Counts what an exchange takes."""
    texts = " + ".join(f"length(CAST({column} AS BLOB))" for column in TEXTS)
    db.execute(
        f"UPDATE exchange SET bytes = {texts} "
        "+ (SELECT coalesce(sum(size), 0) FROM file WHERE exchange = exchange.key) WHERE key = ?",
        (key,),
    )


def index(db: sqlite3.Connection, key: int) -> None:
    """Has an exchange be found by what was said and answered."""
    ((said, parts),) = db.execute("SELECT said, parts FROM exchange WHERE key = ?", (key,))
    user = _user_of(db, key >> EXCHANGES)
    terms = " ".join(words.indexed(owner(user), text) for text in (said, rows.visible(parts)))
    db.execute("DELETE FROM said WHERE rowid = ?", (key,))
    db.execute("INSERT INTO said (rowid, words) VALUES (?, ?)", (key, terms))


def _told(db: sqlite3.Connection, conversation: int, before: int, most: int) -> list[Exchange]:
    """The newest exchanges that later turns are told of, oldest first."""
    newest = db.execute(
        f"SELECT {rows.EXCHANGE} FROM exchange WHERE conversation = ? AND told = 1 AND key < ? "
        "ORDER BY key DESC LIMIT ?",
        (conversation, before, most),
    ).fetchall()
    return [rows.exchange_of(row) for row in reversed(newest)]


def _count(db: sqlite3.Connection, conversation: int, before: int) -> int:
    query = "SELECT count(*) FROM exchange WHERE conversation = ? AND told = 1 AND key < ?"
    ((count,),) = db.execute(query, (conversation, before))
    return int(count)


def _attachments(db: sqlite3.Connection, conversation: int, before: int) -> list[Attachment]:
    """The files of all exchanges before, also of those that failed: who asks again means them."""
    query = "SELECT id, name, type, data FROM file WHERE conversation = ? AND exchange < ? ORDER BY id"
    return [Attachment(*row) for row in db.execute(query, (conversation, before))]


def _user_of(db: sqlite3.Connection, conversation: int) -> int:
    ((user,),) = db.execute("SELECT user FROM conversation WHERE key = ?", (conversation,))
    return int(user)


def span(conversation: int) -> tuple[int, int]:
    """The keys between which its exchanges are."""
    return (conversation << EXCHANGES) + 1, ((conversation + 1) << EXCHANGES) - 1
