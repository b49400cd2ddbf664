"""Request bodies of OpenAI clients."""

from collections.abc import Mapping
from typing import Any

import msgspec

from brain.protocols.bodies import ABSENT, Int64
from brain.protocols.turn_options import ContextBody, SamplingBody, TurnOptions


class OptionsBody(TurnOptions, forbid_unknown_fields=True):
    """Brain's own options."""

    context: ContextBody | None = None


class StreamOptionsBody(msgspec.Struct):
    """The `stream_options` that Brain supports."""

    include_usage: bool | None = None


class CallFunctionBody(msgspec.Struct):
    """The function of a call. Arguments are JSON in a string, or an object from some clients."""

    name: str
    arguments: msgspec.Raw = ABSENT


class CallBody(msgspec.Struct):
    """A call by the assistant."""

    id: str
    function: CallFunctionBody
    type: str | None = None


class ImageBody(msgspec.Struct):
    """The URL of an image."""

    url: str


class FileBody(msgspec.Struct):
    """The content of a file."""

    file_data: str | None = None
    filename: str | None = None


class PartBody(msgspec.Struct):
    """One part of a message's content."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageBody | str | None = None
    file: FileBody | None = None


class MessageBody(msgspec.Struct):
    """One message."""

    role: str
    content: str | list[PartBody] | None = None
    refusal: str | None = None
    tool_calls: list[CallBody] | None = None
    tool_call_id: str | None = None
    function_call: msgspec.Raw = ABSENT


class FunctionBody(msgspec.Struct):
    """The function of a tool."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT


class ToolBody(msgspec.Struct):
    """A client tool."""

    type: str
    function: FunctionBody | None = None


class ChoiceBody(msgspec.Struct):
    """The tool that the model must call."""

    function: FunctionBody
    type: str | None = None


class SchemaBody(msgspec.Struct):
    """A JSON Schema for the answer."""

    schema: Mapping[str, Any] | None = None


class FormatBody(msgspec.Struct):
    """The format of the answer."""

    type: str
    json_schema: SchemaBody | None = None


class CompletionBody(SamplingBody, kw_only=True):
    """The body of `POST /v1/chat/completions`. Brain passes unknown fields to the model server."""

    messages: msgspec.Raw
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptionsBody | None = None
    max_tokens: Int64 | None = None
    max_completion_tokens: Int64 | None = None
    reasoning_effort: str | None = None
    response_format: msgspec.Raw = ABSENT
    stop: str | list[str] | None = None
    tools: list[ToolBody] | None = None
    tool_choice: msgspec.Raw = ABSENT
    parallel_tool_calls: bool | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    audio: msgspec.Raw = ABSENT
    functions: msgspec.Raw = ABSENT
    function_call: msgspec.Raw = ABSENT
    continue_final_message: bool | None = None  # vLLM and SGLang; Brain decides this by the messages
    add_generation_prompt: bool | None = None
    brain: OptionsBody | None = None
