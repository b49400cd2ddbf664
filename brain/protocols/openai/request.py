"""Parses requests from OpenAI clients. Brain rejects unsupported values and never ignores them."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from brain.errors import BadRequest
from brain.events import StrategyName
from brain.messages import ClientMessage
from brain.protocols.bodies import as_bad_request, decode, decode_any, decode_object, invalid, is_present, too_large
from brain.protocols.client_messages import check_count, check_length, check_value_count, newest_question, parse_stop
from brain.protocols.openai.history import parse_messages
from brain.protocols.openai.schema import ChoiceBody, CompletionBody, FormatBody, OptionsBody
from brain.protocols.turn_options import DEFAULT_NAME, KnownNames, build_request, check_id, list_names, strategy_names
from brain.settings import Settings
from brain.turn_request import Tool, TurnRequest
from brain.validation import quote_value

NAME_LENGTH = 128
MAX_TOOLS = 128
TOOL_BYTES = 32_768
"""Size limit of a tool's schema, and character limit of its description."""
FORMAT_BYTES = 65_536
MAX_UNKNOWN, UNKNOWN_BYTES = 1_000, 262_144
"""Number and total size of unknown fields, which Brain passes to the model server."""
MAX_STOPS = 4

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
        with_usage: whether a stream ends with the usage.
    """

    model: str
    stream: bool
    with_usage: bool


def parse(
    data: bytes, user: str | None, settings: Settings, known: KnownNames, conversation_id: str | None = None
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Parse the body of `POST /v1/chat/completions`.

    Args:
        conversation_id: value of the header X-Conversation-Id.
    """
    check_value_count(data)
    body = decode(data, CompletionBody)
    model, strategy = find_model(body.model, known.models, settings)
    for field, (allowed, problem) in _UNSUPPORTED.items():
        value = getattr(body, field)
        if (is_present(value) if isinstance(value, msgspec.Raw) else value) not in allowed:
            raise invalid(field, problem)
    max_field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    max_tokens: int | None = getattr(body, max_field)
    if max_tokens is not None and (max_tokens < -1 or max_tokens == 0):
        raise invalid(max_field, f"is {max_tokens}; use 1 or more, or leave it out for no limit")
    messages = parse_messages(body.messages)
    tools, must_call = _parse_tools(body)
    answer_format, format_field = _parse_format(body.response_format)
    options = body.brain or OptionsBody()
    request = build_request(
        options, user, settings, known,
        place="brain.",
        context=options.context,
        source="api",
        message=newest_question(messages),
        conversation_id=check_id(conversation_id, "X-Conversation-Id"),
        model=model,
        strategy=strategy,
        tools=tools,
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
    if body.tools and request.assist is None:  # a client that brings tools decides about them, also about none
        request = replace(request, assist="off")
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    return request, messages, RequestOptions(body.model or DEFAULT_NAME, bool(body.stream), with_usage)


def find_model(name: str | None, models: Set[str], settings: Settings) -> tuple[str | None, StrategyName | None]:
    """Return the model and the strategy for a client's name; None for the default ones."""
    if name is None or name == DEFAULT_NAME:
        return None, None
    if (strategy := strategy_names(settings).get(name)) is not None:
        return None, strategy
    if name not in models:
        offered = ", ".join(list_names(settings, models))
        message = f"The model {quote_value(name)} does not exist; use one of: {offered}."
        raise BadRequest(message, "model", code="model_not_found", status=404)
    return name, None


def _parse_format(
    data: msgspec.Raw,
) -> tuple[Literal["json"] | Mapping[str, Any] | None, Mapping[str, Any]]:
    """The format, and the whole field for model servers with this protocol, which need its name and strictness."""
    place = "response_format"
    if not is_present(data):
        return None, {}
    value = decode_any(data, FORMAT_BYTES, place)
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


def _parse_tools(body: CompletionBody) -> tuple[tuple[Tool, ...], bool | str]:
    """The client tools, and the tool that the model must call: a name, True for any, or False."""
    check_count(body.tools, MAX_TOOLS, "tools")
    tools: dict[str, Tool] = {}
    for n, tool in enumerate(body.tools or ()):
        function, place = tool.function, f"tools[{n}]"
        if tool.type != "function" or function is None:
            raise BadRequest(f"`{place}` must have the type function and a `function`.", f"{place}.type")
        if not 0 < len(function.name) <= NAME_LENGTH:
            problem = f"has {len(function.name)} characters; use 1 to {NAME_LENGTH}"
            raise invalid(f"{place}.function.name", problem)
        if function.name in tools:
            raise invalid(place, f"has the same name as an earlier tool, {quote_value(function.name)}; rename one")
        description = check_length(function.description, f"{place}.function.description", TOOL_BYTES)
        parameters = decode_object(function.parameters, TOOL_BYTES, f"{place}.function.parameters")
        tools[function.name] = Tool(function.name, description, parameters)
    offered = tuple(tools.values())
    if bytes(body.tool_choice).startswith(b"{"):
        choice = decode(body.tool_choice, ChoiceBody, "tool_choice")
        if choice.type not in (None, "function"):
            raise invalid("tool_choice", "must be none, auto, required or a function")
        if choice.function.name not in tools:
            raise invalid("tool_choice", f"names {quote_value(choice.function.name)}, which is not in `tools`")
        return offered, choice.function.name
    mode = decode(body.tool_choice, str, "tool_choice") if is_present(body.tool_choice) else "auto"
    if mode == "required" and not tools:
        raise invalid("tool_choice", "is required, but `tools` is empty")
    if mode not in ("none", "auto", "required"):
        raise invalid("tool_choice", "must be none, auto, required or a function")
    return () if mode == "none" else offered, mode == "required"


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
