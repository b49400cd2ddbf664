"""Parses messages from OpenAI clients: texts, files, tool calls and their results."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols.attachments import MAX_ATTACHMENTS, decode_attachment, too_many_attachments
from brain.protocols.bodies import decode_any, invalid, is_present
from brain.protocols.client_messages import (
    MESSAGE_LENGTH,
    check_count,
    check_length,
    collect_messages,
    decode_messages,
    parse_arguments,
)
from brain.protocols.openai.schema import CallBody, FileBody, MessageBody, PartBody
from brain.validation import quote_value

MAX_PARTS = 1000
MAX_CALLS = 128
"""Limits per message."""


def parse_messages(data: msgspec.Raw) -> list[ClientMessage]:
    """Return all messages, in order."""
    messages = collect_messages(_parse_message(body, place) for body, place in decode_messages(data, MessageBody))
    if not messages:
        raise invalid("messages", "is empty")
    return messages


def _parse_message(body: MessageBody, place: str) -> ClientMessage:
    text, files = _parse_content(body.content, f"{place}.content")
    if files and body.role != "user":
        raise invalid(f"{place}.content", "has files, which only messages with the role user can have")
    match body.role:
        case "system" | "developer":
            return ClientMessage("system", text)
        case "user":
            return ClientMessage("user", text, files)
        case "assistant":
            if is_present(body.function_call):
                raise invalid(f"{place}.function_call", "is deprecated and not supported; use `tool_calls`")
            place = f"{place}.tool_calls"
            check_count(body.tool_calls, MAX_CALLS, place)
            calls = tuple(_parse_call(call, f"{place}[{n}]") for n, call in enumerate(body.tool_calls or ()))
            return ClientMessage("assistant", text or body.refusal or "", calls=calls)
        case "tool":
            if not body.tool_call_id:
                raise invalid(f"{place}.tool_call_id", "is missing")
            return ClientMessage("tool", text, call_id=body.tool_call_id)
    raise invalid(f"{place}.role", f"is {quote_value(body.role)}; use system, developer, user, assistant or tool")


def _parse_content(body: str | Sequence[PartBody] | None, place: str) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a message, one line per part, and its files."""
    if body is None or isinstance(body, str):
        return check_length(body, place), ()
    check_count(body, MAX_PARTS, place)
    parts = [_parse_part(part, f"{place}[{n}]") for n, part in enumerate(body)]
    files = tuple(part for part in parts if isinstance(part, Attachment))
    if len(files) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    return check_length("\n".join([part for part in parts if isinstance(part, str)]), place), files


def _parse_part(body: PartBody, place: str) -> str | Attachment:
    match body.type:
        case "text" if body.text is not None:
            return body.text
        case "refusal" if body.refusal is not None:
            return body.refusal
        case "image_url" if body.image_url is not None:
            url = body.image_url if isinstance(body.image_url, str) else body.image_url.url
            return _parse_image(url, f"{place}.image_url")
        case "file" if body.file is not None:
            return _parse_file(body.file, f"{place}.file")
        case "text" | "refusal" | "image_url" | "file":
            raise invalid(f"{place}.{body.type}", "is missing")
    raise invalid(f"{place}.type", f"is {quote_value(body.type)}; use text, image_url or file")


def _parse_image(url: str, place: str) -> Attachment:
    if not url.startswith("data:"):
        raise invalid(place, "is not a `data:` URL, and Brain fetches no images; send data:image/png;base64,…")
    subtype = _check_data_url(url, place).partition("/")[2].partition("+")[0]
    return decode_attachment(f"image.{subtype}" if subtype else "image", "", url, place)


def _parse_file(body: FileBody, place: str) -> Attachment:
    if not body.file_data:
        raise invalid(place, "has no `file_data`, and file IDs are not supported; send the content as `file_data`")
    place = f"{place}.file_data"
    if body.file_data.startswith("data:"):
        _check_data_url(body.file_data, place)
    return decode_attachment(body.filename or "file", "", body.file_data, place)


def _check_data_url(url: str, place: str) -> str:
    """Return the media type of a `data:` URL in base64."""
    head, comma, _ = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise invalid(place, "must be a URL like data:TYPE;base64,…")
    return head.removeprefix("data:").partition(";")[0]


def _parse_call(body: CallBody, place: str) -> ClientToolCall:
    if body.type not in (None, "function"):
        raise invalid(f"{place}.type", f"is {quote_value(body.type)}; use function")
    params: Mapping[str, Any] = {}
    if is_present(body.function.arguments):
        value = decode_any(body.function.arguments, MESSAGE_LENGTH, f"{place}.function.arguments")
        if isinstance(value, str):
            params = parse_arguments(value, MESSAGE_LENGTH)
        else:
            params = value if isinstance(value, dict) else {"arguments": value}
    return ClientToolCall(body.id, body.function.name, params)
