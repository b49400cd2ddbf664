"""What a turn puts into the store: the question as it begins, the answer as it ends.

An exchange that runs is the lease of its conversation. Its process prolongs it; when that is gone, the exchange counts
as interrupted. One that takes the place of others stands behind them until it ends well.

Clocks may be set while turns run. Of its own turns a process knows without one that they run. A lease too long was made
by a clock that was ahead; it is cut to the length of one that begins now, and ends if nobody prolongs it.
"""

import sqlite3
from collections.abc import Sequence, Set
from typing import NamedTuple

from brain.errors import BadRequest
from brain.messages import Attachment, Exchange, Record, TakenAlong, renumbered
from brain.store import exchanges, quota, rows, turn_log
from brain.store.schema import EXCHANGES
from brain.store.turn_log import LEASE, NewTurn

_LEASED_NO_MORE = {"until": None, "owner": None}


class Lease(NamedTuple):
    """Who holds a conversation, and since when; in microseconds.

    Attributes:
        running: the keys of the owner's exchanges that run.
    """

    owner: str
    now: int
    running: Set[int] = frozenset()

    @property
    def until(self) -> int:
        return self.now + LEASE


class Begun(NamedTuple):
    """A turn that began, and the keys of the files of the exchanges before it."""

    record: Record
    files: Sequence[int]


def begin(
    db: sqlite3.Connection,
    user: str,
    conversation_id: str,
    question: Exchange,
    files: Sequence[Attachment],
    replaces: str | None,
    taken_along: Sequence[TakenAlong],
    recent: int,
    lease: Lease,
    turn: NewTurn | None = None,
) -> Begun:
    """Files a question and takes hold of its conversation. Its earlier files are left to be read by `attachments`.

    Raises:
        BadRequest: `busy`, `not_found` (what is to be replaced), `too_large`, or naming a file to be taken along.
    """
    if turn is not None:  # first: of two requests with one ID, the later one joins the turn of the earlier one
        turn_log.begin(db, turn, lease.owner, lease.now)
    conversation = _leased(db, user, conversation_id, lease)
    named, replaced = (None, None) if replaces is None else _named(db, conversation, replaces)
    is_first = not exchanges.has_any(db, conversation)
    files = [*(_taken_along(db, named, one) for one in taken_along), *files]
    attached = renumbered(tuple(files), after=0 if is_first else _last_file(db, conversation))
    key = _file_question(db, conversation, question, attached, replaced, lease)
    if turn is not None:
        turn_log.hold(db, turn.id, key)
    if is_first:
        exchanges.entitle(db, conversation)
    field = "attachments" if files else "conversation_id"
    quota.claim(db, exchanges.user_of(db, conversation), field, conversation=conversation)
    quota.check_conversation(db, conversation, field)
    if is_first:
        return Begun(Record(key, user, conversation_id, files=attached), ())
    before = key if replaced is None else replaced
    told = list(rows.readable(rows.exchange_of, exchanges.told(db, conversation, 0, before, recent)))
    count = _count(db, conversation, before)
    record = Record(key, user, conversation_id, told, count, files=attached)
    return Begun(record, _files_before(db, conversation, before))


def attachments(db: sqlite3.Connection, files: Sequence[int]) -> list[Attachment]:
    """The files of these keys. Nobody can change them while a turn of their conversation runs."""
    query = "SELECT id, name, type, data FROM file WHERE key = ?"
    return [Attachment(*row) for key in files for row in db.execute(query, (key,))]


def told(db: sqlite3.Connection, user: str, conversation_id: str, recent: int) -> Record:
    """What a turn that began now would be told of a conversation; no key, for none is begun."""
    query = "SELECT c.key FROM conversation c JOIN user u ON u.key = c.user WHERE u.name = ? AND c.id = ?"
    row = db.execute(query, (user, conversation_id)).fetchone()
    if row is None:
        return Record(0, user, conversation_id)
    before = exchanges.span(row[0])[1]
    found = list(rows.readable(rows.exchange_of, exchanges.told(db, row[0], 0, before, recent)))
    return Record(0, user, conversation_id, found, _count(db, row[0], before))


def end(db: sqlite3.Connection, key: int, exchange: Exchange, now: int) -> None:
    """Files how a question was answered. What the user said stays as it began; what was deleted meanwhile stays so."""
    row = db.execute("SELECT conversation, replaces FROM exchange WHERE key = ?", (key,)).fetchone()
    if row is None:
        return
    conversation, replaced = row
    if replaced is not None and not exchange.parts and _told_between(db, conversation, replaced, key):
        exchanges.remove(db, key)
        return
    if replaced is not None:
        db.execute(
            "DELETE FROM exchange WHERE conversation = ? AND key >= ? AND key < ?", (conversation, replaced, key)
        )
    columns = {**rows.question_columns(exchange), **rows.answer_columns(exchange, now)}
    exchanges.update(db, key, {**columns, **_LEASED_NO_MORE, "replaces": None})
    exchanges.measure(db, key)
    if any(not _is_there(db, conversation, item_id) for item_id in exchange.recalled):  # forgotten by this very turn
        exchanges.untell(db, key)
    exchanges.index(db, key)
    exchanges.settle(db, conversation)
    exchanges.use(db, conversation)
    if replaced is not None:
        exchanges.entitle(db, conversation)
    if quota.in_memory(db):
        quota.make(db, exchanges.user_of(db, conversation), conversation)


def prolong(db: sqlite3.Connection, lease: Lease) -> None:
    """Says that the owner's still run, unless somebody else took them for ended; and cuts leases that are too long."""
    db.executemany(
        "UPDATE exchange SET until = ? WHERE key = ? AND owner = ? AND outcome = ''",
        [(lease.until, key, lease.owner) for key in lease.running],
    )
    db.execute("UPDATE exchange SET until = ? WHERE outcome = '' AND until > ?", (lease.until, lease.until))


def any_too_long(db: sqlite3.Connection, lease: Lease) -> bool:
    """Whether any lease reaches further than one that begins now."""
    query = "SELECT 1 FROM exchange WHERE outcome = '' AND until > ? LIMIT 1"
    return db.execute(query, (lease.until,)).fetchone() is not None


def interrupt_all(db: sqlite3.Connection) -> None:
    """Says of all that run that they were interrupted."""
    for (key,) in db.execute("SELECT key FROM exchange WHERE outcome = ''").fetchall():
        interrupt(db, key)
    turn_log.forget_all(db)


def running(db: sqlite3.Connection, conversation: int, lease: Lease) -> bool:
    """Whether a turn of it runs; one whose process is gone does not, and is marked.

    Args:
        lease: of whoever asks.
    """
    query = "SELECT key, until FROM exchange WHERE conversation = ? AND outcome = ''"
    for key, until in db.execute(query, (conversation,)).fetchall():
        if key in lease.running or until > lease.now:
            return True
        interrupt(db, key)
    return False


def busy() -> BadRequest:
    """The refusal of what cannot be done while a turn runs."""
    sentence = "A turn of this conversation is running; wait for its end, stop it, or send barge_in."
    return BadRequest(sentence, "conversation_id", code="busy", status=409)


def user_key(db: sqlite3.Connection, user: str) -> int:
    """The number of a user, new or old."""
    row = db.execute("SELECT key FROM user WHERE name = ?", (user,)).fetchone()
    return exchanges.insert(db, "user", {"name": user}) if row is None else int(row[0])


def _leased(db: sqlite3.Connection, user: str, conversation_id: str, lease: Lease) -> int:
    """The conversation, new or old, of which no other turn runs."""
    number = user_key(db, user)
    row = db.execute("SELECT key FROM conversation WHERE user = ? AND id = ?", (number, conversation_id)).fetchone()
    if row is None:
        new = {"user": number, "id": conversation_id, "created": lease.now, "updated": lease.now}
        return exchanges.insert(db, "conversation", new)
    if running(db, row[0], lease):
        raise busy()
    return int(row[0])


def _named(db: sqlite3.Connection, conversation: int, message_id: str) -> tuple[int, int]:
    """The exchange that a message belongs to, and the first that goes with it: what it was to replace itself, and did
    not."""
    for column in ("answer_id", "question_id"):
        query = f"SELECT key, coalesce(replaces, key) FROM exchange WHERE conversation = ? AND {column} = ?"
        row = db.execute(query, (conversation, message_id)).fetchone() if message_id else None
        if row is not None:
            return int(row[0]), int(row[1])
    message = "This conversation has no message of this id; an answer's is the message_id of its done event."
    raise BadRequest(message, "replace_from", code="not_found", status=404)


def _told_between(db: sqlite3.Connection, conversation: int, first: int, end: int) -> bool:
    """Whether there is an answer to lose: of what failed without one, the newest attempt is enough."""
    query = "SELECT 1 FROM exchange WHERE conversation = ? AND told = 1 AND key >= ? AND key < ? LIMIT 1"
    return db.execute(query, (conversation, first, end)).fetchone() is not None


def _taken_along(db: sqlite3.Connection, exchange: int | None, wanted: TakenAlong) -> Attachment:
    """A file of a question, which stays that one's as well: it comes back if its answer is not replaced."""
    query = "SELECT id, name, type, data FROM file WHERE exchange = ? AND id = ?"
    row = db.execute(query, (exchange, wanted.id)).fetchone()
    if row is None:
        raise BadRequest("The question that is replaced has no file of this id.", wanted.field)
    return Attachment(*row)


def _last_file(db: sqlite3.Connection, conversation: int) -> int:
    ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM file WHERE conversation = ?", (conversation,))
    return int(last)


def _file_question(
    db: sqlite3.Connection,
    conversation: int,
    question: Exchange,
    files: Sequence[Attachment],
    replaced: int | None,
    lease: Lease,
) -> int:
    """Files a question with its files; its key."""
    numbers = rows.encoded([file.id for file in files])
    leased = {"files": numbers, "replaces": replaced, "until": lease.until, "owner": lease.owner}
    columns = {**rows.question_columns(question), **exchanges.asked_columns(question, lease.now), **leased}
    counts = {"messages": rows.messages_in(question), "bytes": exchanges.size_of(columns, files)}
    key = exchanges.add(db, conversation, {**columns, **counts})
    for file in files:
        exchanges.add_file(db, conversation, key, file)
    exchanges.use(db, conversation)
    return key


def _is_there(db: sqlite3.Connection, conversation: int, item_id: str) -> bool:
    user = exchanges.user_of(db, conversation)
    return db.execute("SELECT 1 FROM item WHERE user = ? AND id = ?", (user, item_id)).fetchone() is not None


def interrupt(db: sqlite3.Connection, key: int) -> None:
    """Marks it; should its answer come after all, that still takes the place of what it was to replace."""
    turn_log.recover(db, key)
    exchanges.update(db, key, {"outcome": "interrupted", **_LEASED_NO_MORE})
    db.execute("UPDATE exchange SET told = 1, messages = messages + 1 WHERE key = ? AND parts <> '[]'", (key,))
    exchanges.measure(db, key)
    exchanges.index(db, key)
    exchanges.settle(db, key >> EXCHANGES)


def _count(db: sqlite3.Connection, conversation: int, before: int) -> int:
    query = "SELECT count(*) FROM exchange WHERE conversation = ? AND told = 1 AND key < ?"
    ((count,),) = db.execute(query, (conversation, before))
    return int(count)


def _files_before(db: sqlite3.Connection, conversation: int, before: int) -> Sequence[int]:
    """Of all exchanges before, also of those that failed: who asks again means them."""
    query = "SELECT key FROM file WHERE conversation = ? AND exchange < ? ORDER BY id"
    return [key for (key,) in db.execute(query, (conversation, before))]
