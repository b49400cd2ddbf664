"""What comes to be taken in, written down first, so that no transaction waits for who sends it."""

import asyncio
import hashlib
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import AsyncIterable, Iterable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import IO, Any, NoReturn, Protocol

import msgspec

from brain.concurrency import iterate
from brain.errors import BadRequest
from brain.messages import Attachment, Counts, Exchange, Item, new_message_id
from brain.store import answers, exchanges, hidden, items, quota, rows, turns, users
from brain.store.copies import (
    TOGETHER,
    VERSION,
    AnyRecord,
    ConversationRecord,
    ExchangeRecord,
    FileRecord,
    Head,
    ItemRecord,
    Preferences,
)
from brain.store.quota import MIB

IN_MEMORY_MOST = 16 * MIB
SPOOLED_MOST = 2 * 1024 * MIB
LINE_MOST = 24 * MIB
"""Longer than any record: a file of a conversation has 16 MiB, in base64."""

_encode = msgspec.json.Encoder().encode


async def spool(records: AsyncIterable[Any] | Iterable[Any], file: IO[bytes]) -> None:
    """Writes records down, one a line.

    Raises:
        BadRequest: for a record that is no JSON, or when there are too many.
    """
    number = 0
    async with aclosing(iterate(records)) as found:
        async for record in found:
            number += 1
            if number % TOGETHER == 0:
                await asyncio.sleep(0)
            line = _line(number, record)
            if file.tell() + len(line) > SPOOLED_MOST:
                raise _too_large(number, f"no more than {SPOOLED_MOST // MIB} MiB can be taken in at once")
            file.write(line + b"\n")


def _line(number: int, record: Any) -> bytes:
    try:
        line = _encode(record)
    except (UnicodeEncodeError, RecursionError) as error:
        raise problem(number, "", "holds text that UTF-8 cannot carry, or is nested too deeply") from error
    if len(line) > LINE_MOST:
        raise _too_large(number, f"a record may have {LINE_MOST // MIB} MiB")
    return line


def _too_large(number: int, reason: str) -> BadRequest:
    return BadRequest(f"Record {number}: {reason}.", f"records[{number - 1}]", code="too_large", status=413)


def problem(number: int, where: str, reason: str) -> BadRequest:
    """What is wrong with a record, and where in it."""
    place = f"Record {number}, {where}" if where else f"Record {number}"
    return BadRequest(f"{place}: {reason}.", f"records[{number - 1}]" + (f".{where}" if where else ""))


RECORDS_MOST, BYTES_MOST = 64, 256 * 1024
"""So much is taken in within one transaction, for which others wait; one record more may be larger than that."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the routes take for an id."""
_ITEM_ID = re.compile(r"[a-z0-9]{1,64}")

_decode = msgspec.json.Decoder(AnyRecord).decode


class Harmless(Protocol):
    """Makes of what comes what a model may read, whoever wrote it."""

    def exchange(self, one: Exchange, /) -> Exchange:
        """An exchange."""

    def item(self, one: Item, /) -> Item:
        """A fact or a memory."""


class Import:
    """The import of one export. Its methods are transactions of their own, of which `take` is called until it is done.

    Args:
        lines: the records, one a line, each read once.
    """

    def __init__(self, user: str, lines: Iterable[bytes], neutralize: Harmless) -> None:
        self._user = user
        self._lines = enumerate(lines, 1)
        self._harmless = neutralize
        self._taking: _Taking | None = None

    def begin(self, db: sqlite3.Connection, now: int) -> int:
        """Makes the hidden user whose the rows are for now; its key."""
        target = turns.user_key(db, self._user)
        staged = hidden.staged(db, target, now)
        self._taking = _Taking(db, self._user, target, staged, self._harmless)
        return staged

    def take(self, db: sqlite3.Connection, now: int) -> bool:
        """Takes in some records; whether there are more.

        Raises:
            BadRequest: naming the record and the field that cannot be taken in.
            StoreError: when the import was taken for dead.
        """
        taking = self._taking
        assert taking is not None
        hidden.keep_alive(db, taking.staged, now)
        size = 0
        for count, (taking.number, line) in enumerate(self._lines, 1):
            taking.take(_read(taking.number, line))
            size += len(line)
            if count >= RECORDS_MOST or size >= BYTES_MOST:
                return True
        return False

    def end(self, db: sqlite3.Connection, now: int) -> Counts:
        """Makes all of it the user's; what was there already is left as it is. How much was taken in.

        Raises:
            BadRequest, StoreError: as for `take`.
        """
        assert self._taking is not None
        hidden.keep_alive(db, self._taking.staged, now)
        return self._taking.end()


def _read(number: int, line: bytes) -> AnyRecord:
    try:
        record: AnyRecord = _decode(line)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        raise problem(number, path.rstrip("`").lstrip("."), reason) from error
    if number == 1 and not isinstance(record, Head):
        raise problem(number, "kind", 'the first record must be the head, {"kind": "brain", "version": 1}')
    return record


@dataclass
class _Taking:
    """How far it is.

    Attributes:
        target, staged: the user whose it becomes, and the hidden one whose it is until then.
        conversation: that whose files and exchanges come; its `key` is None when it was there.
        links: memories that sum up conversations which were there, with those and the last exchange that each holds.
    """

    db: sqlite3.Connection
    user: str
    target: int
    staged: int
    neutralize: Harmless
    number: int = 0
    key: int | None = None
    conversation: str | None = None
    named: bool = False
    loose: set[int] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    seen: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    counts: Counter[str] = field(default_factory=Counter)
    recalls: bool = True
    links: list[tuple[int, int, int]] = field(default_factory=list)

    def take(self, record: AnyRecord) -> None:
        match record:
            case Head():
                self._head(record)
            case ConversationRecord():
                self._leave()
                self._begin(record)
            case FileRecord():
                self._file(record)
            case ExchangeRecord():
                self._exchange(record)
            case ItemRecord():
                self._leave()
                self._item(record)
            case Preferences():
                self.recalls = self.recalls and record.recalls

    def end(self) -> Counts:
        """What was taken in."""
        if not self.number:
            self.number = 1
            self._refuse("", "there is none")
        self._leave()
        hidden.reveal(self.db, self.staged)
        for memory, conversation, upto in self.links:
            exchanges.summarise(self.db, conversation, memory, upto)
        if not self.recalls:
            users.set_recalls(self.db, self.user, False)
        quota.claim(self.db, self.target, f"records[{self.number - 1}]")
        left = asdict(users.counted_by_key(self.db, self.staged))  # what came to be there meanwhile
        return Counts(**{name: self.counts[name] - count for name, count in left.items()})

    def _head(self, record: Head) -> None:
        if self.number > 1:
            self._refuse("kind", "the head comes once, first")
        if record.version > VERSION:
            self._refuse("version", f"this version of Brain reads version {VERSION}; use a newer one")

    def _begin(self, record: ConversationRecord) -> None:
        self._once("conversation", record.id)
        self._checked("created", record.created)
        self.conversation, self.named, self.key = record.id, record.named, None
        conversation_id = _own(record.id, _ID)
        if not self._is_there("conversation", conversation_id):
            created = rows.micros(record.created)
            columns = {"user": self.staged, "id": conversation_id, "created": created, "updated": created}
            self.key = exchanges.insert(self.db, "conversation", {**columns, "named": record.named})
            exchanges.name(self.db, self.key, record.title, self.target)
            self.counts["conversations"] += 1

    def _file(self, record: FileRecord) -> None:
        self._belongs(record.conversation)
        self._once("file", f"{record.id}")
        self.loose.add(record.id)
        if self.key is not None:
            exchanges.add_file(self.db, self.key, None, Attachment(record.id, record.name, record.type, record.data))
            self.counts["files"] += 1

    def _exchange(self, record: ExchangeRecord) -> None:
        self._belongs(record.conversation)
        self._checked("asked", record.asked)
        self._checked("answered", record.answered)
        if not self.loose.issuperset(record.files):
            self._refuse("files", "there is no such file before it, or another exchange has it")
        self.loose.difference_update(record.files)
        if self.key is not None:
            asked = self._message(record.question_id) or new_message_id()
            exchange = replace(_exchange_of(record), question_id=asked, answer_id=self._message(record.answer_id))
            self._add(self.key, self.neutralize.exchange(exchange))

    def _message(self, given: str) -> str:
        """The id of a message, if it has any: one by which no other message of its conversation goes."""
        if not given:
            return ""
        own = _own(given, _ID)
        own = own if own not in self.messages else new_message_id()
        self.messages.add(own)
        return own

    def _add(self, conversation: int, exchange: Exchange) -> None:
        asked = exchanges.asked_columns(exchange, 0)
        columns = {**rows.question_columns(exchange), **rows.answer_columns(exchange, asked["asked"]), **asked}
        columns |= {"files": rows.encoded(exchange.files)}
        columns |= {"answered": None} if exchange.answered is None else {}
        key = exchanges.add(self.db, conversation, columns)
        self.db.executemany(
            "UPDATE file SET exchange = ? WHERE conversation = ? AND id = ?",
            [(key, conversation, number) for number in exchange.files],
        )
        exchanges.measure(self.db, key)
        exchanges.index(self.db, key, self.target)
        self.counts["messages"] += columns["messages"]

    def _item(self, record: ItemRecord) -> None:
        self._once("item", record.id)
        self._checked("created", record.created)
        self._checked("updated", record.updated)
        for place, former in enumerate(record.was):
            self._checked(f"was[{place}].until", former.until)
        item = self.neutralize.item(_item_of(record))
        if self._is_there("item", item.id):
            return
        key, conversation = items.write(self.db, self.staged, self.target, item)
        self._claim("text", conversation)
        self.counts["facts" if item.kind == "fact" else "memories"] += 1
        if record.upto is not None and item.conversation_id is not None:
            self._link(key, item.conversation_id, _own(record.upto, _ID))

    def _is_there(self, table: str, name: str) -> bool:
        query = f"SELECT 1 FROM {table} WHERE user IN (?, ?) AND id = ?"
        return self.db.execute(query, (self.staged, self.target, name)).fetchone() is not None

    def _link(self, memory: int, conversation_id: str, upto: str) -> None:
        """Notes that a memory is the summary of a conversation that came with it, or was there without one."""
        row = self.db.execute(
            "SELECT c.user, c.key, e.key FROM conversation c JOIN exchange e ON e.conversation = c.key "
            "WHERE c.user IN (?, ?) AND c.id = ? AND e.question_id = ? AND c.memory IS NULL",
            (self.staged, self.target, conversation_id, upto),
        ).fetchone()
        if row is not None and row[0] == self.staged:
            exchanges.summarise(self.db, row[1], memory, row[2])
        elif row is not None:
            self.links.append((memory, row[1], row[2]))

    def _claim(self, field: str, conversation: int | None) -> None:
        quota.claim(self.db, self.target, field, conversation=conversation, hidden=self.staged)

    def _leave(self) -> None:
        """Ends the conversation that came."""
        if self.loose:
            self._refuse("", f"file {min(self.loose)} of the conversation before it belongs to no exchange")
        if self.key is not None:
            if not exchanges.has_any(self.db, self.key):
                self._refuse("", "the conversation before it has no exchange")
            exchanges.settle(self.db, self.key)
            exchanges.use_as_dated(self.db, self.key)
            quota.check_conversation(self.db, self.key, f"records[{self.number - 1}]")
            self._claim(f"records[{self.number - 1}]", self.key)
        self.seen["file"].clear()
        self.messages.clear()
        self.key = self.conversation = None

    def _belongs(self, conversation: str) -> None:
        if conversation != self.conversation:
            self._refuse("conversation", "it must stand behind the record of its conversation")

    def _once(self, kind: str, name: str) -> None:
        if name in self.seen[kind]:
            self._refuse("id", f"there are two records of this {kind}")
        self.seen[kind].add(name)

    def _checked(self, where: str, time: datetime | None) -> None:
        """Looks whether a time is one that a clock tells."""
        if time is not None and time.tzinfo is None:
            self._refuse(where, "it must have an offset from UTC")
        if time is not None and not 0 <= rows.micros(time) <= rows.LATEST:
            self._refuse(where, "it must lie between 1970 and 2199, in UTC")

    def _refuse(self, where: str, reason: str) -> NoReturn:
        raise problem(self.number, where, reason)


def _own(given: str, fitting: re.Pattern[str]) -> str:
    """An id as we give them; of one that is none, always the same."""
    return given if fitting.fullmatch(given) else f"x{hashlib.sha256(given.encode()).hexdigest()[:16]}"


def _exchange_of(record: ExchangeRecord) -> Exchange:
    one_way, parts = answers.parts_of(record.parts)
    return Exchange(
        question=record.question,
        parts=parts,
        one_way=one_way,
        before=record.before,
        behind=record.behind,
        answer_id=record.answer_id,
        question_id=record.question_id,
        said=record.said,
        files=tuple(dict.fromkeys(record.files)),
        source=record.source,
        asked=record.asked,
        answered=record.answered,
        outcome=record.outcome,
        model=record.model,
        tokens=record.tokens,
        recalled=tuple(_own(one, _ITEM_ID) for one in record.recalled),
        outside=record.outside,
        about=answers.about_of(record.about),
    )


def _item_of(record: ItemRecord) -> Item:
    return Item(
        id=_own(record.id, _ITEM_ID),
        kind=record.type,
        text=record.text,
        created=record.created,
        updated=record.updated,
        category=record.category,
        mutable=record.mutable,
        conversation_id=None if record.conversation is None else _own(record.conversation, _ID),
        message_id=None if record.message is None else _own(record.message, _ID),
        outside=record.outside,
        was=record.was,
    )
