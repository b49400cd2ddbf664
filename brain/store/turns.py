"""What a turn writes: the question as it begins, the answer as it ends.

An exchange that runs is the lease of its conversation. Its process prolongs it; when the process is gone, the exchange
counts as interrupted. An exchange that replaces others stands after them until it ends well.

Clocks may be set while turns run. A process knows without a clock which of its own turns run. A lease too long was made
by a clock that was ahead; it is cut to the length of one that begins now, and ends if nobody prolongs it.
"""

import sqlite3
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from brain.errors import BadRequest
from brain.messages import Attachment, Exchange, FileReference, History, renumber
from brain.store import exchanges, rows, turn_log, users
from brain.store.schema import EXCHANGES
from brain.store.turn_log import LEASE, NewTurn


class Lease(NamedTuple):
    """Who leases conversations, and the time of that process, in microseconds.

    Attributes:
        running: the keys of the owner's exchanges that run.
    """

    owner: str
    now: int
    running: Set[int] = frozenset()

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
    references: Sequence[FileReference],
    recent: int,
    lease: Lease,
    turn: NewTurn | None = None,
) -> tuple[History, Sequence[int]]:
    """Write a question and lease its conversation.

    Returns:
        What the turn continues from, and the keys of its earlier files, which `attachments` reads.

    Raises:
        BadRequest: `busy`, `not_found` (what is to be replaced), `too_large`, or naming a file reference.
    """
    # first: of two requests with one ID, the later one joins the turn of the earlier one
    turn_key = None if turn is None else turn_log.begin(db, turn, lease.owner, lease.now)
    number = users.add(db, user)
    row = db.execute("SELECT key FROM conversation WHERE user = ? AND id = ?", (number, conversation_id)).fetchone()
    if row is None:
        columns = {"user": number, "id": conversation_id, "created": lease.now, "updated": lease.now}
        conversation = exchanges.insert(db, "conversation", columns)
    elif is_running(db, row[0], lease):
        raise busy()
    else:
        conversation = int(row[0])
    named, replaced = (None, None) if replaces is None else _find_message(db, conversation, replaces)
    is_first = not exchanges.exists_in(db, conversation)
    files = [*(_find_file(db, named, one) for one in references), *files]
    ((last_file,),) = db.execute("SELECT coalesce(max(id), 0) FROM file WHERE conversation = ?", (conversation,))
    attached = renumber(tuple(files), after=last_file)
    question.files = tuple(file.id for file in attached)
    question.started = rows.moment(lease.now) if question.started is None else question.started
    columns = {"replaces": replaced, "until": lease.until, "owner": lease.owner, "turn": turn_key, "unindexed": True}
    key = exchanges.add(db, conversation, question, attached, **columns)
    if turn_key is not None:
        turn_log.set_exchange(db, turn_key, key)
    for file in attached:
        exchanges.add_file(db, conversation, key, file)
    exchanges.list_first(db, conversation)
    if is_first:
        exchanges.set_title(db, conversation)
    field = "attachments" if files else "conversation_id"
    users.check_quota(db, number, field, conversation=conversation)
    users.check_conversation(db, conversation, field)
    history = History(id=conversation_id, user=user, key=key, files=attached, question=question)
    if is_first:
        return history, ()
    before = key if replaced is None else replaced
    _read_history(db, conversation, history, before, recent)
    query = "SELECT key FROM file WHERE conversation = ? AND exchange < ? ORDER BY id"
    return history, [file for (file,) in db.execute(query, (conversation, before))]


def attachments(db: sqlite3.Connection, files: Sequence[int]) -> list[Attachment]:
    """The files of these keys. Nobody can change them while a turn of their conversation runs."""
    query = "SELECT id, name, type, data FROM file WHERE key = ?"
    return [Attachment(*row) for key in files for row in db.execute(query, (key,))]


def history(db: sqlite3.Connection, user: str, conversation_id: str, recent: int) -> History:
    """What a turn that began now would continue from, without files."""
    query = "SELECT c.key FROM conversation c JOIN user u ON u.key = c.user WHERE u.name = ? AND c.id = ?"
    row = db.execute(query, (user, conversation_id)).fetchone()
    found = History(id=conversation_id, user=user)
    if row is not None:
        _read_history(db, row[0], found, exchanges.span(row[0])[1] + 1, recent)
    return found


def _read_history(db: sqlite3.Connection, conversation: int, history: History, before: int, recent: int) -> None:
    found = exchanges.history_rows(db, conversation, 0, before, recent)
    history.exchanges = list(rows.readable(rows.read_exchange, found))
    ((count,),) = db.execute("SELECT history FROM conversation WHERE key = ?", (conversation,))
    query = "SELECT count(*) FROM exchange WHERE key BETWEEN ? AND ? AND in_history = 1"
    ((replaced,),) = db.execute(query, (before, exchanges.span(conversation)[1]))
    history.count = count - replaced


def end(db: sqlite3.Connection, key: int, exchange: Exchange) -> None:
    """Write how a question was answered. What was deleted meanwhile stays deleted."""
    query = "SELECT replaces, user, outcome FROM exchange e JOIN conversation c ON c.key = e.key >> 32 WHERE e.key = ?"
    row = db.execute(query, (key,)).fetchone()
    if row is None:
        return
    conversation, (replaced, user, outcome) = key >> EXCHANGES, row
    if replaced is not None:
        query = "SELECT 1 FROM exchange WHERE key >= ? AND key < ? AND in_history = 1 LIMIT 1"
        if not exchange.parts and db.execute(query, (replaced, key)).fetchone() is not None:
            exchanges.remove(db, key)  # of attempts that failed without an answer, the newest is enough
            return
        db.execute("DELETE FROM exchange WHERE key >= ? AND key < ?", (replaced, key))
        exchanges.update_sources(db, conversation)
    exists = "SELECT 1 FROM item WHERE user = ? AND id = ?"
    if any(db.execute(exists, (user, item_id)).fetchone() is None for item_id in exchange.recalled_ids):
        exchanges.remove_recalled(exchange)  # this very turn deleted it
    columns: dict[str, Any] = {"until": None, "owner": None, "replaces": None}
    if outcome:  # else it is unindexed already, and a column that is assigned is written to its index in any case
        columns["unindexed"] = True
    exchanges.write(db, key, exchange, **columns)
    exchanges.update_times(db, conversation)
    exchanges.list_first(db, conversation)
    if replaced is not None:
        exchanges.set_title(db, conversation)
    if users.is_in_memory(db):
        users.make_room(db, user, conversation)


def prolong(db: sqlite3.Connection, lease: Lease) -> None:
    """Prolong the owner's leases, unless another process took them for ended; cut leases that are too long."""
    db.executemany(
        "UPDATE exchange SET until = ? WHERE key = ? AND owner = ? AND outcome = ''",
        [(lease.until, key, lease.owner) for key in lease.running],
    )
    query = "UPDATE exchange SET until = ? WHERE key = ?"
    too_long = db.execute(f"SELECT e.key FROM {exchanges.RUNNING} AND e.until > ?", (lease.until,)).fetchall()
    db.executemany(query, [(lease.until, key) for (key,) in too_long])


def any_too_long(db: sqlite3.Connection, lease: Lease) -> bool:
    """Whether a lease ends later than one that begins now."""
    query = f"SELECT 1 FROM {exchanges.RUNNING} AND e.until > ? LIMIT 1"
    return db.execute(query, (lease.until,)).fetchone() is not None


def is_running(db: sqlite3.Connection, conversation: int, lease: Lease) -> bool:
    """Whether a turn of a conversation runs; one whose process is gone is marked as interrupted.

    Args:
        lease: of the caller.
    """
    query = f"SELECT e.key, e.until FROM {exchanges.RUNNING} AND e.key BETWEEN ? AND ?"
    for key, until in db.execute(query, exchanges.span(conversation)).fetchall():
        if key in lease.running or until > lease.now:
            return True
        interrupt(db, key)
    return False


def interrupt(db: sqlite3.Connection, key: int) -> None:
    """Mark an exchange as interrupted; should its answer come after all, it still replaces what it was to replace."""
    exchange = exchanges.read(db, key)
    if exchange is not None:
        turn_log.add_text(exchange, turn_log.text_after_snapshot(db, key))
        exchange.outcome = "interrupted"
        exchanges.write(db, key, exchange)
    db.execute("UPDATE exchange SET outcome = 'interrupted', until = NULL, owner = NULL WHERE key = ?", (key,))
    exchanges.update_times(db, key >> EXCHANGES)


def interrupt_all(db: sqlite3.Connection) -> None:
    """Mark all exchanges that run as interrupted."""
    for (key,) in db.execute(f"SELECT e.key FROM {exchanges.RUNNING}").fetchall():
        interrupt(db, key)
    turn_log.forget_all(db)


def busy() -> BadRequest:
    """The error for what cannot be done while a turn runs."""
    sentence = "A turn of this conversation is running; wait for its end, stop it, or send barge_in."
    return BadRequest(sentence, "conversation_id", code="busy", status=409)


def _find_message(db: sqlite3.Connection, conversation: int, message_id: str) -> tuple[int, int]:
    """The exchange of a message, and the first that is replaced with it: what it was to replace itself, and did not."""
    for column in ("answer_id", "question_id"):
        query = (
            f"SELECT key, coalesce(replaces, key) FROM exchange WHERE key BETWEEN ? AND ? AND {column} = ? "
            "ORDER BY key DESC LIMIT 1"
        )
        row = db.execute(query, (*exchanges.span(conversation), message_id)).fetchone() if message_id else None
        if row is not None:
            return int(row[0]), int(row[1])
    message = "This conversation has no message of this id; an answer's is the message_id of its done event."
    raise BadRequest(message, "replace_from", code="not_found", status=404)


def _find_file(db: sqlite3.Connection, exchange: int | None, reference: FileReference) -> Attachment:
    """A file of a question, which stays that question's as well: it may not be replaced in the end."""
    query = "SELECT id, name, type, data FROM file WHERE exchange = ? AND id = ?"
    row = db.execute(query, (exchange, reference.id)).fetchone()
    if row is None:
        raise BadRequest("The question that is replaced has no file of this id.", reference.field)
    return Attachment(*row)
