"""Converts exchanges and items to rows and back. Times are microseconds since 1970, in UTC.

Reading a single damaged row raises; lists skip it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from brain.errors import StoreError
from brain.messages import Exchange, FormerText, Item, Marks
from brain.store.tx import Tx
from brain.strict_json import replace_json_surrogates

log = logging.getLogger("brain")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000
MIB = 1024 * 1024
LATEST = (datetime(2200, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND - 1
"""Later times, and times before `EPOCH`, come from a wrong clock."""

T = TypeVar("T")


class Damaged(StoreError):
    """A row cannot be read. The error has its table and key, but not its content."""

    def __init__(self, row: str) -> None:
        super().__init__("The database is damaged.", row)
        self.row = row


def readable(read: Callable[[Any], T], found: Iterable[Any]) -> Iterator[T]:
    """Yield `read(row)` for each row; log and skip damaged rows."""
    for row in found:
        try:
            yield read(row)
        except Damaged as damaged:
            log.warning("%s is damaged and was skipped", damaged.row)


def read_first(tx: Tx, read: Callable[[Any], T], query: str, values: Sequence[Any], limit: int) -> list[T]:
    """Return what `readable` yields of the first rows of a query without a limit: not all engines read rows lazily."""
    found: list[T] = []
    offset = 0
    while len(found) < limit:
        some = tx.execute(f"{query} LIMIT ? OFFSET ?", (*values, limit, offset)).fetchall()
        found += readable(read, some)
        offset += limit
        if len(some) < limit:
            break
    return found[:limit]


class _Marks(msgspec.Struct):
    """The marks of a stored exchange, without the rest."""

    untrusted: bool = False
    private_data: bool = False


_encode = msgspec.json.Encoder().encode
_decode_exchange = msgspec.json.Decoder(Exchange).decode
_decode_marks = msgspec.json.Decoder(_Marks).decode
_decode_former = msgspec.json.Decoder(tuple[FormerText, ...]).decode

EXCHANGE = "key, data"
ITEM = (
    "i.id, i.kind, i.text, i.created, i.updated, i.category, i.mutable, c.id, e.question_id, i.untrusted, i.former, "
    "(SELECT count(*) FROM conversation m WHERE m.memory = i.key)"
)
ITEMS = "item i LEFT JOIN conversation c ON c.key = i.conversation LEFT JOIN exchange e ON e.key = i.exchange"


def micros(moment: datetime) -> int:
    """Convert a time to microseconds since 1970."""
    return (moment - EPOCH) // MICROSECOND


def moment(micros: int) -> datetime:
    """Convert microseconds since 1970 to a time, clamped to 1970–2199."""
    return EPOCH + timedelta(microseconds=min(max(micros, 0), LATEST))


def encode(value: Any) -> str:
    """Encode a value as JSON."""
    return _encode(value).decode()


def exchange_columns(exchange: Exchange) -> dict[str, Any]:
    """Return the columns of an exchange, except its size and those of its turn.

    An exchange that failed without an answer is not part of the history.
    """
    assert exchange.started is not None
    return {
        "started": micros(exchange.started),
        "ended": None if exchange.ended is None else micros(exchange.ended),
        "outcome": exchange.outcome,
        "source": exchange.source,
        "question_id": exchange.question_id,
        "answer_id": exchange.answer_id,
        "recalled_ids": encode(exchange.recalled_ids),
        "in_history": exchange.outcome != "" and (bool(exchange.parts) or exchange.outcome == "cancelled"),
        "messages": bool(exchange.question or exchange.message) + bool(exchange.parts),
        "data": encode(exchange),
    }


def read_exchange(row: Sequence[Any]) -> Exchange:
    """Read a row of `EXCHANGE`.

    Raises:
        Damaged: it cannot be read.
    """
    found = _decode(_decode_exchange, row[1])
    if found is None:
        raise Damaged(f"exchange {row[0]}")
    return found


def read_marks(data: str) -> Marks:
    """Return the marks of a stored exchange; both if it is damaged."""
    found = _decode(_decode_marks, data)
    return Marks(untrusted=True, private_data=True) if found is None else Marks(found.untrusted, found.private_data)


def _decode(decode: Callable[[str | bytes], T], data: str) -> T | None:
    """Decode a row, also one with lone surrogates; None if it is damaged."""
    with suppress(msgspec.MsgspecError):
        return decode(data)
    with suppress(msgspec.MsgspecError):
        return decode(replace_json_surrogates(data.encode()))
    return None


def item_columns(item: Item) -> dict[str, Any]:
    """Return the columns of an item, except its user and source message."""
    texts = {"text": item.text, "former": encode(item.former)}
    return {
        **texts,
        "id": item.id,
        "kind": item.kind,
        "category": item.category,
        "mutable": item.mutable,
        "untrusted": item.untrusted,
        "created": micros(item.created),
        "updated": micros(item.updated),
        "bytes": sum(len(text.encode()) for text in texts.values()),
    }


def read_item(row: Sequence[Any]) -> Item:
    """Read a row of `ITEM`.

    Raises:
        Damaged: it cannot be read.
    """
    item_id, kind, text, created, updated, category, mutable, conversation, message, untrusted, former, count = row
    try:
        return Item(
            item_id,
            kind,
            text,
            moment(created),
            moment(updated),
            category,
            bool(mutable),
            conversation,
            message,
            bool(untrusted),
            _decode_former(former),
            max(1, count),
        )
    except msgspec.MsgspecError:
        raise Damaged(f"item {item_id}") from None
