"""Wing: what is asked of a turn that runs: to put something in, to let a call run, to go on behind an event."""

import re

import msgspec

from brain.errors import BadRequest
from brain.wire.bodies import decoded
from brain.wire.native.request import MESSAGE_LENGTH

_EVENT_ID = re.compile(r"(?P<turn>t[0-9a-f]{16})\.(?P<number>[0-9]{1,9})")


class Steering(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/turns/{id}/steer`."""

    message: str


class Approval(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/turns/{id}/approvals/{call_id}`."""

    approve: bool


def steering(body: bytes) -> str:
    """The message in a body that steers.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    message = decoded(body, Steering).message
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
    return decoded(body, Approval).approve


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
