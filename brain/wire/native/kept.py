"""Wing: what is kept of a user, in Brain's own protocol: conversations, facts and memories as JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from brain.events import Citation, StopReason
from brain.kept import ChatMessage, Heading, History, Item, chat_messages
from brain.messages import Exchange, Part, Said, Steered
from brain.wire.bodies import encoded

_STOPPED: frozenset[str] = frozenset(get_args(StopReason))
_STATES: Mapping[str, str] = {"": "running", "cancelled": "cancelled", "interrupted": "interrupted"}


def listed(headings: Sequence[Heading], limit: int) -> bytes:
    """A part of the list of conversations.

    Args:
        headings: one more than `limit` where there are more behind.
    """
    shown = headings[:limit]
    following = shown[-1].id if len(headings) > limit else None
    return encoded({"conversations": [_heading(one) for one in shown], "next": following})


def heading(one: Heading) -> bytes:
    """One conversation, as it stands in the list."""
    return encoded(_heading(one))


def opened(found: History, weight: Callable[[Exchange], int], turn_id: str | None) -> bytes:
    """A conversation with its newest messages, oldest first.

    Args:
        weight: how many tokens an exchange takes.
        turn_id: of the turn that runs, where it can be joined.
    """
    head = _heading(found.heading)
    del head["messages"]
    return encoded(
        {
            **head,
            **({} if turn_id is None else {"turn_id": turn_id}),
            "messages": [message for exchange in found.exchanges for message in _messages(exchange, weight)],
            "files": msgspec.to_builtins(found.files),
            "earlier": found.earlier,
        }
    )


def remembered(items: Sequence[Item], limit: int, *, recall: bool) -> bytes:
    """A part of the list of facts and memories.

    Args:
        items: one more than `limit` where there are more behind.
    """
    shown = items[:limit]
    following = shown[-1].id if len(items) > limit else None
    return encoded({"recall": recall, "items": msgspec.to_builtins(shown), "next": following})


def item(one: Item) -> bytes:
    """One fact or memory."""
    return encoded(msgspec.to_builtins(one))


def recalls(on: bool) -> bytes:
    """Whether facts and memories are recalled."""
    return encoded({"recall": on})


def _heading(one: Heading) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(one)
    if not one.found:
        del found["found"]
    return found


def _messages(exchange: Exchange, weight: Callable[[Exchange], int]) -> Iterator[dict[str, Any]]:
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
        "parts": [_part(part) for part in answer.parts],
        **_outcome(answer.outcome),
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


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Said(text):
            return {"type": "text", "text": text}
        case Steered(text):
            return {"type": "steered", "text": text}
    return {
        "type": "call",
        "call_id": part.call_id,
        "name": part.name,
        "params": part.params,
        "outcome": part.outcome,
        "block": part.block,
        "citations": [_citation(citation) for citation in part.citations],
    }


def _citation(citation: Citation) -> dict[str, str]:
    found: dict[str, str | None] = msgspec.to_builtins(citation)
    return {name: value for name, value in found.items() if value is not None}
