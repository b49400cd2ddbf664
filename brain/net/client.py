"""The HTTP client of model servers; the only place that decides which one it is."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing
from typing import Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from brain.errors import ModelError, SettingsError
from brain.net.transport import BODY, Transport
from brain.settings import LOOPBACK, redact_url


class BodyStream(Protocol):
    """An asynchronous iterator of bytes that can be closed before its end."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def __anext__(self) -> Awaitable[bytes]: ...
    def aclose(self) -> Awaitable[object]: ...


class Client(httpx.AsyncClient):
    """A client for one server. Reading has no time limit: a turn decides how long a model may be silent.

    It uses `Transport`; and httpx's own where the machine has a proxy, which servers on this machine do not need.

    Raises:
        SettingsError: the URL or a header cannot be sent at all.
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
            raise SettingsError(f"{redact_url(base_url)}, or its key, cannot be used for requests.") from None

    def prepare_post(self, path: str) -> httpx.Request:
        """A request to post JSON to this path, without a body, for any number of calls of `send_prepared`."""
        request = self.build_request("POST", path, headers={"Content-Type": "application/json"})
        del request.headers["Content-Length"]
        if request.url.userinfo:  # as httpx does when it sends
            next(httpx.BasicAuth(request.url.username, request.url.password).auth_flow(request))
        return request

    async def send_prepared(self, prepared: httpx.Request, body: bytes) -> httpx.Response:
        """Send a prepared request with this body; `stream_body` reads the response.

        Cookies and redirects, which no model server has, are left out: they would take longer than all the rest.
        """
        request = httpx.Request(
            prepared.method, prepared.url, headers=prepared.headers, content=body, extensions=prepared.extensions
        )
        if self._own_transport is None:
            return await self.send(request, stream=True)
        response = await self._own_transport.handle_async_request(request)
        try:
            await reject_compressed(response)
        except BaseException:
            await response.aclose()
            raise
        return response


async def reject_compressed(response: httpx.Response) -> None:
    """Leave every body packed: unpacking could fill the memory, and would block the event loop.

    Raises:
        ModelError: a successful response is compressed, although that was not requested.
    """
    encoding = response.headers.pop("Content-Encoding", "")
    if encoding.lower() not in ("", "identity") and response.status_code == 200:
        message = "The model server compresses its answers; turn that off on it, or on the proxy in front of it."
        raise ModelError("model_failed", message, f"Content-Encoding: {encoding[:100]}", recoverable=False)


def stream_body(response: httpx.Response) -> BodyStream:
    """The body of a streamed response, a read at a time; closing it closes the response.

    With `Transport`, httpx's iterators are left out, which cost more than all the rest of a read.
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
