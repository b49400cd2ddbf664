"""What is asked about what is kept of a user, in Brain's own protocol: to see a part of it, or to change it."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, get_args

import msgspec

from brain.errors import BadRequest
from brain.messages import Category, Kind
from brain.protocols.bodies import decode
from brain.protocols.native.request import ID
from brain.text import replace_surrogates

LIMIT = 50
MAX_LIMIT = 200
WORDS_LENGTH = 1_000
TITLE_LENGTH = 200
SMALL_BODY_BYTES = 64 * 1024
"""Of a request that changes what is kept; titles and facts are short."""

_PAGING = ("before", "limit")
_BREAKS = frozenset(("Cc", "Zl", "Zp"))

T = TypeVar("T", bound=str)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which part of a list is wanted.

    Attributes:
        before: the id of the last one of the part before.
        kind, category: of facts and memories, the only ones that are wanted.
    """

    words: str = ""
    before: str | None = None
    limit: int = LIMIT
    kind: Kind | None = None
    category: Category | None = None


class TitleBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/conversations/{id}`."""

    title: str


class FactBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/memory`."""

    text: str
    category: str | None = None
    mutable: bool = True


class RecallBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/memory`."""

    recall: bool


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/memory/{id}`."""

    text: str | msgspec.UnsetType = msgspec.UNSET
    category: str | msgspec.UnsetType = msgspec.UNSET
    mutable: bool | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that the user writes down; None for a category that is found by its words."""

    text: str
    category: Category | None
    mutable: bool


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be changed of a fact or memory; None stays as it is."""

    text: str | None = None
    category: Category | None = None
    mutable: bool | None = None


def parse_conversations_query(query: Mapping[str, str]) -> ListQuery:
    """Reads the query of `GET /v1/conversations`.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    return _wanted(query, "q", *_PAGING)


def parse_messages_query(query: Mapping[str, str]) -> ListQuery:
    """Reads the query of `GET /v1/conversations/{id}`, as the others."""
    return _wanted(query, *_PAGING)


def parse_memory_query(query: Mapping[str, str]) -> ListQuery:
    """Reads the query of `GET /v1/memory`, as the others."""
    return _wanted(query, "kind", "category", "q", *_PAGING)


def parse_title(body: bytes) -> str:
    """The title that a body gives.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    return check_title(decode(body, TitleBody).title)


def check_title(text: str) -> str:
    """A title that was given.

    Raises:
        BadRequest: saying what is wrong with it.
    """
    text = replace_surrogates(text).strip()
    if not 1 <= len(text) <= TITLE_LENGTH or any(unicodedata.category(character) in _BREAKS for character in text):
        raise BadRequest(f"title must be one line of 1 to {TITLE_LENGTH} characters.", "title")
    return text


def parse_fact(body: bytes) -> Fact:
    """The fact that a body writes down.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    sent = decode(body, FactBody)
    return Fact(replace_surrogates(sent.text), _category(sent.category), sent.mutable)


def parse_change(body: bytes) -> Change:
    """What a body changes of a fact or memory.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    sent = decode(body, ChangeBody)
    found = Change(
        None if sent.text is msgspec.UNSET else replace_surrogates(sent.text),
        None if sent.category is msgspec.UNSET else _category(sent.category),
        None if sent.mutable is msgspec.UNSET else sent.mutable,
    )
    if found == Change():
        raise BadRequest("Send any of text, category and mutable; what is left out stays as it is.", "text")
    return found


def parse_recall(body: bytes) -> bool:
    """Whether a body switches recall on or off.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    return decode(body, RecallBody).recall


def _wanted(query: Mapping[str, str], *known: str) -> ListQuery:
    unknown = next((name for name in query if name not in known), None)
    if unknown is not None:
        raise BadRequest(f"{unknown[:100]}: This field does not exist; there are: {', '.join(known)}.", unknown[:100])
    words, before = query.get("q", ""), query.get("before")
    if len(words) > WORDS_LENGTH:
        raise BadRequest(f"q may be {WORDS_LENGTH:,} characters long.", "q")
    if before is not None and not ID.fullmatch(before):
        raise BadRequest("before must be the id that the part before told.", "before")
    return ListQuery(
        words,
        before,
        _limit(query.get("limit")),
        _kind(query.get("kind")),
        _category(query.get("category")),
    )


def _limit(sent: str | None) -> int:
    if sent is None:
        return LIMIT
    if not (sent.isascii() and sent.isdecimal() and len(sent) < 10 and 1 <= int(sent) <= MAX_LIMIT):
        raise BadRequest(f"limit must be a whole number from 1 to {MAX_LIMIT}.", "limit")
    return int(sent)


def _category(sent: str | None) -> Category | None:
    return None if sent is None else _one_of(sent, "category", get_args(Category))


def _kind(sent: str | None) -> Kind | None:
    return None if sent is None else _one_of(sent, "kind", get_args(Kind))


def _one_of(sent: str, field: str, known: Sequence[T]) -> T:
    for one in known:
        if one == sent:
            return one
    raise BadRequest(f"{field} must be one of: {', '.join(known)}.", field)
