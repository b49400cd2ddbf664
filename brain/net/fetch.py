"""The one guarded way out to the web. What a model, a page or a file names is fetched from public hosts only.

A name is resolved once and the connection goes to the address that was checked, so that a second answer of the name
server leads nowhere else. Each redirect is checked like the first address. A connection serves one request; there are
no proxies and no cookies; size and time are bounded, before and after decompression.

Answers are read on an event loop of their own, in a thread: a head of 20,000 lines, or a body in chunks of one byte,
takes a tenth of a second to parse, and turns go on meanwhile.
"""

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from ipaddress import ip_address
from typing import Any

import httpx

from brain.concurrency import NoThread, run_in_thread
from brain.errors import Refused
from brain.net.page import Page
from brain.net.public_addresses import public
from brain.net.response_body import named, received

READABLE = ("text/*", "application/xhtml+xml", "application/xml", "application/json", "application/pdf")
BYTES_MOST = 4 * 1024 * 1024
SECONDS = 10.0
REDIRECTS_MOST = 5
URL_LENGTH = 4000
ADDRESSES_TRIED = 3
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_METHOD = re.compile(r"[A-Z]{1,20}")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and a port to numeric addresses, best first; raises OSError when there are none."""


async def resolved(host: str, port: int) -> list[str]:
    """The addresses that the machine's resolver knows for a host.

    It is asked in a thread that nobody waits for when it hangs, and that is none of those which the loop lends to all.
    """
    try:
        found = await run_in_thread(
            "resolve", partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM), _nothing
        )
    except NoThread:
        raise Refused("names of hosts cannot be looked up just now; try again in a minute") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _nothing(_: object) -> None:
    """Takes the items of a function that has none."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetches pages, guarded. It keeps nothing between two of them.

    Attributes:
        hosts: `name` or `name:port` of hosts that the operator allows although they are not public, or at another
            port than 80 and 443.
        resolve: the resolver.
        tls: what server certificates are checked by; else the usual authorities.
    """

    hosts: frozenset[str] = frozenset()
    resolve: Resolve = resolved
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    async def __call__(
        self,
        url: str,
        *,
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: bytes | None = None,
        types: Sequence[str] = READABLE,
        most: int = BYTES_MOST,
        seconds: float = SECONDS,
        trusted: str | None = None,
    ) -> Page:
        """Fetches one page, following redirects; an answer of any status is a page.

        Args:
            params: put into the query, behind what the address has.
            headers: sent to the origin of `url` only, not to where it redirects.
            types: accepted media types of a successful answer; `text/*` is any text.
            most: bytes, decompressed.
            seconds: for all of it.
            trusted: an address from the operator's settings; what has its scheme, host and port may be private.

        Raises:
            Refused: when the address is not allowed, cannot be reached in time, or gives what is not wanted.
        """
        if not _METHOD.fullmatch(method):
            raise ValueError(f"{method!r} is no method")
        first = _parsed(url, params)
        origin = _origin(trusted) if trusted else None
        asked = _Asked(method, dict(headers or {}), body, tuple(types), most, seconds, origin)
        return await _apart(self._in_time(first, asked))

    async def _in_time(self, first: httpx.URL, asked: "_Asked") -> Page:
        try:
            async with asyncio.timeout(asked.seconds):
                return await self._following(first, asked)
        except TimeoutError:
            within = f"within {asked.seconds:g} seconds"
            raise Refused(f"{named(first)} did not answer {within}; try another source") from None
        except (httpx.TransportError, ssl.SSLError, OSError):
            raise Refused(f"{named(first)} cannot be reached or broke off; try another source") from None

    async def _following(self, url: httpx.URL, asked: "_Asked") -> Page:
        for _ in range(REDIRECTS_MOST + 1):
            found = await self._once(url, asked)
            if isinstance(found, Page):
                return found
            asked, url = asked.redirected(url, found), found.url
        raise Refused(f"{named(url)} redirects too often; try another address")

    async def _once(self, url: httpx.URL, asked: "_Asked") -> "Page | _Redirect":
        """The answer of one host: a page, or where it leads."""
        addresses = await self._allowed(url, asked.trusted)
        transport = httpx.AsyncHTTPTransport(
            verify=self.tls if self.tls is not None else await asyncio.to_thread(_authorities),
            trust_env=False,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
        )
        async with transport:
            response = await _sent(transport, asked.request(url), addresses, asked.seconds / ADDRESSES_TRIED)
            async with aclosing(response):
                target = response.headers.get("Location", "")
                if response.status_code in _REDIRECTS and target:
                    return _Redirect(response.status_code, _joined(url, target))
                return await received(response, url, asked.types, asked.most)

    async def _allowed(self, url: httpx.URL, trusted: "_Origin | None") -> Sequence[str]:
        """The addresses of a host, all of which may be asked."""
        if url.scheme not in _PORTS or not url.host:
            raise Refused("only http:// and https:// addresses can be fetched")
        if url.userinfo:
            raise Refused("an address with a user name or password cannot be fetched; leave it out")
        host, port = _host(url), _port(url)
        with_port = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        free = (url.scheme, host, port) == trusted or with_port in self.hosts
        if not free and port not in _PORTS.values():
            raise Refused(f"port {port} cannot be fetched, only the usual ones of http and https")
        addresses: Sequence[str] = ()
        with suppress(OSError, UnicodeError):
            addresses = await self.resolve(host, port)
        if not addresses or not (free or host in self.hosts or all(map(public, addresses))):
            # the same words for both, or a model could find out which names a private network has
            raise Refused(f"there is no public host {host[:100]}; correct the address or try another source")
        return addresses[:ADDRESSES_TRIED]


_Origin = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class _Redirect:
    status: int
    url: httpx.URL


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is wanted, and from whom it may be had."""

    method: str
    headers: Mapping[str, str]
    body: bytes | None
    types: Sequence[str]
    most: int
    seconds: float
    trusted: _Origin | None

    def request(self, url: httpx.URL) -> httpx.Request:
        own = {"Accept": ", ".join(self.types) or "*/*", "User-Agent": _user_agent(), **self.headers}
        fixed = {"Accept-Encoding": "gzip, deflate", "Connection": "close", "Host": url.netloc.decode("ascii")}
        return httpx.Request(self.method, url, headers={**own, **fixed}, content=self.body)

    def redirected(self, here: httpx.URL, redirect: _Redirect) -> "_Asked":
        """What is asked where a redirect leads (RFC 9110, section 15.4)."""
        keeps = redirect.status in (307, 308) or self.method in ("GET", "HEAD")
        leaves = _origin_of(here) != _origin_of(redirect.url)
        if leaves and keeps and self.body is not None:
            raise Refused(f"{named(here)} redirects to another host, which gets nothing of what was sent")
        return _Asked(
            self.method if keeps else "GET",
            {} if leaves else self.headers,
            self.body if keeps else None,
            self.types,
            self.most,
            self.seconds,
            self.trusted,
        )


async def _sent(
    transport: httpx.AsyncHTTPTransport, request: httpx.Request, addresses: Sequence[str], seconds: float
) -> httpx.Response:
    """Sends a request to the first of the addresses that takes it in time; the certificate is that of the name.

    Args:
        seconds: for each address but the last; some hosts have one that swallows all that is sent to it.
    """
    for address in addresses:
        pinned = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={
                "sni_hostname": _host(request.url),
                "timeout": {"connect": None if address == addresses[-1] else seconds},
            },
        )
        try:
            response = await transport.handle_async_request(pinned)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if address == addresses[-1]:
                raise
        else:
            response.request = request
            return response
    raise AssertionError("there is an address")


def _parsed(url: str, params: Mapping[str, str | int] | None) -> httpx.URL:
    if len(url) > URL_LENGTH:
        raise Refused(f"an address may have at most {URL_LENGTH} characters")
    try:
        parsed = _named_well(httpx.URL(url.strip()).copy_with(fragment=None))
        return parsed.copy_merge_params(dict(params)) if params else parsed
    except (httpx.InvalidURL, ValueError):
        reason = "that is no address; it must begin with https:// or http:// and name a host as IDNA allows it"
        raise Refused(reason) from None


def _named_well(url: httpx.URL) -> httpx.URL:
    """The same; raises `ValueError` for a host whose labels decode to nothing, as `xn--a`, which httpx finds late."""
    _ = url.host
    return url


def _joined(here: httpx.URL, target: str) -> httpx.URL:
    try:
        return _named_well(here.join(target[:URL_LENGTH]).copy_with(fragment=None))
    except (httpx.InvalidURL, ValueError):
        raise Refused(f"{named(here)} redirects to what is no address; try another source") from None


def _origin(url: str) -> _Origin | None:
    return _origin_of(httpx.URL(url))


def _origin_of(url: httpx.URL) -> _Origin | None:
    return (url.scheme, _host(url), _port(url)) if url.scheme in _PORTS else None


def _host(url: httpx.URL) -> str:
    """As it is resolved and compared: ASCII, lower case, without the dot of the root; IPv6 in its one short form."""
    host = url.raw_host.decode("ascii").strip("[]").lower().removesuffix(".")
    with suppress(ValueError):
        return str(ip_address(host))
    return host


def _port(url: httpx.URL) -> int:
    return _PORTS[url.scheme] if url.port is None else url.port


async def _apart(work: Coroutine[Any, Any, Page]) -> Page:
    """Runs it on the loop for answers; it is cancelled with its caller."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _loop()))


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
