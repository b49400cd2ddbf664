"""Split a byte stream into lines or server-sent events, without I/O.

Lines are complete before they are decoded, so no character is split between two reads.
"""

from abc import ABC, abstractmethod

import msgspec

from brain.errors import ModelError, UnreadableData

MAX_LINE_BYTES = 2 * 1024 * 1024
MAX_MULTILINE_BYTES = 64 * 1024
"""Maximum size of an event with several data lines; model servers send no large ones."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Splitter(ABC):
    """Buffers the beginning of an item until the rest arrives.

    Lines may end in LF, CR LF or CR (WHATWG HTML, 9.2.5); the output has LF only. A byte order mark at the very
    beginning is dropped.

    Attributes:
        is_between: True if nothing is buffered, so the next byte begins an item.
    """

    END: bytes

    def __init__(self) -> None:
        self._rest = bytearray()  # grows in place: an item in small pieces costs no more than its length
        self._is_after_cr = False
        self._is_first = True
        self.is_between = True

    def feed(self, data: bytes) -> bytes:
        """Take the bytes of one read; return the items that are complete now, each with its end.

        Raises:
            ModelError: A line is too long.
        """
        if self._is_first and data:
            data = self.close() + data
            if len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data):
                self._rest += data
                data = b""
            else:
                self._is_first = False
                data = data.removeprefix(_BYTE_ORDER_MARK)
        if self._is_after_cr or b"\r" in data:
            data = self._normalize_ends(data)
        if not self._rest and data.endswith(self.END):
            self.is_between = not self._is_after_cr
            return data
        searched = max(0, len(self._rest) - len(self.END) + 1)  # before it, no end begins
        self._rest += data
        position = self._rest.rfind(self.END, searched)
        end = position + len(self.END) if position >= 0 else 0
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        self.is_between = not self._rest and not self._is_after_cr
        if len(self._rest) > MAX_LINE_BYTES:
            message = "The model server sent a line that is too long."
            raise ModelError("model_failed", message, f"more than {MAX_LINE_BYTES} bytes")
        return whole

    def close(self) -> bytes:
        """Return the bytes after the last end."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest

    @abstractmethod
    def items(self, whole: bytes) -> list[bytes]:
        """Split the result of `feed` or `close` into items without their ends; the last one of a body may have none."""

    @abstractmethod
    def data(self, item: bytes) -> bytes | None:
        """Return the data of an item; None if it has none."""

    def _normalize_ends(self, data: bytes) -> bytes:
        if self._is_after_cr and data:
            data = data.removeprefix(b"\n")
            self._is_after_cr = False
        if b"\r" in data:
            self._is_after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data


class Lines(Splitter):
    """Splits at line ends only; `str.splitlines` would also split at U+2028."""

    END = b"\n"

    def items(self, whole: bytes) -> list[bytes]:
        lines = whole.split(b"\n")
        return lines if lines[-1] else lines[:-1]

    def data(self, item: bytes) -> bytes | None:
        return item


class ServerSentEvents(Splitter):
    """Splits after events, at empty lines."""

    END = b"\n\n"

    def items(self, whole: bytes) -> list[bytes]:
        return whole.split(b"\n\n")

    def data(self, item: bytes) -> bytes | None:
        """Return the data of an event, without comments, names and IDs; None if it has none.

        The data of an event named `error`, and of a field of this name, becomes that of an error. An item that is plain
        JSON, as servers send it with status 200 instead of a stream, is its own data.

        Raises:
            UnreadableData: It has more lines than can be read at once.
        """
        if item.startswith(b"data: ") and b"\n" not in item:  # as nearly all are
            return item[6:]
        if item.startswith(b":") and b"\n" not in item:
            return None
        if item.lstrip().startswith(b"{"):
            return item
        if len(item) > MAX_MULTILINE_BYTES:
            raise UnreadableData("an event of many lines")
        fields = [line.partition(b":")[::2] for line in item.split(b"\n")]
        data = [value.removeprefix(b" ") for name, value in fields if name in (b"data", b"error")]
        is_error = any(name == b"error" or (name, value.strip()) == (b"event", b"error") for name, value in fields)
        if is_error:
            return _wrap_error(b"\n".join(data))
        return b"\n".join(data) if data else None


def _wrap_error(data: bytes) -> bytes:
    """Return the event for the data of an error."""
    try:
        error = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error = data.decode(errors="replace")
    if isinstance(error, dict) and error.get("error"):
        error = error["error"]
    return msgspec.json.encode({"error": error or "an event named error"})
