"""What was fetched from the web. The bytes are a stranger's; reading them as text or JSON cannot fail badly."""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from brain.errors import Refused

JSON_VALUES = 50_000
_QUOTES = 200_000
_SNIFFED = 2048
_META = re.compile(
    rb"""<(?:meta|\?xml)[^>]{0,300}?(?:charset|encoding)\s*=\s*["']?\s*([\w.:+-]{1,40})""", re.IGNORECASE
)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_KNOWN = frozenset({
    "utf-8", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-5",
    "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-9", "iso8859-10", "iso8859-11", "iso8859-13", "iso8859-14",
    "iso8859-15", "iso8859-16", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp866",
    "cp874", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "tis-620", "shift_jis", "cp932", "euc_jp", "iso2022_jp",
    "gb2312", "gbk", "gb18030", "big5", "big5hkscs", "euc_kr", "cp949", "johab",
})  # fmt: skip
"""Encodings of text on the web. Python knows others that are none, and some that take quadratic time."""
_STATUS = {
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
    """An answer from the web.

    Attributes:
        url: where it came from, behind all redirects.
        status: of HTTP.
        type: the media type, such as `text/html`, in lower case; empty when the server named none.
        headers: with names in lower case.
        body: without compression.
        charset: what the server called the encoding of the text, if anything.
    """

    url: str
    status: int
    type: str
    headers: Mapping[str, str]
    body: bytes
    charset: str | None = None

    @property
    def text(self) -> str:
        """The body as text: by its byte order mark, else the server's word, else its own, else UTF-8."""
        for mark, encoding in _MARKS:
            if self.body.startswith(mark):
                return self.body[len(mark) :].decode(encoding, "replace")
        return self.body.decode(_encoding(self.charset) or _encoding(self._own_word()) or "utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON; raises `Refused` when it is none, or has more than 50,000 values."""
        if not _is_quick(self.body):
            raise Refused(f"{self._host()} answers with too many pieces of data at once; ask for less")
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            raise Refused(f"{self._host()} did not answer in JSON; try another source") from None

    def good(self) -> "Page":
        """The page itself when its status is one of success; else raises `Refused` in words."""
        if 200 <= self.status < 300:
            return self
        trouble = "has trouble of its own" if self.status >= 500 else f"answers with status {self.status}"
        raise Refused(f"{self._host()} {_STATUS.get(self.status, trouble)}; or try another source")

    def _own_word(self) -> str | None:
        found = _META.search(self.body[:_SNIFFED]) if self.type != "text/plain" else None
        return found[1].decode("ascii", "replace") if found else None

    def _host(self) -> str:
        return self.url.partition("://")[2].partition("/")[0][:100]


def _is_quick(body: bytes) -> bool:
    """Whether JSON is of few values, however long: nothing else runs while it is read, 0.4 s for 4 MB of `[]`."""
    if len(body) <= JSON_VALUES:
        return True
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > _QUOTES:
        return False
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) <= JSON_VALUES


def _encoding(name: str | None) -> str | None:
    """Python's name of an encoding, None for what is none."""
    try:
        found = codecs.lookup(name or "").name
    except (LookupError, ValueError):
        return None
    found = {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(found, found)  # as browsers read them (WHATWG Encoding)
    return found if found in _KNOWN else None
