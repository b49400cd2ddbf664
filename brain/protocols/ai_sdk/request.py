"""What clients of the Vercel AI SDK ask: a turn, or the rest of one that waited for a person."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols import native
from brain.protocols.ai_sdk.history import parse_messages
from brain.protocols.ai_sdk.schema import ChatBody, MessageBody, SdkVersion
from brain.protocols.bodies import check_value_count, decode
from brain.settings import Settings
from brain.turn_request import TurnRequest

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_APPROVAL_ID = re.compile(r"(?P<turn>\w{1,64})\.(?P<call>\w{1,64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person said to a call that waits for them, as the client tells it."""

    turn_id: str
    call_id: str
    approve: bool


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How the answer is wanted.

    Attributes:
        sdk_version: the client's; newer ones refuse nothing that older ones were sent.
        resumable: whether the turn goes on when its reader leaves.
        continues: whether the answer goes on with the newest message, which is the assistant's own.
        decisions: those that the newest message brings; then no turn is asked for but the one that waits for them.
    """

    sdk_version: SdkVersion = 5
    resumable: bool = False
    continues: bool = False
    decisions: tuple[Decision, ...] = ()


def parse(
    body: bytes, user: str | None, settings: Settings, models: frozenset[str]
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Reads the body of `POST /ai-sdk/chat`.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    check_value_count(body)
    sent = decode(body, ChatBody)
    if sent.id is not None and not _ID.fullmatch(sent.id):
        raise BadRequest("id must be 1 to 64 letters, digits, _ or -.", "id")
    spoken, newest, place = parse_messages(sent.messages)
    return _ask(sent, spoken, user, settings, models), spoken, _wanted(sent, newest, place)


def _ask(
    sent: ChatBody, spoken: Sequence[ClientMessage], user: str | None, settings: Settings, models: frozenset[str]
) -> TurnRequest:
    own = native.TurnBody(
        conversation_id=sent.id,
        model=sent.model,
        specialists=sent.specialists,
        limits=sent.limits,
        system=sent.system or "",
        time_zone=sent.time_zone,
        source="chat" if sent.source is None else sent.source,
        memory=sent.memory is not False,
    )
    newest = next((one.text for one in reversed(spoken) if one.role == "user"), "")
    return replace(native.build_request(own, user, settings, models), message=newest, asks_person=True)


def _wanted(sent: ChatBody, newest: MessageBody, place: str) -> RequestOptions:
    continues = newest.role == "assistant"
    return RequestOptions(
        sdk_version=sent.sdk_version or 5,
        resumable=bool(sent.resumable),
        continues=continues,
        decisions=tuple(_decisions(newest, place)) if continues else (),
    )


def _decisions(message: MessageBody, place: str) -> Iterator[Decision]:
    for n, part in enumerate(message.parts):
        if part.state != "approval-responded" or part.approval is None:
            continue
        field = f"{place}.parts[{n}].approval"
        if part.approval.approved is None:
            raise BadRequest(f"{field}.approved is missing.", f"{field}.approved")
        found = _APPROVAL_ID.fullmatch(part.approval.id)
        if found is None:
            raise BadRequest(f"{field}.id is none that was given here.", f"{field}.id")
        yield Decision(found["turn"], found["call"], part.approval.approved)
