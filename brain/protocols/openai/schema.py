"""The bodies that OpenAI's clients send, as they stand in the JSON."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from brain.protocols.native import LimitsBody

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
ABSENT = msgspec.Raw(b"")


class OptionsBody(msgspec.Struct):
    """What `stream_options` may say; only one of it changes anything here."""

    include_usage: bool | None = None


class OwnBody(msgspec.Struct, forbid_unknown_fields=True):
    """Brain's own fields, for those who know that they talk to it."""

    specialists: list[str] | None = None
    limits: LimitsBody | None = None
    time_zone: str | None = None
    source: str | None = None
    memory: bool | None = None


class FunctionCallBody(msgspec.Struct):
    """What is called, in a call of the assistant's: JSON in a text, though some send it as it is."""

    name: str
    arguments: msgspec.Raw = ABSENT


class CallBody(msgspec.Struct):
    """A call of the assistant's."""

    id: str
    function: FunctionCallBody
    type: str = "function"


class ImageBody(msgspec.Struct):
    """A picture, by its address."""

    url: str


class FileBody(msgspec.Struct):
    """A file, by its content."""

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
    """What a tool is called, does, and takes."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT


class ToolBody(msgspec.Struct):
    """A tool of the client's own."""

    type: str
    function: FunctionBody | None = None


class NameBody(msgspec.Struct):
    """The name of a tool."""

    name: str


class ChoiceBody(msgspec.Struct):
    """The tool that is to be called."""

    function: NameBody
    type: str = "function"


class SchemaBody(msgspec.Struct):
    """A JSON Schema that the answer must meet."""

    schema: Mapping[str, Any] | None = None


class FormatBody(msgspec.Struct):
    """What the answer must be."""

    type: str
    json_schema: SchemaBody | None = None


class CompletionBody(msgspec.Struct):
    """The body of `POST /v1/chat/completions`. What is not here goes to the model's server as it is."""

    messages: msgspec.Raw
    model: str | None = None
    stream: bool | None = None
    stream_options: OptionsBody | None = None
    max_tokens: Int64 | None = None
    max_completion_tokens: Int64 | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int64 | None = None
    min_p: float | None = None
    seed: Int64 | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
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
    continue_final_message: bool | None = None  # vLLM's and SGLang's: what is gone on with is seen from the messages
    add_generation_prompt: bool | None = None
    brain: OwnBody | None = None


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a field is there, and not null."""
    return bytes(raw) not in (b"", b"null")
