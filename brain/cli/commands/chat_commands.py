"""The slash commands of `brain chat`."""

import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from brain.cli.commands.chat_export import copy, save
from brain.cli.commands.chat_session import ChatSession
from brain.cli.commands.input import read_attachment
from brain.cli.commands.store_access import read_all_items
from brain.errors import BadRequest
from brain.messages import Conversation, ConversationPage
from brain.protocols.attachments import MAX_ATTACHMENTS, too_many_attachments
from brain.protocols.native import queries
from brain.settings import LOCAL_USER

MAX_LISTED, MAX_EXCERPT_LENGTH = 20, 200

CompletionKind = Literal["path", "specialists", "switch", "models", ""]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command.

    Attributes:
        usage: its arguments, for the list of commands.
        completes: what Tab completes after its name.
    """

    run: Callable[[ChatSession, str], Awaitable[None]]
    usage: str
    text: str
    completes: CompletionKind = ""


class Quit(Exception):
    """The person leaves."""


async def run_slash_command(session: ChatSession, line: str) -> None:
    """Run the command that a line begins with.

    Raises:
        BadRequest: why it cannot be done.
        Quit: the command leaves the session.
    """
    name, _, rest = line[1:].partition(" ")
    if name not in COMMANDS:
        names = ", ".join(f"/{name}" for name in COMMANDS)
        raise BadRequest(f"There is no /{name}. There are: {names}. A message that begins with a slash: //…")
    await COMMANDS[name].run(session, rest.strip())


def attach(session: ChatSession, paths: Sequence[Path]) -> None:
    """Attach files to the next message.

    Raises:
        BadRequest: a file cannot be attached.
    """
    if len(session.draft.files) + len(paths) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    files = [read_attachment(path, str(path)) for path in paths]
    session.draft.files += files
    names = ", ".join(f"{file.name} ({len(file.data):,} bytes)" for file in files)
    goes, them = ("It goes", "it") if len(files) == 1 else ("They go", "them")
    session.print(f"Attached: {names}. {goes} with the next message; /detach takes {them} off.")


async def _attach(session: ChatSession, rest: str) -> None:
    try:
        paths = [Path(word) for word in shlex.split(rest)]
    except ValueError:
        raise BadRequest("This cannot be read as paths: a quote is open.") from None
    if not paths:
        raise BadRequest("Say which: /attach PATH …")
    attach(session, paths)


async def _detach(session: ChatSession, rest: str) -> None:
    remaining = [file for file in session.draft.files if rest and file.name != rest]
    if len(remaining) == len(session.draft.files):
        names = ", ".join(file.name for file in session.draft.files) or "nothing"
        raise BadRequest(f"Not attached: {rest}. Attached: {names}." if rest else "Nothing is attached.")
    session.draft.files = remaining
    session.print("Detached.")


async def _new(session: ChatSession, rest: str) -> None:
    session.begin()
    session.print("A new conversation begins with the next message.")


async def _open(session: ChatSession, rest: str) -> None:
    """Open the conversation with this number or id, or the only one with these words; else list what was found."""
    number = int(rest[:4]) if rest.isdecimal() else None
    words = rest if number is None else ""
    listed = await session.engine.store.conversations(LOCAL_USER, words=words, limit=MAX_LISTED)
    if number is not None:
        ids = [one.id for one in listed[number - 1 : number]] if number else []
    else:
        ids = [words, *(one.id for one in listed if len(listed) == 1)] if words else []
    for conversation_id in ids:
        if (found := await session.open(conversation_id)) is not None:
            return show_reopened(session, found)
    if not rest and not listed:
        raise BadRequest("There is no conversation yet.")
    if not listed or number is not None:
        raise BadRequest(f"There is no conversation {rest}; /open lists them.")
    for n, one in enumerate(listed, 1):
        updated = f"{one.updated.astimezone():%Y-%m-%d %H:%M}"
        session.print(f"{n:>3} {updated}  {one.title}  ({_count_messages(one)}, {one.id})", indent=4)
        if one.excerpt:
            session.print(f"    {' '.join(one.excerpt.split())[:MAX_EXCERPT_LENGTH]}", indent=4)
    return session.print("Open one by its id, or with more words." if rest else "/open NUMBER goes on with one.")


def _count_messages(one: Conversation) -> str:
    return f"{one.messages} message{'' if one.messages == 1 else 's'}"


def show_reopened(session: ChatSession, page: ConversationPage) -> None:
    """Show the newest exchanges of a conversation that continues."""
    session.print(f"{page.conversation.title} ({_count_messages(page.conversation)})")
    session.print_blank()
    for exchange in page.exchanges:
        session.print("\n".join(f"> {line}" for line in exchange.message.split("\n")))
        session.print_blank()
        session.show(exchange)
        session.print_blank()


async def _rename(session: ChatSession, rest: str) -> None:
    title = queries.check_title(rest)
    renamed = await session.engine.store.rename(LOCAL_USER, session.required_id, title)
    if renamed is None:
        raise BadRequest("This conversation is no longer there.")
    session.title = renamed.title
    session.print(f"It is called: {session.title}")


async def _delete(session: ChatSession, rest: str) -> None:
    conversation_id = session.required_id
    if rest != "yes":
        if session.confirm is None:
            raise BadRequest("Nobody can be asked here; /delete yes deletes it.")
        session.print(f"This deletes “{session.title}” with its files and its memory.")
        if not await session.confirm("Delete? [y/N] "):
            return session.print("Nothing was deleted.")
    await session.engine.delete(LOCAL_USER, conversation_id)
    session.begin()
    return session.print("Deleted.")


async def _retry(session: ChatSession, rest: str) -> None:
    exchange = session.draft.replaced = await session.last_exchange()
    session.show_repeated(exchange.message)
    await session.send(exchange.message)
    session.draft.text = ""


async def _edit(session: ChatSession, rest: str) -> None:
    exchange = session.draft.replaced = await session.last_exchange()
    session.draft.text = exchange.message


async def _model(session: ChatSession, rest: str) -> None:
    if rest:
        session.engine.find_model(rest)
        session.model = rest
    model = session.engine.find_model(session.model)
    names = ", ".join(sorted(session.engine.model_names()))
    stand_in = ", a rule-based stand-in," if model.is_demo else ""
    session.print(f"{model.name}{stand_in} answers. On offer: {names}")


async def _specialists(session: ChatSession, rest: str) -> None:
    usable = {one.name: one for one in session.engine.registry.usable()}
    switch, *names = rest.split() or [""]
    if switch in ("on", "off"):
        if unknown := sorted(set(names) - set(usable)):
            raise BadRequest(f"There is no {unknown[0]}. There are: {', '.join(usable)}.")
        allowed = frozenset(usable) if session.specialists is None else session.specialists
        chosen = frozenset(names) or frozenset(usable)
        allowed = allowed | chosen if switch == "on" else allowed - chosen
        session.specialists = None if allowed >= frozenset(usable) else allowed
    elif rest:
        raise BadRequest("Say /specialists, or /specialists on|off NAME …")
    for name, one in usable.items():
        is_off = session.specialists is not None and name not in session.specialists
        session.print(f"{'off' if is_off else 'on ':<4}{name}: {one.description.splitlines()[0]}", indent=4)


async def _memory(session: ChatSession, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise BadRequest("Say /memory on or /memory off.")
    session.recalls = rest == "on" if rest else session.recalls
    state = "Facts and memories are recalled" if session.recalls else "Nothing is recalled"
    session.print(f"{state} in this session. /facts shows what there is; brain memory changes it.")


async def _facts(session: ChatSession, rest: str) -> None:
    items = await read_all_items(session.engine.store, LOCAL_USER, words=rest)
    for item in items:
        session.print(f"{item.id:<8} {item.category or item.kind:<11} {item.text}", indent=21)
    if not items:
        session.print("There are none.")


async def _help(session: ChatSession, rest: str) -> None:
    for name, command in COMMANDS.items():
        session.print(f"{f'/{name} {command.usage}':<32} {command.text}", indent=33)
    session.print("Alt-Enter begins another line. Ctrl-C stops an answer. Ctrl-D leaves. //… sends what begins with /.")


async def _quit(session: ChatSession, rest: str) -> None:
    raise Quit


COMMANDS = {
    "help": SlashCommand(_help, "", "this list"),
    "attach": SlashCommand(_attach, "PATH …", "attach files to the next message", "path"),
    "detach": SlashCommand(_detach, "[NAME]", "take one off again, or all"),
    "new": SlashCommand(_new, "", "begin another conversation"),
    "open": SlashCommand(_open, "[NUMBER|ID|WORDS]", "list conversations, or open one"),
    "rename": SlashCommand(_rename, "TITLE", "give this one a title"),
    "delete": SlashCommand(_delete, "", "delete this one"),
    "retry": SlashCommand(_retry, "", "ask the last message again"),
    "edit": SlashCommand(_edit, "", "change the last message, and ask again"),
    "copy": SlashCommand(copy, "", "copy the last answer as Markdown"),
    "save": SlashCommand(save, "FILE", "write the conversation to a file, as Markdown", "path"),
    "model": SlashCommand(_model, "[NAME]", "see or choose who answers", "models"),
    "specialists": SlashCommand(_specialists, "[on|off NAME …]", "list, allow or deny them", "specialists"),
    "memory": SlashCommand(_memory, "[on|off]", "whether facts and memories are recalled", "switch"),
    "facts": SlashCommand(_facts, "[WORDS]", "what is remembered of you"),
    "quit": SlashCommand(_quit, "", "leave"),
}
