"""What is answered in Brain's own protocol: named server-sent events (contract, section 4)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
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
from brain.protocols.bodies import encode

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
_LEFT_OUT: Mapping[bytes, tuple[type[Event], Mapping[str, None]]] = {
    name.encode(): (kind, dict.fromkeys(_LEFT_OUT_WHEN_NONE & {field.name for field in fields(kind)}))
    for kind, name in EVENT_NAMES.items()
}
"""By the name of an event: its type, and the fields that its data may lack."""


class FrameEncoder:
    """Encodes the events of one turn as frames. IDs count from 1 without gaps; lines end in LF.

    The ID comes last. Some clients store it as soon as they read it: if the connection broke before the data, they
    would miss that event when they reconnect.
    """

    __slots__ = ("_id", "_number")

    def __init__(self, turn_id: str) -> None:
        self._number = 0
        self._id = turn_id.encode() + b"."

    def encode(self, events: Sequence[Event]) -> bytes:
        """The frames of the next events."""
        return self._frame(events[0]) if len(events) == 1 else b"".join(map(self._frame, events))

    def _frame(self, event: Event) -> bytes:
        self._number += 1
        if type(event) is Token and self._number > 1:
            return b'event: token\ndata: {"text":%b}\nid: %b%d\n\n' % (encode(event.text), self._id, self._number)
        retry = b"retry: 2000\n" if self._number == 1 else b""
        name = EVENT_NAMES[type(event)].encode()
        return b"%bevent: %b\ndata: %b\nid: %b%d\n\n" % (retry, name, encode(event_data(event)), self._id, self._number)


def decode_frames(frames: bytes) -> Iterator[Event]:
    """The events that whole frames of a `FrameEncoder` hold."""
    for frame in frames.removesuffix(b"\n\n").split(b"\n\n"):
        lines = dict(line.split(b": ", 1) for line in frame.split(b"\n"))
        kind, left_out = _LEFT_OUT[lines[b"event"]]
        yield msgspec.convert({**left_out, **msgspec.json.decode(lines[b"data"])}, kind)


def event_data(event: Event) -> dict[str, Any]:
    """The data of an event as JSON values; what is not known is left out."""
    found = msgspec.to_builtins(event)
    assert isinstance(found, dict)
    return _without_none(found)


def _without_none(found: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in found.items() if value is not None or key not in _LEFT_OUT_WHEN_NONE}
    if "citations" in kept:
        kept["citations"] = [_without_none(citation) for citation in kept["citations"]]
    return kept
