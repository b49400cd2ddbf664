"""Parses requests for stored data: pages of lists, and changes of titles, facts and summaries."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import msgspec

from brain.errors import BadRequest
from brain.messages import Category, Kind
from brain.protocols.bodies import choose, decode, invalid
from brain.protocols.turn_options import ID
from brain.text import replace_surrogates
from brain.validation import quote_value

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
WORDS_LENGTH = 1_000
TITLE_LENGTH = 200
SMALL_BODY_BYTES = 64 * 1024
"""Size limit of a body with a title, a fact or a change."""

_LINE_BREAKS = frozenset(("Cc", "Zl", "Zp"))


@dataclass(frozen=True, slots=True)
class ListQuery:
    """One page of a list.

    Attributes:
        before: the `next` or `earlier` ID of the previous page.
        kind, category: of facts and summaries; None for all.
    """

    words: str = ""
    before: str | None = None
    limit: int = DEFAULT_LIMIT
    kind: Kind | None = None
    category: Category | None = None


def parse_conversations_query(query: Mapping[str, str]) -> ListQuery:
    """Parse the query of `GET /v1/conversations`."""
    return parse_query(query, "q", "before", "limit")


def parse_messages_query(query: Mapping[str, str]) -> ListQuery:
    """Parse the query of `GET /v1/conversations/{id}`."""
    return parse_query(query, "before", "limit")


def parse_memory_query(query: Mapping[str, str]) -> ListQuery:
    """Parse the query of `GET /v1/memory`."""
    return parse_query(query, "kind", "category", "q", "before", "limit")


def parse_query(query: Mapping[str, str], *known: str) -> ListQuery:
    """Parse the query of a list, with the parameters that it knows."""
    unknown = next((name[:100] for name in query if name not in known), None)
    if unknown is not None:
        raise invalid(unknown, f"is an unknown query parameter; known parameters: {', '.join(known)}")
    words, before = query.get("q", ""), query.get("before")
    if len(words) > WORDS_LENGTH:
        raise invalid("q", f"has {len(words):,} characters; the limit is {WORDS_LENGTH:,}")
    if before is not None and not ID.fullmatch(before):
        raise invalid("before", f"is {quote_value(before)}; use the `next` or `earlier` ID of the previous page")
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 10 and 1 <= int(limit) <= MAX_LIMIT):
        raise invalid("limit", f"is {quote_value(limit)}; use an integer from 1 to {MAX_LIMIT}")
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
    mutable: bool | None = None


class RecallBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/memory`."""

    recall: bool


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/memory/{id}`."""

    text: str | None = None
    category: str | None = None
    mutable: bool | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that the user writes. Without a category, Brain chooses one by its words."""

    text: str
    category: Category | None
    mutable: bool


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of a fact or summary; None leaves a field unchanged."""

    text: str | None = None
    category: Category | None = None
    mutable: bool | None = None


def parse_title(data: bytes) -> str:
    """Return the title from a body."""
    return check_title(decode(data, TitleBody).title)


def check_title(text: str) -> str:
    """Return a title without surrounding whitespace.

    Raises:
        BadRequest: it is empty, too long, or not one line.
    """
    text = replace_surrogates(text).strip()
    if not text:
        raise invalid("title", "is empty")
    if len(text) > TITLE_LENGTH:
        raise invalid("title", f"has {len(text):,} characters; the limit is {TITLE_LENGTH}")
    if any(unicodedata.category(one) in _LINE_BREAKS for one in text):
        raise invalid("title", "contains a line break or another control character; use one line")
    return text


def parse_fact(data: bytes) -> Fact:
    """Return the fact from a body."""
    body = decode(data, FactBody)
    return Fact(body.text, _parse_category(body.category), body.mutable is not False)


def parse_change(data: bytes) -> Change:
    """Return the changes from a body."""
    body = decode(data, ChangeBody)
    change = Change(body.text, _parse_category(body.category), body.mutable)
    if change == Change():
        raise BadRequest("Send at least one of `text`, `category` and `mutable`.", "text")
    return change


def parse_recall(data: bytes) -> bool:
    """Return whether a body switches recall on."""
    return decode(data, RecallBody).recall
