"""Remove characters that could control a terminal."""

import re

from brain.text import strip_invisible

_SPACES = str.maketrans({"\t": "    ", "\u2028": " ", "\u2029": " "})
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Single characters that move the cursor, start a sequence or reverse text; a cut between them changes nothing."""


def remove_controls(text: str) -> str:
    """Return a piece of text without control characters, except line breaks and tabs."""
    return _CONTROLS.sub("", text)


def legible(text: str) -> str:
    """Return a whole text without invisible characters; line breaks stay, tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(strip_invisible(line) for line in text.translate(_SPACES).split("\n"))
