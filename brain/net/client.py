"""Builds the HTTP client, so that another client is a change of one file."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing
from typing import Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from brain.errors import ModelError, SettingsError
from brain.net.transport import READS, Transport
from brain.settings import LOOPBACK, redact_url


class Reads(Protocol):
    """An asynchronous iterator of bytes that can be closed before its end."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def __anext__(self) -> Awaitable[bytes]: ...
    def aclose(self) -> Awaitable[object]: ...


class Client(httpx.AsyncClient):
    """A client for one server; silence is the turn's to judge, so reading has no time limit here.

    It goes over our own short `Transport`, or over httpx's where the machine has a proxy for the world, which a server
    on this machine does not need.

    Raises:
        SettingsError: when the address or a header cannot be sent at all.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str] | None = None) -> None:
        try:
            self._short = None if _proxied(base_url) else Transport()
            super().__init__(
                base_url=base_url,
                headers={"Accept-Encoding": "identity", **(headers or {})},
                timeout=httpx.Timeout(None, connect=5.0, write=30.0),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                transport=self._short,
                event_hooks={"response": [require_plain]},
            )
        except (httpx.InvalidURL, ValueError):
            raise SettingsError(f"{redact_url(base_url)}, or its key, cannot be used for requests.") from None

    def question(self, path: str) -> httpx.Request:
        """A request for JSON to this path, without a body: made once, and sent with many by `ask`."""
        question = self.build_request("POST", path, headers={"Content-Type": "application/json"})
        del question.headers["Content-Length"]
        if question.url.userinfo:  # as httpx does it when it sends
            next(httpx.BasicAuth(question.url.username, question.url.password).auth_flow(question))
        return question

    async def ask(self, question: httpx.Request, body: bytes) -> httpx.Response:
        """Sends the question with this body; the response is to be read by `reads`.

        Without the cookies and redirects that httpx sees to, since no model server has any: they would take longer
        than all the rest.
        """
        request = httpx.Request(
            question.method, question.url, headers=question.headers, content=body, extensions=question.extensions
        )
        if self._short is None:
            return await self.send(request, stream=True)
        response = await self._short.handle_async_request(request)
        try:
            await require_plain(response)
        except BaseException:
            await response.aclose()
            raise
        return response


async def require_plain(response: httpx.Response) -> None:
    """Makes sure that no body is unpacked: a small one could fill the memory, and the event loop would wait.

    Raises:
        ModelError: for an answer that is compressed although none was asked for. An error is told by its status alone.
    """
    encoding = response.headers.pop("Content-Encoding", "")
    if encoding.lower() not in ("", "identity") and response.status_code == 200:
        message = "The model server compresses its answers; turn that off on it, or on the proxy in front of it."
        raise ModelError("model_failed", message, f"Content-Encoding: {encoding[:100]}", recoverable=False)


def reads(response: httpx.Response) -> Reads:
    """The body of a streamed response, a read at a time; closing it closes the response.

    Over our own transport without httpx's iterators in between, which cost more than all the rest of a read.
    """
    body: Reads | None = response.extensions.get(READS)
    return _through_httpx(response) if body is None else body


async def _through_httpx(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(cast(AsyncGenerator[bytes, None], response.aiter_bytes())) as found:
            async for data in found:
                yield data
    finally:
        await response.aclose()


def _proxied(base_url: str) -> bool:
    return urlsplit(base_url).hostname not in LOOPBACK and bool(getproxies())
