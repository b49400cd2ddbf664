"""Brain's own options for a turn; shared by all protocols."""

import re
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, get_args

import msgspec

from brain.events import AssistMode, Limits, StrategyName, SyntaxName
from brain.messages import ClientSource
from brain.protocols.bodies import Int64, as_bad_request, choose, invalid
from brain.protocols.client_messages import check_length
from brain.settings import Settings
from brain.text import replace_surrogates, suggest
from brain.turn_request import CRITIC_ROUNDS, STRATEGY_OPTIONS, Sampling, TurnRequest
from brain.validation import SHOWN_LENGTH, quote_value

DEFAULT_NAME = "brain"
"""Name of the default model in compatible APIs."""
CONTEXT_LENGTH = 50_000
"""Characters of one text of the context."""
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


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


class TurnOptions(msgspec.Struct):
    """The options in the JSON."""

    specialists: list[str] | None = None
    limits: LimitsBody | None = None
    time_zone: str | None = None
    source: str | None = None
    memory: bool | None = None
    private: bool | None = None
    strategy: str | None = None
    critic: bool | None = None
    assist: str | None = None


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that requests may use.

    Attributes:
        specialists: All registered specialists. Naming one that the user may not call is no error.
        callable_specialists: Those that the user may call, for suggestions.
    """

    models: Set[str] = frozenset()
    specialists: Set[str] = frozenset()
    callable_specialists: Sequence[str] = ()


def strategy_names(settings: Settings) -> Mapping[str, StrategyName]:
    """Return the model names that compatible APIs use for the default model with a strategy, such as `brain:reason`."""
    return {f"{DEFAULT_NAME}:{strategy}": strategy for strategy in settings.allowed_strategies}


def list_names(settings: Settings, models: Iterable[str]) -> list[str]:
    """Return the names in the lists of models: the default one, its strategies and the configured models."""
    is_mono = settings.strategy == "mono"
    strategies = [name for name, strategy in strategy_names(settings).items() if strategy != "mono" or not is_mono]
    return [DEFAULT_NAME, *strategies, *sorted(models)]


def build_request(
    options: TurnOptions,
    user: str | None,
    settings: Settings,
    known: KnownNames,
    *,
    model: str | None = None,
    system: str | None = None,
    source: ClientSource = "chat",
    context: ContextBody | None = None,
    place: str = "",
    strategy: StrategyName | None = None,
    **more: Any,
) -> TurnRequest:
    """Check the options against the settings, and return a request for a turn.

    Args:
        source: how the message was written; the options override it.
        place: the path of the options in the body, such as `brain.`.
        strategy: the strategy that the client chose by a model's name; the options override it.
        more: further fields of `TurnRequest`.
    """
    if model is not None:
        choose(model, sorted(known.models), f"{place}model")
    zone = settings.time_zone
    if options.time_zone is not None:
        zone = check_time_zone(options.time_zone, f"{place}time_zone")
    for n, name in enumerate(options.specialists or ()):
        if name not in known.specialists:
            near = suggest(name[:SHOWN_LENGTH], known.callable_specialists)
            problem = f"is {quote_value(name)}, which is not a specialist of this server{near and f'.{near}'}"
            raise invalid(f"{place}specialists[{n}]", problem)
    if options.source is not None:
        source = choose(options.source, get_args(ClientSource), f"{place}source")
    if options.strategy is not None:
        strategy = choose(options.strategy, settings.allowed_strategies, f"{place}strategy")
    strategy = strategy or settings.strategy
    assist: AssistMode | None = None
    if options.assist is not None:
        assist = choose(options.assist, get_args(AssistMode), f"{place}assist")
    if options.critic and "critic" not in STRATEGY_OPTIONS[strategy]:
        raise invalid(f"{place}critic", f"has no effect on the strategy {strategy}; leave it out")
    limits = _lower_limits(settings.limits(strategy), options.limits, f"{place}limits", strategy)
    if options.critic and limits.rounds is not None and limits.rounds < CRITIC_ROUNDS:
        raise invalid(f"{place}critic", f"needs {CRITIC_ROUNDS} rounds; this turn has {limits.rounds}")
    request = TurnRequest(
        message="",
        user=user,
        limits=limits,
        syntax=settings.syntax,
        time_zone=zone,
        model=model,
        specialists=None if options.specialists is None else frozenset(options.specialists),
        system=check_length(system, f"{place}system"),
        context=check_context(context, f"{place}context"),
        call_seconds=options.limits.call_seconds if options.limits else None,
        now=datetime.now(zoneinfo.ZoneInfo(zone)),
        source=source,
        memory=options.memory is not False,
        private=bool(options.private),
        strategy=strategy,
        critic=bool(options.critic),
        assist=assist,
    )
    return replace(request, **more)


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


def _lower_limits(limits: Limits, body: LimitsBody | None, place: str, strategy: StrategyName) -> Limits:
    lowered: dict[str, Any] = {}
    for field in fields(Limits):
        value = getattr(body, field.name, None)
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


def check_id(value: str | None, field: str) -> str | None:
    """Check the form of an ID that a client chose."""
    if value is not None and not ID.fullmatch(value):
        raise invalid(field, f"is {quote_value(value)}; use 1 to 64 letters, digits, _ or -")
    return value
