"""Find the attachment that a call names, and format its name."""

import re
from collections.abc import Sequence

from brain import Attachment, Context, Refused
from specialists._kit.text import one_line

_NAME_LENGTH = 80
_NUMBERED = re.compile(
    r"\b(?:image|picture|photo|attachment|file|scan|bild|foto|anhang|datei|imagen?|fichier|archivo|adjunto)\s+#?(\d{1,4})\b",
    re.IGNORECASE,
)
_PAGE = re.compile(r"\b(?:pages?|seiten?|páginas?|s\.|p\.)\s*(\d{1,4})\b", re.IGNORECASE)


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


def find_attachment(message: str, attachments: Sequence[Attachment]) -> int | None:
    """Return the ID of the image or PDF that a message names, by its number or its file name."""
    pictures = [one for one in attachments if one.kind in ("image", "pdf")]
    named = [one.id for one in pictures if one.name and display_name(one.name).lower() in message.lower()]
    numbers = [int(found[1]) for found in _NUMBERED.finditer(message)]
    numbered = [number for number in numbers if number in [one.id for one in attachments]]
    return next(iter([*named, *numbered]), None)


def find_page(message: str) -> int | None:
    """Return the page that a message names."""
    found = _PAGE.search(message)
    return max(1, int(found[1])) if found else None
