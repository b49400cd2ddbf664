"""Judges a stream of AG-UI events by the protocol's own package and by the order that its clients require."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ag_ui.core import Event
from pydantic import BaseModel, TypeAdapter

EVENT: TypeAdapter[Any] = TypeAdapter(Event)


def verify(stream: str) -> list[dict[str, Any]]:
    """The events of a stream, each of which the protocol's own package takes with no field left over."""
    *frames, rest = stream.split("\n\n")
    assert rest == ""
    assert all(re.fullmatch(r"data: \{.*\}", frame) for frame in frames)
    found = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    for event in found:
        read_back = EVENT.validate_python(event)
        assert list(extras(read_back)) == [], event
        assert not has_null(event)
    check_order(found)
    return found


def has_null(value: Any) -> bool:
    """Whether a field has no value instead of being left out."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(map(has_null, inner))


def extras(value: Any) -> Iterator[str]:
    """Fields that the models of the protocol do not know."""
    if isinstance(value, BaseModel):
        yield from value.model_extra or {}
        for name in type(value).model_fields:
            yield from extras(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            yield from extras(one)


OPENS = {"TEXT_MESSAGE_START", "TOOL_CALL_START", "REASONING_START", "REASONING_MESSAGE_START"}
STEPS = {"STEP_STARTED", "STEP_FINISHED"}
CLOSES = {"TEXT_MESSAGE_END", "TOOL_CALL_END", "REASONING_END", "REASONING_MESSAGE_END"}


def check_order(found: Sequence[Mapping[str, Any]]) -> None:
    """The rules of the TypeScript client's verifier, and that no delta is empty."""
    open_ones: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()
    for n, event in enumerate(found):
        kind = event["type"]
        assert (kind == "RUN_STARTED") == (n == 0)
        assert kind not in ("RUN_FINISHED", "RUN_ERROR") or n == len(found) - 1
        key = (kind.rpartition("_")[0], event.get("messageId") or event.get("toolCallId", ""))
        if kind in OPENS:
            assert key not in seen
            open_ones.add(key)
            seen.add(key)
        elif kind in CLOSES:
            open_ones.remove(key)
        elif kind in STEPS:
            step = ("STEP", event["stepName"])
            assert (step in open_ones) == (kind == "STEP_FINISHED")
            open_ones ^= {step}
        elif kind.endswith(("_CONTENT", "_ARGS")):
            assert key in open_ones
            assert event["delta"]
        elif kind in ("RUN_FINISHED", "RUN_ERROR"):
            assert not open_ones
