"""All of a user as records for a file, a JSON object each, and back.

First comes a head, then each conversation with its files and its exchanges, then facts and memories, then preferences.
"""

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from brain.messages import Category, Exchange, Former, Kind, Message, Source
from brain.store import answers, rows, users
from brain.store.answers import AboutRow, Number, PartRow
from brain.store.conversations import known
from brain.store.exchanges import span

VERSION = 1
TOGETHER = 32
"""Exchanges or items that are read at once."""

Id = Annotated[str, Meta(min_length=1, max_length=200)]
Line = Annotated[str, Meta(max_length=1000)]
Time = Annotated[datetime, Meta(tz=True)]
"""From 1970 to 2199, as `taking.py` sees to."""


class Head(Struct, tag="brain", tag_field="kind"):
    """The first record."""

    version: Number
    user: str = ""
    exported: Time | None = None


class ConversationRecord(Struct, tag="conversation", tag_field="kind"):
    """A conversation; `named` says that its user gave it its title."""

    id: Id
    title: Line
    created: Time
    named: bool = False


class FileRecord(Struct, tag="file", tag_field="kind"):
    """A file of a conversation, its content in base64."""

    conversation: Id
    id: Annotated[int, Meta(ge=1, le=2**53)]
    name: Line
    type: Line
    data: bytes


class ExchangeRecord(Struct, tag="exchange", tag_field="kind", omit_defaults=True):
    """A message of the user, and the answer to it."""

    conversation: Id
    question_id: Annotated[str, Meta(max_length=200)]
    answer_id: Annotated[str, Meta(max_length=200)]
    said: str
    question: str
    asked: Time
    outcome: Annotated[str, Meta(min_length=1, max_length=100)]
    answered: Time | None = None
    source: Source = "chat"
    model: Line = ""
    tokens: Number = 0
    files: tuple[int, ...] = ()
    recalled: tuple[str, ...] = ()
    outside: bool = False
    before: tuple[Message, ...] = ()
    behind: tuple[Message, ...] = ()
    parts: tuple[PartRow, ...] = ()
    about: AboutRow = AboutRow()


class ItemRecord(Struct, tag="item", tag_field="kind", omit_defaults=True):
    """A fact or a memory.

    Attributes:
        against: read from older exports, and ignored.
        upto: the last question that it holds, where it is the summary of a conversation.
    """

    id: Id
    type: Kind
    text: Annotated[str, Meta(min_length=1, max_length=10_000)]
    created: Time
    updated: Time
    category: Category | None = None
    mutable: bool = True
    conversation: Id | None = None
    message: Id | None = None
    outside: bool = False
    was: tuple[Former, ...] = ()
    against: tuple[str, ...] = ()
    upto: Id | None = None


class Preferences(Struct, tag="preferences", tag_field="kind"):
    """What the user set."""

    recalls: bool = True


AnyRecord = Head | ConversationRecord | FileRecord | ExchangeRecord | ItemRecord | Preferences


def records(db: sqlite3.Connection, user: str, now: int) -> Iterator[list[dict[str, Any]]]:
    """All of a user, some records at a time."""
    number = known(db, user)
    yield _plain([Head(VERSION, user, rows.moment(now))])
    query = "SELECT key, id, title, created, named FROM conversation WHERE user = ? ORDER BY key"
    for key, name, title, created, named in db.execute(query, (number,)).fetchall():
        yield _plain([ConversationRecord(name, title, rows.moment(created), bool(named))])
        yield from _files(db, key, name)
        yield from _exchanges(db, key, name)
    yield from _items(db, number)
    yield _plain([Preferences(users.recalls(db, user))])


def _files(db: sqlite3.Connection, conversation: int, name: str) -> Iterator[list[dict[str, Any]]]:
    """One at a time: they may be large."""
    query = "SELECT id, name, type, data FROM file WHERE conversation = ? ORDER BY id"
    for row in db.execute(query, (conversation,)):
        yield _plain([FileRecord(name, *row)])


def _exchanges(db: sqlite3.Connection, conversation: int, name: str) -> Iterator[list[dict[str, Any]]]:
    query = f"SELECT {rows.EXCHANGE} FROM exchange WHERE key BETWEEN ? AND ? ORDER BY key"
    found = db.execute(query, span(conversation))
    while some := found.fetchmany(TOGETHER):
        yield _plain([_exchange(one, name) for one in rows.readable(rows.exchange_of, some)])


def _exchange(exchange: Exchange, conversation: str) -> ExchangeRecord:
    """One that runs is, as far as the record goes, interrupted."""
    assert exchange.asked is not None
    return ExchangeRecord(
        conversation=conversation,
        question_id=exchange.question_id,
        answer_id=exchange.answer_id,
        said=exchange.said,
        question=exchange.question,
        asked=exchange.asked,
        outcome=exchange.outcome or "interrupted",
        answered=exchange.answered,
        source=exchange.source,
        model=exchange.model,
        tokens=exchange.tokens,
        files=exchange.files,
        recalled=exchange.recalled,
        outside=exchange.outside,
        before=exchange.before,
        behind=exchange.behind,
        parts=tuple(answers.rows_of(exchange)),
        about=answers.about_row(exchange.about),
    )


def _items(db: sqlite3.Connection, user: int | None) -> Iterator[list[dict[str, Any]]]:
    found = db.execute(
        f"SELECT {rows.ITEM}, s.question_id FROM {rows.ITEMS} LEFT JOIN conversation m ON m.memory = i.key "
        "LEFT JOIN exchange s ON s.key = m.summarised_to WHERE i.user = ? ORDER BY i.key",
        (user,),
    )
    while some := found.fetchmany(TOGETHER):
        yield _plain(list(rows.readable(_item, some)))


def _item(row: tuple[Any, ...]) -> ItemRecord:
    item = rows.item_of(row[:-1])
    return ItemRecord(
        id=item.id,
        type=item.kind,
        text=item.text,
        created=item.created,
        updated=item.updated,
        category=item.category,
        mutable=item.mutable,
        conversation=item.conversation_id,
        message=item.message_id,
        outside=item.outside,
        was=item.was,
        upto=row[-1],
    )


def _plain(some: list[Any]) -> list[dict[str, Any]]:
    """Records as JSON has them."""
    plain: list[dict[str, Any]] = msgspec.to_builtins(some)
    return plain
