"""Parses requests from Ollama clients. Brain rejects unsupported values; as in Ollama, unknown fields are ignored."""

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.events import StrategyName
from brain.messages import Attachment
from brain.protocols.common import (
    ABSENT,
    SCHEMA_BYTES,
    Client,
    ClientMessage,
    Content,
    Int64,
    MessageBody,
    SamplingBody,
    ToolBody,
    TurnOptions,
    as_bad_request,
    build_request,
    check_id,
    check_length,
    check_value_count,
    decode,
    decode_any,
    decode_attachment,
    decode_object,
    invalid,
    is_present,
    newest_question,
    parse_messages,
    parse_parts,
    parse_stop,
    parse_tools,
)
from brain.turn_request import TurnRequest
from brain.validation import quote_value

OPTIONS_BYTES = 16_384
MAX_STOPS = 16

LATEST = ":latest"

T = TypeVar("T")

_DURATION = re.compile(r"[+-]?(?:0|(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|μs|ms|s|m|h))+)")
_DURATION_LENGTH = 64
_EFFORTS = ("low", "medium", "high", "max")


class OllamaMessage(MessageBody):
    """One message of a chat."""

    content: str | None = None
    images: list[str] | None = None


class OptionsBody(SamplingBody):
    """The options that Brain knows. Brain passes all others to the model server."""

    num_predict: Int64 | None = None
    stop: list[str] | None = None


class OllamaBody(msgspec.Struct):
    """The fields that both endpoints share."""

    model: str | None = None
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


Parsed = tuple[TurnRequest, list[ClientMessage], RequestOptions]


def parse_chat(data: bytes, client: Client, conversation_id: str | None = None) -> Parsed:
    """Parse the body of `POST /api/chat`.

    Args:
        conversation_id: value of the header X-Conversation-Id.
    """
    body = _decode(data, ChatBody)
    find_model(body.model, client)  # a wrong name is the first error
    messages = parse_messages(body.messages, OllamaMessage, _parse_content) if is_present(body.messages) else []
    request = _build_request(body, client, conversation_id, messages, tools=parse_tools(body.tools))
    return request, messages, _parse_options(body, is_empty=not messages)


def parse_generate(data: bytes, client: Client, conversation_id: str | None = None) -> Parsed:
    """Parse the body of `POST /api/generate`. Arguments as in `parse_chat`."""
    body = _decode(data, GenerateBody)
    find_model(body.model, client)
    for field, value, problem in (
        (
            "suffix",
            body.suffix,
            f"is not supported: {quote_value(f'{body.model}')} does not support insert; leave it out",
        ),
        ("template", body.template, "is not supported; put instructions into `system`"),
        ("raw", body.raw, "is not supported: Brain adds its instructions to each prompt; leave it out"),
        ("context", body.context, "is not supported; send the messages to /api/chat"),
    ):
        if value:
            raise invalid(field, problem)
    messages = [ClientMessage("user", check_length(body.prompt, "prompt"), _parse_images(body.images, "images"))]
    if body.system:
        messages.insert(0, ClientMessage("system", check_length(body.system, "system")))
    request = _build_request(body, client, conversation_id, messages)
    return request, messages, _parse_options(body, is_empty=not body.prompt)


def parse_show(data: bytes, client: Client) -> tuple[str, str | None]:
    """Parse the body of `POST /api/show`: return the client's name for a model, and the model."""
    body = _decode(data, ShowBody)
    name = body.model or body.name or ""
    return name, find_model(name, client)[0]


def find_model(name: str | None, client: Client) -> tuple[str | None, StrategyName | None]:
    """Return the model and the strategy for a client's name, with or without `:latest`; None for the default ones.

    The errors are Ollama's, since clients compare their texts.
    """
    if not name:
        raise BadRequest("model is required", "model")
    short = name.removesuffix(LATEST)
    for one in (name, short, short + LATEST):
        if (found := client.find_model(one)) is not None:
            return found
    raise BadRequest(f"model '{name[:200]}' not found", "model", code="not_found", status=404)


def _decode(data: bytes, kind: type[T]) -> T:
    if not data:
        raise BadRequest("missing request body")
    check_value_count(data)
    return decode(data, kind)


def _parse_content(body: OllamaMessage, place: str) -> Content:
    return check_length(body.content, f"{place}.content"), _parse_images(body.images, f"{place}.images")


def _parse_images(images: list[str] | None, place: str) -> tuple[Attachment, ...]:
    return parse_parts(images or (), place, lambda image, field: decode_attachment("image", "", image, field))[1]


def _parse_options(body: OllamaBody, *, is_empty: bool) -> RequestOptions:
    load: Literal["load", "unload"] | None = None
    if is_empty:
        is_zero = body.keep_alive is not None and not re.search("[1-9]", str(body.keep_alive))
        load = "unload" if is_zero else "load"
    return RequestOptions(body.model or "", body.stream is not False, load)


def _build_request(
    body: OllamaBody, client: Client, conversation_id: str | None, messages: list[ClientMessage], **more: Any
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
    model, strategy = find_model(body.model, client)
    return build_request(
        TurnOptions(), client,
        model=model,
        strategy=strategy,
        source="api",
        message=newest_question(messages),
        conversation_id=check_id(conversation_id, "X-Conversation-Id"),
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
        **more,
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
