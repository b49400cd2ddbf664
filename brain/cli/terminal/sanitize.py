"""Which characters may reach a terminal, whoever wrote them."""

import re

from brain.text import strip_invisible

_SPACES = str.maketrans({"\t": "    ", "\u2028": " ", "\u2029": " "})
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a cursor, begins a sequence or turns text around: single characters, found however a text was cut."""


def unsteered(text: str) -> str:
    """A piece of a text without the characters that steer; lines and tabs stay."""
    return _STEERING.sub("", text)


def legible(text: str) -> str:
    """A whole text without any character that nobody sees; lines stay, tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(strip_invisible(line) for line in text.translate(_SPACES).split("\n"))
