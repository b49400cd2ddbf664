"""The network between a browser and Brain. A test cuts, holds and restores it; its URL stays the same."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from background_server import beside, first_of, listen
from limits import WAIT_SECONDS

CHUNK = 65_536
METHODS = (b"GET ", b"POST ", b"PATCH ", b"DELETE ", b"HEAD ")


class Network:
    """Passes bytes in both directions.

    Attributes:
        url: the URL for the browser.
        requests: the heads of all requests that went through, in order.
    """

    def __init__(self) -> None:
        self._port = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.url = ""
        self.requests: list[str] = []

    def connect_to(self, port: int) -> None:
        """Connect to the server at this port from now on."""
        self._port = port
        self.requests = []
        self.restore()

    def cut(self) -> None:
        """Abort all connections and reject new ones."""
        self._is_cut = True
        self._run(lambda: [task.cancel() for task in self._connections])

    def hold(self) -> None:
        """Pass requests, but no responses."""
        self._run(self._flowing.clear)

    def lose_connections(self) -> None:
        """Drop the responses of present connections without closing them; new connections work."""

        def replace() -> None:
            self._flowing.clear()
            self._flowing = asyncio.Event()
            self._flowing.set()

        self._run(replace)

    def restore(self) -> None:
        """Pass everything again, including what was held."""
        self._is_cut = False
        self._run(self._flowing.set)

    async def serve(self, ready: threading.Event, over: threading.Event) -> None:
        """Serve until `over` is set."""
        self._loop = asyncio.get_running_loop()

        def begin(url: str) -> None:
            self.url = url
            ready.set()

        await listen(self._connect, self._connections, begin, over)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            if not self._is_cut:
                from_brain, to_brain = await asyncio.open_connection("127.0.0.1", self._port)
                ends.append(to_brain)
                flowing = self._flowing
                await first_of(
                    self._pass_requests(reader, to_brain, flowing), self._pass_responses(from_brain, writer, flowing)
                )
        except (asyncio.CancelledError, ConnectionError):  # cut: unread bytes are lost, too
            for end in ends:
                end.transport.abort()
        finally:
            for end in ends:
                end.close()
            await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                if flowing is not self._flowing:  # this connection is lost
                    return
                if data.startswith(METHODS):
                    self.requests.append(data.partition(b"\r\n\r\n")[0].decode("latin-1"))
                writer.write(data)
                await writer.drain()

    async def _pass_responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK):
                await flowing.wait()
                writer.write(data)
                await writer.drain()

    def _run(self, act: Callable[[], object]) -> None:
        async def acted() -> None:
            act()

        asyncio.run_coroutine_threadsafe(acted(), self._loop).result(WAIT_SECONDS)


@contextmanager
def running_network() -> Iterator[Network]:
    """A network that runs until the block ends."""
    network = Network()
    with beside(network.serve):
        yield network
