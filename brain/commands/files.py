"""Roof: files that somebody at a terminal names, or drops on it."""

import mimetypes
import shlex
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from brain.ask import Attachment
from brain.errors import BadRequest
from brain.wire.attaching import ATTACHMENT_BYTES, attachment_of

PATH_MOST = 4096


def attached(path: Path, said_as: str) -> Attachment:
    """A file, read.

    Raises:
        BadRequest: naming it and what is wrong with it.
    """
    try:
        data = _read(path.expanduser())
    except (OSError, RuntimeError, ValueError) as error:
        raise BadRequest(f"{said_as}: {problem(error)}.", "file") from None
    if data is None:
        raise BadRequest(f"{said_as}: Not a regular file. Pipe it: … | brain ask", "file")
    if not data:
        raise BadRequest(f"{said_as} is empty. What is made as it is read can be piped: … | brain ask", "file")
    claimed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return attachment_of(path.name, claimed, data, said_as)


def _read(path: Path) -> bytes | None:
    """As much of a file as tells whether it is too large; None for what may never end, or wait for ever.

    So may what has no size, such as the log of the kernel in `/proc`: nothing of it is read.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        return None
    if stat.S_ISREG(found.st_mode) and not found.st_size:
        return b""
    with path.open("rb") as file:
        return file.read(ATTACHMENT_BYTES + 1)


def problem(error: OSError | RuntimeError | ValueError) -> str:
    """Why a path cannot be used, as those errors of `pathlib` say it."""
    if isinstance(error, OSError):
        return error.strerror or "It cannot be used"
    return "There is no such home folder" if isinstance(error, RuntimeError) else "No file can have this name"


def dropped(line: str) -> Path | None:
    """The file whose whole path a line is, as a terminal types it when a file is dropped on it."""
    if len(line) > PATH_MOST or line.startswith("//") or not line.startswith(("/", "~", "'", '"', "file://")):
        return None
    try:
        words = [unquote(urlsplit(line).path)] if line.startswith("file://") else shlex.split(line)
        path = Path(words[0]).expanduser() if len(words) == 1 else None
        return path if path is not None and path.is_absolute() and path.is_file() else None
    except (ValueError, OSError, RuntimeError):
        return None
