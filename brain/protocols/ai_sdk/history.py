"""Parses messages from the Vercel AI SDK: texts, files, calls and their results."""

from collections.abc import Iterator, Sequence
from urllib.parse import unquote_to_bytes

import msgspec

from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols.ai_sdk.schema import MessageBody, PartBody
from brain.protocols.attachments import MAX_ATTACHMENTS, decode_attachment, make_attachment, too_many_attachments
from brain.protocols.bodies import decode_any, encode, invalid
from brain.protocols.client_messages import (
    MESSAGE_LENGTH,
    check_count,
    check_length,
    collect_messages,
    decode_messages,
)
from brain.validation import quote_value

MAX_PARTS = 1000
"""Limit per message."""
DENIED = "The user declined this call."
"""The result of a declined call, for the model."""

_OTHER_PARTS = ("reasoning", "step-start", "data-", "source-")
"""Prefixes of part types that a model does not read."""


def parse_messages(data: msgspec.Raw) -> tuple[list[ClientMessage], MessageBody, str]:
    """Return all messages in order, and the body and place of the newest one."""
    newest: tuple[MessageBody, str] | None = None

    def parse_all() -> Iterator[ClientMessage]:
        nonlocal newest
        for newest in decode_messages(data, MessageBody):
            yield from _parse_message(*newest)

    messages = collect_messages(parse_all())
    if newest is None:
        raise invalid("messages", "is empty")
    return messages, *newest


def _parse_message(body: MessageBody, place: str) -> Iterator[ClientMessage]:
    check_count(body.parts, MAX_PARTS, f"{place}.parts")
    if body.role == "assistant":
        yield from _parse_answer(body.parts, place)
        return
    text = check_length("\n".join(part.text or "" for part in body.parts if part.type == "text"), place)
    files = tuple(_parse_files(body.parts, place)) if body.role == "user" else ()
    yield ClientMessage(body.role, text, files)


def _parse_answer(parts: Sequence[PartBody], place: str) -> Iterator[ClientMessage]:
    """An answer as messages: text after calls becomes a new message after their results."""
    text = ""
    calls: list[tuple[ClientToolCall, str]] = []
    for n, part in enumerate(parts):
        if part.type == "text":
            if calls:
                yield from _answer_messages(text, calls)
                text, calls = "", []
            text += check_length(part.text, f"{place}.parts[{n}].text")
        elif (call := _parse_call(part, f"{place}.parts[{n}]")) is not None:
            calls.append(call)
    yield from _answer_messages(text, calls)


def _answer_messages(text: str, calls: Sequence[tuple[ClientToolCall, str]]) -> Iterator[ClientMessage]:
    if text or calls:
        yield ClientMessage("assistant", text, calls=tuple(call for call, _ in calls))
    for call, result in calls:
        yield ClientMessage("tool", result, call_id=call.call_id)


def _parse_call(part: PartBody, place: str) -> tuple[ClientToolCall, str] | None:
    """A call and its result; None for another part, or for a call without a result."""
    if not part.tool or part.tool == "?":
        return None
    match part.state:
        case "output-available" if not part.preliminary:
            output = decode_any(part.output, MESSAGE_LENGTH, f"{place}.output")
            result = output if isinstance(output, str) else encode(output).decode()
        case "output-error":
            result = part.error_text or ""
        case "output-denied":
            result = DENIED
        case _:
            return None
    params = decode_any(part.input, MESSAGE_LENGTH, f"{place}.input")
    return ClientToolCall(place, part.tool, params if isinstance(params, dict) else {}), result


def _parse_files(parts: Sequence[PartBody], place: str) -> Iterator[Attachment]:
    files = 0
    for n, part in enumerate(parts):
        if part.type == "file":
            files += 1
            if files > MAX_ATTACHMENTS:
                raise too_many_attachments()
            yield _parse_file(part, f"{place}.parts[{n}].url")
        elif part.type != "text" and not part.type.startswith(_OTHER_PARTS):
            raise invalid(f"{place}.parts[{n}].type", f"is {quote_value(part.type)}; use text or file")


def _parse_file(part: PartBody, place: str) -> Attachment:
    url, name, media_type = part.url or "", part.filename or "file", part.media_type or ""
    head, comma, text = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise invalid(place, "is not a `data:` URL, and Brain fetches no files; send data:TYPE;base64,…")
    if head.endswith(";base64"):
        return decode_attachment(name, media_type, url, place)
    return make_attachment(name, media_type or head.removeprefix("data:"), unquote_to_bytes(text), place)
