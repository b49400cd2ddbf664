"""The body that AG-UI clients send, a `RunAgentInput`, as it stands in the JSON.

As the protocol demands, unknown fields are ignored, and optional fields can be null.
"""

from typing import Any, Literal

import msgspec

from brain.protocols.bodies import ABSENT
from brain.protocols.turn_options import TurnOptions


class _Body(msgspec.Struct, rename="camel"):
    """Field names are camel case in the JSON."""


class SourceBody(_Body):
    """A file: in base64 in `value`, or behind a URL or a handle there."""

    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None


class TextBody(_Body, tag_field="type", tag="text"):
    """A part that is text."""

    text: str


class _MediaBody(_Body, tag_field="type"):
    source: SourceBody
    metadata: dict[str, Any] | None = None


class ImageBody(_MediaBody, tag="image"):
    """A part that is an image."""


class AudioBody(_MediaBody, tag="audio"):
    """A part that is audio."""


class VideoBody(_MediaBody, tag="video"):
    """A part that is a video."""


class DocumentBody(_MediaBody, tag="document"):
    """A part that is another file."""


class BinaryBody(_Body, tag_field="type", tag="binary"):
    """Any file, as clients sent it before version 1.0 of the protocol."""

    mime_type: str = ""
    data: str | None = None
    filename: str | None = None


FileBody = ImageBody | AudioBody | VideoBody | DocumentBody | BinaryBody
ContentBody = str | list[TextBody | FileBody]


class SystemBody(_Body, tag_field="role", tag="system"):
    """Instructions."""

    content: str = ""


class DeveloperBody(_Body, tag_field="role", tag="developer"):
    """Instructions, by their other name."""

    content: str = ""


class UserBody(_Body, tag_field="role", tag="user"):
    """A message of the user."""

    content: ContentBody


class FunctionBody(_Body):
    """The function of a call, with its arguments as JSON in a string."""

    name: str
    arguments: str = ""


class CallBody(_Body):
    """A call by the assistant: of a client's tool, or of a specialist in an earlier run."""

    id: str
    function: FunctionBody


class AssistantBody(_Body, tag_field="role", tag="assistant"):
    """An answer with its calls."""

    content: str | None = None
    tool_calls: list[CallBody] | None = None


class ResultBody(_Body, tag_field="role", tag="tool"):
    """The result of a call."""

    tool_call_id: str
    content: ContentBody = ""
    error: str | None = None


class ActivityBody(_Body, tag_field="role", tag="activity"):
    """Something that the client showed; no model reads it."""


class ReasoningBody(_Body, tag_field="role", tag="reasoning"):
    """What a model thought; no other model reads it."""


MessageBody = SystemBody | DeveloperBody | UserBody | AssistantBody | ResultBody | ActivityBody | ReasoningBody


class ToolBody(_Body):
    """A tool of the client's own."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT


class ContextBody(_Body):
    """Information from the application."""

    description: str
    value: str


class AnswerBody(_Body):
    """A person's answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: msgspec.Raw = ABSENT


class PropsBody(TurnOptions):
    """Brain's own options. Other properties are other people's."""

    model: str | None = None
    system: str | None = None


class RunBody(_Body):
    """The body."""

    thread_id: str
    run_id: str
    messages: msgspec.Raw
    parent_run_id: str | None = None
    tools: list[ToolBody] | None = None
    context: list[ContextBody] | None = None
    forwarded_props: msgspec.Raw = ABSENT
    resume: list[AnswerBody] | None = None
