"""Answers as they are kept, and given away: their parts, and how they came to be."""

from collections.abc import Iterable
from dataclasses import astuple
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from brain.events import Approval, CallCode, Citation, Error, ErrorCode, Notice, NoticeCode, Thinking, Usage
from brain.messages import Annotation, AnswerDetails, Call, Exchange, Part, Steer, Text

Number = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""A count that every client can read: those in JavaScript have no larger ones."""
Pass = Annotated[int, Meta(ge=1 - 2**53, le=2**53 - 1)]
"""The passes of what a client holds are below those of the turn that goes on with it."""


class SaidRow(msgspec.Struct, tag="said", tag_field="kind"):
    """Text of an answer."""

    text: str
    turn_pass: Pass


class CalledRow(msgspec.Struct, tag="called", tag_field="kind", omit_defaults=True):
    """A call and its block."""

    call_id: str
    name: str
    params: dict[str, Any] | None
    marker: str
    block: str
    turn_pass: Pass
    outcome: CallCode | None = None
    citations: tuple[Citation, ...] = ()
    outside: bool = False
    cached: bool = False
    ms: Number | None = None
    approval: Approval | None = None


class SteeredRow(msgspec.Struct, tag="steered", tag_field="kind"):
    """What the user put in."""

    text: str
    turn_pass: Pass


PartRow = SaidRow | CalledRow | SteeredRow


class AsideRow(msgspec.Struct, omit_defaults=True, frozen=True):
    """A notice, or what the model thought, which has no code."""

    text: str
    place: Number
    at: Number = 0
    code: NoticeCode | None = None


class UsageRow(msgspec.Struct, frozen=True):
    """What it took."""

    prompt_tokens: Number
    completion_tokens: Number
    reused_tokens: Number | None
    estimated: bool


class FailureRow(msgspec.Struct, frozen=True):
    """With what it failed."""

    code: ErrorCode
    message: str
    recoverable: bool
    status: Number | None = None


class AboutRow(msgspec.Struct, omit_defaults=True, frozen=True):
    """How an answer came to be."""

    asides: tuple[AsideRow, ...] = ()
    usage: UsageRow | None = None
    first_token_ms: Number | None = None
    total_ms: Number | None = None
    failure: FailureRow | None = None


read_parts = msgspec.json.Decoder(list[PartRow]).decode
read_about = msgspec.json.Decoder(AboutRow).decode


def rows_of(exchange: Exchange) -> list[PartRow]:
    """An answer in the form in which it is kept, and given away; the calls that files asked for are of no pass."""
    return [_row_of(part) for part in (*exchange.one_way, *exchange.parts)]


def _row_of(part: Part) -> PartRow:
    if isinstance(part, Text):
        return SaidRow(part.text, part.turn_pass)
    if isinstance(part, Steer):
        return SteeredRow(part.text, part.turn_pass)
    return CalledRow(
        call_id=part.id,
        name=part.name,
        params=part.params,
        marker=part.marker,
        block=part.block,
        turn_pass=part.turn_pass,
        outcome=part.code,
        citations=part.citations,
        outside=part.untrusted,
        cached=part.cached,
        ms=part.ms,
        approval=part.approval,
    )


def parts_of(rows: Iterable[PartRow]) -> tuple[tuple[Call, ...], list[Part]]:
    """The same back: the calls that files asked for, and the parts."""
    one_way: list[Call] = []
    parts: list[Part] = []
    for part in map(_part_of, rows):
        if isinstance(part, Call) and part.turn_pass == 0:
            one_way.append(part)
        else:
            parts.append(part)
    return tuple(one_way), parts


def _part_of(row: PartRow) -> Part:
    if isinstance(row, SaidRow):
        return Text(row.text, row.turn_pass)
    if isinstance(row, SteeredRow):
        return Steer(row.text, row.turn_pass)
    return Call(
        id=row.call_id,
        name=row.name,
        params=row.params,
        marker=row.marker,
        code=row.outcome,
        block=row.block,
        citations=row.citations,
        turn_pass=row.turn_pass,
        untrusted=row.outside,
        cached=row.cached,
        ms=row.ms,
        approval=row.approval,
    )


def about_row(about: AnswerDetails) -> AboutRow:
    """How an answer came to be, in the form in which it is kept."""
    asides = tuple(map(_aside_row, about.asides))
    usage = None if about.usage is None else UsageRow(*astuple(about.usage))
    failure = None if about.failure is None else FailureRow(*astuple(about.failure))
    return AboutRow(asides, usage, about.first_token_ms, about.total_ms, failure)


def _aside_row(aside: Annotation) -> AsideRow:
    code = aside.told.code if isinstance(aside.told, Notice) else None
    return AsideRow(aside.told.text, aside.place, aside.at, code)


def about_of(row: AboutRow) -> AnswerDetails:
    """The same back."""
    asides = tuple(map(_aside_of, row.asides))
    usage = None if row.usage is None else Usage(*msgspec.structs.astuple(row.usage))
    failure = None if row.failure is None else Error(*msgspec.structs.astuple(row.failure))
    return AnswerDetails(asides, usage, row.first_token_ms, row.total_ms, failure)


def _aside_of(row: AsideRow) -> Annotation:
    told = Thinking(row.text) if row.code is None else Notice(row.code, row.text)
    return Annotation(told, row.place, row.at)


def visible(parts: str) -> str:
    """The text of an answer, of its parts as they are kept; none where they are damaged."""
    try:
        found = read_parts(parts)
    except msgspec.MsgspecError:
        return ""
    return "".join(part.text for part in found if isinstance(part, SaidRow))


def untold(about: str) -> str:
    """The same, as it is kept, without what was recalled; nothing where it is damaged."""
    try:
        row = read_about(about)
    except msgspec.MsgspecError:
        return "{}"
    asides = tuple(aside for aside in row.asides if aside.code != "recalled")
    return msgspec.json.encode(msgspec.structs.replace(row, asides=asides)).decode()
