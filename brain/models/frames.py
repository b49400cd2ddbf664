"""Wing: reads chunks of JSON that differ from the one before in one text only, without decoding the rest again."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from brain.models.replies import Part

LESSONS = 8
"""How many frames in a row are learnt in vain, by a server that changes more than the text in every chunk."""

_string = msgspec.json.Decoder(str).decode


class Frame:
    """What stands before and behind the text in the chunks of one answer, learnt from each that was read as a whole.

    A chunk with the same bytes before and behind one whole JSON string (RFC 8259, section 7) has the same structure,
    so that only its string is to be decoded. Every other chunk is read as a whole.

    Args:
        key: the name of the member that holds the text.
        whole: reads a chunk that may say anything.
    """

    def __init__(self, key: str, whole: Callable[[bytes], Sequence[Part]]) -> None:
        self._text = re.compile(rb'"%b"\s*:\s*("(?:[^"\\]|\\.)*")' % re.escape(key.encode()))
        self._whole = whole
        self._before = self._behind = b""
        self._slice = slice(0)
        self._lessons = LESSONS

    def parts(self, chunk: bytes) -> str | Sequence[Part]:
        """What a chunk says; as `whole` does."""
        if chunk.startswith(self._before) and chunk.endswith(self._behind):
            try:
                text: str = _string(chunk[self._slice])
            except ValueError:  # no whole string: the structure is another one
                pass
            else:
                self._lessons = LESSONS
                return text
        said = self._whole(chunk)
        if self._lessons and len(said) == 1 and isinstance(said[0], str):
            self._learn(chunk, said[0])
        return said

    def _learn(self, chunk: bytes, text: str) -> None:
        self._lessons -= 1
        found = list(self._text.finditer(chunk))
        with suppress(ValueError):  # half a character, which this decoder does not read
            if len(found) == 1 and _string(found[0][1]) == text:
                start, end = found[0].span(1)
                self._before, self._behind = chunk[:start], chunk[end:]
                self._slice = slice(start, -len(self._behind))
