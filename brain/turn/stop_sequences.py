"""Ends an answer at the first of a client's stop texts, wherever the text was cut. Pure: text in, text out."""

from collections.abc import Sequence

STOPS_MOST = 16
STOP_LENGTH = 256
"""Characters; so much text at most is held back until it is known not to be a stop."""


class Stops:
    """Watches the visible text of one pass. The stop that is complete first counts, of several the longest.

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
        places = ((text.find(stop), stop) for stop in self._texts)
        ends = [(at + len(stop), at) for at, stop in places if at >= 0]
        self.found = bool(ends)
        shown = min(ends)[1] if ends else min(_begins(text, stop) for stop in self._texts)
        self._held = "" if ends else text[shown:]
        return text[:shown]

    def close(self) -> str:
        """What was held back, when no more text will come."""
        held, self._held = self._held, ""
        return held


def _begins(text: str, stop: str) -> int:
    """Where at the end of `text` a stop could have begun."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0 and not stop.startswith(text[at:]):
        at = text.find(stop[0], at + 1)
    return at if at >= 0 else len(text)
