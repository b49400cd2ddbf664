"""The messages of AG-UI's clients, as what was spoken: texts, files, calls and what came of them."""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import msgspec

from brain.errors import BadRequest
from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols.ag_ui.schema import (
    AssistantBody,
    BinaryBody,
    CallBody,
    ContentBody,
    DeveloperBody,
    FileBody,
    MessageBody,
    ResultBody,
    SystemBody,
    TextBody,
    UserBody,
)
from brain.protocols.attachments import MAX_ATTACHMENTS, make_attachment, too_many_attachments
from brain.protocols.bodies import check_call_count, collect_messages, decode_any, decode_messages
from brain.protocols.native import MESSAGE_LENGTH

MESSAGES_MOST = 10_000


def parse_messages(sent: msgspec.Raw) -> list[ClientMessage]:
    """All messages in which somebody said something, in order.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    return collect_messages(_all(sent))


def _all(sent: msgspec.Raw) -> Iterator[ClientMessage]:
    too_many = f"At most {MESSAGES_MOST:,} messages."
    kind: Any = MessageBody  # a union, which is no class
    message: MessageBody
    for message, place in decode_messages(sent, kind, MESSAGES_MOST, too_many):
        if (one := _spoken(message, place)) is not None:
            yield one


def _spoken(message: MessageBody, place: str) -> ClientMessage | None:
    match message:
        case SystemBody() | DeveloperBody():
            return ClientMessage("system", check_length(message.content, f"{place}.content"))
        case UserBody():
            return ClientMessage("user", _text(message.content, place), _files(message.content, f"{place}.content"))
        case AssistantBody():
            check_call_count(len(message.tool_calls or ()))
            calls = tuple(map(_handed, message.tool_calls or ()))
            return ClientMessage("assistant", check_length(message.content or "", f"{place}.content"), calls=calls)
        case ResultBody():
            return ClientMessage("tool", _result(message, place), call_id=message.tool_call_id)
    return None


def _result(message: ResultBody, place: str) -> str:
    text = _text(message.content, place)
    if _parts(message.content):
        raise BadRequest(f"{place}.content: only a user's message has files.", f"{place}.content")
    return text or check_length(message.error or "", f"{place}.error")


def _handed(call: CallBody) -> ClientToolCall:
    """A call. Arguments that are no JSON object stay readable: the client cannot mend what a model wrote."""
    return ClientToolCall(call.id, call.function.name, _params(call.function.arguments))


def _params(arguments: str) -> Mapping[str, Any]:
    raw = msgspec.Raw(arguments.encode())
    try:
        value = decode_any(raw, 4 * MESSAGE_LENGTH, "arguments") if arguments.strip() else {}
    except BadRequest:
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def _text(content: ContentBody, place: str) -> str:
    if not isinstance(content, str):
        content = "\n".join([part.text for part in content if isinstance(part, TextBody)])
    return check_length(content, f"{place}.content")


def check_length(text: str, place: str) -> str:
    """The same text.

    Raises:
        BadRequest: `too_large`, when it is longer than a message may be.
    """
    if len(text) > MESSAGE_LENGTH:
        message = f"{place} may be {MESSAGE_LENGTH:,} characters long."
        raise BadRequest(message, place, code="too_large", status=413)
    return text


def _parts(content: ContentBody) -> list[tuple[FileBody, int]]:
    """The parts that are files, and their places."""
    if isinstance(content, str):
        return []
    return [(part, n) for n, part in enumerate(content) if not isinstance(part, TextBody)]


def _files(content: ContentBody, place: str) -> tuple[Attachment, ...]:
    parts = _parts(content)
    if len(parts) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    return tuple(_file(part, f"{place}[{n}]") for part, n in parts)


def _file(part: FileBody, place: str) -> Attachment:
    if isinstance(part, BinaryBody):
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
    return make_attachment(name, claimed or head.removeprefix("data:"), data, place)
