"""Parses messages from Ollama clients."""

from collections.abc import Iterator

import msgspec

from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols.attachments import MAX_ATTACHMENTS, decode_attachment, too_many_attachments
from brain.protocols.bodies import decode_object, invalid, is_present
from brain.protocols.client_messages import check_count, check_length, collect_messages, decode_messages
from brain.protocols.ollama.schema import MessageBody
from brain.validation import quote_value

MAX_CALLS = 128
"""Limit per message."""
ARGUMENTS_BYTES = 200_000


def parse_messages(data: msgspec.Raw) -> list[ClientMessage]:
    """Return the messages of a chat, in order.

    Calls without an ID get one. A result belongs to the call with its ID, else to the first open call with its name.
    """
    return collect_messages(_parse_messages(data)) if is_present(data) else []


def _parse_messages(data: msgspec.Raw) -> Iterator[ClientMessage]:
    open_calls: list[ClientToolCall] = []
    for n, (body, place) in enumerate(decode_messages(data, MessageBody)):
        text = check_length(body.content, f"{place}.content")
        match body.role.lower():
            case "system":
                yield ClientMessage("system", text)
            case "user":
                yield ClientMessage("user", text, parse_images(body.images, f"{place}.images"))
            case "assistant":
                place = f"{place}.tool_calls"
                check_count(body.tool_calls, MAX_CALLS, place)
                calls = []
                for i, call in enumerate(body.tool_calls or ()):
                    field = f"{place}[{i}].function.arguments"
                    arguments = decode_object(call.function.arguments, ARGUMENTS_BYTES, field)
                    calls.append(ClientToolCall(call.id or f"call_{n}_{i}", call.function.name, arguments))
                open_calls = calls or open_calls
                yield ClientMessage("assistant", text, calls=tuple(calls))
            case "tool":
                answered = next((call for call in open_calls if _answers(body, call)), None)
                if answered is not None:
                    open_calls.remove(answered)
                yield ClientMessage("tool", text, call_id=answered.call_id if answered else body.tool_call_id or "")
            case _:
                raise invalid(f"{place}.role", f"is {quote_value(body.role)}; use system, user, assistant or tool")


def _answers(body: MessageBody, call: ClientToolCall) -> bool:
    """Whether a result belongs to a call. A result without ID and name belongs to any call."""
    if body.tool_call_id:
        return body.tool_call_id == call.call_id
    return body.tool_name in (call.name, "", None)


def parse_images(body: list[str] | None, place: str) -> tuple[Attachment, ...]:
    """Return images from base64."""
    if body and len(body) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    return tuple(decode_attachment("image", "", data, f"{place}[{n}]") for n, data in enumerate(body or ()))
