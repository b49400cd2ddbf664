"""Request bodies of Ollama clients. As in Ollama, unknown fields are ignored."""

import msgspec

from brain.protocols.bodies import ABSENT, Int64
from brain.protocols.turn_options import SamplingBody


class CallFunctionBody(msgspec.Struct):
    """The function of a call."""

    name: str
    arguments: msgspec.Raw = ABSENT


class CallBody(msgspec.Struct):
    """A call by the assistant. The Python client sends no ID."""

    function: CallFunctionBody
    id: str | None = None


class MessageBody(msgspec.Struct):
    """One message of a chat."""

    role: str
    content: str | None = None
    images: list[str] | None = None
    tool_calls: list[CallBody] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class FunctionBody(msgspec.Struct):
    """The function of a tool."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT


class ToolBody(msgspec.Struct):
    """A client tool."""

    function: FunctionBody


class OptionsBody(SamplingBody):
    """The options that Brain knows. Brain passes all others to the model server."""

    num_predict: Int64 | None = None
    stop: list[str] | None = None


class OllamaBody(msgspec.Struct):
    """The fields that both endpoints share."""

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
    """The body of `POST /api/show`. Old clients send `name`."""

    model: str | None = None
    name: str | None = None
