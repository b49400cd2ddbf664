"""Parses requests from the Vercel AI SDK: for a turn, or for the rest of a turn after approvals.

As in the SDK, unknown fields are ignored.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from brain.messages import Attachment, Call
from brain.protocols.common import (
    ARGUMENTS_BYTES,
    MAX_PARTS,
    Client,
    ClientMessage,
    Id,
    TurnOptions,
    build_request,
    check_length,
    check_limit,
    check_value_count,
    collect_messages,
    decode,
    decode_any,
    decode_messages,
    decode_url,
    invalid,
    newest_question,
    parse_arguments,
    parse_parts,
)
from brain.protocols.encoding import encode
from brain.turn_request import TurnRequest
from brain.validation import quote_value

SdkVersion = Literal[5, 6, 7]

DENIED = "The user declined this call."
"""The result of a declined call, for the model."""

_NULL = msgspec.Raw(b"null")
_APPROVAL_ID = re.compile(r"(?P<turn>\w{1,64})\.(?P<call>\w{1,64})", re.ASCII)
_OTHER_PARTS = ("reasoning", "step-start", "data-", "source-")
"""Prefixes of part types that a model does not read."""


class ApprovalBody(msgspec.Struct):
    """The approval of a call; `approved` is missing until the user decides."""

    id: str
    approved: bool | None = None


class PartBody(msgspec.Struct, rename="camel"):
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
    approval: ApprovalBody | None = None

    @property
    def tool(self) -> str | None:
        """The name of the tool, if the part is a call."""
        if self.type == "dynamic-tool":
            return self.tool_name
        return self.type.removeprefix("tool-") if self.type.startswith("tool-") else None


class UIMessage(msgspec.Struct):
    """One message of the chat."""

    role: Literal["system", "user", "assistant"]
    parts: list[PartBody]


class ChatBody(TurnOptions, kw_only=True):
    """The body of `POST /ai-sdk/chat` from `DefaultChatTransport`, whose `body` adds Brain's own options."""

    messages: msgspec.Raw
    id: Id | None = None
    model: str | None = None
    system: str | None = None
    resumable: bool | None = None
    sdk_version: SdkVersion | None = None


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


def parse(data: bytes, client: Client) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Parse the body of `POST /ai-sdk/chat`."""
    check_value_count(data)
    body = decode(data, ChatBody)
    messages, newest, place = _parse_messages(body.messages)
    request = build_request(
        body, client,
        model=body.model,
        system=check_length(body.system, "system"),
        message=newest_question(messages),
        conversation_id=body.id,
        asks_person=True,
    )  # fmt: skip
    continues = newest.role == "assistant"
    decisions = tuple(_parse_decisions(newest, place)) if continues else ()
    return request, messages, RequestOptions(body.sdk_version or 5, bool(body.resumable), continues, decisions)


def _parse_messages(data: msgspec.Raw) -> tuple[list[ClientMessage], UIMessage, str]:
    """All messages in order, and the body and place of the newest one."""
    newest: tuple[UIMessage, str] | None = None

    def parse_all() -> Iterator[ClientMessage]:
        nonlocal newest
        for newest in decode_messages(data, UIMessage):
            yield from _parse_message(*newest)

    messages = collect_messages(parse_all())
    if newest is None:
        raise invalid("messages", "is empty")
    return messages, *newest


def _parse_message(body: UIMessage, place: str) -> Iterator[ClientMessage]:
    place = f"{place}.parts"
    if body.role == "assistant":
        yield from _parse_answer(body.parts, place)
        return
    text, files = parse_parts(body.parts, place, _parse_part)
    if files and body.role != "user":
        raise invalid(place, "has files, which only messages with the role user can have")
    yield ClientMessage(body.role, text, files)


def _parse_part(part: PartBody, place: str) -> str | Attachment | None:
    if part.type == "text":
        return part.text or ""
    if part.type == "file":
        return decode_url(part.filename or "file", part.media_type or "", part.url or "", f"{place}.url")
    if part.type.startswith(_OTHER_PARTS):
        return None
    raise invalid(f"{place}.type", f"is {quote_value(part.type)}; use text or file")


def _parse_answer(parts: Sequence[PartBody], place: str) -> Iterator[ClientMessage]:
    """An answer as messages: text after calls becomes a new message after their results. Files are the model's own."""
    check_limit(place, len(parts), MAX_PARTS, "entries")
    text = ""
    calls: list[tuple[Call, str]] = []
    for n, part in enumerate(parts):
        if part.type == "text":
            if calls:
                yield from _answer_messages(text, calls)
                text, calls = "", []
            text = check_length(text + (part.text or ""), f"{place}[{n}].text")
        elif (call := _parse_call(part, f"{place}[{n}]")) is not None:
            calls.append(call)
    yield from _answer_messages(text, calls)


def _answer_messages(text: str, calls: Sequence[tuple[Call, str]]) -> Iterator[ClientMessage]:
    if text or calls:
        yield ClientMessage("assistant", text, calls=tuple(call for call, _ in calls))
    for call, result in calls:
        yield ClientMessage("tool", result, call_id=call.id)


def _parse_call(part: PartBody, place: str) -> tuple[Call, str] | None:
    """A call and its result; None for another part, or for a call without a result."""
    if not part.tool or part.tool == "?":
        return None
    match part.state:
        case "output-available" if not part.preliminary:
            output = decode_any(part.output, ARGUMENTS_BYTES, f"{place}.output")
            result = output if isinstance(output, str) else encode(output).decode()
        case "output-error":
            result = part.error_text or ""
        case "output-denied":
            result = DENIED
        case _:
            return None
    return Call(part.tool, params=parse_arguments(part.input, f"{place}.input"), id=place, by="client"), result


def _parse_decisions(message: UIMessage, place: str) -> Iterator[Decision]:
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
