"""Parses requests from the Vercel AI SDK: for a turn, or for the rest of a turn after approvals."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from brain.messages import ClientMessage
from brain.protocols.ai_sdk.history import parse_messages
from brain.protocols.ai_sdk.schema import ChatBody, MessageBody, SdkVersion
from brain.protocols.bodies import decode, invalid
from brain.protocols.client_messages import check_value_count, newest_question
from brain.protocols.turn_options import KnownNames, build_request, check_id
from brain.settings import Settings
from brain.turn_request import TurnRequest
from brain.validation import quote_value

_APPROVAL_ID = re.compile(r"(?P<turn>\w{1,64})\.(?P<call>\w{1,64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Decision:
    """A user's decision on a call that waits for approval."""

    turn_id: str
    call_id: str
    approve: bool


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options for the response.

    Attributes:
        resumable: whether the turn continues after its client disconnects.
        continues: whether the answer continues the newest message, which is from the assistant.
        decisions: decisions in the newest message. A request with decisions asks for the rest of the waiting turn.
    """

    sdk_version: SdkVersion = 5
    resumable: bool = False
    continues: bool = False
    decisions: tuple[Decision, ...] = ()


def parse(
    data: bytes, user: str | None, settings: Settings, known: KnownNames
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Parse the body of `POST /ai-sdk/chat`."""
    check_value_count(data)
    body = decode(data, ChatBody)
    check_id(body.id, "id")
    messages, newest, place = parse_messages(body.messages)
    request = build_request(
        body, user, settings, known,
        model=body.model,
        system=body.system,
        message=newest_question(messages),
        conversation_id=body.id,
        asks_person=True,
    )  # fmt: skip
    continues = newest.role == "assistant"
    decisions = tuple(_parse_decisions(newest, place)) if continues else ()
    return request, messages, RequestOptions(body.sdk_version or 5, bool(body.resumable), continues, decisions)


def _parse_decisions(message: MessageBody, place: str) -> Iterator[Decision]:
    for n, part in enumerate(message.parts):
        if part.state != "approval-responded" or part.approval is None:
            continue
        field = f"{place}.parts[{n}].approval"
        if part.approval.approved is None:
            raise invalid(f"{field}.approved", "is missing")
        match = _APPROVAL_ID.fullmatch(part.approval.id)
        if match is None:
            raise invalid(
                f"{field}.id", f"is {quote_value(part.approval.id)}, which is not an approval ID of this server"
            )
        yield Decision(match["turn"], match["call"], part.approval.approved)
