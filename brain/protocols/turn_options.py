"""What a request may say of a turn, alike in all protocols."""

import re
import zoneinfo
from collections.abc import Sequence, Set
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, TypeVar, get_args

import msgspec

from brain.events import Limits, SyntaxName
from brain.messages import Source
from brain.protocols.bodies import Int64, invalid
from brain.protocols.client_messages import check_length
from brain.settings import Settings
from brain.turn_request import Sampling, TurnRequest

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

T = TypeVar("T", bound=str)


class LimitsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Limits of a request. They can only lower the server's."""

    calls: int | None = None
    calls_per_specialist: int | None = None
    turn_seconds: float | None = None
    call_seconds: float | None = None


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
        """Return the parameters with `more` of them."""
        return Sampling(**{field: getattr(self, field) for field in SamplingBody.__struct_fields__}, **more)


class TurnOptions(msgspec.Struct):
    """Options as they stand in the JSON."""

    specialists: list[str] | None = None
    limits: LimitsBody | None = None
    time_zone: str | None = None
    source: str | None = None
    memory: bool | None = None


def build_request(
    options: TurnOptions,
    user: str | None,
    settings: Settings,
    models: Set[str],
    *,
    model: str | None = None,
    system: str | None = None,
    source: Source = "chat",
    place: str = "",
    **more: Any,
) -> TurnRequest:
    """Return a request for a turn, with the options checked against the settings.

    Args:
        source: how the message was written, where the options do not say.
        place: the path of the options in the body, such as `brain.`.
        more: further fields of the request.
    """
    if model is not None and model not in models:
        raise invalid(f"{place}model", f"must be one of: {', '.join(sorted(models))}")
    zone = settings.time_zone
    if options.time_zone is not None:
        try:
            zone = zoneinfo.ZoneInfo(options.time_zone).key
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
            raise invalid(f"{place}time_zone", "must be an IANA name such as Europe/Berlin") from None
    if options.source is not None:
        source = choose(options.source, get_args(Source), f"{place}source")
    request = TurnRequest(
        message="",
        user=user,
        limits=_lower_limits(settings.limits, options.limits, f"{place}limits"),
        syntax=settings.syntax,
        time_zone=zone,
        model=model,
        specialists=None if options.specialists is None else frozenset(options.specialists),
        system=check_length(system, f"{place}system"),
        call_seconds=options.limits.call_seconds if options.limits else None,
        now=datetime.now(zoneinfo.ZoneInfo(zone)),
        source=source,
        memory=options.memory is not False,
    )
    return replace(request, **more)


def _lower_limits(limits: Limits, body: LimitsBody | None, place: str) -> Limits:
    lowered: dict[str, Any] = {}
    for field in fields(Limits):
        value = getattr(body, field.name, None)
        if value is None:
            continue
        most = getattr(limits, field.name)
        least = 0 if isinstance(field.default, int) else 0.001
        if not least <= value <= most:
            allowed = f"may only lower the server's, which is {most:g}, and not below {least:g}"
            raise invalid(f"{place}.{field.name}", f"{allowed}")
        lowered[field.name] = value
    return replace(limits, **lowered)


def parse_syntax(names: Sequence[str]) -> tuple[SyntaxName, ...]:
    """Return the call syntaxes that a request allows, each once."""
    if not names:
        raise invalid("syntax", "must name one syntax at least")
    known = [choose(name, get_args(SyntaxName), f"syntax[{n}]") for n, name in enumerate(names)]
    return tuple(dict.fromkeys(known))


def choose(value: str, allowed: Sequence[T], field: str) -> T:
    """Return the allowed value that equals `value`."""
    for one in allowed:
        if one == value:
            return one
    raise invalid(field, f"must be one of: {', '.join(allowed)}")


def check_id(value: str | None, field: str) -> str | None:
    """Return the ID."""
    if value is not None and not ID.fullmatch(value):
        raise invalid(field, "must be 1 to 64 letters, digits, _ or -")
    return value
