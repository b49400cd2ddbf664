"""Decode JSON events that differ in one text only; decode the rest once."""

import re
from contextlib import suppress
from functools import lru_cache

import msgspec

MAX_TEMPLATE_CHANGES = 8
"""Number of unused templates in a row before learning stops: the server changes more than the text."""

MAX_EVENT_BYTES = 4096
"""Maximum size of an event to learn from; the search in a larger one takes long."""

END = b"\n\n"
QUOTE = ord('"')

_decode_string = msgspec.json.Decoder(str).decode
_decode_strings = msgspec.json.Decoder(list[str]).decode


@lru_cache
def _member(key: str) -> re.Pattern[bytes]:
    """Return the pattern of a member with a text."""
    return re.compile(rb'"%b"\s*:\s*("(?:[^"\\]|\\.)*")' % re.escape(key.encode()))


class EventTemplate:
    """The bytes before and after the text in the events of one answer, learned from a decoded event.

    Events with the same bytes before and after one whole JSON string each (RFC 8259, section 7) have the same
    structure, so only their strings need decoding, all of a read at once.

    Args:
        key: Name of the member with the text.
    """

    __slots__ = ("_after", "_before", "_changes_left", "_key", "_string")

    def __init__(self, key: str) -> None:
        self._key = _member(key)
        self._before = self._after = b"\n"  # which no event has; `_after` includes the event's end
        self._string = slice(0)
        self._changes_left = MAX_TEMPLATE_CHANGES

    def texts(self, events: bytes) -> list[str] | None:
        """Return the texts of events that all match the template; None if one may contain anything else."""
        if not (events.startswith(self._before) and events.endswith(self._after)):
            return None
        inner = events[self._string]
        try:
            if len(inner) > len(self._after):
                texts = self._decode_all(events, inner)
            else:
                texts = [_decode_string(inner)] if inner[0] == inner[-1] == QUOTE else None
        except (ValueError, IndexError):  # no whole string: the structure is another one
            return None
        if texts is not None:
            self._changes_left = MAX_TEMPLATE_CHANGES
        return texts

    def _decode_all(self, events: bytes, inner: bytes) -> list[str] | None:
        """Return the texts of several events.

        Cutting at fixed positions and comparing the rest costs half of a search. No JSON string contains a line end, so
        no string can reach into the next event.
        """
        string = slice(self._string.start, self._string.stop + len(END))
        strings = [line[string] for line in events.split(b"\n")[:-1:2]]
        if b"\r" in inner or (self._after + self._before).join(strings) != inner:
            return None
        texts: list[str] = _decode_strings(b"[%b]" % b",\n".join(strings))
        return texts if len(texts) == len(strings) else None

    def learn(self, event: bytes, text: str) -> None:
        """Learn the template of an event (without its end) that contains this text only."""
        if not self._changes_left or len(event) > MAX_EVENT_BYTES:
            return
        self._changes_left -= 1
        matches = list(self._key.finditer(event))
        with suppress(ValueError):  # half a character, which this decoder does not read
            if len(matches) == 1 and _decode_string(matches[0][1]) == text:
                start, end = matches[0].span(1)
                self._before, self._after = event[:start], event[end:] + END
                self._string = slice(start, -len(self._after))
