"""Writes the question when a turn begins, checkpoints while it runs, and the answer when it ends.

A running exchange holds its conversation as long as its process lives, see `processes.py`. When the process has died,
another one claims the exchange: it raises the epoch and continues the turn from its last checkpoint, or marks the
exchange as interrupted. Each write names process and epoch, so that a process that was only frozen changes nothing.

An exchange that replaces others stays after them until it has an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from brain.errors import BadRequest
from brain.messages import (
    Annotation,
    Attachment,
    Call,
    Exchange,
    History,
    Marks,
    Text,
    renumber,
    to_answer_id,
    to_turn_id,
)
from brain.store import counts, exchanges, rows, tasks, users
from brain.store.rows import SECOND
from brain.store.schema import EXCHANGES
from brain.store.tx import Tx
from brain.text import first_words

CLAIMED_AT_ONCE = 20
"""Limit of turns that a process claims in one transaction, so that several share those of one that died."""
REPEAT_SECONDS = 300
"""Time after the end of a turn in which another request with its ID is the same request."""

_IS_OWN = "key = ? AND process = ? AND epoch = ?"
_ORPHANS = f"SELECT e.key FROM {exchanges.RUNNING} AND NOT {exchanges.IS_ALIVE} AND (e.resume = '' OR ? = 1)"
"""Selects running turns of processes that died; the values are the process that asks, and whether it continues them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """How a question is written.

    Attributes:
        replaces: the ID of a message. Its exchange and later ones are deleted once the new answer is written. The turn
            continues from the exchanges before it.
        reused_files: IDs of files of the replaced question, which come before the new ones, with their fields for
            errors.
        recent: number of earlier exchanges to return.
        request_id: the client's ID of the request.
        resume: how another process can continue the turn; empty if none can.
        private: make the conversation private, for good.
    """

    replaces: str | None = None
    reused_files: Mapping[int, str] = field(default_factory=dict)
    recent: int = 20
    request_id: str | None = None
    resume: str = ""
    private: bool = False


class RequestTaken(BadRequest):
    """The user began another turn with the same request ID."""

    def __init__(self) -> None:
        message = "Another turn with this `request_id` is starting. Try again."
        super().__init__(message, "request_id", code="busy", status=409)


class Place(NamedTuple):
    """Where a turn runs, or ran.

    Attributes:
        has_expired: whether it ended more than `REPEAT_SECONDS` ago, so that no process has its events.
    """

    turn_id: str
    process: str
    is_running: bool
    has_expired: bool


class Appended(msgspec.Struct):
    """What an answer has more than before: text at its end, and thinking. The first may extend the last stored one.

    Attributes:
        turn_pass: the pass of the text.
    """

    text: str = ""
    turn_pass: int = 0
    annotations: tuple[Annotation, ...] = ()


class Claimed(NamedTuple):
    """A turn of a process that died.

    Attributes:
        history: its conversation, with the exchange at its last checkpoint.
        resume: see `QuestionOptions`.
        last: the number of the last event before that checkpoint.
    """

    history: History
    resume: str
    last: int


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
    if question.source == "report":
        tasks.check_unreported(tx, user, conversation_id)
    # first, since the second of two requests with the same ID must join the turn of the first
    if options.request_id is not None:
        taken = find_request(tx, user, options.request_id)
        if taken is not None and (taken.is_running or taken.process != tx.process):  # else this process has dropped it
            raise RequestTaken
    found = _find(tx, user, conversation_id)
    if question.source == "task":
        tasks.check_running(tx, found.account, conversation_id)
    elif tasks.is_work(tx, found.account, conversation_id):
        message = "A background task works in this conversation. Send the message to another one."
        raise BadRequest(message, "conversation_id")
    past = _read_past(tx, found.place.key, options.recent, found.history)
    while _clean_up(tx, past, replaces=options.replaces is not None):
        found = _find(tx, user, conversation_id)
        past = _read_past(tx, found.place.key, options.recent, found.history)
    is_first, conversation, title = past.newest is None, found.place.key, ""
    if conversation is None:
        title = "" if question.source == "report" else first_words(question.message, exchanges.TITLE_LENGTH)
        times = {"created": tx.now, "updated": tx.now}
        if question.source != "task":  # its conversation stays last
            times["used"] = exchanges.first_use(found.place, tx.now)
        columns = {"account": found.account, "id": conversation_id, "title": title, **times}
        conversation = exchanges.insert(tx, "conversation", columns)
    named, replaced = (None, None) if options.replaces is None else _find_message(tx, conversation, options.replaces)
    if replaced is not None:
        past = _read_past(tx, conversation, options.recent, found.history, before=replaced)
    # a task has its own marks, since its runs do not read each other
    marks = Marks() if question.source == "task" else past.marks
    question.untrusted = question.untrusted or marks.untrusted
    question.private_data = question.private_data or marks.private_data
    files = [*(_find_file(tx, named, *one) for one in options.reused_files.items()), *files]
    attached = renumber(tuple(files), after=found.last_file)
    question.files = tuple(file.id for file in attached)
    question.started = rows.moment(tx.now) if question.started is None else question.started
    how = {"process": tx.process, "request": options.request_id, "resume": options.resume}
    key, size = exchanges.add(tx, conversation, question, attached, replaces=replaced, unindexed=True, **how)
    for file in attached:
        exchanges.add_file(tx, conversation, key, file)
    if options.private and not found.private:
        tx.execute("UPDATE conversation SET private = 1 WHERE key = ?", (conversation,))
    if found.updated is not None and question.source != "task":
        exchanges.list_first(tx, conversation, found.place, found.updated)
    if is_first and not title:
        exchanges.set_title(tx, conversation)
    field = "attachments" if files else "conversation_id"
    users.check_bytes(found.account_bytes + size, found.size + size, field)
    history = History(
        id=conversation_id, user=user, key=key, exchanges=past.exchanges, count=past.total, files=attached,
        question=question, private=options.private or found.private, has_news=found.has_news,
        untrusted=marks.untrusted, private_data=marks.private_data,
    )  # fmt: skip
    query = "SELECT key FROM file WHERE conversation = ? AND exchange < ? ORDER BY id"
    earlier = conversation, key if replaced is None else replaced
    return history, [file for (file,) in tx.execute(query, earlier)] if found.last_file else ()


class _Found(NamedTuple):
    """An account and one of its conversations, which may be new.

    Attributes:
        size: of the conversation in bytes, as the other fields.
        history: its number of exchanges that later turns read.
        last_file: the ID of its newest file, or 0.
        has_news: whether it has news of background tasks.
    """

    account: int
    account_bytes: int
    place: exchanges.Place
    private: bool
    size: int
    history: int
    updated: int | None
    last_file: int
    has_news: bool


_FIND = (
    f"SELECT a.key, a.bytes, {exchanges.PLACE}, c.private, c.bytes, c.history, c.updated, "
    "(SELECT max(id) FROM file WHERE conversation = c.key), "
    "(SELECT min(key) FROM channel WHERE account = a.key AND conversation = ? AND is_told = 0) "
    f"FROM account a LEFT JOIN conversation c ON c.account = a.key AND c.id = ? {exchanges.TOP} WHERE a.name = ?"
)


def _find(tx: Tx, user: str, conversation_id: str) -> _Found:
    """Return the account of a user, which is added if needed, and a conversation."""
    while (row := tx.execute(_FIND, (conversation_id, conversation_id, user)).fetchone()) is None:
        users.add(tx, user)
    account, account_bytes, *place, private, size, history, updated, last_file, news = row
    return _Found(
        account, account_bytes, exchanges.Place(*place), bool(private), size or 0, history or 0, updated,
        last_file or 0, news is not None,
    )  # fmt: skip


class _Past(NamedTuple):
    """The exchanges of a conversation that a turn continues.

    Attributes:
        newest: key, process, source and outcome of the newest one, which later turns need not read; None without one.
        marks: those of the newest one, which inherited all others.
        exchanges: the newest that later turns read, oldest first.
        total: the number of all of these.
    """

    newest: tuple[int, str, str, str] | None = None
    marks: Marks = Marks()
    exchanges: Sequence[Exchange] = ()
    total: int = 0


def _read_past(tx: Tx, conversation: int | None, recent: int, count: int, before: int | None = None) -> _Past:
    """Return the past of a conversation, or what was before one of its exchanges.

    Args:
        recent: number of exchanges to return.
        count: number of all exchanges of the conversation that later turns read.
    """
    if conversation is None:
        return _Past()
    first, last = exchanges.span(conversation)
    if before is not None:
        query = "SELECT count(*) FROM exchange WHERE key BETWEEN ? AND ? AND in_history = 1"
        ((later,),) = tx.execute(query, (before, last))
        count, last = count - later, before - 1
    newest = "SELECT max(key) FROM exchange WHERE key BETWEEN ? AND ?"
    found = tx.execute(
        f"SELECT {rows.EXCHANGE}, in_history, process, source, outcome FROM exchange WHERE key BETWEEN ? AND ? "
        f"AND (in_history = 1 OR key = ({newest})) ORDER BY key DESC LIMIT ?",
        (first, last, first, last, recent + 1),
    ).fetchall()
    if not found:
        return _Past(total=count)
    (key, data, _, *newest_columns), history = found[0], [row for row in found if row[2]][:recent]
    read = list(rows.readable(rows.read_exchange, reversed(history)))
    return _Past((key, *newest_columns), rows.read_marks(data), read, count)


def _clean_up(tx: Tx, past: _Past, *, replaces: bool) -> bool:
    """Interrupt the newest turn if its process died; delete it if it is an unfinished report, to report again.

    Returns:
        Whether it did one of both.

    Raises:
        ConversationBusy: the turn runs.
    """
    if past.newest is None:
        return False
    key, process, source, outcome = past.newest
    if outcome == "":
        if not _interrupt_dead(tx, key):
            raise ConversationBusy(process, is_report=source == "report")
        return True
    if replaces or source != "report" or outcome not in ("interrupted", "shutdown"):
        return False
    counts.delete_exchanges(tx, key, key)
    exchanges.update_sources(tx, key >> EXCHANGES)
    return True


def attachments(tx: Tx, files: Sequence[int]) -> list[Attachment]:
    """Return the files with these keys. They cannot change while a turn of their conversation runs."""
    query = "SELECT id, name, type, data FROM file WHERE key = ?"
    return [Attachment(*row) for key in files for row in tx.execute(query, (key,))]


def all_attachments(tx: Tx, user: str, conversation_id: str) -> list[Attachment]:
    """Return all files of a conversation, in the order of their IDs."""
    found = tx.execute(
        "SELECT f.id, f.name, f.type, f.data FROM file f JOIN conversation c ON c.key = f.conversation "
        "JOIN account a ON a.key = c.account WHERE a.name = ? AND c.id = ? ORDER BY f.id",
        (user, conversation_id),
    )
    return [Attachment(*row) for row in found]


def history(tx: Tx, user: str, conversation_id: str, recent: int) -> History:
    """Return the history for a turn that would begin now, without files."""
    query = (
        "SELECT c.key, c.history FROM conversation c JOIN account a ON a.key = c.account WHERE a.name = ? AND c.id = ?"
    )
    key, count = tx.execute(query, (user, conversation_id)).fetchone() or (None, 0)
    past = _read_past(tx, key, recent, count)
    return History(
        id=conversation_id, user=user, exchanges=past.exchanges, count=past.total,
        untrusted=past.marks.untrusted, private_data=past.marks.private_data,
    )  # fmt: skip


def end(tx: Tx, history: History, exchange: Exchange) -> bool:
    """Write the answer. A question or item that was deleted since then stays deleted.

    Returns:
        Whether the question still existed, and no other process had claimed the turn.
    """
    query = (
        f"SELECT e.replaces, e.outcome, a.key, {exchanges.PLACE} FROM exchange e "
        f"JOIN conversation c ON c.key = e.key >> {EXCHANGES} JOIN account a ON a.key = c.account {exchanges.TOP} "
        "WHERE e.key = ? AND e.process = ? AND e.epoch = ?"
    )
    key = history.key
    row = tx.execute(query, (key, tx.process, history.epoch)).fetchone()
    if row is None:
        return False
    conversation, (replaced, outcome, user, *place) = key >> EXCHANGES, row
    if replaced is not None:
        query = "SELECT 1 FROM exchange WHERE key >= ? AND key < ? AND in_history = 1 LIMIT 1"
        if not exchange.parts and tx.execute(query, (replaced, key)).fetchone() is not None:
            exchanges.remove(tx, key)  # a failed attempt replaces nothing
            return True
        counts.delete_exchanges(tx, replaced, key - 1)
        exchanges.update_sources(tx, conversation)
    exists = "SELECT 1 FROM item WHERE account = ? AND id = ?"
    if any(tx.execute(exists, (user, item_id)).fetchone() is None for item_id in exchange.recalled_ids):
        exchanges.remove_recalled(exchange)  # this turn deleted it
    columns: dict[str, Any] = {"resume": "", "replaces": None}
    if outcome:  # otherwise it is set already, and SQLite rewrites the index entry of an assigned column
        columns["unindexed"] = True
    exchanges.write(tx, key, exchange, **columns)
    tx.execute("DELETE FROM draft WHERE exchange = ?", (key,))
    if exchange.private_data:
        users.mark_private_data(tx, user)
    exchanges.update_unsummarised(tx, conversation)
    if exchange.source != "task":
        exchanges.list_first(tx, conversation, exchanges.Place(*place), tx.now)
    if replaced is not None:
        exchanges.set_title(tx, conversation)
    return True


def is_taken(tx: Tx, history: History) -> bool:
    """Return whether another process has claimed a turn of this one."""
    query = "SELECT 1 FROM exchange WHERE key = ? AND NOT (coalesce(process, '') = ? AND epoch = ?)"
    return tx.execute(query, (history.key, tx.process, history.epoch)).fetchone() is not None


def drop(tx: Tx, history: History) -> None:
    """Delete the question of a turn that did not begin."""
    if _is_own(tx, history):
        exchanges.remove(tx, history.key)


def drop_unknown(tx: Tx, history: History) -> None:
    """Delete the question of a turn that did not begin, if it was stored: its key is not known."""
    assert history.question is not None
    query = (
        f"SELECT e.key, e.epoch FROM conversation c JOIN exchange e ON {exchanges.IN_CONVERSATION} "
        "WHERE c.account = ? AND c.id = ? AND e.question_id = ? AND e.outcome = ''"
    )
    row = tx.execute(query, (users.find(tx, history.user), history.id, history.question.question_id)).fetchone()
    if row is not None:
        drop(tx, msgspec.structs.replace(history, key=row[0], epoch=row[1]))


# checkpoints


def checkpoint(tx: Tx, history: History, last: int, exchange: Exchange) -> bool:
    """Write the answer so far of a running exchange. Return False if another process has claimed the turn.

    Args:
        last: the number of the last event that it includes.
    """
    # an earlier one may be written later: those that are due are written with the lease, others when a call needs them
    query = f"UPDATE exchange SET data = ?, last = ? WHERE {_IS_OWN} AND outcome = '' AND last <= ?"
    data = rows.encode(exchange)
    own = history.key, tx.process, history.epoch
    if not tx.execute(query, (data, last, *own, last)).rowcount:
        return _is_own(tx, history)
    tx.count(data)
    tx.execute("DELETE FROM draft WHERE exchange = ? AND last <= ?", (history.key, last))
    return True


def append(tx: Tx, history: History, last: int, appended: Appended) -> bool:
    """Write what a running exchange has more than at its last checkpoint. Arguments and result as for `checkpoint`."""
    query = f"INSERT INTO draft (exchange, last, data) SELECT key, ?, ? FROM exchange WHERE {_IS_OWN} AND outcome = ''"
    data = rows.encode(appended)
    tx.count(data)
    own = history.key, tx.process, history.epoch
    return bool(tx.execute(query, (last, data, *own)).rowcount) or _is_own(tx, history)


def _is_own(tx: Tx, history: History) -> bool:
    own = history.key, tx.process, history.epoch
    return tx.execute(f"SELECT 1 FROM exchange WHERE {_IS_OWN}", own).fetchone() is not None


def release(tx: Tx, history: History, last: int, exchange: Exchange) -> None:
    """Write the answer so far of a turn that another process can claim at once."""
    running = msgspec.structs.replace(exchange, outcome="", error=None, ended=None)
    if checkpoint(tx, history, last, running):
        tx.execute("UPDATE exchange SET process = '' WHERE key = ?", (history.key,))


def add_drafts(tx: Tx, key: int, exchange: Exchange) -> int:
    """Add to an exchange what its drafts have; return the number of the last event that it then includes."""
    found = tx.execute(
        "SELECT e.last, d.last, d.data FROM exchange e LEFT JOIN draft d ON d.exchange = e.key AND d.last > e.last "
        "WHERE e.key = ? ORDER BY d.last, d.key",
        (key,),
    ).fetchall()
    after = [(key, data) for _, _, data in found if data is not None]
    for appended in rows.readable(_read_draft, after):
        part = exchange.parts[-1] if exchange.parts else None
        if appended.text and isinstance(part, Text):
            exchange.parts[-1] = Text(part.text + appended.text, part.turn_pass)
        elif appended.text:
            exchange.parts.append(Text(appended.text, appended.turn_pass))
        added, former = appended.annotations, exchange.annotations
        goes_on = added and former and added[0].code is None
        if goes_on and msgspec.structs.replace(former[-1], text=added[0].text) == added[0]:
            joined = msgspec.structs.replace(added[0], text=former[-1].text + added[0].text)
            added, former = (joined, *added[1:]), former[:-1]
        exchange.annotations = (*former, *added)
    checkpoint, newest, _ = found[-1]
    return int(checkpoint if newest is None else newest)


def _read_draft(row: tuple[int, str]) -> Appended:
    try:
        return msgspec.json.decode(row[1], type=Appended)
    except msgspec.MsgspecError:
        raise rows.Damaged(f"a draft of exchange {row[0]}") from None


# turns of other processes


def find_running(tx: Tx, conversation: int) -> tuple[str, str] | None:
    """Return process and source of the running turn of a conversation; interrupt one whose process has died."""
    query = f"SELECT e.key, e.process, e.source FROM {exchanges.RUNNING} AND e.key BETWEEN ? AND ?"
    for key, process, source in tx.execute(query, exchanges.span(conversation)).fetchall():
        if not _interrupt_dead(tx, key):
            return process, source
    return None


def _interrupt_dead(tx: Tx, key: int) -> bool:
    """Interrupt a running turn if its process died; return whether it did."""
    alive = f"SELECT 1 FROM exchange e WHERE e.key = ? AND {exchanges.IS_ALIVE}"
    is_alive = tx.execute(alive, (key, tx.process)).fetchone() is not None
    if not is_alive:
        _interrupt(tx, key)
    return not is_alive


def find_place(tx: Tx, user: str, turn_id: str) -> Place | None:
    """Return where a turn of a user runs or ran; None if it is not stored, or its conversation was not used lately."""
    answer = "e.answer_id = ? AND c.account = (SELECT key FROM account WHERE name = ?)"
    joined = f"conversation c ON c.key = e.key >> {EXCHANGES}"
    running = f"SELECT e.key FROM exchange e JOIN {joined} WHERE e.unindexed = 1 AND e.outcome = '' AND {answer}"
    row = tx.execute(f"{running} LIMIT 1", (to_answer_id(turn_id), user)).fetchone()
    if row is None:
        # among few exchanges, since clients can ask for any ID
        lately = f"FROM conversation c JOIN exchange e ON {exchanges.IN_CONVERSATION} WHERE {answer} AND c.updated >= ?"
        since = tx.now - REPEAT_SECONDS * SECOND
        row = tx.execute(f"SELECT e.key {lately} LIMIT 1", (to_answer_id(turn_id), user, since)).fetchone()
    return None if row is None else _place(tx, row[0])


def find_request(tx: Tx, user: str, request_id: str) -> Place | None:
    """Return where the turn runs or ran that a user began with this request ID."""
    query = (
        f"SELECT e.key FROM exchange e JOIN conversation c ON c.key = e.key >> {EXCHANGES} "
        "WHERE e.request = ? AND c.account = (SELECT key FROM account WHERE name = ?) ORDER BY e.started DESC LIMIT 1"
    )
    row = tx.execute(query, (request_id, user)).fetchone()
    found = None if row is None else _place(tx, row[0])
    return None if found is None or found.has_expired else found


def find_newest(tx: Tx, user: str, conversation_id: str) -> Place | None:
    """Return where the newest turn of a conversation runs or ran."""
    query = "SELECT c.key FROM conversation c JOIN account a ON a.key = c.account WHERE a.name = ? AND c.id = ?"
    row = tx.execute(query, (user, conversation_id)).fetchone()
    newest = "SELECT max(key) FROM exchange WHERE key BETWEEN ? AND ?"
    key = None if row is None else tx.execute(newest, exchanges.span(row[0])).fetchone()[0]
    return None if key is None else _place(tx, key)


def _place(tx: Tx, key: int) -> Place:
    query = "SELECT answer_id, coalesce(process, ''), outcome, coalesce(ended, started) FROM exchange WHERE key = ?"
    answer_id, process, outcome, ended = tx.execute(query, (key,)).fetchone()
    has_expired = outcome != "" and ended < tx.now - REPEAT_SECONDS * SECOND
    return Place(to_turn_id(answer_id), process, outcome == "", has_expired)


def has_orphans(tx: Tx, *, continues: bool) -> bool:
    """Return whether `claim` finds turns."""
    return tx.execute(f"{_ORPHANS} LIMIT 1", (tx.process, continues)).fetchone() is not None


def claim(tx: Tx, recent: int, *, continues: bool) -> tuple[Sequence[Claimed], bool]:
    """Claim turns of processes that died, and interrupt those that cannot be continued.

    Args:
        recent: number of earlier exchanges to return with each.
        continues: whether this process continues turns; if not, those that can be continued are left for another one.

    Returns:
        The turns to continue, and whether there may be more.
    """
    found = tx.execute(
        f"UPDATE exchange SET process = ?, epoch = epoch + 1 WHERE key IN ({_ORPHANS} ORDER BY e.key LIMIT ?) "
        "RETURNING key",
        (tx.process, tx.process, continues, CLAIMED_AT_ONCE),
    ).fetchall()
    claimed = [_claimed(tx, key, recent) for (key,) in sorted(found)]
    return [one for one in claimed if one is not None], len(found) == CLAIMED_AT_ONCE


def give_back(tx: Tx, known: Sequence[int]) -> None:
    """Let any process claim again the turns that this one has claimed, except those with known exchanges."""
    tx.execute(
        "UPDATE exchange SET process = '' WHERE unindexed = 1 AND outcome = '' AND process = ? AND epoch > 0 "
        f"AND key NOT IN (0{', ?' * len(known)})",
        (tx.process, *known),
    )


def _claimed(tx: Tx, key: int, recent: int) -> Claimed | None:
    """Return a claimed turn; None if it is interrupted instead."""
    query = (
        "SELECT e.epoch, e.resume, e.replaces, a.name, c.key, c.id, c.private, c.history FROM exchange e "
        f"JOIN conversation c ON c.key = e.key >> {EXCHANGES} JOIN account a ON a.key = c.account WHERE e.key = ?"
    )
    row, exchange = tx.execute(query, (key,)).fetchone(), exchanges.read(tx, key)
    if row is None or exchange is None or not row[1]:
        _interrupt(tx, key)
        return None
    epoch, resume, replaces, user, conversation, conversation_id, private, count = row
    last = add_drafts(tx, key, exchange)
    before = key if replaces is None else replaces
    past = _read_past(tx, conversation, recent, count, before)
    history = History(
        id=conversation_id, user=user, key=key, epoch=epoch, exchanges=past.exchanges, count=past.total,
        question=exchange, private=bool(private), untrusted=exchange.untrusted, private_data=exchange.private_data,
    )  # fmt: skip
    query = "SELECT key FROM file WHERE conversation = ? AND exchange < ? ORDER BY id"
    history.attachments = attachments(tx, [file for (file,) in tx.execute(query, (conversation, before)).fetchall()])
    own = tx.execute("SELECT key FROM file WHERE exchange = ? ORDER BY id", (key,)).fetchall()
    history.files = tuple(attachments(tx, [file for (file,) in own]))
    return Claimed(history, resume, last)


def interrupt(tx: Tx, history: History) -> None:
    """Mark a running exchange as interrupted, unless another process has claimed it."""
    query = f"SELECT 1 FROM exchange WHERE {_IS_OWN} AND outcome = ''"
    if tx.execute(query, (history.key, tx.process, history.epoch)).fetchone() is not None:
        _interrupt(tx, history.key)


def _interrupt(tx: Tx, key: int) -> None:
    exchange = exchanges.read(tx, key)
    if exchange is not None:
        add_drafts(tx, key, exchange)
        if exchange.source != "task":  # a task continues from its last checkpoint
            for call in exchange.calls:
                if not call.block and call.if_interrupted is not None:
                    call.code, (call.reason, call.block), call.if_interrupted = "interrupted", call.if_interrupted, None
            # no model may read a call without a block
            exchange.parts = [part for part in exchange.parts if not isinstance(part, Call) or part.block]
        exchange.outcome = "interrupted"
        exchanges.write(tx, key, exchange)
    tx.execute("UPDATE exchange SET outcome = 'interrupted', resume = '', process = '' WHERE key = ?", (key,))
    tx.execute("DELETE FROM draft WHERE exchange = ?", (key,))
    exchanges.update_unsummarised(tx, key >> EXCHANGES)


class ConversationBusy(BadRequest):
    """A turn of the conversation is running, in this process or another one. `is_report`: it is a report on tasks."""

    def __init__(self, process: str, *, is_report: bool = False) -> None:
        sentence = "This conversation has a running turn. Wait for it, stop it, or send `barge_in`."
        super().__init__(sentence, "conversation_id", code="busy", status=409)
        self.process = process
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
