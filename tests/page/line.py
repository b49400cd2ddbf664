"""The line between a browser and Brain, which a test cuts, slows down, lets stand still, and restores."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from beside import beside, first_of, listen

READ = 65_536
METHODS = (b"GET ", b"POST ", b"PATCH ", b"DELETE ", b"HEAD ")


class Line:
    """Passes bytes on, both ways.

    Attributes:
        url: where the browser goes.
        heads: those of all requests that went through, in order.
        seconds: by how much every piece of an answer comes later.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._connections: set[asyncio.Task[None]] = set()
        self._whole = True
        self._flows = asyncio.Event()
        self._flows.set()
        self.url = ""
        self.heads: list[str] = []
        self.seconds = 0.0

    def cut(self) -> None:
        """Ends all connections, and lets no new one come about."""
        self._whole = False
        self._do(self._reset)

    def stand(self) -> None:
        """Lets nothing through, either way; what was connected stays so, as for a machine that sleeps."""
        self._do(self._flows.clear)

    def die(self) -> None:
        """Lets no more answers through what is connected now, which learns it when it asks again; others work."""
        self._do(self._forget)

    def restore(self) -> None:
        """Lets all through again, also what waited."""
        self._whole = True
        self._do(self._flows.set)

    def requests(self, text: str) -> list[str]:
        """The heads of the requests in which this stands."""
        return [head for head in self.heads if text in head]

    async def serve(self, ready: threading.Event, over: threading.Event) -> None:
        """Serves until told that it is over."""
        self._loop = asyncio.get_running_loop()

        def begin(url: str) -> None:
            self.url = url
            ready.set()

        await listen(self._connect, self._connections, begin, over)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            if self._whole:
                from_brain, to_brain = await asyncio.open_connection("127.0.0.1", self._to)
                ends.append(to_brain)
                flows = self._flows
                await first_of(self._requests(reader, to_brain, flows), self._answers(from_brain, writer, flows))
        except (asyncio.CancelledError, ConnectionError):  # it is cut: what was written and not yet read is lost, too
            for end in ends:
                end.transport.abort()
        finally:
            for end in ends:
                end.close()
            await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(READ):
                if flows is not self._flows:
                    return
                await flows.wait()
                if data.startswith(METHODS):
                    self.heads.append(data.partition(b"\r\n\r\n")[0].decode("latin-1"))
                writer.write(data)
                await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(READ):
                await asyncio.sleep(self.seconds)
                await flows.wait()
                writer.write(data)
                await writer.drain()

    def _forget(self) -> None:
        self._flows.clear()
        self._flows = asyncio.Event()
        self._flows.set()

    def _reset(self) -> None:
        for task in self._connections:
            task.cancel()

    def _do(self, act: Callable[[], object]) -> None:
        async def acted() -> None:
            act()

        asyncio.run_coroutine_threadsafe(acted(), self._loop).result(5)


@contextmanager
def line_to(port: int) -> Iterator[Line]:
    """A line to the server at this port."""
    line = Line(port)
    with beside(line.serve):
        yield line
