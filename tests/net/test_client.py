"""The opened for model servers: what it refuses to unpack."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable

import httpx
import pytest
from test_transport import serving, writes

from brain.errors import ModelError
from brain.net import client

Asking = Callable[[client.Client], Awaitable[httpx.Response]]
BOMB = gzip.compress(bytes(64_000_000))


def answered(status: int, body: bytes, *headers: bytes) -> bytes:
    head = [b"HTTP/1.1 %d X" % status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*head, b"", body])


async def got(opened: client.Client) -> httpx.Response:
    return await opened.get("/models")


async def streamed(opened: client.Client) -> httpx.Response:
    response = await opened.ask(opened.question("/chat"), b"{}")
    body = b"".join([data async for data in client.reads(response)])
    return httpx.Response(response.status_code, content=body)


@pytest.mark.parametrize("ask", [got, streamed])
@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("encoding", [b"gzip", b"GZIP", b"br", b"deflate, gzip"])
def test_a_compressed_answer_is_refused(
    ask: Asking, proxied: bool, encoding: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_proxied", lambda url: proxied)

    async def main() -> None:
        answer = answered(200, BOMB, b"Content-Encoding: " + encoding)
        async with serving(writes(answer)) as url, client.Client(url) as opened:
            with pytest.raises(ModelError) as raised:
                await ask(opened)
            assert (raised.value.code, raised.value.recoverable) == ("model_failed", False)

    asyncio.run(main())


@pytest.mark.parametrize("ask", [got, streamed])
@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (answered(200, b"{}"), 200, b"{}"),
        (answered(200, b"{}", b"Content-Encoding: identity"), 200, b"{}"),
        (answered(429, BOMB, b"Content-Encoding: gzip"), 429, BOMB),
    ],
)
def test_nothing_is_unpacked(ask: Asking, answer: bytes, status: int, body: bytes) -> None:
    async def main() -> None:
        async with serving(writes(answer)) as url, client.Client(url) as opened:
            response = await ask(opened)
            assert (response.status_code, response.content) == (status, body)

    asyncio.run(main())
