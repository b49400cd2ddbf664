"""The body that AG-UI clients send, a `RunAgentInput`, as it stands in the JSON.

As the protocol wants, fields that are not known are passed over, and what may be left out may be null.
"""

from typing import Any, Literal

import msgspec

from brain.protocols.native import SentLimits

ABSENT = msgspec.Raw(b"")


class _Sent(msgspec.Struct, rename="camel"):
    """Names are written as JavaScript writes them."""


class SentSource(_Sent):
    """Where a file is: in `value` in base64, or behind an address or a handle in it."""

    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None


class SentText(_Sent, tag_field="type", tag="text"):
    """A part that is text."""

    text: str


class _SentMedia(_Sent):
    source: SentSource
    metadata: dict[str, Any] | None = None


class SentImage(_SentMedia, tag_field="type", tag="image"):
    """A part that is a picture."""


class SentAudio(_SentMedia, tag_field="type", tag="audio"):
    """A part that is sound."""


class SentVideo(_SentMedia, tag_field="type", tag="video"):
    """A part that is a film."""


class SentDocument(_SentMedia, tag_field="type", tag="document"):
    """A part that is another file."""


class SentBinary(_Sent, tag_field="type", tag="binary"):
    """Any file, as it was sent before the protocol's version 1.0."""

    mime_type: str = ""
    data: str | None = None
    filename: str | None = None


SentFile = SentImage | SentAudio | SentVideo | SentDocument | SentBinary
SentContent = str | list[SentText | SentFile]


class SentSystem(_Sent, tag_field="role", tag="system"):
    """Instructions."""

    content: str = ""


class SentDeveloper(_Sent, tag_field="role", tag="developer"):
    """Instructions, by their other name."""

    content: str = ""


class SentUser(_Sent, tag_field="role", tag="user"):
    """What the user said."""

    content: SentContent


class SentFunction(_Sent):
    """What is called, with its arguments as JSON in a string."""

    name: str
    arguments: str = ""


class SentCall(_Sent):
    """One call of the assistant's: of a client's tool, or of a specialist in an earlier run."""

    id: str
    function: SentFunction


class SentAssistant(_Sent, tag_field="role", tag="assistant"):
    """What was answered, and called."""

    content: str | None = None
    tool_calls: list[SentCall] | None = None


class SentResult(_Sent, tag_field="role", tag="tool"):
    """What came of a call."""

    tool_call_id: str
    content: SentContent = ""
    error: str | None = None


class SentActivity(_Sent, tag_field="role", tag="activity"):
    """What was shown besides, and nobody said."""


class SentReasoning(_Sent, tag_field="role", tag="reasoning"):
    """What a model thought, and no other needs to know."""


SentMessage = SentSystem | SentDeveloper | SentUser | SentAssistant | SentResult | SentActivity | SentReasoning


class SentTool(_Sent):
    """A tool of the client's own."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT


class SentContext(_Sent):
    """Something that the application wants to be known."""

    description: str
    value: str


class SentAnswer(_Sent):
    """What a person said to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: msgspec.Raw = ABSENT


class SentProps(msgspec.Struct):
    """The options that are Brain's own; others are other people's."""

    model: str | None = None
    specialists: list[str] | None = None
    limits: SentLimits | None = None
    system: str | None = None
    time_zone: str | None = None
    source: str | None = None
    memory: bool | None = None


class Sent(_Sent):
    """The body."""

    thread_id: str
    run_id: str
    messages: msgspec.Raw
    parent_run_id: str | None = None
    tools: list[SentTool] | None = None
    context: list[SentContext] | None = None
    forwarded_props: msgspec.Raw = ABSENT
    resume: list[SentAnswer] | None = None
