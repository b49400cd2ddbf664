"""The request body of AG-UI clients, a `RunAgentInput`.

As the protocol requires, unknown fields are ignored, and optional fields can be null.
"""

from typing import Any, Literal

import msgspec

from brain.protocols.bodies import ABSENT
from brain.protocols.turn_options import TurnOptions


class _Body(msgspec.Struct, rename="camel"):
    """A body with camel-case field names."""


class SourceBody(_Body):
    """A file: `value` is base64, a URL or a handle."""

    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None


class PartBody(_Body):
    """One part of a message. `binary` is any file, from clients before version 1.0 of the protocol."""

    type: Literal["text", "image", "audio", "video", "document", "binary"]
    text: str | None = None
    source: SourceBody | None = None
    metadata: dict[str, Any] | None = None
    mime_type: str | None = None
    data: str | None = None
    filename: str | None = None


class FunctionBody(_Body):
    """The function of a call, with its arguments as JSON in a string."""

    name: str
    arguments: str | None = None


class CallBody(_Body):
    """A call by the assistant: of a client tool, or of a specialist in an earlier run."""

    id: str
    function: FunctionBody


class MessageBody(_Body):
    """One message. Only an activity, which no model reads, has an object as content."""

    role: Literal["system", "developer", "user", "assistant", "tool", "activity", "reasoning"]
    content: str | list[PartBody] | dict[str, Any] | None = None
    tool_calls: list[CallBody] | None = None
    tool_call_id: str | None = None
    error: str | None = None


class ToolBody(_Body):
    """A client tool."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT


class ContextBody(_Body):
    """Information from the application."""

    description: str
    value: str


class AnswerBody(_Body):
    """A user's answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: msgspec.Raw = ABSENT


class PropsBody(TurnOptions):
    """Brain's own options. Other properties are ignored."""

    model: str | None = None
    system: str | None = None


class RunBody(_Body):
    """The body of `POST /ag-ui/run`."""

    thread_id: str
    run_id: str
    messages: msgspec.Raw
    parent_run_id: str | None = None
    tools: list[ToolBody] | None = None
    context: list[ContextBody] | None = None
    forwarded_props: msgspec.Raw = ABSENT
    resume: list[AnswerBody] | None = None
