"""What was said in `brain chat`, taken elsewhere: an answer into the clipboard, a conversation into a file."""

import base64
import os
import shlex
import sys
from pathlib import Path

from brain.cli.commands.chat_session import ChatSession
from brain.cli.commands.input import describe_error
from brain.cli.commands.store_access import PAGE
from brain.cli.terminal.messages import OUTCOMES
from brain.errors import BadRequest
from brain.messages import Exchange
from brain.settings import LOCAL_USER

COPIED_MOST = 74_994
"""Bytes that the strictest of the terminals that copy take at once."""


async def copy(session: ChatSession, rest: str) -> None:
    """Hands the last answer to the terminal's clipboard."""
    text = (await session.last()).answer
    if not text:
        raise BadRequest("There is no answer to copy.")
    data = base64.b64encode(text.encode())
    if not sys.stdout.isatty() or os.environ.get("TERM") in ("dumb", "linux"):
        raise BadRequest("This terminal cannot copy; /save FILE writes the conversation to a file.")
    if len(data) > COPIED_MOST:
        raise BadRequest("The answer is too long for terminals to copy; /save FILE writes the conversation to a file.")
    sys.stdout.write(f"\033]52;c;{data.decode()}\a")
    session.print(f"{len(text):,} characters: copied, if your terminal allows it; otherwise: /save FILE")


async def save(session: ChatSession, rest: str) -> None:
    """Writes the conversation into a new file, for its user alone."""
    try:
        words = shlex.split(rest)
    except ValueError:
        words = []
    if len(words) != 1:
        raise BadRequest("Say where to, in quotes where it has spaces: /save FILE")
    path = Path(words[0])
    _write(path, await _as_markdown(session))
    session.print(f"Saved: {path}")


def _answer_text(exchange: Exchange) -> str:
    """An answer, and why it ends where it does."""
    why = OUTCOMES.get(exchange.outcome, "")
    return "\n\n".join(part for part in (exchange.answer.strip("\n"), f"*{why}*" if why else "") if part)


def _write(path: Path, text: str) -> None:
    """Writes a file that is not there yet."""
    try:
        with open(path.expanduser(), "x", encoding="utf-8", opener=_open_private) as file:
            file.write(text)
    except FileExistsError:
        raise BadRequest(f"{path} is there already; name another file.") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise BadRequest(f"{path}: {describe_error(error)}.") from None


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


async def _as_markdown(session: ChatSession) -> str:
    """The whole conversation."""
    parts: list[str] = []
    before = None
    while found := await session.engine.store.conversation(LOCAL_USER, session.required_id, before=before, limit=PAGE):
        parts[:0] = [f"**You:**\n\n{one.message}\n\n**Brain:**\n\n{_answer_text(one)}\n" for one in found.exchanges]
        before = found.earlier
        if before is None:
            break
    return "\n".join([f"# {session.title}\n", *parts])
