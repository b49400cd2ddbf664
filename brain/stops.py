"""Core: ends an answer at the first of a client's stop texts, wherever the text was cut. Pure: text in, text out."""

from collections.abc import Sequence

STOPS_MOST = 16
STOP_LENGTH = 256
"""Characters; so much text at most is held back until it is known not to be a stop."""


class Stops:
    """Watches the visible text of one pass.

    Attributes:
        found: whether a stop came; nothing behind it is given.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._held = ""
        self.found = False

    def feed(self, text: str) -> str:
        """What of the text so far can be shown now."""
        if self.found:
            return ""
        text = self._held + text
        ends = [at for at in map(text.find, self._texts) if at >= 0]
        self.found = bool(ends)
        shown = min(ends) if ends else len(text) - self._beginning(text)
        self._held = "" if ends else text[shown:]
        return text[:shown]

    def close(self) -> str:
        """What was held back, when no more text will come."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """How many characters at the end of `text` could begin a stop."""
        most = min(len(text), max(map(len, self._texts)) - 1)
        return next((n for n in range(most, 0, -1) if any(one.startswith(text[-n:]) for one in self._texts)), 0)
