"""Exports and imports all data of a user as JSON records.

The order is: a head, tasks, each conversation with its files and exchanges, facts and memories, preferences.

An import checks all records before it writes any. It inserts in small transactions, for which other writers do not wait
long, rows that have no user but its ID; the last transaction gives them to the user. If it fails or its process ends,
all rows that have its ID and no user are removed.
"""

import asyncio
import hashlib
import re
from collections import defaultdict
from collections.abc import AsyncIterable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from typing import IO, Annotated, Any, NoReturn, Protocol, cast

import msgspec
from msgspec import Meta, Struct

from brain.concurrency import iterate
from brain.errors import BadRequest, StoreError
from brain.messages import Attachment, Count, Exchange, Item, Kind, Time, new_message_id
from brain.store import counts, exchanges, items, rows, tasks, users
from brain.store.deletion import IMPORT_LEASE, MAX_LEASE
from brain.store.rows import MIB
from brain.store.tx import Tx
from brain.store.upgrade import upgrade_record
from brain.store.users import Counts
from brain.task import MAX_PROMPT, MAX_RESULT, MAX_SUMMARY, MAX_TITLE, MAX_USER_TEXT, Task
from brain.text import ID, one_line
from brain.validation import describe_mismatch

VERSION = 2
TOGETHER = 32
"""Records per read."""
MAX_IN_MEMORY = 16 * MIB
MAX_SPOOLED = 2 * 1024 * MIB
MAX_LINE = 24 * MIB
"""More than the longest record, a 16 MiB file in base64."""
MAX_RECORDS, MAX_BYTES = 64, 256 * 1024
"""Approximate limits of one import transaction, for which other writers wait."""

Id = Annotated[str, Meta(min_length=1, max_length=200)]
OptionalId = Annotated[str, Meta(max_length=200)]
MAX_LINE_LENGTH = 1000
Line = Annotated[str, Meta(max_length=MAX_LINE_LENGTH)]

_ITEM_ID = re.compile(r"[a-z0-9]{1,64}")
_TASK_ID = re.compile(r"task[0-9a-f]{16}")


class Head(Struct, tag="brain", tag_field="kind"):
    """The first record."""

    version: Count
    user: str = ""
    exported: Time | None = None


class ConversationRecord(Struct, tag="conversation", tag_field="kind"):
    """A conversation; `named` means that the user set its title, `private` that only local models may read it."""

    id: Id
    title: Line
    created: Time
    named: bool = False
    private: bool = False


class FileRecord(Struct, tag="file", tag_field="kind"):
    """A file of a conversation, with base64 content."""

    conversation: Id
    id: Annotated[int, Meta(ge=1, le=2**53)]
    name: Line
    type: Line
    data: bytes


class ExchangeRecord(Exchange, tag="exchange", tag_field="kind", kw_only=True, omit_defaults=True):
    """An exchange of a conversation; a running one is exported as interrupted."""

    conversation: Id
    question_id: OptionalId
    answer_id: OptionalId
    message: str
    started: Time
    outcome: Annotated[str, Meta(min_length=1, max_length=100)]
    model: Line = ""
    private_data: bool = True  # exports of older versions do not say


class ItemRecord(Item, tag="item", tag_field="kind", kw_only=True, omit_defaults=True, frozen=True):
    """A fact or memory; `last` is the last question that a summary covers."""

    id: Id
    kind: Kind = msgspec.field(name="type")
    text: Annotated[str, Meta(min_length=1, max_length=10_000)]
    conversation_id: Id | None = None
    message_id: Id | None = None
    last: Id | None = None


class TaskRecord(Task, tag="task", tag_field="kind", kw_only=True, omit_defaults=True, frozen=True):
    """A task. Its runs are the conversation `work_id`, which comes later."""

    id: Id
    user: OptionalId = ""
    title: Annotated[str, Meta(min_length=1, max_length=MAX_TITLE)]
    prompt: Annotated[str, Meta(min_length=1, max_length=MAX_PROMPT)]
    conversation_id: Id
    work_id: Id
    time_zone: OptionalId
    every: Line = ""
    parent: OptionalId = ""
    finished: OptionalId = ""
    turn_id: OptionalId = ""
    activity: Line = ""
    private_data: bool = True
    user_text: Annotated[str, Meta(max_length=MAX_USER_TEXT)] = ""
    result: Annotated[str, Meta(max_length=MAX_RESULT)] = ""
    summary: Annotated[str, Meta(max_length=MAX_SUMMARY)] = ""
    reason: Line = ""


class Preferences(Struct, tag="preferences", tag_field="kind"):
    """The user's preferences."""

    recalls: bool = True


AnyRecord = Head | ConversationRecord | FileRecord | ExchangeRecord | ItemRecord | TaskRecord | Preferences
_decode = msgspec.json.Decoder(AnyRecord).decode
_FIELDS = {kind: tuple(name for name in kind.__struct_fields__ if name != "count") for kind in (Exchange, Item, Task)}
"""Fields in the records of exports. The conversations tell how many of them a memory stands for."""


def export(tx: Tx, user: str) -> Iterator[list[dict[str, Any]]]:
    """Yield all data of a user, some records at a time."""
    number = users.find(tx, user)
    yield _to_json([Head(VERSION, user, rows.moment(tx.now))])
    for (data,) in tx.execute("SELECT data FROM task WHERE account = ? ORDER BY key", (number,)):
        if (task := tasks.read(data)) is not None:
            lines = {name: getattr(task, name)[:MAX_LINE_LENGTH] for name in ("activity", "reason")}
            yield _to_json([TaskRecord(**_fields(task) | lines | {"user": ""})])
    query = "SELECT key, id, title, created, named, private FROM conversation WHERE account = ? ORDER BY key"
    for key, conversation_id, title, created, named, private in tx.execute(query, (number,)).fetchall():
        record = ConversationRecord(conversation_id, title, rows.moment(created), bool(named), bool(private))
        yield _to_json([record])
        files = tx.execute("SELECT key FROM file WHERE conversation = ? ORDER BY id", (key,)).fetchall()
        for file in files:  # one at a time, since they may be large
            row = tx.execute("SELECT id, name, type, data FROM file WHERE key = ?", file).fetchone()
            yield _to_json([FileRecord(conversation_id, *row)])
        query = f"SELECT {rows.EXCHANGE} FROM exchange WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?"
        first, last = exchanges.span(key)
        while some := tx.execute(query, (first, last, TOGETHER)).fetchall():
            first = some[-1][0] + 1
            yield _to_json(
                [
                    ExchangeRecord(
                        conversation=conversation_id,
                        **_fields(exchange) | {"outcome": exchange.outcome or "interrupted"},
                    )
                    for exchange in rows.readable(rows.read_exchange, some)
                ]
            )
    query = (
        f"SELECT {rows.ITEM}, s.question_id, i.key FROM {rows.ITEMS} LEFT JOIN conversation m ON m.memory = i.key "
        "AND m.key = i.conversation LEFT JOIN exchange s ON s.key = m.summarised_to WHERE i.account = ? AND i.key > ? "
        "ORDER BY i.key LIMIT ?"
    )
    key = 0
    while some := tx.execute(query, (number, key, TOGETHER)).fetchall():
        *_, key = some[-1]
        records = rows.readable(lambda row: ItemRecord(**_fields(rows.read_item(row[:-2])), last=row[-2]), some)
        yield _to_json(list(records))
    yield _to_json([Preferences(users.recalls(tx, user))])


def _fields(value: Exchange | Item | Task) -> dict[str, Any]:
    """Return the fields of an exchange, item or task, without those that only its record has."""
    (kind,) = (kind for kind in _FIELDS if isinstance(value, kind))
    return {name: getattr(value, name) for name in _FIELDS[kind]}


def _to_json(some: list[Any]) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", msgspec.to_builtins(some))


async def check(records: AsyncIterable[Any] | Iterable[Any], file: IO[bytes]) -> None:
    """Check all records of an export, and write them to a file, one per line. So no transaction waits for the client.

    Raises:
        BadRequest: with the number of the record and its field.
    """
    checker = _Checker()
    async with aclosing(iterate(records)) as found:
        async for record in found:
            if checker.number % TOGETHER == 0:
                await asyncio.sleep(0)
            file.write(checker.check(record) + b"\n")
            if file.tell() > MAX_SPOOLED:
                reason = f"the import is over the limit of {MAX_SPOOLED // MIB} MiB"
                raise _problem(checker.number, "", reason, code="too_large")
    checker.end()


def _problem(number: int, field: str, reason: str, *, code: str = "bad_request") -> BadRequest:
    """Return the error for a record or one of its fields."""
    place = f"Record {number}, {field}" if field else f"Record {number}"
    name = f"records[{number - 1}]" + (f".{field}" if field else "")
    return BadRequest(f"{place}: {reason}.", name, code=code, status=413 if code == "too_large" else 400)


class _Checker:
    """Checks the records of an export one after another."""

    def __init__(self) -> None:
        self.number = 0
        self._version = VERSION
        self._conversation: str | None = None  # the conversation of the next files and exchanges
        self._has_exchange = False
        self._files: set[int] = set()  # files without an exchange so far
        self._ids: defaultdict[str, set[str]] = defaultdict(set)

    def check(self, record: Any) -> bytes:
        """Return a record in the present form, as JSON.

        Raises:
            BadRequest: it is wrong.
        """
        self.number += 1
        if self._version == 1 and isinstance(record, dict):
            record = upgrade_record(record)
        try:
            line = msgspec.json.encode(record)
        except (UnicodeEncodeError, RecursionError) as error:
            raise _problem(self.number, "", "contains invalid UTF-8, or is nested too deeply") from error
        if len(line) > MAX_LINE:
            reason = f"the record has {len(line):,} bytes; the limit is {MAX_LINE // MIB} MiB"
            raise _problem(self.number, "", reason, code="too_large")
        try:
            found = _decode(line)
        except msgspec.ValidationError as error:
            path, problem = describe_mismatch(error, AnyRecord)
            self._reject(path.lstrip("."), problem)
        if self.number == 1 and not isinstance(found, Head):
            self._reject("kind", 'the first record must be {"kind": "brain", "version": 2}')
        self._check(found)
        return line

    def end(self) -> None:
        """Check that nothing is missing after the last record.

        Raises:
            BadRequest: something is.
        """
        if not self.number:
            self.number = 1
            self._reject("", "the import has no records")
        self._end_conversation()

    def _check(self, record: AnyRecord) -> None:
        match record:
            case Head():
                if self.number > 1:
                    self._reject("kind", "only the first record may have this kind")
                if record.version > VERSION:
                    reason = f"the export has version {record.version}, and this version of Brain reads up to {VERSION}"
                    self._reject("version", f"{reason}. Upgrade Brain")
                self._version = record.version
            case ConversationRecord():
                self._end_conversation()
                self._check_once("conversation", record.id)
                self._check_times(created=record.created)
                self._conversation = record.id
            case FileRecord():
                self._check_conversation(record.conversation)
                self._check_once("file", f"{record.id}")
                self._files.add(record.id)
            case ExchangeRecord():
                self._check_exchange(record)
            case TaskRecord():
                self._end_conversation()
                self._check_once("task", record.id)
                self._check_once("conversation of a task", record.work_id)
                times = {name: getattr(record, name) for name in ("created", "changed", "next_run", "start")}
                self._check_times(**times)
            case ItemRecord():
                self._end_conversation()
                self._check_once("item", record.id)
                formers = {f"was[{place}].until": former.until for place, former in enumerate(record.former)}
                self._check_times(created=record.created, updated=record.updated, **formers)

    def _check_exchange(self, record: ExchangeRecord) -> None:
        self._check_conversation(record.conversation)
        self._check_times(started=record.started, ended=record.ended)
        for name, value in (("usage", record.usage), ("error", record.error)):
            for field, count in asdict(value).items() if value is not None else ():
                if isinstance(count, int) and not 0 <= count < 2**53:
                    self._reject(f"{name}.{field}", "must be 0 to 9007199254740991")
        if not self._files.issuperset(record.files):
            self._reject("files", "a listed file is missing before this record, or belongs to another exchange")
        self._files.difference_update(record.files)
        self._has_exchange = True

    def _end_conversation(self) -> None:
        if self._files:
            self._reject("", f"file {min(self._files)} of the previous conversation belongs to no exchange")
        if self._conversation is not None and not self._has_exchange:
            self._reject("", "the previous conversation has no exchange")
        self._ids["file"].clear()
        self._conversation, self._has_exchange = None, False

    def _check_conversation(self, conversation: str) -> None:
        if conversation != self._conversation:
            self._reject("conversation", "the record must follow the record of its conversation")

    def _check_once(self, kind: str, name: str) -> None:
        if name in self._ids[kind]:
            self._reject("id", f"the export has two records of this {kind}")
        self._ids[kind].add(name)

    def _check_times(self, **times: datetime | None) -> None:
        for field, time in times.items():
            if time is not None and not 0 <= rows.micros(time) <= rows.LATEST:
                self._reject(field, "must be between 1970 and 2199, in UTC")

    def _reject(self, field: str, reason: str) -> NoReturn:
        raise _problem(self.number, field, reason)


class Sanitizer(Protocol):
    """Returns copies of imported data that are safe for a model to read."""

    def exchange(self, one: Exchange, /) -> Exchange: ...
    def item(self, one: Item, /) -> Item: ...
    def task(self, one: Task, /) -> Task: ...


class Import:
    """Inserts checked records. Their rows belong to no user until `end`, and each call is one transaction.

    Only `insert_some` cannot be repeated.

    Args:
        lines: the lines that `check` wrote.
    """

    def __init__(self, user: str, lines: Iterable[bytes], sanitizer: Sanitizer) -> None:
        self._name = user
        self._lines = iter(lines)
        self._sanitizer = sanitizer
        self._number = 0
        self._key: int | None = None  # of the conversation of the next files and exchanges; None if it existed before
        self._message_ids: set[str] = set()
        self._tasks: dict[str, Task | None] = {}  # by the conversations in which they ran; None if they existed before
        self._is_recall_on = True
        # summaries of conversations that existed before: memory, conversation and last exchange
        self._summaries: list[tuple[int, int, int]] = []

    def begin(self, tx: Tx) -> int:
        """Return the ID of the import."""
        self._user = users.add(tx, self._name)
        self._import = exchanges.insert(tx, "import", {"account": self._user, "until": tx.now + IMPORT_LEASE})
        return self._import

    def insert_some(self, tx: Tx) -> bool:
        """Insert some records; return whether there are more.

        Raises:
            BadRequest: a conversation is too large.
            StoreError: the import was removed.
        """
        self._renew(tx)
        size = 0
        for line in islice(self._lines, MAX_RECORDS):
            self._number += 1
            self._insert(tx, _decode(line))
            size += len(line)
            if size >= MAX_BYTES:
                return True
        if not size:
            self._end_conversation(tx)
        return size > 0

    def end(self, tx: Tx) -> Counts:
        """Give the rows to the user, except those whose IDs exist; return the counts of imported rows.

        Raises:
            BadRequest: the user has too much.
            StoreError: the import was removed.
        """
        self._renew(tx)
        before = asdict(users.count_rows(tx, self._user))
        for table in ("conversation", "item"):
            new = f"NOT EXISTS (SELECT 1 FROM {table} o WHERE o.account = ? AND o.id = {table}.id)"
            given = tx.execute(
                f"UPDATE {table} SET account = ?, import = NULL WHERE account IS NULL AND import = ? AND {new} "
                "RETURNING bytes",
                (self._user, self._import, self._user),
            )
            counts.change_items(tx, self._user, sum(size for (size,) in given.fetchall()))
        for task in self._tasks.values():
            if task is not None:
                tasks.insert(tx, self._user, task)
        for memory, conversation, last in self._summaries:
            exchanges.set_summary(tx, conversation, memory, last)
        if not self._is_recall_on:
            users.set_recalls(tx, self._name, False)
        users.check_quota(tx, self._user, self._field)
        tasks.check_count(tx, self._user, self._field)
        expire(tx, self._import)
        after = asdict(users.count_rows(tx, self._user))
        return Counts(**{name: count - before[name] for name, count in after.items()})

    @property
    def _field(self) -> str:
        return f"records[{self._number - 1}]"

    def _renew(self, tx: Tx) -> None:
        query = "UPDATE import SET until = ? WHERE key = ? AND until > 0"
        if not tx.execute(query, (tx.now + IMPORT_LEASE, self._import)).rowcount:
            raise StoreError("The import paused for too long, or its user was erased. Start it again.")

    def _insert(self, tx: Tx, record: AnyRecord) -> None:
        if not isinstance(record, FileRecord | ExchangeRecord):
            self._end_conversation(tx)
        match record:
            case ConversationRecord():
                self._insert_conversation(tx, record)
            case FileRecord() if self._key is not None:
                attachment = Attachment(record.id, record.name, record.type, record.data)
                exchanges.add_file(tx, self._key, None, attachment)
            case ExchangeRecord() if self._key is not None:
                self._insert_exchange(tx, self._key, record)
            case TaskRecord():
                self._add_task(tx, record)
            case ItemRecord():
                self._insert_item(tx, record)
            case Preferences():
                self._is_recall_on = self._is_recall_on and record.recalls

    def _insert_conversation(self, tx: Tx, record: ConversationRecord) -> None:
        task = self._tasks.get(record.id)
        conversation_id = _valid_id(record.id, ID) if task is None else task.work_id
        is_of_existing_task = task is None and record.id in self._tasks
        if not is_of_existing_task and not self._exists(tx, "conversation", conversation_id):
            created = rows.micros(record.created)
            columns = {"import": self._import, "id": conversation_id, "created": created, "updated": created}
            columns |= {"named": record.named, "private": record.private}
            self._key = exchanges.insert(tx, "conversation", columns)
            exchanges.rename(tx, self._key, record.title, self._user)

    def _end_conversation(self, tx: Tx) -> None:
        if self._key is not None:
            exchanges.update_unsummarised(tx, self._key)
            exchanges.list_by_time(tx, self._key)
            ((size,),) = tx.execute("SELECT bytes FROM conversation WHERE key = ?", (self._key,))
            users.check_bytes(0, size, self._field)
        self._message_ids.clear()
        self._key = None

    def _insert_exchange(self, tx: Tx, conversation: int, record: ExchangeRecord) -> None:
        exchange = Exchange(**_fields(record))
        task = self._tasks.get(record.conversation)
        if task is not None:
            exchange.source = "task"
        elif exchange.source == "task":  # without a task, no list would show the conversation
            exchange.source = "api"
        exchange.outcome = one_line(record.outcome) or "interrupted"
        exchange.question_id = self._message_id(record.question_id) or new_message_id()
        exchange.answer_id = self._message_id(record.answer_id)
        exchange.files = tuple(dict.fromkeys(record.files))
        exchange.recalled_ids = tuple(_valid_id(one, _ITEM_ID) for one in record.recalled_ids)
        exchange = self._sanitizer.exchange(exchange)
        key, _ = exchanges.add(tx, conversation, exchange)
        tx.executemany(
            "UPDATE file SET exchange = ? WHERE conversation = ? AND id = ?",
            [(key, conversation, number) for number in exchange.files],
        )
        exchanges.write(tx, key, exchange)
        if task is None:
            exchanges.index(tx, key, exchange, self._user)
        else:  # its next run starts from the beginning and does not continue the last one
            self._tasks[record.conversation] = msgspec.structs.replace(task, finished=exchange.question_id)

    def _message_id(self, given: str) -> str:
        """Return an ID of a message that is unique in its conversation; empty if it has none."""
        if not given:
            return ""
        message_id = _valid_id(given, ID)
        if message_id in self._message_ids:
            message_id = new_message_id()
        self._message_ids.add(message_id)
        return message_id

    def _insert_item(self, tx: Tx, record: ItemRecord) -> None:
        ids = {
            "id": _valid_id(record.id, _ITEM_ID),
            "conversation_id": record.conversation_id and _valid_id(record.conversation_id, ID),
            "message_id": record.message_id and _valid_id(record.message_id, ID),
        }
        item = self._sanitizer.item(Item(**_fields(record) | ids))
        if self._exists(tx, "item", item.id):
            return
        key = items.write(tx, self._user, item, self._import)
        if record.last is None:
            return
        # the conversation that it summarizes: imported, or existing without a summary
        row = tx.execute(
            "SELECT c.account, c.key, e.key FROM item i JOIN conversation c ON c.key = i.conversation "
            f"JOIN exchange e ON {exchanges.IN_CONVERSATION} "
            "WHERE i.key = ? AND e.question_id = ? AND c.memory IS NULL",
            (key, _valid_id(record.last, ID)),
        ).fetchone()
        if row is not None and row[0] is None:
            exchanges.set_summary(tx, row[1], key, row[2])
        elif row is not None:
            self._summaries.append((key, row[1], row[2]))

    def _add_task(self, tx: Tx, record: TaskRecord) -> None:
        """Add a task that does not run by itself: a schedule arrives paused, another active task canceled."""
        task_id = record.id if _TASK_ID.fullmatch(record.id) else _stable_task_id(record.id)
        owner = tx.execute("SELECT account FROM task WHERE id = ?", (task_id,)).fetchone()
        if owner is not None and owner[0] != self._user:
            task_id = _stable_task_id(f"{self._name}\0{task_id}")
        is_added = any(one is not None and one.id == task_id for one in self._tasks.values())
        query = "SELECT 1 FROM task WHERE account = ? AND id = ?"
        if is_added or tx.execute(query, (self._user, task_id)).fetchone() is not None:
            self._tasks[record.work_id] = None
            return
        task = msgspec.structs.replace(
            self._sanitizer.task(Task(**_fields(record))),
            id=task_id,
            work_id=f"work{task_id.removeprefix('task')}",
            user=self._name,
            conversation_id=_valid_id(record.conversation_id, ID),
            parent=record.parent if _TASK_ID.fullmatch(record.parent) else "",
            turn_id=record.turn_id if ID.fullmatch(record.turn_id) else "",
            finished="",
            activity="",
            approval=None,
            attempt=1,
            resumes=0,
        )
        if not task.has_ended and task.is_scheduled:
            task = msgspec.structs.replace(task, state="waiting", paused=True, next_run=task.next_run or task.start)
        elif not task.has_ended:
            reason = task.reason or "imported before it had finished"
            task = msgspec.structs.replace(task, state="canceled", next_run=None, reason=reason)
        self._tasks[record.work_id] = task

    def _exists(self, tx: Tx, table: str, name: str) -> bool:
        query = f"SELECT 1 FROM {table} WHERE id = ? AND (account = ? OR (account IS NULL AND import = ?))"
        return tx.execute(query, (name, self._user, self._import)).fetchone() is not None


def expire(tx: Tx, import_key: int) -> None:
    """End the lease of an import; its rows that belong to no user are removed later."""
    tx.execute("UPDATE import SET until = 0 WHERE key = ?", (import_key,))


def expire_all(tx: Tx) -> None:
    """End the leases of all imports. Requires that no other process has the file open."""
    tx.execute("UPDATE import SET until = 0")


def is_running(tx: Tx) -> bool:
    """Return whether a process imports, or did a moment ago."""
    query = "SELECT 1 FROM import WHERE until BETWEEN ? AND ? LIMIT 1"
    return tx.execute(query, (tx.now, tx.now + MAX_LEASE)).fetchone() is not None


def _stable_task_id(given: str) -> str:
    """Return an ID for a task whose own cannot be used, always the same."""
    return f"task{hashlib.sha256(given.encode()).hexdigest()[:16]}"


def _valid_id(given: str, pattern: re.Pattern[str]) -> str:
    """Return an ID that the routes accept; other IDs map to stable new ones."""
    return given if pattern.fullmatch(given) else f"x{hashlib.sha256(given.encode()).hexdigest()[:16]}"
