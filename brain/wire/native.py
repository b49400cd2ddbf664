"""Wing: Brain's own protocol. A JSON body in, named server-sent events out (contract, section 4)."""

import base64
import json
import re
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, TypeVar, get_args

import msgspec

from brain.ask import Ask, Attachment, Limits, SyntaxName, sniff
from brain.errors import BadRequest
from brain.events import (
    ApprovalRequired,
    Done,
    Error,
    Event,
    Notice,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    Thinking,
    Token,
    ToolCall,
    TurnStart,
    Usage,
)
from brain.settings import Settings
from brain.unicode import well_formed

BODY_BYTES = 20 * 1024 * 1024
ATTACHMENT_BYTES = 16 * 1024 * 1024
ATTACHMENTS_MOST = 10
MESSAGE_LENGTH = 200_000
HEARTBEAT = b": heartbeat\n\n"

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FIELD = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_EVENT_ID = re.compile(r"(?P<turn>t[0-9a-f]{16})\.(?P<number>[0-9]{1,9})")
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)

T = TypeVar("T")

EVENT_NAMES: Mapping[type[Event], str] = {
    TurnStart: "turn_start",
    Token: "token",
    Thinking: "thinking",
    SpecialistStart: "specialist_start",
    SpecialistProgress: "specialist_progress",
    SpecialistResult: "specialist_result",
    SpecialistError: "specialist_error",
    ApprovalRequired: "approval_required",
    ToolCall: "tool_call",
    Notice: "notice",
    Usage: "usage",
    Error: "error",
    Done: "done",
}
_LEFT_OUT_WHEN_NONE = frozenset({"params", "fraction", "reused_tokens", "url", "status"})


class SentAttachment(msgspec.Struct, forbid_unknown_fields=True):
    """A file in a JSON body: `data` in base64, or `text`."""

    name: str
    type: str = ""
    data: str | None = None
    text: str | None = None


class SentLimits(msgspec.Struct, forbid_unknown_fields=True):
    """Limits of a request; they may only lower the server's."""

    calls: int | None = None
    calls_per_specialist: int | None = None
    turn_seconds: float | None = None
    call_seconds: float | None = None


class Sent(msgspec.Struct, forbid_unknown_fields=True):
    """What a turn is asked with."""

    message: str | None = None
    prompt: str | None = None
    conversation_id: str | None = None
    attachments: list[SentAttachment] = []
    model: str | None = None
    specialists: list[str] | None = None
    limits: SentLimits | None = None
    system: str = ""
    syntax: list[SyntaxName] | None = None
    time_zone: str | None = None
    replace_from: str | None = None
    request_id: str | None = None


class Steering(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/turns/{id}/steer`."""

    message: str


class Approval(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/turns/{id}/approvals/{call_id}`."""

    approve: bool


def parse(body: bytes, user: str | None, settings: Settings, models: frozenset[str]) -> Ask:
    """Reads a JSON body.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    sent = _decoded(body, Sent)
    return ask_of(sent, [_attachment(item, n) for n, item in enumerate(sent.attachments)], user, settings, models)


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _bad(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"The body is not valid JSON: {_problem(error)}.") from None


def parse_form(
    form: Mapping[str, str], files: list[Attachment], user: str | None, settings: Settings, models: frozenset[str]
) -> Ask:
    """Reads the fields of a multipart body or of a query: the same names; what is no text in JSON is JSON there.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    try:
        sent = msgspec.convert({name: _form_value(name, text) for name, text in form.items()}, Sent)
    except msgspec.ValidationError as error:
        raise _bad(error) from None
    attachments = [_attachment(item, n) for n, item in enumerate(sent.attachments)]
    return ask_of(sent, attachments + files, user, settings, models)


def _form_value(name: str, text: str) -> Any:
    if name in ("specialists", "syntax") and not text.lstrip().startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    if name not in _FORM_JSON:
        return text
    try:
        return msgspec.to_builtins(msgspec.json.decode(text, type=_FORM_JSON[name]))
    except msgspec.ValidationError as error:
        raise _bad(error, name) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(f"{name} must be JSON: {_problem(error)}.", name) from None


_FORM_JSON: Mapping[str, Any] = {
    "specialists": list[str],
    "syntax": list[SyntaxName],
    "limits": SentLimits | None,
    "attachments": list[SentAttachment],
}


def ask_of(
    sent: Sent, attachments: list[Attachment], user: str | None, settings: Settings, models: frozenset[str]
) -> Ask:
    """What was sent, checked against the settings.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    if sent.message is not None and sent.prompt is not None:
        raise BadRequest("Give either message or prompt, not both.", "prompt")
    message = sent.message if sent.message is not None else sent.prompt
    if not (message or "").strip():
        raise BadRequest("message is missing or empty.", "message")
    assert message is not None
    if len(message) > MESSAGE_LENGTH:
        raise BadRequest(f"message may be {MESSAGE_LENGTH:,} characters long.", "message", code="too_large", status=413)
    if len(sent.system) > MESSAGE_LENGTH:
        raise BadRequest(f"system may be {MESSAGE_LENGTH:,} characters long.", "system", code="too_large", status=413)
    if len(attachments) > ATTACHMENTS_MOST:
        raise too_many()
    for field in ("conversation_id", "request_id", "replace_from"):
        if (value := getattr(sent, field)) is not None and not _ID.fullmatch(value):
            raise BadRequest(f"{field} must be 1 to 64 letters, digits, _ or -.", field)
    if sent.model is not None and sent.model not in models:
        raise BadRequest(f"model must be one of: {', '.join(sorted(models))}.", "model")
    if sent.syntax is not None and not sent.syntax:
        raise BadRequest("syntax must name one syntax at least.", "syntax")
    zone = _time_zone(sent.time_zone, settings.time_zone)
    return Ask(
        message=message,
        user=user,
        limits=_limits(sent.limits, settings.limits),
        syntax=tuple(sent.syntax) if sent.syntax else settings.syntax,
        time_zone=zone,
        conversation_id=sent.conversation_id,
        attachments=tuple(replace(attachment, id=n) for n, attachment in enumerate(attachments, 1)),
        model=sent.model,
        specialists=None if sent.specialists is None else frozenset(sent.specialists),
        system=sent.system,
        call_seconds=sent.limits.call_seconds if sent.limits else None,
        now=datetime.now(zoneinfo.ZoneInfo(zone)),
        replaces=sent.replace_from,
        request_id=sent.request_id,
    )


def steering(body: bytes) -> str:
    """The message in a body that steers.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    message = _decoded(body, Steering).message
    if not message.strip():
        raise BadRequest("message is empty.", "message")
    if len(message) > MESSAGE_LENGTH:
        raise BadRequest(f"message may be {MESSAGE_LENGTH:,} characters long.", "message", code="too_large", status=413)
    return message


def approval(body: bytes) -> bool:
    """What a body decides.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    return _decoded(body, Approval).approve


def event_number(event_id: str) -> tuple[str, int]:
    """Turn id and number of an event's id.

    Raises:
        BadRequest: when it is none.
    """
    found = _EVENT_ID.fullmatch(event_id)
    if found is None:
        message = "Last-Event-ID is the id of no event that is kept; ask again without it."
        raise BadRequest(message, "last-event-id", code="gone", status=410)
    return found["turn"], int(found["number"])


def attachment_of(name: str, claimed: str, data: bytes, field: str) -> Attachment:
    """A file as an attachment; its name loses any folder, its type follows its content.

    Raises:
        BadRequest: when it is empty or too large.
    """
    if not data:
        raise BadRequest(f"{field} is empty.", field)
    if len(data) > ATTACHMENT_BYTES:
        raise BadRequest(f"{field} is larger than 16 MiB.", field, code="too_large", status=413)
    shown = "".join(character if character.isprintable() else " " for character in re.split(r"[/\\]", name)[-1])
    media_type = claimed.partition(";")[0].strip().lower()
    claimed = media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream"
    return Attachment(0, " ".join(shown.split())[:200] or "file", sniff(data, claimed), data)


def too_many() -> BadRequest:
    """What is said of a message with too many files."""
    return BadRequest(f"At most {ATTACHMENTS_MOST} attachments a message.", "attachments", code="too_large", status=413)


class Encoder:
    """Writes the events of one turn: ids count from 1 without gaps, lines end in LF.

    Args:
        after: the number of the event behind which a reader goes on.
    """

    content_type = b"text/event-stream; charset=utf-8"
    headers: Sequence[tuple[bytes, bytes]] = ()
    heartbeat = HEARTBEAT
    closed = False

    def __init__(self, turn_id: str, after: int = 0) -> None:
        self._number = after
        self._after = after
        self._token_head = b"event: token\nid: " + turn_id.encode() + b"."
        self._id = turn_id.encode() + b"."

    @property
    def taken(self) -> int:
        """How many events were written."""
        return self._number - self._after

    def encode(self, events: Sequence[Event]) -> bytes:
        """What came together as the bytes of its frames."""
        return self._frame(events[0]) if len(events) == 1 else b"".join(map(self._frame, events))

    def _frame(self, event: Event) -> bytes:
        self._number += 1
        if isinstance(event, Token) and self._number > 1:
            return b'%b%d\ndata: {"text":%b}\n\n' % (self._token_head, self._number, _json(event.text))
        retry = b"retry: 2000\n" if self._number == 1 else b""
        name = EVENT_NAMES[type(event)].encode()
        return b"%bevent: %b\nid: %b%d\ndata: %b\n\n" % (retry, name, self._id, self._number, _json(plain(event)))


def plain(event: Event) -> dict[str, Any]:
    """The data of an event as JSON values; what is not known is left out."""
    found = msgspec.to_builtins(event)
    assert isinstance(found, dict)
    return _without_none(found)


def _without_none(found: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in found.items() if value is not None or key not in _LEFT_OUT_WHEN_NONE}
    if "citations" in kept:
        kept["citations"] = [_without_none(citation) for citation in kept["citations"]]
    return kept


def _json(value: Any) -> bytes:
    """JSON on one line. What no UTF-8 can hold, halves of characters that were escaped, becomes U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return well_formed(text).encode()


_encode = msgspec.json.Encoder().encode


def _attachment(item: SentAttachment, position: int) -> Attachment:
    field = f"attachments[{position}]"
    if (item.data is None) == (item.text is None):
        raise BadRequest("Give either data (base64) or text.", f"{field}.data")
    if item.text is not None:
        return attachment_of(item.name, item.type or "text/plain", item.text.encode(errors="replace"), f"{field}.text")
    assert item.data is not None
    head, _, encoded = item.data.partition(",") if item.data.startswith("data:") else ("", "", item.data)
    try:
        data = base64.b64decode("".join(encoded.split()), validate=True)
    except ValueError:
        raise BadRequest("data is not valid base64.", f"{field}.data") from None
    return attachment_of(item.name, item.type or head[5:], data, f"{field}.data")


def _limits(sent: SentLimits | None, most: Limits) -> Limits:
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


def _bad(error: msgspec.ValidationError, within: str = "") -> BadRequest:
    """The same error in a sentence that names the field."""
    text = str(error)
    found = _FIELD.search(text)
    path = found["path"] if found else ""
    sentence = text[: found.start()] if found else text
    if unknown := re.search(r"unknown field `([^`]*)`", sentence):
        path = f"{path}.{unknown[1]}"
        sentence = "This field does not exist"
    elif missing := re.search(r"missing required field `([^`]*)`", sentence):
        path = f"{path}.{missing[1]}"
        sentence = "This field is missing"
    elif sentence.startswith("Expected `array"):
        sentence = "This must be a list"
    elif sentence.startswith("Invalid enum value"):
        sentence += f"; allowed: {', '.join(get_args(SyntaxName))}"
    path = f"{within}.{path}".replace("..", ".").replace("[...]", "[]").replace(".[", "[").strip(".")
    return BadRequest(f"{path}: {sentence}." if path else f"{sentence}.", path or None)


def _problem(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "truncated" in str(error):
        return "it ends too early, or in the middle of a character"
    return str(error).removeprefix("JSON is malformed: ")
