"""Parses requests from OpenAI clients. Brain rejects unsupported values and never ignores them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from brain.errors import BadRequest
from brain.events import StrategyName
from brain.messages import Attachment
from brain.protocols.common import (
    ABSENT,
    DEFAULT_NAME,
    SCHEMA_BYTES,
    Client,
    ClientMessage,
    Content,
    ContextBody,
    FunctionBody,
    Int64,
    MessageBody,
    SamplingBody,
    ToolBody,
    TurnOptions,
    as_bad_request,
    build_request,
    check_context,
    check_id,
    check_length,
    check_value_count,
    decode,
    decode_any,
    decode_attachment,
    decode_url,
    invalid,
    is_present,
    newest_question,
    parse_messages,
    parse_parts,
    parse_stop,
    parse_tools,
    too_large,
)
from brain.turn_request import Tool, TurnRequest
from brain.validation import quote_value

MAX_UNKNOWN, UNKNOWN_BYTES = 1_000, 262_144
"""Number and total size of unknown fields, which Brain passes to the model server."""
MAX_STOPS = 4


class OptionsBody(TurnOptions, forbid_unknown_fields=True):
    """Brain's own options."""

    context: ContextBody | None = None


class StreamOptionsBody(msgspec.Struct):
    """The `stream_options` that Brain supports."""

    include_usage: bool | None = None


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


class OpenAIMessage(MessageBody):
    """One message."""

    content: str | list[PartBody] | None = None
    refusal: str | None = None
    function_call: msgspec.Raw = ABSENT


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


_KNOWN_NAMES = frozenset(field.encode_name for field in msgspec.structs.fields(CompletionBody))
_COMBINED = "Brain combines several model responses into one answer"
_TEXT_ONLY = "is not supported: answers are text; leave it out"
_DEPRECATED = "is deprecated and not supported; use `tools` and `tool_choice`"
_UNSUPPORTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "n": ((None, 1), f"must be 1: {_COMBINED}"),
    "logprobs": ((None, False), f"is not supported: {_COMBINED}; leave it out"),
    "top_logprobs": ((None, 0), f"is not supported: {_COMBINED}; leave it out"),
    "modalities": ((None, ["text"]), _TEXT_ONLY),
    "audio": ((False,), _TEXT_ONLY),
    "functions": ((False,), _DEPRECATED),
    "function_call": ((False,), _DEPRECATED),
}
"""By field: the supported values (for a raw field: whether it is present), and the problem with all others."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options for the response.

    Attributes:
        model: the name that the client sent; the response repeats it.
    """

    model: str
    stream: bool
    with_usage: bool


def parse(
    data: bytes, client: Client, conversation_id: str | None = None
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Parse the body of `POST /v1/chat/completions`.

    Args:
        conversation_id: value of the header X-Conversation-Id.
    """
    check_value_count(data)
    body = decode(data, CompletionBody)
    model, strategy = find_model(body.model, client)
    for field, (allowed, problem) in _UNSUPPORTED.items():
        value = getattr(body, field)
        if (is_present(value) if isinstance(value, msgspec.Raw) else value) not in allowed:
            raise invalid(field, problem)
    max_field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    max_tokens: int | None = getattr(body, max_field)
    if max_tokens is not None and (max_tokens < -1 or max_tokens == 0):
        raise invalid(max_field, f"is {max_tokens}; use 1 or more, or leave it out for no limit")
    messages = parse_messages(body.messages, OpenAIMessage, _parse_content)
    if not messages:
        raise invalid("messages", "is empty")
    tools = parse_tools(body.tools)
    offers_tools, must_call = _parse_choice(body.tool_choice, tools)
    answer_format, format_field = _parse_format(body.response_format)
    options = body.brain or OptionsBody()
    request = build_request(
        options, client,
        place="brain.",
        context=check_context(options.context, "brain.context"),
        source="api",
        message=newest_question(messages),
        conversation_id=check_id(conversation_id, "X-Conversation-Id"),
        model=model,
        strategy=strategy,
        tools=tools if offers_tools else (),
        must_call=must_call,
        stop=parse_stop([body.stop] if isinstance(body.stop, str) else body.stop, MAX_STOPS, "stop"),
        sampling=body.make_sampling(
            max_tokens=None if max_tokens == -1 else max_tokens,  # no limit, for local servers and their clients
            effort=body.reasoning_effort,
            format=answer_format,
            dialect="openai",
            more={**_parse_unknown(data), **format_field},
        ),
        asks_person=bool(body.stream),
    )  # fmt: skip
    if tools and request.assist is None:  # a client that brings tools decides about them, also about none
        request = replace(request, assist="off")
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    return request, messages, RequestOptions(body.model or DEFAULT_NAME, bool(body.stream), with_usage)


def find_model(name: str | None, client: Client) -> tuple[str | None, StrategyName | None]:
    """Return the model and the strategy for a client's name; None for the default ones."""
    name = DEFAULT_NAME if name is None else name
    found = client.find_model(name)
    if found is None:
        message = f"The model {quote_value(name)} does not exist; use one of: {', '.join(client.model_names)}."
        raise BadRequest(message, "model", code="model_not_found", status=404)
    return found


def _parse_content(body: OpenAIMessage, place: str) -> Content:
    if is_present(body.function_call):
        raise invalid(f"{place}.function_call", "is deprecated and not supported; use `tool_calls`")
    place = f"{place}.content"
    if isinstance(body.content, list):
        text, files = parse_parts(body.content, place, _parse_part)
    else:
        text, files = check_length(body.content, place), ()
    return text or body.refusal or "", files


def _parse_part(body: PartBody, place: str) -> str | Attachment:
    match body.type:
        case "text" if body.text is not None:
            return body.text
        case "refusal" if body.refusal is not None:
            return body.refusal
        case "image_url" if body.image_url is not None:
            url = body.image_url if isinstance(body.image_url, str) else body.image_url.url
            subtype = url.partition(",")[0].partition(";")[0].partition("/")[2].partition("+")[0]
            return decode_url(f"image.{subtype}" if subtype else "image", "", url, f"{place}.image_url")
        case "file" if body.file is not None:
            if not body.file.file_data:
                problem = "has no `file_data`, and file IDs are not supported; send the content as `file_data`"
                raise invalid(f"{place}.file", problem)
            name = body.file.filename or "file"
            return decode_attachment(name, "", body.file.file_data, f"{place}.file.file_data")
        case "text" | "refusal" | "image_url" | "file":
            raise invalid(f"{place}.{body.type}", "is missing")
    raise invalid(f"{place}.type", f"is {quote_value(body.type)}; use text, image_url or file")


def _parse_format(
    data: msgspec.Raw,
) -> tuple[Literal["json"] | Mapping[str, Any] | None, Mapping[str, Any]]:
    """The format, and the whole field for model servers with this protocol, which need its name and strictness."""
    place = "response_format"
    if not is_present(data):
        return None, {}
    value = decode_any(data, SCHEMA_BYTES, place)
    try:
        body = msgspec.convert(value, FormatBody)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, FormatBody, place) from None
    if body.type == "text":
        return None, {}
    if body.type == "json_object":
        return "json", {place: value}
    if body.type != "json_schema" or body.json_schema is None or body.json_schema.schema is None:
        raise invalid(place, "must have the type text, json_object, or json_schema with a `json_schema.schema`")
    return body.json_schema.schema, {place: value}


def _parse_choice(data: msgspec.Raw, tools: tuple[Tool, ...]) -> tuple[bool, bool | str]:
    """Whether the model may call tools, and which one it must call: a name, True for any, or False."""
    if bytes(data).startswith(b"{"):
        choice = decode(data, ChoiceBody, "tool_choice")
        if choice.type not in (None, "function"):
            raise invalid("tool_choice", "must be none, auto, required or a function")
        if choice.function.name not in {tool.name for tool in tools}:
            raise invalid("tool_choice", f"names {quote_value(choice.function.name)}, which is not in `tools`")
        return True, choice.function.name
    mode = decode(data, str, "tool_choice") if is_present(data) else "auto"
    if mode == "required" and not tools:
        raise invalid("tool_choice", "is required, but `tools` is empty")
    if mode not in ("none", "auto", "required"):
        raise invalid("tool_choice", "must be none, auto, required or a function")
    return mode != "none", mode == "required"


def _parse_unknown(data: bytes) -> Mapping[str, Any]:
    """The fields that Brain does not know, for the model server."""
    fields = {name: raw for name, raw in decode(data, dict[str, msgspec.Raw]).items() if name not in _KNOWN_NAMES}
    if len(fields) > MAX_UNKNOWN:
        raise too_large(f"The body has {len(fields):,} unknown fields; the limit is {MAX_UNKNOWN:,}.")
    room, values = UNKNOWN_BYTES, {}
    for name, raw in fields.items():
        values[name] = decode_any(raw, room, name)
        room -= len(memoryview(raw))
    return values
