"""Files that clients send; shared by all protocols."""

import base64
import re

from brain.errors import BadRequest
from brain.messages import Attachment, sniff
from brain.protocols.bodies import invalid, quote_field, too_large

ATTACHMENT_BYTES = 16 * 1024 * 1024
"""Size limit of one file."""
MAX_ATTACHMENTS = 10
"""Files per message."""

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)


def make_attachment(name: str, media_type: str, data: bytes, field: str) -> Attachment:
    """Return a file without an ID. Folders are removed from its name; its content overrides `media_type`."""
    if not data:
        raise invalid(field, "is empty")
    if len(data) > ATTACHMENT_BYTES:
        raise too_large(f"{quote_field(field)} is larger than the limit of {ATTACHMENT_BYTES >> 20} MiB.", field)
    name = "".join(character if character.isprintable() else " " for character in re.split(r"[/\\]", name)[-1])
    media_type = media_type.partition(";")[0].strip().lower()
    media_type = media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream"
    return Attachment(0, " ".join(name.split())[:200] or "file", sniff(data, media_type), data)


def decode_attachment(name: str, media_type: str, text: str, field: str) -> Attachment:
    """Return a file from base64 or from a `data:` URL, whose media type is used if `media_type` is empty."""
    head, _, encoded = text.partition(",") if text.startswith("data:") else ("", "", text)
    try:
        data = base64.b64decode("".join(encoded.split()), validate=True)
    except ValueError:
        raise invalid(field, "is not valid base64") from None
    return make_attachment(name, media_type or head.removeprefix("data:"), data, field)


def too_many_attachments(count: int | None = None) -> BadRequest:
    """Return the error for a message with too many files, and their number if it is known."""
    found = "" if count is None else f", not {count}"
    return too_large(f"A message can have up to {MAX_ATTACHMENTS} attachments{found}. Send fewer.", "attachments")
