"""Decodes JSON items that differ in one text only, without decoding the rest of them again."""

import re
from contextlib import suppress

import msgspec

MAX_TEMPLATE_CHANGES = 8
"""Templates that are learned in vain, one after the other, when a server changes more than the text in every item."""

MAX_EVENT_BYTES = 4096
"""No template is learned from a larger event, in which the search would take long."""

END = b"\n\n"
QUOTE = ord('"')

_decode_string = msgspec.json.Decoder(str).decode
_decode_strings = msgspec.json.Decoder(list[str]).decode


class EventTemplate:
    """The bytes before and after the text in the events of one answer, learned from an event that was decoded whole.

    Events with the same bytes before and after one whole JSON string each (RFC 8259, section 7) have the same
    structure, so only their strings need decoding, all of a read at once.

    Args:
        key: the name of the member that holds the text.
    """

    __slots__ = ("_after", "_before", "_changes_left", "_key", "_string")

    def __init__(self, key: str) -> None:
        self._key = re.compile(rb'"%b"\s*:\s*("(?:[^"\\]|\\.)*")' % re.escape(key.encode()))
        self._before = self._after = b"\n"  # which no event has; `_after` includes the event's end
        self._string = slice(0)
        self._changes_left = MAX_TEMPLATE_CHANGES

    def texts(self, events: bytes) -> list[str] | None:
        """Return the texts of events that all match the template; None when one may hold something else."""
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
        """The texts of several events.

        Cutting where strings must be and comparing what was cut away costs half of searching. No string holds a line
        end, so none can end in another event than it began in.
        """
        string = slice(self._string.start, self._string.stop + len(END))
        strings = [line[string] for line in events.split(b"\n")[:-1:2]]
        if b"\r" in inner or (self._after + self._before).join(strings) != inner:
            return None
        texts: list[str] = _decode_strings(b"[%b]" % b",\n".join(strings))
        return texts if len(texts) == len(strings) else None

    def learn(self, event: bytes, text: str) -> None:
        """Learn the template of an event (without its end) that holds this text and nothing else."""
        if not self._changes_left or len(event) > MAX_EVENT_BYTES:
            return
        self._changes_left -= 1
        matches = list(self._key.finditer(event))
        with suppress(ValueError):  # half a character, which this decoder does not read
            if len(matches) == 1 and _decode_string(matches[0][1]) == text:
                start, end = matches[0].span(1)
                self._before, self._after = event[:start], event[end:] + END
                self._string = slice(start, -len(self._after))
