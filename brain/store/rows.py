"""Exchanges and items as rows, and back. Times are microseconds since 1970, in UTC.

A damaged row is an error where it alone is read; among others, it is left out.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from brain.errors import StoreError
from brain.messages import Exchange, FormerText, Item

log = logging.getLogger("brain")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000
LATEST = (datetime(2200, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND - 1
"""No correct clock shows a later time, or one before `EPOCH`."""

T = TypeVar("T")


class Damaged(StoreError):
    """A row that cannot be read; names its table and key, and nothing of its content."""

    def __init__(self, row: str) -> None:
        super().__init__("What is kept is damaged.", row)
        self.row = row


def readable(read: Callable[[Any], T], found: Iterable[Any]) -> Iterator[T]:
    """What `read` makes of each row, without damaged ones, which are logged."""
    for row in found:
        try:
            yield read(row)
        except Damaged as damaged:
            log.warning("%s is damaged, and left out", damaged.row)


_encode = msgspec.json.Encoder().encode
_decode_exchange = msgspec.json.Decoder(Exchange).decode
_decode_former = msgspec.json.Decoder(tuple[FormerText, ...]).decode

EXCHANGE = "key, data"
ITEM = "i.id, i.kind, i.text, i.created, i.updated, i.category, i.mutable, c.id, e.question_id, i.untrusted, i.former"
ITEMS = "item i LEFT JOIN conversation c ON c.key = i.conversation LEFT JOIN exchange e ON e.key = i.exchange"


def micros(moment: datetime) -> int:
    """A time as a column has it."""
    return (moment - EPOCH) // MICROSECOND


def moment(micros: int) -> datetime:
    """The time in a column; for one that no clock shows, the nearest that a clock may show."""
    return EPOCH + timedelta(microseconds=min(max(micros, 0), LATEST))


def encode(value: Any) -> str:
    """A value as JSON."""
    return _encode(value).decode()


def exchange_columns(exchange: Exchange) -> dict[str, Any]:
    """The columns of an exchange except those of its turn, and its size.

    One that failed without an answer is not in the history that later turns read.
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
    """The exchange of a row of `EXCHANGE`.

    Raises:
        Damaged: when it cannot be read.
    """
    try:
        return _decode_exchange(row[1])
    except msgspec.MsgspecError:
        raise Damaged(f"exchange {row[0]}") from None


def item_columns(item: Item) -> dict[str, Any]:
    """The columns of an item except its user and the message that it quotes."""
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
    """The item of a row of `ITEM`.

    Raises:
        Damaged: when it cannot be read.
    """
    item_id, kind, text, created, updated, category, mutable, conversation, message, untrusted, former = row
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
        )
    except msgspec.MsgspecError:
        raise Damaged(f"item {item_id}") from None
