"""Built in: keeps the files that were read last, so that a calendar is listed again without reading it again."""

import hashlib
import threading
from collections import OrderedDict

from specialists._calendar.events import File, read


class Readings:
    """The files read last, by their content; bounded by their size.

    Args:
        most: bytes of files to keep.
        files: how many of them.
    """

    def __init__(self, most: int = 48_000_000, files: int = 10_000) -> None:
        self._most = most
        self._count = files
        self._size = 0
        self._files: OrderedDict[bytes, File] = OrderedDict()
        self._lock = threading.Lock()

    def file(self, data: bytes) -> File:
        """The file with this content, read at most once.

        Raises:
            Unreadable: when it is too large, or no calendar.
        """
        key = digest(data)
        found = self.known(key)
        return found or self._keep(key, read(data))

    def known(self, key: bytes) -> File | None:
        """A file that was read lately, by the digest of its content."""
        with self._lock:
            if key in self._files:
                self._files.move_to_end(key)
            return self._files.get(key)

    def _keep(self, key: bytes, file: File) -> File:
        with self._lock:
            if key not in self._files:
                self._size += len(file.data)
            self._files[key] = file
            while len(self._files) > 1 and (self._size > self._most or len(self._files) > self._count):
                self._size -= len(self._files.popitem(last=False)[1].data)
        return file


def digest(data: bytes) -> bytes:
    """What tells one content from another."""
    return hashlib.blake2b(data, digest_size=16).digest()
