"""The way to a model server's socket, against servers that write byte for byte what a test says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import trustme

from brain.net.transport import Transport

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that answers each connection so, and then closes it; its address."""
    tasks = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{'https' if tls else 'http'}://{'localhost' if tls else host}:{port}"
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.sleep(0.01)


def client(seconds: float | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=Transport(), timeout=seconds)


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def writes(data: bytes, *, keep: bool = False, step: int | None = None) -> Answer:
    """Answers with this, at once or in steps, and then closes unless it is to keep the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        for at in range(0, len(data), step or len(data)):
            writer.write(data[at : at + (step or len(data))])
            await writer.drain()
            await asyncio.sleep(0)
        if keep:
            await reader.read()

    return answer


@pytest.mark.parametrize("step", [None, 1])
@pytest.mark.parametrize("data", [PLAIN, CHUNKED, UNTIL_CLOSE, INTERIM], ids=["length", "chunked", "close", "interim"])
def test_a_body_comes_whole_however_it_is_framed_and_cut(data: bytes, step: int | None) -> None:
    async def main() -> tuple[int, bytes]:
        async with serving(writes(data, step=step)) as url, client() as http:
            response = await http.get(url)
            return response.status_code, response.content

    assert asyncio.run(main()) == (200, b"hello")


@pytest.mark.parametrize(
    ("method", "answer"),
    [("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), ("GET", b"HTTP/1.1 204 No Content\r\n\r\n")],
)
def test_an_answer_without_body_ends_with_its_head(method: str, answer: bytes) -> None:
    async def main() -> bytes:
        async with serving(writes(answer, keep=True)) as url, client() as http, asyncio.timeout(5):
            return (await http.request(method, url)).content

    assert asyncio.run(main()) == b""


def test_the_request_is_sent_as_it_is() -> None:
    seen = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        seen.append(head.partition(b"\r\n")[0])
        seen.append(await reader.readexactly(4))
        writer.write(PLAIN)

    async def main() -> None:
        async with serving(answer) as url, client() as http:
            await http.post(f"{url}/a%20b?c=d", content=b"\x00\x01ab")

    asyncio.run(main())
    assert seen == [b"POST /a%20b?c=d HTTP/1.1", b"\x00\x01ab"]


def counting(*answers: bytes) -> tuple[list[int], Answer]:
    """Answers the requests of each connection one after the other; how many each connection got."""
    requests: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(requests)
        requests.append(0)
        for data in answers:
            await head_of(reader)
            requests[mine] += 1
            writer.write(data)
            await writer.drain()

    return requests, answer


def test_a_connection_is_used_again_when_its_answer_was_read() -> None:
    requests, answer = counting(PLAIN, CHUNKED, PLAIN)

    async def main() -> None:
        async with serving(answer) as url, client() as http:
            for _ in range(3):
                assert (await http.get(url)).content == b"hello"

    asyncio.run(main())
    assert requests == [3]


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced() -> None:
    requests, answer = counting(PLAIN)

    async def main() -> None:
        async with serving(answer) as url, client() as http:
            for _ in range(3):
                assert (await http.get(url)).content == b"hello"

    asyncio.run(main())
    assert requests == [1, 1, 1]


def test_a_kept_connection_that_closes_on_the_request_is_replaced_once() -> None:
    requests: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(0)
        await head_of(reader)
        if len(requests) == 1:
            writer.write(PLAIN)
            await head_of(reader)  # the second request arrives, and is not answered
        elif len(requests) == 2:
            writer.write(PLAIN)

    async def main() -> None:
        async with serving(answer) as url, client() as http:
            assert (await http.get(url)).content == b"hello"
            assert (await http.get(url)).content == b"hello"

    asyncio.run(main())
    assert len(requests) == 2


def test_an_answer_that_is_left_early_closes_the_connection_at_once() -> None:
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n")
        with suppress(ConnectionError):
            await reader.read()
        gone.set()

    async def main() -> bytes:
        async with serving(answer) as url, client() as http:
            async with http.stream("GET", url) as response:
                first = await anext(response.aiter_raw())
            async with asyncio.timeout(1):
                await gone.wait()
            return first

    assert asyncio.run(main()) == b"he"


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
    async def main() -> list[bytes]:
        reads = []
        async with serving(writes(data)) as url, client() as http, http.stream("GET", url) as response:
            stream = response.aiter_raw()
            with suppress(httpx.RemoteProtocolError):
                while True:
                    reads.append(await anext(stream))
        return reads

    assert b"".join(asyncio.run(main())) == b"hello"


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await head_of(reader)
            writer.write(data)

        async with serving(answer) as url, client() as http:
            with pytest.raises(httpx.RemoteProtocolError):
                await http.get(url)

    asyncio.run(main())


@pytest.mark.parametrize("line", [b"X: y\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_head_that_never_ends_is_an_error(line: bytes) -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await head_of(reader)
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" if line.startswith(b"H") else b"HTTP/1.1 200 OK\r\n")
            with suppress(ConnectionError):
                while True:
                    writer.write(line * 1000)
                    await writer.drain()

        async with serving(answer) as url, client() as http:
            with pytest.raises(httpx.RemoteProtocolError):
                await http.get(url)

    asyncio.run(main())


def test_a_server_that_is_not_there_cannot_be_reached() -> None:
    async def main() -> None:
        async with serving(writes(PLAIN)) as url:
            pass
        async with client() as http:
            with pytest.raises(httpx.ConnectError):
                await http.get(url)

    asyncio.run(main())


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"], ids=["head", "body"])
def test_reading_may_have_a_time_limit(data: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await reader.read()

    async def main() -> None:
        async with serving(answer) as url, client(0.05) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.get(url)

    asyncio.run(main())


def test_a_cancelled_request_leaves_no_connection() -> None:
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        with suppress(ConnectionError):
            await reader.read()
        gone.set()

    async def main() -> None:
        async with serving(answer) as url, client() as http:
            asking = asyncio.create_task(http.get(url))
            await asyncio.sleep(0.05)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            async with asyncio.timeout(1):
                await gone.wait()

    asyncio.run(main())


def test_a_slow_reader_stops_the_server_instead_of_filling_the_memory() -> None:
    sent = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 64000000\r\n\r\n")
        for _ in range(1000):
            writer.write(bytes(64_000))
            sent += 64_000
            await writer.drain()

    async def main() -> tuple[int, int]:
        async with serving(answer) as url, client() as http, http.stream("GET", url) as response:
            await asyncio.sleep(0.3)
            stopped_at, size = sent, 0
            async for read in response.aiter_raw():
                size += len(read)
            return stopped_at, size

    stopped_at, size = asyncio.run(main())
    assert stopped_at < 32_000_000  # the rest waits in the kernel's buffers and ours
    assert size == 64_000_000


def test_tls_checks_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def main() -> bytes:
        async with serving(writes(PLAIN), tls) as url:
            async with client() as http:
                with pytest.raises(httpx.ConnectError):
                    await http.get(url)
            monkeypatch.setattr(httpx, "create_ssl_context", lambda: trusting)
            async with client() as http:
                with pytest.raises(httpx.ConnectError):
                    await http.get(url.replace("localhost", "127.0.0.1"))
                return (await http.get(url)).content

    assert asyncio.run(main()) == b"hello"


def test_a_connection_left_with_an_unread_body_is_not_kept() -> None:
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await head_of(reader)
            asked += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n%da" % asked)
            await asyncio.sleep(0.02)
            writer.write(b"%dend" % asked)

    async def main() -> bytes:
        async with serving(answer) as url, client() as http:
            async with http.stream("GET", url) as response:
                first = await anext(response.aiter_raw())
                assert first == b"1a"
                await asyncio.sleep(0.1)  # the rest comes, and nobody reads it
            return (await http.get(url)).content

    assert asyncio.run(main()) == b"2a2end"
