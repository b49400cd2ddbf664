"""Encodes a turn as named server-sent events."""

import re
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
    Rewind,
    Round,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    TaskChange,
    Thinking,
    Token,
    ToolCall,
    TurnStart,
    Usage,
)
from brain.protocols.encoding import encode

EVENT_NAMES: Mapping[type[Event], str] = {
    TurnStart: "turn_start",
    Token: "token",
    Thinking: "thinking",
    Round: "round",
    SpecialistStart: "specialist_start",
    SpecialistProgress: "specialist_progress",
    SpecialistResult: "specialist_result",
    SpecialistError: "specialist_error",
    ApprovalRequired: "approval_required",
    ToolCall: "tool_call",
    TaskChange: "task",
    Rewind: "rewind",
    Notice: "notice",
    Usage: "usage",
    Error: "error",
    Done: "done",
}
_RETRY = b"retry: 2000\n"
_OPTIONAL_FIELDS = frozenset(
    {
        "params", "fraction", "reused_tokens", "models", "url", "status", "text", "approval",
        "by", "round", "rounds", "steps", "step_seconds", "run", "retry_after",
    }
)  # fmt: skip
"""Fields that are left out if they are None."""
_EVENT_TYPES: Mapping[bytes, tuple[type[Event], Mapping[str, None]]] = {
    name.encode(): (kind, dict.fromkeys(_OPTIONAL_FIELDS & {field.name for field in fields(kind)}))
    for kind, name in EVENT_NAMES.items()
}
"""By event name: its type and its optional fields."""


class FrameEncoder:
    """Encodes the events of one turn as frames. IDs count without gaps; lines end in LF.

    The first event of a log has the time to reconnect: event 1, or the one that continues the turn of another process.

    The ID comes last. Some clients store it as soon as they read it. If the connection broke between ID and data,
    they would miss that event when they reconnect.

    Args:
        number: the number of the last encoded event.
    """

    __slots__ = ("_id", "_number")

    def __init__(self, turn_id: str, number: int = 0) -> None:
        self._number = number
        self._id = turn_id.encode() + b"."

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames of the next events."""
        frames = b""
        for event in events:
            self._number += 1
            if self._number == 1:
                frames = _RETRY
            if type(event) is Token:
                frames += b'event: token\ndata: {"text":%b}\nid: %b%d\n\n' % (
                    encode(event.text),
                    self._id,
                    self._number,
                )
            else:
                name, data = EVENT_NAMES[type(event)].encode(), encode(event_data(event))
                if type(event) is Rewind and self._number > 1:
                    frames += _RETRY
                frames += b"event: %b\ndata: %b\nid: %b%d\n\n" % (name, data, self._id, self._number)
        return frames


def decode_event(name: str, data: Mapping[str, Any]) -> Event:
    """Return the event with this name and this data.

    Raises:
        KeyError, msgspec.ValidationError: there is no such event.
    """
    kind, missing = _EVENT_TYPES[name.encode()]
    return msgspec.convert({**missing, **data}, kind)


def decode_frames(frames: bytes) -> Iterator[Event]:
    """Yield the events in complete frames of a `FrameEncoder`."""
    for frame in frames.removesuffix(b"\n\n").split(b"\n\n"):
        lines = dict(line.split(b": ", 1) for line in frame.split(b"\n"))
        yield decode_event(lines[b"event"].decode(), msgspec.json.decode(lines[b"data"]))


_TOKEN = re.compile(rb'event: token\ndata: \{"text":("[^\n]*")\}\nid: [^\n]*\n\n')


def text_of_tokens(frames: bytes) -> str | None:
    """Return the text of complete frames, or None if one of them is not a token."""
    texts = _TOKEN.findall(frames)
    if len(texts) != frames.count(b"\n\n"):
        return None
    return "".join(_strings(b"[" + b",".join(texts) + b"]"))


_strings = msgspec.json.Decoder(list[str]).decode


def event_data(event: Event) -> dict[str, Any]:
    """Return the data of an event as JSON values, without optional fields that are None."""
    data: dict[str, Any] = _drop_none(msgspec.to_builtins(event))
    if "citations" in data:
        data["citations"] = [_drop_none(citation) for citation in data["citations"]]
    if "limits" in data:
        data["limits"] = _drop_none(data["limits"])
    if "models" in data:
        data["models"] = {name: _drop_none(usage) for name, usage in data["models"].items()}
    return data


def _drop_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None or name not in _OPTIONAL_FIELDS}
