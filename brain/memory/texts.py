"""Rooms: how a fact or a memory is written: one harmless line."""

import regex

from brain.blocks import harmless

FACT_LENGTH = 500
MEMORY_LENGTH = 1000
_HIDDEN = regex.compile(r"[\p{Cc}\p{Cf}\p{Co}\p{Cn}--[\u200c\u200d]]+", regex.V1)
"""Characters that nobody sees, but those that join or part letters of some scripts."""


def one_line(text: str) -> str:
    """The text in one line, without hidden characters, and with nothing that could be taken for a marker."""
    seen = _HIDDEN.sub(lambda hidden: " " if hidden[0].isspace() else "", text[: 8 * MEMORY_LENGTH])
    return harmless(" ".join(seen.split())).strip('"“”„ ')
