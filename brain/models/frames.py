"""Wing: reads items of JSON that differ in one text only, without decoding the rest of them again."""

import re
from contextlib import suppress

import msgspec

LESSONS = 8
"""How many frames in a row are learnt in vain, by a server that changes more than the text in every item."""

END = b"\n\n"

_decoded = msgspec.json.Decoder(str).decode
_all_decoded = msgspec.json.Decoder(list[str]).decode


class Frame:
    """What stands before and behind the text in the events of one answer, learnt from those that were read as a whole.

    Events with the same bytes before and behind one whole JSON string each (RFC 8259, section 7) have the same
    structure, so that only their strings are to be decoded, all of a read at once.

    Args:
        key: the name of the member that holds the text.
    """

    __slots__ = ("_before", "_behind", "_inner", "_key", "_lessons", "_string")

    def __init__(self, key: str) -> None:
        self._key = re.compile(rb'"%b"\s*:\s*("(?:[^"\\]|\\.)*")' % re.escape(key.encode()))
        self._before = self._behind = b"\n"  # no event has it
        self._string = self._inner = slice(0)  # of an event, of events with their ends
        self._lessons = LESSONS

    def text(self, event: bytes) -> str | None:
        """The text of an event, which comes without its end; None when it may say something else."""
        if event.startswith(self._before) and event.endswith(self._behind):
            return self._decoded(event[self._string])
        return None

    def texts(self, events: bytes) -> list[str] | None:
        """The texts of whole events that all have the frame; None when one of them may say something else.

        To cut where strings must be and to compare what was cut away costs half of searching for it.
        """
        if not (events.startswith(self._before) and events.endswith(END) and events.endswith(self._behind, 0, -2)):
            return None
        inner = events[self._inner]
        if len(inner) <= len(self._behind):
            text = self._decoded(inner)
            return None if text is None else [text]
        strings = [line[self._string] for line in events.split(b"\n")[:-1:2]]
        if b"\r" in inner or (self._behind + END + self._before).join(strings) != inner:
            return None
        try:  # no string holds a line end, so none can end in another than it began in
            texts = _all_decoded(b"[%b]" % b",\n".join(strings))
        except ValueError:
            return None
        if len(texts) != len(strings):
            return None
        self._lessons = LESSONS
        return texts

    def _decoded(self, string: bytes) -> str | None:
        """One whole string; None when it is something else, and the structure, or the line, ends elsewhere."""
        try:
            text: str = _decoded(string)
        except ValueError:
            return None
        if b"\n" in string or b"\r" in string:
            return None
        self._lessons = LESSONS
        return text

    def learn(self, event: bytes, text: str) -> None:
        """Takes the frame of an event that says this text, and nothing else."""
        if not self._lessons:
            return
        self._lessons -= 1
        found = list(self._key.finditer(event))
        with suppress(ValueError):  # half a character, which this decoder does not read
            if len(found) == 1 and _decoded(found[0][1]) == text:
                start, end = found[0].span(1)
                self._before, self._behind = event[:start], event[end:]
                self._string, self._inner = slice(start, end - len(event)), slice(start, end - len(event) - len(END))
