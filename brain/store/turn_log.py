"""Turns that several processes know: who runs them, their events as frames, and commands from other processes.

The process that runs a turn owns its row, prolongs the row's lease, and adds the newest events a few times per second.
Other processes read them, and leave commands, which the owner answers. When the owner is gone and its lease is over,
another process ends the turn. What was answered until then is part of its exchange, see `text_after_snapshot`.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from brain.errors import BadRequest
from brain.messages import Exchange, Text
from brain.store import connection, rows
from brain.store.database import Database
from brain.store.rows import SECOND
from brain.store.schema import EXCHANGES

LEASE = 15 * SECOND
COMMAND_LIFE = 60 * SECOND
"""After so long a command that was left by a process is deleted, whether or not it was answered."""

_COLUMNS = "id, user, conversation, request, options, replayable, owner, began, ended, seen, report"


class RequestTaken(BadRequest):
    """Another turn has this request ID."""


class NewTurn(NamedTuple):
    """A turn that begins.

    Attributes:
        options: what its protocol wants to know of it later.
        is_replayable: whether its events are stored.
    """

    id: str
    user: str | None
    conversation_id: str
    request_id: str | None = None
    options: str = ""
    is_replayable: bool = True


class StoredTurn(NamedTuple):
    """A turn of any process.

    Attributes:
        owner: the process that runs it.
        ended: when it ended, in microseconds; None while it runs.
        left_at: the number of the last event that the reader who left last had received.
        report: as JSON, as far as the owner wrote one.
    """

    id: str
    user: str | None
    conversation_id: str
    request_id: str | None
    options: str
    is_replayable: bool
    owner: str
    began: int
    ended: int | None
    left_at: int
    report: str


class Frames(NamedTuple):
    """The native frames of some events that follow each other, by the numbers of the first and the last."""

    first: int
    last: int
    data: bytes


class Progress(NamedTuple):
    """What a process has to write of a turn of its own.

    Attributes:
        exchange: the key of its exchange, if it has one.
        text: visible text of the answer that `frames` hold; what is in `snapshot` already is left out.
        snapshot: the exchange as far as it is; None if only text was added to the one before.
        keep_from: the number of the first event that is still of use.
        report: as JSON; empty if it is as before.
    """

    turn: NewTurn
    exchange: int | None
    frames: Frames | None
    text: str
    snapshot: Exchange | None
    keep_from: int
    has_ended: bool
    left_at: int
    report: str


class Command(NamedTuple):
    """What another process wants of a turn."""

    key: int
    turn_id: str
    data: bytes


class News(NamedTuple):
    """What other processes wrote for this one.

    Attributes:
        answers: of commands, by their keys.
        over: followed turns of which nothing more will come: they ended, or are no longer kept.
    """

    commands: Sequence[Command]
    frames: Mapping[str, Sequence[Frames]]
    answers: Mapping[int, bytes]
    over: Sequence[str]


class TurnLog:
    """The turns of all processes that share one file.

    Args:
        owner: a name of this process that no other one has.
        now: microseconds since 1970, by the clock of this process.
        interrupt: marks an exchange, by its key, whose process is gone.
    """

    def __init__(
        self,
        database: Database,
        owner: str,
        now: Callable[[], int],
        interrupt: Callable[[sqlite3.Connection, int], None],
    ) -> None:
        self._database = database
        self._owner = owner
        self._now = now
        self._interrupt = interrupt
        self._closing = ExitStack()
        self._watcher: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open the connection that `version` uses."""
        assert self._database.path is not None
        self._watcher = connection.open_reader(self._database.path, self._closing)
        self._watcher.execute("PRAGMA busy_timeout = 0")

    def close(self) -> None:
        """Close it."""
        self._watcher = None
        self._closing.close()

    def version(self) -> int:
        """A number that changes with each commit of any process. It waits for no disk and no other process."""
        if self._watcher is None:
            return 0
        try:
            return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            return -1

    async def write(self, progress: Sequence[Progress], forgotten: Sequence[str]) -> None:
        """Write what is new of turns of this process, and delete turns.

        Raises:
            StoreError: when it cannot be written.
        """
        write = partial(_write, owner=self._owner, now=self._now(), progress=progress, forgotten=forgotten)
        await self._database.write(write, durable=False)

    async def find(self, turn_id: str) -> StoredTurn | None:
        """A turn by its ID."""
        return await self._one("id = ?", turn_id)

    async def requested(self, user: str | None, request_id: str) -> StoredTurn | None:
        """The turn that a user began with this request ID."""
        return await self._one("user = ? AND request = ?", user or "", request_id)

    async def newest(self, user: str | None, conversation_id: str) -> StoredTurn | None:
        """The newest turn of a conversation."""
        return await self._one("conversation = ? AND user = ? ORDER BY began DESC LIMIT 1", conversation_id, user or "")

    async def _one(self, condition: str, *values: str) -> StoredTurn | None:
        query = f"SELECT {_COLUMNS} FROM turn WHERE {condition}"
        row = await self._database.read(lambda db: db.execute(query, values).fetchone())
        return None if row is None else _stored_turn(row)

    async def news(self, after_command: int, followed: Mapping[str, int], asked: Sequence[int]) -> News:
        """What other processes wrote.

        Args:
            after_command: the key of the newest command that this process has seen.
            followed: turns whose events are read, with the number of the last event that is known.
            asked: the keys of commands whose answers are awaited.
        """
        read = partial(_news, owner=self._owner, after_command=after_command, followed=followed, asked=asked)
        return await self._database.read(read)

    async def ask(self, turn_id: str, data: bytes, *, is_answered: bool = True) -> int:
        """Leave a command for the process that runs a turn; its key."""
        row = turn_id, None if is_answered else b"", self._owner, self._now(), data
        return await self._database.write(partial(_ask, row=row), durable=False)

    async def answer(self, answers: Mapping[int, bytes]) -> None:
        """Answer commands, by their keys."""
        values = [(answer, key) for key, answer in answers.items()]
        query = "UPDATE turn_command SET answer = ? WHERE key = ? AND answer IS NULL"
        await self._database.write(lambda db: db.executemany(query, values) and None, durable=False)

    async def leave(self, turn_id: str, left_at: int) -> None:
        """Note how much of a turn of another process a reader had received."""
        query = "UPDATE turn SET seen = max(seen, ?) WHERE id = ?"
        await self._database.write(lambda db: db.execute(query, (left_at, turn_id)) and None, durable=False)

    async def prolong(self) -> None:
        """Say that the turns of this process still run; and cut leases that are too long, see `lapsed`."""
        query = "UPDATE turn SET until = ? WHERE ended IS NULL AND (owner = ? OR until > ?)"
        until = self._now() + LEASE
        await self._database.write(lambda db: db.execute(query, (until, self._owner, until)) and None, durable=False)

    async def lapsed(self) -> tuple[Sequence[tuple[StoredTurn, int]], bool]:
        """Turns whose process is gone, each with the number of its last event.

        Returns:
            These, and whether any lease is longer than one that begins now: a clock was ahead when it was made.
        """
        return await self._database.read(partial(_lapsed, now=self._now(), owner=self._owner))

    async def end_lapsed(self, turn: StoredTurn, last: Frames, report: str) -> None:
        """End a turn of a process that is gone, unless another process has done it already."""
        now = self._now()

        def write(db: sqlite3.Connection) -> None:
            if _end_lapsed(db, turn, last, report, self._owner, now):
                query = (
                    "SELECT e.key FROM turn t JOIN exchange e ON e.key = t.exchange WHERE t.id = ? AND e.outcome = ''"
                )
                for (key,) in db.execute(query, (turn.id,)).fetchall():
                    self._interrupt(db, key)

        await self._database.write(write, durable=False)

    async def sweep(self, seconds: float) -> None:
        """Delete turns that ended so long ago, whoever ran them, and old commands."""
        now = self._now()
        before = now - round(seconds * SECOND)
        query = "SELECT EXISTS (SELECT 1 FROM turn WHERE ended < ?) OR EXISTS (SELECT 1 FROM turn_command WHERE at < ?)"
        values = before, now - COMMAND_LIFE
        if (await self._database.read(lambda db: db.execute(query, values).fetchone()))[0]:
            await self._database.write(partial(_sweep, values=values), durable=False)


def begin(db: sqlite3.Connection, turn: NewTurn, owner: str, now: int) -> None:
    """Note a turn that begins, in the transaction that stores its question.

    Raises:
        RequestTaken: when the user began another turn with the same request ID.
    """
    try:
        db.execute(
            "INSERT INTO turn (id, user, conversation, request, options, replayable, owner, began, until) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (turn.id, turn.user or "", *turn[2:], owner, now, now + LEASE),
        )
    except sqlite3.IntegrityError:
        message = "A turn with this request_id begins at the same moment; try again."
        raise RequestTaken(message, "request_id", code="busy", status=409) from None


def hold(db: sqlite3.Connection, turn_id: str, exchange: int) -> None:
    """Note which exchange a turn answers."""
    db.execute("UPDATE turn SET exchange = ? WHERE id = ?", (exchange, turn_id))


def text_after_snapshot(db: sqlite3.Connection, exchange: int) -> str:
    """The text that the log has beyond what stands in an exchange."""
    found = db.execute(
        "SELECT l.text FROM conversation c JOIN turn t ON t.conversation = c.id AND t.exchange = ? "
        "JOIN turn_log l ON l.turn = t.id AND l.first > t.noted WHERE c.key = ? ORDER BY l.first",
        (exchange, exchange >> EXCHANGES),
    )
    return "".join(text for (text,) in found)


def add_text(exchange: Exchange, text: str) -> None:
    """Add text to the end of an answer."""
    last = exchange.parts[-1] if exchange.parts else None
    if not text:
        return
    if isinstance(last, Text):
        exchange.parts[-1] = Text(last.text + text, last.turn_pass)
    else:
        exchange.parts.append(Text(text, 1 if last is None else last.turn_pass + 1))


def forget(db: sqlite3.Connection, user: str, conversation_id: str | None = None) -> None:
    """Delete the turns of a user, or those of one conversation."""
    if conversation_id is None:
        db.execute("DELETE FROM turn WHERE user = ?", (user,))
    else:
        db.execute("DELETE FROM turn WHERE conversation = ? AND user = ?", (conversation_id, user))


def forget_all(db: sqlite3.Connection) -> None:
    """Delete all turns: no process is left that could read them."""
    db.execute("DELETE FROM turn")
    db.execute("DELETE FROM turn_command")


def _stored_turn(row: Sequence[Any]) -> StoredTurn:
    turn_id, user, *more = row
    return StoredTurn(turn_id, user or None, *more)


def _write(
    db: sqlite3.Connection, owner: str, now: int, progress: Sequence[Progress], forgotten: Sequence[str]
) -> None:
    for one in progress:
        if one.exchange is None and one.frames is not None and one.frames.first == 1:
            begin(db, one.turn, owner, now)  # others were noted with their exchange, and may be deleted by now
    db.executemany(
        "INSERT INTO turn_log (turn, first, last, frames, text) SELECT id, ?, ?, ?, ? FROM turn "
        "WHERE id = ? AND owner = ?",
        [(*one.frames, one.text, one.turn.id, owner) for one in progress if one.frames is not None],
    )
    for one in progress:
        if one.snapshot is not None and one.exchange is not None:
            _note(db, one.exchange, one.snapshot, owner)
        last = None if one.frames is None or one.snapshot is None else one.frames.last
        if one.has_ended or one.report or last is not None or one.left_at:
            db.execute(
                "UPDATE turn SET noted = coalesce(?, noted), seen = max(seen, ?), ended = coalesce(ended, ?), "
                "report = CASE WHEN ? <> '' THEN ? ELSE report END WHERE id = ? AND owner = ?",
                (last, one.left_at, now if one.has_ended else None, one.report, one.report, one.turn.id, owner),
            )
        if one.keep_from > 1:
            db.execute("DELETE FROM turn_log WHERE turn = ? AND last < ?", (one.turn.id, one.keep_from))
    db.executemany("DELETE FROM turn WHERE id = ?", [(turn_id,) for turn_id in forgotten])


def _note(db: sqlite3.Connection, key: int, exchange: Exchange, owner: str) -> None:
    """Write how far an answer is: what there is of it, with later text from the log, if it gets no further."""
    query = "UPDATE exchange SET data = ? WHERE key = ? AND owner = ? AND outcome = ''"
    db.execute(query, (rows.encode(exchange), key, owner))


def _news(
    db: sqlite3.Connection, owner: str, after_command: int, followed: Mapping[str, int], asked: Sequence[int]
) -> News:
    commands = db.execute(
        "SELECT c.key, c.turn, c.command FROM turn_command c JOIN turn t ON t.id = c.turn "
        "WHERE c.key > ? AND t.owner = ? ORDER BY c.key",
        (after_command, owner),
    ).fetchall()
    answers = {}
    for key in asked:
        row = db.execute("SELECT answer FROM turn_command WHERE key = ? AND answer IS NOT NULL", (key,)).fetchone()
        if row is not None:
            answers[key] = row[0]
    is_running = "SELECT 1 FROM turn WHERE id = ? AND ended IS NULL"
    over = [turn_id for turn_id in followed if db.execute(is_running, (turn_id,)).fetchone() is None]
    frames = {turn_id: found for turn_id, last in followed.items() if (found := _frames(db, turn_id, last))}
    return News([Command(*row) for row in commands], frames, answers, over)


def _frames(db: sqlite3.Connection, turn_id: str, after: int) -> Sequence[Frames]:
    query = "SELECT first, last, frames FROM turn_log WHERE turn = ? AND first > ? ORDER BY first"
    return [Frames(*row) for row in db.execute(query, (turn_id, after))]


def _ask(db: sqlite3.Connection, row: Sequence[Any]) -> int:
    query = "INSERT INTO turn_command (turn, answer, asker, at, command) VALUES (?, ?, ?, ?, ?)"
    return int(db.execute(query, row).lastrowid or 0)


def _lapsed(db: sqlite3.Connection, now: int, owner: str) -> tuple[Sequence[tuple[StoredTurn, int]], bool]:
    found = db.execute(
        f"SELECT {_COLUMNS}, (SELECT coalesce(max(last), 0) FROM turn_log WHERE turn = id) FROM turn "
        "WHERE ended IS NULL AND owner <> ? AND until < ?",
        (owner, now),
    ).fetchall()
    too_long = db.execute("SELECT 1 FROM turn WHERE ended IS NULL AND until > ? LIMIT 1", (now + LEASE,)).fetchone()
    return [(_stored_turn(row), last) for *row, last in found], too_long is not None


def _end_lapsed(db: sqlite3.Connection, turn: StoredTurn, frames: Frames, report: str, owner: str, now: int) -> bool:
    ended = db.execute(
        "UPDATE turn SET owner = ?, ended = ?, report = ? WHERE id = ? AND owner = ? AND ended IS NULL AND until < ?",
        (owner, now, report, turn.id, turn.owner, now),
    )
    if ended.rowcount:
        query = "INSERT INTO turn_log (turn, first, last, frames, text) VALUES (?, ?, ?, ?, '')"
        db.execute(query, (turn.id, *frames))
    return ended.rowcount > 0


def _sweep(db: sqlite3.Connection, values: Sequence[int]) -> None:
    db.execute("DELETE FROM turn WHERE ended < ?", values[:1])
    db.execute("DELETE FROM turn_command WHERE at < ?", values[1:])
