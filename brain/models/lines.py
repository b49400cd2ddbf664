"""Wing: splits a byte stream into lines and SSE events. Bytes in, pieces out; no I/O.

Lines are whole before they are decoded, so a character that was cut between two reads is never seen in halves.
"""

from collections.abc import Iterator

from brain.errors import ModelError

LINE_BYTES = 8 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Lines:
    """Splits at LF, CR LF and CR (WHATWG HTML, 9.2.5), and nowhere else: not at U+2028, as `str.splitlines` would.

    A byte order mark at the very beginning is dropped.
    """

    def __init__(self) -> None:
        self._rest = bytearray()  # grows in place: a line that comes in small pieces costs no more than its length
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[bytes]:
        """Takes what one read brought; gives the lines that are whole now."""
        if not data:
            return []
        if self._after_cr:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            if self._rest:
                lines[0] = bytes(self._rest) + lines[0]
                self._rest.clear()
            if self._first:
                lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
                self._first = False
        if rest:
            self._rest += rest
            if len(self._rest) > LINE_BYTES:
                raise _endless()
        return lines

    def close(self) -> list[bytes]:
        """The last line, when it had no end."""
        rest = bytes(self._rest)
        self._rest.clear()
        if self._first:
            rest = rest.removeprefix(_BYTE_ORDER_MARK)
        return [rest] if rest else []


class ServerSentEvents:
    """The data of server-sent events; comments, names, ids and unfinished events are left out."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Takes what one read brought; gives the data of the events that are whole now."""
        for line in self._lines.feed(data):
            if not line:
                if self._data:
                    yield b"\n".join(self._data)
                    self._data.clear()
                    self._size = 0
            elif line.startswith(b"data:") or line == b"data":
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._size += len(line)
                if self._size > LINE_BYTES:
                    raise _endless()

    def close(self) -> list[bytes]:
        """An event that was not finished is no event."""
        return []


def _endless() -> ModelError:
    return ModelError("model_failed", "The model server sent a line that never ends.", f"more than {LINE_BYTES} bytes")
