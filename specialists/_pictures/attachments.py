"""Finds the attachment that a call names, and shows its name."""

import re

from brain import Attachment, Context, Refused

_NAME_LENGTH = 80


def pick_attachment(context: Context, image_id: int | None) -> Attachment:
    """Return the image or PDF with this id, or the newest one.

    Raises:
        Refused: if there is none, naming the others.
    """
    pictures = {attachment.id: attachment for attachment in context.attachments if attachment.kind in ("image", "pdf")}
    if not pictures:
        raise Refused("no image is attached to this conversation; ask the user to attach an image or a PDF")
    chosen = max(pictures) if image_id is None else image_id
    if chosen not in pictures:
        there = ", ".join(
            f"{number} '{display_name(attachment.name)}'" for number, attachment in sorted(pictures.items())
        )
        raise Refused(f"no image or PDF has the image_id {chosen}; there are: {there}")
    return pictures[chosen]


def display_name(name: str) -> str:
    """Return a file's name without folders, as one short line."""
    last = re.split(r"[\\/]", name)[-1]
    line = " ".join("".join(c if c.isprintable() else " " for c in last).split())
    return (line if len(line) <= _NAME_LENGTH else line[: _NAME_LENGTH - 1] + "…") or "unnamed"
