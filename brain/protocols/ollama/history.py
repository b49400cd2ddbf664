"""The messages of Ollama's clients, in Brain's words."""

import base64
from collections.abc import Iterator

import msgspec

from brain.errors import BadRequest
from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols.attachments import MAX_ATTACHMENTS, make_attachment, too_many_attachments
from brain.protocols.bodies import collect_messages, decode_messages
from brain.protocols.native import MESSAGE_LENGTH
from brain.protocols.ollama.schema import CallBody, MessageBody, mapping

MESSAGES_MOST = 4096
FILES_MOST = 100
"""In all messages together."""
CALLS_MOST = 128
"""In one message."""
ARGUMENTS_BYTES = 200_000


class OllamaConversation:
    """The messages of a chat, with an id for each call, and for each of a tool's messages the call that it answers."""

    def __init__(self) -> None:
        self._open: list[ClientToolCall] = []

    def of(self, messages: msgspec.Raw) -> list[ClientMessage]:
        """The messages, in order.

        Raises:
            BadRequest: naming the field and what is wrong with it.
        """
        spoken = collect_messages(self._all(messages)) if bytes(messages) not in (b"", b"null") else []
        if sum(len(one.attachments) for one in spoken) > FILES_MOST:
            text = f"messages: at most {FILES_MOST} images in all of them; leave the oldest out."
            raise BadRequest(text, "messages", code="too_large", status=413)
        return spoken

    def _all(self, messages: msgspec.Raw) -> Iterator[ClientMessage]:
        too_many = f"messages: at most {MESSAGES_MOST:,}; leave the oldest out."
        for n, (message, place) in enumerate(decode_messages(messages, MessageBody, MESSAGES_MOST, too_many)):
            yield self._spoken(message, place, n)

    def _spoken(self, message: MessageBody, place: str, n: int) -> ClientMessage:
        text = text_of(message.content, f"{place}.content")
        match message.role.lower():
            case "system":
                return ClientMessage("system", text)
            case "user":
                return ClientMessage("user", text, images_of(message.images, f"{place}.images"))
            case "assistant":
                if len(message.tool_calls or ()) > CALLS_MOST:
                    field = f"{place}.tool_calls"
                    raise BadRequest(f"{field}: at most {CALLS_MOST}.", field, code="too_large", status=413)
                calls = tuple(_handed(call, n, index) for index, call in enumerate(message.tool_calls or ()))
                self._open = [*calls] if calls else self._open
                return ClientMessage("assistant", text, calls=calls)
            case "tool":
                return ClientMessage("tool", text, call_id=self._answered(message))
        raise BadRequest(f"{place}.role must be system, user, assistant or tool.", f"{place}.role")

    def _answered(self, message: MessageBody) -> str:
        """The id of its call: as told, else of the first of that name to which no result was given yet."""
        for call in self._open:
            if _names(message, call):
                self._open.remove(call)
                return call.call_id
        return message.tool_call_id or ""


def _names(message: MessageBody, call: ClientToolCall) -> bool:
    """Whether a tool's message is the answer to this call; one that names none is to whichever is open."""
    if message.tool_call_id:
        return message.tool_call_id == call.call_id
    return message.tool_name in (call.name, "", None)


def _handed(call: CallBody, n: int, index: int) -> ClientToolCall:
    place = f"messages[{n}].tool_calls[{index}].function.arguments"
    arguments = mapping(call.function.arguments, ARGUMENTS_BYTES, place)
    return ClientToolCall(call.id or f"call_{n}_{index}", call.function.name, arguments or {})


def text_of(text: str | None, place: str) -> str:
    """A text at this place.

    Raises:
        BadRequest: when it is too long.
    """
    if text is not None and len(text) > MESSAGE_LENGTH:
        message = f"{place} may be {MESSAGE_LENGTH:,} characters long."
        raise BadRequest(message, place, code="too_large", status=413)
    return text or ""


def images_of(images: list[str] | None, place: str) -> tuple[Attachment, ...]:
    """The pictures at this place.

    Raises:
        BadRequest: when there are too many, or one is no base64, empty or too large.
    """
    if images and len(images) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    return tuple(_image(data, f"{place}[{n}]") for n, data in enumerate(images or ()))


def _image(encoded: str, place: str) -> Attachment:
    head, _, rest = encoded.partition(",") if encoded.startswith("data:") else ("", "", encoded)
    try:
        data = base64.b64decode("".join(rest.split()), validate=True)
    except ValueError:
        raise BadRequest(f"{place} is not valid base64.", place) from None
    return make_attachment("image", head[5:], data, place)
