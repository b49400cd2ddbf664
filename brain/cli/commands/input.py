"""The input of `brain ask` and `brain chat`: standard input and files, and the request built from them.

A pipe without data may be inherited by accident, so Brain waits for it only when `-` names it.
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

from brain.cli.process import UsageError
from brain.errors import BadRequest
from brain.events import StrategyName
from brain.messages import Attachment
from brain.protocols.common import (
    ATTACHMENT_BYTES,
    MAX_ATTACHMENTS,
    MESSAGE_LENGTH,
    make_attachment,
    too_many_attachments,
)
from brain.settings import LOCAL_USER, Settings
from brain.text import ID, escape_invisible, suggest
from brain.turn_request import STRATEGY_OPTIONS, TurnRequest

SILENT_SECONDS = 1.0
"""Wait for the first byte of a pipe that no argument names."""
MAX_PATH_LENGTH = 4096


def read_message() -> str:
    """Read standard input to its end, as a message."""
    return _read_stdin().decode(errors="replace").strip("\n")


def read_stdin_attachment() -> Attachment:
    """Read standard input to its end, as a file."""
    return _as_attachment(_read_stdin())


def read_piped_attachments() -> list[Attachment]:
    """Read piped or redirected input that no argument names, and report it on standard error."""
    if sys.stdin is None or sys.stdin.closed:
        return []
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return []
    if not select.select([sys.stdin], [], [], SILENT_SECONDS)[0]:
        missing = f"No data on standard input after {SILENT_SECONDS:g} s; continuing without it."
        hint = "Use --file - to wait for it, or < /dev/null to hide this message."
        print(f"{missing} {hint}", file=sys.stderr, flush=True)
        return []
    if not (data := _read_stdin()):
        return []
    attachment = _as_attachment(data)
    print(f"Attached: standard input, {len(attachment.data):,} bytes", file=sys.stderr, flush=True)
    return [attachment]


def _read_stdin() -> bytes:
    """Read up to one byte more than the limit of an attachment."""
    return sys.stdin.buffer.read(ATTACHMENT_BYTES + 1)


def _as_attachment(data: bytes) -> Attachment:
    try:
        is_text = b"\0" not in data and bool(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        is_text = False
    ending, media_type = (".txt", "text/plain") if is_text else ("", "application/octet-stream")
    return make_attachment(f"standard-input{ending}", media_type, data, "Standard input")


def read_attachment(path: Path, label: str) -> Attachment:
    """Read a file.

    Pipes, devices and files without a size, such as those in `/proc`, may block or never end. They are not read.

    Raises:
        BadRequest: The file cannot be attached; the message begins with the label.
    """
    try:
        status = path.expanduser().stat()
        is_regular = stat.S_ISREG(status.st_mode)
        if not is_regular and not stat.S_ISDIR(status.st_mode):
            raise BadRequest(f'{label} is not a regular file. Pipe it instead: cat {path} | brain ask "…"', "file")
        if is_regular and not status.st_size:
            is_virtual = path.is_absolute() and path.parts[1:2] in (("proc",), ("sys",))
            hint = f' Pipe it instead: cat {path} | brain ask "…"' if is_virtual else ""
            raise BadRequest(f"{label} is empty.{hint}", "file")
        if is_regular and status.st_size > ATTACHMENT_BYTES:
            size = f"{status.st_size / 1024**2:,.1f} MiB; the limit is {ATTACHMENT_BYTES >> 20} MiB"
            raise BadRequest(f"{label} has {size}.", "file", code="too_large", status=413)
        with path.expanduser().open("rb") as file:
            data = file.read(ATTACHMENT_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadRequest(f"Cannot read {label}: {describe_error(error)}.", "file") from None
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return make_attachment(path.name, media_type, data, label)


def describe_error(error: OSError | RuntimeError | ValueError) -> str:
    """Return why `pathlib` could not use a path."""
    if isinstance(error, OSError):
        return (error.strerror or "input/output error").lower()
    return "no such home directory" if isinstance(error, RuntimeError) else "invalid file name"


def parse_dropped_path(line: str) -> Path | None:
    """Return the file if a line is an absolute path, as a terminal types it when a file is dropped on it."""
    if len(line) > MAX_PATH_LENGTH or line.startswith("//") or not line.startswith(("/", "~", "'", '"', "file://")):
        return None
    try:
        words = [unquote(urlsplit(line).path)] if line.startswith("file://") else shlex.split(line)
        path = Path(words[0]).expanduser() if len(words) == 1 else None
        return path if path is not None and path.is_absolute() and path.is_file() else None
    except (ValueError, OSError, RuntimeError):
        return None


def build_request(
    settings: Settings,
    message: str,
    files: Sequence[Attachment] = (),
    strategy: StrategyName | None = None,
    *,
    critic: bool = False,
) -> TurnRequest:
    """Build a request of the local user, with the strategy of the settings unless another one is given."""
    if not message.strip():
        raise BadRequest("The message is empty.", "message")
    if len(message) > MESSAGE_LENGTH:
        size = f"The message has {len(message):,} characters; the limit is {MESSAGE_LENGTH:,}."
        sentence = f'{size} Attach it as a file: brain ask --file FILE "…"'
        raise BadRequest(sentence, "message", code="too_large", status=413)
    if len(files) > MAX_ATTACHMENTS:
        raise too_many_attachments(len(files))
    strategy = strategy or settings.strategy
    return TurnRequest(
        message=message,
        user=LOCAL_USER,
        limits=settings.limits(strategy),
        strategy=strategy,
        critic=critic and "critic" in STRATEGY_OPTIONS[strategy],
        syntax=settings.syntax,
        time_zone=settings.time_zone,
        now=datetime.now(ZoneInfo(settings.time_zone)),
        attachments=tuple(Attachment(n, file.name, file.type, file.data) for n, file in enumerate(files, 1)),
    )


def check_strategy(typed: str | None, settings: Settings) -> StrategyName | None:
    """Return the value of `--strategy`, if it is an allowed strategy."""
    allowed = settings.allowed_strategies
    strategy = next((one for one in allowed if one == typed), None)
    if typed is not None and strategy is None:
        sentence = f"--strategy cannot be '{escape_invisible(typed[:64])}'.{suggest(typed[:64], allowed)}"
        raise UsageError(f"{sentence} Expected {', '.join(allowed)}.", "brain ask --help")
    return strategy


def check_conversation_id(typed: str | None) -> str | None:
    """Return the value of `--conversation`, if it can be an ID."""
    if typed is not None and not ID.fullmatch(typed):
        sentence = f"--conversation cannot be '{typed[:64]}'. Expected 1 to 64 letters, digits, _ or -."
        raise UsageError(sentence, "brain chat --continue")
    return typed
