"""Parses requests of Brain's own protocol: a JSON body, a form, or a query."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from brain.errors import BadRequest
from brain.messages import Attachment
from brain.protocols.common import (
    MAX_ATTACHMENTS,
    Client,
    ContextBody,
    Id,
    TurnOptions,
    as_bad_request,
    build_request,
    check_context,
    check_length,
    check_strictly,
    check_value_count,
    decode,
    decode_attachment,
    invalid,
    make_attachment,
    parse_syntax,
    too_many_attachments,
)
from brain.turn_request import TurnRequest
from brain.validation import quote_value

MAX_FILE_ID = 999_999_999
MAX_NAMES = 100
"""`name` and `id` keys in a body that has not been decoded yet."""

_EVENT_ID = re.compile(r"(?P<turn>t[0-9a-f]{16,24})\.(?P<number>[0-9]{1,9})")


class AttachmentBody(msgspec.Struct, forbid_unknown_fields=True):
    """A file: `data` in base64, or `text`, or the `id` of a file of the message that is replaced."""

    id: int | None = None
    name: str | None = None
    type: str | None = None
    data: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        """Stop decoding at the first file without a name or ID."""
        if self.id is None and self.name is None:
            raise ValueError("Object missing required field `name`")


class TurnBody(TurnOptions, forbid_unknown_fields=True):
    """The body of a request for a turn."""

    message: str | None = None
    prompt: str | None = None
    conversation_id: Id | None = None
    attachments: list[AttachmentBody] | None = None
    model: str | None = None
    system: str | None = None
    context: ContextBody | None = None
    syntax: list[str] | None = None
    barge_in: bool | None = None
    replace_from: Id | None = None
    request_id: Id | None = None


_JSON_FIELDS: Mapping[str, Any] = {
    field.name: field.type
    for field in msgspec.structs.fields(TurnBody)
    if field.name in ("attachments", "context", "limits", "specialists", "syntax")
}
"""The fields that a form contains as JSON, with their types."""


def parse(data: bytes, client: Client) -> TurnRequest:
    """Parse a JSON body."""
    if data.count(b'"name"') + data.count(b'"id"') > MAX_NAMES:  # each attachment has one
        raise too_many_attachments()
    check_value_count(data, "attachments")
    return _build_request(decode(data, TurnBody), [], client)


def parse_form(form: Mapping[str, str], files: Sequence[Attachment], client: Client) -> TurnRequest:
    """Parse the fields of a multipart body or of a query. Lists and objects are JSON."""
    values = {name: _decode_field(name, text) if name in _JSON_FIELDS else text for name, text in form.items()}
    try:
        body = msgspec.convert(values, TurnBody, strict=False)
    except msgspec.ValidationError as error:
        raise as_bad_request(error, TurnBody) from None
    return _build_request(body, files, client)


def _decode_field(name: str, text: str) -> Any:
    if name in ("specialists", "syntax") and not text.lstrip().startswith("[") and text.strip() != "null":
        return [item.strip() for item in text.split(",") if item.strip()]
    data = text.encode(errors="replace")
    value = decode(data, _JSON_FIELDS[name], name)
    check_strictly(data, name)
    return msgspec.to_builtins(value)


def _build_request(body: TurnBody, files: Sequence[Attachment], client: Client) -> TurnRequest:
    if body.message is not None and body.prompt is not None:
        raise BadRequest("Send either `message` or `prompt`, not both.", "prompt")
    message = _check_message(body.message if body.message is not None else body.prompt or "")
    sent = body.attachments or ()
    if len(sent) + len(files) > MAX_ATTACHMENTS:  # before any is decoded
        raise too_many_attachments()
    attachments: list[Attachment] = []
    reused_files: dict[int, str] = {}
    for n, item in enumerate(sent):
        place = f"attachments[{n}]"
        if item.id is not None:
            _check_reused(item, f"{place}.id", body.replace_from, reused_files)
            reused_files[item.id] = f"{place}.id"
            continue
        name = item.name or ""
        if item.data is not None and item.text is None:
            attachments.append(decode_attachment(name, item.type or "", item.data, f"{place}.data"))
        elif item.text is not None and item.data is None:
            text = item.text.encode(errors="replace")
            attachments.append(make_attachment(name, item.type or "text/plain", text, f"{place}.text"))
        else:
            raise BadRequest(f"`{place}` must have either `data` (base64) or `text`.", f"{place}.data")
    return build_request(
        body, client,
        message=message,
        attachments=tuple(replace(file, id=n) for n, file in enumerate([*attachments, *files], 1)),
        reused_files=reused_files,
        conversation_id=body.conversation_id,
        request_id=body.request_id,
        replaces=body.replace_from,
        model=body.model,
        system=check_length(body.system, "system"),
        context=check_context(body.context, "context"),
        syntax=None if body.syntax is None else parse_syntax(body.syntax),
        barge_in=bool(body.barge_in),
        asks_person=True,
    )  # fmt: skip


def _check_reused(item: AttachmentBody, field: str, replaced: str | None, earlier: Collection[int]) -> None:
    """Check the ID of a file of the message that is replaced."""
    assert item.id is not None
    if replaced is None:
        raise invalid(field, "is only valid together with `replace_from`; send the file's data instead")
    if item.name is not None or item.type or item.data is not None or item.text is not None:
        raise invalid(field, "must be the only field of its attachment; to send a new file, remove `id`")
    if item.id in earlier:
        raise invalid(field, "is the ID of an earlier attachment, too; send each file once")
    if not 1 <= item.id <= MAX_FILE_ID:
        raise invalid(field, "must be the ID of a file of the replaced message")


def _check_message(message: str) -> str:
    if not message.strip():
        raise invalid("message", "is missing or empty")
    return check_length(message, "message")


class SteerBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/turns/{id}/steer`."""

    message: str


class ApprovalBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/turns/{id}/approvals/{call_id}`."""

    approve: bool


def parse_steering(data: bytes) -> str:
    """Return the message from a body."""
    return _check_message(decode(data, SteerBody).message)


def parse_event_id(event_id: str) -> tuple[str, int]:
    """Return turn ID and number of an event.

    Raises:
        BadRequest: `gone`, if it is not an event ID.
    """
    match = _EVENT_ID.fullmatch(event_id)
    if match is None:
        message = f"`Last-Event-ID` is {quote_value(event_id)}, an unknown event ID; send the request without it."
        raise BadRequest(message, "last-event-id", code="gone", status=410)
    return match["turn"], int(match["number"])
