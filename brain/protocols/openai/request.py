"""What OpenAI's clients ask of `/v1/chat/completions`, in Brain's words.

A value that cannot be followed is refused with the reason, and never passed over.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols import native
from brain.protocols.bodies import as_bad_request, check_value_count, decode, decode_any
from brain.protocols.openai.history import parse_messages
from brain.protocols.openai.schema import (
    ChoiceBody,
    CompletionBody,
    FormatBody,
    FunctionBody,
    OwnBody,
    ToolBody,
    is_given,
)
from brain.settings import Settings
from brain.turn_request import Sampling, Tool, TurnRequest

DEFAULT_NAME = "brain"
TOOLS_MOST = 128
TOOL_BYTES = 32_768
FORMAT_BYTES = 65_536
MORE_BYTES = 262_144
MORE_MOST = 1_000
STOPS_MOST = 4
STOP_LENGTH = 256

_ONE_ANSWER = "an answer is put together from several of the model's"
_REFUSED: Mapping[str, tuple[Any, str]] = {
    "n": ((None, 1), "one answer is given: leave it out, or ask again for another"),
    "logprobs": ((None, False), f"{_ONE_ANSWER}, and has none; leave it out"),
    "top_logprobs": ((None, 0), f"{_ONE_ANSWER}, and has none; leave it out"),
    "modalities": ((None, ["text"]), "answers are text; leave it out"),
}
_OLD = ("functions", "function_call")


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How the answer is wanted.

    Attributes:
        model: as the client wrote it, and as it is told.
        usage: whether a stream tells what the answer took.
    """

    model: str
    stream: bool
    usage: bool


def parse(
    body: bytes, user: str | None, settings: Settings, models: Set[str], conversation_id: str | None = None
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Reads the body of `POST /v1/chat/completions`.

    Args:
        conversation_id: what the header X-Conversation-Id says.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    check_value_count(body)
    sent = decode(body, CompletionBody)
    model = find_model(sent.model, models)
    _check(sent)
    spoken = parse_messages(sent.messages)
    tools, must_call = _tools(sent)
    ask = replace(
        _of_brain(sent.brain or OwnBody(), conversation_id, user, settings, models),
        message=next((one.text for one in reversed(spoken) if one.role == "user"), ""),
        model=model,
        tools=tools,
        must_call=must_call,
        stop=_stop(sent.stop),
        sampling=_sampling(sent, _more(body)),
        asks_person=bool(sent.stream),
    )
    usage = bool(sent.stream_options and sent.stream_options.include_usage)
    return ask, spoken, RequestOptions(sent.model or DEFAULT_NAME, bool(sent.stream), usage)


def find_model(name: str | None, models: Set[str]) -> str | None:
    """The name of a model on offer by what a client calls it; None for the default.

    Raises:
        BadRequest: when there is none of this name.
    """
    if name is None or name == DEFAULT_NAME:
        return None
    if name not in models:
        offered = ", ".join([DEFAULT_NAME, *sorted(models)])
        message = f"The model {name[:200]!r} does not exist here; there are: {offered}."
        raise BadRequest(message, "model", code="model_not_found", status=404)
    return name


def _check(sent: CompletionBody) -> None:
    """Refuses what cannot be done, or is too much."""
    for field, (allowed, reason) in _REFUSED.items():
        if getattr(sent, field) not in allowed:
            raise BadRequest(f"{field}: {reason}.", field)
    if is_given(sent.audio):
        raise BadRequest("audio: answers are text; leave it out.", "audio")
    for field in _OLD:
        if is_given(getattr(sent, field)):
            raise BadRequest(f"{field} is no longer known; use tools and tool_choice.", field)


def _of_brain(
    own: OwnBody, conversation_id: str | None, user: str | None, settings: Settings, models: Set[str]
) -> TurnRequest:
    """What the native protocol makes of Brain's own fields."""
    said = native.TurnBody(
        conversation_id=conversation_id,
        specialists=own.specialists,
        limits=own.limits,
        time_zone=own.time_zone,
        source="api" if own.source is None else own.source,
        memory=own.memory is not False,
    )
    try:
        return native.build_request(said, user, settings, models)
    except BadRequest as error:
        native_name = error.field or ""
        field = "X-Conversation-Id" if native_name == "conversation_id" else f"brain.{native_name}"
        raise BadRequest(error.message.replace(native_name, field, 1), field) from None


def _sampling(sent: CompletionBody, more: Mapping[str, Any]) -> Sampling:
    wanted, kept = _format(sent)
    return Sampling(
        max_tokens=_most_tokens(sent),
        temperature=sent.temperature,
        top_p=sent.top_p,
        top_k=sent.top_k,
        min_p=sent.min_p,
        seed=sent.seed,
        frequency_penalty=sent.frequency_penalty,
        presence_penalty=sent.presence_penalty,
        effort=sent.reasoning_effort,
        format=wanted,
        dialect="openai",
        more={**more, **kept},
    )


def _most_tokens(sent: CompletionBody) -> int | None:
    field = "max_tokens" if sent.max_completion_tokens is None else "max_completion_tokens"
    most: int | None = getattr(sent, field)
    if most is not None and (most < -1 or most == 0):
        raise BadRequest(f"{field} must be 1 or more.", field)
    return None if most == -1 else most  # which local servers and their clients take for no limit


def _format(sent: CompletionBody) -> tuple[Literal["json"] | Mapping[str, Any] | None, Mapping[str, Any]]:
    """What the answer must be, and the field itself, whose name and strictness a server of this protocol is told."""
    place = "response_format"
    if not is_given(sent.response_format):
        return None, {}
    value = decode_any(sent.response_format, FORMAT_BYTES, place)
    try:
        wanted = msgspec.convert(value, FormatBody)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, place) from None
    if wanted.type == "text":
        return None, {}
    if wanted.type == "json_object":
        return "json", {place: value}
    if wanted.type != "json_schema" or wanted.json_schema is None or wanted.json_schema.schema is None:
        raise BadRequest(f"{place} must be text, json_object, or json_schema with a schema.", place)
    return wanted.json_schema.schema, {place: value}


def _stop(sent: str | list[str] | None) -> tuple[str, ...]:
    texts = [sent] if isinstance(sent, str) else sent or []
    if len(texts) > STOPS_MOST:
        raise BadRequest(f"At most {STOPS_MOST} texts in stop.", "stop")
    if any(len(text) > STOP_LENGTH for text in texts):
        raise BadRequest(f"A text in stop may be {STOP_LENGTH} characters long.", "stop")
    return tuple(filter(None, texts))


def _tools(sent: CompletionBody) -> tuple[tuple[Tool, ...], bool | str]:
    """The client's tools, and whether one of them must be called."""
    if len(sent.tools or ()) > TOOLS_MOST:
        raise BadRequest(f"At most {TOOLS_MOST} tools.", "tools", code="too_large", status=413)
    tools = tuple(_tool(tool, f"tools[{n}]") for n, tool in enumerate(sent.tools or ()))
    names = [tool.name for tool in tools]
    for n, name in enumerate(names):
        if name in names[:n]:
            raise BadRequest(f"tools[{n}].function.name: there is another tool of this name.", f"tools[{n}]")
    choice = _choice(sent.tool_choice)
    if choice == "none":
        return (), False
    if choice not in ("auto", "required", *(("function", name) for name in names)):
        raise BadRequest("tool_choice names a tool that is not among tools.", "tool_choice")
    if choice == "required" and not tools:
        raise BadRequest("tool_choice is required, but there are no tools.", "tool_choice")
    return tools, choice[1] if isinstance(choice, tuple) else choice == "required"


def _tool(sent: ToolBody, place: str) -> Tool:
    if sent.type != "function" or sent.function is None:
        raise BadRequest(f"{place} must be of the type function, and have one.", f"{place}.type")
    return Tool(sent.function.name, sent.function.description or "", _parameters(sent.function, f"{place}.function"))


def _parameters(sent: FunctionBody, place: str) -> Mapping[str, Any]:
    if not 0 < len(sent.name) <= 128:
        raise BadRequest(f"{place}.name must be 1 to 128 characters long.", f"{place}.name")
    if len(sent.description or "") > TOOL_BYTES:
        message = f"{place}.description may be {TOOL_BYTES:,} characters long."
        raise BadRequest(message, f"{place}.description", code="too_large", status=413)
    place = f"{place}.parameters"
    found = decode_any(sent.parameters, TOOL_BYTES, place) if is_given(sent.parameters) else {}
    if not isinstance(found, dict):
        raise BadRequest(f"{place} must be a JSON Schema.", place)
    return found


def _choice(sent: msgspec.Raw) -> str | tuple[str, str]:
    """`none`, `auto`, `required`, or that a function of a name is to be called."""
    if not is_given(sent):
        return "auto"
    if bytes(sent).startswith(b"{"):
        named = decode(sent, ChoiceBody, "tool_choice")
        if named.type == "function":
            return "function", named.function.name
    elif (choice := decode(sent, str, "tool_choice")) in ("none", "auto", "required"):
        return choice
    raise BadRequest("tool_choice must be none, auto, required, or a function.", "tool_choice")


def _more(body: bytes) -> Mapping[str, Any]:
    """The fields that are not known here, for the model's server."""
    known = {field.encode_name for field in msgspec.structs.fields(CompletionBody)}
    unknown = {name: raw for name, raw in decode(body, dict[str, msgspec.Raw]).items() if name not in known}
    if len(unknown) > MORE_MOST:
        raise BadRequest(f"At most {MORE_MOST:,} fields that are not known here.", code="too_large", status=413)
    room, found = MORE_BYTES, {}
    for name, raw in unknown.items():
        found[name] = decode_any(raw, room, name)
        room -= len(memoryview(raw))
    return found
