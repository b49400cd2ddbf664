"""Shares turns between processes: their owners, their events as frames, and commands from other processes.

The process that runs a turn owns its row, renews its lease, and appends new events a few times per second. Other
processes read the events and leave commands, which the owner answers. When a lease expires, another process ends the
turn. Its exchange keeps the text so far, see `text_after_snapshot`.

New events of all turns go to the end of the log, so that one write of many turns changes few pages.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from brain.errors import BadRequest
from brain.messages import Exchange, Text
from brain.store import connection, exchanges, rows
from brain.store.database import Database
from brain.store.rows import SECOND
from brain.store.tx import Tx

LEASE = 15 * SECOND
COMMAND_LIFE = 60 * SECOND
"""A command is deleted after this time, answered or not."""

_COLUMNS = (
    "t.id, t.user, t.conversation, t.request, t.options, t.is_replayable, t.owner, t.started, t.ended, "
    "t.last_received, t.report"
)
_OVER = (
    "ended < :before AND key < coalesce((SELECT key FROM turn WHERE started >= :before ORDER BY key LIMIT 1), 1 << 62)"
)
"""Whether a turn ended before a time. Turns that began later are not read."""


class RequestTaken(BadRequest):
    """Another turn has the same request ID."""


class NewTurn(NamedTuple):
    """A turn that begins.

    Attributes:
        options: data of its protocol.
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
        last_received: the number of the last event that the last reader received before it disconnected.
        report: the `Exchange` as JSON; empty if the owner wrote none.
    """

    id: str
    user: str | None
    conversation_id: str
    request_id: str | None
    options: str
    is_replayable: bool
    owner: str
    started: int
    ended: int | None
    last_received: int
    report: str


class Frames(NamedTuple):
    """Native frames of consecutive events, with the first and the last event number."""

    first: int
    last: int
    data: bytes


class TurnProgress(NamedTuple):
    """New data of a turn, for its owner to write.

    Attributes:
        exchange: the key of its exchange, if it is stored.
        text: visible text of the frames that `snapshot` does not have.
        snapshot: the exchange so far; None if only text was added.
        keep_from: the number of the first event to keep.
        report: the `Exchange` as JSON; empty if it did not change.
    """

    turn: NewTurn
    exchange: int | None
    frames: Frames | None
    text: str
    snapshot: Exchange | None
    keep_from: int
    has_ended: bool
    last_received: int
    report: str


class StoredCommand(NamedTuple):
    """A command from another process."""

    key: int
    turn_id: str
    data: bytes


class News(NamedTuple):
    """New data from other processes.

    Attributes:
        answers: replies by the keys of their commands.
        ended: followed turns that ended or were deleted.
        has_peers: whether another process has the file open, or crashed.
    """

    commands: Sequence[StoredCommand]
    frames: Mapping[str, Sequence[Frames]]
    answers: Mapping[int, bytes]
    ended: Sequence[str]
    has_peers: bool


class TurnLog:
    """The turns of all processes that share one file.

    Args:
        interrupt: marks an exchange as interrupted, by its key.
    """

    def __init__(self, database: Database, interrupt: Callable[[Tx, int], None]) -> None:
        self._database = database
        self._interrupt = interrupt
        self._closing = ExitStack()
        self._watcher: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open the connection that `version` uses."""
        assert self._database.path is not None
        self._watcher = connection.open_reader(self._database.path, self._closing)
        self._watcher.execute("PRAGMA busy_timeout = 0")

    def close(self) -> None:
        """Close the connection."""
        self._watcher = None
        self._closing.close()

    def version(self) -> int:
        """Return a number that changes with each commit of any process. It never blocks."""
        if self._watcher is None:
            return 0
        try:
            return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            return -1

    async def register(self) -> None:
        """Announce this process, so that others look for its commands.

        Raises:
            StoreError: the write failed.
        """
        query = "INSERT INTO process (owner) VALUES (?) ON CONFLICT DO NOTHING"
        await self._database.write_unsynced(_execute, query, (self._database.process,))

    async def unregister(self) -> None:
        """Undo `register`.

        Raises:
            StoreError: the write failed.
        """
        query = "DELETE FROM process WHERE owner = ?"
        await self._database.write_unsynced(_execute, query, (self._database.process,))

    async def write(self, progress: Sequence[TurnProgress], forgotten: Sequence[str]) -> None:
        """Write new data of this process's turns, and delete turns.

        Raises:
            StoreError: the write failed.
        """
        await self._database.write_unsynced(_write, progress, forgotten)

    async def find(self, turn_id: str) -> StoredTurn | None:
        """Return a turn by its ID."""
        return await self._find("turn t WHERE t.id = ?", turn_id)

    async def find_request(self, user: str | None, request_id: str) -> StoredTurn | None:
        """Return the turn that a user began with this request ID."""
        return await self._find("turn t WHERE t.user = ? AND t.request = ?", user or "", request_id)

    async def find_newest(self, user: str | None, conversation_id: str) -> StoredTurn | None:
        """Return the turn of the newest exchange of a conversation."""
        return await self._find(
            "turn t JOIN exchange e ON e.turn = t.key AND e.key = t.exchange WHERE e.key = (SELECT max(x.key) "
            "FROM user u JOIN conversation c ON c.user = u.key JOIN exchange x "
            "ON x.key BETWEEN c.key << 32 AND (c.key + 1) << 32 WHERE u.name = ? AND c.id = ?)",
            user or "",
            conversation_id,
        )

    async def _find(self, source: str, *values: str) -> StoredTurn | None:
        query = f"SELECT {_COLUMNS} FROM {source}"
        row = await self._database.read(lambda tx: tx.execute(query, values).fetchone())
        return None if row is None else _stored_turn(row)

    async def read_news(self, after_command: int, followed: Mapping[str, int], sent: Sequence[int]) -> News:
        """Read new data from other processes.

        Args:
            after_command: the key of the newest known command.
            followed: turns to read, with the number of their last known event.
            sent: keys of commands without an answer so far.
        """
        return await self._database.read(_news, after_command, followed, sent)

    async def add_command(self, turn_id: str, data: bytes, *, is_answered: bool = True) -> int:
        """Leave a command for the process that runs a turn; return its key."""
        query = "INSERT INTO turn_command (turn, answer, asker, at, command) VALUES (?, ?, ?, ?, ?) RETURNING key"

        def add(tx: Tx) -> int:
            row = turn_id, None if is_answered else b"", tx.process, tx.now, data
            return int(tx.execute(query, row).fetchone()[0])

        return await self._database.write_unsynced(add)

    async def add_answers(self, answers: Mapping[int, bytes]) -> None:
        """Answer commands by their keys."""
        values = [(answer, key) for key, answer in answers.items()]
        query = "UPDATE turn_command SET answer = ? WHERE key = ? AND answer IS NULL"
        await self._database.write_unsynced(lambda tx: tx.executemany(query, values) and None)

    async def leave(self, turn_id: str, last_received: int) -> None:
        """Record the last event that a reader of another process's turn received."""
        query = "UPDATE turn SET last_received = max(last_received, ?) WHERE id = ?"
        await self._database.write_unsynced(_execute, query, (last_received, turn_id))

    async def renew_leases(self) -> None:
        """Renew the leases of this process, and shorten leases that are too long, see `find_expired`."""
        query = "UPDATE turn INDEXED BY turn_running SET until = ? WHERE ended IS NULL AND (owner = ? OR until > ?)"

        def renew(tx: Tx) -> None:
            tx.execute(query, (tx.now + LEASE, tx.process, tx.now + LEASE))

        await self._database.write_unsynced(renew)

    async def find_expired(self) -> tuple[Sequence[tuple[StoredTurn, int]], bool]:
        """Find turns whose lease expired.

        Returns:
            These turns, each with the number of its last event; and whether a lease ends later than a new one would,
            because a wrong clock made it.
        """
        last = "SELECT coalesce(max(l.last), 0) FROM turn_log l WHERE l.turn = t.key"
        running = "FROM turn t INDEXED BY turn_running WHERE t.ended IS NULL"

        def read(tx: Tx) -> tuple[Sequence[tuple[StoredTurn, int]], bool]:
            query = f"SELECT {_COLUMNS}, ({last}) {running} AND t.owner <> ? AND t.until < ?"
            found = tx.execute(query, (tx.process, tx.now)).fetchall()
            too_long = tx.execute(f"SELECT 1 {running} AND t.until > ? LIMIT 1", (tx.now + LEASE,)).fetchone()
            return [(_stored_turn(row), number) for *row, number in found], too_long is not None

        return await self._database.read(read)

    async def end_expired(self, turn: StoredTurn, last: Frames, report: str) -> None:
        """End a turn of a process that is gone, unless another process did so first."""

        def write(tx: Tx) -> None:
            row = tx.execute(
                "UPDATE turn SET owner = ?, ended = ?, report = ? WHERE id = ? AND owner = ? AND ended IS NULL "
                "AND until < ? RETURNING key, exchange",
                (tx.process, tx.now, report, turn.id, turn.owner, tx.now),
            ).fetchone()
            if row is None:
                return
            key, exchange = row
            query = "INSERT INTO turn_log (turn, first, last, frames, text) VALUES (?, ?, ?, ?, '')"
            tx.execute(query, (key, *last))
            if tx.execute("SELECT 1 FROM exchange WHERE key = ? AND outcome = ''", (exchange,)).fetchone() is not None:
                self._interrupt(tx, exchange)

        await self._database.write_unsynced(write)

    async def sweep(self, seconds: float) -> None:
        """Delete turns of any process that ended `seconds` ago, and old commands."""
        conditions = {"turn": _OVER, "turn_command": "at < :commands_before"}
        exists = " OR ".join(f"EXISTS (SELECT 1 FROM {table} WHERE {where})" for table, where in conditions.items())

        def values(tx: Tx) -> Mapping[str, int]:
            return {"before": tx.now - round(seconds * SECOND), "commands_before": tx.now - COMMAND_LIFE}

        def delete(tx: Tx) -> None:
            for table, where in conditions.items():
                tx.execute(f"DELETE FROM {table} WHERE {where}", values(tx))

        if (await self._database.read(lambda tx: tx.execute(f"SELECT {exists}", values(tx)).fetchone()))[0]:
            await self._database.write_unsynced(delete)


def _execute(tx: Tx, query: str, values: Sequence[Any]) -> None:
    tx.execute(query, values)


def insert(tx: Tx, turn: NewTurn) -> int:
    """Insert a turn in the transaction that stores its question; return its key.

    Raises:
        RequestTaken: the user began another turn with the same request ID.
    """
    row = tx.execute(
        "INSERT INTO turn (id, user, conversation, request, options, is_replayable, owner, started, until) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING key",
        (turn.id, turn.user or "", *turn[2:], tx.process, tx.now, tx.now + LEASE),
    ).fetchone()
    if row is None:
        message = "Another turn with this `request_id` is starting. Try again."
        raise RequestTaken(message, "request_id", code="busy", status=409)
    return int(row[0])


def set_exchange(tx: Tx, turn: int, exchange: int) -> None:
    """Link a turn to its exchange. The exchange has the key of the turn."""
    tx.execute("UPDATE turn SET exchange = ? WHERE key = ?", (exchange, turn))


def text_after_snapshot(tx: Tx, exchange: int) -> str:
    """Return the text in the log that the stored exchange lacks."""
    found = tx.execute(
        "SELECT l.text FROM exchange e JOIN turn t ON t.key = e.turn AND t.exchange = e.key "
        "JOIN turn_log l ON l.turn = t.key AND l.first > t.snapshot_last WHERE e.key = ? ORDER BY l.first",
        (exchange,),
    )
    return "".join(text for (text,) in found)


def add_text(exchange: Exchange, text: str) -> None:
    """Append text to an answer."""
    last = exchange.parts[-1] if exchange.parts else None
    if not text:
        return
    if isinstance(last, Text):
        exchange.parts[-1] = Text(last.text + text, last.turn_pass)
    else:
        exchange.parts.append(Text(text, 1 if last is None else last.turn_pass + 1))


def forget(tx: Tx, user: str, conversation: int | None = None) -> None:
    """Delete the turns of a user, or of one conversation by its key."""
    if conversation is None:
        tx.execute("DELETE FROM turn WHERE user = ?", (user,))
    else:
        keys = "SELECT turn FROM exchange WHERE key BETWEEN ? AND ?"
        tx.execute(f"DELETE FROM turn WHERE user = ? AND key IN ({keys})", (user, *exchanges.span(conversation)))


def expire_all(tx: Tx) -> None:
    """End the leases of all turns, and forget commands and processes. Requires that no other process has the file open.

    The next process that runs turns ends those of the leases, so that clients which reconnect learn of it.
    """
    tx.execute("UPDATE turn SET until = 0 WHERE ended IS NULL")
    for table in ("turn_command", "process"):
        tx.execute(f"DELETE FROM {table}")


def _stored_turn(row: Sequence[Any]) -> StoredTurn:
    turn_id, user, *more = row
    return StoredTurn(turn_id, user or None, *more)


def _write(tx: Tx, progress: Sequence[TurnProgress], forgotten: Sequence[str]) -> None:
    for one in progress:
        if one.exchange is None and one.frames is not None and one.frames.first == 1:
            insert(tx, one.turn)
    tx.executemany(
        "INSERT INTO turn_log (turn, first, last, frames, text) "
        "SELECT key, ?, ?, ?, ? FROM turn WHERE id = ? AND owner = ?",
        [(*one.frames, one.text, one.turn.id, tx.process) for one in progress if one.frames is not None],
    )
    for one in progress:
        snapshot = one.snapshot if one.exchange is not None else None
        if snapshot is not None:
            query = "UPDATE exchange SET data = ? WHERE key = ? AND owner = ? AND outcome = ''"
            tx.execute(query, (rows.encode(snapshot), one.exchange, tx.process))
        last = None if one.frames is None or snapshot is None else one.frames.last
        if one.has_ended or one.report or last is not None or one.last_received:
            tx.execute(
                "UPDATE turn SET snapshot_last = coalesce(?, snapshot_last), last_received = max(last_received, ?), "
                "ended = coalesce(ended, ?), report = coalesce(nullif(?, ''), report) WHERE id = ? AND owner = ?",
                (last, one.last_received, tx.now if one.has_ended else None, one.report, one.turn.id, tx.process),
            )
        if one.keep_from > 1:
            query = "DELETE FROM turn_log WHERE turn = (SELECT key FROM turn WHERE id = ? AND owner = ?) AND last < ?"
            tx.execute(query, (one.turn.id, tx.process, one.keep_from))
    tx.executemany("DELETE FROM turn WHERE id = ?", [(turn_id,) for turn_id in forgotten])


def _news(tx: Tx, after_command: int, followed: Mapping[str, int], sent: Sequence[int]) -> News:
    commands = tx.execute(
        "SELECT c.key, c.turn, c.command FROM turn_command c JOIN turn t ON t.id = c.turn "
        "WHERE c.key > ? AND t.owner = ? ORDER BY c.key",
        (after_command, tx.process),
    ).fetchall()
    answers = {}
    for key in sent:
        row = tx.execute("SELECT answer FROM turn_command WHERE key = ? AND answer IS NOT NULL", (key,)).fetchone()
        if row is not None:
            answers[key] = row[0]
    is_running = "SELECT 1 FROM turn WHERE id = ? AND ended IS NULL"
    ended = [turn_id for turn_id in followed if tx.execute(is_running, (turn_id,)).fetchone() is None]
    query = (
        "SELECT l.first, l.last, l.frames FROM turn t JOIN turn_log l ON l.turn = t.key AND l.first > ? "
        "WHERE t.id = ? ORDER BY l.first"
    )
    frames = {
        turn_id: [Frames(*row) for row in found]
        for turn_id, last in followed.items()
        if (found := tx.execute(query, (last, turn_id)).fetchall())
    }
    has_peers = tx.execute("SELECT 1 FROM process WHERE owner <> ?", (tx.process,)).fetchone() is not None
    return News([StoredCommand(*row) for row in commands], frames, answers, ended, has_peers)
