"""Wing: takes in what `copies.py` gave away, all of it or nothing. Nothing in it is trusted."""

import hashlib
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NoReturn, Protocol

import msgspec

from brain.ask import Attachment
from brain.kept import Counts, Item
from brain.messages import Exchange, new_message_id
from brain.store import answers, exchanges, items, room, rows, turns, users
from brain.store.copies import (
    VERSION,
    AnyRecord,
    ConversationRecord,
    ExchangeRecord,
    FileRecord,
    Head,
    ItemRecord,
    Preferences,
)
from brain.store.spooling import problem

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


def take_in(db: sqlite3.Connection, user: str, lines: Iterable[bytes], harmless: Harmless) -> Counts:
    """Takes in all records, one a line; what is there already is left as it is.

    Raises:
        BadRequest: naming the record and the field that cannot be taken in.
    """
    taking = _Taking(db, user, harmless)
    for taking.number, line in enumerate(lines, 1):
        taking.take(_read(taking.number, line))
    return taking.end()


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
    """How far it is. `conversation` is that whose files and exchanges come; its key is None when it was there."""

    db: sqlite3.Connection
    user: str
    harmless: Harmless
    number: int = 0
    key: int | None = None
    conversation: str | None = None
    named: bool = False
    loose: set[int] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    seen: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.owner = turns.user_key(self.db, self.user)

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
                if not record.recalls:
                    users.set_recalls(self.db, self.user, False)

    def end(self) -> Counts:
        """What was taken in."""
        if not self.number:
            self.number = 1
            self._refuse("", "there is none")
        self._leave()
        return Counts(**self.counts)

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
        there = self.db.execute("SELECT 1 FROM conversation WHERE user = ? AND id = ?", (self.owner, conversation_id))
        if there.fetchone() is None:
            created = rows.micros(record.created)
            columns = {"user": self.owner, "id": conversation_id, "created": created, "updated": created}
            self.key = exchanges.insert(self.db, "conversation", {**columns, "named": record.named})
            exchanges.name(self.db, self.key, record.title)
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
            self._add(self.key, self.harmless.exchange(exchange))

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
        exchanges.index(self.db, key)
        self.counts["messages"] += columns["messages"]

    def _item(self, record: ItemRecord) -> None:
        self._once("item", record.id)
        self._checked("created", record.created)
        self._checked("updated", record.updated)
        for place, former in enumerate(record.was):
            self._checked(f"was[{place}].until", former.until)
        item = self.harmless.item(_item_of(record))
        if items.one(self.db, self.user, item.id) is not None:
            return
        key = items.put(self.db, self.user, item)
        self.counts["facts" if item.kind == "fact" else "memories"] += 1
        if record.upto is not None and item.conversation_id is not None:
            self._link(key, item.conversation_id, _own(record.upto, _ID))

    def _link(self, memory: int, conversation_id: str, upto: str) -> None:
        """Notes that a memory is the summary of a conversation that came with it."""
        row = self.db.execute(
            "SELECT c.key, e.key FROM conversation c JOIN exchange e ON e.conversation = c.key "
            "WHERE c.user = ? AND c.id = ? AND e.question_id = ? AND c.memory IS NULL",
            (self.owner, conversation_id, upto),
        ).fetchone()
        if row is not None:
            self.db.execute(
                "UPDATE conversation SET memory = ?, summarised_to = ? WHERE key = ?", (memory, row[1], row[0])
            )
            exchanges.settle(self.db, row[0])

    def _leave(self) -> None:
        """Ends the conversation that came."""
        if self.loose:
            self._refuse("", f"file {min(self.loose)} of the conversation before it belongs to no exchange")
        if self.key is not None:
            if not exchanges.has_any(self.db, self.key):
                self._refuse("", "the conversation before it has no exchange")
            exchanges.settle(self.db, self.key)
            room.check_conversation(self.db, self.key, f"records[{self.number - 1}]")
            room.claim(self.db, self.owner, f"records[{self.number - 1}]", conversation=self.key)
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
        against=tuple(_own(one, _ITEM_ID) for one in record.against),
    )
