"""Reads requests for stored data: the part of a list that a client wants, and changes of titles, facts and memories."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import msgspec

from brain.errors import BadRequest
from brain.messages import Category, Kind
from brain.protocols.bodies import decode, invalid
from brain.protocols.turn_options import ID, choose
from brain.text import replace_surrogates

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
WORDS_LENGTH = 1_000
TITLE_LENGTH = 200
SMALL_BODY_BYTES = 64 * 1024
"""Size limit of a body with a title, a fact or a change."""

_LINE_BREAKS = frozenset(("Cc", "Zl", "Zp"))


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which part of a list a client wants.

    Attributes:
        before: the last ID of the previous part.
        kind, category: of facts and memories; None for all.
    """

    words: str = ""
    before: str | None = None
    limit: int = DEFAULT_LIMIT
    kind: Kind | None = None
    category: Category | None = None


def parse_conversations_query(query: Mapping[str, str]) -> ListQuery:
    """Read the query of `GET /v1/conversations`."""
    return _parse_query(query, "q", "before", "limit")


def parse_messages_query(query: Mapping[str, str]) -> ListQuery:
    """Read the query of `GET /v1/conversations/{id}`; raises as the others."""
    return _parse_query(query, "before", "limit")


def parse_memory_query(query: Mapping[str, str]) -> ListQuery:
    """Read the query of `GET /v1/memory`; raises as the others."""
    return _parse_query(query, "kind", "category", "q", "before", "limit")


def _parse_query(query: Mapping[str, str], *known: str) -> ListQuery:
    unknown = next((name[:100] for name in query if name not in known), None)
    if unknown is not None:
        raise BadRequest(f"{unknown}: This field does not exist; there are: {', '.join(known)}.", unknown)
    words, before = query.get("q", ""), query.get("before")
    if len(words) > WORDS_LENGTH:
        raise invalid("q", f"may be {WORDS_LENGTH:,} characters long")
    if before is not None and not ID.fullmatch(before):
        raise invalid("before", "must be the id of the last entry of the part before")
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 10 and 1 <= int(limit) <= MAX_LIMIT):
        raise invalid("limit", f"must be a whole number from 1 to {MAX_LIMIT}")
    kind = query.get("kind")
    return ListQuery(
        words,
        before,
        int(limit),
        None if kind is None else choose(kind, get_args(Kind), "kind"),
        _parse_category(query.get("category")),
    )


def _parse_category(category: str | None) -> Category | None:
    return None if category is None else choose(category, get_args(Category), "category")


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
    """A fact that the user writes; without a category, it gets the one that fits its words."""

    text: str
    category: Category | None
    mutable: bool


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a fact or memory; None leaves a field as it is."""

    text: str | None = None
    category: Category | None = None
    mutable: bool | None = None


def parse_title(data: bytes) -> str:
    """Return the title in a body."""
    return check_title(decode(data, TitleBody).title)


def check_title(text: str) -> str:
    """Return a title without surrounding blanks."""
    text = replace_surrogates(text).strip()
    if not 1 <= len(text) <= TITLE_LENGTH or any(unicodedata.category(one) in _LINE_BREAKS for one in text):
        raise invalid("title", f"must be one line of 1 to {TITLE_LENGTH} characters")
    return text


def parse_fact(data: bytes) -> Fact:
    """Return the fact in a body; raises as the others."""
    body = decode(data, FactBody)
    return Fact(body.text, _parse_category(body.category), body.mutable)


def parse_change(data: bytes) -> Change:
    """Return the changes in a body; raises as the others."""
    body = decode(data, ChangeBody)
    change = Change(
        None if body.text is msgspec.UNSET else body.text,
        None if body.category is msgspec.UNSET else _parse_category(body.category),
        None if body.mutable is msgspec.UNSET else body.mutable,
    )
    if change == Change():
        raise BadRequest("Send any of text, category and mutable; what is left out stays as it is.", "text")
    return change


def parse_recall(data: bytes) -> bool:
    """Return whether a body switches recall on; raises as the others."""
    return decode(data, RecallBody).recall
