"""The files of the chat page, as they were when the first of them was asked for: all of one version."""

import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""Said here, since the machine's own table may have others, by which no browser runs a script."""
_INDEX = "index.html"
_ADDRESS = re.compile("/page/(?:[0-9a-f]{16}/)?(?P<name>.+)")


@dataclass(frozen=True, slots=True)
class PageFile:
    """One of them, also made smaller by gzip, with its media type, and a tag that changes with what stands in it."""

    data: bytes
    small: bytes
    type: str
    tag: str


@cache
def index() -> PageFile:
    """The page itself. It names the other files below their version, so that a browser need not ask for them again."""
    named = _all()[_INDEX].data.replace(b'="page/', b'="page/%s/' % version().encode())
    return _made(_INDEX, named)


@cache
def version() -> str:
    """What changes with any of them: 16 hexadecimal digits."""
    return _digest(repr([(name, one.tag) for name, one in sorted(_all().items())]).encode(), 8)


def find(path: str) -> PageFile | None:
    """One of the others by its address, with a version in it or without.

    It may be another version: whoever has an index of before gets the files of now, and not nothing.
    """
    address = _ADDRESS.match(path)
    return None if address is None or address["name"] == _INDEX else _all().get(address["name"])


@cache
def _all() -> Mapping[str, PageFile]:
    return dict(_below(files("brain").joinpath("page"), ""))


def _below(folder: Traversable, place: str) -> Iterator[tuple[str, PageFile]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _below(one, f"{place}{one.name}/")
        elif _suffix(one.name) in _TYPES:
            yield place + one.name, _made(one.name, one.read_bytes())


def _made(name: str, data: bytes) -> PageFile:
    return PageFile(data, gzip.compress(data), _TYPES[_suffix(name)], f'W/"{_digest(data, 16)}"')


def _digest(data: bytes, size: int) -> str:
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]
