"""What AG-UI clients ask of `POST /ag-ui/run`, in Brain's words. Its own options stand in `forwardedProps`."""

import hashlib
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import msgspec

from brain.errors import BadRequest
from brain.messages import ClientMessage
from brain.protocols import native
from brain.protocols.ag_ui.history import check_length, parse_messages
from brain.protocols.ag_ui.schema import AnswerBody, ContextBody, PropsBody, RunBody, ToolBody
from brain.protocols.bodies import check_value_count, decode, decode_any
from brain.settings import Settings
from brain.turn_request import Tool, TurnRequest

ID_LENGTH = 256
TOOLS_MOST = 128
TOOL_BYTES = 65_536
"""Of a tool's description, and of its schema."""
PAYLOAD_BYTES = 65_536

_CONVERSATION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INTERRUPT_ID = re.compile(r"(?P<turn>\w{1,64})\.(?P<call>\w{1,64})\.(?P<after>[0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Which run of which thread is wanted.

    Attributes:
        conversation_id: under which the thread is filed.
        resume: the answers to interrupts, still to be read.
    """

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    conversation_id: str = ""
    resume: Sequence[AnswerBody] = ()


@dataclass(frozen=True, slots=True)
class InterruptAnswer:
    """What a person said to an interrupt, which stands for a call of a turn.

    Attributes:
        turn_id: empty when the interrupt is none of Brain's.
        after: the event of the turn with which the run ended that asked.
        approve: whether the call may run; None when nobody said.
    """

    interrupt_id: str
    turn_id: str
    call_id: str
    after: int
    approve: bool | None


def parse(
    body: bytes, user: str | None, settings: Settings, models: Set[str]
) -> tuple[TurnRequest, list[ClientMessage], RequestOptions]:
    """Reads the body of `POST /ag-ui/run`.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    check_value_count(body)
    sent = decode(body, RunBody)
    wanted = _wanted(sent)
    spoken = parse_messages(sent.messages)
    if not spoken and not wanted.resume:
        raise BadRequest("messages is empty: there is nothing to answer.", "messages")
    ask = replace(
        _of_brain(_props(sent.forwarded_props), user, settings, models),
        message=next((one.text for one in reversed(spoken) if one.role == "user"), ""),
        conversation_id=wanted.conversation_id,
        tools=_tools(sent.tools or []),
        asks_person=True,
    )
    return ask, _with_context(spoken, sent.context or []), wanted


def parse_resume(resume: Sequence[AnswerBody]) -> list[InterruptAnswer]:
    """The answers to interrupts.

    Raises:
        BadRequest: when one is answered twice, or in other words than it asked for.
    """
    found = [_answer(one, f"resume[{n}]") for n, one in enumerate(resume)]
    if len({one.interrupt_id for one in found}) < len(found):
        raise BadRequest("resume answers an interrupt twice; send one entry for each.", "resume")
    return found


def messages_since(spoken: Sequence[ClientMessage], call_ids: Set[str]) -> list[str]:
    """What the user said behind the messages that hold these calls."""
    at = max((n for n, one in enumerate(spoken) if any(call.call_id in call_ids for call in one.calls)), default=None)
    return [] if at is None else [one.text for one in spoken[at + 1 :] if one.role == "user" and one.text.strip()]


def _wanted(sent: RunBody) -> RequestOptions:
    for name, value in (("threadId", sent.thread_id), ("runId", sent.run_id), ("parentRunId", sent.parent_run_id)):
        if value is not None and not (0 < len(value) <= ID_LENGTH and value.isprintable()):
            raise BadRequest(f"{name} must be 1 to {ID_LENGTH} printable characters.", name)
    return RequestOptions(sent.thread_id, sent.run_id, sent.parent_run_id, _filed(sent.thread_id), sent.resume or ())


def _filed(thread_id: str) -> str:
    """The id of the conversation: the thread's own, where it is short and plain, else one that stands for it."""
    if _CONVERSATION_ID.fullmatch(thread_id):
        return thread_id
    return f"thread-{hashlib.sha256(thread_id.encode()).hexdigest()[:40]}"


def _props(sent: msgspec.Raw) -> PropsBody:
    """Brain's options; what is no object has none."""
    if not bytes(memoryview(sent)).lstrip().startswith(b"{"):
        return PropsBody()
    return decode(sent, PropsBody, "forwardedProps")


def _of_brain(sent: PropsBody, user: str | None, settings: Settings, models: Set[str]) -> TurnRequest:
    """What the native protocol makes of its own options."""
    own = native.TurnBody(
        model=sent.model,
        specialists=sent.specialists,
        limits=sent.limits,
        system=sent.system or "",
        time_zone=sent.time_zone,
        source="chat" if sent.source is None else sent.source,
        memory=sent.memory is not False,
    )
    try:
        return native.build_request(own, user, settings, models)
    except BadRequest as error:
        message, field = f"forwardedProps.{error.message}", f"forwardedProps.{error.field}"
        raise BadRequest(message, field, code=error.code, status=error.status) from None


def _tools(sent: Sequence[ToolBody]) -> tuple[Tool, ...]:
    if len(sent) > TOOLS_MOST:
        raise BadRequest(f"At most {TOOLS_MOST} tools.", "tools", code="too_large", status=413)
    return tuple(_tool(tool, f"tools[{n}]") for n, tool in enumerate(sent))


def _tool(sent: ToolBody, place: str) -> Tool:
    if not 0 < len(sent.name) <= ID_LENGTH:
        raise BadRequest(f"{place}.name must be 1 to {ID_LENGTH} characters long.", f"{place}.name")
    description = sent.description or ""
    if len(description) > TOOL_BYTES:
        message = f"{place}.description may be {TOOL_BYTES:,} characters long."
        raise BadRequest(message, f"{place}.description", code="too_large", status=413)
    given = memoryview(sent.parameters)
    parameters = decode_any(sent.parameters, TOOL_BYTES, f"{place}.parameters") if given else None
    return Tool(sent.name, description, parameters if isinstance(parameters, dict) else {})


def _with_context(spoken: list[ClientMessage], context: Sequence[ContextBody]) -> list[ClientMessage]:
    """The messages, with what the application wants to be known before the newest of the user's.

    It may be another in each run: so far behind, what stands before it stays in the model's cache.
    """
    text = "\n".join(f"{one.description}: {one.value}" for one in context)
    if not text:
        return spoken
    at = max((n for n, one in enumerate(spoken) if one.role == "user"), default=len(spoken))
    return [*spoken[:at], ClientMessage("system", check_length(text, "context")), *spoken[at:]]


def _answer(sent: AnswerBody, place: str) -> InterruptAnswer:
    approve = None if sent.status == "cancelled" else _approves(sent.payload, f"{place}.payload")
    found = _INTERRUPT_ID.fullmatch(sent.interrupt_id)
    if found is None:
        return InterruptAnswer(sent.interrupt_id, "", "", 0, approve)
    return InterruptAnswer(sent.interrupt_id, found["turn"], found["call"], int(found["after"]), approve)


def _approves(payload: msgspec.Raw, place: str) -> bool:
    given = decode_any(payload, PAYLOAD_BYTES, place) if memoryview(payload) else None
    if isinstance(given, dict):
        given = given.get("approved", given.get("approve"))
    if not isinstance(given, bool):
        raise BadRequest(f'{place} must be {{"approved": true}} or {{"approved": false}}.', place)
    return given
