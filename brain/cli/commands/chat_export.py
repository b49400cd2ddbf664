"""Copy an answer of `brain chat` to the clipboard, or save the conversation to a file."""

import base64
import os
import shlex
import sys
from functools import partial
from pathlib import Path

from brain.cli.commands.chat_session import ChatSession
from brain.cli.commands.input import describe_error
from brain.cli.commands.store_access import PAGE
from brain.cli.terminal.messages import explain_outcome
from brain.errors import BadRequest
from brain.settings import LOCAL_USER
from brain.store import conversations

MAX_COPIED_BYTES = 74_994
"""Limit of the strictest terminal that can copy."""


async def copy(session: ChatSession, rest: str) -> None:
    """Copy the last answer to the terminal's clipboard."""
    text = (await session.last_exchange(may_be_report=True)).answer
    if not text:
        raise BadRequest("There is no answer to copy.")
    data = base64.b64encode(text.encode())
    if not sys.stdout.isatty() or os.environ.get("TERM") in ("dumb", "linux"):
        raise BadRequest("This terminal cannot copy. Type /save FILE instead.")
    if len(data) > MAX_COPIED_BYTES:
        size = f"The answer has {len(data):,} bytes in base64; the limit of terminals is {MAX_COPIED_BYTES:,}."
        raise BadRequest(f"{size} Type /save FILE instead.")
    sys.stdout.write(f"\033]52;c;{data.decode()}\a")
    session.print(f"Sent {len(text):,} characters to the clipboard. If pasting does not work, type /save FILE.")


async def save(session: ChatSession, rest: str) -> None:
    """Save the conversation to a new file that only its user can read."""
    try:
        words = shlex.split(rest)
    except ValueError:
        words = []
    if len(words) != 1:
        raise BadRequest("No file name. Type /save FILE; quote a name with spaces.")
    path = Path(words[0])
    _write_new(path, await _as_markdown(session))
    session.print(f"Saved to {path}.")


def _write_new(path: Path, text: str) -> None:
    try:
        with open(path.expanduser(), "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(text)
    except FileExistsError:
        raise BadRequest(f"{path} already exists. Choose another name.") from None
    except (OSError, RuntimeError, ValueError) as error:
        raise BadRequest(f"Cannot write to {path}: {describe_error(error)}.") from None


async def _as_markdown(session: ChatSession) -> str:
    """Return the whole conversation; an answer that ended early is followed by the reason."""
    pages: list[str] = []
    before = None
    while page := await session.engine.store.read(
        conversations.read_page, LOCAL_USER, session.required_id, before=before, limit=PAGE
    ):
        texts = []
        for exchange in page.exchanges:
            ending = explain_outcome(exchange.outcome)
            parts = (exchange.answer.strip("\n"), f"*{ending}*" if ending else "")
            answer = "\n\n".join(part for part in parts if part)
            message = "" if exchange.source == "report" else f"**You:**\n\n{exchange.message}\n\n"
            texts.append(f"{message}**Brain:**\n\n{answer}\n")
        pages[:0] = texts
        before = page.earlier
        if before is None:
            break
    return "\n".join([f"# {session.title}\n", *pages])
