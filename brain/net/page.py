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
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_SUPERSETS = {"gbk": "gb18030", "iso-2022-jp": "iso2022_jp_ext"}
"""Codecs of Python that read more of an encoding than the one with its name."""
_REPAIRED = ("euc_jp", "gb18030")
_MAX_REPAIRS = 10_000
"""Characters that `_repair` reads; each costs about a microsecond."""
_IN_DOCUMENT = {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "windows-1252"}
"""What these mean in a document, whose bytes could not be read up to there otherwise (HTML Standard, 13.2.3.2)."""
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
        """The body as text. The encoding is from the byte order mark, the server or the document, else UTF-8.

        Raises:
            Refused: the encoding is one that no browser reads, because scripts hide in it.
        """
        for mark, codec in _BYTE_ORDER_MARKS:
            if self.body.startswith(mark):
                return self.body[len(mark) :].decode(codec, "replace")
        found = self._find_encoding()
        if found is None:
            return self.body.decode("utf-8", "replace")
        if found.name == "replacement":
            raise Refused(f"{self._host()} sent text in an encoding that is not read", "try another source")
        if found.name == "x-user-defined":
            return str(found.codec_info.decode(self.body, "replace")[0])
        codec = _SUPERSETS.get(found.name, found.codec_info.name)
        text = self.body.decode(codec, "replace")
        has_few = codec in _REPAIRED and 0 < text.count("\ufffd") <= _MAX_REPAIRS
        return self.body.decode(codec, "webpage") if has_few else text

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

    def _find_encoding(self) -> Any:
        """Return the encoding of `webencodings` that the server or the document names; None for UTF-8."""
        label = _META.search(_COMMENT.sub(b"", self.body[:_SNIFFED_BYTES])) if self.type != "text/plain" else None
        declared = label[1].decode("ascii", "replace") if label else ""
        if (self.charset or declared or "utf-8").lower() == "utf-8":
            return None
        from webencodings import lookup

        if found := lookup(self.charset or ""):
            return found
        found = lookup(declared)
        return lookup(_IN_DOCUMENT.get(found.name, found.name)) if found else None

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


def _repair(error: UnicodeError) -> tuple[str, int]:
    """Return what browsers read where Python's codecs fail, and the position after it.

    EUC-JP: the characters of vendors, such as ①, which are in Shift_JIS, too. GBK: the euro sign of Windows.
    """
    assert isinstance(error, UnicodeDecodeError)
    pair = error.object[error.start : error.start + 2]
    if error.encoding == "euc_jp" and len(pair) == 2 and min(pair) >= 0xA1:
        row, cell = pair[0] - 0xA1, pair[1] - 0xA1
        lead = row // 2 + (0x81 if row < 62 else 0xC1)
        trail = cell + (0x9F if row % 2 else 0x40 + (cell >= 63))
        return bytes((lead, trail)).decode("cp932", "replace"), error.start + 2
    if error.encoding == "gb18030" and pair[:1] == b"\x80":
        return "€", error.start + 1
    return "\ufffd", error.end


codecs.register_error("webpage", _repair)
