"""Background tasks, and the channel of what happens to them.

A process claims a due task, and ends the run in the transaction that stores the answer. If it dies, the task is due
again, and another process continues its run. The callers compute the times of schedules.

The channel is append-only. The report of a conversation and clients of the event stream read it after their cursors.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from brain.errors import BadRequest
from brain.events import Approval
from brain.messages import Call, Exchange
from brain.store import deletion, exchanges, rows, users
from brain.store.rows import SECOND, micros, moment
from brain.store.tx import Tx
from brain.task import (
    ACTIVE,
    MAX_FAILURES,
    MAX_RESULT,
    CancelOutcome,
    Packet,
    PacketKind,
    Task,
    TaskApproval,
    TaskState,
)

DAY = 86_400 * SECOND
RETRY_SECONDS = 5
MAX_ATTEMPTS = 2
MAX_RESUMES = 5
"""How often a run continues after its process ended. Then it fails, because it may be the cause."""
MAX_ACTIVE = 1000
"""Active tasks per user."""
MAX_ENDED = 500
"""Ended tasks per user; the oldest are deleted."""
KEEP_PACKETS = 24 * 3600 * SECOND
"""How long the channel has packets for clients that reconnect."""
PACKET_TEXT = 2_000
"""Characters of a result in a packet. The text of an approval is never cut."""
MAX_DUE = 20
"""Due tasks per look."""
MAX_READ = 500
"""Packets per read."""
COUNTED = 100
"""Keys of packets that a look at the store counts."""
TOLD: frozenset[PacketKind] = frozenset({"result", "failure", "skipped", "approval", "paused"})
"""Kinds of packets that the conversation reports."""

log = logging.getLogger("brain")

_ORPHANS = f"task e WHERE e.state = 'running' AND NOT {exchanges.IS_ALIVE}"
"""Selects the running tasks of processes that have died; the value is the process that asks."""
_RUNNING_OF_USER = "SELECT count(*) FROM task r WHERE r.state = 'running' AND r.account = t.account"
_NEXT_DUE = (
    "SELECT t.key, t.data, t.account, c.private FROM (SELECT t.account FROM task t JOIN account a ON a.key = t.account "
    f"WHERE t.due <= ? GROUP BY t.account, a.claimed HAVING ({_RUNNING_OF_USER}) < ? "
    f"ORDER BY ({_RUNNING_OF_USER}), a.claimed, min(t.due), t.account LIMIT 1) n JOIN task t ON t.account = n.account "
    "LEFT JOIN conversation c ON c.account = t.account AND c.id = t.conversation "
    "WHERE t.due <= ? AND (SELECT count(*) FROM task WHERE state = 'running') < ? ORDER BY t.due, t.key LIMIT 1"
)
"""Selects the next task to claim. The values are the time, the limit per user, the time, and that of all tasks."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Task).decode
_decode_packet = msgspec.json.Decoder(Packet).decode


class Duplicate(BadRequest):
    """An active task is the same."""

    def __init__(self, task: Task) -> None:
        message = f'The task "{task.title}" does the same ({task.id}, {task.state}). Change or cancel it instead.'
        super().__init__(message, "prompt", code="duplicate", status=409, details={"task_id": task.id})
        self.task = task


class NothingToReport(BadRequest):
    """Another turn has told the news of the conversation."""

    def __init__(self) -> None:
        super().__init__("There is nothing to report.", code="gone", status=410)


@dataclass(frozen=True, slots=True)
class DayLimits:
    """Limits of one user per day; 0 for none."""

    runs: int
    tokens: int


class DueTask(NamedTuple):
    """A task that may run now, for `claim`.

    Attributes:
        next_run: The next time of its schedule; None if there is none.
        limits: Those of its user.
    """

    task: Task
    next_run: datetime | None
    limits: DayLimits


class Unreported(NamedTuple):
    """A conversation with packets to report. Times are in microseconds.

    Attributes:
        first_at: Time of the oldest of them.
        last_at: Time of the newest of them.
        reported_at: Time of the last report; 0 if there was none.
        held_until: Reports wait until then, because a person is typing.
    """

    user: str
    conversation_id: str
    first_at: int
    last_at: int
    reported_at: int
    held_until: int


class Look(NamedTuple):
    """What a process needs to know of all tasks at one moment.

    Attributes:
        last_packet: Key of the newest packet of all users, or 0.
        packets: Packets with one of the last `COUNTED` keys. A transaction may end after one that got greater keys.
        own: The tasks that the process runs, by ID.
        due: The first `MAX_DUE` tasks for free places, and None for each damaged row. `claim` takes them.
        seconds_until_due: Time until the next task becomes due; None without one.
        has_stale: Whether `recover` finds a task of a process that died, or a time that a wrong clock set.
        unreported: Conversations with packets to report.
    """

    last_packet: int
    packets: int
    own: Mapping[str, Task]
    due: Sequence[Task | None]
    seconds_until_due: float | None
    has_stale: bool
    unreported: Sequence[Unreported]


class RunEnd(NamedTuple):
    """The end of a run, for `end_run`.

    Attributes:
        task: The task as the process that runs it knew it last.
        outcome: `waiting` for an approval; `pending` to continue the run in another process.
        next_run: The next time of the schedule of `task`; None if there is none.
        may_retry: Whether the failure may pass.
    """

    task: Task
    exchange: Exchange
    outcome: TaskState
    next_run: datetime | None = None
    reason: str = ""
    may_retry: bool = False
    approval: TaskApproval | None = None


class ReportEnd(NamedTuple):
    """The end of a report: packets up to `cursor` are told."""

    user: str
    conversation_id: str
    cursor: int
    actions: Sequence[Callable[[Tx], object]] = ()


# creating


def create(tx: Tx, task: Task, limits: DayLimits) -> Task:
    """Add a task, and return it. A repeated request, which has the same ID, returns the existing one.

    Raises:
        Duplicate: an active task has the same user, profile, schedule, prompt and title.
        BadRequest: `rate_limited`, the limit of tasks per day or of active tasks is reached; a task runs in the
            conversation.
    """
    user = users.add(tx, task.user)
    if is_work(tx, user, task.conversation_id):
        raise BadRequest("A background task works in this conversation. Choose another one.", "conversation_id")
    if (existing := find(tx, task.user, task.id)) is not None:
        return existing
    if limits.runs and _usage(tx, user)[0] >= limits.runs:
        message = f"Today's limit of new tasks is reached: {limits.runs:,} per day (UTC)."
        raise BadRequest(message, code="rate_limited", status=429)
    at = moment(tx.now)
    task = msgspec.structs.replace(
        task,
        created=at,
        changed=at,
        next_run=at if task.start is None else task.next_run,
        private=task.private or is_private(tx, task.user, task.conversation_id),
    )
    _check_active(tx, user, task)
    _add_usage(tx, user, created=1)
    insert(tx, user, task)
    append(tx, task, "state")
    _prune(tx, user)
    return task


def _check_active(tx: Tx, user: int, task: Task) -> None:
    """Check that a task may become active.

    Raises:
        Duplicate: another active task is the same.
        BadRequest: `rate_limited`.
    """
    query = "SELECT key, data FROM task WHERE account = ? AND fingerprint = ? AND is_active = 1 AND id <> ?"
    for row in tx.execute(query, (user, _fingerprint(task), task.id)).fetchall():
        if (same := _read_or_set_aside(tx, *row)) is not None:
            raise Duplicate(same)
    query = "SELECT count(*) FROM task WHERE account = ? AND is_active = 1 AND id <> ?"
    ((count,),) = tx.execute(query, (user, task.id))
    if count >= MAX_ACTIVE:
        message = f"The limit of {MAX_ACTIVE:,} active tasks is reached. Cancel some first."
        raise BadRequest(message, code="rate_limited", status=429)


def is_private(tx: Tx, user: str, conversation_id: str | None) -> bool:
    """Return whether only local models may read a conversation."""
    query = "SELECT c.private FROM conversation c JOIN account a ON a.key = c.account WHERE a.name = ? AND c.id = ?"
    row = tx.execute(query, (user, conversation_id)).fetchone()
    return row is not None and bool(row[0])


def insert(tx: Tx, user: int, task: Task) -> int:
    """Add the row of a task that does not run; return its key."""
    return exchanges.insert(tx, "task", {"account": user, "id": task.id, "process": None, **_columns(task)})


def _fingerprint(task: Task) -> str:
    """Return a value that is equal for tasks that do the same.

    A recurrence that names its hours is the same whenever it was requested.
    """
    words = [" ".join(text.casefold().split()) for text in (task.prompt, task.title)]
    start = None if "BYHOUR" in task.every else task.start
    begin = "" if start is None else f"{start.astimezone(UTC):%Y-%m-%d %H:%M}"
    return hashlib.sha256("\0".join((task.profile, task.every, begin, *words)).encode()).hexdigest()


def _prune(tx: Tx, user: int) -> None:
    query = "SELECT key, id FROM task WHERE account = ? AND is_active = 0 ORDER BY key DESC"
    for row in tx.execute(query, (user,)).fetchall()[MAX_ENDED:]:
        _remove(tx, user, *row)


def check_count(tx: Tx, user: int, field: str) -> None:
    """Check the number of a user's tasks after an import.

    Raises:
        BadRequest: `too_large`, the user would have too many.
    """
    query = "SELECT count(*) FROM task WHERE account = ? AND is_active = ?"
    for is_active, limit, kind in ((1, MAX_ACTIVE, "active"), (0, MAX_ENDED, "ended")):
        ((count,),) = tx.execute(query, (user, is_active))
        if count > limit:
            message = f"The import would give the user {count:,} {kind} tasks; the limit is {limit:,}."
            raise BadRequest(message, field, code="too_large", status=413)


# reading


def find(tx: Tx, user: str, task_id: str) -> Task | None:
    """Return a task of a user; None also if its row is damaged."""
    query = "SELECT t.data FROM task t JOIN account a ON a.key = t.account WHERE a.name = ? AND t.id = ?"
    row = tx.execute(query, (user, task_id)).fetchone()
    return None if row is None else read(row[0])


def list_tasks(
    tx: Tx,
    user: str,
    states: Sequence[TaskState] = (),
    before: str | None = None,
    limit: int = 50,
    conversation_id: str | None = None,
) -> list[Task]:
    """List the tasks of a user, newest first. Damaged rows are left out.

    Raises:
        BadRequest: the task `before` does not exist.
    """
    number = users.find(tx, user)
    last = 2**62
    if before is not None:
        row = tx.execute("SELECT key FROM task WHERE account = ? AND id = ?", (number, before)).fetchone()
        if row is None:
            raise BadRequest("`before` must be the id of the last task that was listed.", "before")
        last = row[0]
    where = "account = ? AND key < ?"
    values: list[object] = [number, last]
    if states:
        where += f" AND state IN ({', '.join('?' * len(states))})"
        values += states
    if conversation_id is not None:
        where += " AND conversation = ?"
        values.append(conversation_id)
    found = tx.execute(f"SELECT data FROM task WHERE {where} ORDER BY key DESC LIMIT ?", (*values, limit))
    return [task for (data,) in found if (task := read(data)) is not None]


def count_states(tx: Tx) -> dict[str, int]:
    """Return the number of tasks of all users by state."""
    return dict(tx.execute("SELECT state, count(*) FROM task GROUP BY state").fetchall())


def count_unreadable(tx: Tx) -> int:
    """Return the number of damaged tasks and packets. It reads all of them."""
    tasks = sum(read(data) is None for (data,) in tx.execute("SELECT data FROM task"))
    return tasks + sum(not _is_packet(data) for (data,) in tx.execute("SELECT data FROM channel"))


def read(data: str) -> Task | None:
    """Return a task from its row; None if the row is damaged."""
    try:
        return _decode(data)
    except msgspec.MsgspecError:
        return None


def _read_or_set_aside(tx: Tx, key: int, data: str) -> Task | None:
    """Return a task; None if its row is damaged, which then never runs and is no longer active."""
    task = read(data)
    if task is None:
        changes = "state = 'unreadable', is_active = 0, due = NULL, process = NULL"
        tx.execute(f"UPDATE task SET {changes} WHERE key = ?", (key,))
        log.warning("task %s is damaged and was set aside", key)
    return task


# changing


def change(tx: Tx, user: str, task_id: str, edit: Callable[[Task], Task]) -> Task | None:
    """Change a task of a user; None if it does not exist. A running task keeps running.

    Args:
        edit: Returns the changed task.

    Raises:
        Duplicate, BadRequest: As in `create`, if an ended task becomes active, or an active one becomes another.
    """
    task = find(tx, user, task_id)
    if task is None:
        return None
    changed = edit(task)
    if not changed.has_ended and (task.has_ended or _fingerprint(changed) != _fingerprint(task)):
        _check_active(tx, users.add(tx, user), changed)
    if changed != task:
        changed = _write(tx, changed)
        append(tx, changed, "state")
    return changed


def find_process(tx: Tx, user: str, task_id: str) -> str | None:
    """Return the process that runs a task of a user now."""
    query = "SELECT process FROM task WHERE account = ? AND id = ? AND state = 'running'"
    row = tx.execute(query, (users.find(tx, user), task_id)).fetchone()
    return None if row is None else str(row[0])


def cancel(tx: Tx, user: str, task_id: str) -> tuple[CancelOutcome, Task | None]:
    """Cancel a task, even a running one: its process notices that it no longer owns the task."""
    task = find(tx, user, task_id)
    if task is None:
        return "not_found", None
    if task.state == "canceled":
        return "already_canceled", task
    if task.has_ended:
        return "already_done", task
    canceled = msgspec.structs.replace(
        _finish(tx, task), state="canceled", next_run=None, approval=None, activity="", reason=""
    )
    canceled = _write(tx, canceled)
    append(tx, canceled, "state")
    return "canceled", canceled


def cancel_all(tx: Tx, user: str, conversation_id: str | None) -> list[str]:
    """Cancel the active tasks of a conversation, and those that they created.

    Args:
        conversation_id: None for all tasks of the user.

    Returns:
        The conversations in which they ran, and in which those that had ended ran.
    """
    number = users.find(tx, user)
    tasks = _of_conversation(tx, number, conversation_id)
    for _, task_id in tasks:
        cancel(tx, user, task_id)
    query = "SELECT 1 FROM conversation WHERE account = ? AND id = ?"
    work_ids = [_work_id(task_id) for _, task_id in tasks]
    return [work_id for work_id in work_ids if tx.execute(query, (number, work_id)).fetchone() is not None]


def _of_conversation(tx: Tx, user: int | None, conversation_id: str | None) -> list[tuple[int, str]]:
    """Return the keys and IDs of the tasks of a conversation, and of the conversations in which they run."""
    if conversation_id is None:
        return tx.execute("SELECT key, id FROM task WHERE account = ?", (user,)).fetchall()
    query = "SELECT key, id FROM task WHERE account = ? AND conversation = ?"
    found = tx.execute(query, (user, conversation_id)).fetchall()
    for _, task_id in found:  # which grows
        found += tx.execute(query, (user, _work_id(task_id))).fetchall()
    return found


def is_work(tx: Tx, user: int, conversation_id: str) -> bool:
    """Return whether a task runs in a conversation."""
    if not conversation_id.startswith("work"):
        return False
    query = "SELECT 1 FROM task WHERE account = ? AND id = ?"
    return tx.execute(query, (user, f"task{conversation_id.removeprefix('work')}")).fetchone() is not None


def check_running(tx: Tx, user: int, conversation_id: str) -> None:
    """Check that this process still runs the task of a conversation, which may have been canceled or deleted.

    Raises:
        BadRequest: It does not.
    """
    query = "SELECT 1 FROM task WHERE account = ? AND id = ? AND process = ?"
    values = user, f"task{conversation_id.removeprefix('work')}", tx.process
    if tx.execute(query, values).fetchone() is None:
        raise BadRequest("This task does not run any more.", code="gone", status=410)


def _work_id(task_id: str) -> str:
    return f"work{task_id.removeprefix('task')}"


def _finish(tx: Tx, task: Task) -> Task:
    """Return a task whose next run does not continue its newest one."""
    exchange = newest_exchange(tx, task)
    finished = task.finished if exchange is None else exchange[1].question_id
    return msgspec.structs.replace(task, finished=finished, attempt=1, resumes=0)


def remove(tx: Tx, user: str, task_id: str) -> bool:
    """Delete a task with its conversation; return whether it existed. Its process notices that it no longer owns it."""
    number = users.find(tx, user)
    row = tx.execute("SELECT key, id FROM task WHERE account = ? AND id = ?", (number, task_id)).fetchone()
    if number is None or row is None:
        return False
    _remove(tx, number, *row)
    return True


def remove_all(tx: Tx, user: str, conversation_id: str) -> None:
    """Delete the tasks of a conversation with what they created, and what the channel has about the conversation."""
    number = users.find(tx, user)
    for key, task_id in _of_conversation(tx, number, conversation_id):
        assert number is not None
        _remove(tx, number, key, task_id)
    for table in ("channel", "channel_cursor"):
        tx.execute(f"DELETE FROM {table} WHERE account = ? AND conversation = ?", (number, conversation_id))


def _remove(tx: Tx, user: int, key: int, task_id: str) -> None:
    query = "SELECT key FROM conversation WHERE account = ? AND id = ?"
    row = tx.execute(query, (user, _work_id(task_id))).fetchone()
    if row is not None:
        deletion.delete_conversation(tx, row[0])
    tx.execute("DELETE FROM channel WHERE account = ? AND task = ?", (user, task_id))
    tx.execute("DELETE FROM task WHERE key = ?", (key,))


def decide(tx: Tx, user: str, task_id: str, call_id: str, approve: bool) -> Task:
    """Approve or decline a call that a task waits for. The task then continues.

    Raises:
        BadRequest: `not_found`, the task has no such call; `decided`, it was decided differently.
    """
    task = find(tx, user, task_id)
    exchange = None if task is None else newest_exchange(tx, task)
    parts = [] if exchange is None else exchange[1].parts
    calls = [part for part in parts if isinstance(part, Call) and part.id == call_id and part.approval is not None]
    if task is None or exchange is None or not calls:
        raise BadRequest("No call with this ID waits for approval.", "call_id", code="not_found", status=404)
    decision: Approval = "approved" if approve else "declined"
    call = calls[-1]
    if task.approval is None or task.approval.call_id != call_id or call.approval != "asked":
        if call.approval == decision:
            return task
        raise BadRequest(f"This call was already {call.approval}.", "approve", code="decided", status=409)
    call.approval = decision
    key, stored = exchange
    tx.execute("UPDATE exchange SET data = ? WHERE key = ?", (rows.encode(stored), key))
    changed = msgspec.structs.replace(task, state="pending", approval=None, next_run=moment(tx.now))
    changed = _write(tx, changed)
    append(tx, changed, "state")
    return changed


def current_exchange(tx: Tx, task: Task) -> Exchange | None:
    """Return what the current run of a task has stored so far."""
    found = newest_exchange(tx, task)
    return None if found is None else found[1]


def newest_exchange(tx: Tx, task: Task) -> tuple[int, Exchange] | None:
    """Return the key and the exchange of the current run; None if the run has not begun."""
    newest = f"SELECT max(e.key) FROM exchange e WHERE {exchanges.IN_CONVERSATION}"
    found = tx.execute(
        "SELECT n.key, n.data FROM account a JOIN conversation c ON c.account = a.key "
        f"JOIN exchange n ON n.key = ({newest}) WHERE a.name = ? AND c.id = ?",
        (task.user, task.work_id),
    ).fetchall()
    for exchange in rows.readable(rows.read_exchange, found):
        return None if exchange.question_id == task.finished else (found[0][0], exchange)
    return None


# running


def look(tx: Tx, at_once: int, per_user: int) -> Look:
    """Read what a process needs to know at a wake-up.

    Args:
        at_once: Running tasks in all processes.
        per_user: Running tasks of one user.
    """
    now = tx.now
    own = tx.execute("SELECT data FROM task WHERE process = ?", (tx.process,)).fetchall()
    query = "SELECT max(key), count(*) FROM channel WHERE key > (SELECT max(key) FROM channel) - ?"
    ((last_packet, packets),) = tx.execute(query, (COUNTED,)).fetchall()
    query = "SELECT min(due), min(CASE WHEN due > ? THEN due END) FROM task WHERE due IS NOT NULL"
    ((first, later),) = tx.execute(query, (now,))
    ((running,),) = tx.execute("SELECT count(*) FROM task WHERE state = 'running'")
    due: list[Task | None] = []
    if first is not None and first <= now and running < at_once:
        found = tx.execute(
            "SELECT t.data FROM (SELECT key, row_number() OVER (PARTITION BY account ORDER BY due, key) AS place "
            "FROM task WHERE due <= ?) p JOIN task t ON t.key = p.key JOIN account a ON a.key = t.account "
            f"WHERE p.place <= ? AND ({_RUNNING_OF_USER}) < ? "
            f"ORDER BY p.place, ({_RUNNING_OF_USER}), a.claimed, t.due, t.account LIMIT ?",
            (now, MAX_DUE, per_user, MAX_DUE),
        )
        due = [read(data) for (data,) in found]
    stale = f"SELECT 1 FROM {_ORPHANS} UNION ALL SELECT 1 FROM task WHERE state = 'pending' AND due > ? LIMIT 1"
    has_stale = tx.execute(stale, (tx.process, now + RETRY_SECONDS * SECOND)).fetchone() is not None
    return Look(
        last_packet or 0,
        packets,
        {task.id: task for (data,) in own if (task := read(data)) is not None},
        due,
        None if later is None else (later - now) / SECOND,
        has_stale,
        list_unreported(tx),
    )


def claim(tx: Tx, due: Sequence[DueTask], at_once: int, per_user: int) -> list[Task]:
    """Claim due tasks: first those of users with the fewest running ones, then of those who waited longest.

    A run over a daily limit is skipped, and a run that its process did not survive too often fails.

    Args:
        due: Those of `look`. A task that has changed since then is left for the next look.
        at_once: As for `look`.
    """
    now = tx.now
    known = {one.task.id: one for one in due}
    claimed: list[Task] = []
    while known and (row := tx.execute(_NEXT_DUE, (now, per_user, now, at_once)).fetchone()) is not None:
        key, data, user, is_private = row  # the task's conversation may have become private
        task = _read_or_set_aside(tx, key, data)
        if task is None:
            continue
        one = known.pop(task.id, None)
        if one is None or one.task != task:
            break
        if task.resumes > MAX_RESUMES:
            reason = f"the server stopped {task.resumes} times while the task ran"
            failed = msgspec.structs.replace(_finish(tx, task), failures=task.failures + 1, reason=reason)
            _write_end(tx, _after_run(failed, "failed", one.next_run), "failure", reason)
            continue
        if task.resumes == 0 and task.attempt == 1 and newest_exchange(tx, task) is None:  # a new run
            if problem := _find_reached_limit(tx, user, one.limits):
                _skip(tx, task, problem, one.next_run or next_day(moment(now)))
                continue
            task = msgspec.structs.replace(task, run=task.run + 1, reason="")
            _add_usage(tx, user, runs=1)
        private = task.private or bool(is_private)
        task = msgspec.structs.replace(task, state="running", next_run=None, turn_id="", activity="", private=private)
        task = _write(tx, task, process=tx.process)
        tx.execute("UPDATE account SET claimed = ? WHERE key = ?", (append(tx, task, "state"), user))
        claimed.append(task)
    return claimed


def _find_reached_limit(tx: Tx, user: int, limits: DayLimits) -> str:
    """Return why a user's tasks do not run today; empty if they do."""
    runs, tokens = _usage(tx, user, column="runs")
    if limits.runs and runs >= limits.runs:
        return f"the limit of {limits.runs:,} task runs per day is reached"
    if limits.tokens and tokens >= limits.tokens:
        return f"the limit of {limits.tokens:,} tokens per day for tasks is reached"
    return ""


def _skip(tx: Tx, task: Task, reason: str, time: datetime) -> None:
    """Skip a run over a daily limit. The conversation reports the first of several in a row."""
    kind: PacketKind = "state" if task.reason == reason else "skipped"
    skipped = _write(tx, msgspec.structs.replace(task, state="waiting", next_run=time, reason=reason))
    text = f"{reason}; next run: {time:%Y-%m-%d %H:%M} UTC"
    append(tx, msgspec.structs.replace(skipped, run=task.run + 1), kind, text)


def next_day(now: datetime) -> datetime:
    """Return the next midnight in UTC, when the daily limits are reset."""
    return moment((micros(now) // DAY + 1) * DAY)


def _after_run(task: Task, state: TaskState, next_run: datetime | None) -> Task:
    """Return a task after a run: in this state, if its schedule has no next time."""
    return msgspec.structs.replace(
        task, state=state if next_run is None else "waiting", next_run=next_run, activity="", approval=None
    )


def _write_end(tx: Tx, task: Task, kind: PacketKind, text: str) -> None:
    """Write the end of a run; pause a schedule that failed too often."""
    if kind == "failure" and task.state == "waiting" and task.failures >= MAX_FAILURES and not task.paused:
        text = f"{task.failures} failures in a row: {task.reason}"
        task, kind = msgspec.structs.replace(task, paused=True, reason=text), "paused"
    append(tx, _write(tx, task), kind, text)


def recover(tx: Tx) -> None:
    """Let tasks whose process has died run again, and pending ones whose time comes from a clock that was set back."""
    query = "UPDATE task SET due = ? WHERE state = 'pending' AND due > ?"
    tx.execute(query, (tx.now, tx.now + RETRY_SECONDS * SECOND))
    for key, data in tx.execute(f"SELECT key, data FROM {_ORPHANS}", (tx.process,)).fetchall():
        task = _read_or_set_aside(tx, key, data)
        if task is not None:
            changes = {"state": "pending", "next_run": moment(tx.now), "resumes": task.resumes + 1, "activity": ""}
            append(tx, _write(tx, msgspec.structs.replace(task, **changes)), "state")


def list_waiting(tx: Tx) -> list[Task]:
    """Return the tasks of all users that wait for a time."""
    found = tx.execute("SELECT data FROM task WHERE state = 'waiting' AND due > ?", (tx.now,))
    return [task for (data,) in found if (task := read(data)) is not None]


def correct_times(tx: Tx, times: Sequence[tuple[Task, datetime]]) -> None:
    """Give tasks of `list_waiting` another time, except those that have changed since then."""
    for task, time in times:
        if find(tx, task.user, task.id) == task:
            append(tx, _write(tx, msgspec.structs.replace(task, next_run=time)), "state")


def set_turn(tx: Tx, task: Task, turn_id: str, activity: str) -> bool:
    """Record what a running task does; return whether the process still owns the task."""
    row = tx.execute("SELECT data FROM task WHERE id = ? AND process = ?", (task.id, tx.process)).fetchone()
    stored = None if row is None else read(row[0])
    if stored is None:
        return False
    changed = msgspec.structs.replace(stored, turn_id=turn_id, activity=activity)
    if changed != stored:
        _write(tx, changed, process=tx.process)
        append(tx, changed, "state")
    return True


def end_run(tx: Tx, end: RunEnd) -> None:
    """End a run in the transaction that stores its answer, unless another process or a person took the task."""
    row = tx.execute(
        "SELECT data, account FROM task WHERE id = ? AND process = ?", (end.task.id, tx.process)
    ).fetchone()
    task = None if row is None else read(row[0])
    if task is None or (task.run, task.resumes) != (end.task.run, end.task.resumes):
        return
    task = msgspec.structs.replace(task, private_data=task.private_data or end.exchange.private_data)
    usage = end.exchange.usage
    if usage is not None:
        _add_usage(tx, row[1], tokens=usage.prompt_tokens + usage.completion_tokens)
    changes: dict[str, object] = {"activity": "", "resumes": 0, "approval": None}
    kind: PacketKind = "state"
    text = ""
    if end.outcome == "waiting":
        changes |= {"state": "waiting", "approval": end.approval}
        kind, text = "approval", end.approval.text if end.approval is not None else ""
    elif end.outcome == "pending":
        changes |= {"state": "pending", "next_run": moment(tx.now), "resumes": task.resumes}
    elif end.outcome == "failed" and end.may_retry and task.attempt < MAX_ATTEMPTS:
        changes |= {
            "state": "pending",
            "next_run": moment(tx.now + RETRY_SECONDS * SECOND),
            "attempt": task.attempt + 1,
        }
        changes["reason"] = end.reason
    else:
        is_same = (task.every, task.start) == (end.task.every, end.task.start)
        next_run = end.next_run if is_same else task.next_run  # who changes a schedule writes its next time
        task = _after_run(_finish(tx, task), end.outcome, next_run)
        changes = {"reason": end.reason}
        if end.outcome == "succeeded":
            changes |= {"failures": 0, "summary": ""}
            kind, text = "result", end.exchange.answer.strip()
        elif end.outcome == "failed":
            changes["failures"] = task.failures + 1
            kind, text = "failure", end.reason
        calls = [part for part in end.exchange.parts if isinstance(part, Call)]
        names = ", ".join(sorted({call.name for call in calls if call.code == "interrupted"}))
        if names and kind != "state":
            text = f"The server stopped during calls of {names}. Check whether they took effect.\n\n{text}"
        if kind == "result":
            changes["result"] = text[:MAX_RESULT]
    _write_end(tx, msgspec.structs.replace(task, **changes), kind, text)


def _write(tx: Tx, task: Task, process: str | None = None) -> Task:
    """Store a changed task; return it with the time of its change.

    Args:
        process: The process that runs it from now on. A running task keeps its own.
    """
    task = msgspec.structs.replace(task, changed=moment(tx.now))
    columns = _columns(task)
    if process is not None or task.state != "running":
        columns["process"] = process
    assigned = ", ".join(f"{column} = ?" for column in columns)
    tx.count(str(columns["data"]))
    tx.execute(f"UPDATE task SET {assigned} WHERE id = ?", (*columns.values(), task.id))
    return task


def _columns(task: Task) -> dict[str, object]:
    is_due = task.state == "pending" or (task.state == "waiting" and task.approval is None and not task.paused)
    return {
        "conversation": task.conversation_id,
        "state": task.state,
        "is_active": task.state in ACTIVE,
        "due": micros(task.next_run) if is_due and task.next_run is not None else None,
        "fingerprint": _fingerprint(task),
        "data": _encode(task).decode(),
    }


# usage


def _usage(tx: Tx, user: int, column: str = "created") -> tuple[int, int]:
    query = f"SELECT {column}, tokens FROM task_usage WHERE account = ? AND day = ?"
    row = tx.execute(query, (user, tx.now // DAY)).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def _add_usage(tx: Tx, user: int, created: int = 0, runs: int = 0, tokens: int = 0) -> None:
    day, added = tx.now // DAY, (created, runs, tokens)
    usage = tx.execute(
        "INSERT INTO task_usage (account, day, created, runs, tokens) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (account, day) DO UPDATE SET created = task_usage.created + excluded.created, "
        "runs = task_usage.runs + excluded.runs, tokens = task_usage.tokens + excluded.tokens "
        "RETURNING created, runs, tokens",
        (user, day, *added),
    ).fetchone()
    if tuple(usage) == added:  # the first of the day
        tx.execute("DELETE FROM task_usage WHERE account = ? AND day NOT BETWEEN ? AND ?", (user, day - 1, day))


# the channel


def append(tx: Tx, task: Task, kind: PacketKind, text: str = "") -> int:
    """Append a packet about a task; return its key."""
    needs_report = kind in TOLD and (task.tell == "always" or kind in ("approval", "paused"))
    packet = Packet(
        0, moment(tx.now), kind, task.user, task.conversation_id, task.id, task.title, task.state, task.run,
        (text if kind == "approval" else text[:PACKET_TEXT]) or task.activity,
    )  # fmt: skip
    return _append(tx, packet, is_told=not needs_report)


def append_report(tx: Tx, user: str, conversation_id: str, turn_id: str) -> int:
    """Append that a turn reports in a conversation."""
    packet = Packet(0, moment(tx.now), "report", user, conversation_id, turn_id=turn_id)
    return _append(tx, packet, is_told=True)


def _append(tx: Tx, packet: Packet, *, is_told: bool) -> int:
    """Append a packet; delete those that need no report any more, and from which no client resumes."""
    tx.execute("DELETE FROM channel WHERE is_told = 1 AND at < ?", (tx.now - KEEP_PACKETS,))
    data = _encode(packet).decode()
    tx.count(data)
    query = (
        "INSERT INTO channel (account, conversation, task, at, is_told, data) "
        "SELECT key, ?, ?, ?, ?, ? FROM account WHERE name = ? RETURNING key"
    )
    values = packet.conversation_id, packet.task_id, tx.now, is_told, data, packet.user
    return int(tx.execute(query, values).fetchone()[0])


def read_channel(tx: Tx, user: str, after: int, limit: int = MAX_READ) -> list[Packet]:
    """Return the packets of a user after a cursor, oldest first: from the oldest one if some were pruned."""
    number = users.find(tx, user)
    found = tx.execute(
        "SELECT key, data FROM channel WHERE account = ? AND key > ? AND is_told < 2 ORDER BY key LIMIT ?",
        (number, after, limit),
    ).fetchall()
    return list(_packets(found))


def newest_packet(tx: Tx, user: str) -> int:
    """Return the key of the newest packet of a user, or 0."""
    query = "SELECT max(key) FROM channel WHERE account = ?"
    ((key,),) = tx.execute(query, (users.find(tx, user),)).fetchall()
    return key or 0


def read_unreported(tx: Tx, user: str, conversation_id: str, limit: int = MAX_READ) -> list[Packet]:
    """Return the packets of a conversation that nobody has reported, oldest first. Damaged ones are set aside."""
    found = tx.execute(
        "SELECT key, data FROM channel WHERE account = ? AND conversation = ? AND is_told = 0 AND key > "
        "coalesce((SELECT cursor FROM channel_cursor r WHERE r.account = channel.account "
        "AND r.conversation = channel.conversation), 0) ORDER BY key LIMIT ?",
        (users.find(tx, user), conversation_id, limit),
    ).fetchall()
    return list(_packets(found))


def read_news(tx: Tx, user: str, conversation_id: str) -> tuple[list[Packet], dict[str, Task]]:
    """Return the packets to report, and by their IDs the newest tasks of the conversation and those of the packets."""
    packets = read_unreported(tx, user, conversation_id)
    named = {one.id: one for one in list_tasks(tx, user, conversation_id=conversation_id)} if packets else {}
    for task_id in {packet.task_id for packet in packets} - named.keys():
        if (task := find(tx, user, task_id)) is not None:
            named[task_id] = task
    return packets, named


def check_unreported(tx: Tx, user: str, conversation_id: str) -> None:
    """Check that a conversation has packets to report.

    Raises:
        NothingToReport: It has none.
    """
    if not read_unreported(tx, user, conversation_id):
        raise NothingToReport


def set_aside_damaged(tx: Tx) -> None:
    """Mark packets that cannot be read, so that they need no report."""
    found = tx.execute("SELECT key, data FROM channel WHERE is_told = 0").fetchall()
    damaged = [(key,) for key, data in found if not _is_packet(data)]
    tx.executemany("UPDATE channel SET is_told = 2 WHERE key = ?", damaged)


def list_unreported(tx: Tx) -> list[Unreported]:
    """Return the conversations with packets to report."""
    found = tx.execute(
        "SELECT a.name, c.conversation, min(c.at), max(c.at), coalesce(r.reported, 0), coalesce(r.held_until, 0) "
        "FROM channel c JOIN account a ON a.key = c.account "
        "LEFT JOIN channel_cursor r ON r.account = c.account AND r.conversation = c.conversation "
        "WHERE c.is_told = 0 AND a.name IS NOT NULL AND c.key > coalesce(r.cursor, 0) "
        "GROUP BY a.name, c.conversation, r.reported, r.held_until"
    )
    return [Unreported(*row) for row in found]


def end_report(tx: Tx, end: ReportEnd) -> None:
    """Move the cursor of a conversation, and do what the report decided, in the transaction that stores its words.

    A cursor that is there already, since the end is stored a second time, changes nothing.
    """
    number = users.find(tx, end.user)
    moved = tx.execute(
        "INSERT INTO channel_cursor (account, conversation, cursor, reported) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (account, conversation) DO UPDATE SET cursor = excluded.cursor, reported = excluded.reported "
        "WHERE channel_cursor.cursor < excluded.cursor RETURNING 1",
        (number, end.conversation_id, end.cursor, tx.now),
    ).fetchall()
    query = "UPDATE channel SET is_told = 1 WHERE account = ? AND conversation = ? AND is_told = 0 AND key <= ?"
    tx.execute(query, (number, end.conversation_id, end.cursor))
    for action in end.actions if moved else ():
        try:
            action(tx)
        except BadRequest as error:  # another request was faster
            log.warning("conversation %s: a change of the report was rejected: %s", end.conversation_id, error)


def delay_reports(tx: Tx, user: str, conversation_id: str, seconds: float) -> None:
    """Let reports of a conversation wait from now on, if it has tasks."""
    tx.execute(
        "INSERT INTO channel_cursor (account, conversation, held_until) SELECT account, conversation, ? FROM task "
        "WHERE account = ? AND conversation = ? LIMIT 1 "
        "ON CONFLICT (account, conversation) DO UPDATE SET held_until = excluded.held_until",
        (tx.now + round(seconds * SECOND), users.find(tx, user), conversation_id),
    )


def _packets(found: Sequence[tuple[int, str]]) -> Sequence[Packet]:
    packets = []
    for key, data in found:
        try:
            packets.append(msgspec.structs.replace(_decode_packet(data), key=key))
        except msgspec.MsgspecError:
            continue
    return packets


def _is_packet(data: str) -> bool:
    try:
        _decode_packet(data)
    except msgspec.MsgspecError:
        return False
    return True
