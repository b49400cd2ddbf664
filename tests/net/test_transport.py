"""The transport to model servers, against servers that write byte for byte what a test says; and its client."""

import asyncio
import gzip
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import trustme

from brain.errors import ModelError
from brain.net import client as model_client
from brain.net.transport import BODY, Transport

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
def test_a_request_that_is_left_early_closes_its_connection(leaves: str, caplog: pytest.LogCaptureFixture) -> None:
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
    assert caplog.text == ""


def test_a_response_that_is_closed_twice_frees_its_connection_once() -> None:
    async def main() -> int:
        connections = 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            while await read_head(reader):
                writer.write(PLAIN)

        async with serving(answer) as (server, client):
            async with client.stream("GET", server.url) as response:
                assert await response.aread() == b"hello"
                body = response.extensions[BODY]
                await body.aclose()
                await body.aclose()
            await asyncio.gather(*(client.get(server.url) for _ in range(2)))
        return connections

    assert asyncio.run(main()) == 2


def test_data_that_nobody_asked_for_is_no_answer() -> None:
    """As a server sends it that closes an idle connection."""

    async def main() -> bytes:
        has_read = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_head(reader)
            writer.write(PLAIN)
            await has_read.wait()
            writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 3\r\n\r\nbad")
            await reader.read()

        async with serving(answer) as (server, client):
            await client.get(server.url)
            has_read.set()
            await server.ended.wait()
            has_read.clear()
            return (await client.get(server.url)).content

    assert asyncio.run(main()) == b"hello"


def test_a_request_is_not_repeated_after_the_first_byte_of_its_answer() -> None:
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        for data in (PLAIN, b"HTTP/1.1 200"):
            await read_head(reader)
            requests += 1
            writer.write(data)
            await writer.drain()

    async def main() -> None:
        async with serving(answer) as (server, client):
            await client.get(server.url)
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(server.url)

    asyncio.run(main())
    assert requests == 2


def test_a_reset_is_no_end_of_a_body() -> None:
    async def main() -> None:
        has_read = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_head(reader)
            writer.write(UNTIL_CLOSE)
            await has_read.wait()
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

        async with serving(answer) as (server, client), client.stream("GET", server.url) as response:
            reads = response.aiter_raw()
            assert await anext(reads) == b"hello"
            has_read.set()
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(reads)

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
    ("answer", "problem"),
    [
        *((writes(data), "closed the connection") for data in (b"", b"HTTP/1.1 200")),
        *((writes(data), "not HTTP") for data in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n")),
        (endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), "too large"),
        (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "too large"),
    ],
)
def test_what_is_no_response_is_an_error(answer: Answer, problem: str) -> None:
    async def main() -> None:
        async with serving(answer) as (server, client):
            with pytest.raises(httpx.RemoteProtocolError, match=problem):
                await client.get(server.url)

    asyncio.run(main())


def test_a_server_that_is_not_there_cannot_be_reached() -> None:
    async def main() -> None:
        async with Server(writes(PLAIN)) as server:
            pass
        async with connect() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(server.url)
            with pytest.raises(httpx.ConnectTimeout):
                await client.get(server.url, timeout=httpx.Timeout(None, connect=0.0))

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


def test_a_callback_gets_what_arrives_while_the_iterator_waits() -> None:
    async def main() -> None:
        taken: list[bytes] = []
        large = bytearray()
        received = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_head(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20019\r\n\r\nbegin")
            for data in (b"one", b"two", b"wake", bytes(20_000), b"last"):
                await received.wait()
                received.clear()
                writer.write(data)

        def take(data: bytes) -> bool:
            taken.append(data)
            if data != b"wake":
                asyncio.get_running_loop().call_soon(received.set)
            return data != b"wake"

        async with serving(answer) as (server, client), client.stream("GET", server.url) as response:
            body = response.extensions[BODY]
            reads = [await anext(body)]
            body.set_callback(take)
            received.set()
            reads.append(await anext(body))
            body.set_callback(large.extend)  # the kernel may cut the large write
            received.set()
            while len(large) < 20_000:
                large += await anext(body)
            body.set_callback(take)
            received.set()
            with pytest.raises(StopAsyncIteration):
                await anext(body)
        assert (reads, bytes(large), taken) == ([b"begin", b""], bytes(20_000), [b"one", b"two", b"wake", b"last"])

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


def test_a_compressed_answer_closes_its_connection() -> None:
    async def main() -> None:
        data = answered(200, BOMB, b"Content-Encoding: gzip")
        async with Server(writes(data, keep=True)) as server, model_client.HTTPClient(server.url) as client:
            with pytest.raises(ModelError):
                await client.send_prepared(client.prepare_post("/chat"), b"{}")
            await server.ended.wait()

    asyncio.run(main())


def test_a_user_in_the_url_signs_in() -> None:
    async def main() -> str:
        async with model_client.HTTPClient("http://ada:secret@localhost:9") as client:
            return client.prepare_post("/chat").headers["Authorization"]

    assert asyncio.run(main()) == "Basic YWRhOnNlY3JldA=="


def test_a_body_that_is_left_early_closes_a_response_of_httpx() -> None:
    class Stream(httpx.AsyncByteStream):
        is_closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"hel"
            yield b"lo"

        async def aclose(self) -> None:
            self.is_closed = True

    async def main() -> bool:
        stream = Stream()
        body = model_client.stream_body(httpx.Response(200, stream=stream))
        assert await anext(aiter(body)) == b"hel"
        await body.aclose()
        return stream.is_closed

    assert asyncio.run(main())
