"""Calendars as `.ics` files in a folder, with a cache of parsed files."""

import hashlib
import os
import re
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from brain import Refused
from specialists._calendar.calendars import (
    ASK_OPERATOR,
    Calendar,
    Resource,
    VersionConflict,
    is_event_id,
    make_file_id,
    sort_calendars,
)
from specialists._calendar.expand import Window
from specialists._calendar.ics_read import MAX_FILE, File, Unreadable, parse_file

MAX_FILES = 20_000
MAX_CALENDARS = 100
LOCK_SECONDS = 2.0
_LOCK = ".brain.lock"
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_MAX_NAME = 60
_MAX_DIGESTS = 50_000


class FileCache:
    """Least recently used cache of parsed files, keyed by a digest of their content.

    Args:
        max_bytes: limit for the content of all cached files, in bytes.
        max_files: limit for the number of files.
    """

    def __init__(self, max_bytes: int = 48_000_000, max_files: int = 10_000) -> None:
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._size = 0
        self._files: OrderedDict[bytes, File] = OrderedDict()
        self._lock = threading.Lock()

    def parse(self, data: bytes) -> File:
        """Return the parsed file; parse it only if it is not cached.

        Raises:
            Unreadable: if the file is too large or not a calendar.
        """
        key = hash_content(data)
        if found := self.get(key):
            return found
        file = parse_file(data)
        with self._lock:
            if key not in self._files:
                self._size += len(file.data)
            self._files[key] = file
            while len(self._files) > 1 and (self._size > self._max_bytes or len(self._files) > self._max_files):
                self._size -= len(self._files.popitem(last=False)[1].data)
        return file

    def get(self, key: bytes) -> File | None:
        """Return the cached file with this digest, or None."""
        with self._lock:
            if key in self._files:
                self._files.move_to_end(key)
            return self._files.get(key)


def hash_content(data: bytes) -> bytes:
    """Return a digest of 16 bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


_file_cache = FileCache()
_digests: OrderedDict[tuple[str, int, int, int], bytes] = OrderedDict()
"""The digest of a file's content, by path, modification time, size and inode."""


class FolderStore:
    """The calendars of one user.

    Args:
        root: the user's folder.
        seconds_left: returns the time left for reading, in seconds.
    """

    def __init__(self, root: Path, seconds_left: Callable[[], float]) -> None:
        self.place = str(root.absolute())
        self.unread: list[str] = []
        self._root = root
        self._seconds_left = seconds_left

    def calendars(self) -> list[Calendar]:
        """Return the folders in the user's folder, and that folder itself if it contains files."""
        entries = self._entries(self._root)
        found = [Calendar(e.name, _display_name(Path(e.path)) or e.name) for e in entries if _is_folder(e)]
        if any(entry.name.endswith(".ics") for entry in entries):
            found.append(Calendar(".", _display_name(self._root) or "main"))
        return sort_calendars(found[:MAX_CALENDARS])

    def create_calendar(self, name: str) -> Calendar:
        safe = encode_name(name)
        with _refuse_write_errors():
            (self._root / safe).mkdir(parents=True, exist_ok=True, mode=0o700)
            if safe != name:
                (self._root / safe / "displayname").write_text(name, "utf-8")
        return Calendar(safe, name)

    def files(self, calendar: Calendar, window: Window) -> Iterator[Resource]:
        """Yield all files, because only their content shows which events they contain."""
        yield from self._read(calendar, lambda name: True)

    def find(self, calendar: Calendar, event_id: str) -> Iterator[Resource]:
        found = []
        if is_event_id(event_id):
            found = list(self._read(calendar, lambda name: make_file_id(calendar, name) == event_id[:8]))
        yield from found or (r for r in self._read(calendar, lambda name: True) if event_id in r.file.series)

    def choose_file_name(self, calendar: Calendar, uid: str) -> str:
        return f"{uid}.ics"

    def write(self, calendar: Calendar, name: str, data: bytes, version: str | None) -> str:
        path = self._path(calendar, name)
        with _refuse_write_errors(), _locked(self._root):
            _check_version(path, version)
            temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
            try:
                with temporary.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.chmod(path.stat().st_mode & 0o777 if version else 0o600)
                if version is None:
                    _link_new(temporary, path)
                else:
                    os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
        return hash_content(data).hex()

    def remove(self, calendar: Calendar, name: str, version: str) -> None:
        path = self._path(calendar, name)
        with _refuse_write_errors(), _locked(self._root):
            _check_version(path, version)
            path.unlink()

    def _path(self, calendar: Calendar, name: str) -> Path:
        """Return the path of a file; its name comes from a listing or from `choose_file_name`."""
        assert Path(name).name == name
        assert calendar.id == "." or Path(calendar.id).name == calendar.id
        return self._root / calendar.id / name

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return [entry for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Refused("the calendar folder cannot be read", ASK_OPERATOR) from error

    def _read(self, calendar: Calendar, includes: Callable[[str], bool]) -> Iterator[Resource]:
        entries = [e for e in self._entries(self._root / calendar.id) if e.name.endswith(".ics") and includes(e.name)]
        if len(entries) > MAX_FILES:
            self.unread.append(f"{len(entries) - MAX_FILES} files of {calendar.name} (the limit is {MAX_FILES:,})")
        for number, entry in enumerate(sorted(entries, key=lambda entry: entry.name)[:MAX_FILES]):
            if self._seconds_left() <= 0:
                self.unread.append(f"{len(entries) - number} files of {calendar.name} (no time left: try again)")
                return
            name = re.sub(r"[^\w.@+-]+", " ", entry.name).strip()
            name = name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
            try:
                resource = self._resource(calendar, entry)
            except Unreadable as problem:
                self.unread.append(f"{name} ({problem})")
            except OSError:
                self.unread.append(f"{name} (cannot be opened)")
            else:
                yield resource
                if count := resource.file.unreadable:
                    self.unread.append(f"{count} invalid or excess events of {name}")

    def _resource(self, calendar: Calendar, entry: os.DirEntry[str]) -> Resource:
        status = entry.stat(follow_symlinks=False)
        if not S_ISREG(status.st_mode):
            raise Unreadable("not a regular file")
        file_state = (entry.path, status.st_mtime_ns, status.st_size, status.st_ino)
        key = _digests.get(file_state)
        file = _file_cache.get(key) if key else None
        if file is None:
            if status.st_size > MAX_FILE:
                raise Unreadable(f"larger than {MAX_FILE // 1_000_000} MB")
            file = _file_cache.parse(_read_plain(Path(entry.path)))
            key = hash_content(file.data)
            # a second change directly after the first may keep time and size
            if time.time_ns() - status.st_mtime_ns > 50_000_000:
                _digests[file_state] = key
                while len(_digests) > _MAX_DIGESTS:
                    with suppress(KeyError):  # another thread was faster
                        _digests.popitem(last=False)
        assert key is not None
        return Resource(calendar, entry.name, key.hex(), file)


def encode_name(name: str) -> str:
    """Encode a name as a folder name; different names stay different on any file system."""
    safe = "".join(c if c in _SAFE else "".join(f"%{octet:02x}" for octet in c.encode()) for c in name)
    return safe if 0 < len(safe) <= _MAX_NAME else f"%{hash_content(name.encode()).hex()}"


def is_writable(folder: Path) -> bool:
    """Return whether files can be created in a folder, or the folder itself can be created."""
    current = next(path for path in (folder, *folder.parents) if path.exists())
    return current.is_dir() and os.access(current, os.W_OK | os.X_OK)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.is_dir()
    return False


def _display_name(folder: Path) -> str:
    """Return the name in the file `displayname`, or an empty text."""
    with suppress(OSError):
        path = folder / "displayname"
        status = path.stat(follow_symlinks=False)
        if S_ISREG(status.st_mode) and status.st_size <= 1000:
            return " ".join(_read_plain(path).decode("utf-8", "replace").split())[:_MAX_NAME]
    return ""


def _read_plain(path: Path) -> bytes:
    """Read a file, but do not follow a link."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        return file.read(MAX_FILE + 1)


def _check_version(path: Path, version: str | None) -> None:
    try:
        current = hash_content(_read_plain(path)).hex()
    except FileNotFoundError:
        current = None
    if current != version:
        raise VersionConflict


def _link_new(temporary: Path, path: Path) -> None:
    """Rename a new file, but never replace another one."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise VersionConflict from None
    except OSError:  # a file system without links
        os.replace(temporary, path)


@contextmanager
def _refuse_write_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused("the calendar folder cannot be written", ASK_OPERATOR) from error


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Lock a user's calendars against other threads and processes."""
    with (root / _LOCK).open("ab") as file:
        end = time.monotonic() + LOCK_SECONDS
        while not _try_lock(file.fileno()):
            if time.monotonic() > end:
                raise Refused("another program is writing to the calendar", "try again in a minute")
            time.sleep(0.01)
        yield


def _try_lock(descriptor: int) -> bool:
    """Take the lock if it is free; closing the file releases it."""
    try:
        try:
            import fcntl
        except ImportError:  # Windows
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
