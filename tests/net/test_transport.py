"""The transport to model servers, against servers that write byte for byte what a test says; and its client."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import trustme

from brain.errors import ModelError
from brain.net import client as model_client
from brain.net.transport import Transport

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
BOMB = gzip.compress(bytes(64_000_000), mtime=0)


class Server:
    """Answers each connection so, and then closes it.

    Attributes:
        requests: heads of the requests, one list for each connection.
        closed: set when a connection has ended, with the connection's number.
    """

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self._answer = answer
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"{'https' if self._tls else 'http'}://{'localhost' if self._tls else host}:{port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            writer.close()
            self.ended.set()


def writes(data: bytes, *, keep: bool = False, step: int | None = None) -> Answer:
    """Answers with this, at once or in steps, and then closes unless it is to keep the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        for at in range(0, len(data), step or len(data) or 1):
            writer.write(data[at : at + (step or len(data))])
            await writer.drain()
            await asyncio.sleep(0)
        if keep:
            await reader.read()

    return answer


async def read_head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def connect(seconds: float | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=Transport(), timeout=seconds)


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
    async with Server(answer, tls) as server, connect() as client:
        yield server, client


@pytest.mark.parametrize("step", [None, 1])
@pytest.mark.parametrize("data", [PLAIN, CHUNKED, UNTIL_CLOSE, INTERIM], ids=["length", "chunked", "close", "interim"])
def test_a_body_is_whole_however_it_is_framed_and_cut(data: bytes, step: int | None) -> None:
    async def main() -> tuple[int, bytes]:
        async with serving(writes(data, step=step)) as (server, client):
            response = await client.get(server.url)
            return response.status_code, response.content

    assert asyncio.run(main()) == (200, b"hello")


@pytest.mark.parametrize(
    ("method", "answer"),
    [("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), ("GET", b"HTTP/1.1 204 No Content\r\n\r\n")],
)
def test_a_response_without_body_ends_with_its_head(method: str, answer: bytes) -> None:
    async def main() -> bytes:
        async with serving(writes(answer, keep=True)) as (server, client):
            return (await client.request(method, server.url)).content

    assert asyncio.run(main()) == b""


def test_the_request_is_sent_as_it_is() -> None:
    found = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.append((await read_head(reader)).partition(b"\r\n")[0])
        found.append(await reader.readexactly(4))
        writer.write(PLAIN)

    async def main() -> None:
        async with serving(answer) as (server, client):
            await client.post(f"{server.url}/a%20b?c=d", content=b"\x00\x01ab")

    asyncio.run(main())
    assert found == [b"POST /a%20b?c=d HTTP/1.1", b"\x00\x01ab"]


@pytest.mark.parametrize(
    ("answers", "requests"),
    [
        ((PLAIN, CHUNKED, PLAIN), [3]),  # used again when its response was read
        ((PLAIN,), [1, 1, 1]),  # closed between requests
        ((PLAIN, b""), [2, 2, 1]),  # closed on the request: sent again, once
    ],
)
def test_connections_are_used_again(answers: tuple[bytes, ...], requests: list[int]) -> None:
    counts: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(counts)
        counts.append(0)
        for data in answers:
            await read_head(reader)
            counts[number] += 1
            writer.write(data)
            await writer.drain()

    async def main() -> None:
        async with serving(answer) as (server, client):
            for _ in range(3):
                server.ended.clear()
                assert (await client.get(server.url)).content == b"hello"
                if len(answers) == 1:
                    await server.ended.wait()

    asyncio.run(main())
    assert counts == requests


@pytest.mark.parametrize("leaves", ["in the body", "before the head"])
def test_a_request_that_is_left_early_closes_its_connection(leaves: str) -> None:
    async def main() -> None:
        has_request = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_head(reader)
            if leaves == "in the body":
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n")
            has_request.set()
            await reader.read()

        async with serving(answer) as (server, client):
            if leaves == "in the body":
                async with client.stream("GET", server.url) as response:
                    assert await anext(response.aiter_raw()) == b"he"
            else:
                request = asyncio.create_task(client.get(server.url))
                await has_request.wait()
                request.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await request
            await server.ended.wait()

    asyncio.run(main())


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
    ],
    ids=["short", "no last chunk", "no chunk at all"],
)
def test_what_came_before_a_cut_is_given_before_the_error(data: bytes) -> None:
    async def main() -> bytes:
        found = b""
        async with serving(writes(data)) as (server, client), client.stream("GET", server.url) as response:
            reads = response.aiter_raw()
            while len(found) < 5:
                found += await anext(reads)
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(reads)
        return found

    assert asyncio.run(main()) == b"hello"


def endless(first: bytes, line: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(first)
        while True:
            writer.write(line * 1000)
            await writer.drain()

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        *map(writes, (b"", b"HTTP/1.1 200", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n")),
        endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_what_is_no_response_is_an_error(answer: Answer) -> None:
    async def main() -> None:
        async with serving(answer) as (server, client):
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(server.url)

    asyncio.run(main())


def test_a_server_that_is_not_there_cannot_be_reached() -> None:
    async def main() -> None:
        async with Server(writes(PLAIN)) as server:
            pass
        async with connect() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(server.url)

    asyncio.run(main())


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"], ids=["head", "body"])
def test_reading_may_have_a_time_limit(data: bytes) -> None:
    async def main() -> None:
        async with Server(writes(data, keep=True)) as server, connect(0.05) as client:
            with pytest.raises(httpx.ReadTimeout):
                await client.get(server.url)

    asyncio.run(main())


def test_a_slow_reader_stops_the_server_instead_of_filling_the_memory() -> None:
    async def main() -> None:
        stopped, sent = asyncio.Event(), 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await read_head(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 64000000\r\n\r\n")
            for _ in range(1000):
                writer.write(bytes(64_000))
                sent += 64_000
                if writer.transport.get_write_buffer_size() > 4_000_000:  # the kernel's buffers are full
                    stopped.set()
                    await writer.drain()
                await asyncio.sleep(0)

        async with serving(answer) as (server, client), client.stream("GET", server.url) as response:
            await stopped.wait()
            assert sent < 64_000_000
            assert sum([len(read) async for read in response.aiter_raw()]) == 64_000_000

    asyncio.run(main())


def test_tls_checks_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def main() -> None:
        async with serving(writes(PLAIN), tls) as (server, client):
            with pytest.raises(httpx.ConnectError):
                await client.get(server.url)
            monkeypatch.setattr(httpx, "create_ssl_context", lambda: trusting)
            async with connect() as trusting_client:
                with pytest.raises(httpx.ConnectError):
                    await trusting_client.get(server.url.replace("localhost", "127.0.0.1"))
                assert (await trusting_client.get(server.url)).content == b"hello"

    asyncio.run(main())


def test_a_connection_with_an_unread_body_is_not_used_again() -> None:
    async def main() -> None:
        has_read, has_written = asyncio.Event(), asyncio.Event()
        count = 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            await read_head(reader)
            count += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n%da" % count)
            await has_read.wait()
            writer.write(b"%dend" % count)
            has_written.set()
            await reader.read()

        async with serving(answer) as (server, client):
            async with client.stream("GET", server.url) as response:
                assert await anext(response.aiter_raw()) == b"1a"
                has_read.set()
                await has_written.wait()
            assert (await client.get(server.url)).content == b"2a2end"

    asyncio.run(main())


# The client


def answered(status: int, body: bytes, *headers: bytes) -> bytes:
    head = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*head, b"", body])


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("has_proxy", [False, True])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (answered(200, b"{}"), (200, b"{}")),
        (answered(200, b"{}", b"Content-Encoding: identity"), (200, b"{}")),
        (answered(429, BOMB, b"Content-Encoding: gzip"), (429, BOMB)),
        *(
            (answered(200, BOMB, b"Content-Encoding: " + encoding), ("model_failed", False))
            for encoding in (b"gzip", b"GZIP", b"br", b"deflate, gzip")
        ),
    ],
)
def test_nothing_is_unpacked(
    answer: bytes, expected: object, is_streamed: bool, has_proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> object:
        async with Server(writes(answer)) as server:
            if has_proxy:
                monkeypatch.setattr(model_client, "LOOPBACK", ())
                monkeypatch.setattr(model_client, "getproxies", lambda: {"http": "http://127.0.0.1:9"})
                monkeypatch.setenv("NO_PROXY", "*")
            async with model_client.HTTPClient(server.url) as client:
                try:
                    if is_streamed:
                        response = await client.send_prepared(client.prepare_post("/chat"), b"{}")
                    else:
                        response = await client.get("/models")
                except ModelError as error:
                    return error.code, error.recoverable
                if not is_streamed:
                    return response.status_code, response.content
                return response.status_code, b"".join([data async for data in model_client.stream_body(response)])

    assert asyncio.run(main()) == expected
