"""What comes on standard input, as a message or as a file that is attached.

A pipe that is silent may be nobody's, inherited from whoever started us, and is not waited for; what `-` names is.
"""

import mimetypes
import os
import select
import shlex
import stat
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

from brain.errors import BadRequest
from brain.messages import Attachment
from brain.protocols.attachments import ATTACHMENT_BYTES, MAX_ATTACHMENTS, make_attachment, too_many_attachments
from brain.protocols.native import ID, MESSAGE_LENGTH
from brain.settings import LOCAL_USER, Settings
from brain.turn_request import TurnRequest

SILENT_SECONDS = 1.0
"""How long a pipe may be silent that nobody named."""
_NAME = "standard-input"


def read_message() -> str:
    """The message that standard input holds, to its end."""
    return _read().decode(errors="replace").strip("\n")


def read_stdin_attachment() -> Attachment:
    """Standard input as a file, to its end.

    Raises:
        BadRequest: when it is empty or too large.
    """
    return _attachment(_read())


def _attachment(data: bytes) -> Attachment:
    claimed, ending = ("text/plain", ".txt") if _is_text(data) else ("application/octet-stream", "")
    return make_attachment(f"{_NAME}{ending}", claimed, data, "Standard input")


def read_piped_attachments() -> list[Attachment]:
    """What was piped or redirected to us without being named; nothing where nothing comes. It is said either way."""
    if not _may_have_input():
        return []
    if not select.select([sys.stdin], [], [], SILENT_SECONDS)[0]:
        _say("Standard input is silent and was not waited for; --file - attaches it, < /dev/null says there is none.")
        return []
    if not (data := _read()):
        return []
    found = _attachment(data)
    _say(f"Attached: standard input, {len(found.data):,} bytes")
    return [found]


def _may_have_input() -> bool:
    """Whether standard input is a file, a pipe or a connection."""
    if sys.stdin is None or sys.stdin.closed:
        return False
    mode = os.fstat(sys.stdin.fileno()).st_mode
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _read() -> bytes:
    """As much of it as tells whether it is too large."""
    return sys.stdin.buffer.read(ATTACHMENT_BYTES + 1)


def _is_text(data: bytes) -> bool:
    try:
        return b"\0" not in data and bool(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return False


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


PATH_MOST = 4096


def read_attachment(path: Path, label: str) -> Attachment:
    """A file, read.

    Raises:
        BadRequest: naming it and what is wrong with it.
    """
    try:
        data = _read_file(path.expanduser())
    except (OSError, RuntimeError, ValueError) as error:
        raise BadRequest(f"{label}: {describe_error(error)}.", "file") from None
    if data is None:
        raise BadRequest(f"{label}: Not a regular file. Pipe it: … | brain ask", "file")
    if not data:
        raise BadRequest(f"{label} is empty. What is made as it is read can be piped: … | brain ask", "file")
    claimed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return make_attachment(path.name, claimed, data, label)


def _read_file(path: Path) -> bytes | None:
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


def describe_error(error: OSError | RuntimeError | ValueError) -> str:
    """Why a path cannot be used, as those errors of `pathlib` say it."""
    if isinstance(error, OSError):
        return error.strerror or "It cannot be used"
    return "There is no such home folder" if isinstance(error, RuntimeError) else "No file can have this name"


def parse_dropped_path(line: str) -> Path | None:
    """The file whose whole path a line is, as a terminal types it when a file is dropped on it."""
    if len(line) > PATH_MOST or line.startswith("//") or not line.startswith(("/", "~", "'", '"', "file://")):
        return None
    try:
        words = [unquote(urlsplit(line).path)] if line.startswith("file://") else shlex.split(line)
        path = Path(words[0]).expanduser() if len(words) == 1 else None
        return path if path is not None and path.is_absolute() and path.is_file() else None
    except (ValueError, OSError, RuntimeError):
        return None


def build_request(settings: Settings, message: str, files: Sequence[Attachment] = ()) -> TurnRequest:
    """What is asked, as whoever sits at this machine asks it.

    Raises:
        BadRequest: when it is empty or too much.
    """
    if not message.strip():
        raise BadRequest("The message is empty.", "message")
    if len(message) > MESSAGE_LENGTH:
        sentence = f"The message has {len(message):,} characters; {MESSAGE_LENGTH:,} are the most. Attach it as a file."
        raise BadRequest(sentence, "message", code="too_large", status=413)
    if len(files) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    return TurnRequest(
        message=message,
        user=LOCAL_USER,
        limits=settings.limits,
        syntax=settings.syntax,
        time_zone=settings.time_zone,
        now=datetime.now(ZoneInfo(settings.time_zone)),
        attachments=tuple(Attachment(n, file.name, file.type, file.data) for n, file in enumerate(files, 1)),
    )


def conversation_id(typed: str | None) -> str | None:
    """What was typed, when it can be the id of a conversation.

    Raises:
        BadRequest: when it cannot.
    """
    if typed is not None and not ID.fullmatch(typed):
        raise BadRequest("--conversation must be 1 to 64 letters, digits, _ or -.", "conversation")
    return typed
