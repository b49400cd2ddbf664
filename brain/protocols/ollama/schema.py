"""The bodies that Ollama's clients send, as they stand in the JSON.

As Ollama does, fields that are not known are passed over.
"""

from typing import Annotated, Any

import msgspec

from brain.errors import BadRequest
from brain.protocols.bodies import decode_any

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
ABSENT = msgspec.Raw(b"")


class FunctionBody(msgspec.Struct):
    """What is called, in a call of the assistant's."""

    name: str
    arguments: msgspec.Raw = ABSENT


class CallBody(msgspec.Struct):
    """One call of the assistant's; the Python client leaves its id out."""

    function: FunctionBody
    id: str | None = None


class MessageBody(msgspec.Struct):
    """One message of a chat."""

    role: str
    content: str | None = None
    images: list[str] | None = None
    tool_calls: list[CallBody] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class SignatureBody(msgspec.Struct):
    """What a tool is called, does, and takes."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT


class ToolBody(msgspec.Struct):
    """A tool of the client's own."""

    function: SignatureBody


class OptionsBody(msgspec.Struct):
    """The options that Brain knows; the others go to the model as they are."""

    num_predict: Int64 | None = None
    temperature: float | None = None
    top_k: Int64 | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Int64 | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: list[str] | None = None


class OllamaBody(msgspec.Struct):
    """What both kinds of bodies hold."""

    model: str = ""
    stream: bool | None = None
    format: msgspec.Raw = ABSENT
    keep_alive: int | float | str | None = None
    options: msgspec.Raw = ABSENT
    think: bool | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    debug: bool | None = msgspec.field(default=None, name="_debug_render_only")


class ChatBody(OllamaBody):
    """The body of `POST /api/chat`."""

    messages: msgspec.Raw = ABSENT
    tools: list[ToolBody] | None = None


class GenerateBody(OllamaBody):
    """The body of `POST /api/generate`."""

    prompt: str | None = None
    system: str | None = None
    images: list[str] | None = None
    suffix: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None


class ShowBody(msgspec.Struct):
    """The body of `POST /api/show`; old clients say `name`."""

    model: str = ""
    name: str = ""


def mapping(raw: msgspec.Raw, most: int, place: str) -> dict[str, Any] | None:
    """An object with anything in it, up to `most` bytes of it; None where nothing is said.

    Raises:
        BadRequest: when it is no object, too long, or nested too deeply.
    """
    if bytes(raw) in (b"", b"null"):
        return None
    value = decode_any(raw, most, place)
    if not isinstance(value, dict):
        raise BadRequest(f"{place}: Expected `object`.", place)
    return value
