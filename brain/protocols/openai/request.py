"""Reads requests of OpenAI's clients. A value that Brain cannot follow is rejected with the reason, never ignored."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols.bodies import as_bad_request, decode, decode_any, decode_object, invalid, is_present, too_large
from brain.protocols.client_messages import check_count, check_length, check_value_count, newest_question
from brain.protocols.openai.history import parse_messages
from brain.protocols.openai.schema import ChoiceBody, CompletionBody, FormatBody, OptionsBody
from brain.protocols.turn_options import build_request, check_id
from brain.settings import Settings
from brain.turn_request import Tool, TurnRequest

DEFAULT_NAME = "brain"
NAME_LENGTH = 128
MAX_TOOLS = 128
TOOL_BYTES = 32_768
"""Of a tool's schema; as many characters may its description have."""
FORMAT_BYTES = 65_536
UNKNOWN_BYTES = 262_144
MAX_UNKNOWN = 1_000
"""Unknown fields, which go to the model's server, and their size."""
MAX_STOPS = 4
STOP_LENGTH = 256

_KNOWN_NAMES = frozenset(field.encode_name for field in msgspec.structs.fields(CompletionBody))
_NO_LOGPROBS = "an answer is put together from several of the model's, and has none; leave it out"
_UNSUPPORTED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "n": ((None, 1), "one answer is given: leave it out, or ask again for another"),
    "logprobs": ((None, False), _NO_LOGPROBS),
    "top_logprobs": ((None, 0), _NO_LOGPROBS),
    "modalities": ((None, ["text"]), "answers are text; leave it out"),
    "audio": ((False,), "answers are text; leave it out"),
    "functions": ((False,), "is no longer known; use tools and tool_choice"),
    "function_call": ((False,), "is no longer known; use tools and tool_choice"),
}
"""By the name of a field: the values that are possible (of JSON that is not decoded: whether it is given), and why."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How the client wants the response.

    Attributes:
        model: by the client's name for it, which the response repeats.
        with_usage: whether a stream ends with the usage.
    """

    model: str
    stream: bool
    with_usage: bool


def parse(
    data: bytes, user: str | None, settings: Settings, models: Set[str], conversation_id: str | None = None
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Read the body of `POST /v1/chat/completions`.

    Args:
        conversation_id: value of the header X-Conversation-Id.
    """
    check_value_count(data)
    body = decode(data, CompletionBody)
    model = find_model(body.model, models)
    for field, (allowed, reason) in _UNSUPPORTED.items():
        value = getattr(body, field)
        if (is_present(value) if isinstance(value, msgspec.Raw) else value) not in allowed:
            raise BadRequest(f"{field}: {reason}.", field)
    max_field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    max_tokens: int | None = getattr(body, max_field)
    if max_tokens is not None and (max_tokens < -1 or max_tokens == 0):
        raise invalid(max_field, "must be 1 or more")
    messages = parse_messages(body.messages)
    tools, must_call = _parse_tools(body)
    answer_format, format_field = _parse_format(body.response_format)
    request = build_request(
        body.brain or OptionsBody(), user, settings, models,
        place="brain.",
        source="api",
        message=newest_question(messages),
        conversation_id=check_id(conversation_id, "X-Conversation-Id"),
        model=model,
        tools=tools,
        must_call=must_call,
        stop=_parse_stop(body.stop),
        sampling=body.make_sampling(
            max_tokens=None if max_tokens == -1 else max_tokens,  # local servers and their clients mean no limit by it
            effort=body.reasoning_effort,
            format=answer_format,
            dialect="openai",
            more={**_parse_unknown(data), **format_field},
        ),
        asks_person=bool(body.stream),
    )  # fmt: skip
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    return request, messages, RequestOptions(body.model or DEFAULT_NAME, bool(body.stream), with_usage)


def find_model(name: str | None, models: Set[str]) -> str | None:
    """Return the model by the client's name for it; None for the default model."""
    if name is None or name == DEFAULT_NAME:
        return None
    if name not in models:
        offered = ", ".join([DEFAULT_NAME, *sorted(models)])
        message = f"The model {name[:200]!r} does not exist here; there are: {offered}."
        raise BadRequest(message, "model", code="model_not_found", status=404)
    return name


def _parse_format(
    data: msgspec.Raw,
) -> tuple[Literal["json"] | Mapping[str, Any] | None, Mapping[str, Any]]:
    """The format, and the field as sent: a server of this protocol needs its name and strictness, too."""
    place = "response_format"
    if not is_present(data):
        return None, {}
    value = decode_any(data, FORMAT_BYTES, place)
    try:
        body = msgspec.convert(value, FormatBody)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, place) from None
    if body.type == "text":
        return None, {}
    if body.type == "json_object":
        return "json", {place: value}
    if body.type != "json_schema" or body.json_schema is None or body.json_schema.schema is None:
        raise invalid(place, "must be text, json_object, or json_schema with a schema")
    return body.json_schema.schema, {place: value}


def _parse_stop(body: str | list[str] | None) -> tuple[str, ...]:
    texts = [body] if isinstance(body, str) else body or []
    if len(texts) > MAX_STOPS or any(len(text) > STOP_LENGTH for text in texts):
        raise BadRequest(f"stop: at most {MAX_STOPS} texts of {STOP_LENGTH} characters.", "stop")
    return tuple(filter(None, texts))


def _parse_tools(body: CompletionBody) -> tuple[tuple[Tool, ...], bool | str]:
    """The client's tools, and which of them has to be called."""
    check_count(body.tools, MAX_TOOLS, "tools")
    tools: dict[str, Tool] = {}
    for n, tool in enumerate(body.tools or ()):
        function, place = tool.function, f"tools[{n}]"
        if tool.type != "function" or function is None:
            raise BadRequest(f"{place} must be of the type function, and have one.", f"{place}.type")
        if not 0 < len(function.name) <= NAME_LENGTH:
            raise invalid(f"{place}.function.name", f"must be 1 to {NAME_LENGTH} characters long")
        if function.name in tools:
            raise invalid(place, "has the name of another tool")
        description = check_length(function.description, f"{place}.function.description", TOOL_BYTES)
        parameters = decode_object(function.parameters, TOOL_BYTES, f"{place}.function.parameters")
        tools[function.name] = Tool(function.name, description, parameters)
    offered = tuple(tools.values())
    if bytes(body.tool_choice).startswith(b"{"):
        choice = decode(body.tool_choice, ChoiceBody, "tool_choice")
        if choice.type != "function":
            raise invalid("tool_choice", "must be none, auto, required, or a function")
        if choice.function.name not in tools:
            raise invalid("tool_choice", "names a tool that is not among tools")
        return offered, choice.function.name
    mode = decode(body.tool_choice, str, "tool_choice") if is_present(body.tool_choice) else "auto"
    if mode == "required" and not tools:
        raise invalid("tool_choice", "is required, but there are no tools")
    if mode not in ("none", "auto", "required"):
        raise invalid("tool_choice", "must be none, auto, required, or a function")
    return () if mode == "none" else offered, mode == "required"


def _parse_unknown(data: bytes) -> Mapping[str, Any]:
    """The fields that Brain does not know, for the model's server."""
    fields = {name: raw for name, raw in decode(data, dict[str, msgspec.Raw]).items() if name not in _KNOWN_NAMES}
    if len(fields) > MAX_UNKNOWN:
        raise too_large(f"At most {MAX_UNKNOWN:,} fields that are not known here.")
    room, values = UNKNOWN_BYTES, {}
    for name, raw in fields.items():
        values[name] = decode_any(raw, room, name)
        room -= len(memoryview(raw))
    return values
