"""What the requests of all protocols share: limits, files, messages, tools, and Brain's own options."""

import base64
import binascii
import re
import zoneinfo
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import unquote_to_bytes

import msgspec

from brain.errors import BadRequest
from brain.events import AssistMode, Limits, StrategyName, SyntaxName
from brain.messages import Attachment, Call, ClientSource, sniff
from brain.settings import Settings
from brain.strict_json import MAX_DEPTH, InvalidJSON, check, is_deeper, replace_json_surrogates
from brain.text import ID, replace_surrogates, suggest
from brain.turn_request import CRITIC_ROUNDS, STRATEGY_OPTIONS, Sampling, Tool, TurnRequest
from brain.validation import SHOWN_LENGTH, describe_mismatch, quote_value

# Limits. A request over one of them is `too_large`.

BODY_BYTES = 20 * 1024 * 1024
MAX_VALUES = 1_000_000
"""JSON values in all messages together, counted by the commas between them, which is fast."""
MAX_VALUES_PER_MESSAGE = 250_000
MAX_OTHER_VALUES = 100_000
"""JSON values of a body outside its messages or attachments."""
MAX_MESSAGES = 10_000
MESSAGE_LENGTH = 200_000
"""Characters of one message."""
MAX_PARTS = 1000
"""Parts of one message."""
MAX_CALLS = 4096
"""Calls in all messages together."""
ARGUMENTS_BYTES = 4 * MESSAGE_LENGTH
"""JSON of a call's arguments, or of its result."""
MAX_ATTACHMENTS = 10
"""Files of one message."""
MAX_FILES = 1000
"""Files in all messages together."""
ATTACHMENT_BYTES = 16 * 1024 * 1024
MAX_TOOLS = 128
NAME_LENGTH = 256
"""Characters of a tool's name."""
SCHEMA_BYTES = 65_536
"""A JSON Schema of a tool or of the answer; also characters of a tool's description."""
STOP_LENGTH = 256
"""Characters of one stop sequence."""
CONTEXT_LENGTH = 50_000
"""Characters of one text of the context."""

LEAVE_OUT = "Leave out the oldest messages."
ABSENT = msgspec.Raw(b"")
"""Default of a field that is decoded later."""
Id = Annotated[str, msgspec.Meta(pattern=rf"^{ID.pattern}\Z", description="1 to 64 letters, digits, _ or -")]
"""An ID that a client chose."""
DEFAULT_NAME = "brain"
"""Name of the default model in compatible APIs."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
T = TypeVar("T")
S = TypeVar("S", bound=str)


# Errors


def quote_field(field: str) -> str:
    """Return a field for an error message, in backticks; a label with spaces, such as a line of a file, without."""
    return field if " " in field else f"`{field}`"


def invalid(field: str, problem: str) -> BadRequest:
    """Return the error for a field: its name and the problem in one sentence."""
    return BadRequest(f"{quote_field(field)} {problem}{'' if problem.endswith('?') else '.'}", field)


def too_large(message: str, field: str | None = None) -> BadRequest:
    """Return the error for a request that exceeds a limit."""
    return BadRequest(message, field, code="too_large", status=413)


def check_limit(field: str, count: int, limit: int, unit: str, remedy: str = "") -> None:
    """Raise `too_large` when a field exceeds a limit, such as one for characters."""
    if count > limit:
        raise too_large(
            f"{quote_field(field)} has {count:,} {unit}; the limit is {limit:,}.{remedy and f' {remedy}'}", field
        )


def check_length(text: str | None, field: str, limit: int = MESSAGE_LENGTH) -> str:
    """Return the text, or an empty string for None, after checking its length."""
    check_limit(field, len(text or ""), limit, "characters")
    return text or ""


def choose(value: str, allowed: Sequence[S], field: str) -> S:
    """Return the allowed value that equals `value`."""
    for one in allowed:
        if one == value:
            return one
    raise invalid(field, f"is {quote_value(value)}; use one of: {', '.join(allowed)}")


def check_id(value: str | None, field: str) -> str | None:
    """Check the form of an ID that a client chose."""
    if value is not None and not ID.fullmatch(value):
        raise invalid(field, f"is {quote_value(value)}; use 1 to 64 letters, digits, _ or -")
    return value


def as_bad_request(error: msgspec.ValidationError, kind: Any, place: str = "") -> BadRequest:
    """Return the error for a value that is not of a type, at this place of a body."""
    path, problem = describe_mismatch(error, kind)
    field = f"{place}.{path}".replace("[...]", "[]").replace("..", ".").replace(".[", "[").strip(".")
    return invalid(field, problem) if field else BadRequest(f"The body {problem}.")


# JSON


def decode(data: bytes | msgspec.Raw, kind: type[T], place: str = "") -> T:
    """Decode a body, or the part of it at `place`. Lone surrogates become U+FFFD."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, kind, place) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if (whole := replace_json_surrogates(bytes(data))) != data:
            return decode(whole, kind, place)
        name = quote_field(place) if place else "The body"
        raise BadRequest(f"{name} is not valid JSON: {describe_decode_error(error)}.", place or None) from None


def describe_decode_error(error: Exception) -> str:
    """Return in a few words why something is not valid JSON."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "truncated" in str(error):
        return "it is incomplete"
    return str(error).removeprefix("JSON is malformed: ")


def check_strictly(data: bytes, place: str = "") -> None:
    """Check a body that `decode` has decoded, or the part of it at `place`, for what that leaves unchecked."""
    try:
        check(data)
    except InvalidJSON as error:
        if error.key:
            field = (f"{place}.{error.key}" if place else error.key)[:200]
            raise invalid(field, "appears more than once in the same object; send it once") from None
        name = quote_field(place) if place else "The body"
        raise BadRequest(f"{name} is not valid: {error}.", place or None) from None


def decode_any(data: bytes | msgspec.Raw, max_bytes: int, place: str, max_depth: int = MAX_DEPTH) -> Any:
    """Decode a field that accepts any JSON within these limits."""
    check_limit(place, len(memoryview(data)), max_bytes, "bytes")
    value = decode(data, object, place)
    if is_deeper(value, max_depth):
        raise invalid(place, f"is nested deeper than the limit of {max_depth} levels")
    return value


def decode_object(data: msgspec.Raw, max_bytes: int, place: str) -> dict[str, Any]:
    """Decode a field that accepts any JSON object; return an empty one if it is absent or null."""
    value = decode_any(data, max_bytes, place) if is_present(data) else {}
    if not isinstance(value, dict):
        raise invalid(place, "must be an object")
    return value


def is_present(data: msgspec.Raw) -> bool:
    """Whether a field is present and not null."""
    return bytes(data) not in (b"", b"null")


# Files


def make_attachment(name: str, media_type: str, data: bytes, field: str) -> Attachment:
    """Return a file without an ID. Folders are removed from its name; its content overrides `media_type`."""
    if not data:
        raise invalid(field, "is empty")
    if len(data) > ATTACHMENT_BYTES:
        raise too_large(f"{quote_field(field)} is larger than the limit of {ATTACHMENT_BYTES >> 20} MiB.", field)
    name = "".join(character if character.isprintable() else " " for character in re.split(r"[/\\]", name)[-1])
    media_type = media_type.partition(";")[0].strip().lower()
    media_type = media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream"
    return Attachment(0, " ".join(name.split())[:200] or "file", sniff(data, media_type), data)


_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)


def decode_attachment(name: str, media_type: str, text: str, field: str) -> Attachment:
    """Return a file from base64 or from a `data:` URL, whose media type is used if `media_type` is empty."""
    head, comma, content = text.partition(",") if text.startswith("data:") else ("data:;base64", ",", text)
    if not comma:
        raise invalid(field, "must be a URL like data:TYPE;base64,…")
    media_type = media_type or head.removeprefix("data:")
    if not head.endswith(";base64"):
        return make_attachment(name, media_type, unquote_to_bytes(content), field)
    try:
        data = base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError):
        raise invalid(field, "is not valid base64") from None
    return make_attachment(name, media_type, data, field)


def decode_url(name: str, media_type: str, url: str, field: str) -> Attachment:
    """Return a file from a `data:` URL; Brain fetches no others."""
    if not url.startswith("data:"):
        raise invalid(field, "is not a `data:` URL, and Brain fetches no files; send data:TYPE;base64,…")
    return decode_attachment(name, media_type, url, field)


def too_many_attachments(count: int | None = None) -> BadRequest:
    """Return the error for a message with too many files, and their number if it is known."""
    found = "" if count is None else f", not {count}"
    return too_large(f"A message can have up to {MAX_ATTACHMENTS} attachments{found}. Send fewer.", "attachments")


# Messages


def check_value_count(data: bytes, field: str = "messages") -> None:
    """Check the number of values outside a field of a body, which has a limit of its own."""
    if (count := data.count(b",")) > MAX_OTHER_VALUES:
        count -= _count_commas(decode(data, dict[str, msgspec.Raw]).get(field, ABSENT))
    if count > MAX_OTHER_VALUES:
        raise too_large(f"The body has {count:,} values outside `{field}`; the limit is {MAX_OTHER_VALUES:,}.")


def _count_commas(data: msgspec.Raw) -> int:
    return bytes(data).count(b",")


def decode_messages(data: msgspec.Raw, kind: type[T]) -> Iterator[tuple[T, str]]:
    """Decode messages one at a time; yield each with its place in the body."""
    check_limit("messages", _count_commas(data), MAX_VALUES, "values", LEAVE_OUT)
    messages = decode(data, list[msgspec.Raw], "messages")
    check_limit("messages", len(messages), MAX_MESSAGES, "entries", LEAVE_OUT)
    for n, message in enumerate(messages):
        place = f"messages[{n}]"
        check_limit(place, _count_commas(message), MAX_VALUES_PER_MESSAGE, "values")
        yield decode(message, kind, place), place


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """One message of a history that the client sends. All of it is untrusted.

    Attributes:
        attachments: Files without final IDs.
        calls: Calls in a message of the assistant, with ID, name and parameters.
        call_id: ID of the answered call, in a message of a tool.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    calls: tuple[Call, ...] = ()
    call_id: str = ""


def collect_messages(messages: Iterable[ClientMessage]) -> list[ClientMessage]:
    """Return all messages, whose calls and files are limited in total."""
    collected: list[ClientMessage] = []
    calls = files = 0
    for message in messages:
        calls += len(message.calls)
        files += len(message.attachments)
        check_limit("messages", calls, MAX_CALLS, "calls", LEAVE_OUT)
        check_limit("messages", files, MAX_FILES, "files", LEAVE_OUT)
        collected.append(message)
    return collected


class CallFunctionBody(msgspec.Struct):
    """The function of a call. Arguments are an object, or JSON in a string."""

    name: str
    arguments: msgspec.Raw = ABSENT


class CallBody(msgspec.Struct):
    """A call by the assistant: of a client tool, or of a specialist in an earlier turn."""

    function: CallFunctionBody
    id: str | None = None
    type: str | None = None


class MessageBody(msgspec.Struct):
    """What the messages of OpenAI, Ollama and AG-UI share. Each protocol adds its content."""

    role: str
    tool_calls: list[CallBody] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None


M = TypeVar("M", bound=MessageBody)
Content = tuple[str, tuple[Attachment, ...]]
_SKIPPED = ("activity", "reasoning")
"""Roles of messages that no model reads."""


def parse_messages(data: msgspec.Raw, kind: type[M], parse_content: Callable[[M, str], Content]) -> list[ClientMessage]:
    """Return the messages that a model reads, in order.

    Calls without an ID get one. A result belongs to the call with its ID, else to the first open call with its name.

    Args:
        parse_content: returns text and files of a message. Its second argument is the place of the message.
    """
    return collect_messages(_parse_messages(data, kind, parse_content))


def _parse_messages(
    data: msgspec.Raw, kind: type[M], parse_content: Callable[[M, str], Content]
) -> Iterator[ClientMessage]:
    open_calls: list[Call] = []
    for n, (body, place) in enumerate(decode_messages(data, kind)):
        if (role := body.role.lower()) in _SKIPPED:
            continue
        text, files = parse_content(body, place)
        if files and role != "user":
            raise invalid(f"{place}.content", "has files, which only messages with the role user can have")
        match role:
            case "system" | "developer":
                yield ClientMessage("system", text)
            case "user":
                yield ClientMessage("user", text, files)
            case "assistant":
                calls = parse_calls(body.tool_calls, f"{place}.tool_calls", f"call_{n}")
                open_calls = [*calls] or open_calls
                yield ClientMessage("assistant", text, calls=calls)
            case "tool":
                answered = next((call for call in open_calls if _answers(body, call)), None)
                if answered is not None:
                    open_calls.remove(answered)
                yield ClientMessage("tool", text, call_id=answered.id if answered else body.tool_call_id or "")
            case _:
                allowed = "system, developer, user, assistant or tool"
                raise invalid(f"{place}.role", f"is {quote_value(body.role)}; use {allowed}")


def _answers(body: MessageBody, call: Call) -> bool:
    """Whether a result belongs to a call. A result without ID and name belongs to any call."""
    if body.tool_call_id:
        return body.tool_call_id == call.id
    return body.tool_name in (call.name, "", None)


def parse_calls(calls: Sequence[CallBody] | None, place: str, prefix: str) -> tuple[Call, ...]:
    """Return calls of the assistant; those without an ID get one with the prefix."""
    check_limit("messages", len(calls or ()), MAX_CALLS, "calls", LEAVE_OUT)
    found = []
    for n, call in enumerate(calls or ()):
        field = f"{place}[{n}]"
        if call.type not in (None, "function"):
            raise invalid(f"{field}.type", f"is {quote_value(call.type)}; use function")
        params = parse_arguments(call.function.arguments, f"{field}.function.arguments")
        found.append(Call(call.function.name, params=params, id=call.id or f"{prefix}_{n}", by="client"))
    return tuple(found)


def parse_arguments(data: msgspec.Raw, place: str) -> dict[str, Any]:
    """Return the arguments of a client's call: an object, or JSON in a string.

    The call is history, which the client cannot correct. So any other value is returned in `arguments`.
    """
    value = decode_any(data, ARGUMENTS_BYTES, place) if is_present(data) else {}
    if isinstance(value, str):
        try:
            value = decode_any(value.encode(errors="replace"), ARGUMENTS_BYTES, place) if value.strip() else {}
        except BadRequest:
            return {"arguments": value}
    return value if isinstance(value, dict) else {"arguments": value}


def parse_parts(parts: Sequence[T], place: str, parse_part: Callable[[T, str], str | Attachment | None]) -> Content:
    """Return the text of a message, one line per part, and its files.

    Args:
        parse_part: returns the text or the file of a part; None for one that no model reads.
    """
    check_limit(place, len(parts), MAX_PARTS, "entries")
    texts: list[str] = []
    files: list[Attachment] = []
    for n, part in enumerate(parts):
        parsed = parse_part(part, f"{place}[{n}]")
        if isinstance(parsed, str):
            texts.append(parsed)
        elif parsed is not None:
            files.append(parsed)
        if len(files) > MAX_ATTACHMENTS:
            raise too_many_attachments()
    return check_length("\n".join(texts), place), tuple(files)


def newest_question(messages: Sequence[ClientMessage]) -> str:
    """Return the text of the newest message of the user, or an empty string."""
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


# Tools and sampling


class FunctionBody(msgspec.Struct):
    """A function that the client offers or chooses."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT


class ToolBody(msgspec.Struct):
    """A client tool, with its function in a field of its own."""

    function: FunctionBody | None = None
    type: str | None = None


def parse_tools(bodies: Sequence[FunctionBody | ToolBody] | None) -> tuple[Tool, ...]:
    """Return the client tools, whose names are unique."""
    check_limit("tools", len(bodies or ()), MAX_TOOLS, "entries")
    tools: dict[str, Tool] = {}
    for n, body in enumerate(bodies or ()):
        place = f"tools[{n}]"
        if isinstance(body, ToolBody):
            if body.type not in (None, "function") or body.function is None:
                raise BadRequest(f"`{place}` must have the type function and a `function`.", f"{place}.type")
            body, place = body.function, f"{place}.function"
        if not 0 < len(body.name) <= NAME_LENGTH:
            raise invalid(f"{place}.name", f"has {len(body.name)} characters; use 1 to {NAME_LENGTH}")
        if body.name in tools:
            raise invalid(f"{place}.name", f"is {quote_value(body.name)}, the name of an earlier tool; rename one")
        description = check_length(body.description, f"{place}.description", SCHEMA_BYTES)
        parameters = decode_object(body.parameters, SCHEMA_BYTES, f"{place}.parameters")
        tools[body.name] = Tool(body.name, description, parameters)
    return tuple(tools.values())


def parse_stop(stop: Sequence[str] | None, limit: int, field: str) -> tuple[str, ...]:
    """Return the stop sequences of a request, without empty ones."""
    if stop and len(stop) > limit:
        raise invalid(field, f"has {len(stop)} entries; the limit is {limit}")
    if (longest := max(map(len, stop or ()), default=0)) > STOP_LENGTH:
        raise invalid(field, f"has an entry with {longest:,} characters; the limit is {STOP_LENGTH}")
    return tuple(filter(None, stop or ()))


class SamplingBody(msgspec.Struct):
    """Sampling parameters with the same names in OpenAI's and Ollama's protocols."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: Int64 | None = None
    min_p: float | None = None
    seed: Int64 | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None

    def make_sampling(self, **more: Any) -> Sampling:
        """Return the parameters, with `more` fields of `Sampling`."""
        return Sampling(**{field: getattr(self, field) for field in SamplingBody.__struct_fields__}, **more)


# Brain's own options


class LimitsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Limits of one request, which can only lower the server's limits."""

    calls: int | None = None
    calls_per_specialist: int | None = None
    turn_seconds: float | None = None
    call_seconds: float | None = None
    rounds: int | None = None
    steps: int | None = None
    step_seconds: float | None = None


class ContextBody(msgspec.Struct, forbid_unknown_fields=True):
    """Texts that the model reads before the message, as data."""

    goal: str | None = None
    background: str | None = None
    knowledge: str | None = None
    previous_output: str | None = None
    lessons: str | None = None


class TurnOptions(msgspec.Struct):
    """The options in the JSON."""

    specialists: list[str] | None = None
    limits: LimitsBody | None = None
    time_zone: str | None = None
    source: ClientSource | None = None
    memory: bool | None = None
    private: bool | None = None
    strategy: str | None = None
    critic: bool | None = None
    assist: AssistMode | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """Who sends a request, and what the server offers this user.

    Attributes:
        specialists: All registered specialists. Naming one that the user may not call is no error.
        find_callable: Returns those that the user may call, for suggestions.
    """

    user: str | None
    settings: Settings
    models: Set[str] = frozenset()
    specialists: Collection[str] = ()
    find_callable: Callable[[], Sequence[str]] = tuple

    @property
    def strategies(self) -> Mapping[str, StrategyName]:
        """The names that compatible APIs use for the default model with a strategy, such as `brain:reason`."""
        return {f"{DEFAULT_NAME}:{strategy}": strategy for strategy in self.settings.allowed_strategies}

    @property
    def model_names(self) -> list[str]:
        """The names in the lists of models: the default one, its strategies and the configured models."""
        is_mono = self.settings.strategy == "mono"
        strategies = [name for name, strategy in self.strategies.items() if strategy != "mono" or not is_mono]
        return [DEFAULT_NAME, *strategies, *sorted(self.models)]

    def find_model(self, name: str) -> tuple[str | None, StrategyName | None] | None:
        """Return the model and the strategy for a client's name, with None for the default ones; None if unknown."""
        if name == DEFAULT_NAME or name in self.strategies:
            return None, self.strategies.get(name)
        return (name, None) if name in self.models else None


def build_request(
    options: TurnOptions,
    client: Client,
    *,
    message: str,
    model: str | None = None,
    syntax: tuple[SyntaxName, ...] | None = None,
    strategy: StrategyName | None = None,
    source: ClientSource = "chat",
    place: str = "",
    **more: Any,
) -> TurnRequest:
    """Check the options against the settings, and return a request for a turn.

    Args:
        strategy: the strategy that the client chose by a model's name; the options override it.
        source: how the message was written; the options override it.
        place: the path of the options in the body, such as `brain.`.
        more: further fields of `TurnRequest`.
    """
    settings = client.settings
    if model is not None:
        choose(model, sorted(client.models), f"{place}model")
    zone = settings.time_zone
    if options.time_zone is not None:
        zone = check_time_zone(options.time_zone, f"{place}time_zone")
    for n, name in enumerate(options.specialists or ()):
        if name not in client.specialists:
            near = suggest(name[:SHOWN_LENGTH], client.find_callable())
            problem = f"is {quote_value(name)}, which is not a specialist of this server{near and f'.{near}'}"
            raise invalid(f"{place}specialists[{n}]", problem)
    if options.strategy is not None:
        strategy = choose(options.strategy, settings.allowed_strategies, f"{place}strategy")
    strategy = strategy or settings.strategy
    if options.critic and "critic" not in STRATEGY_OPTIONS[strategy]:
        raise invalid(f"{place}critic", f"has no effect on the strategy {strategy}; leave it out")
    limits = settings.limits(strategy)
    if options.limits is not None:
        limits = _lower_limits(limits, options.limits, f"{place}limits", strategy)
    if options.critic and limits.rounds is not None and limits.rounds < CRITIC_ROUNDS:
        raise invalid(f"{place}critic", f"needs {CRITIC_ROUNDS} rounds; this turn has {limits.rounds}")
    return TurnRequest(
        message=message,
        user=client.user,
        limits=limits,
        syntax=settings.syntax if syntax is None else syntax,
        time_zone=zone,
        model=model,
        specialists=None if options.specialists is None else frozenset(options.specialists),
        call_seconds=options.limits.call_seconds if options.limits else None,
        now=datetime.now(zoneinfo.ZoneInfo(zone)),
        source=options.source or source,
        memory=options.memory is not False,
        private=bool(options.private),
        strategy=strategy,
        critic=bool(options.critic),
        assist=options.assist,
        **more,
    )


_LEAST: Mapping[str, float] = {
    "calls": 0,
    "calls_per_specialist": 0,
    "turn_seconds": 0.001,
    "call_seconds": 0.001,
    "rounds": 2,
    "steps": 1,
    "step_seconds": 0.001,
}
"""The smallest value of each limit."""


def _lower_limits(limits: Limits, body: LimitsBody, place: str, strategy: StrategyName) -> Limits:
    lowered: dict[str, Any] = {}
    for field in fields(Limits):
        value = getattr(body, field.name)
        if value is None:
            continue
        most = getattr(limits, field.name)
        if most is None:
            raise invalid(f"{place}.{field.name}", f"has no effect on the strategy {strategy}; leave it out")
        least = _LEAST[field.name]
        if not least <= value <= most:
            raise invalid(f"{place}.{field.name}", f"must be between {least:g} and {most:g}, the server's limit")
        lowered[field.name] = value
    return replace(limits, **lowered)


def parse_syntax(names: Sequence[str]) -> tuple[SyntaxName, ...]:
    """Return the call syntaxes that a request allows, without duplicates."""
    if not names:
        raise invalid("syntax", f"is empty; use one or more of: {', '.join(get_args(SyntaxName))}")
    known = [choose(name, get_args(SyntaxName), f"syntax[{n}]") for n, name in enumerate(names)]
    return tuple(dict.fromkeys(known))


def check_context(body: ContextBody | None, place: str) -> tuple[tuple[str, str], ...]:
    """Return the texts that are not empty, with their names."""
    values = {} if body is None else msgspec.structs.asdict(body)
    texts = {name: check_length(text, f"{place}.{name}", CONTEXT_LENGTH) for name, text in values.items()}
    return tuple((name, replace_surrogates(text.strip())) for name, text in texts.items() if text.strip())


def parse_context(texts: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return the texts of a program, as of a body."""
    try:
        return check_context(msgspec.convert(texts, ContextBody | None), "context")
    except msgspec.ValidationError as error:
        raise as_bad_request(error, ContextBody, "context") from None


def check_time_zone(name: str, field: str) -> str:
    """Check that a time zone exists."""
    try:
        return zoneinfo.ZoneInfo(name).key
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise invalid(field, f"is {quote_value(name)}; use an IANA name such as Europe/Berlin") from None
