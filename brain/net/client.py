"""The HTTP client for model servers."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing
from typing import Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from brain.errors import ModelError, SettingsError
from brain.net.transport import BODY, Transport, encode_head, find_origin
from brain.settings import LOOPBACK, redact_url

HEAD = "head"
"""Request extension with the request line and the headers of a prepared request."""


class BodyStream(Protocol):
    """An asynchronous iterator of bytes that can be closed early."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def __anext__(self) -> Awaitable[bytes]: ...
    def aclose(self) -> Awaitable[object]: ...


class HTTPClient(httpx.AsyncClient):
    """A client for one server. Reading has no timeout: the turn limits the silence of a model.

    It uses `Transport`, or httpx's own transport if the environment sets a proxy and the server is not on loopback.

    Raises:
        SettingsError: the URL or a header is invalid.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str] | None = None) -> None:
        needs_proxy = urlsplit(base_url).hostname not in LOOPBACK and bool(getproxies())
        try:
            self._own_transport = None if needs_proxy else Transport()
            super().__init__(
                base_url=base_url,
                headers={"Accept-Encoding": "identity", **(headers or {})},
                timeout=httpx.Timeout(None, connect=5.0, write=30.0),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                transport=self._own_transport,
                event_hooks={"response": [reject_compressed]},
            )
        except (httpx.InvalidURL, ValueError):
            raise SettingsError(f"The URL {redact_url(base_url)} or its API key contains invalid characters.") from None

    def prepare_post(self, path: str) -> httpx.Request:
        """Build a POST request for JSON without a body, for use with `send_prepared`."""
        request = self.build_request("POST", path, headers={"Content-Type": "application/json"})
        del request.headers["Content-Length"]
        if request.url.userinfo:  # as httpx does when it sends
            next(httpx.BasicAuth(request.url.username, request.url.password).auth_flow(request))
        request.extensions[HEAD] = encode_head(request)
        return request

    async def send_prepared(self, prepared: httpx.Request, body: bytes) -> httpx.Response:
        """Send a prepared request with a body. Use `stream_body` to read the response.

        Cookies and redirects, which model servers do not use, are not supported: they would double the cost.
        """
        if self._own_transport is None:
            request = httpx.Request(
                prepared.method, prepared.url, headers=prepared.headers, content=body, extensions=prepared.extensions
            )
            return await self.send(request, stream=True)
        message = b"%bContent-Length: %d\r\n\r\n%b" % (prepared.extensions[HEAD], len(body), body)
        response = await self._own_transport.send(prepared, find_origin(prepared), message)
        await reject_compressed(response)
        return response


async def reject_compressed(response: httpx.Response) -> None:
    """Reject compressed responses: decompression could fill the memory and would block the event loop."""
    encoding = response.headers.get("Content-Encoding", "")
    if encoding:
        del response.headers["Content-Encoding"]
    if encoding.lower() not in ("", "identity") and response.status_code == 200:
        await response.aclose()
        message = "The model server compresses its responses. Turn off compression on it or on its proxy."
        raise ModelError("model_failed", message, f"Content-Encoding: {encoding[:100]}", recoverable=False)


def stream_body(response: httpx.Response) -> BodyStream:
    """Return the body of a streamed response, one read at a time. Closing it closes the response.

    With `Transport`, it avoids httpx's iterators, which cost more than the rest of a read.
    """
    body: BodyStream | None = response.extensions.get(BODY)
    return _stream_through_httpx(response) if body is None else body


async def _stream_through_httpx(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(cast(AsyncGenerator[bytes, None], response.aiter_bytes())) as pieces:
            async for data in pieces:
                yield data
    finally:
        await response.aclose()
