"""The request body of the Vercel AI SDK. As in the SDK, unknown fields are ignored."""

from typing import Literal

import msgspec

from brain.protocols.turn_options import TurnOptions

SdkVersion = Literal[5, 6, 7]

_NULL = msgspec.Raw(b"null")


class ApprovalBody(msgspec.Struct):
    """The approval of a call; `approved` is missing until the user decides."""

    id: str
    approved: bool | None = None


class PartBody(msgspec.Struct, rename="camel"):
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
        """The name of the tool, if the part is a call."""
        if self.type == "dynamic-tool":
            return self.tool_name
        return self.type.removeprefix("tool-") if self.type.startswith("tool-") else None


class MessageBody(msgspec.Struct):
    """One message of the chat."""

    role: Literal["system", "user", "assistant"]
    parts: list[PartBody]


class ChatBody(TurnOptions, kw_only=True):
    """The body of `POST /ai-sdk/chat` from `DefaultChatTransport`, whose `body` adds Brain's own options."""

    messages: msgspec.Raw
    id: str | None = None
    model: str | None = None
    system: str | None = None
    resumable: bool | None = None
    sdk_version: SdkVersion | None = None
