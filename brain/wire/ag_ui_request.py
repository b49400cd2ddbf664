"""Wing: what AG-UI clients ask of `POST /ag-ui/run`, in Brain's words. Its own options stand in `forwardedProps`."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import msgspec

from brain.ask import Ask, Attachment, Tool
from brain.errors import BadRequest
from brain.messages import Handed, Spoken
from brain.settings import Settings
from brain.wire import native
from brain.wire.ag_ui_body import (
    Sent,
    SentAnswer,
    SentAssistant,
    SentBinary,
    SentCall,
    SentContent,
    SentContext,
    SentDeveloper,
    SentFile,
    SentMessage,
    SentProps,
    SentResult,
    SentSystem,
    SentText,
    SentTool,
    SentUser,
)
from brain.wire.attaching import ATTACHMENTS_MOST, attachment_of, too_many
from brain.wire.bodies import decoded, loose
from brain.wire.native import MESSAGE_LENGTH

ID_LENGTH = 256
MESSAGES_MOST = 10_000
TOOLS_MOST = 128
TOOL_BYTES = 65_536
"""Of a tool's description, and of its schema."""
PAYLOAD_BYTES = 65_536

_CONVERSATION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INTERRUPT_ID = re.compile(r"(?P<turn>\w{1,64})\.(?P<call>\w{1,64})\.(?P<after>[0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which run of which thread is wanted.

    Attributes:
        conversation_id: under which the thread is filed.
        resume: the answers to interrupts, still to be read.
    """

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    conversation_id: str = ""
    resume: Sequence[SentAnswer] = ()


@dataclass(frozen=True, slots=True)
class Answer:
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


def parse(body: bytes, user: str | None, settings: Settings, models: Set[str]) -> tuple[Ask, list[Spoken], Wanted]:
    """Reads the body of `POST /ag-ui/run`.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    sent = decoded(body, Sent)
    wanted = _wanted(sent)
    spoken = _all_spoken(sent.messages)
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


def answers(resume: Sequence[SentAnswer]) -> list[Answer]:
    """The answers to interrupts.

    Raises:
        BadRequest: when one is answered twice, or in other words than it asked for.
    """
    found = [_answer(one, f"resume[{n}]") for n, one in enumerate(resume)]
    if len({one.interrupt_id for one in found}) < len(found):
        raise BadRequest("resume answers an interrupt twice; send one entry for each.", "resume")
    return found


def said_since(spoken: Sequence[Spoken], call_ids: Set[str]) -> list[str]:
    """What the user said behind the messages that hold these calls."""
    at = max((n for n, one in enumerate(spoken) if any(call.call_id in call_ids for call in one.calls)), default=None)
    return [] if at is None else [one.text for one in spoken[at + 1 :] if one.role == "user" and one.text.strip()]


def _wanted(sent: Sent) -> Wanted:
    for name, value in (("threadId", sent.thread_id), ("runId", sent.run_id), ("parentRunId", sent.parent_run_id)):
        if value is not None and not (0 < len(value) <= ID_LENGTH and value.isprintable()):
            raise BadRequest(f"{name} must be 1 to {ID_LENGTH} printable characters.", name)
    return Wanted(sent.thread_id, sent.run_id, sent.parent_run_id, _filed(sent.thread_id), sent.resume or ())


def _filed(thread_id: str) -> str:
    """The id of the conversation: the thread's own, where it is short and plain, else one that stands for it."""
    if _CONVERSATION_ID.fullmatch(thread_id):
        return thread_id
    return f"thread-{hashlib.sha256(thread_id.encode()).hexdigest()[:40]}"


def _props(sent: msgspec.Raw) -> SentProps:
    """Brain's options; what is no object has none."""
    if not bytes(memoryview(sent)).lstrip().startswith(b"{"):
        return SentProps()
    return decoded(sent, SentProps, "forwardedProps")


def _of_brain(sent: SentProps, user: str | None, settings: Settings, models: Set[str]) -> Ask:
    """What the native protocol makes of its own options; `…` stands for the messages, which are read elsewhere."""
    own = native.Sent(
        "…",
        model=sent.model,
        specialists=sent.specialists,
        limits=sent.limits,
        system=sent.system or "",
        time_zone=sent.time_zone,
    )
    try:
        return native.ask_of(own, [], user, settings, frozenset(models))
    except BadRequest as error:
        message, field = f"forwardedProps.{error.message}", f"forwardedProps.{error.field}"
        raise BadRequest(message, field, code=error.code, status=error.status) from None


def _all_spoken(sent: Sequence[SentMessage]) -> list[Spoken]:
    if len(sent) > MESSAGES_MOST:
        raise BadRequest(f"At most {MESSAGES_MOST:,} messages.", "messages", code="too_large", status=413)
    return [one for n, message in enumerate(sent) if (one := _spoken(message, f"messages[{n}]")) is not None]


def _spoken(message: SentMessage, place: str) -> Spoken | None:
    match message:
        case SentSystem() | SentDeveloper():
            return Spoken("system", _bounded(message.content, f"{place}.content"))
        case SentUser():
            return Spoken("user", _text(message.content, place), _files(message.content, f"{place}.content"))
        case SentAssistant():
            calls = tuple(map(_handed, message.tool_calls or ()))
            return Spoken("assistant", _bounded(message.content or "", f"{place}.content"), calls=calls)
        case SentResult():
            return Spoken("tool", _result(message, place), call_id=message.tool_call_id)
    return None


def _result(message: SentResult, place: str) -> str:
    text = _text(message.content, place)
    if _parts(message.content):
        raise BadRequest(f"{place}.content: only a user's message has files.", f"{place}.content")
    return text or _bounded(message.error or "", f"{place}.error")


def _handed(call: SentCall) -> Handed:
    """A call. Arguments that are no JSON object stay readable: the client cannot mend what a model wrote."""
    return Handed(call.id, call.function.name, _params(call.function.arguments))


def _params(arguments: str) -> Mapping[str, Any]:
    raw = msgspec.Raw(arguments.encode())
    try:
        value = loose(raw, 4 * MESSAGE_LENGTH, "arguments") if arguments.strip() else {}
    except BadRequest:
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def _text(content: SentContent, place: str) -> str:
    if not isinstance(content, str):
        content = "\n".join([part.text for part in content if isinstance(part, SentText)])
    return _bounded(content, f"{place}.content")


def _bounded(text: str, place: str) -> str:
    if len(text) > MESSAGE_LENGTH:
        message = f"{place} may be {MESSAGE_LENGTH:,} characters long."
        raise BadRequest(message, place, code="too_large", status=413)
    return text


def _parts(content: SentContent) -> list[tuple[SentFile, int]]:
    """The parts that are files, and their places."""
    if isinstance(content, str):
        return []
    return [(part, n) for n, part in enumerate(content) if not isinstance(part, SentText)]


def _files(content: SentContent, place: str) -> tuple[Attachment, ...]:
    parts = _parts(content)
    if len(parts) > ATTACHMENTS_MOST:
        raise too_many()
    return tuple(_file(part, f"{place}[{n}]") for part, n in parts)


def _file(part: SentFile, place: str) -> Attachment:
    if isinstance(part, SentBinary):
        if part.data is None:
            _refuse_address(place)
        return _attachment(part.data, part.filename or "file", part.mime_type, f"{place}.data")
    source = part.source
    if source.type != "data" and not source.value.startswith("data:"):
        _refuse_address(f"{place}.source")
    name = (part.metadata or {}).get("filename")
    kind = str(part.__struct_config__.tag)
    return _attachment(
        source.value, name if isinstance(name, str) else kind, source.mime_type or "", f"{place}.source.value"
    )


def _refuse_address(place: str) -> NoReturn:
    message = f"{place}: files are not fetched from elsewhere; send the content itself, as data in base64."
    raise BadRequest(message, place)


def _attachment(encoded: str, name: str, claimed: str, place: str) -> Attachment:
    head, _, rest = encoded.partition(",") if encoded.startswith("data:") else ("", "", encoded)
    try:
        data = base64.b64decode("".join(rest.split()), validate=True)
    except ValueError:
        raise BadRequest(f"{place} is not valid base64.", place) from None
    return attachment_of(name, claimed or head.removeprefix("data:"), data, place)


def _tools(sent: Sequence[SentTool]) -> tuple[Tool, ...]:
    if len(sent) > TOOLS_MOST:
        raise BadRequest(f"At most {TOOLS_MOST} tools.", "tools", code="too_large", status=413)
    return tuple(_tool(tool, f"tools[{n}]") for n, tool in enumerate(sent))


def _tool(sent: SentTool, place: str) -> Tool:
    if not 0 < len(sent.name) <= ID_LENGTH:
        raise BadRequest(f"{place}.name must be 1 to {ID_LENGTH} characters long.", f"{place}.name")
    description = sent.description or ""
    if len(description) > TOOL_BYTES:
        message = f"{place}.description may be {TOOL_BYTES:,} characters long."
        raise BadRequest(message, f"{place}.description", code="too_large", status=413)
    given = memoryview(sent.parameters)
    parameters = loose(sent.parameters, TOOL_BYTES, f"{place}.parameters") if given else None
    return Tool(sent.name, description, parameters if isinstance(parameters, dict) else {})


def _with_context(spoken: list[Spoken], context: Sequence[SentContext]) -> list[Spoken]:
    """The messages, with what the application wants to be known before the newest of the user's.

    It may be another in each run: so far behind, what stands before it stays in the model's cache.
    """
    text = "\n".join(f"{one.description}: {one.value}" for one in context)
    if not text:
        return spoken
    at = max((n for n, one in enumerate(spoken) if one.role == "user"), default=len(spoken))
    return [*spoken[:at], Spoken("system", _bounded(text, "context")), *spoken[at:]]


def _answer(sent: SentAnswer, place: str) -> Answer:
    approve = None if sent.status == "cancelled" else _approves(sent.payload, f"{place}.payload")
    found = _INTERRUPT_ID.fullmatch(sent.interrupt_id)
    if found is None:
        return Answer(sent.interrupt_id, "", "", 0, approve)
    return Answer(sent.interrupt_id, found["turn"], found["call"], int(found["after"]), approve)


def _approves(payload: msgspec.Raw, place: str) -> bool:
    given = loose(payload, PAYLOAD_BYTES, place) if memoryview(payload) else None
    if isinstance(given, dict):
        given = given.get("approved", given.get("approve"))
    if not isinstance(given, bool):
        raise BadRequest(f'{place} must be {{"approved": true}} or {{"approved": false}}.', place)
    return given
