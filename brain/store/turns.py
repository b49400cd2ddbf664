"""Writes the question when a turn begins, and the answer when it ends.

A running exchange is the lease of its conversation. Its process renews the lease; without renewal, the exchange counts
as interrupted. An exchange that replaces others stays after them until it has an answer.

Clocks may be set while turns run. A process knows its own running turns without a clock. A lease that ends too far in
the future came from a wrong clock; it is shortened, and expires unless it is renewed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brain.errors import BadRequest, StoreError
from brain.messages import Attachment, Call, Exchange, History, Marks, renumber
from brain.store import exchanges, rows, tasks, turn_log, users
from brain.store.schema import EXCHANGES
from brain.store.turn_log import LEASE, NewTurn
from brain.store.tx import Tx
from brain.text import first_words


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """How a question is written.

    Attributes:
        replaces: the ID of a message. Its exchange and later ones are deleted once the new answer is written. The turn
            continues from the exchanges before it.
        reused_files: IDs of files of the replaced question, which come before the new ones, with their fields for
            errors.
        recent: number of earlier exchanges to return.
        turn: the turn that answers, for other processes.
        private: make the conversation private, for good.
    """

    replaces: str | None = None
    reused_files: Mapping[int, str] = field(default_factory=dict)
    recent: int = 20
    turn: NewTurn | None = None
    private: bool = False


def write_question(
    tx: Tx,
    user: str,
    conversation_id: str,
    question: Exchange,
    files: Sequence[Attachment],
    options: QuestionOptions,
) -> tuple[History, Sequence[int]]:
    """Write a question and lease its conversation.

    Returns:
        The history of the turn, and the keys of earlier files for `attachments`.
    """
    turn, private, replaces = options.turn, options.private, options.replaces
    if question.source == "report":
        tasks.check_unreported(tx, user, conversation_id)
    # first, since the second of two requests with the same ID must join the turn of the first
    turn_key = None if turn is None else turn_log.insert(tx, turn)
    number = users.add(tx, user)
    if question.source != "task" and tasks.is_work(tx, number, conversation_id):
        message = "A background task works in this conversation. Send the message to another one."
        raise BadRequest(message, "conversation_id")
    query = "SELECT key, private FROM conversation WHERE user = ? AND id = ?"
    row = tx.execute(query, (number, conversation_id)).fetchone()
    is_new, title = row is None, ""
    if row is None:
        title = "" if question.source == "report" else first_words(question.message, exchanges.TITLE_LENGTH)
        times = {"created": tx.now, "updated": tx.now}
        columns = {"user": number, "id": conversation_id, "private": private, "title": title, **times}
        conversation = exchanges.insert(tx, "conversation", columns)
    elif is_running(tx, row[0]):
        query = "SELECT source FROM exchange WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
        raise ConversationBusy(is_report=tx.execute(query, exchanges.span(row[0])).fetchone() == ("report",))
    else:
        conversation = int(row[0])
        if replaces is None:
            _remove_unfinished_report(tx, conversation)
        if private and not row[1]:
            tx.execute("UPDATE conversation SET private = 1 WHERE key = ?", (conversation,))
        private = private or bool(row[1])
    named, replaced = (None, None) if replaces is None else _find_message(tx, conversation, replaces)
    is_first = is_new or not exchanges.exists_in(tx, conversation)
    before = exchanges.span(conversation)[1] + 1 if replaced is None else replaced
    # a task has its own marks, since its runs do not read each other
    marks = Marks() if is_new or question.source == "task" else exchanges.marks_before(tx, conversation, before)
    question.untrusted = question.untrusted or marks.untrusted
    question.private_data = question.private_data or marks.private_data
    files = [*(_find_file(tx, named, *one) for one in options.reused_files.items()), *files]
    attached = renumber(tuple(files), after=_last_file(tx, conversation)) if files else ()
    question.files = tuple(file.id for file in attached)
    question.started = rows.moment(tx.now) if question.started is None else question.started
    columns = {"replaces": replaced, "until": tx.now + LEASE, "owner": tx.process, "turn": turn_key, "unindexed": True}
    key = exchanges.add(tx, conversation, question, attached, **columns)
    if turn_key is not None:
        turn_log.set_exchange(tx, turn_key, key)
    for file in attached:
        exchanges.add_file(tx, conversation, key, file)
    exchanges.list_first(tx, conversation)
    if is_first and not title:
        exchanges.set_title(tx, conversation)
    field = "attachments" if files else "conversation_id"
    users.check_quota(tx, number, field)
    users.check_conversation(tx, conversation, field)
    news = "SELECT 1 FROM channel WHERE user = ? AND conversation = ? AND is_told = 0 LIMIT 1"
    has_news = tx.execute(news, (number, conversation_id)).fetchone() is not None
    history = History(
        id=conversation_id, user=user, key=key, files=attached, question=question, private=private, has_news=has_news,
        untrusted=marks.untrusted, private_data=marks.private_data,
    )  # fmt: skip
    if is_first:
        return history, ()
    before = min(before, key)
    _read_history(tx, conversation, history, before, options.recent)
    query = "SELECT key FROM file WHERE conversation = ? AND exchange < ? ORDER BY id"
    return history, [file for (file,) in tx.execute(query, (conversation, before))]


def _last_file(tx: Tx, conversation: int) -> int:
    """Return the highest ID of a file of a conversation."""
    ((number,),) = tx.execute("SELECT coalesce(max(id), 0) FROM file WHERE conversation = ?", (conversation,))
    return int(number)


def attachments(tx: Tx, files: Sequence[int]) -> list[Attachment]:
    """Return the files with these keys. They cannot change while a turn of their conversation runs."""
    query = "SELECT id, name, type, data FROM file WHERE key = ?"
    return [Attachment(*row) for key in files for row in tx.execute(query, (key,))]


def all_attachments(tx: Tx, user: str, conversation_id: str) -> list[Attachment]:
    """Return all files of a conversation, in the order of their IDs."""
    found = tx.execute(
        "SELECT f.id, f.name, f.type, f.data FROM file f JOIN conversation c ON c.key = f.conversation "
        "JOIN user u ON u.key = c.user WHERE u.name = ? AND c.id = ? ORDER BY f.id",
        (user, conversation_id),
    )
    return [Attachment(*row) for row in found]


def history(tx: Tx, user: str, conversation_id: str, recent: int) -> History:
    """Return the history for a turn that would begin now, without files."""
    query = "SELECT c.key FROM conversation c JOIN user u ON u.key = c.user WHERE u.name = ? AND c.id = ?"
    row = tx.execute(query, (user, conversation_id)).fetchone()
    found = History(id=conversation_id, user=user)
    if row is not None:
        end = exchanges.span(row[0])[1] + 1
        found.untrusted, found.private_data = exchanges.marks_before(tx, row[0], end)
        _read_history(tx, row[0], found, end, recent)
    return found


def _read_history(tx: Tx, conversation: int, history: History, before: int, recent: int) -> None:
    found = exchanges.history_rows(tx, conversation, 0, before, recent)
    history.exchanges = list(rows.readable(rows.read_exchange, found))
    ((count,),) = tx.execute("SELECT history FROM conversation WHERE key = ?", (conversation,))
    query = "SELECT count(*) FROM exchange WHERE key BETWEEN ? AND ? AND in_history = 1"
    ((replaced,),) = tx.execute(query, (before, exchanges.span(conversation)[1]))
    history.count = count - replaced


def _remove_unfinished_report(tx: Tx, conversation: int) -> None:
    """Delete a report whose process ended before it. Its results are reported again."""
    deleted = tx.execute(
        "DELETE FROM exchange WHERE key = (SELECT max(key) FROM exchange WHERE key BETWEEN ? AND ?) "
        "AND source = 'report' AND outcome IN ('interrupted', 'shutdown')",
        exchanges.span(conversation),
    )
    if deleted.rowcount:
        exchanges.update_sources(tx, conversation)


def end(tx: Tx, key: int, exchange: Exchange) -> bool:
    """Write the answer. A question or item that was deleted since then stays deleted.

    Returns:
        Whether the question still existed.
    """
    query = "SELECT replaces, user, outcome FROM exchange e JOIN conversation c ON c.key = e.key >> 32 WHERE e.key = ?"
    row = tx.execute(query, (key,)).fetchone()
    if row is None or row[1] is None:
        return False
    conversation, (replaced, user, outcome) = key >> EXCHANGES, row
    if replaced is not None:
        query = "SELECT 1 FROM exchange WHERE key >= ? AND key < ? AND in_history = 1 LIMIT 1"
        if not exchange.parts and tx.execute(query, (replaced, key)).fetchone() is not None:
            exchanges.remove(tx, key)  # a failed attempt replaces nothing
            return True
        tx.execute("DELETE FROM exchange WHERE key >= ? AND key < ?", (replaced, key))
        exchanges.update_sources(tx, conversation)
    exists = "SELECT 1 FROM item WHERE user = ? AND id = ?"
    if any(tx.execute(exists, (user, item_id)).fetchone() is None for item_id in exchange.recalled_ids):
        exchanges.remove_recalled(exchange)  # this turn deleted it
    columns: dict[str, Any] = {"until": None, "owner": None, "replaces": None}
    if outcome:  # otherwise it is set already, and SQLite rewrites the index entry of an assigned column
        columns["unindexed"] = True
    exchanges.write(tx, key, exchange, **columns)
    if exchange.private_data:
        users.mark_private_data(tx, user)
    exchanges.update_times(tx, conversation)
    exchanges.list_first(tx, conversation)
    if replaced is not None:
        exchanges.set_title(tx, conversation)
    return True


def checkpoint(tx: Tx, key: int, exchange: Exchange) -> None:
    """Write the answer so far of a running exchange.

    Raises:
        StoreError: another process continues the turn, because the lease expired.
    """
    query = "UPDATE exchange SET data = ? WHERE key = ? AND outcome = ''"
    if not tx.execute(query, (rows.encode(exchange), key)).rowcount:
        raise StoreError("Another process continues this turn.")


def prolong(tx: Tx) -> None:
    """Renew the owner's leases, unless another process interrupted them; shorten leases that are too long."""
    tx.executemany(
        "UPDATE exchange SET until = ? WHERE key = ? AND owner = ? AND outcome = ''",
        [(tx.now + LEASE, key, tx.process) for key in tuple(tx.running)],
    )
    query = "UPDATE exchange SET until = ? WHERE key = ?"
    too_long = tx.execute(f"SELECT e.key FROM {exchanges.RUNNING} AND e.until > ?", (tx.now + LEASE,)).fetchall()
    tx.executemany(query, [(tx.now + LEASE, key) for (key,) in too_long])


def any_too_long(tx: Tx) -> bool:
    """Return whether a lease ends later than a new one would."""
    query = f"SELECT 1 FROM {exchanges.RUNNING} AND e.until > ? LIMIT 1"
    return tx.execute(query, (tx.now + LEASE,)).fetchone() is not None


def is_running(tx: Tx, conversation: int) -> bool:
    """Return whether a turn of a conversation runs; interrupt one whose lease expired."""
    query = f"SELECT e.key, e.until FROM {exchanges.RUNNING} AND e.key BETWEEN ? AND ?"
    for key, until in tx.execute(query, exchanges.span(conversation)).fetchall():
        if key in tx.running or until > tx.now:
            return True
        interrupt(tx, key)
    return False


def interrupt(tx: Tx, key: int) -> None:
    """Mark an exchange as interrupted. If its answer arrives later, it still replaces what it was meant to."""
    exchange = exchanges.read(tx, key)
    if exchange is not None:
        if exchange.source != "task":  # a task continues from its last checkpoint
            turn_log.add_text(exchange, turn_log.text_after_snapshot(tx, key))
            # no model may read a call without a block
            exchange.parts = [part for part in exchange.parts if not isinstance(part, Call) or part.block]
        exchange.outcome = "interrupted"
        exchanges.write(tx, key, exchange)
    tx.execute("UPDATE exchange SET outcome = 'interrupted', until = NULL, owner = NULL WHERE key = ?", (key,))
    exchanges.update_times(tx, key >> EXCHANGES)


def interrupt_all(tx: Tx) -> None:
    """Mark all running exchanges as interrupted."""
    for (key,) in tx.execute(f"SELECT e.key FROM {exchanges.RUNNING}").fetchall():
        interrupt(tx, key)
    turn_log.expire_all(tx)


class ConversationBusy(BadRequest):
    """A turn of the conversation is running. `is_report`: it is a report on tasks."""

    def __init__(self, *, is_report: bool = False) -> None:
        sentence = "This conversation has a running turn. Wait for it, stop it, or send `barge_in`."
        super().__init__(sentence, "conversation_id", code="busy", status=409)
        self.is_report = is_report


def _find_message(tx: Tx, conversation: int, message_id: str) -> tuple[int, int]:
    """Return the exchange of a message, and the first exchange to replace (a failed attempt passes on its own)."""
    for column in ("answer_id", "question_id"):
        query = (
            f"SELECT key, coalesce(replaces, key) FROM exchange WHERE key BETWEEN ? AND ? AND {column} = ? "
            "ORDER BY key DESC LIMIT 1"
        )
        row = tx.execute(query, (*exchanges.span(conversation), message_id)).fetchone() if message_id else None
        if row is not None:
            return int(row[0]), int(row[1])
    message = f"This conversation has no message {message_id!r}. Use the `message_id` of a `done` event."
    raise BadRequest(message, "replace_from", code="not_found", status=404)


def _find_file(tx: Tx, exchange: int | None, file_id: int, field: str) -> Attachment:
    """Return a file of a question to reuse. The question keeps it, in case it is not replaced after all."""
    query = "SELECT id, name, type, data FROM file WHERE exchange = ? AND id = ?"
    row = tx.execute(query, (exchange, file_id)).fetchone()
    if row is None:
        raise BadRequest(f"The replaced message has no file with id {file_id}.", field)
    return Attachment(*row)
