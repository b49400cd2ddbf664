"""Parses requests from AG-UI clients. Brain's own options are in `forwardedProps`."""

import hashlib
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass

from brain.messages import ClientMessage
from brain.protocols.ag_ui.history import parse_messages
from brain.protocols.ag_ui.schema import AnswerBody, PropsBody, RunBody, ToolBody
from brain.protocols.bodies import decode, decode_any, invalid
from brain.protocols.client_messages import check_count, check_length, check_value_count, newest_question
from brain.protocols.turn_options import ID, KnownNames, build_request
from brain.settings import Settings
from brain.turn_request import Tool, TurnRequest
from brain.validation import quote_value

ID_LENGTH = 256
MAX_TOOLS = 128
TOOL_BYTES = 65_536
"""Size limit of a tool's schema, and character limit of its description."""
PAYLOAD_BYTES = 65_536

_INTERRUPT_ID = re.compile(r"(?P<turn>\w{1,64})\.(?P<call>\w{1,64})\.(?P<after>[0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The run that the client requests.

    Attributes:
        conversation_id: the ID under which Brain stores the thread.
        resume: answers to interrupts, for `parse_resume`.
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


def parse(
    data: bytes, user: str | None, settings: Settings, known: KnownNames
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Parse the body of `POST /ag-ui/run`."""
    check_value_count(data)
    body = decode(data, RunBody)
    for name, value in (("threadId", body.thread_id), ("runId", body.run_id), ("parentRunId", body.parent_run_id)):
        if value is not None and not (0 < len(value) <= ID_LENGTH and value.isprintable()):
            raise invalid(name, f"is {quote_value(value)}; use 1 to {ID_LENGTH} printable characters")
    conversation_id = body.thread_id
    if not ID.fullmatch(conversation_id):
        conversation_id = f"thread-{hashlib.sha256(body.thread_id.encode()).hexdigest()[:40]}"
    messages = parse_messages(body.messages)
    if not messages and not body.resume:
        raise invalid("messages", "is empty")
    is_object = bytes(body.forwarded_props).lstrip().startswith(b"{")  # anything else has no options
    props = decode(body.forwarded_props, PropsBody, "forwardedProps") if is_object else PropsBody()
    check_count(body.tools, MAX_TOOLS, "tools")
    request = build_request(
        props, user, settings, known,
        place="forwardedProps.",
        model=props.model,
        system=props.system,
        message=newest_question(messages),
        conversation_id=conversation_id,
        tools=tuple(parse_tool(tool, f"tools[{n}]") for n, tool in enumerate(body.tools or ())),
        asks_person=True,
    )  # fmt: skip
    if context := "\n".join(f"{entry.description}: {entry.value}" for entry in body.context or ()):
        # It may differ in each run. Before the newest message, it leaves earlier ones in the model server's cache.
        at = max((n for n, message in enumerate(messages) if message.role == "user"), default=len(messages))
        messages.insert(at, ClientMessage("system", check_length(context, "context")))
    options = RequestOptions(body.thread_id, body.run_id, body.parent_run_id, conversation_id, body.resume or ())
    return request, messages, options


def parse_tool(body: ToolBody, place: str) -> Tool:
    """Return a client tool. Parameters that are not an object are ignored."""
    if not 0 < len(body.name) <= ID_LENGTH:
        raise invalid(f"{place}.name", f"has {len(body.name)} characters; use 1 to {ID_LENGTH}")
    description = check_length(body.description, f"{place}.description", TOOL_BYTES)
    raw = bytes(body.parameters)
    parameters = decode_any(body.parameters, TOOL_BYTES, f"{place}.parameters") if raw else None
    return Tool(body.name, description, parameters if isinstance(parameters, dict) else {})


def parse_resume(resume: Sequence[AnswerBody]) -> list[InterruptAnswer]:
    """Return the answers to interrupts."""
    answers = [_parse_answer(body, f"resume[{n}].payload") for n, body in enumerate(resume)]
    if len({answer.interrupt_id for answer in answers}) < len(answers):
        raise invalid("resume", "answers an interrupt more than once; send one entry per interrupt")
    return answers


def _parse_answer(body: AnswerBody, place: str) -> InterruptAnswer:
    approve: bool | None = None
    if body.status != "cancelled":
        payload = decode_any(body.payload, PAYLOAD_BYTES, place) if bytes(body.payload) else None
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
    with_calls = [n for n, message in enumerate(messages) if any(call.call_id in call_ids for call in message.calls)]
    later = messages[with_calls[-1] + 1 :] if with_calls else ()
    return [message.text for message in later if message.role == "user" and message.text.strip()]
