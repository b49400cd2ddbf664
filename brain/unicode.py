"""Ground: text that UTF-8 can carry. Strings of Python and JSON may hold halves of characters, which it cannot."""

import re

halved = re.compile("[\ud800-\udfff]").search
"""Finds the first half of a character."""


def joined(text: str) -> tuple[str, str]:
    """The text with pairs of halves joined, and lone ones replaced by U+FFFD.

    A first half at the very end is given apart: its partner may come with the next text.
    """
    if text.isascii() or not halved(text):
        return text, ""
    half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
    return text.removesuffix(half).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), half


def well_formed(text: str) -> str:
    """The same for a text that is complete."""
    whole, half = joined(text)
    return whole + "\ufffd" if half else whole
