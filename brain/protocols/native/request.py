"""What is asked in Brain's own protocol: a JSON body, a form, or a query."""

import base64
import re
import zoneinfo
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, get_args

import msgspec

from brain.errors import BadRequest
from brain.events import Limits, SyntaxName
from brain.messages import Attachment, Source, TakenAlong
from brain.protocols.attachments import MAX_ATTACHMENTS, make_attachment, too_many_attachments
from brain.protocols.bodies import as_bad_request, check_keys, decode, describe_decode_error
from brain.settings import Settings
from brain.turn_request import TurnRequest

MESSAGE_LENGTH = 200_000
NAMES_MOST = 100
MAX_FILE_ID = 999_999_999
COMMAS_MOST = 500_000
"""More than message and system have; values have one between them, and counting takes no time."""

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class AttachmentBody(msgspec.Struct, forbid_unknown_fields=True):
    """A file in a JSON body: `data` in base64, or `text`; or the `id` of one of the question that is replaced."""

    id: int | None = None
    name: str | None = None
    type: str = ""
    data: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        """Ends the reading of a body at the first that is neither, however many there are."""
        if self.id is None and self.name is None:
            raise ValueError("Object missing required field `name`")


class _Attachments(msgspec.Struct):
    attachments: msgspec.Raw = msgspec.Raw(b"")


class LimitsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Limits of a request; they may only lower the server's."""

    calls: int | None = None
    calls_per_specialist: int | None = None
    turn_seconds: float | None = None
    call_seconds: float | None = None


class TurnBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a turn is asked with."""

    message: str | None = None
    prompt: str | None = None
    conversation_id: str | None = None
    attachments: list[AttachmentBody] = []
    model: str | None = None
    specialists: list[str] | None = None
    limits: LimitsBody | None = None
    system: str = ""
    syntax: list[str] | None = None
    source: str = "chat"
    time_zone: str | None = None
    memory: bool = True
    barge_in: bool = False
    replace_from: str | None = None
    request_id: str | None = None


def parse(body: bytes, user: str | None, settings: Settings, models: Set[str]) -> TurnRequest:
    """Reads a JSON body.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    _check_numbers(body)
    sent = decode(body, TurnBody)
    return _ask(sent, [], user, settings, models)


def _check_numbers(body: bytes) -> None:
    """Refuses what holds too many values to be read in a moment; each attachment has a name or an id."""
    if body.count(b'"name"') + body.count(b'"id"') > NAMES_MOST:
        raise too_many_attachments()
    number = body.count(b",")
    if number <= COMMAS_MOST:
        return
    attachments = decode(body, _Attachments).attachments
    if number - bytes(attachments).count(b",") > COMMAS_MOST:
        message = f"The body may hold {COMMAS_MOST:,} values besides its attachments."
        raise BadRequest(message, code="too_large", status=413)


def parse_form(
    form: Mapping[str, str], files: list[Attachment], user: str | None, settings: Settings, models: Set[str]
) -> TurnRequest:
    """Reads the fields of a multipart body or of a query: the same names; what is no text in JSON is JSON there.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    try:
        sent = msgspec.convert({name: _form_value(name, text) for name, text in form.items()}, TurnBody)
    except msgspec.ValidationError as error:
        raise as_bad_request(error) from None
    return _ask(sent, files, user, settings, models)


def _form_value(name: str, text: str) -> Any:
    if name in ("specialists", "syntax") and not text.lstrip().startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    if name not in _FORM_JSON:
        return text
    try:
        found = msgspec.json.decode(text, type=_FORM_JSON[name])
    except msgspec.ValidationError as error:
        raise as_bad_request(error, name) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(f"{name} must be JSON: {describe_decode_error(error)}.", name) from None
    check_keys(text.encode(), name)
    return msgspec.to_builtins(found)


_FORM_JSON: Mapping[str, Any] = {
    "memory": bool,
    "barge_in": bool,
    "specialists": list[str],
    "syntax": list[str],
    "limits": LimitsBody | None,
    "attachments": list[AttachmentBody],
}


def _ask(
    sent: TurnBody, files: list[Attachment], user: str | None, settings: Settings, models: Set[str]
) -> TurnRequest:
    if sent.message is not None and sent.prompt is not None:
        raise BadRequest("Give either message or prompt, not both.", "prompt")
    message = sent.message if sent.message is not None else sent.prompt or ""
    if not message.strip():
        raise BadRequest("message is missing or empty.", "message")
    if len(message) > MESSAGE_LENGTH:
        raise BadRequest(f"message may be {MESSAGE_LENGTH:,} characters long.", "message", code="too_large", status=413)
    if len(sent.attachments) + len(files) > MAX_ATTACHMENTS:  # before any is decoded
        raise too_many_attachments()
    attachments = [*(_attachment(item, n) for n, item in enumerate(sent.attachments) if item.id is None), *files]
    numbered = tuple(replace(attachment, id=n) for n, attachment in enumerate(attachments, 1))
    ask = build_request(sent, user, settings, models)
    return replace(ask, message=message, attachments=numbered, taken_along=_taken_along(sent), asks_person=True)


def build_request(sent: TurnBody, user: str | None, settings: Settings, models: Set[str]) -> TurnRequest:
    """What was sent, checked against the settings; but for message and files, which other protocols send elsewhere.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    if len(sent.system) > MESSAGE_LENGTH:
        raise BadRequest(f"system may be {MESSAGE_LENGTH:,} characters long.", "system", code="too_large", status=413)
    for field in ("conversation_id", "request_id", "replace_from"):
        if (value := getattr(sent, field)) is not None and not ID.fullmatch(value):
            raise BadRequest(f"{field} must be 1 to 64 letters, digits, _ or -.", field)
    if sent.model is not None and sent.model not in models:
        raise BadRequest(f"model must be one of: {', '.join(sorted(models))}.", "model")
    zone = _time_zone(sent.time_zone, settings.time_zone)
    return TurnRequest(
        message="",
        user=user,
        limits=_limits(sent.limits, settings.limits),
        syntax=settings.syntax if sent.syntax is None else _syntax(sent.syntax),
        time_zone=zone,
        conversation_id=sent.conversation_id,
        model=sent.model,
        specialists=None if sent.specialists is None else frozenset(sent.specialists),
        system=sent.system,
        call_seconds=sent.limits.call_seconds if sent.limits else None,
        now=datetime.now(zoneinfo.ZoneInfo(zone)),
        source=_source(sent.source),
        memory=sent.memory,
        barge_in=sent.barge_in,
        replaces=sent.replace_from,
        request_id=sent.request_id,
    )


def _source(name: str) -> Source:
    known: dict[str, Source] = {str(source): source for source in get_args(Source)}
    if name not in known:
        raise BadRequest(f"source must be one of: {', '.join(known)}.", "source")
    return known[name]


def _syntax(names: Sequence[str]) -> tuple[SyntaxName, ...]:
    known = {str(name): name for name in get_args(SyntaxName)}
    for place, name in enumerate(names):
        if name not in known:
            raise BadRequest(f"syntax[{place}] must be one of: {', '.join(known)}.", f"syntax[{place}]")
    if not names:
        raise BadRequest("syntax must name one syntax at least.", "syntax")
    return tuple(dict.fromkeys(known[name] for name in names))  # each once: scanners are kept for each of these


def _taken_along(sent: TurnBody) -> tuple[TakenAlong, ...]:
    found: dict[int, TakenAlong] = {}
    for position, item in enumerate(sent.attachments):
        if item.id is None:
            continue
        field = f"attachments[{position}].id"
        if sent.replace_from is None:
            message = (
                f"{field}: a file goes along with a question that replaces its own; send replace_from, or the data."
            )
            raise BadRequest(message, field)
        if (item.name, item.type, item.data, item.text) != (None, "", None, None):
            raise BadRequest(f"{field}: send the id of a file alone, or the file with a name.", field)
        if item.id in found or not 1 <= item.id <= MAX_FILE_ID:
            raise BadRequest(f"{field} must be the id of a file of the question that is replaced, each once.", field)
        found[item.id] = TakenAlong(item.id, field)
    return tuple(found.values())


def _attachment(item: AttachmentBody, position: int) -> Attachment:
    field = f"attachments[{position}]"
    assert item.name is not None
    if (item.data is None) == (item.text is None):
        raise BadRequest("Give either data (base64) or text.", f"{field}.data")
    if item.text is not None:
        return make_attachment(
            item.name, item.type or "text/plain", item.text.encode(errors="replace"), f"{field}.text"
        )
    assert item.data is not None
    head, _, encoded = item.data.partition(",") if item.data.startswith("data:") else ("", "", item.data)
    try:
        data = base64.b64decode("".join(encoded.split()), validate=True)
    except ValueError:
        raise BadRequest("data is not valid base64.", f"{field}.data") from None
    return make_attachment(item.name, item.type or head[5:], data, f"{field}.data")


def _limits(sent: LimitsBody | None, most: Limits) -> Limits:
    """The server's limits, lowered where the request asks for it."""
    lowered: dict[str, Any] = {}
    for field in fields(Limits):
        value = getattr(sent, field.name) if sent is not None else None
        if value is None:
            continue
        ceiling = getattr(most, field.name)
        least = 0 if field.type in (int, "int") else 0.001
        if not least <= value <= ceiling:
            allowed = f"may only lower the server's, which is {ceiling:g}, and not below {least:g}"
            raise BadRequest(f"limits.{field.name} {allowed}.", f"limits.{field.name}")
        lowered[field.name] = value
    return replace(most, **lowered) if lowered else most


def _time_zone(sent: str | None, default: str) -> str:
    if sent is None:
        return default
    try:
        return zoneinfo.ZoneInfo(sent).key
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise BadRequest("time_zone must be an IANA name such as Europe/Berlin.", "time_zone") from None


_EVENT_ID = re.compile(r"(?P<turn>t[0-9a-f]{16})\.(?P<number>[0-9]{1,9})")


class SteerBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/turns/{id}/steer`."""

    message: str


class ApprovalBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/turns/{id}/approvals/{call_id}`."""

    approve: bool


def parse_steering(body: bytes) -> str:
    """The message in a body that steers.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    message = decode(body, SteerBody).message
    if not message.strip():
        raise BadRequest("message is empty.", "message")
    if len(message) > MESSAGE_LENGTH:
        raise BadRequest(f"message may be {MESSAGE_LENGTH:,} characters long.", "message", code="too_large", status=413)
    return message


def parse_approval(body: bytes) -> bool:
    """What a body decides.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    return decode(body, ApprovalBody).approve


def parse_event_id(event_id: str) -> tuple[str, int]:
    """Turn id and number of an event's id.

    Raises:
        BadRequest: when it is none.
    """
    found = _EVENT_ID.fullmatch(event_id)
    if found is None:
        message = "Last-Event-ID is the id of no event that is kept; ask again without it."
        raise BadRequest(message, "last-event-id", code="gone", status=410)
    return found["turn"], int(found["number"])
