"""Wing: what clients of the Vercel AI SDK ask: a chat as its messages, and what a person said to calls that waited.

As in the SDK, fields that are not known are passed over: applications send what they like beside the messages.
"""

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec

from brain.ask import Ask, Attachment
from brain.errors import BadRequest
from brain.messages import Handed, Spoken
from brain.settings import Settings
from brain.wire import native
from brain.wire.attaching import ATTACHMENTS_MOST, attachment_of, too_many
from brain.wire.bodies import decoded, encoded, loose
from brain.wire.native import MESSAGE_LENGTH

SdkVersion = Literal[5, 6, 7]

DENIED = "A person did not allow this call."
"""What a model reads in place of the result of a call that was declined."""

_NULL = msgspec.Raw(b"null")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_APPROVAL_ID = re.compile(r"(?P<turn>\w{1,64})\.(?P<call>\w{1,64})", re.ASCII)
_NOT_SAID = ("reasoning", "step-start", "data-", "source-")
"""How the types of parts begin in which nobody said anything."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person said to a call that waits for them, as the client tells it."""

    turn_id: str
    call_id: str
    approve: bool


@dataclass(frozen=True, slots=True)
class Wanted:
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


class _Sent(msgspec.Struct, rename="camel"):
    pass


class SentApproval(_Sent):
    """What became of the question whether a call may run; `approved` once it was answered."""

    id: str
    approved: bool | None = None


class SentPart(_Sent):
    """One part of a message, of any type."""

    type: str
    text: str | None = None
    url: str | None = None
    media_type: str | None = None
    filename: str | None = None
    tool_name: str | None = None
    state: str | None = None
    preliminary: bool | None = None
    input: msgspec.Raw = _NULL
    output: msgspec.Raw = _NULL
    error_text: str | None = None
    approval: SentApproval | None = None

    @property
    def tool(self) -> str | None:
        """The name of the tool, in a part that tells of a call."""
        if self.type == "dynamic-tool":
            return self.tool_name
        return self.type.removeprefix("tool-") if self.type.startswith("tool-") else None


class SentMessage(_Sent):
    """One message of the chat."""

    role: Literal["system", "user", "assistant"]
    parts: list[SentPart]


class Sent(msgspec.Struct):
    """The body of `POST /ai-sdk/chat`: what `DefaultChatTransport` sends, and Brain's own fields from its `body`."""

    messages: list[SentMessage]
    id: str | None = None
    model: str | None = None
    specialists: list[str] | None = None
    limits: native.SentLimits | None = None
    system: str | None = None
    time_zone: str | None = None
    resumable: bool | None = None
    sdk_version: SdkVersion | None = None


def parse(
    body: bytes, user: str | None, settings: Settings, models: frozenset[str]
) -> tuple[Ask, list[Spoken], Wanted]:
    """Reads the body of `POST /ai-sdk/chat`.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    sent = decoded(body, Sent)
    if not sent.messages:
        raise BadRequest("messages is empty.", "messages")
    if sent.id is not None and not _ID.fullmatch(sent.id):
        raise BadRequest("id must be 1 to 64 letters, digits, _ or -.", "id")
    places = [f"messages[{n}]" for n in range(len(sent.messages))]
    spoken = [one for message, place in zip(sent.messages, places, strict=True) for one in _spoken(message, place)]
    return _ask(sent, spoken, user, settings, models), spoken, _wanted(sent, places[-1])


def _ask(sent: Sent, spoken: Sequence[Spoken], user: str | None, settings: Settings, models: frozenset[str]) -> Ask:
    own = native.Sent(
        "…",
        conversation_id=sent.id,
        model=sent.model,
        specialists=sent.specialists,
        limits=sent.limits,
        system=sent.system or "",
        time_zone=sent.time_zone,
    )
    newest = next((one.text for one in reversed(spoken) if one.role == "user"), "")
    return replace(native.ask_of(own, [], user, settings, models), message=newest, asks_person=True)


def _wanted(sent: Sent, place: str) -> Wanted:
    newest = sent.messages[-1]
    continues = newest.role == "assistant"
    return Wanted(
        sdk_version=sent.sdk_version or 5,
        resumable=bool(sent.resumable),
        continues=continues,
        decisions=tuple(_decisions(newest, place)) if continues else (),
    )


def _decisions(message: SentMessage, place: str) -> Iterator[Decision]:
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


def _spoken(message: SentMessage, place: str) -> Iterator[Spoken]:
    if message.role == "assistant":
        yield from _answer(message.parts, place)
    else:
        text = _bounded("\n".join(part.text or "" for part in message.parts if part.type == "text"), place)
        files = tuple(_files(message.parts, place)) if message.role == "user" else ()
        yield Spoken(message.role, text, files)


def _answer(parts: Sequence[SentPart], place: str) -> Iterator[Spoken]:
    """What was said and called, in order: text behind calls is a message of its own, behind their results."""
    text = ""
    told: list[tuple[Handed, str]] = []
    for n, part in enumerate(parts):
        if part.type == "text":
            if told:
                yield from _said(text, told)
                text, told = "", []
            text += _bounded(part.text or "", f"{place}.parts[{n}].text")
        elif (one := _told(part, f"{place}.parts[{n}]")) is not None:
            told.append(one)
    yield from _said(text, told)


def _said(text: str, told: Sequence[tuple[Handed, str]]) -> Iterator[Spoken]:
    if text or told:
        yield Spoken("assistant", text, calls=tuple(call for call, _ in told))
    for call, result in told:
        yield Spoken("tool", result, call_id=call.call_id)


def _told(part: SentPart, place: str) -> tuple[Handed, str] | None:
    """A call and what came of it; None where nothing has come of it, or the part tells of none."""
    if not part.tool or part.tool == "?":
        return None
    match part.state:
        case "output-available" if not part.preliminary:
            output = loose(part.output, MESSAGE_LENGTH, f"{place}.output")
            result = output if isinstance(output, str) else encoded(output).decode()
        case "output-error":
            result = part.error_text or ""
        case "output-denied":
            result = DENIED
        case _:
            return None
    params = loose(part.input, MESSAGE_LENGTH, f"{place}.input")
    return Handed(place, part.tool, params if isinstance(params, dict) else {}), result


def _files(parts: Sequence[SentPart], place: str) -> Iterator[Attachment]:
    found = 0
    for n, part in enumerate(parts):
        if part.type == "file":
            found += 1
            if found > ATTACHMENTS_MOST:
                raise too_many()
            yield _file(part, f"{place}.parts[{n}]")
        elif part.type != "text" and not part.type.startswith(_NOT_SAID):
            raise BadRequest(f"{place}.parts[{n}].type must be text or file.", f"{place}.parts[{n}].type")


def _file(part: SentPart, place: str) -> Attachment:
    head, comma, encoded_data = (part.url or "").partition(",")
    if not head.startswith("data:") or not comma:
        raise BadRequest(f"{place}.url: only data: URLs are taken, nothing is fetched.", f"{place}.url")
    try:
        data = (
            base64.b64decode("".join(encoded_data.split()), validate=True)
            if head.endswith(";base64")
            else unquote_to_bytes(encoded_data)
        )
    except ValueError:
        raise BadRequest(f"{place}.url is not valid base64.", f"{place}.url") from None
    return attachment_of(part.filename or "file", part.media_type or head[5:], data, f"{place}.url")


def _bounded(text: str, place: str) -> str:
    if len(text) > MESSAGE_LENGTH:
        raise BadRequest(f"{place} may be {MESSAGE_LENGTH:,} characters long.", place, code="too_large", status=413)
    return text
