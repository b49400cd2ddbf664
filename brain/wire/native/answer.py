"""Wing: what is answered in Brain's own protocol: named server-sent events (contract, section 4)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from brain.events import (
    ApprovalRequired,
    Done,
    Error,
    Event,
    Notice,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    Thinking,
    Token,
    ToolCall,
    TurnStart,
    Usage,
)
from brain.wire.bodies import encoded

HEARTBEAT = b": heartbeat\n\n"

EVENT_NAMES: Mapping[type[Event], str] = {
    TurnStart: "turn_start",
    Token: "token",
    Thinking: "thinking",
    SpecialistStart: "specialist_start",
    SpecialistProgress: "specialist_progress",
    SpecialistResult: "specialist_result",
    SpecialistError: "specialist_error",
    ApprovalRequired: "approval_required",
    ToolCall: "tool_call",
    Notice: "notice",
    Usage: "usage",
    Error: "error",
    Done: "done",
}
_LEFT_OUT_WHEN_NONE = frozenset({"params", "fraction", "reused_tokens", "url", "status", "text", "approval"})


class Encoder:
    """Writes the events of one turn: ids count from 1 without gaps, lines end in LF.

    The id stands last. Some clients take it for theirs as soon as they read it, and would miss an event whose data was
    cut off behind it when they come back.

    Args:
        after: the number of the event behind which a reader goes on.
    """

    content_type = b"text/event-stream; charset=utf-8"
    headers: Sequence[tuple[bytes, bytes]] = ()
    heartbeat = HEARTBEAT
    closed = False

    def __init__(self, turn_id: str, after: int = 0) -> None:
        self._number = after
        self._after = after
        self._id = turn_id.encode() + b"."

    @property
    def taken(self) -> int:
        """How many events were written."""
        return self._number - self._after

    def encode(self, events: Sequence[Event]) -> bytes:
        """What came together as the bytes of its frames."""
        return self._frame(events[0]) if len(events) == 1 else b"".join(map(self._frame, events))

    def _frame(self, event: Event) -> bytes:
        self._number += 1
        if isinstance(event, Token) and self._number > 1:
            return b'event: token\ndata: {"text":%b}\nid: %b%d\n\n' % (encoded(event.text), self._id, self._number)
        retry = b"retry: 2000\n" if self._number == 1 else b""
        name = EVENT_NAMES[type(event)].encode()
        return b"%bevent: %b\ndata: %b\nid: %b%d\n\n" % (retry, name, encoded(plain(event)), self._id, self._number)


def plain(event: Event) -> dict[str, Any]:
    """The data of an event as JSON values; what is not known is left out."""
    found = msgspec.to_builtins(event)
    assert isinstance(found, dict)
    return _without_none(found)


def _without_none(found: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in found.items() if value is not None or key not in _LEFT_OUT_WHEN_NONE}
    if "citations" in kept:
        kept["citations"] = [_without_none(citation) for citation in kept["citations"]]
    return kept
