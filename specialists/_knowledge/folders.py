"""The files below a folder that may be read, and their bytes. Nothing outside the folder is ever opened."""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from specialists._knowledge.readers import kind_of

FILES_MOST = 50_000
_LEFT_OUT = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "lost+found", "$RECYCLE.BIN"})


class Outside(Exception):
    """What is at this path now is no plain file inside its folder."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as the folder lists it; `name` is its path below the folder, with slashes."""

    name: str
    size: int
    changed: int


@dataclass(slots=True)
class SkippedFiles:
    """What a walk passed over: how many files for which reason."""

    reasons: Counter[str] = field(default_factory=Counter)


def walk(root: Path, skipped: SkippedFiles | None = None) -> Iterator[FoundFile]:
    """The files below a folder, or the one file, that can be read: no hidden ones, no links, no devices.

    Links are not followed, whether they lead outside or in a circle: what they point to inside is found anyway.
    """
    reasons = (skipped or SkippedFiles()).reasons
    if os.path.realpath(root) != str(root):
        reasons["a folder in whose place there is a link now"] += 1
        return
    count = 0
    for entry in _walk_entries(root, reasons):
        file_found = _describe(root, entry, reasons)
        if file_found is not None:
            count += 1
            if count > FILES_MOST:
                reasons[f"left out: more than {FILES_MOST:,} files in one folder"] += 1
                return
            yield file_found


def read_content(root: Path, name: str, most: int) -> bytes:
    """The bytes of a file that was seen below a folder, at most `most` + 1 of them.

    Raises:
        Outside: when a link took the place of the file or of a folder above it.
        OSError: when it cannot be read.
    """
    path = _base(root) / name
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        found, at_path = os.fstat(file.fileno()), os.lstat(path)
        is_same = (found.st_dev, found.st_ino) == (at_path.st_dev, at_path.st_ino)
        real = Path(os.path.realpath(path))
        if not (is_same and stat.S_ISREG(found.st_mode) and real == path and real.is_relative_to(_base(root))):
            raise Outside
        return file.read(most + 1)


def _base(root: Path) -> Path:
    """What the names of files below a root begin at."""
    return root if root.is_dir() else root.parent


def _walk_entries(root: Path, reasons: Counter[str]) -> Iterator["os.DirEntry[str]"]:
    if not root.is_dir():
        yield from (entry for entry in _list_entries(root.parent, reasons) if entry.name == root.name)
        return
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        for entry in _list_entries(folder, reasons):
            if entry.name.startswith((".", "~$")) or entry.name in _LEFT_OUT:
                continue
            if entry.is_symlink():
                reasons["a link, which is not followed"] += 1
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            else:
                yield entry


def _list_entries(folder: Path, reasons: Counter[str]) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        reasons["a folder that cannot be opened"] += 1
        return []


def _describe(root: Path, entry: "os.DirEntry[str]", reasons: Counter[str]) -> FoundFile | None:
    if kind_of(entry.name) is None:
        reasons[f"not a kind that is read: {os.path.splitext(entry.name)[1].lower()[:12] or 'no ending'}"] += 1
        return None
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return None  # gone since it was listed
    if not stat.S_ISREG(found.st_mode):
        reasons["not a plain file"] += 1
        return None
    name = Path(entry.path).relative_to(_base(root)).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        reasons["a name that is not UTF-8"] += 1
        return None
    return FoundFile(name, found.st_size, found.st_mtime_ns)
