"""The messages of OpenAI's clients, as what was spoken: texts, files, calls of their tools, and the results."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from brain.errors import BadRequest
from brain.messages import Attachment, ClientMessage, ClientToolCall
from brain.protocols.attachments import MAX_ATTACHMENTS, make_attachment, too_many_attachments
from brain.protocols.bodies import collect_messages, decode_any, decode_messages
from brain.protocols.native import MESSAGE_LENGTH
from brain.protocols.openai.schema import CallBody, FileBody, ImageBody, MessageBody, PartBody, is_given

MESSAGES_MOST = 4096
FILES_MOST = 100
"""In all messages together."""
PARTS_MOST = 1000
CALLS_MOST = 128
"""In one message, as parts."""


def parse_messages(sent: msgspec.Raw) -> list[ClientMessage]:
    """All messages, in order.

    Raises:
        BadRequest: naming the field and what is wrong with it.
    """
    spoken = collect_messages(_all(sent))
    if not spoken:
        raise BadRequest("messages is empty.", "messages")
    if sum(len(one.attachments) for one in spoken) > FILES_MOST:
        message = f"At most {FILES_MOST} files in all messages."
        raise BadRequest(message, "messages", code="too_large", status=413)
    return spoken


def _all(sent: msgspec.Raw) -> Iterator[ClientMessage]:
    for message, place in decode_messages(sent, MessageBody, MESSAGES_MOST, f"At most {MESSAGES_MOST:,} messages."):
        yield _spoken(message, place)


def _spoken(sent: MessageBody, place: str) -> ClientMessage:
    text, files = _content(sent.content, f"{place}.content")
    if files and sent.role != "user":
        raise BadRequest(f"{place}.content: only a user's message has files.", f"{place}.content")
    match sent.role:
        case "system" | "developer":
            return ClientMessage("system", text)
        case "user":
            return ClientMessage("user", text, files)
        case "assistant":
            return ClientMessage("assistant", text or sent.refusal or "", calls=_calls(sent, place))
        case "tool":
            if not sent.tool_call_id:
                raise BadRequest(f"{place}.tool_call_id is missing.", f"{place}.tool_call_id")
            return ClientMessage("tool", text, call_id=sent.tool_call_id)
    allowed = "system, developer, user, assistant or tool"
    raise BadRequest(f"{place}.role must be {allowed}.", f"{place}.role")


def _content(sent: str | Sequence[PartBody] | None, place: str) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a message, a line for each of its parts, and its files."""
    if sent is None or isinstance(sent, str):
        return _checked(sent or "", place), ()
    if len(sent) > PARTS_MOST:
        raise BadRequest(f"{place}: at most {PARTS_MOST:,} parts.", place, code="too_large", status=413)
    parts = [_part(part, f"{place}[{n}]") for n, part in enumerate(sent)]
    files = tuple(part for part in parts if isinstance(part, Attachment))
    if len(files) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    return _checked("\n".join([part for part in parts if isinstance(part, str)]), place), files


def _part(sent: PartBody, place: str) -> str | Attachment:
    match sent.type:
        case "text" if sent.text is not None:
            return sent.text
        case "refusal" if sent.refusal is not None:
            return sent.refusal
        case "image_url" if sent.image_url is not None:
            return _image(sent.image_url, f"{place}.image_url")
        case "file" if sent.file is not None:
            return _file(sent.file, f"{place}.file")
        case "text" | "refusal" | "image_url" | "file":
            raise BadRequest(f"{place}.{sent.type} is missing.", f"{place}.{sent.type}")
    raise BadRequest(f"{place}.type must be text, image_url or file.", f"{place}.type")


def _image(sent: ImageBody | str, place: str) -> Attachment:
    url = sent if isinstance(sent, str) else sent.url
    if not url.startswith("data:"):
        raise BadRequest(f"{place}: pictures are not fetched; send it as data:image/png;base64,….", place)
    media_type, data = _of_data_url(url, place)
    ending = media_type.partition("/")[2].partition("+")[0]
    return make_attachment(f"image.{ending}" if ending else "image", media_type, data, place)


def _file(sent: FileBody, place: str) -> Attachment:
    if not sent.file_data:
        raise BadRequest(f"{place}: files are not kept here; send its content as file_data.", place)
    name = sent.filename or "file"
    place = f"{place}.file_data"
    if sent.file_data.startswith("data:"):
        media_type, data = _of_data_url(sent.file_data, place)
    else:
        media_type, data = "", _bytes(sent.file_data, place)
    return make_attachment(name, media_type, data, place)


def _of_data_url(url: str, place: str) -> tuple[str, bytes]:
    head, comma, encoded = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise BadRequest(f"{place} must be data:TYPE;base64,….", place)
    return head.removeprefix("data:").partition(";")[0], _bytes(encoded, place)


def _bytes(encoded: str, place: str) -> bytes:
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except ValueError:
        raise BadRequest(f"{place} is not valid base64.", place) from None


def _calls(sent: MessageBody, place: str) -> tuple[ClientToolCall, ...]:
    if is_given(sent.function_call):
        message = f"{place}.function_call is no longer known; use tool_calls."
        raise BadRequest(message, f"{place}.function_call")
    place = f"{place}.tool_calls"
    if len(sent.tool_calls or ()) > CALLS_MOST:
        raise BadRequest(f"{place}: at most {CALLS_MOST}.", place, code="too_large", status=413)
    return tuple(_handed(call, f"{place}[{n}]") for n, call in enumerate(sent.tool_calls or ()))


def _handed(sent: CallBody, place: str) -> ClientToolCall:
    if sent.type != "function":
        raise BadRequest(f"{place}.type must be function.", f"{place}.type")
    return ClientToolCall(sent.id, sent.function.name, _params(sent.function.arguments, f"{place}.function.arguments"))


def _params(sent: msgspec.Raw, place: str) -> Mapping[str, Any]:
    """What a tool was called with. A model may have written no JSON: its client cannot mend what was said."""
    if not is_given(sent):
        return {}
    value = decode_any(sent, MESSAGE_LENGTH, place)
    if isinstance(value, str):
        try:
            value = decode_any(msgspec.Raw(value.encode()), MESSAGE_LENGTH, place) if value.strip() else {}
        except BadRequest:
            return {"arguments": value}
    return value if isinstance(value, dict) else {"arguments": value}


def _checked(text: str, place: str) -> str:
    if len(text) > MESSAGE_LENGTH:
        message = f"{place} may be {MESSAGE_LENGTH:,} characters long."
        raise BadRequest(message, place, code="too_large", status=413)
    return text
