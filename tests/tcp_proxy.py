"""A proxy for any protocol over TCP that delays what it passes on, cuts connections and refuses new ones."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from background_server import beside, first_of
from limits import WAIT_SECONDS
from ports import port_of, reserve_port, with_port

READ = 65_536
CHUNKS = 64
"""So many are delayed per direction of a connection; further ones wait at the sender."""


class _Cut(NamedTuple):
    is_answered: bool
    refuses: bool


class Proxy:
    """Passes bytes on to a server of this machine, and back.

    Attributes:
        url: The URL of the server, with the port of the proxy.
        request_delay: Seconds that bytes to the server take.
        response_delay: Seconds that bytes to clients take.
    """

    def __init__(self, url: str) -> None:
        self._server_port = port_of(url)
        self._reserved, self._port = reserve_port()
        self.url = with_port(url, self._port)
        self.request_delay = 0.0
        self.response_delay = 0.0
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._cuts: dict[int, _Cut] = {}

    async def serve(self, ready: threading.Event, over: threading.Event) -> None:
        """Serve until told that it is over."""
        self._loop = asyncio.get_running_loop()
        await self._listen()
        ready.set()
        await asyncio.to_thread(over.wait)
        await self._close()
        await self._cut()
        self._reserved.close()

    def cut(self) -> None:
        """Cut all connections; what is delayed is lost."""
        self._run(self._cut())

    def cut_next(self, client_port: int, *, is_answered: bool = False, refuses: bool = False) -> None:
        """Cut one connection as soon as its client sends something.

        Args:
            client_port: The port of the client that the server sees.
            is_answered: Let the server get it; its answer is lost.
            refuses: Refuse new connections from then on.
        """
        self._cuts[client_port] = _Cut(is_answered, refuses)

    def refuse(self) -> None:
        """Refuse new connections from now on."""
        self._run(self._close())

    def accept(self) -> None:
        """Accept connections again."""
        self._run(self._listen())

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_SECONDS)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)

    async def _close(self) -> None:
        self._server.close()

    async def _cut(self) -> None:
        for task, writers in self._connections.items():
            for writer in writers:
                writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        task = asyncio.create_task(self._serve_client(reader, writers))
        self._connections[task] = writers
        task.add_done_callback(self._disconnect)

    def _disconnect(self, task: asyncio.Task[None]) -> None:
        for writer in self._connections.pop(task):
            writer.close()

    async def _serve_client(self, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter]) -> None:
        with suppress(ConnectionError):  # the server does not run
            server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
            writers.append(to_server)
            port = to_server.get_extra_info("sockname")[1]
            await first_of(
                _pass_on(reader, to_server, lambda: self.request_delay, lambda: self._is_cut(port, is_answer=False)),
                _pass_on(server, writers[0], lambda: self.response_delay, lambda: self._is_cut(port, is_answer=True)),
            )

    def _is_cut(self, client_port: int, *, is_answer: bool) -> bool:
        cut = self._cuts.get(client_port)
        if cut is None or cut.is_answered != is_answer:
            return False
        del self._cuts[client_port]
        if cut.refuses:
            self._server.close()
        return True


async def _pass_on(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    delay: Callable[[], float],
    is_cut: Callable[[], bool],
) -> None:
    """Pass bytes on, each after the delay at its arrival, until a side ends or the connection is cut."""
    chunks = asyncio.Queue[tuple[float, bytes]](CHUNKS)
    now = asyncio.get_running_loop().time

    async def read() -> None:
        data = b"?"
        while data:
            data = await reader.read(READ)
            await chunks.put((now() + delay(), data))

    async def write() -> None:
        while True:
            due, data = await chunks.get()
            await asyncio.sleep(due - now())
            if not data:
                return
            if is_cut():
                raise ConnectionAbortedError
            writer.write(data)
            await writer.drain()

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            tasks.create_task(write())
    except* ConnectionError:
        pass


@contextmanager
def run_proxy(url: str) -> Iterator[Proxy]:
    """Run a proxy in front of a server until the block ends."""
    proxy = Proxy(url)
    with beside(proxy.serve):
        yield proxy
