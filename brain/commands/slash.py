"""Roof: what can be typed in `brain chat` that begins with a slash."""

import base64
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from brain.commands.asking import attached
from brain.commands.kept import PAGE, paged
from brain.commands.talk import Talk
from brain.errors import BadRequest
from brain.kept import Heading, History
from brain.messages import Exchange
from brain.settings import LOCAL_USER
from brain.terminal.words import OUTCOMES
from brain.wire.bodies import encoded
from brain.wire.native import wanted

LISTED = 20
PATH_MOST = 4096
COPIED_MOST = 74_994
"""Bytes that the strictest of the terminals that copy take at once."""

Completes = Literal["path", "specialists", "switch", "models", ""]


@dataclass(frozen=True, slots=True)
class Command:
    """One of them.

    Attributes:
        usage: what follows its name.
        completes: what Tab completes behind it.
    """

    do: Callable[[Talk, str], Awaitable[None]]
    usage: str
    text: str
    completes: Completes = ""


class Leaving(Exception):
    """Somebody wants to leave."""


async def obey(talk: Talk, line: str) -> None:
    """Does what a line says that begins with a slash.

    Raises:
        BadRequest: why it cannot be done.
        Leaving: when it says so.
    """
    name, _, rest = line[1:].partition(" ")
    if name not in COMMANDS:
        raise BadRequest(f"There is no /{name}. There are: {_names()}. A message that begins with a slash: //…")
    await COMMANDS[name].do(talk, rest.strip())


def dropped(line: str) -> Path | None:
    """The file whose whole path a line is, as a terminal types it when a file is dropped on it."""
    if len(line) > PATH_MOST or line.startswith("//") or not line.startswith(("/", "~", "'", '"', "file://")):
        return None
    text = unquote(urlsplit(line).path) if line.startswith("file://") else line
    try:
        words = shlex.split(text) if text == line else [text]
        path = Path(words[0]).expanduser() if len(words) == 1 else None
        return path if path is not None and path.is_absolute() and path.is_file() else None
    except (ValueError, OSError, RuntimeError):
        return None


def attach(talk: Talk, paths: Sequence[Path]) -> None:
    """Has files go with the next message.

    Raises:
        BadRequest: naming one that cannot.
    """
    files = [attached(path, str(path)) for path in paths]
    talk.files += files
    names = ", ".join(f"{file.name} ({len(file.data):,} bytes)" for file in files)
    talk.tell(f"Attached: {names}. It goes with the next message; /detach takes it off.")


async def _attach(talk: Talk, rest: str) -> None:
    try:
        paths = [Path(word) for word in shlex.split(rest)]
    except ValueError:
        raise BadRequest("This cannot be read as paths: a quote is open.") from None
    if not paths:
        raise BadRequest("Say which: /attach PATH …")
    attach(talk, paths)


async def _detach(talk: Talk, rest: str) -> None:
    kept = [file for file in talk.files if rest and file.name != rest]
    if len(kept) == len(talk.files):
        names = ", ".join(file.name for file in talk.files) or "nothing"
        raise BadRequest(f"Not attached: {rest}. Attached: {names}." if rest else "Nothing is attached.")
    talk.files = kept
    talk.tell("Detached.")


async def _new(talk: Talk, rest: str) -> None:
    talk.begin()
    talk.tell("A new conversation begins with the next message.")


async def _open(talk: Talk, rest: str) -> None:
    store = talk.engine.store
    if rest and not rest.isdecimal() and (found := await talk.open(rest)) is not None:
        return reopened(talk, found)
    words = "" if rest.isdecimal() else rest
    listed = await store.conversations(LOCAL_USER, words=words, limit=LISTED)
    number = int(rest) if rest.isdecimal() and len(rest) < 4 else 1 if rest and len(listed) == 1 else 0
    if 1 <= number <= len(listed) and (found := await talk.open(listed[number - 1].id)) is not None:
        return reopened(talk, found)
    if number or not listed:
        raise BadRequest(f"There is no conversation {rest}; /open lists them." if rest else "There is none yet.")
    for n, one in enumerate(listed, 1):
        talk.tell(_listed(n, one))
    return talk.tell("/open NUMBER goes on with one." if not rest else "Open one by its id, or say more of it.")


def _listed(n: int, one: Heading) -> str:
    found = f"\n    {' '.join(one.found.split())[:200]}" if one.found else ""
    return f"{n:>3} {one.updated.astimezone():%Y-%m-%d %H:%M}  {one.title}  ({one.messages}, {one.id}){found}"


def reopened(talk: Talk, found: History) -> None:
    """Shows the newest exchanges of a conversation that goes on."""
    talk.tell(f"{found.heading.title} ({found.heading.messages} messages)")
    talk.space()
    for exchange in found.exchanges:
        talk.tell("\n".join(f"> {line}" for line in exchange.said.split("\n")))
        talk.space()
        talk.show(_answered(exchange))
        talk.space()


async def _rename(talk: Talk, rest: str) -> None:
    title = wanted.title(encoded({"title": rest}))
    renamed = await talk.engine.store.rename(LOCAL_USER, _id(talk), title)
    if renamed is None:
        raise BadRequest("This conversation is no longer there.")
    talk.title = renamed.title
    talk.tell(f"It is called: {talk.title}")


async def _delete(talk: Talk, rest: str) -> None:
    conversation_id = _id(talk)
    if rest != "yes":
        if talk.agrees is None:
            raise BadRequest("Nobody can be asked here; /delete yes deletes it.")
        talk.tell(f"This deletes “{talk.title}” with its files and its memory.")
        if not await talk.agrees("Delete? [y/N] "):
            return talk.tell("Nothing was deleted.")
    await talk.engine.delete(LOCAL_USER, conversation_id)
    talk.begin()
    return talk.tell("Deleted.")


async def _retry(talk: Talk, rest: str) -> None:
    exchange = await talk.last()
    talk.replace_last(exchange)
    await talk.say(exchange.said)
    talk.draft = ""


async def _edit(talk: Talk, rest: str) -> None:
    exchange = await talk.last()
    talk.replace_last(exchange)
    talk.draft = exchange.said


async def _copy(talk: Talk, rest: str) -> None:
    text = (await talk.last()).visible
    if not text:
        raise BadRequest("There is no answer to copy.")
    data = base64.b64encode(text.encode())
    if not sys.stdout.isatty() or os.environ.get("TERM") in ("dumb", "linux") or len(data) > COPIED_MOST:
        raise BadRequest("This terminal cannot copy so much, or at all; /save FILE writes the conversation to a file.")
    sys.stdout.write(f"\033]52;c;{data.decode()}\a")
    talk.tell(f"Handed to the terminal: {len(text):,} characters. Where it does not copy (OSC 52), /save FILE does.")


async def _save(talk: Talk, rest: str) -> None:
    try:
        words = shlex.split(rest)
    except ValueError:
        words = []
    if len(words) != 1:
        raise BadRequest("Say where to, in quotes where it has spaces: /save FILE")
    path = Path(words[0])
    _write(path, await _as_markdown(talk))
    talk.tell(f"Saved: {path}")


def _write(path: Path, text: str) -> None:
    """Writes a file that is not there yet."""
    try:
        with path.expanduser().open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadRequest(f"{path} is there already; name another file.") from None
    except RuntimeError:
        raise BadRequest(f"{path}: There is no such home folder.") from None
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}.") from None


async def _as_markdown(talk: Talk) -> str:
    """The whole conversation."""
    parts: list[str] = []
    before = None
    while (found := await talk.engine.store.conversation(LOCAL_USER, _id(talk), before=before, limit=PAGE)) is not None:
        parts[:0] = [f"**You:**\n\n{one.said}\n\n**Brain:**\n\n{_answered(one)}\n" for one in found.exchanges]
        before = found.earlier
        if before is None:
            break
    return "\n".join([f"# {talk.title}\n", *parts])


def _answered(exchange: Exchange) -> str:
    """An answer, and why it ends where it does."""
    why = OUTCOMES.get(exchange.outcome, "")
    return "\n\n".join(part for part in (exchange.visible.strip("\n"), f"*{why}*" if why else "") if part)


async def _model(talk: Talk, rest: str) -> None:
    if rest:
        talk.engine.model(rest)
        talk.model = rest
    answers = talk.engine.model(talk.model)
    others = ", ".join(sorted(talk.engine.names()))
    stand_in = ", a rule-based stand-in" if answers.stand_in else ""
    talk.tell(f"{answers.name}{stand_in} answers. On offer: {others}")


async def _specialists(talk: Talk, rest: str) -> None:
    known = {one.name: one for one in talk.engine.registry.usable()}
    switch, *names = rest.split() or [""]
    if switch in ("on", "off"):
        if unknown := sorted(set(names) - set(known)):
            raise BadRequest(f"There is no {unknown[0]}. There are: {', '.join(known)}.")
        _switch(talk, frozenset(known), frozenset(names) or frozenset(known), on=switch == "on")
    elif rest:
        raise BadRequest("Say /specialists, or /specialists on|off NAME …")
    for name, one in known.items():
        off = talk.specialists is not None and name not in talk.specialists
        talk.tell(f"{'off' if off else 'on ':<4}{name}: {one.description.splitlines()[0]}")


def _switch(talk: Talk, known: frozenset[str], names: frozenset[str], *, on: bool) -> None:
    allowed = known if talk.specialists is None else talk.specialists
    allowed = allowed | names if on else allowed - names
    talk.specialists = None if allowed >= known else allowed


async def _memory(talk: Talk, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise BadRequest("Say /memory on or /memory off.")
    talk.memory = rest == "on" if rest else talk.memory
    told = "Facts and memories are recalled" if talk.memory else "Nothing is recalled"
    talk.tell(f"{told} in this session. /facts shows what there is; brain memory changes it.")


async def _facts(talk: Talk, rest: str) -> None:
    store = talk.engine.store
    items = await paged(lambda before: store.items(LOCAL_USER, words=rest, before=before, limit=PAGE))
    for item in items:
        talk.tell(f"{item.id:<8} {item.category or item.kind:<11} {item.text}")
    if not items:
        talk.tell("There are none.")


async def _help(talk: Talk, rest: str) -> None:
    for name, command in COMMANDS.items():
        talk.tell(f"{f'/{name} {command.usage}':<32} {command.text}")
    talk.tell("Alt-Enter begins another line. Ctrl-C stops an answer. Ctrl-D leaves. //… sends what begins with /.")


async def _quit(talk: Talk, rest: str) -> None:
    raise Leaving


def _id(talk: Talk) -> str:
    if talk.conversation_id is None:
        raise BadRequest("Nothing was said yet.")
    return talk.conversation_id


def _names() -> str:
    return ", ".join(f"/{name}" for name in COMMANDS)


COMMANDS = {
    "help": Command(_help, "", "this list"),
    "attach": Command(_attach, "PATH …", "attach files to the next message", "path"),
    "detach": Command(_detach, "[NAME]", "take one off again, or all"),
    "new": Command(_new, "", "begin another conversation"),
    "open": Command(_open, "[NUMBER|ID|WORDS]", "list conversations, or go on with one"),
    "rename": Command(_rename, "TITLE", "give this one a title"),
    "delete": Command(_delete, "", "delete this one"),
    "retry": Command(_retry, "", "ask the last message again"),
    "edit": Command(_edit, "", "change the last message, and ask again"),
    "copy": Command(_copy, "", "copy the last answer as Markdown"),
    "save": Command(_save, "FILE", "write the conversation to a file, as Markdown", "path"),
    "model": Command(_model, "[NAME]", "see or choose who answers", "models"),
    "specialists": Command(_specialists, "[on|off NAME …]", "see them, or say which may be called", "specialists"),
    "memory": Command(_memory, "[on|off]", "whether facts and memories are recalled", "switch"),
    "facts": Command(_facts, "[WORDS]", "what is remembered of you"),
    "quit": Command(_quit, "", "leave"),
}
