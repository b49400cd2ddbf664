"""A page of the web. Its bytes are untrusted: reading them as text or JSON is bounded in time."""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from brain.errors import Refused

MAX_JSON_VALUES = 50_000
_MAX_QUOTES = 200_000
_SNIFFED_BYTES = 2048
_META = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,300}?(?:charset|encoding)\s*=\s*["']?\s*([\w.:+-]{1,40})""", re.IGNORECASE
)
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_ENCODINGS = frozenset({
    "utf-8", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-5",
    "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9", "iso8859-10", "iso8859-11", "iso8859-13", "iso8859-14",
    "iso8859-15", "iso8859-16", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp866",
    "cp874", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "tis-620", "shift_jis", "cp932", "euc_jp", "iso2022_jp",
    "gb2312", "gbk", "gb18030", "big5", "big5hkscs", "euc_kr", "cp949", "johab",
})  # fmt: skip
"""Encodings of text on the web. Python knows others, some of which take quadratic time."""
_STATUS_REASONS = {
    401: "wants a sign-in",
    402: "wants to be paid",
    403: "refuses to show this",
    404: "has no such page; check the address",
    410: "no longer has this page",
    429: "gets too many requests; wait a while",
    451: "may not show this for legal reasons",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A response from the web.

    Attributes:
        url: where it came from, after all redirects.
        status: the HTTP status.
        type: the media type, such as `text/html`, in lower case; empty when the server named none.
        headers: their names are in lower case.
        body: decompressed.
        charset: the encoding that the server named, if any.
    """

    url: str
    status: int
    type: str
    headers: Mapping[str, str]
    body: bytes
    charset: str | None = None

    @property
    def text(self) -> str:
        """The body as text: in the encoding of its byte order mark, of the server, of its own declaration, or UTF-8."""
        for mark, encoding in _BYTE_ORDER_MARKS:
            if self.body.startswith(mark):
                return self.body[len(mark) :].decode(encoding, "replace")
        return self.body.decode(_encoding(self.charset) or _encoding(self._declared_charset()) or "utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            Refused: it is no JSON, or has more than 50,000 values.
        """
        if not _has_few_values(self.body):
            raise Refused(f"{self._host()} answers with too many pieces of data at once; ask for less")
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            raise Refused(f"{self._host()} did not answer in JSON; try another source") from None

    def good(self) -> "Page":
        """The page itself.

        Raises:
            Refused: its status is not one of success.
        """
        if 200 <= self.status < 300:
            return self
        trouble = "has trouble of its own" if self.status >= 500 else f"answers with status {self.status}"
        raise Refused(f"{self._host()} {_STATUS_REASONS.get(self.status, trouble)}; or try another source")

    def _declared_charset(self) -> str | None:
        found = _META.search(self.body[:_SNIFFED_BYTES]) if self.type != "text/plain" else None
        return found[1].decode("ascii", "replace") if found else None

    def _host(self) -> str:
        return self.url.partition("://")[2].partition("/")[0][:100]


def _has_few_values(body: bytes) -> bool:
    """Whether JSON has few values, however long it is. Reading it blocks the event loop: 0.4 s for 4 MB of `[]`."""
    if len(body) <= MAX_JSON_VALUES:
        return True
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > _MAX_QUOTES:
        return False
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) <= MAX_JSON_VALUES


def _encoding(name: str | None) -> str | None:
    """Python's name of an encoding; None if it is unknown."""
    try:
        found = codecs.lookup(name or "").name
    except (LookupError, ValueError):
        return None
    found = {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(found, found)  # as browsers read them (WHATWG Encoding)
    return found if found in _ENCODINGS else None
