"""Wing: reads items of JSON that differ in one text only, without decoding the rest of them again."""

import re
from contextlib import suppress

import msgspec

LESSONS = 8
"""How many frames in a row are learnt in vain, by a server that changes more than the text in every item."""

_string = msgspec.json.Decoder(str).decode
_strings = msgspec.json.Decoder(list[str]).decode


class Frame:
    """What stands before and behind the text in the items of one answer, learnt from those that were read as a whole.

    Items with the same bytes before and behind one whole JSON string each (RFC 8259, section 7) have the same
    structure, so that only their strings are to be decoded, all of a read at once.

    Args:
        key: the name of the member that holds the text.
        start, end: what stands around the JSON of an item.
    """

    def __init__(self, key: str, start: bytes, end: bytes) -> None:
        self._text = re.compile(rb'"%b"\s*:\s*("(?:[^"\\]|\\.)*")' % re.escape(key.encode()))
        self._start, self._end = start, end
        self._before = self._behind = b"\n"  # no item has it
        self._strings = slice(0)
        self._lessons = LESSONS

    def texts(self, items: bytes) -> list[str] | None:
        """The texts of items that all have the frame; None when one of them may say something else."""
        if not items.startswith(self._before) or not items.endswith(self._behind):
            return None
        text = items[self._strings]
        strings = text.split(self._behind + self._before) if len(text) > len(self._behind) else [text]
        try:  # no string holds a line end, so none can end in another than it began in
            texts = _strings(b"[%b]" % b",\n".join(strings))
        except ValueError:
            return None
        if len(texts) != len(strings):
            return None
        self._lessons = LESSONS
        return texts

    def learn(self, item: bytes, text: str) -> None:
        """Takes the frame of an item that says this text, and nothing else."""
        if not self._lessons:
            return
        self._lessons -= 1
        found = list(self._text.finditer(item))
        with suppress(ValueError):  # half a character, which this decoder does not read
            if len(found) == 1 and _string(found[0][1]) == text:
                start, end = found[0].span(1)
                self._before, self._behind = self._start + item[:start], item[end:] + self._end
                self._strings = slice(len(self._before), -len(self._behind))
