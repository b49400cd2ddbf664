"""Reads items of JSON that differ in one text only, without decoding the rest of them again."""

import re
from contextlib import suppress

import msgspec

LESSONS = 8
"""How many frames in a row are learnt in vain, by a server that changes more than the text in every item."""

EVENT_BYTES = 4096
"""No frame is learnt from a larger event, in which it would take long to be found."""

END = b"\n\n"
QUOTE = ord('"')

_decoded = msgspec.json.Decoder(str).decode
_all_decoded = msgspec.json.Decoder(list[str]).decode


class Frame:
    """What stands before and behind the text in the events of one answer, learnt from those that were read as a whole.

    Events with the same bytes before and behind one whole JSON string each (RFC 8259, section 7) have the same
    structure, so that only their strings are to be decoded, all of a read at once.

    Args:
        key: the name of the member that holds the text.
    """

    __slots__ = ("_before", "_behind", "_key", "_lessons", "_string")

    def __init__(self, key: str) -> None:
        self._key = re.compile(rb'"%b"\s*:\s*("(?:[^"\\]|\\.)*")' % re.escape(key.encode()))
        self._before = self._behind = b"\n"  # no event has it; `_behind` is with the event's end
        self._string = slice(0)
        self._lessons = LESSONS

    def texts(self, events: bytes) -> list[str] | None:
        """The texts of whole events that all have the frame; None when one of them may say something else."""
        if not (events.startswith(self._before) and events.endswith(self._behind)):
            return None
        inner = events[self._string]
        try:
            if len(inner) > len(self._behind):
                texts = self._all(events, inner)
            else:
                texts = [_decoded(inner)] if inner[0] == inner[-1] == QUOTE else None
        except (ValueError, IndexError):  # no whole string: the structure is another one
            return None
        if texts is not None:
            self._lessons = LESSONS
        return texts

    def _all(self, events: bytes, inner: bytes) -> list[str] | None:
        """The texts of several events.

        To cut where strings must be and to compare what was cut away costs half of searching for it. No string holds a
        line end, so that none can end in another than it began in.
        """
        string = slice(self._string.start, self._string.stop + len(END))
        strings = [line[string] for line in events.split(b"\n")[:-1:2]]
        if b"\r" in inner or (self._behind + self._before).join(strings) != inner:
            return None
        texts: list[str] = _all_decoded(b"[%b]" % b",\n".join(strings))
        return texts if len(texts) == len(strings) else None

    def learn(self, event: bytes, text: str) -> None:
        """Takes the frame of an event (without its end) that says this text, and nothing else."""
        if not self._lessons or len(event) > EVENT_BYTES:
            return
        self._lessons -= 1
        found = list(self._key.finditer(event))
        with suppress(ValueError):  # half a character, which this decoder does not read
            if len(found) == 1 and _decoded(found[0][1]) == text:
                start, end = found[0].span(1)
                self._before, self._behind = event[:start], event[end:] + END
                self._string = slice(start, -len(self._behind))
