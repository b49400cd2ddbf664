"""Roof: what comes on standard input, as a message or as a file that is attached.

A pipe that is silent may be nobody's, inherited from whoever started us, and is not waited for; what `-` names is.
"""

import os
import select
import stat
import sys

from brain.ask import Attachment
from brain.wire.attaching import ATTACHMENT_BYTES, attachment_of

SILENT_SECONDS = 1.0
"""How long a pipe may be silent that nobody named."""
_NAME = "standard-input"


def message() -> str:
    """The message that standard input holds, to its end."""
    return _read().decode(errors="replace").strip("\n")


def attachment() -> Attachment:
    """Standard input as a file, to its end.

    Raises:
        BadRequest: when it is empty or too large.
    """
    return _attachment(_read())


def _attachment(data: bytes) -> Attachment:
    claimed, ending = ("text/plain", ".txt") if _is_text(data) else ("application/octet-stream", "")
    return attachment_of(f"{_NAME}{ending}", claimed, data, "Standard input")


def unnamed() -> list[Attachment]:
    """What was piped or redirected to us without being named; nothing where nothing comes. It is said either way."""
    if not _could_bring():
        return []
    if not select.select([sys.stdin], [], [], SILENT_SECONDS)[0]:
        _say("Standard input is silent and was not waited for; --file - attaches it, < /dev/null says there is none.")
        return []
    if not (data := _read()):
        return []
    found = _attachment(data)
    _say(f"Attached: standard input, {len(found.data):,} bytes")
    return [found]


def _could_bring() -> bool:
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
