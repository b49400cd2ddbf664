"""Reads requests of Ollama's clients. A value that Brain cannot follow is rejected with the reason, never ignored."""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols.bodies import as_bad_request, decode, decode_any, decode_object, invalid, is_present
from brain.protocols.client_messages import check_length, check_value_count, newest_question
from brain.protocols.ollama.history import parse_images, parse_messages
from brain.protocols.ollama.schema import ChatBody, GenerateBody, OllamaBody, OptionsBody, ShowBody
from brain.protocols.turn_options import TurnOptions, build_request
from brain.settings import Settings
from brain.turn_request import Tool, TurnRequest

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
    data: bytes, user: str | None, settings: Settings, models: Set[str]
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Read the body of `POST /api/chat`."""
    body = _decode(data, ChatBody)
    model = find_model(body.model, models)
    messages = parse_messages(body.messages)
    options = _parse_options(body, is_empty=not messages)
    if body.tools and len(body.tools) > MAX_TOOLS:
        raise BadRequest(f"tools: at most {MAX_TOOLS}.", "tools")
    tools = []
    for n, tool in enumerate(body.tools or ()):
        function, place = tool.function, f"tools[{n}].function"
        if not function.name:
            raise invalid(f"{place}.name", "is empty")
        parameters = decode_object(function.parameters, SCHEMA_BYTES, f"{place}.parameters")
        tools.append(Tool(function.name, function.description or "", parameters))
    return _build_request(body, model, messages, tools, user, settings, models), messages, options


def parse_generate(
    data: bytes, user: str | None, settings: Settings, models: Set[str]
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Read the body of `POST /api/generate`."""
    body = _decode(data, GenerateBody)
    model = find_model(body.model, models)
    for field, value, problem in (
        ("suffix", body.suffix, f'"{body.model}" does not support insert: leave suffix out.'),
        ("template", body.template, "template: the model's own is used. Put instructions into system."),
        ("raw", body.raw, "raw: Brain's instructions stand in each prompt. Leave it out."),
        ("context", body.context, "context: other models' tokens mean nothing. Send the messages to /api/chat."),
    ):
        if value:
            raise BadRequest(problem, field)
    prompt, images = check_length(body.prompt, "prompt"), parse_images(body.images, "images")
    messages = [ClientMessage("user", prompt, images)]
    if body.system:
        messages.insert(0, ClientMessage("system", check_length(body.system, "system")))
    options = _parse_options(body, is_empty=not prompt)
    return _build_request(body, model, messages, (), user, settings, models), messages, options


def parse_show(data: bytes, models: Set[str]) -> tuple[str, str | None]:
    """Read the body of `POST /api/show`: return the client's name of a model, and the model as `find_model` does."""
    body = _decode(data, ShowBody)
    name = body.model or body.name
    return name, find_model(name, models)


def find_model(name: str, models: Set[str]) -> str | None:
    """Return the model by the client's name for it, with `:latest` or without; None for the default model.

    The errors are in Ollama's words, which clients look for.
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


def _decode(data: bytes, kind: type[T]) -> T:
    if not data:
        raise BadRequest("missing request body")
    check_value_count(data)
    return decode(data, kind)


def _parse_options(body: OllamaBody, *, is_empty: bool) -> RequestOptions:
    load: Literal["load", "unload"] | None = None
    if is_empty:
        is_zero = body.keep_alive is not None and not re.search("[1-9]", str(body.keep_alive))
        load = "unload" if is_zero else "load"
    return RequestOptions(body.model, body.stream is not False, load)


def _build_request(
    body: OllamaBody,
    model: str | None,
    messages: Sequence[ClientMessage],
    tools: Sequence[Tool],
    user: str | None,
    settings: Settings,
    models: Set[str],
) -> TurnRequest:
    if body.logprobs or body.top_logprobs:
        raise BadRequest("logprobs: an answer of several passes has none. Leave it out.", "logprobs")
    if body.debug:
        raise BadRequest("_debug_render_only: Brain shows no prompts. Leave it out.", "_debug_render_only")
    if isinstance(body.think, str) and body.think not in _EFFORTS:
        raise invalid("think", f"must be true, false, or one of: {', '.join(_EFFORTS)}")
    if isinstance(body.keep_alive, str) and (
        len(body.keep_alive) > _DURATION_LENGTH or not _DURATION.fullmatch(body.keep_alive)
    ):
        raise invalid("keep_alive", "must be a number of seconds, or a duration such as 5m")
    answer_format = decode_any(body.format, SCHEMA_BYTES, "format") if is_present(body.format) else None
    if answer_format not in (None, "", "json") and not isinstance(answer_format, dict):
        raise invalid("format", "must be json or a JSON Schema")
    options, unknown = _parse_model_options(body.options)
    return build_request(
        TurnOptions(), user, settings, models,
        model=model,
        source="api",
        message=newest_question(messages),
        tools=tuple(tools),
        stop=tuple(filter(None, options.stop or ())),
        sampling=options.make_sampling(
            max_tokens=max(options.num_predict or 0, 0) or None,  # -1 and -2 are no limit
            effort=body.think,
            format=None if answer_format == "" else answer_format,
            keep_alive=body.keep_alive,
            dialect="ollama",
            more=unknown,
        ),
        asks_person=body.stream is not False,
    )  # fmt: skip


def _parse_model_options(data: msgspec.Raw) -> tuple[OptionsBody, dict[str, Any]]:
    """The options that Brain knows, and all others, for the model's server."""
    values = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value  # many clients send 40.0 for 40
        for name, value in decode_object(data, OPTIONS_BYTES, "options").items()
        if value is not None
    }
    try:
        options = msgspec.convert(values, OptionsBody)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, "options") from None
    stop = options.stop or []
    if len(stop) > MAX_STOPS or any(len(text) > STOP_LENGTH for text in stop):
        raise BadRequest(f"options.stop: at most {MAX_STOPS} texts of {STOP_LENGTH} characters.", "options.stop")
    return options, {name: value for name, value in values.items() if name not in OptionsBody.__struct_fields__}
