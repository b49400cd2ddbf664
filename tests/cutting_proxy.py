"""A proxy that cuts connections: after so many bytes of an answer, as a bad network does."""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from background_server import beside, first_of, listen

READ = 65_536
METHODS = (b"GET ", b"POST ", b"HEAD ")

Cut = int | bytes
"""After so many bytes behind the head, or right before these bytes."""


class Cutter:
    """Passes bytes on, both ways, and cuts the answers to some requests.

    Args:
        port: where the server is.
        cuts: by a text that stands in the head of a request: where its first answer is cut, its second, and so on.
            Further answers are whole.

    Attributes:
        heads: of all requests, in order.
        answers: the first lines of all answers.
        made: how often it cut.
    """

    def __init__(self, port: int, cuts: Mapping[str, Sequence[Cut]]) -> None:
        self._to = port
        self._cuts = {text.encode(): list(after) for text, after in cuts.items()}
        self.heads: list[str] = []
        self.answers: list[str] = []
        self.made = 0
        self.url = ""

    async def serve(self, ready: threading.Event, over: threading.Event) -> None:
        """Serves until told that it is over."""

        def begin(url: str) -> None:
            self.url = url
            ready.set()

        await listen(lambda *ends: _Connection(self, *ends).run(self._to), set(), begin, over)

    def asked(self, head: bytes) -> Cut | None:
        """Notes a request; where its answer is to be cut, if it is."""
        self.heads.append(head.decode("latin-1"))
        after = next((after for text, after in self._cuts.items() if text in head and after), None)
        return after.pop(0) if after else None


class _Connection:
    def __init__(self, cutter: Cutter, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._cutter = cutter
        self._reader = reader
        self._writer = writer
        self._cut: Cut | None = None
        self._head = b""

    async def run(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await first_of(self._requests(writer), self._answers(reader))
        finally:
            for one in (writer, self._writer):
                one.transport.abort()

    async def _requests(self, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await self._reader.read(READ):
                if data.startswith(METHODS):
                    self._cut, self._head = self._cutter.asked(data), b""
                writer.write(data)
                await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(READ):
                data = self._up_to_cut(data)
                self._writer.write(data)
                await self._writer.drain()
                if self._cut == 0:
                    self._cutter.made += 1
                    self._writer.close()  # a reset would take what the client has not read yet
                    await self._writer.wait_closed()
                    return

    def _up_to_cut(self, data: bytes) -> bytes:
        before = b""
        if b"\r\n\r\n" not in self._head:
            held = len(self._head)
            self._head += data
            head, end, _ = self._head.partition(b"\r\n\r\n")
            if not end:
                return data
            self._cutter.answers.append(head.partition(b"\r\n")[0].decode())
            size = len(head) + len(end) - held
            before, data = data[:size], data[size:]
        if isinstance(self._cut, bytes) and self._cut in data:
            data, self._cut = data[: data.index(self._cut)], 0
        elif isinstance(self._cut, int):
            data = data[: self._cut]
            self._cut -= len(data)
        return before + data


@contextmanager
def cutting(port: int, cuts: Mapping[str, Sequence[Cut]]) -> Iterator[Cutter]:
    """A proxy in front of a server."""
    cutter = Cutter(port, cuts)
    with beside(cutter.serve):
        yield cutter
