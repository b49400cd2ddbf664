"""Wing: reads items of JSON that differ in one text only, without decoding the rest of them again."""

import re
from contextlib import suppress

import msgspec

LESSONS = 8
"""How many frames in a row are learnt in vain, by a server that changes more than the text in every item."""

_decoded = msgspec.json.Decoder(str).decode
_all_decoded = msgspec.json.Decoder(list[str]).decode


class Frame:
    """What stands before and behind the text in the events of one answer, learnt from those that were read as a whole.

    Events with the same bytes before and behind one whole JSON string each (RFC 8259, section 7) have the same
    structure, so that only their strings are to be decoded, all of a read at once.

    Args:
        key: the name of the member that holds the text.
    """

    __slots__ = ("_before", "_behind", "_lessons", "_string", "_text")

    def __init__(self, key: str) -> None:
        self._text = re.compile(rb'"%b"\s*:\s*("(?:[^"\\]|\\.)*")' % re.escape(key.encode()))
        self._before = self._behind = b"\n"  # no event has it
        self._string = slice(0)
        self._lessons = LESSONS

    def texts(self, events: bytes) -> list[str] | None:
        """The texts of events that all have the frame; None when one of them may say something else."""
        if not events.startswith(self._before) or not events.endswith(self._behind):
            return None
        strings = [events[self._string]]
        if len(strings[0]) > len(self._behind):
            strings = self._strings(events, strings[0])
        try:  # no string holds a line end, so none can end in another than it began in
            texts = _all_decoded(b"[%b]" % b",\n".join(strings))
        except ValueError:
            return None
        if len(texts) != len(strings):
            return None
        self._lessons = LESSONS
        return texts

    def learn(self, data: bytes, text: str) -> None:
        """Takes the frame of an event whose data say this text, and nothing else."""
        if not self._lessons:
            return
        self._lessons -= 1
        found = list(self._text.finditer(data))
        with suppress(ValueError):  # half a character, which this decoder does not read
            if len(found) == 1 and _decoded(found[0][1]) == text:
                start, end = found[0].span(1)
                self._before, self._behind = b"data: " + data[:start], data[end:] + b"\n\n"
                self._string = slice(len(self._before), -len(self._behind))

    def _strings(self, events: bytes, inner: bytes) -> list[bytes]:
        """The strings of several events; `inner` as a whole when they have not all the frame.

        To cut where strings must be and to compare what was cut away costs half of searching for it.
        """
        string = slice(len(self._before), 2 - len(self._behind))
        strings = [line[string] for line in events.split(b"\n")[:-1:2]]
        return strings if (self._behind + self._before).join(strings) == inner else [inner]
