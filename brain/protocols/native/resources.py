"""What is kept of a user, in Brain's own protocol: conversations, facts and memories as JSON."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import msgspec

from brain.events import Citation, Notice, StopReason, Thinking
from brain.messages import (
    Annotation,
    AnswerDetails,
    ChatMessage,
    Conversation,
    ConversationPage,
    Exchange,
    Item,
    Part,
    Steer,
    Text,
    TurnReport,
    chat_messages,
)
from brain.protocols.bodies import encode
from brain.protocols.native.encoder import event_data

_STOPPED: frozenset[str] = frozenset(get_args(StopReason))
_STATES: Mapping[str, str] = {"": "running", "cancelled": "cancelled", "interrupted": "interrupted"}

Inside = Callable[[str, str, bool], str]
"""What stands in the block of a specialist, of this name, and whether its call failed."""


def encode_conversations(headings: Sequence[Conversation], limit: int) -> bytes:
    """A part of the list of conversations.

    Args:
        headings: one more than `limit` where there are more behind.
    """
    shown = headings[:limit]
    following = shown[-1].id if len(headings) > limit else None
    return encode({"conversations": [_heading(one) for one in shown], "next": following})


def encode_conversation(one: Conversation) -> bytes:
    """One conversation, as it stands in the list."""
    return encode(_heading(one))


def encode_page(
    found: ConversationPage, weight: Callable[[Exchange], int], inside: Inside, turn_id: str | None
) -> bytes:
    """A conversation with its newest messages, oldest first.

    Args:
        weight: how many tokens an exchange takes.
        turn_id: of the turn that runs, where it can be joined.
    """
    head = _heading(found.heading)
    del head["messages"]
    return encode(
        {
            **head,
            **({} if turn_id is None else {"turn_id": turn_id}),
            "messages": [message for exchange in found.exchanges for message in _messages(exchange, weight, inside)],
            "files": msgspec.to_builtins(found.files),
            "earlier": found.earlier,
        }
    )


def encode_items(items: Sequence[Item], limit: int, *, recall: bool) -> bytes:
    """A part of the list of facts and memories.

    Args:
        items: one more than `limit` where there are more behind.
    """
    shown = items[:limit]
    following = shown[-1].id if len(items) > limit else None
    return encode({"recall": recall, "items": msgspec.to_builtins(shown), "next": following})


def encode_item(one: Item) -> bytes:
    """One fact or memory."""
    return encode(msgspec.to_builtins(one))


def encode_recall(on: bool) -> bytes:
    """Whether facts and memories are recalled."""
    return encode({"recall": on})


def turn_report(report: TurnReport) -> dict[str, Any]:
    """What happened in a turn so far."""
    found: dict[str, Any] = msgspec.to_builtins(replace(report, calls=()))
    found["calls"] = [
        {
            "call_id": call.id,
            "name": call.name,
            "params": call.params,
            "by": call.by,
            "turn_pass": call.turn_pass,
            "began_ms": call.began_ms,
            "ms": call.ms,
            "outcome": call.outcome,
            "cached": call.cached,
            "approval": call.approval,
            "preview": call.preview,
        }
        for call in report.calls
    ]
    return found


def _heading(one: Conversation) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(one)
    if not one.found:
        del found["found"]
    return found


def _messages(exchange: Exchange, weight: Callable[[Exchange], int], inside: Inside) -> Iterator[dict[str, Any]]:
    asked, answer = chat_messages(exchange)
    yield {
        **_message(asked),
        "source": asked.source,
        "parts": [{"type": "text", "text": asked.text}] if asked.text else [],
        "files": list(exchange.files),
        "recalled": list(exchange.recalled),
    }
    counted = "server" if exchange.tokens else "bytes/4"
    yield {
        **_message(answer),
        "parts": [_part(part, inside) for part in _with_asides(answer.parts, exchange.about.asides)],
        **_outcome(answer.outcome),
        **_about(exchange.about),
        "model": exchange.model,
        "tokens": {"count": weight(exchange), "counted": counted},
        "citations": [_citation(citation) for citation in answer.citations],
    }


def _message(entry: ChatMessage) -> dict[str, Any]:
    return {"id": entry.id or None, "role": entry.role, "time": msgspec.to_builtins(entry.time)}


def _outcome(outcome: str) -> dict[str, str]:
    """How an answer ended: by itself, by a limit, by somebody who stopped it, or by an error."""
    if outcome in _STATES:
        return {"state": _STATES[outcome]}
    return (
        {"state": "complete", "stop_reason": outcome} if outcome in _STOPPED else {"state": "error", "error": outcome}
    )


def _about(about: AnswerDetails) -> dict[str, Any]:
    """How an answer came to be, in the fields of the events that told it."""
    failure = {} if about.failure is None else event_data(about.failure)
    failure.pop("code", None)  # which is its outcome
    times = {"first_token_ms": about.first_token_ms, "total_ms": about.total_ms}
    known = {name: value for name, value in times.items() if value is not None}
    return {**failure, **({} if about.usage is None else {"usage": event_data(about.usage)}), **known}


def _with_asides(parts: Sequence[Part], asides: Sequence[Annotation]) -> Iterator[Part | Notice | Thinking]:
    """The parts of an answer, and what stands beside them in its place; a text is parted where it was told."""
    waiting = deque(sorted(asides, key=lambda aside: (aside.place, aside.at)))
    for place, part in enumerate(parts):
        shown = 0
        while waiting and waiting[0].place <= place:
            aside = waiting.popleft()
            if isinstance(part, Text) and part.text[shown : aside.at]:
                yield Text(part.text[shown : aside.at], part.turn_pass)
                shown = aside.at
            yield aside.told
        if not isinstance(part, Text):
            yield part
        elif part.text[shown:]:
            yield Text(part.text[shown:], part.turn_pass)
    yield from (aside.told for aside in waiting)


def _part(part: Part | Notice | Thinking, inside: Inside) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Steer(text):
            return {"type": "steered", "text": text}
        case Thinking(text):
            return {"type": "thinking", "text": text}
        case Notice(code, text):
            return {"type": "notice", "code": code, "text": text}
    told = inside(part.name, part.block, part.code is not None)
    how = {"ms": part.ms, "approval": part.approval}
    return {
        "type": "call",
        "call_id": part.id,
        "name": part.name,
        "params": part.params,
        "outcome": part.code,
        "block": part.block,
        "text" if part.code is None else "reason": told,
        "citations": [_citation(citation) for citation in part.citations],
        "cached": part.cached,
        **{name: value for name, value in how.items() if value is not None},
    }


def _citation(citation: Citation) -> dict[str, str]:
    found: dict[str, str | None] = msgspec.to_builtins(citation)
    return {name: value for name, value in found.items() if value is not None}
