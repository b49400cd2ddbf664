"""What comes in a copy of what was kept, made harmless: it looks like our own, but nothing says who wrote it."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from brain.events import Thinking
from brain.markers.neutralize import neutralize
from brain.messages import Annotation, AnswerDetails, Call, Exchange, Item, Message, Part, Steer, Text
from brain.prompts import blocks, templates
from brain.prompts.client_tools import callable_name
from brain.text import strip_invisible
from brain.turn.notices import Annotations

TOLD_LENGTH = 10_000
"""Characters of a notice, and of why an answer failed. Our own are far shorter."""


def exchange(one: Exchange) -> Exchange:
    """An exchange of which a model reads what was said and found, and nothing that tells it what to do."""
    return replace(
        one,
        question=neutralize(one.question),
        before=_said(one.before),
        behind=_said(one.behind),
        parts=[_part(part) for part in one.parts],
        one_way=tuple(_call(part) for part in one.one_way),
        tokens=0,
        outside=True,
        about=_about(one.about),
    )


def item(one: Item) -> Item:
    """A fact or a memory, with what it said before."""
    was = tuple(replace(former, text=neutralize(strip_invisible(former.text))) for former in one.was)
    return replace(one, text=neutralize(strip_invisible(one.text)), was=was)


def _said(some: Iterable[Message]) -> tuple[Message, ...]:
    """What was said, without instructions."""
    return tuple(Message(one.role, neutralize(one.content)) for one in some if one.role != "system")


def _about(about: AnswerDetails) -> AnswerDetails:
    """How an answer came to be, with no more beside it than is kept of our own."""
    failure = about.failure and replace(about.failure, message=_told(about.failure.message))
    return replace(about, asides=_asides(about.asides), failure=failure)


def _asides(some: Iterable[Annotation]) -> tuple[Annotation, ...]:
    kept = Annotations()
    for aside in some:
        kept.parts_before = aside.place
        if isinstance(aside.told, Thinking):
            kept.add_thinking(aside.told.text, aside.at)
        else:
            kept.add_notice(replace(aside.told, text=_told(aside.told.text)))
    return kept.snapshot()


def _told(text: str) -> str:
    return strip_invisible(text)[:TOLD_LENGTH]


def _part(part: Part) -> Part:
    if isinstance(part, Text):
        return Text(neutralize(part.text), part.turn_pass)
    if isinstance(part, Steer):
        return Steer(neutralize(part.text), part.turn_pass)
    return _call(part)


def _call(part: Call) -> Call:
    name = callable_name(part.name)
    marker = templates.marker(name, part.params or {}, "bracket") if part.marker else ""
    return msgspec.structs.replace(part, name=name, marker=marker, block=_block(name, part))


def _block(name: str, part: Call) -> str:
    """The block of a call, made anew of what stands in it."""
    if not part.block:
        return ""
    text = blocks.block_content(part.name, part.block, part.code is not None)
    if part.code is None:
        return blocks.result_block(name, blocks.result_text(text))
    return blocks.error_block(name, blocks.reason_text(text))
