"""Wing: splits a byte stream into lines and SSE events. Bytes in, pieces out; no I/O.

Lines are whole before they are decoded, so a character that was cut between two reads is never seen in halves.
"""

from collections.abc import Iterator

from brain.errors import ModelError

LINE_BYTES = 8 * 1024 * 1024


class Lines:
    """Splits at LF, CR LF and CR (WHATWG HTML, 9.2.5), and nowhere else: not at U+2028, as `str.splitlines` would."""

    def __init__(self) -> None:
        self._rest = b""
        self._ended_with_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """Takes what one read brought; gives the lines that are whole now."""
        if self._ended_with_cr and data[:1] == b"\n":
            data = data[1:]
        self._ended_with_cr = data[-1:] == b"\r" if data else self._ended_with_cr
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_BYTES:
            raise ModelError("model_failed", "The model server sent a line that never ends.")
        return lines

    def close(self) -> list[bytes]:
        """The last line, when it had no end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class ServerSentEvents:
    """The data of server-sent events; comments, names, ids and unfinished events are left out."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Takes what one read brought; gives the data of the events that are whole now."""
        for line in self._lines.feed(data):
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                whole = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data = []
                yield whole
