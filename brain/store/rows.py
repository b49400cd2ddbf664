"""Exchanges and items as rows, and back. Times are whole microseconds since 1970, in UTC.

A row that is damaged is an error for who asks for it alone; where others stand beside it, they are read without it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from brain.errors import StoreError
from brain.messages import Exchange, Former, Item, Message
from brain.store import answers

log = logging.getLogger("brain")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000
LATEST = (datetime(2200, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND - 1
"""No clock that is right tells a later time, nor one before `EPOCH`."""

T = TypeVar("T")


class Damaged(StoreError):
    """A row that cannot be read: its table and key, and nothing of what stands in it."""

    def __init__(self, row: str) -> None:
        super().__init__("What is kept is damaged.", row)
        self.row = row


def readable(made: Callable[[Any], T], found: Iterable[Any]) -> Iterator[T]:
    """What is made of rows. One that is damaged is left out, and the log says which."""
    for row in found:
        try:
            yield made(row)
        except Damaged as damaged:
            log.warning("%s is damaged, and left out", damaged.row)


_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(tuple[Message, ...]).decode
_ids = msgspec.json.Decoder(tuple[int, ...]).decode
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_formers = msgspec.json.Decoder(tuple[Former, ...]).decode

EXCHANGE = (
    "key, asked, answered, outcome, source, question_id, answer_id, model, tokens, files, recalled, outside, said, "
    "question, before, behind, parts, about"
)
QUESTION_ID = 5
ITEM = "i.id, i.kind, i.text, i.created, i.updated, i.category, i.mutable, c.id, e.question_id, i.outside, i.was"
ITEMS = "item i LEFT JOIN conversation c ON c.key = i.conversation LEFT JOIN exchange e ON e.key = i.exchange"


def micros(moment: datetime) -> int:
    """A time as it is kept."""
    return (moment - EPOCH) // MICROSECOND


def moment(kept: int) -> datetime:
    """A time that was kept; the nearest that a clock tells."""
    return EPOCH + timedelta(microseconds=min(max(kept, 0), LATEST))


def encoded(value: Any) -> str:
    """A value as JSON."""
    return _encode(value).decode()


def question_columns(exchange: Exchange) -> dict[str, Any]:
    """What can change of a question until its answer ends."""
    return {
        "question": exchange.question,
        "before": encoded(exchange.before),
        "behind": encoded(exchange.behind),
        "recalled": encoded(exchange.recalled),
    }


def answer_columns(exchange: Exchange, now: int) -> dict[str, Any]:
    """What the end of an answer brings."""
    return {
        "answered": now if exchange.answered is None else micros(exchange.answered),
        "answer_id": exchange.answer_id,
        "outcome": exchange.outcome,
        "model": exchange.model,
        "tokens": exchange.tokens,
        "outside": exchange.outside,
        **texts_of_answer(exchange),
        "told": is_told(exchange),
        "messages": messages_in(exchange),
    }


def texts_of_answer(exchange: Exchange) -> dict[str, str]:
    """What was answered, as far as it came, and how it came to be."""
    return {"parts": encoded(answers.rows_of(exchange)), "about": encoded(answers.about_row(exchange.about))}


def is_told(exchange: Exchange) -> bool:
    """Whether later turns are told of it: an exchange that failed before anything was said is for its user alone."""
    return bool(exchange.parts) or exchange.outcome == "cancelled"


def messages_in(exchange: Exchange) -> int:
    """How many messages it is: that of the user, unless nobody asked, and the answer if there is any."""
    return bool(exchange.question or exchange.said) + bool(exchange.parts)


def exchange_of(row: Sequence[Any]) -> Exchange:
    """The exchange of a row of `EXCHANGE`.

    Raises:
        Damaged: when it cannot be read.
    """
    return _made("exchange", _exchange_of, row)


def _made(table: str, make: Callable[[Sequence[Any]], T], row: Sequence[Any]) -> T:
    try:
        return make(row)
    except msgspec.MsgspecError:
        raise Damaged(f"{table} {row[0]}") from None


def _exchange_of(row: Sequence[Any]) -> Exchange:
    _, asked, answered, outcome, source, question_id, answer_id, model, tokens, files, recalled, outside, *texts = row
    said, question, before, behind, answer, about = texts
    one_way, parts = answers.parts_of(answers.read_parts(answer))
    return Exchange(
        question=question,
        parts=parts,
        one_way=one_way,
        before=_messages(before),
        behind=_messages(behind),
        answer_id=answer_id,
        question_id=question_id,
        said=said,
        files=_ids(files),
        source=source,
        asked=moment(asked),
        answered=None if answered is None else moment(answered),
        outcome=outcome,
        model=model,
        tokens=tokens,
        recalled=_names(recalled),
        outside=bool(outside),
        about=answers.about_of(answers.read_about(about)),
    )


def item_columns(item: Item) -> dict[str, Any]:
    """An item without its user, and without where it was said."""
    texts = {"text": item.text, "was": encoded(item.was)}
    return {
        **texts,
        "id": item.id,
        "kind": item.kind,
        "category": item.category,
        "mutable": item.mutable,
        "outside": item.outside,
        "created": micros(item.created),
        "updated": micros(item.updated),
        "bytes": sum(len(text.encode()) for text in texts.values()),
    }


def item_of(row: Sequence[Any]) -> Item:
    """The item of a row of `ITEM`.

    Raises:
        Damaged: when it cannot be read.
    """
    return _made("item", _item_of, row)


def _item_of(row: Sequence[Any]) -> Item:
    item_id, kind, text, created, updated, category, mutable, conversation, message, outside, was = row
    return Item(
        id=item_id,
        kind=kind,
        text=text,
        created=moment(created),
        updated=moment(updated),
        category=category,
        mutable=bool(mutable),
        conversation_id=conversation,
        message_id=message,
        outside=bool(outside),
        was=_formers(was),
    )
