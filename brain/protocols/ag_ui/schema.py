"""The body that AG-UI clients send, a `RunAgentInput`, as it stands in the JSON.

As the protocol wants, fields that are not known are passed over, and what may be left out may be null.
"""

from typing import Any, Literal

import msgspec

from brain.protocols.native import LimitsBody

ABSENT = msgspec.Raw(b"")


class _Sent(msgspec.Struct, rename="camel"):
    """Names are written as JavaScript writes them."""


class SourceBody(_Sent):
    """Where a file is: in `value` in base64, or behind an address or a handle in it."""

    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None


class TextBody(_Sent, tag_field="type", tag="text"):
    """A part that is text."""

    text: str


class _MediaBody(_Sent):
    source: SourceBody
    metadata: dict[str, Any] | None = None


class ImageBody(_MediaBody, tag_field="type", tag="image"):
    """A part that is a picture."""


class AudioBody(_MediaBody, tag_field="type", tag="audio"):
    """A part that is sound."""


class VideoBody(_MediaBody, tag_field="type", tag="video"):
    """A part that is a film."""


class DocumentBody(_MediaBody, tag_field="type", tag="document"):
    """A part that is another file."""


class BinaryBody(_Sent, tag_field="type", tag="binary"):
    """Any file, as it was sent before the protocol's version 1.0."""

    mime_type: str = ""
    data: str | None = None
    filename: str | None = None


FileBody = ImageBody | AudioBody | VideoBody | DocumentBody | BinaryBody
ContentBody = str | list[TextBody | FileBody]


class SystemBody(_Sent, tag_field="role", tag="system"):
    """Instructions."""

    content: str = ""


class DeveloperBody(_Sent, tag_field="role", tag="developer"):
    """Instructions, by their other name."""

    content: str = ""


class UserBody(_Sent, tag_field="role", tag="user"):
    """What the user said."""

    content: ContentBody


class FunctionBody(_Sent):
    """What is called, with its arguments as JSON in a string."""

    name: str
    arguments: str = ""


class CallBody(_Sent):
    """One call of the assistant's: of a client's tool, or of a specialist in an earlier run."""

    id: str
    function: FunctionBody


class AssistantBody(_Sent, tag_field="role", tag="assistant"):
    """What was answered, and called."""

    content: str | None = None
    tool_calls: list[CallBody] | None = None


class ResultBody(_Sent, tag_field="role", tag="tool"):
    """What came of a call."""

    tool_call_id: str
    content: ContentBody = ""
    error: str | None = None


class ActivityBody(_Sent, tag_field="role", tag="activity"):
    """What was shown besides, and nobody said."""


class ReasoningBody(_Sent, tag_field="role", tag="reasoning"):
    """What a model thought, and no other needs to know."""


MessageBody = SystemBody | DeveloperBody | UserBody | AssistantBody | ResultBody | ActivityBody | ReasoningBody


class ToolBody(_Sent):
    """A tool of the client's own."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT


class ContextBody(_Sent):
    """Something that the application wants to be known."""

    description: str
    value: str


class AnswerBody(_Sent):
    """What a person said to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: msgspec.Raw = ABSENT


class PropsBody(msgspec.Struct):
    """The options that are Brain's own; others are other people's."""

    model: str | None = None
    specialists: list[str] | None = None
    limits: LimitsBody | None = None
    system: str | None = None
    time_zone: str | None = None
    source: str | None = None
    memory: bool | None = None


class RunBody(_Sent):
    """The body."""

    thread_id: str
    run_id: str
    messages: msgspec.Raw
    parent_run_id: str | None = None
    tools: list[ToolBody] | None = None
    context: list[ContextBody] | None = None
    forwarded_props: msgspec.Raw = ABSENT
    resume: list[AnswerBody] | None = None
