"""The files of the chat page, read once, so that all of them have the same version."""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
}
"""Fixed, because the system's table may contain types that browsers reject for scripts."""
_INDEX = "index.html"
_PATH = re.compile("/page/(?:[0-9a-f]{16}/)?(?P<name>.+)")


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file: its data, plain and gzipped, its media type, and an entity tag of its content."""

    data: bytes
    gzipped: bytes
    type: str
    etag: str


@cache
def index() -> PageFile:
    """Return the page. Its URLs of other files contain their version, so that browsers can cache them forever."""
    return _page_file(".html", _files()[_INDEX].data.replace(b'="page/', b'="page/%s/' % version().encode()))


@cache
def version() -> str:
    """Return 16 hexadecimal digits that change when any file changes."""
    return _digest(repr([(name, one.etag) for name, one in sorted(_files().items())]).encode(), 8)


def find(path: str) -> PageFile | None:
    """Find a file by its path, with or without a version.

    Any version is accepted: a page that was loaded before an update gets the present files.
    """
    match = _PATH.match(path)
    return None if match is None or match["name"] == _INDEX else _files().get(match["name"])


@cache
def _files() -> Mapping[str, PageFile]:
    folder = Path(__file__).parent.parent / "page"
    paths = [path for path in folder.rglob("*") if path.suffix in _TYPES and path.is_file()]
    return {path.relative_to(folder).as_posix(): _page_file(path.suffix, path.read_bytes()) for path in paths}


def _page_file(suffix: str, data: bytes) -> PageFile:
    return PageFile(data, gzip.compress(data), _TYPES[suffix], f'W/"{_digest(data, 16)}"')


def _digest(data: bytes, size: int) -> str:
    return hashlib.blake2b(data, digest_size=size).hexdigest()
