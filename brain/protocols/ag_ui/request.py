"""Parses requests from AG-UI clients. Brain's own options are in `forwardedProps`.

As the protocol requires, unknown fields are ignored, and optional fields can be null.
"""

import hashlib
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from brain.messages import Attachment
from brain.protocols.common import (
    ABSENT,
    SCHEMA_BYTES,
    CallBody,
    Client,
    ClientMessage,
    Content,
    FunctionBody,
    MessageBody,
    TurnOptions,
    build_request,
    check_length,
    check_value_count,
    decode,
    decode_any,
    decode_attachment,
    invalid,
    is_present,
    newest_question,
    parse_messages,
    parse_parts,
    parse_tools,
)
from brain.text import ID
from brain.turn_request import TurnRequest
from brain.validation import quote_value

ID_LENGTH = 256

_INTERRUPT_ID = re.compile(r"(?P<turn>\w{1,64})\.(?P<call>\w{1,64})\.(?P<after>[0-9]{1,9})", re.ASCII)


class _Body(msgspec.Struct, rename="camel"):
    """A body with camel-case field names."""


class SourceBody(_Body):
    """A file: `value` is base64, a URL or a handle."""

    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None


class PartBody(_Body):
    """One part of a message. `binary` is any file, from clients before version 1.0 of the protocol."""

    type: Literal["text", "image", "audio", "video", "document", "binary"]
    text: str | None = None
    source: SourceBody | None = None
    metadata: dict[str, Any] | None = None
    mime_type: str | None = None
    data: str | None = None
    filename: str | None = None


class RunMessage(MessageBody, rename="camel"):
    """One message. Only an activity, which no model reads, has an object as content."""

    tool_calls: list[CallBody] | None = None
    tool_call_id: str | None = None
    content: str | list[PartBody] | dict[str, Any] | None = None
    error: str | None = None


class ContextBody(_Body):
    """Information from the application."""

    description: str
    value: str


class AnswerBody(_Body):
    """A user's answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: msgspec.Raw = ABSENT


class PropsBody(TurnOptions):
    """Brain's own options. Other properties are ignored."""

    model: str | None = None
    system: str | None = None


class RunBody(_Body):
    """The body of `POST /ag-ui/run`, a `RunAgentInput`."""

    thread_id: str
    run_id: str
    messages: msgspec.Raw
    parent_run_id: str | None = None
    tools: list[FunctionBody] | None = None
    context: list[ContextBody] | None = None
    forwarded_props: msgspec.Raw = ABSENT
    resume: list[AnswerBody] | None = None


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The run that the client requests.

    Attributes:
        conversation_id: the ID under which Brain stores the thread.
    """

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    conversation_id: str = ""
    resume: Sequence[AnswerBody] = ()


@dataclass(frozen=True, slots=True)
class InterruptAnswer:
    """A user's answer to an interrupt, which represents a call that needs approval.

    Attributes:
        turn_id: empty if the interrupt is not from Brain.
        after: the number of the last event of the interrupted run.
        approve: whether the call may run; None if the user did not decide.
    """

    interrupt_id: str
    turn_id: str
    call_id: str
    after: int
    approve: bool | None


def parse(data: bytes, client: Client) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Parse the body of `POST /ag-ui/run`."""
    check_value_count(data)
    body = decode(data, RunBody)
    for name, value in (("threadId", body.thread_id), ("runId", body.run_id), ("parentRunId", body.parent_run_id)):
        if value is not None and not (0 < len(value) <= ID_LENGTH and value.isprintable()):
            raise invalid(name, f"is {quote_value(value)}; use 1 to {ID_LENGTH} printable characters")
    conversation_id = body.thread_id
    if not ID.fullmatch(conversation_id):
        conversation_id = f"thread-{hashlib.sha256(body.thread_id.encode()).hexdigest()[:40]}"
    messages = parse_messages(body.messages, RunMessage, _parse_content)
    if not messages and not body.resume:
        raise invalid("messages", "is empty")
    is_object = bytes(body.forwarded_props).lstrip().startswith(b"{")  # anything else has no options
    props = decode(body.forwarded_props, PropsBody, "forwardedProps") if is_object else PropsBody()
    request = build_request(
        props, client,
        place="forwardedProps.",
        model=props.model,
        system=check_length(props.system, "forwardedProps.system"),
        message=newest_question(messages),
        conversation_id=conversation_id,
        tools=parse_tools(body.tools),
        asks_person=True,
    )  # fmt: skip
    if context := "\n".join(f"{entry.description}: {entry.value}" for entry in body.context or ()):
        # It may differ in each run. Before the newest message, it leaves earlier ones in the model server's cache.
        at = max((n for n, message in enumerate(messages) if message.role == "user"), default=len(messages))
        messages.insert(at, ClientMessage("system", check_length(context, "context")))
    options = RequestOptions(body.thread_id, body.run_id, body.parent_run_id, conversation_id, body.resume or ())
    return request, messages, options


def _parse_content(body: RunMessage, place: str) -> Content:
    content = body.content
    files: tuple[Attachment, ...] = ()
    if isinstance(content, dict):
        raise invalid(f"{place}.content", "must be a string or a list of parts")
    if isinstance(content, list):
        text, files = parse_parts(content, f"{place}.content", _parse_part)
    else:
        text = check_length(content, f"{place}.content")
    return text or check_length(body.error, f"{place}.error"), files


def _parse_part(part: PartBody, place: str) -> str | Attachment:
    if part.type == "text":
        if part.text is None:
            raise invalid(f"{place}.text", "is missing")
        return part.text
    name, media_type, data, field = part.filename or "file", part.mime_type or "", part.data, f"{place}.data"
    if part.type != "binary":
        place = f"{place}.source"
        if part.source is None:
            raise invalid(place, "is missing")
        filename = (part.metadata or {}).get("filename")
        name = filename if isinstance(filename, str) else part.type
        is_data = part.source.type == "data" or part.source.value.startswith("data:")
        data, media_type, field = part.source.value if is_data else None, part.source.mime_type or "", f"{place}.value"
    if data is None:
        raise invalid(place, "has no data, and Brain fetches no files; send the content in base64")
    return decode_attachment(name, media_type, data, field)


def parse_resume(resume: Sequence[AnswerBody]) -> list[InterruptAnswer]:
    """Return the answers to interrupts."""
    answers = [_parse_answer(body, f"resume[{n}].payload") for n, body in enumerate(resume)]
    if len({answer.interrupt_id for answer in answers}) < len(answers):
        raise invalid("resume", "answers an interrupt more than once; send one entry per interrupt")
    return answers


def _parse_answer(body: AnswerBody, place: str) -> InterruptAnswer:
    approve: bool | None = None
    if body.status != "cancelled":
        payload = decode_any(body.payload, SCHEMA_BYTES, place) if is_present(body.payload) else None
        if isinstance(payload, dict):
            payload = payload.get("approved", payload.get("approve"))
        if not isinstance(payload, bool):
            raise invalid(place, 'must be {"approved": true} or {"approved": false}')
        approve = payload
    match = _INTERRUPT_ID.fullmatch(body.interrupt_id)
    if match is None:
        return InterruptAnswer(body.interrupt_id, "", "", 0, approve)
    return InterruptAnswer(body.interrupt_id, match["turn"], match["call"], int(match["after"]), approve)


def messages_since(messages: Sequence[ClientMessage], call_ids: Set[str]) -> list[str]:
    """Return the user's texts after the last message with one of these calls."""
    with_calls = [n for n, message in enumerate(messages) if any(call.id in call_ids for call in message.calls)]
    later = messages[with_calls[-1] + 1 :] if with_calls else ()
    return [message.text for message in later if message.role == "user" and message.text.strip()]
