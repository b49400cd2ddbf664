"""Find the attachment that a call names, and format its name."""

import re

from brain import Attachment, Context, Refused
from specialists._kit.text import one_line

_NAME_LENGTH = 80


def pick_attachment(context: Context, image_id: int | None) -> Attachment:
    """Return the image or PDF with this ID, or the newest one.

    Raises:
        Refused: if it does not exist; the advice lists the others.
    """
    pictures = {attachment.id: attachment for attachment in context.attachments if attachment.kind in ("image", "pdf")}
    if not pictures:
        raise Refused("no image or PDF is attached to this conversation", "ask the user to attach one")
    chosen = max(pictures) if image_id is None else image_id
    if chosen not in pictures:
        listed = ", ".join(f"{number} '{display_name(one.name)}'" for number, one in sorted(pictures.items()))
        raise Refused(f"no image or PDF has the image_id {chosen}", f"use one of: {listed}")
    return pictures[chosen]


def display_name(name: str) -> str:
    """Return a file name without directories, as one short line."""
    last = re.split(r"[\\/]", name)[-1]
    return one_line(last, _NAME_LENGTH) or "unnamed"
