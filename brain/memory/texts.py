"""The text form of facts and memories: one neutralized line."""

from brain.markers.neutralize import neutralize
from brain.text import strip_invisible

FACT_LENGTH = 500
MEMORY_LENGTH = 1000
BETWEEN = " / "
"""Separates the quotes in a memory."""


def one_line(text: str) -> str:
    """Return the text as one line, without invisible characters and with markers neutralized."""
    return neutralize(" ".join(strip_invisible(text[: 8 * MEMORY_LENGTH]).split()))
