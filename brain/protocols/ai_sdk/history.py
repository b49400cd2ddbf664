"""The messages of a chat of the Vercel AI SDK, as what was spoken: texts, files, calls and what came of them."""

import base64
from collections.abc import Iterator, Sequence
from urllib.parse import unquote_to_bytes

import msgspec

from brain.errors import BadRequest
from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols.ai_sdk.schema import MessageBody, PartBody
from brain.protocols.attachments import MAX_ATTACHMENTS, make_attachment, too_many_attachments
from brain.protocols.bodies import collect_messages, decode_any, decode_messages, encode
from brain.protocols.native import MESSAGE_LENGTH

MESSAGES_MOST = 4096
PARTS_MOST = 1000
"""In one message."""
FILES_MOST = 100
"""In all messages together."""

DENIED = "A person did not allow this call."
"""What a model reads in place of the result of a call that was declined."""

_NOT_SAID = ("reasoning", "step-start", "data-", "source-")
"""How the types of parts begin in which nobody said anything."""


def parse_messages(sent: msgspec.Raw) -> tuple[list[ClientMessage], MessageBody, str]:
    """All messages, in order; the newest of them as it was sent, and its place.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    newest: tuple[MessageBody, str] | None = None

    def every() -> Iterator[ClientMessage]:
        nonlocal newest
        too_many = f"messages: at most {MESSAGES_MOST:,}; leave the oldest out."
        for newest in decode_messages(sent, MessageBody, MESSAGES_MOST, too_many):
            yield from _spoken(*newest)

    spoken = collect_messages(every())
    if newest is None:
        raise BadRequest("messages is empty.", "messages")
    if sum(len(one.attachments) for one in spoken) > FILES_MOST:
        message = f"messages: at most {FILES_MOST} files in all of them; leave the oldest out."
        raise BadRequest(message, "messages", code="too_large", status=413)
    return spoken, *newest


def _check_number(number: int, most: int, place: str) -> None:
    if number > most:
        raise BadRequest(f"{place}: at most {most:,}; leave the oldest out.", place, code="too_large", status=413)


def _spoken(message: MessageBody, place: str) -> Iterator[ClientMessage]:
    _check_number(len(message.parts), PARTS_MOST, f"{place}.parts")
    if message.role == "assistant":
        yield from _answer(message.parts, place)
    else:
        text = _bounded("\n".join(part.text or "" for part in message.parts if part.type == "text"), place)
        files = tuple(_files(message.parts, place)) if message.role == "user" else ()
        yield ClientMessage(message.role, text, files)


def _answer(parts: Sequence[PartBody], place: str) -> Iterator[ClientMessage]:
    """What was said and called, in order: text behind calls is a message of its own, behind their results."""
    text = ""
    told: list[tuple[ClientToolCall, str]] = []
    for n, part in enumerate(parts):
        if part.type == "text":
            if told:
                yield from _said(text, told)
                text, told = "", []
            text += _bounded(part.text or "", f"{place}.parts[{n}].text")
        elif (one := _told(part, f"{place}.parts[{n}]")) is not None:
            told.append(one)
    yield from _said(text, told)


def _said(text: str, told: Sequence[tuple[ClientToolCall, str]]) -> Iterator[ClientMessage]:
    if text or told:
        yield ClientMessage("assistant", text, calls=tuple(call for call, _ in told))
    for call, result in told:
        yield ClientMessage("tool", result, call_id=call.call_id)


def _told(part: PartBody, place: str) -> tuple[ClientToolCall, str] | None:
    """A call and what came of it; None where nothing has come of it, or the part tells of none."""
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


def _files(parts: Sequence[PartBody], place: str) -> Iterator[Attachment]:
    found = 0
    for n, part in enumerate(parts):
        if part.type == "file":
            found += 1
            if found > MAX_ATTACHMENTS:
                raise too_many_attachments()
            yield _file(part, f"{place}.parts[{n}]")
        elif part.type != "text" and not part.type.startswith(_NOT_SAID):
            raise BadRequest(f"{place}.parts[{n}].type must be text or file.", f"{place}.parts[{n}].type")


def _file(part: PartBody, place: str) -> Attachment:
    head, comma, encoded_data = (part.url or "").partition(",")
    if not head.startswith("data:") or not comma:
        raise BadRequest(f"{place}.url: only data: URLs are taken, nothing is fetched.", f"{place}.url")
    try:
        data = (
            base64.b64decode("".join(encoded_data.split()), validate=True)
            if head.endswith(";base64")
            else unquote_to_bytes(encoded_data)
        )
    except ValueError:
        raise BadRequest(f"{place}.url is not valid base64.", f"{place}.url") from None
    return make_attachment(part.filename or "file", part.media_type or head[5:], data, f"{place}.url")


def _bounded(text: str, place: str) -> str:
    if len(text) > MESSAGE_LENGTH:
        raise BadRequest(f"{place} may be {MESSAGE_LENGTH:,} characters long.", place, code="too_large", status=413)
    return text
