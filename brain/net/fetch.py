"""Fetches URLs from models, pages and files, from public hosts only (SSRF protection).

Each host is resolved once, and the connection goes to the address that was checked, so a second answer of the name
server cannot redirect it. Each redirect is checked like the first URL. A connection serves one request. There are no
proxies and no cookies. Size and time are limited, before and after decompression.

Responses are read on a separate event loop in a thread: 20,000 header lines, or a body in chunks of one byte, take a
tenth of a second to parse, which would delay turns.
"""

import asyncio
import logging
import re
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from ipaddress import ip_address
from typing import Any, cast

import httpx

from brain.concurrency import NoThread, run_in_thread
from brain.errors import Refused, for_log
from brain.net.page import Page
from brain.net.public_addresses import is_public

READABLE = ("text/*", "application/xhtml+xml", "application/xml", "application/json", "application/pdf")
MAX_BYTES = 4 * 1024 * 1024
SECONDS = 10.0
MAX_REDIRECTS = 5
URL_LENGTH = 4000
MAX_ADDRESSES = 3
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_METHOD = re.compile(r"[A-Z]{1,20}")
_CHARSET = re.compile(r"""(?:^|;)\s*charset\s*=\s*["']?\s*([\w.:+-]{1,40})""", re.IGNORECASE)
ANOTHER = "try another source"

log = logging.getLogger("brain")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the numeric addresses of a host and port, best first; raises OSError if there are none."""
Origin = tuple[str, str, int]
"""Scheme, host and port."""


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host from the system's resolver.

    The resolver runs in a thread, which is abandoned if it hangs.
    """
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await run_in_thread("resolve", look_up)
    except NoThread:
        raise Refused("host names cannot be resolved at the moment", "try again in a minute") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def normalize_url(url: str) -> str:
    """Return a URL in the form in which it is requested. URLs with the same form are the same request.

    White space around it and the fragment are removed. Scheme and host are in lower case. The host is in ASCII (IDNA)
    and has no final dot. The default port and `.` and `..` in the path are removed. An empty path is `/`. Characters
    that a URL may not have are encoded as UTF-8 with percent signs. All else stays as it is.

    Raises:
        ValueError: It is not a URL with http or https and a host.
    """
    try:
        parsed = httpx.URL(url.strip())
        host = parsed.raw_host.decode("ascii").rstrip(".")
        _ = parsed.host  # raises for a host such as `xn--a`
        normal = parsed.copy_with(host=host, raw_path=parsed.raw_path, fragment=None)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ValueError(str(error)) from None
    if parsed.scheme not in _PORTS or not host:
        raise ValueError("it does not start with http:// or https:// and a host")
    return str(normal)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetches pages from public hosts. It stores nothing between two fetches.

    Attributes:
        hosts: `name` or `name:port` of private hosts, or of other ports than 80 and 443, that the operator allows.
        tls: checks server certificates; None for the certificate authorities of the system.
        is_closed: refuse every fetch, in a private conversation.
    """

    hosts: frozenset[str] = frozenset()
    resolve: Resolve = resolve_host
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    is_closed: bool = False

    async def __call__(
        self,
        url: str,
        *,
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: bytes | None = None,
        types: Sequence[str] = READABLE,
        most: int = MAX_BYTES,
        seconds: float = SECONDS,
        trusted: str | None = None,
    ) -> Page:
        """Fetch one page, following redirects; a response of any status is a page.

        Args:
            params: parameters to add to the query.
            headers: sent only to the origin of `url`, not to redirect targets.
            types: accepted media types of a successful response; `text/*` matches any text.
            most: size limit in bytes, after decompression.
            seconds: time limit for the whole fetch.
            trusted: a URL from the operator's settings, whose origin may be private.

        Raises:
            Refused: the URL is not allowed, the host does not respond in time, or the response cannot be read.
        """
        if not _METHOD.fullmatch(method):
            raise ValueError(f"{method!r} is not an HTTP method")
        if self.is_closed:
            reason = "the conversation is private, and this specialist does not ask before it sends data"
            raise Refused(reason, "continue without it")
        if len(url) > URL_LENGTH:
            raise Refused(f"the URL has {len(url):,} characters; the limit is {URL_LENGTH:,}", "use a shorter URL")
        try:
            first = httpx.URL(normalize_url(url))
            first = first.copy_merge_params(dict(params)) if params else first
        except (httpx.InvalidURL, ValueError):
            raise Refused("the URL is invalid", "use a URL that starts with https:// or http:// and a host") from None
        origin = _origin_of(httpx.URL(trusted)) if trusted else None
        request = _Request(method, dict(headers or {}), body, tuple(types), most, seconds, origin)
        work = asyncio.run_coroutine_threadsafe(self._fetch(first, request), _loop())
        return await asyncio.wrap_future(work)  # cancelled with its caller

    async def _fetch(self, first: httpx.URL, request: "_Request") -> Page:
        url = first
        try:
            async with asyncio.timeout(request.seconds):
                for _ in range(MAX_REDIRECTS + 1):
                    found = await self._fetch_once(url, request)
                    if isinstance(found, Page):
                        return found
                    request, url = request.redirect(url, found), found.url
                raise Refused(f"{_host_name(url)} redirects more than {MAX_REDIRECTS} times", ANOTHER)
        except TimeoutError:
            raise Refused(
                f"{_host_name(first)} did not respond within {request.seconds:.3g} seconds", ANOTHER
            ) from None
        except (httpx.TransportError, OSError):
            raise Refused(f"could not connect to {_host_name(first)}, or the connection broke", ANOTHER) from None

    async def _fetch_once(self, url: httpx.URL, request: "_Request") -> "Page | _Redirect":
        """The response of one host: a page or a redirect."""
        addresses = await self._resolve_allowed(url, request.trusted)
        transport = httpx.AsyncHTTPTransport(
            verify=self.tls if self.tls is not None else await asyncio.to_thread(_authorities),
            trust_env=False,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
        )
        async with transport:
            response = await _send(transport, request.build(url), addresses, request.seconds / MAX_ADDRESSES)
            async with aclosing(response):
                target = response.headers.get("Location", "")
                if response.status_code not in _REDIRECTS or not target:
                    return await _read_page(response, url, request.types, request.most)
                try:
                    joined = normalize_url(str(url.join(target)))
                except (httpx.InvalidURL, ValueError):
                    raise Refused(f"{_host_name(url)} redirects to an invalid URL", ANOTHER) from None
                return _Redirect(response.status_code, httpx.URL(joined))

    async def _resolve_allowed(self, url: httpx.URL, trusted: Origin | None) -> Sequence[str]:
        """The addresses of a host, all of which are allowed."""
        if url.userinfo:
            raise Refused("the URL contains a user name or password", "remove it from the URL")
        host, port = _host_of(url), _port_of(url)
        with_port = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        is_free = (url.scheme, host, port) == trusted or with_port in self.hosts
        if not is_free and port not in _PORTS.values():
            raise Refused(f"port {port} is not allowed", "use a URL with port 80 or 443")
        addresses: Sequence[str] = ()
        with suppress(OSError, UnicodeError):
            addresses = await self.resolve(host, port)
        is_allowed = is_free or host in self.hosts or all(map(is_public, addresses))
        if not addresses or not is_allowed:
            if not is_allowed:
                shown = for_log(host[:100])
                log.warning("fetch: the host %s is not public; to allow it, add it to BRAIN_FETCH_HOSTS", shown)
            # the same error for both, or a model could find out which names a private network has
            raise Refused(
                f"the host {host[:100]} was not found or is not public", "check the URL or use another source"
            )
        return addresses[:MAX_ADDRESSES]


@dataclass(frozen=True, slots=True)
class _Redirect:
    status: int
    url: httpx.URL


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of `Fetch.__call__`."""

    method: str
    headers: Mapping[str, str]
    body: bytes | None
    types: Sequence[str]
    most: int
    seconds: float
    trusted: Origin | None

    def build(self, url: httpx.URL) -> httpx.Request:
        own = {"Accept": ", ".join(self.types) or "*/*", "User-Agent": _user_agent(), **self.headers}
        fixed = {"Accept-Encoding": "gzip, deflate", "Connection": "close", "Host": url.netloc.decode("ascii")}
        return httpx.Request(self.method, url, headers={**own, **fixed}, content=self.body)

    def redirect(self, here: httpx.URL, redirect: _Redirect) -> "_Request":
        """The request to the target of a redirect (RFC 9110, section 15.4)."""
        keeps_method = redirect.status in (307, 308) or self.method in ("GET", "HEAD")
        leaves_origin = _origin_of(here) != _origin_of(redirect.url)
        if leaves_origin and keeps_method and self.body is not None:
            raise Refused(f"{_host_name(here)} redirects the sent data to another host, which is not allowed", ANOTHER)
        return replace(
            self,
            method=self.method if keeps_method else "GET",
            headers={} if leaves_origin else self.headers,
            body=self.body if keeps_method else None,
        )


async def _send(
    transport: httpx.AsyncHTTPTransport, request: httpx.Request, addresses: Sequence[str], seconds: float
) -> httpx.Response:
    """Send a request to the first address that accepts a connection; the certificate is checked for the host name.

    Args:
        seconds: connection timeout for each address except the last; some hosts have one that drops all packets.
    """
    *others, last = addresses
    for address in addresses:
        pinned = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={
                "sni_hostname": _host_of(request.url),
                "timeout": {"connect": seconds if address in others else None},
            },
        )
        try:
            response = await transport.handle_async_request(pinned)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if address == last:
                raise
        else:
            response.request = request
            return response
    raise AssertionError("no addresses")


async def _read_page(response: httpx.Response, url: httpx.URL, types: Sequence[str], most: int) -> Page:
    """Return the page in the response to a request for `url`.

    Args:
        most: size limit in bytes, after decompression.
    """
    kind, _, parameters = response.headers.get("Content-Type", "").partition(";")
    kind = kind.strip().lower()
    if response.is_success and response.request.method != "HEAD" and not _fits(kind, types):
        raise Refused(f"{_host_name(url)} sent the type {kind[:60] or '(none)'}, which cannot be read", ANOTHER)
    if int(response.headers.get("Content-Length", 0)) > most:
        raise _too_large(url, most)
    pieces, size = [], 0
    async with aclosing(cast(Any, response.aiter_raw(65536))) as raw:
        async for piece in _decompress(raw, response.headers.get("Content-Encoding", ""), url, most):
            size += len(piece)
            if size > most:
                raise _too_large(url, most)
            pieces.append(piece)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Page(
        str(url),
        response.status_code,
        kind,
        headers,
        b"".join(pieces),
        found[1] if (found := _CHARSET.search(parameters)) else None,
    )


async def _decompress(raw: AsyncIterator[bytes], encoding: str, url: httpx.URL, most: int) -> AsyncIterator[bytes]:
    """The decompressed body, in pieces of limited size."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        async for piece in raw:
            yield piece
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Refused(f"{_host_name(url)} sent an unknown compression", ANOTHER)
    decompressor, packed = _Decompressor(encoding), 0
    try:
        async for piece in raw:
            packed += len(piece)
            if packed > most:
                raise _too_large(url, most)
            for expanded in decompressor.feed(piece):
                yield expanded
    except zlib.error:
        raise Refused(f"the response of {_host_name(url)} is damaged", ANOTHER) from None


class _Decompressor:
    """Decompresses gzip, and deflate with or without a header (RFC 9110, section 8.4.1)."""

    def __init__(self, encoding: str) -> None:
        self._deflate = encoding == "deflate"
        self._stream = zlib.decompressobj(zlib.MAX_WBITS if self._deflate else zlib.MAX_WBITS | 16)
        self._has_begun = False

    def feed(self, piece: bytes) -> Iterator[bytes]:
        if self._deflate and not self._has_begun and piece and piece[0] & 0x0F != 8:
            self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self._has_begun = self._has_begun or bool(piece)
        while piece:
            if self._stream.eof:  # gzip can have several members (RFC 1952, section 2.2)
                if self._deflate or not piece.startswith(b"\x1f"):
                    return
                self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield self._stream.decompress(piece, 65536)
            piece = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail


def _fits(kind: str, types: Sequence[str]) -> bool:
    return any(kind == one or (one.endswith("*") and kind.startswith(one[:-1])) for one in types)


def _too_large(url: httpx.URL, most: int) -> Refused:
    return Refused(f"the response of {_host_name(url)} is larger than {most / 1024 / 1024:g} MiB", ANOTHER)


def _host_name(url: httpx.URL) -> str:
    """The host for a `Refused.reason`."""
    return url.host[:100]


def _origin_of(url: httpx.URL) -> Origin:
    return url.scheme, _host_of(url), _port_of(url)


def _host_of(url: httpx.URL) -> str:
    """The host in canonical form: ASCII, lower case, without a final dot; IPv6 in short form."""
    host = url.raw_host.decode("ascii").strip("[]").lower().removesuffix(".")
    with suppress(ValueError):
        return str(ip_address(host))
    return host


def _port_of(url: httpx.URL) -> int:
    return _PORTS[url.scheme] if url.port is None else url.port


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="brain-fetch", daemon=True).start()
    return loop


@cache
def _authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context()


@cache
def _user_agent() -> str:
    return f"brain-sse/{version('brain-sse')}"
