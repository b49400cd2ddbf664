"""Files as clients send them, in all protocols, within limits."""

import re

from brain.errors import BadRequest
from brain.messages import Attachment, sniff

ATTACHMENT_BYTES = 16 * 1024 * 1024
MAX_ATTACHMENTS = 10

_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}", re.ASCII)


def make_attachment(name: str, claimed: str, data: bytes, field: str) -> Attachment:
    """A file as an attachment; its name loses any folder, its type follows its content.

    Raises:
        BadRequest: when it is empty or too large.
    """
    if not data:
        raise BadRequest(f"{field} is empty.", field)
    if len(data) > ATTACHMENT_BYTES:
        raise BadRequest(f"{field} is larger than 16 MiB.", field, code="too_large", status=413)
    shown = "".join(character if character.isprintable() else " " for character in re.split(r"[/\\]", name)[-1])
    media_type = claimed.partition(";")[0].strip().lower()
    claimed = media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream"
    return Attachment(0, " ".join(shown.split())[:200] or "file", sniff(data, claimed), data)


def too_many_attachments() -> BadRequest:
    """What is said of a message with too many files."""
    return BadRequest(f"At most {MAX_ATTACHMENTS} attachments a message.", "attachments", code="too_large", status=413)
