"""Queries and bodies of the routes for stored data: lists, titles, facts and summaries, and background tasks."""

import unicodedata
from collections.abc import Mapping
from typing import Annotated, TypeVar, get_args

import msgspec

from brain.errors import BadRequest
from brain.messages import Category, Kind
from brain.protocols.common import (
    Id,
    as_bad_request,
    check_time_zone,
    choose,
    decode,
    invalid,
)
from brain.task import NewTask, TaskEdit, TaskState
from brain.text import replace_surrogates
from brain.validation import quote_value

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
TITLE_LENGTH = 200
SMALL_BODY_BYTES = 64 * 1024
"""Size limit of a body with a title, a fact or a change."""

T = TypeVar("T")

_LINE_BREAKS = frozenset(("Cc", "Zl", "Zp"))


class PageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """One page of a list. `before` is the `next` or `earlier` ID of the previous page."""

    before: Id | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT


class ConversationsQuery(PageQuery):
    """The query of `GET /v1/conversations`."""

    q: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class MemoryQuery(ConversationsQuery):
    """The query of `GET /v1/memory`; without `kind` and `category`, of all items."""

    kind: Kind | None = None
    category: Category | None = None


class TasksQuery(PageQuery):
    """The query of `GET /v1/tasks`; without `state`, tasks of all states."""

    state: str | None = None
    conversation_id: Id | None = None

    @property
    def states(self) -> list[TaskState]:
        """The states, which commas separate."""
        names = () if self.state is None else dict.fromkeys(self.state.split(","))
        return [choose(name, get_args(TaskState), "state") for name in names]


def parse_query(query: Mapping[str, str], kind: type[T]) -> T:
    """Return the query of a list."""
    try:
        return msgspec.convert(query, kind, strict=False)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, kind) from None


class TitleBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/conversations/{id}`."""

    title: str


class FactBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/memory`: a fact. Without a category, Brain chooses one by its words."""

    text: str
    category: Category | None = None
    mutable: bool | None = None


class RecallBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/memory`."""

    recall: bool


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/memory/{id}`; None leaves a field of the fact or summary unchanged."""

    text: str | None = None
    category: Category | None = None
    mutable: bool | None = None


class TaskBody(NewTask, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/tasks`."""

    conversation_id: Id | None = None
    dry_run: bool | None = None


def parse_title(data: bytes) -> str:
    """Return the title from a body."""
    return check_title(decode(data, TitleBody).title)


def check_title(text: str) -> str:
    """Return a title without surrounding whitespace."""
    text = replace_surrogates(text).strip()
    if not text:
        raise invalid("title", "is empty")
    if len(text) > TITLE_LENGTH:
        raise invalid("title", f"has {len(text):,} characters; the limit is {TITLE_LENGTH}")
    if any(unicodedata.category(one) in _LINE_BREAKS for one in text):
        raise invalid("title", "contains a line break or another control character; use one line")
    return text


def parse_change(data: bytes) -> ChangeBody:
    """Return the changes of a fact or summary from a body."""
    body = decode(data, ChangeBody)
    if body == ChangeBody():
        raise BadRequest("Send at least one of `text`, `category` and `mutable`.", "text")
    return body


def parse_new_task(data: bytes) -> TaskBody:
    """Return the task from a body."""
    body = decode(data, TaskBody)
    if body.time_zone is not None:
        check_time_zone(body.time_zone, "time_zone")
    return body


def parse_task_edit(data: bytes) -> TaskEdit:
    """Return the changes of a task from a body."""
    body = decode(data, TaskEdit)
    if body == TaskEdit():
        raise BadRequest("Send at least one of `title`, `when`, `every`, `paused` and `tell`.", "title")
    for field in ("title", "when"):
        value: str | None = getattr(body, field)
        if value is not None and not value.strip():
            raise invalid(field, "is empty; leave it out to keep its value")
    return body


def parse_cursor(cursor: str, field: str) -> int:
    """Return the key of a packet, after which a client reads the channel."""
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 18):
        raise invalid(field, f"is {quote_value(cursor)}; use the `cursor` of GET /v1/tasks or the ID of an event")
    return int(cursor)
