"""Neutralizes imported exchanges, facts and tasks. An export looks like Brain's own data, but its author is unknown."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from brain.events import ModelUsage, Notice
from brain.markers.neutralize import neutralize
from brain.messages import Annotation, Call, Exchange, FormerText, Item, Message, Part, Steer, Text
from brain.prompts import blocks, templates
from brain.task import MAX_PROMPT, MAX_RESULT, MAX_SUMMARY, MAX_TITLE, Task, make_title
from brain.tasks import schedule
from brain.text import one_line, strip_invisible
from brain.turn.notices import Annotations
from brain.turn_request import callable_name

NOTICE_LENGTH = 10_000
"""Longest imported notice or error message, in characters. Brain writes far shorter ones."""
MAX_PASSES = 1000
"""Imported records of passes, and rounds, per answer. Brain makes fewer."""
MODEL_NAME_LENGTH = 200


def exchange(one: Exchange) -> Exchange:
    """Return an exchange without instructions to a model."""
    return msgspec.structs.replace(
        one,
        question=neutralize(one.question),
        messages_before=_without_instructions(one.messages_before),
        messages_after=_without_instructions(one.messages_after),
        parts=[_part(part) for part in one.parts],
        automatic_calls=tuple(_call(part) for part in one.automatic_calls),
        tokens=0,
        untrusted=True,
        author="unknown",
        annotations=_annotations(one.annotations),
        rounds=tuple(
            msgspec.structs.replace(record, model=_shorten_model(record.model), text=_shorten(record.text))
            for record in one.rounds[:MAX_PASSES]
        ),
        passes=tuple(replace(record, model=_shorten_model(record.model)) for record in one.passes[:MAX_PASSES]),
        usage=one.usage and replace(one.usage, models=_models(one.usage.models)),
        error=one.error and replace(one.error, message=_shorten(one.error.message)),
    )


def item(one: Item) -> Item:
    """Return a neutralized fact or memory, with its former texts."""
    former = tuple(FormerText(neutralize(strip_invisible(former.text)), former.until) for former in one.former)
    return msgspec.structs.replace(one, text=neutralize(strip_invisible(one.text)), former=former)


def task(one: Task) -> Task:
    """Return a neutralized task; without its schedule if that cannot be read."""
    every, start, zone = one.every, one.start, one.time_zone
    try:
        zone = ZoneInfo(zone).key
        if start is not None and every:
            every = schedule.parse_every(every, zone, datetime.now(UTC))
    except (ValueError, OSError, ZoneInfoNotFoundError):
        every, start, zone = "", None, "UTC"
    return msgspec.structs.replace(
        one,
        title=one_line(one.title)[:MAX_TITLE] or make_title(one.prompt),
        prompt=neutralize(strip_invisible(one.prompt))[:MAX_PROMPT],
        result=neutralize(strip_invisible(one.result))[:MAX_RESULT],
        summary=neutralize(strip_invisible(one.summary))[:MAX_SUMMARY],
        reason=one_line(one.reason),
        every=every if start is not None else "",
        untrusted=True,
        user_text="",  # nobody knows who wrote it
        start=start,
        time_zone=zone,
    )


def _without_instructions(some: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(Message(one.role, neutralize(one.content)) for one in some if one.role != "system")


def _annotations(some: Iterable[Annotation]) -> tuple[Annotation, ...]:
    """Copy annotations within the limits of Brain's own answers."""
    copied = Annotations()
    for one in some:
        copied.parts_before, copied.turn_pass, copied.round = one.position, one.turn_pass, one.round
        if one.code is None:
            copied.add_thinking(one.text, one.offset)
        else:
            copied.add_notice(Notice(one.code, _shorten(one.text)))
    return copied.snapshot()


def _models(some: Mapping[str, ModelUsage] | None) -> Mapping[str, ModelUsage] | None:
    """Copy the usage by model."""
    return some and {_shorten_model(name): usage for name, usage in islice(some.items(), MAX_PASSES)}


def _shorten_model(name: str) -> str:
    return strip_invisible(name)[:MODEL_NAME_LENGTH]


def _shorten(text: str) -> str:
    return strip_invisible(text)[:NOTICE_LENGTH]


def _part(part: Part) -> Part:
    if isinstance(part, Text):
        return Text(neutralize(part.text), part.turn_pass)
    if isinstance(part, Steer):
        return Steer(neutralize(part.text), part.turn_pass)
    return _call(part)


def _call(part: Call) -> Call:
    name = callable_name(part.name)
    marker = templates.marker(name, part.params or {}, "bracket") if part.marker else ""
    reason = blocks.reason_text(part.reason) if part.reason else ""
    return msgspec.structs.replace(
        part, name=name, marker=marker, reason=reason, block=_block(name, part), if_interrupted=None
    )


def _block(name: str, part: Call) -> str:
    """Rebuild the block of a call from its content."""
    if not part.block:
        return ""
    text = blocks.block_content(part.name, part.block, part.code is not None)
    if part.code is None:
        return blocks.result_block(name, blocks.result_text(text))
    reason, _, advice = text.partition("; ")
    return blocks.error_block(name, blocks.reason_text(reason), blocks.reason_text(advice) if advice.strip() else "")
