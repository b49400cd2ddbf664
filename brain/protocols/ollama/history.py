"""The messages of Ollama's clients."""

from collections.abc import Iterator

import msgspec

from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols.attachments import MAX_ATTACHMENTS, decode_attachment, too_many_attachments
from brain.protocols.bodies import decode_object, invalid, is_given
from brain.protocols.client_messages import check_count, check_length, collect_messages, decode_messages
from brain.protocols.ollama.schema import CallBody, MessageBody

MAX_CALLS = 128
"""In one message."""
ARGUMENTS_BYTES = 200_000


def parse_messages(data: msgspec.Raw) -> list[ClientMessage]:
    """Return the messages of a chat, in order.

    Calls without an ID get one. A result answers the call that it names, else the first open call of its name.
    """
    return collect_messages(_parse_messages(data)) if is_given(data) else []


def _parse_messages(data: msgspec.Raw) -> Iterator[ClientMessage]:
    open_calls: list[ClientToolCall] = []
    for n, (sent, place) in enumerate(decode_messages(data, MessageBody)):
        text = check_length(sent.content, f"{place}.content")
        match sent.role.lower():
            case "system":
                yield ClientMessage("system", text)
            case "user":
                yield ClientMessage("user", text, parse_images(sent.images, f"{place}.images"))
            case "assistant":
                place = f"{place}.tool_calls"
                check_count(sent.tool_calls, MAX_CALLS, place)
                calls = [
                    _parse_call(call, f"call_{n}_{i}", f"{place}[{i}]") for i, call in enumerate(sent.tool_calls or ())
                ]
                open_calls = calls or open_calls
                yield ClientMessage("assistant", text, calls=tuple(calls))
            case "tool":
                call = next((call for call in open_calls if _answers(sent, call)), None)
                if call is not None:
                    open_calls.remove(call)
                yield ClientMessage("tool", text, call_id=call.call_id if call else sent.tool_call_id or "")
            case _:
                raise invalid(f"{place}.role", "must be system, user, assistant or tool")


def _parse_call(sent: CallBody, default_id: str, place: str) -> ClientToolCall:
    arguments = decode_object(sent.function.arguments, ARGUMENTS_BYTES, f"{place}.function.arguments")
    return ClientToolCall(sent.id or default_id, sent.function.name, arguments)


def _answers(sent: MessageBody, call: ClientToolCall) -> bool:
    """Whether a result is this call's; one that names no call is any call's."""
    if sent.tool_call_id:
        return sent.tool_call_id == call.call_id
    return sent.tool_name in (call.name, "", None)


def parse_images(sent: list[str] | None, place: str) -> tuple[Attachment, ...]:
    """Return images that come in base64."""
    if sent and len(sent) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    return tuple(decode_attachment("image", "", data, f"{place}[{n}]") for n, data in enumerate(sent or ()))
