"""Parses requests from Ollama clients. Brain rejects unsupported values and never ignores them."""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.events import StrategyName
from brain.messages import ClientMessage
from brain.protocols.bodies import as_bad_request, decode, decode_any, decode_object, invalid, is_present
from brain.protocols.client_messages import check_length, check_value_count, newest_question, parse_stop
from brain.protocols.ollama.history import parse_images, parse_messages
from brain.protocols.ollama.schema import ChatBody, GenerateBody, OllamaBody, OptionsBody, ShowBody
from brain.protocols.turn_options import DEFAULT_NAME, KnownNames, TurnOptions, build_request, strategy_names
from brain.settings import Settings
from brain.turn_request import Tool, TurnRequest
from brain.validation import quote_value

MAX_TOOLS = 128
SCHEMA_BYTES = 65_536
OPTIONS_BYTES = 16_384
MAX_STOPS = 16

LATEST = ":latest"

T = TypeVar("T")

_DURATION = re.compile(r"[+-]?(?:0|(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|μs|ms|s|m|h))+)")
_DURATION_LENGTH = 64
_EFFORTS = ("low", "medium", "high", "max")


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options for the response.

    Attributes:
        model: the name that the client sent; the response repeats it.
        load: the `done_reason` of a request without a message, which loads or unloads the model; else None.
    """

    model: str
    stream: bool
    load: Literal["load", "unload"] | None


def parse_chat(
    data: bytes, user: str | None, settings: Settings, known: KnownNames
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Parse the body of `POST /api/chat`."""
    body = _decode(data, ChatBody)
    chosen = find_model(body.model, known.models, settings)
    messages = parse_messages(body.messages)
    options = _parse_options(body, is_empty=not messages)
    if body.tools and len(body.tools) > MAX_TOOLS:
        raise invalid("tools", f"has {len(body.tools)} entries; the limit is {MAX_TOOLS}")
    tools = []
    for n, tool in enumerate(body.tools or ()):
        function, place = tool.function, f"tools[{n}].function"
        if not function.name:
            raise invalid(f"{place}.name", "is empty")
        parameters = decode_object(function.parameters, SCHEMA_BYTES, f"{place}.parameters")
        tools.append(Tool(function.name, function.description or "", parameters))
    return _build_request(body, chosen, messages, tools, user, settings, known), messages, options


def parse_generate(
    data: bytes, user: str | None, settings: Settings, known: KnownNames
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Parse the body of `POST /api/generate`."""
    body = _decode(data, GenerateBody)
    chosen = find_model(body.model, known.models, settings)
    for field, value, problem in (
        ("suffix", body.suffix, f"is not supported: {quote_value(body.model)} does not support insert; leave it out"),
        ("template", body.template, "is not supported; put instructions into `system`"),
        ("raw", body.raw, "is not supported: Brain adds its instructions to each prompt; leave it out"),
        ("context", body.context, "is not supported; send the messages to /api/chat"),
    ):
        if value:
            raise invalid(field, problem)
    prompt, images = check_length(body.prompt, "prompt"), parse_images(body.images, "images")
    messages = [ClientMessage("user", prompt, images)]
    if body.system:
        messages.insert(0, ClientMessage("system", check_length(body.system, "system")))
    options = _parse_options(body, is_empty=not prompt)
    return _build_request(body, chosen, messages, (), user, settings, known), messages, options


def parse_show(data: bytes, models: Set[str], settings: Settings) -> tuple[str, str | None]:
    """Parse the body of `POST /api/show`: return the client's name for a model, and the model."""
    body = _decode(data, ShowBody)
    name = body.model or body.name or ""
    return name, find_model(name, models, settings)[0]


def find_model(name: str, models: Set[str], settings: Settings) -> tuple[str | None, StrategyName | None]:
    """Return the model and the strategy for a client's name, with or without `:latest`; None for the default ones.

    The errors are Ollama's, since clients compare their texts.
    """
    if not name:
        raise BadRequest("model is required", "model")
    short = name.removesuffix(LATEST)
    if short == DEFAULT_NAME:
        return None, None
    if (strategy := strategy_names(settings).get(short)) is not None:
        return None, strategy
    for known in (name, short, short + LATEST):
        if known in models:
            return known, None
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
    chosen: tuple[str | None, StrategyName | None],
    messages: Sequence[ClientMessage],
    tools: Sequence[Tool],
    user: str | None,
    settings: Settings,
    known: KnownNames,
) -> TurnRequest:
    if body.logprobs or body.top_logprobs:
        problem = "is not supported: Brain combines several model responses into one answer; leave it out"
        raise invalid("logprobs", problem)
    if body.debug:
        raise invalid("_debug_render_only", "is not supported: Brain does not return prompts; leave it out")
    if isinstance(body.think, str) and body.think not in _EFFORTS:
        raise invalid("think", f"is {quote_value(body.think)}; use true, false, or one of: {', '.join(_EFFORTS)}")
    if isinstance(body.keep_alive, str) and (
        len(body.keep_alive) > _DURATION_LENGTH or not _DURATION.fullmatch(body.keep_alive)
    ):
        raise invalid(
            "keep_alive", f"is {quote_value(body.keep_alive)}; use a number of seconds or a duration such as 5m"
        )
    answer_format = decode_any(body.format, SCHEMA_BYTES, "format") if is_present(body.format) else None
    if answer_format not in (None, "", "json") and not isinstance(answer_format, dict):
        raise invalid("format", 'must be "json" or a JSON Schema')
    options, unknown = _parse_model_options(body.options)
    model, strategy = chosen
    return build_request(
        TurnOptions(), user, settings, known,
        model=model,
        strategy=strategy,
        source="api",
        message=newest_question(messages),
        tools=tuple(tools),
        stop=parse_stop(options.stop, MAX_STOPS, "options.stop"),
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
    """The options that Brain knows, and all others for the model server."""
    values = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value  # many clients send 40.0 for 40
        for name, value in decode_object(data, OPTIONS_BYTES, "options").items()
        if value is not None
    }
    try:
        options = msgspec.convert(values, OptionsBody)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, OptionsBody, "options") from None
    return options, {name: value for name, value in values.items() if name not in OptionsBody.__struct_fields__}
