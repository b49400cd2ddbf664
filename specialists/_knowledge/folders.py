"""List and read the files in a folder. Nothing outside the folder is ever opened."""

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
    """The path is no longer a plain file in its folder."""


class FoundFile(NamedTuple):
    """A listed file: path below the folder, with slashes; size in bytes; modification time in ns."""

    name: str
    size: int
    changed: int


def walk(root: Path, skipped: Counter[str]) -> Iterator[FoundFile]:
    """Yield the supported files in a folder, or the one file, without hidden files, links and devices.

    Links are not followed: a target inside the folder is found anyway.

    Args:
        skipped: counts skipped files by reason.
    """
    if os.path.realpath(root) != str(root):
        skipped["a folder that is now a link"] += 1
        return
    count = 0
    for entry in _list_files(root, skipped):
        if detect_kind(entry.name) is None:
            extension = os.path.splitext(entry.name)[1].lower()[:12]
            skipped[f"unsupported file type: {extension or 'no extension'}"] += 1
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # deleted since it was listed
        name = Path(entry.path).relative_to(_base_of(root)).as_posix()
        if not stat.S_ISREG(status.st_mode):
            skipped["not a regular file"] += 1
        elif name.encode("utf-8", "replace").decode() != name:
            skipped["a name that is not UTF-8"] += 1
        else:
            count += 1
            if count > MAX_FILES:
                skipped[f"more than {MAX_FILES:,} files in one folder"] += 1
                return
            yield FoundFile(name, status.st_size, status.st_mtime_ns)


def read_content(root: Path, name: str, max_bytes: int) -> bytes:
    """Read up to `max_bytes` + 1 bytes of a listed file.

    Raises:
        Outside: if a link has replaced the file or a folder above it.
        OSError: if the file cannot be read.
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
    """Return the folder to which the names of files are relative."""
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
                skipped["a link"] += 1
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            else:
                yield entry
