"""Wing: splits a byte stream into lines and SSE events. Bytes in, pieces out; no I/O.

Lines are whole before they are decoded, so a character that was cut between two reads is never seen in halves.
"""

from brain.errors import ModelError

LINE_BYTES = 8 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Ends:
    """Finds the ends of items in bytes that come in any cuts; line ends are LF, CR LF and CR (WHATWG HTML, 9.2.5).

    A byte order mark at the very beginning is dropped.
    """

    def __init__(self, end: bytes) -> None:
        self._end = end
        self._rest = bytearray()  # grows in place: an item that comes in small pieces costs no more than its length
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[bytes]:
        """Takes what one read brought; gives the items that are whole now, without their ends."""
        if self._first and data:
            data = self._begun(data)
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        if self._rest:
            seen = max(0, len(self._rest) - len(self._end) + 1)  # before it, no end begins
            self._rest += data
            if self._rest.find(self._end, seen) < 0:
                self._check_length()
                return []
            data = bytes(self._rest)
            self._rest.clear()
        items = data.split(self._end)
        if rest := items.pop():
            self._rest += rest
            self._check_length()
        return items

    def close(self) -> bytes:
        """What came behind the last end."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest

    def _begun(self, data: bytes) -> bytes:
        """The beginning without its mark; none of it as long as it may become one."""
        data = self.close() + data
        if len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data):
            self._rest += data
            return b""
        self._first = False
        return data.removeprefix(_BYTE_ORDER_MARK)

    def _with_lf(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _check_length(self) -> None:
        if len(self._rest) > LINE_BYTES:
            message = "The model server sent a line that never ends."
            raise ModelError("model_failed", message, f"more than {LINE_BYTES} bytes")


class Lines:
    """Splits at line ends, and nowhere else: not at U+2028, as `str.splitlines` would."""

    def __init__(self) -> None:
        self._ends = _Ends(b"\n")
        self.feed = self._ends.feed

    def close(self) -> list[bytes]:
        """The last line, when it had no end."""
        rest = self._ends.close()
        return [rest] if rest else []


class ServerSentEvents:
    """The data of server-sent events; comments, names, ids and unfinished events are left out."""

    def __init__(self) -> None:
        self._ends = _Ends(b"\n\n")

    def feed(self, data: bytes) -> list[bytes]:
        """Takes what one read brought; gives the data of the events that are whole now."""
        return [found for event in self._ends.feed(data) if (found := _data(event)) is not None]

    def close(self) -> list[bytes]:
        """An event that was not finished is no event."""
        return []


def _data(event: bytes) -> bytes | None:
    """The data of one event; None when it has none."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    found = [
        line[6:] if line.startswith(b"data: ") else line[5:]
        for line in event.split(b"\n")
        if line.startswith(b"data:") or line == b"data"
    ]
    return b"\n".join(found) if found else None
