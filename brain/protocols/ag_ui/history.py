"""The messages of AG-UI's clients: texts, files, calls and their results."""

import sys
from collections.abc import Iterator
from typing import Any

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
from brain.protocols.attachments import MAX_ATTACHMENTS, decode_attachment, too_many_attachments
from brain.protocols.client_messages import (
    MESSAGE_LENGTH,
    check_call_count,
    check_length,
    collect_messages,
    decode_messages,
    parse_arguments,
)

MAX_MESSAGES = 10_000
ARGUMENTS_BYTES = 4 * MESSAGE_LENGTH


def parse_messages(data: msgspec.Raw) -> list[ClientMessage]:
    """Return all messages of user, assistant, tools and system, in order.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    return collect_messages(_parse_messages(data), max_files=sys.maxsize)


def _parse_messages(data: msgspec.Raw) -> Iterator[ClientMessage]:
    kind: Any = MessageBody  # a union is no class to mypy
    message: MessageBody
    for message, path in decode_messages(data, kind, MAX_MESSAGES):
        place = f"{path}.content"
        match message:
            case SystemBody() | DeveloperBody():
                yield ClientMessage("system", check_length(message.content, place))
            case UserBody():
                yield ClientMessage("user", _parse_text(message.content, place), _parse_files(message.content, place))
            case AssistantBody():
                check_call_count(len(message.tool_calls or ()))
                calls = tuple(map(_parse_call, message.tool_calls or ()))
                yield ClientMessage("assistant", check_length(message.content, place), calls=calls)
            case ResultBody():
                text = _parse_text(message.content, place)
                if _file_parts(message.content):
                    raise BadRequest(f"{place}: only a user's message has files.", place)
                text = text or check_length(message.error, f"{path}.error")
                yield ClientMessage("tool", text, call_id=message.tool_call_id)


def _parse_call(call: CallBody) -> ClientToolCall:
    return ClientToolCall(call.id, call.function.name, parse_arguments(call.function.arguments, ARGUMENTS_BYTES))


def _parse_text(content: ContentBody, place: str) -> str:
    if not isinstance(content, str):
        content = "\n".join([part.text for part in content if isinstance(part, TextBody)])
    return check_length(content, place)


def _file_parts(content: ContentBody) -> list[tuple[FileBody, int]]:
    """The parts that are files, with their indexes."""
    if isinstance(content, str):
        return []
    return [(part, n) for n, part in enumerate(content) if not isinstance(part, TextBody)]


def _parse_files(content: ContentBody, place: str) -> tuple[Attachment, ...]:
    parts = _file_parts(content)
    if len(parts) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    return tuple(_parse_file(part, f"{place}[{n}]") for part, n in parts)


def _parse_file(part: FileBody, place: str) -> Attachment:
    if isinstance(part, BinaryBody):
        data, name, media_type, field = part.data, part.filename or "file", part.mime_type, f"{place}.data"
    else:
        place, source = f"{place}.source", part.source
        data = source.value if source.type == "data" or source.value.startswith("data:") else None
        filename = (part.metadata or {}).get("filename")
        name = filename if isinstance(filename, str) else str(part.__struct_config__.tag)
        media_type, field = source.mime_type or "", f"{place}.value"
    if data is None:
        raise BadRequest(f"{place}: files are not fetched; send the content as data in base64.", place)
    return decode_attachment(name, media_type, data, field)
