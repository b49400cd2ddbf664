"""How large a terminal is."""

import os

NARROWEST = 24
"""Columns that are drawn in; a narrower terminal gets plain text."""
_FALLBACK = 80, 24


def size_of(fd: int) -> tuple[int, int]:
    """Columns and lines of a terminal; a common size where it tells none."""
    try:
        columns, lines = os.get_terminal_size(fd)
    except OSError:
        return _FALLBACK
    return columns or _FALLBACK[0], lines or _FALLBACK[1]
