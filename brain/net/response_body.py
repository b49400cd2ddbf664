"""Reads responses from the web with limits: media type, size, and decompression in small steps."""

import re
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Any, cast

import httpx

from brain.errors import Refused
from brain.net.page import Page

_CHARSET = re.compile(r"""(?:^|;)\s*charset\s*=\s*["']?\s*([\w.:+-]{1,40})""", re.IGNORECASE)


ANOTHER = "try another source"


def host_name(url: httpx.URL) -> str:
    """Return the host for a `Refused.reason`."""
    return url.host[:100] or "the host"


async def read_page(response: httpx.Response, url: httpx.URL, types: Sequence[str], most: int) -> Page:
    """Return the page in the response to a request for `url`.

    Args:
        types: accepted media types of a successful response; `text/*` matches any text.
        most: size limit in bytes, after decompression.

    Raises:
        Refused: it has another type, is too large, or is damaged.
    """
    kind, _, parameters = response.headers.get("Content-Type", "").partition(";")
    kind = kind.strip().lower()
    if response.is_success and response.request.method != "HEAD" and not _fits(kind, types):
        raise Refused(f"{host_name(url)} sent the type {kind[:60] or '(none)'}, which cannot be read", ANOTHER)
    with suppress(ValueError):
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
        raise Refused(f"{host_name(url)} sent an unknown compression", ANOTHER)
    decompressor, packed = _Decompressor(encoding), 0
    try:
        async for piece in raw:
            packed += len(piece)
            if packed > most:
                raise _too_large(url, most)
            for expanded in decompressor.feed(piece):
                yield expanded
    except zlib.error:
        raise Refused(f"the response of {host_name(url)} is damaged", ANOTHER) from None


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
    return Refused(f"the response of {host_name(url)} is larger than {most / 1024 / 1024:g} MiB", ANOTHER)
