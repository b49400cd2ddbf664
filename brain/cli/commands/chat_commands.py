"""What can be typed in `brain chat` that begins with a slash."""

import shlex
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from brain.cli.commands.chat_export import copy, save
from brain.cli.commands.chat_session import ChatSession
from brain.cli.commands.input import attached
from brain.cli.commands.store_access import PAGE, paged
from brain.errors import BadRequest
from brain.messages import Conversation, ConversationPage
from brain.protocols.attachments import MAX_ATTACHMENTS, too_many_attachments
from brain.protocols.native import queries
from brain.settings import LOCAL_USER

LISTED, FOUND_LENGTH = 20, 200

Completes = Literal["path", "specialists", "switch", "models", ""]


@dataclass(frozen=True, slots=True)
class Command:
    """One of them.

    Attributes:
        usage: what follows its name.
        completes: what Tab completes behind it.
    """

    do: Callable[[ChatSession, str], Awaitable[None]]
    usage: str
    text: str
    completes: Completes = ""


class Leaving(Exception):
    """Somebody wants to leave."""


async def obey(talk: ChatSession, line: str) -> None:
    """Does what a line says that begins with a slash.

    Raises:
        BadRequest: why it cannot be done.
        Leaving: when it says so.
    """
    name, _, rest = line[1:].partition(" ")
    if name not in COMMANDS:
        raise BadRequest(f"There is no /{name}. There are: {_names()}. A message that begins with a slash: //…")
    await COMMANDS[name].do(talk, rest.strip())


def attach(talk: ChatSession, paths: Sequence[Path]) -> None:
    """Has files go with the next message.

    Raises:
        BadRequest: naming one that cannot.
    """
    if len(talk.draft.files) + len(paths) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    files = [attached(path, str(path)) for path in paths]
    talk.draft.files += files
    names = ", ".join(f"{file.name} ({len(file.data):,} bytes)" for file in files)
    goes, them = ("It goes", "it") if len(files) == 1 else ("They go", "them")
    talk.tell(f"Attached: {names}. {goes} with the next message; /detach takes {them} off.")


async def _attach(talk: ChatSession, rest: str) -> None:
    try:
        paths = [Path(word) for word in shlex.split(rest)]
    except ValueError:
        raise BadRequest("This cannot be read as paths: a quote is open.") from None
    if not paths:
        raise BadRequest("Say which: /attach PATH …")
    attach(talk, paths)


async def _detach(talk: ChatSession, rest: str) -> None:
    kept = [file for file in talk.draft.files if rest and file.name != rest]
    if len(kept) == len(talk.draft.files):
        names = ", ".join(file.name for file in talk.draft.files) or "nothing"
        raise BadRequest(f"Not attached: {rest}. Attached: {names}." if rest else "Nothing is attached.")
    talk.draft.files = kept
    talk.tell("Detached.")


async def _new(talk: ChatSession, rest: str) -> None:
    talk.begin()
    talk.tell("A new conversation begins with the next message.")


async def _open(talk: ChatSession, rest: str) -> None:
    number = int(rest[:4]) if rest.isdecimal() else None
    words = rest if number is None else ""
    listed = await talk.engine.store.conversations(LOCAL_USER, words=words, limit=LISTED)
    for conversation_id in _meant(words, number, listed):
        if (found := await talk.open(conversation_id)) is not None:
            return reopened(talk, found)
    if not rest and not listed:
        raise BadRequest("There is no conversation yet.")
    if not listed or number is not None:
        raise BadRequest(f"There is no conversation {rest}; /open lists them.")
    for n, one in enumerate(listed, 1):
        talk.tell(f"{n:>3} {one.updated.astimezone():%Y-%m-%d %H:%M}  {one.title}  ({_size(one)}, {one.id})", indent=4)
        if one.excerpt:
            talk.tell(f"    {' '.join(one.excerpt.split())[:FOUND_LENGTH]}", indent=4)
    return talk.tell("Open one by its id, or with more words." if rest else "/open NUMBER goes on with one.")


def _meant(words: str, number: int | None, listed: Sequence[Conversation]) -> Iterator[str]:
    """The ids that may be meant: the one that a number names, else the words themselves, or the only one with them."""
    if number is not None:
        yield from (one.id for one in listed[number - 1 : number] if number)
    elif words:
        yield words
        yield from (one.id for one in listed if len(listed) == 1)


def _size(one: Conversation) -> str:
    return f"{one.messages} message{'' if one.messages == 1 else 's'}"


def reopened(talk: ChatSession, found: ConversationPage) -> None:
    """Shows the newest exchanges of a conversation that goes on."""
    talk.tell(f"{found.conversation.title} ({_size(found.conversation)})")
    talk.space()
    for exchange in found.exchanges:
        talk.tell("\n".join(f"> {line}" for line in exchange.message.split("\n")))
        talk.space()
        talk.show(exchange)
        talk.space()


async def _rename(talk: ChatSession, rest: str) -> None:
    title = queries.check_title(rest)
    renamed = await talk.engine.store.rename(LOCAL_USER, talk.begun, title)
    if renamed is None:
        raise BadRequest("This conversation is no longer there.")
    talk.title = renamed.title
    talk.tell(f"It is called: {talk.title}")


async def _delete(talk: ChatSession, rest: str) -> None:
    conversation_id = talk.begun
    if rest != "yes":
        if talk.agrees is None:
            raise BadRequest("Nobody can be asked here; /delete yes deletes it.")
        talk.tell(f"This deletes “{talk.title}” with its files and its memory.")
        if not await talk.agrees("Delete? [y/N] "):
            return talk.tell("Nothing was deleted.")
    await talk.engine.delete(LOCAL_USER, conversation_id)
    talk.begin()
    return talk.tell("Deleted.")


async def _retry(talk: ChatSession, rest: str) -> None:
    exchange = await talk.last()
    talk.replace_last(exchange)
    talk.repeat(exchange.message)
    await talk.say(exchange.message)
    talk.draft.text = ""


async def _edit(talk: ChatSession, rest: str) -> None:
    exchange = await talk.last()
    talk.replace_last(exchange)
    talk.draft.text = exchange.message


async def _model(talk: ChatSession, rest: str) -> None:
    if rest:
        talk.engine.model(rest)
        talk.choices.model = rest
    answers = talk.engine.model(talk.choices.model)
    others = ", ".join(sorted(talk.engine.names()))
    stand_in = ", a rule-based stand-in," if answers.is_demo else ""
    talk.tell(f"{answers.name}{stand_in} answers. On offer: {others}")


async def _specialists(talk: ChatSession, rest: str) -> None:
    known = {one.name: one for one in talk.engine.registry.usable()}
    switch, *names = rest.split() or [""]
    if switch in ("on", "off"):
        if unknown := sorted(set(names) - set(known)):
            raise BadRequest(f"There is no {unknown[0]}. There are: {', '.join(known)}.")
        _switch(talk, frozenset(known), frozenset(names) or frozenset(known), on=switch == "on")
    elif rest:
        raise BadRequest("Say /specialists, or /specialists on|off NAME …")
    for name, one in known.items():
        off = talk.choices.specialists is not None and name not in talk.choices.specialists
        talk.tell(f"{'off' if off else 'on ':<4}{name}: {one.description.splitlines()[0]}", indent=4)


def _switch(talk: ChatSession, known: frozenset[str], names: frozenset[str], *, on: bool) -> None:
    allowed = known if talk.choices.specialists is None else talk.choices.specialists
    allowed = allowed | names if on else allowed - names
    talk.choices.specialists = None if allowed >= known else allowed


async def _memory(talk: ChatSession, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise BadRequest("Say /memory on or /memory off.")
    talk.choices.memory = rest == "on" if rest else talk.choices.memory
    told = "Facts and memories are recalled" if talk.choices.memory else "Nothing is recalled"
    talk.tell(f"{told} in this session. /facts shows what there is; brain memory changes it.")


async def _facts(talk: ChatSession, rest: str) -> None:
    store = talk.engine.store
    items = await paged(lambda before: store.items(LOCAL_USER, words=rest, before=before, limit=PAGE))
    for item in items:
        talk.tell(f"{item.id:<8} {item.category or item.kind:<11} {item.text}", indent=21)
    if not items:
        talk.tell("There are none.")


async def _help(talk: ChatSession, rest: str) -> None:
    for name, command in COMMANDS.items():
        talk.tell(f"{f'/{name} {command.usage}':<32} {command.text}", indent=33)
    talk.tell("Alt-Enter begins another line. Ctrl-C stops an answer. Ctrl-D leaves. //… sends what begins with /.")


async def _quit(talk: ChatSession, rest: str) -> None:
    raise Leaving


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
    "copy": Command(copy, "", "copy the last answer as Markdown"),
    "save": Command(save, "FILE", "write the conversation to a file, as Markdown", "path"),
    "model": Command(_model, "[NAME]", "see or choose who answers", "models"),
    "specialists": Command(_specialists, "[on|off NAME …]", "see them, or say which may be called", "specialists"),
    "memory": Command(_memory, "[on|off]", "whether facts and memories are recalled", "switch"),
    "facts": Command(_facts, "[WORDS]", "what is remembered of you"),
    "quit": Command(_quit, "", "leave"),
}
