"""Parses messages from AG-UI clients: texts, files, calls and their results."""

import sys
from collections.abc import Iterator

import msgspec

from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols.ag_ui.schema import CallBody, MessageBody, PartBody
from brain.protocols.attachments import MAX_ATTACHMENTS, decode_attachment, too_many_attachments
from brain.protocols.bodies import check_limit, invalid
from brain.protocols.client_messages import (
    LEAVE_OUT,
    MAX_CALLS,
    MESSAGE_LENGTH,
    check_length,
    collect_messages,
    decode_messages,
    parse_arguments,
)

MAX_MESSAGES = 10_000
ARGUMENTS_BYTES = 4 * MESSAGE_LENGTH


def parse_messages(data: msgspec.Raw) -> list[ClientMessage]:
    """Return all messages that a model reads, in order."""
    return collect_messages(_parse_messages(data), max_files=sys.maxsize)


def _parse_messages(data: msgspec.Raw) -> Iterator[ClientMessage]:
    for body, place in decode_messages(data, MessageBody, MAX_MESSAGES):
        if body.role in ("activity", "reasoning"):
            continue
        text, files = _parse_content(body, f"{place}.content")
        match body.role:
            case "system" | "developer":
                yield ClientMessage("system", text)
            case "user":
                yield ClientMessage("user", text, files)
            case "assistant":
                calls = body.tool_calls or ()
                check_limit("messages", len(calls), MAX_CALLS, "calls", LEAVE_OUT)
                yield ClientMessage("assistant", text, calls=tuple(map(_parse_call, calls)))
            case "tool":
                if body.tool_call_id is None:
                    raise invalid(f"{place}.toolCallId", "is missing")
                text = text or check_length(body.error, f"{place}.error")
                yield ClientMessage("tool", text, call_id=body.tool_call_id)


def _parse_content(body: MessageBody, place: str) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a message, one line per part, and its files."""
    content = body.content
    if content is None and body.role == "user":
        raise invalid(place, "is missing")
    if content is None or isinstance(content, str):
        return check_length(content, place), ()
    if isinstance(content, dict) or body.role not in ("user", "tool"):
        raise invalid(place, "must be a string; only messages with the role user or tool can have parts")
    texts, files = [], []
    for n, part in enumerate(content):
        if part.type != "text":
            files.append((part, f"{place}[{n}]"))
        elif part.text is None:
            raise invalid(f"{place}[{n}].text", "is missing")
        else:
            texts.append(part.text)
    if files and body.role != "user":
        raise invalid(place, "has files, which only messages with the role user can have")
    if len(files) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    return check_length("\n".join(texts), place), tuple(_parse_file(*file) for file in files)


def _parse_file(part: PartBody, place: str) -> Attachment:
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


def _parse_call(body: CallBody) -> ClientToolCall:
    return ClientToolCall(body.id, body.function.name, parse_arguments(body.function.arguments or "", ARGUMENTS_BYTES))
