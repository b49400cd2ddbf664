"""The files below a folder that may be read, and their bytes. Nothing outside the folder is ever opened."""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from specialists._knowledge.readers import detect_kind

MAX_FILES = 50_000
_SKIPPED_NAMES = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "lost+found", "$RECYCLE.BIN"})


class Outside(Exception):
    """This path is not that of a plain file inside its folder any more."""


class FoundFile(NamedTuple):
    """A file as the folder lists it; `name` is its path below the folder, with slashes; `changed` is in ns."""

    name: str
    size: int
    changed: int


def walk(root: Path, skipped: Counter[str]) -> Iterator[FoundFile]:
    """The files below a folder, or the one file, that can be read: no hidden ones, no links, no devices.

    Links are not followed, whether they lead outside or in a circle: what they point to inside is found anyway.

    Args:
        skipped: takes how many files were passed over for which reason.
    """
    if os.path.realpath(root) != str(root):
        skipped["a folder in whose place there is a link now"] += 1
        return
    count = 0
    for entry in _list_files(root, skipped):
        if detect_kind(entry.name) is None:
            skipped[f"not a kind that is read: {os.path.splitext(entry.name)[1].lower()[:12] or 'no ending'}"] += 1
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # gone since it was listed
        name = Path(entry.path).relative_to(_base_of(root)).as_posix()
        if not stat.S_ISREG(status.st_mode):
            skipped["not a plain file"] += 1
        elif name.encode("utf-8", "replace").decode() != name:
            skipped["a name that is not UTF-8"] += 1
        else:
            count += 1
            if count > MAX_FILES:
                skipped[f"left out: more than {MAX_FILES:,} files in one folder"] += 1
                return
            yield FoundFile(name, status.st_size, status.st_mtime_ns)


def read_content(root: Path, name: str, max_bytes: int) -> bytes:
    """The bytes of a file that was seen below a folder, at most `max_bytes` + 1 of them.

    Raises:
        Outside: when a link took the place of the file or of a folder above it.
        OSError: when it cannot be read.
    """
    path = _base_of(root) / name
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        opened, at_path = os.fstat(file.fileno()), os.lstat(path)
        is_same = (opened.st_dev, opened.st_ino) == (at_path.st_dev, at_path.st_ino)
        real = Path(os.path.realpath(path))
        if not (is_same and stat.S_ISREG(opened.st_mode) and real == path and real.is_relative_to(_base_of(root))):
            raise Outside
        return file.read(max_bytes + 1)


def _base_of(root: Path) -> Path:
    """The folder at which the names of files below a root begin."""
    return root if root.is_dir() else root.parent


def _list_files(root: Path, skipped: Counter[str]) -> Iterator["os.DirEntry[str]"]:
    is_file = not root.is_dir()
    waiting = [_base_of(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:
            skipped["a folder that cannot be opened"] += 1
            continue
        for entry in entries:
            if is_file:
                if entry.name == root.name:
                    yield entry
            elif entry.name.startswith((".", "~$")) or entry.name in _SKIPPED_NAMES:
                continue
            elif entry.is_symlink():
                skipped["a link, which is not followed"] += 1
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            else:
                yield entry
