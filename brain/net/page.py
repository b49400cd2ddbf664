"""A web page. Its bytes are untrusted, so decoding them as text or JSON has time limits."""

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
"""Text encodings of the web. Some other codecs of Python take quadratic time."""
_STATUS_REASONS = {
    401: "requires a sign-in",
    402: "requires payment",
    403: "denies access to this page",
    404: "does not have this page",
    410: "no longer has this page",
    429: "receives too many requests at the moment",
    451: "blocks this page for legal reasons",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A response from the web.

    Attributes:
        url: the URL after all redirects.
        status: the HTTP status.
        type: the media type in lower case, such as `text/html`; empty if the server sent none.
        headers: the headers, with names in lower case.
        body: the decompressed body.
        charset: the encoding that the server sent, if any.
    """

    url: str
    status: int
    type: str
    headers: Mapping[str, str]
    body: bytes
    charset: str | None = None

    @property
    def text(self) -> str:
        """The body as text. The encoding is from the byte order mark, the server or the document, else UTF-8."""
        for mark, encoding in _BYTE_ORDER_MARKS:
            if self.body.startswith(mark):
                return self.body[len(mark) :].decode(encoding, "replace")
        return self.body.decode(_encoding(self.charset) or _encoding(self._declared_charset()) or "utf-8", "replace")

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            Refused: it is not JSON, or has more than 50,000 values.
        """
        if not _has_few_values(self.body):
            raise Refused(f"the response of {self._host()} has more than {MAX_JSON_VALUES:,} values", "ask for less")
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            raise Refused(f"{self._host()} did not send JSON", "try another source") from None

    def good(self) -> "Page":
        """Return the page.

        Raises:
            Refused: its status is not a success.
        """
        if 200 <= self.status < 300:
            return self
        problem = _STATUS_REASONS.get(self.status, f"failed with status {self.status}")
        advice = {404: "check the URL or use another source", 429: "wait, or try another source"}
        raise Refused(f"{self._host()} {problem}", advice.get(self.status, "try another source"))

    def _declared_charset(self) -> str | None:
        found = _META.search(self.body[:_SNIFFED_BYTES]) if self.type != "text/plain" else None
        return found[1].decode("ascii", "replace") if found else None

    def _host(self) -> str:
        return self.url.partition("://")[2].partition("/")[0][:100]


def _has_few_values(body: bytes) -> bool:
    """Whether JSON has few values. Many values block the event loop: decoding 4 MB of `[]` takes 0.4 s."""
    if len(body) <= MAX_JSON_VALUES:
        return True
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > _MAX_QUOTES:
        return False
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) <= MAX_JSON_VALUES


def _encoding(name: str | None) -> str | None:
    """Python's name of an encoding; None for an unknown one."""
    try:
        found = codecs.lookup(name or "").name
    except (LookupError, ValueError):
        return None
    found = {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(found, found)  # as browsers read them (WHATWG Encoding)
    return found if found in _ENCODINGS else None
