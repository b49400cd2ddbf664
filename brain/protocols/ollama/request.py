"""What Ollama's clients ask of `/api/chat`, `/api/generate` and `/api/show`, in Brain's words.

A value that cannot be followed is refused with the reason, and never passed over.
"""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols.bodies import as_bad_request, check_value_count, decode, decode_any
from brain.protocols.ollama.history import OllamaConversation, images_of, text_of
from brain.protocols.ollama.schema import (
    ChatBody,
    GenerateBody,
    OllamaBody,
    OptionsBody,
    ShowBody,
    SignatureBody,
    ToolBody,
    mapping,
)
from brain.settings import Settings
from brain.turn_request import Sampling, Tool, TurnRequest

TOOLS_MOST = 128
SCHEMA_BYTES = 65_536
OPTIONS_BYTES = 16_384
STOPS_MOST = 16
STOP_LENGTH = 256

DEFAULT_NAME = "brain"
LATEST = ":latest"

T = TypeVar("T")

_DURATION = re.compile(r"[+-]?(?:0|(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|μs|ms|s|m|h))+)")
_LEVELS = ("low", "medium", "high", "max")


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How the answer is wanted.

    Attributes:
        model: as the client wrote it, and as it is told.
        loads: what the answer says of a request that only loads or unloads the model; None for one with a question.
    """

    model: str
    stream: bool
    loads: Literal["load", "unload"] | None


def parse_chat(
    body: bytes, user: str | None, settings: Settings, models: Set[str], now: datetime
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Reads the body of `POST /api/chat`.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    sent = _decoded(body, ChatBody)
    model = find_model(sent.model, models)
    spoken = OllamaConversation().of(sent.messages)
    wanted = _wanted(sent, empty=not spoken)
    return _ask(sent, model, spoken, _tools(sent.tools or []), user, settings, now), spoken, wanted


def parse_generate(
    body: bytes, user: str | None, settings: Settings, models: Set[str], now: datetime
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Reads the body of `POST /api/generate`.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    sent = _decoded(body, GenerateBody)
    model = find_model(sent.model, models)
    _check_prompt_is_all(sent)
    spoken = [ClientMessage("user", text_of(sent.prompt, "prompt"), images_of(sent.images, "images"))]
    if sent.system:
        spoken.insert(0, ClientMessage("system", text_of(sent.system, "system")))
    return _ask(sent, model, spoken, (), user, settings, now), spoken, _wanted(sent, empty=not sent.prompt)


def parse_show(body: bytes, models: Set[str]) -> tuple[str, str | None]:
    """Reads the body of `POST /api/show`: the model as the client wrote it, and its name here, None for the default.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    sent = _decoded(body, ShowBody)
    return sent.model or sent.name, find_model(sent.model or sent.name, models)


def find_model(name: str, models: Set[str]) -> str | None:
    """The name of a model on offer by what a client calls it, `:latest` or not; None for the default.

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


def _decoded(body: bytes, kind: type[T]) -> T:
    if not body:
        raise BadRequest("missing request body")
    check_value_count(body)
    return decode(body, kind)


def _ask(
    sent: OllamaBody,
    model: str | None,
    spoken: list[ClientMessage],
    tools: tuple[Tool, ...],
    user: str | None,
    settings: Settings,
    now: datetime,
) -> TurnRequest:
    if sent.logprobs or sent.top_logprobs:
        message = "logprobs: an answer is put together from several of the model's, and has none. Leave it out."
        raise BadRequest(message, "logprobs")
    if sent.debug:
        message = "_debug_render_only: the prompt is the model server's affair. Leave it out."
        raise BadRequest(message, "_debug_render_only")
    sampling, stop = _sampling(sent)
    return TurnRequest(
        message=next((one.text for one in reversed(spoken) if one.role == "user"), ""),
        user=user,
        limits=settings.limits,
        syntax=settings.syntax,
        time_zone=settings.time_zone,
        model=model,
        now=now,
        tools=tools,
        stop=stop,
        sampling=sampling,
        asks_person=sent.stream is not False,
        source="api",
    )


def _wanted(sent: OllamaBody, *, empty: bool) -> RequestOptions:
    loads: Literal["load", "unload"] | None = None
    if empty:
        loads = "unload" if sent.keep_alive is not None and _is_zero(sent.keep_alive) else "load"
    return RequestOptions(sent.model, sent.stream is not False, loads)


def _check_prompt_is_all(sent: GenerateBody) -> None:
    """Refuses what would have to stand in the model's prompt besides, or in place of, all that Brain puts there."""
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


def _sampling(sent: OllamaBody) -> tuple[Sampling, tuple[str, ...]]:
    """What the request says of the model's writing, and the texts that end it."""
    said = mapping(sent.options, OPTIONS_BYTES, "options") or {}
    given = {name: _whole(value) for name, value in said.items() if value is not None}
    options = _options(given)
    known = {field.encode_name for field in msgspec.structs.fields(OptionsBody)}
    most = options.num_predict
    sampling = Sampling(
        max_tokens=most if most is not None and most > 0 else None,  # -1 and -2 are Ollama's "as many as it takes"
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        min_p=options.min_p,
        seed=options.seed,
        frequency_penalty=options.frequency_penalty,
        presence_penalty=options.presence_penalty,
        effort=_effort(sent.think),
        format=_format(sent.format),
        keep_alive=_keep_alive(sent.keep_alive),
        dialect="ollama",
        more={name: value for name, value in given.items() if name not in known},
    )
    return sampling, _stops(options.stop or [])


def _stops(texts: list[str]) -> tuple[str, ...]:
    if len(texts) > STOPS_MOST or any(len(text) > STOP_LENGTH for text in texts):
        raise BadRequest(f"options.stop: at most {STOPS_MOST} texts of {STOP_LENGTH} characters.", "options.stop")
    return tuple(filter(None, texts))


def _whole(value: Any) -> Any:
    """40.0 as 40: to many clients all numbers are the same."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _effort(think: bool | str | None) -> bool | str | None:
    if isinstance(think, str) and think not in _LEVELS:
        raise BadRequest(f"think must be true, false, {', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}.", "think")
    return think


def _options(given: Mapping[str, Any]) -> OptionsBody:
    try:
        return msgspec.convert(given, OptionsBody)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, "options") from None


def _format(raw: msgspec.Raw) -> Literal["json"] | Mapping[str, Any] | None:
    wanted = None if not bytes(raw) else decode_any(raw, SCHEMA_BYTES, "format")
    if wanted in (None, ""):
        return None
    if wanted == "json":
        return "json"
    if not isinstance(wanted, dict):
        raise BadRequest("format must be json or a JSON Schema.", "format")
    return wanted


def _keep_alive(wanted: float | str | None) -> float | str | None:
    if isinstance(wanted, str) and (len(wanted) > 64 or not _DURATION.fullmatch(wanted)):
        raise BadRequest("keep_alive must be a number of seconds, or a duration such as 5m.", "keep_alive")
    return wanted


def _is_zero(duration: float | str) -> bool:
    return not re.search("[1-9]", str(duration))


def _tools(tools: list[ToolBody]) -> tuple[Tool, ...]:
    if len(tools) > TOOLS_MOST:
        raise BadRequest(f"tools: at most {TOOLS_MOST}.", "tools")
    return tuple(_tool(tool.function, n) for n, tool in enumerate(tools))


def _tool(signature: SignatureBody, n: int) -> Tool:
    if not signature.name:
        raise BadRequest(f"tools[{n}].function.name is empty.", f"tools[{n}].function.name")
    parameters = mapping(signature.parameters, SCHEMA_BYTES, f"tools[{n}].function.parameters")
    return Tool(signature.name, signature.description or "", parameters or {})
