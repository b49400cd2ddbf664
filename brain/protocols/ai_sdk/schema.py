"""The body that clients of the Vercel AI SDK send, as it stands in the JSON.

As in the SDK, fields that are not known are passed over: applications send what they like beside the messages.
"""

from typing import Literal

import msgspec

from brain.protocols.native import LimitsBody

SdkVersion = Literal[5, 6, 7]

_NULL = msgspec.Raw(b"null")


class _Sent(msgspec.Struct, rename="camel"):
    pass


class ApprovalBody(_Sent):
    """What became of the question whether a call may run; `approved` once it was answered."""

    id: str
    approved: bool | None = None


class PartBody(_Sent):
    """One part of a message, of any type."""

    type: str
    text: str | None = None
    url: str | None = None
    media_type: str | None = None
    filename: str | None = None
    tool_name: str | None = None
    state: str | None = None
    preliminary: bool | None = None
    input: msgspec.Raw = _NULL
    output: msgspec.Raw = _NULL
    error_text: str | None = None
    approval: ApprovalBody | None = None

    @property
    def tool(self) -> str | None:
        """The name of the tool, in a part that tells of a call."""
        if self.type == "dynamic-tool":
            return self.tool_name
        return self.type.removeprefix("tool-") if self.type.startswith("tool-") else None


class MessageBody(_Sent):
    """One message of the chat."""

    role: Literal["system", "user", "assistant"]
    parts: list[PartBody]


class ChatBody(msgspec.Struct):
    """The body of `POST /ai-sdk/chat`: what `DefaultChatTransport` sends, and Brain's own fields from its `body`."""

    messages: msgspec.Raw
    id: str | None = None
    model: str | None = None
    specialists: list[str] | None = None
    limits: LimitsBody | None = None
    system: str | None = None
    time_zone: str | None = None
    source: str | None = None
    memory: bool | None = None
    resumable: bool | None = None
    sdk_version: SdkVersion | None = None
