"""Splits a byte stream into lines and SSE events. Bytes in, pieces out; no I/O.

Lines are whole before they are decoded, so a character that was cut between two reads is never seen in halves.
"""

from abc import ABC, abstractmethod

from brain.errors import ModelError

LINE_BYTES = 2 * 1024 * 1024
SPREAD_BYTES = 64 * 1024
"""Of an event whose data is spread over lines, as no model server does with large ones."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Splitter(ABC):
    """Keeps the beginning of an item until the rest of it has come.

    Lines may end in LF, CR LF or CR (WHATWG HTML, 9.2.5); what is given has LF only. A byte order mark at the very
    beginning is dropped.

    Attributes:
        between: whether it stands between two items, with nothing kept.
    """

    END: bytes

    def __init__(self) -> None:
        self._rest = bytearray()  # grows in place: an item that comes in small pieces costs no more than its length
        self._after_cr = False
        self._first = True
        self.between = True

    def feed(self, data: bytes) -> bytes:
        """Takes what one read brought; gives the items that are whole now, each with its end."""
        if self._first and data:
            data = self._begun(data)
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        if not self._rest and data.endswith(self.END):
            self.between = not self._after_cr
            return data
        seen = max(0, len(self._rest) - len(self.END) + 1)  # before it, no end begins
        self._rest += data
        found = self._rest.rfind(self.END, seen)
        end = found + len(self.END) if found >= 0 else 0
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        self.between = not self._rest and not self._after_cr
        if len(self._rest) > LINE_BYTES:
            message = "The model server sent a line that never ends."
            raise ModelError("model_failed", message, f"more than {LINE_BYTES} bytes")
        return whole

    def close(self) -> bytes:
        """What came behind the last end."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest

    @abstractmethod
    def items(self, whole: bytes) -> list[bytes]:
        """What `feed` or `close` gave, item by item, without their ends."""

    @abstractmethod
    def data(self, item: bytes) -> bytes | None:
        """What an item carries, if anything."""

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


class Lines(Splitter):
    """Splits at line ends, and nowhere else: not at U+2028, as `str.splitlines` would."""

    END = b"\n"

    def items(self, whole: bytes) -> list[bytes]:
        """The lines; the last one of a body may have no end."""
        lines = whole.split(b"\n")
        return lines if lines[-1] else lines[:-1]

    def data(self, item: bytes) -> bytes | None:
        """The line."""
        return item


class ServerSentEvents(Splitter):
    """Splits behind events, at empty lines."""

    END = b"\n\n"

    def items(self, whole: bytes) -> list[bytes]:
        """The events; one that is not finished is none."""
        return whole.split(b"\n\n")[:-1]

    def data(self, item: bytes) -> bytes | None:
        """The data of an event, if it has any; comments, names and ids are left out.

        Raises:
            ModelError: when it has more lines than can be read at once.
        """
        if item.startswith(b"data: ") and b"\n" not in item:  # as nearly all are
            return item[6:]
        if b"data" not in item:
            return None
        if len(item) > SPREAD_BYTES:
            raise ModelError("model_failed", "The model server sent something unreadable.", "an event of many lines")
        lines = [
            line[6:] if line.startswith(b"data: ") else line[5:]
            for line in item.split(b"\n")
            if line.startswith(b"data:") or line == b"data"
        ]
        return b"\n".join(lines) if lines else None
