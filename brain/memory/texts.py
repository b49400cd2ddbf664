"""How a fact or a memory is written: one harmless line."""

from brain.markers.neutralize import neutralize
from brain.text import strip_invisible

FACT_LENGTH = 500
MEMORY_LENGTH = 1000
BETWEEN = " / "
"""What stands between the quotes in a memory."""


def one_line(text: str) -> str:
    """The text in one line, without hidden characters, and with nothing that could be taken for a marker."""
    return neutralize(" ".join(strip_invisible(text[: 8 * MEMORY_LENGTH]).split()))
