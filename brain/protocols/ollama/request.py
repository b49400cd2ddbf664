"""Reads requests of Ollama's clients. A value that Brain cannot follow is rejected with the reason, never ignored."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols.bodies import as_bad_request, decode, decode_any, decode_object, invalid, is_given
from brain.protocols.client_messages import check_length, check_value_count, newest_question
from brain.protocols.ollama.history import parse_images, parse_messages
from brain.protocols.ollama.schema import ChatBody, GenerateBody, OllamaBody, OptionsBody, ShowBody, ToolBody
from brain.protocols.turn_options import TurnOptions, build_request
from brain.settings import Settings
from brain.turn_request import Sampling, Tool, TurnRequest

MAX_TOOLS = 128
SCHEMA_BYTES = 65_536
OPTIONS_BYTES = 16_384
MAX_STOPS = 16
STOP_LENGTH = 256

DEFAULT_NAME = "brain"
LATEST = ":latest"

T = TypeVar("T")

_DURATION = re.compile(r"[+-]?(?:0|(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|μs|ms|s|m|h))+)")
_DURATION_LENGTH = 64
_EFFORTS = ("low", "medium", "high", "max")


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How the client wants the response.

    Attributes:
        model: by the client's name for it, which the response repeats.
        load: the `done_reason` of a request that only loads or unloads the model; None for one with a question.
    """

    model: str
    stream: bool
    load: Literal["load", "unload"] | None


def parse_chat(
    body: bytes, user: str | None, settings: Settings, models: Set[str]
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Read the body of `POST /api/chat`."""
    sent = _decode(body, ChatBody)
    model = find_model(sent.model, models)
    messages = parse_messages(sent.messages)
    options = _parse_options(sent, is_empty=not messages)
    if sent.tools and len(sent.tools) > MAX_TOOLS:
        raise BadRequest(f"tools: at most {MAX_TOOLS}.", "tools")
    tools = tuple(parse_tool(tool, f"tools[{n}].function") for n, tool in enumerate(sent.tools or ()))
    return _build_request(sent, model, messages, tools, user, settings, models), messages, options


def parse_generate(
    body: bytes, user: str | None, settings: Settings, models: Set[str]
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Read the body of `POST /api/generate`."""
    sent = _decode(body, GenerateBody)
    model = find_model(sent.model, models)
    if sent.suffix:
        raise BadRequest(f'"{sent.model}" does not support insert: leave suffix out.', "suffix")
    if sent.template:
        message = "template: the model's own is used. Leave it out, and put instructions into system."
        raise BadRequest(message, "template")
    if sent.raw:
        raise BadRequest("raw: Brain's instructions stand in each prompt. Leave it out.", "raw")
    if sent.context:
        message = "context: Brain gives none, since other models' tokens mean nothing. Send the messages to /api/chat."
        raise BadRequest(message, "context")
    prompt, images = check_length(sent.prompt, "prompt"), parse_images(sent.images, "images")
    messages = [ClientMessage("user", prompt, images)]
    if sent.system:
        messages.insert(0, ClientMessage("system", check_length(sent.system, "system")))
    options = _parse_options(sent, is_empty=not prompt)
    return _build_request(sent, model, messages, (), user, settings, models), messages, options


def parse_show(body: bytes, models: Set[str]) -> tuple[str, str | None]:
    """Read the body of `POST /api/show`: return the client's name of a model, and the model as `find_model` does."""
    sent = _decode(body, ShowBody)
    name = sent.model or sent.name
    return name, find_model(name, models)


def find_model(name: str, models: Set[str]) -> str | None:
    """Return the model by the client's name for it, with `:latest` or without; None for the default model.

    Raises:
        BadRequest: in Ollama's words, which clients look for.
    """
    if not name:
        raise BadRequest("model is required", "model")
    short = name.removesuffix(LATEST)
    if short == DEFAULT_NAME:
        return None
    for known in (name, short, short + LATEST):
        if known in models:
            return known
    raise BadRequest(f"model '{name[:200]}' not found", "model", code="not_found", status=404)


def _decode(body: bytes, kind: type[T]) -> T:
    if not body:
        raise BadRequest("missing request body")
    check_value_count(body)
    return decode(body, kind)


def _parse_options(sent: OllamaBody, *, is_empty: bool) -> RequestOptions:
    load: Literal["load", "unload"] | None = None
    if is_empty:
        is_zero = sent.keep_alive is not None and not re.search("[1-9]", str(sent.keep_alive))
        load = "unload" if is_zero else "load"
    return RequestOptions(sent.model, sent.stream is not False, load)


def _build_request(
    sent: OllamaBody,
    model: str | None,
    messages: list[ClientMessage],
    tools: tuple[Tool, ...],
    user: str | None,
    settings: Settings,
    models: Set[str],
) -> TurnRequest:
    if sent.logprobs or sent.top_logprobs:
        message = "logprobs: an answer is put together from several of the model's, and has none. Leave it out."
        raise BadRequest(message, "logprobs")
    if sent.debug:
        message = "_debug_render_only: the prompt is the model server's affair. Leave it out."
        raise BadRequest(message, "_debug_render_only")
    sampling, stop = _parse_sampling(sent)
    return build_request(
        TurnOptions(), user, settings, models,
        model=model,
        source="api",
        message=newest_question(messages),
        tools=tools,
        stop=stop,
        sampling=sampling,
        asks_person=sent.stream is not False,
    )  # fmt: skip


def _parse_sampling(sent: OllamaBody) -> tuple[Sampling, tuple[str, ...]]:
    """The sampling parameters, and the texts that end the answer."""
    values = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value  # many clients send 40.0 for 40
        for name, value in decode_object(sent.options, OPTIONS_BYTES, "options").items()
        if value is not None
    }
    try:
        options = msgspec.convert(values, OptionsBody)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, "options") from None
    stop = options.stop or []
    if len(stop) > MAX_STOPS or any(len(text) > STOP_LENGTH for text in stop):
        raise BadRequest(f"options.stop: at most {MAX_STOPS} texts of {STOP_LENGTH} characters.", "options.stop")
    if isinstance(sent.think, str) and sent.think not in _EFFORTS:
        raise invalid("think", f"must be true, false, {', '.join(_EFFORTS[:-1])} or {_EFFORTS[-1]}")
    if isinstance(sent.keep_alive, str) and (
        len(sent.keep_alive) > _DURATION_LENGTH or not _DURATION.fullmatch(sent.keep_alive)
    ):
        raise invalid("keep_alive", "must be a number of seconds, or a duration such as 5m")
    max_tokens = options.num_predict
    sampling = options.make_sampling(
        max_tokens=max_tokens if max_tokens is not None and max_tokens > 0 else None,  # -1 and -2 are no limit
        effort=sent.think,
        format=_parse_format(sent.format),
        keep_alive=sent.keep_alive,
        dialect="ollama",
        more={name: value for name, value in values.items() if name not in OptionsBody.__struct_fields__},
    )
    return sampling, tuple(filter(None, stop))


def _parse_format(data: msgspec.Raw) -> Literal["json"] | Mapping[str, Any] | None:
    value = decode_any(data, SCHEMA_BYTES, "format") if is_given(data) else None
    if value in (None, ""):
        return None
    if value == "json":
        return "json"
    if not isinstance(value, dict):
        raise invalid("format", "must be json or a JSON Schema")
    return value


def parse_tool(sent: ToolBody, place: str) -> Tool:
    """Return a tool of the client's."""
    function = sent.function
    if not function.name:
        raise invalid(f"{place}.name", "is empty")
    parameters = decode_object(function.parameters, SCHEMA_BYTES, f"{place}.parameters")
    return Tool(function.name, function.description or "", parameters)
