"""The slash commands of `brain chat`."""

import argparse
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from brain.cli.commands import tasks
from brain.cli.commands.chat_export import copy, save
from brain.cli.commands.chat_session import ChatSession
from brain.cli.commands.input import read_attachment
from brain.cli.commands.store_access import read_all_items
from brain.cli.process import CommandError
from brain.errors import BadRequest
from brain.events import AssistMode
from brain.messages import new_conversation_id
from brain.protocols.common import MAX_ATTACHMENTS, too_many_attachments
from brain.protocols.native import queries
from brain.runtime.assistant import find_mode
from brain.settings import LOCAL_USER
from brain.store import conversations
from brain.store.conversations import Conversation, ConversationPage
from brain.strategies.descriptions import DESCRIPTIONS
from brain.task import NewTask
from brain.tasks import schedule
from brain.text import suggest

_TASK_OPTION = re.compile(r"""--(when|every)[ =]+(?:"([^"]*)"|'([^']*)'|(\S+))\s*""")
_ASSIST: Mapping[AssistMode, str] = {
    "auto": "Brain chooses specialists for models that do not call any by themselves.",
    "off": "Brain chooses no specialists.",
    "always": "Brain chooses the specialists.",
}
MAX_LISTED, MAX_EXCERPT_LENGTH = 20, 200


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command.

    Attributes:
        words: Returns the words that Tab completes after its name; None for a path.
    """

    run: Callable[[ChatSession, str], Awaitable[None]]
    usage: str
    text: str
    words: Callable[[ChatSession], Sequence[str]] | None = lambda session: ()


class Quit(Exception):
    """The person leaves."""


async def run_slash_command(session: ChatSession, line: str) -> None:
    """Run the command at the beginning of a line."""
    name, _, rest = line[1:].partition(" ")
    if name not in COMMANDS:
        near = suggest(f"/{name}", [f"/{one}" for one in COMMANDS])
        raise BadRequest(f"Unknown command /{name}.{near} Type /help for all commands, or // to send a message with /.")
    await COMMANDS[name].run(session, rest.strip())


def attach(session: ChatSession, paths: Sequence[Path]) -> None:
    """Attach files to the next message."""
    if len(session.draft.files) + len(paths) > MAX_ATTACHMENTS:
        raise too_many_attachments(len(session.draft.files) + len(paths))
    files = [read_attachment(path, str(path)) for path in paths]
    session.draft.files += files
    names = ", ".join(f"{file.name} ({len(file.data):,} bytes)" for file in files)
    them = "it" if len(files) == 1 else "them"
    session.print(f"Attached to the next message: {names}. Type /detach to remove {them}.")


async def _attach(session: ChatSession, rest: str) -> None:
    try:
        paths = [Path(word) for word in shlex.split(rest)]
    except ValueError:
        raise BadRequest("A quote is not closed. Type /attach PATH …") from None
    if not paths:
        raise BadRequest("No file. Type /attach PATH …")
    attach(session, paths)


async def _detach(session: ChatSession, rest: str) -> None:
    remaining = [file for file in session.draft.files if rest and file.name != rest]
    if len(remaining) == len(session.draft.files):
        raise BadRequest(
            f"'{rest}' is not attached.{suggest(rest, [one.name for one in session.draft.files])}"
            if rest
            else "No file is attached."
        )
    session.draft.files = remaining
    session.print("File removed.")


async def _new(session: ChatSession, rest: str) -> None:
    session.leave()
    session.print("Your next message starts a new conversation.")


async def _open(session: ChatSession, rest: str) -> None:
    """Open the conversation with this number or ID, or the only one with these words; else list what was found."""
    number = int(rest[:4]) if rest.isdecimal() else None
    words = rest if number is None else ""
    listed = await session.engine.store.list_conversations(LOCAL_USER, words=words, limit=MAX_LISTED)
    if number is not None:
        ids = [one.id for one in listed[number - 1 : number]] if number else []
    else:
        ids = [words, *(one.id for one in listed if len(listed) == 1)] if words else []
    for conversation_id in ids:
        if (found := await session.open(conversation_id)) is not None:
            return show_reopened(session, found)
    if not rest and not listed:
        raise BadRequest("No conversations yet.")
    if not listed or number is not None:
        raise BadRequest(f"No conversation '{rest}'. Type /open to list them.")
    for n, one in enumerate(listed, 1):
        updated = f"{one.updated.astimezone():%Y-%m-%d %H:%M}"
        private = "private, " if one.private else ""
        session.print(f"{n:>3} {updated}  {one.title}  ({private}{_count_messages(one)}, {one.id})", indent=4)
        if one.excerpt:
            session.print(f"    {' '.join(one.excerpt.split())[:MAX_EXCERPT_LENGTH]}", indent=4)
    hint = "/open ID, or /open with more words" if rest else "/open NUMBER"
    return session.print(f"Type {hint} to continue a conversation.")


def _count_messages(one: Conversation) -> str:
    return f"{one.messages} message{'' if one.messages == 1 else 's'}"


def show_reopened(session: ChatSession, page: ConversationPage) -> None:
    """Show the latest exchanges of a conversation."""
    session.print(f"{page.conversation.title} ({_count_messages(page.conversation)})")
    session.print_blank()
    for exchange in page.exchanges:
        if exchange.source != "report":
            session.print("\n".join(f"> {line}" for line in exchange.message.split("\n")))
            session.print_blank()
        session.show(exchange)
        session.print_blank()


async def _rename(session: ChatSession, rest: str) -> None:
    title = queries.check_title(rest)
    renamed = await session.engine.store.write(conversations.rename, LOCAL_USER, session.required_id, title)
    if renamed is None:
        raise BadRequest("This conversation was deleted. Type /new to start another one.")
    session.title = renamed.title
    session.print(f"Renamed to “{session.title}”.")


async def _delete(session: ChatSession, rest: str) -> None:
    conversation_id = session.required_id
    if rest != "yes":
        if session.confirm is None:
            raise BadRequest("Cannot ask for confirmation without a terminal. Use /delete yes.")
        session.print(f"This deletes “{session.title}” with its files and its summary.")
        if not await session.confirm("Delete? [y/N] "):
            return session.print("Not deleted.")
    await session.engine.delete(LOCAL_USER, conversation_id)
    session.leave()
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
    names = _model_names(session)
    if rest and rest not in names:
        raise BadRequest(f"Unknown model '{rest}'.{suggest(rest, names)} Available: {', '.join(names)}.")
    model = session.engine.find_model(rest or session.model, private=session.private)
    session.model = rest or session.model
    demo = " (demo model)" if model.is_demo else ""
    session.print(f"Model: {model.name}{demo}. Available: {', '.join(names)}.")


async def _strategy(session: ChatSession, rest: str) -> None:
    allowed = session.engine.settings.allowed_strategies
    chosen = next((one for one in allowed if one == rest), None)
    if rest and chosen is None:
        raise BadRequest(f"Unknown strategy '{rest}'.{suggest(rest, allowed)} Available: {', '.join(allowed)}.")
    session.strategy = chosen or session.strategy
    used = session.strategy or session.engine.settings.strategy
    session.print(f"Strategy: {used}. {DESCRIPTIONS[used].sentence} Available: {', '.join(allowed)}.")


async def _specialists(session: ChatSession, rest: str) -> None:
    usable = {one.name: one for one in session.engine.registry.usable()}
    switch, *names = rest.split() or [""]
    if switch in ("on", "off"):
        if unknown := sorted(set(names) - set(usable)):
            near = suggest(unknown[0], usable)
            raise BadRequest(f"Unknown specialist '{unknown[0]}'.{near} Type /specialists to list them.")
        allowed = frozenset(usable) if session.specialists is None else session.specialists
        chosen = frozenset(names) or frozenset(usable)
        allowed = allowed | chosen if switch == "on" else allowed - chosen
        session.specialists = None if allowed >= frozenset(usable) else allowed
    elif rest:
        raise BadRequest("Type /specialists, or /specialists on|off NAME …")
    for name, one in usable.items():
        is_off = session.specialists is not None and name not in session.specialists
        session.print(f"{'off' if is_off else 'on ':<4}{name}: {one.description.splitlines()[0]}", indent=4)


async def _memory(session: ChatSession, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise BadRequest("Type /memory on or /memory off.")
    session.recalls = rest == "on" if rest else session.recalls
    state = "on" if session.recalls else "off"
    session.print(f"Memory is {state} in this session. Type /facts to list what Brain remembers.")


async def _assist(session: ChatSession, rest: str) -> None:
    chosen = next((one for one in get_args(AssistMode) if one == rest), None)
    if rest and chosen is None:
        raise BadRequest("Type /assist auto, /assist off or /assist always.")
    session.assist = chosen or session.assist
    engine = session.engine
    used = session.assist or find_mode(engine.settings, engine.find_model(session.model, private=session.private))
    session.print(f"Assist: {used}. {_ASSIST[used]}")


async def _private(session: ChatSession, rest: str) -> None:
    if rest not in ("", "on", "off"):
        raise BadRequest("Type /private on or /private off.")
    if rest == "off":
        if session.private and session.conversation_id is not None:
            stored = await session.engine.store.read(
                conversations.read_page, LOCAL_USER, session.conversation_id, limit=1
            )
            if stored is not None and stored.conversation.private:
                raise BadRequest("A private conversation stays private. Type /new, then /private off.")
        session.private = False
        session.print("The conversation is not private.")
        return
    model = session.engine.find_model(session.model, private=True)
    session.private = True
    earlier = " Earlier messages may have been sent elsewhere." if session.conversation_id is not None else ""
    session.print(f"The conversation is private from now on. Only local models read it, such as {model.name}.{earlier}")


async def _facts(session: ChatSession, rest: str) -> None:
    items = await read_all_items(session.engine.store, LOCAL_USER, words=rest)
    for item in items:
        session.print(f"{item.id:<8} {item.category or item.kind:<11} {item.text}", indent=21)
    if not items:
        session.print("No facts found.")


async def _task(session: ChatSession, rest: str) -> None:
    """Add a task that reports in this conversation."""
    options, prompt = {}, rest
    while found := _TASK_OPTION.match(prompt):
        name, double, single, word = found.groups()
        options[name] = next(text for text in (double, single, word) if text is not None)
        prompt = prompt[found.end() :]
    if not prompt.strip():
        raise BadRequest('Type /task PROMPT, or /task --every "every weekday at 8" PROMPT.')
    session.conversation_id = session.conversation_id or new_conversation_id()
    engine = session.engine
    when, every = options.get("when"), options.get("every")
    place, private = session.conversation_id, session.private
    new = NewTask(prompt=prompt, when=when, every=every, conversation_id=place, private=private)
    task = engine.tasks.check(LOCAL_USER, new)
    if words := schedule.describe(task, engine.tasks.now()):
        session.print(f"Schedule: {words}")
        if not await _confirm(session, "Add this task?"):
            return session.print("Nothing was added.")
    task = await engine.tasks.create(task)
    return session.print(f"Added {task.id} “{task.title}”. This conversation reports the result.")


async def _tasks(session: ChatSession, rest: str) -> None:
    """List tasks, or show, change or decide one."""
    name, _, task_id = rest.partition(" ")
    if (name and name not in TASK_ACTIONS) or (bool(name) != bool(task_id.strip())):
        near = suggest(name, TASK_ACTIONS) if name not in TASK_ACTIONS else ""
        raise BadRequest(f"Type /tasks, or /tasks {'|'.join(TASK_ACTIONS)} ID.{near}")
    arguments = argparse.Namespace(
        user=LOCAL_USER,
        id=task_id.strip(),
        all=False,
        json=False,
        yes=False,
        confirm=lambda question, without_terminal: _confirm(session, question),
    )
    try:
        await (TASK_ACTIONS[name] if name else tasks.show_all)(arguments, session.engine.tasks)
    except CommandError as error:
        raise BadRequest(f"{error}. Type /tasks to list them.") from None


async def _confirm(session: ChatSession, question: str) -> bool:
    if session.confirm is None:
        raise BadRequest("Cannot ask for confirmation without a terminal. Use brain tasks with --yes.")
    return await session.confirm(f"{question} [y/N] ")


async def _help(session: ChatSession, rest: str) -> None:
    for name, command in COMMANDS.items():
        session.print(f"{f'/{name} {command.usage}':<32} {command.text}", indent=33)
    session.print("Alt-Enter: new line. Ctrl-C: stop the answer. Ctrl-D: exit. //… sends a message that starts with /.")


async def _quit(session: ChatSession, rest: str) -> None:
    raise Quit


TASK_ACTIONS: Mapping[str, tasks.Action] = {
    "show": tasks.show,
    "cancel": tasks.cancel,
    "pause": tasks.pause,
    "resume": tasks.resume,
    "run": tasks.run,
    "approve": tasks.approve,
    "decline": tasks.decline,
}


def _model_names(session: ChatSession) -> Sequence[str]:
    return sorted(session.engine.model_names())


def _on_off(session: ChatSession) -> Sequence[str]:
    return "on", "off"


COMMANDS = {
    "help": SlashCommand(_help, "", "list the commands"),
    "attach": SlashCommand(_attach, "PATH …", "attach files to the next message", None),
    "detach": SlashCommand(_detach, "[NAME]", "remove one attached file, or all"),
    "new": SlashCommand(_new, "", "start a new conversation"),
    "open": SlashCommand(_open, "[NUMBER|ID|WORDS]", "list conversations, or open one"),
    "rename": SlashCommand(_rename, "TITLE", "rename this conversation"),
    "delete": SlashCommand(_delete, "", "delete this conversation"),
    "retry": SlashCommand(_retry, "", "send the last message again"),
    "edit": SlashCommand(_edit, "", "edit and resend the last message"),
    "copy": SlashCommand(copy, "", "copy the last answer as Markdown"),
    "save": SlashCommand(save, "FILE", "save the conversation as Markdown", None),
    "model": SlashCommand(_model, "[NAME]", "show or choose the model", _model_names),
    "strategy": SlashCommand(
        _strategy, "[NAME]", "show or choose the strategy", lambda session: session.engine.settings.allowed_strategies
    ),
    "specialists": SlashCommand(
        _specialists,
        "[on|off NAME …]",
        "list specialists, or switch some on or off",
        lambda session: ["on", "off", *(one.name for one in session.engine.registry.usable())],
    ),
    "memory": SlashCommand(_memory, "[on|off]", "turn the use of memory on or off", _on_off),
    "assist": SlashCommand(
        _assist, "[auto|off|always]", "choose whether Brain chooses specialists", lambda session: get_args(AssistMode)
    ),
    "private": SlashCommand(_private, "[on|off]", "let only local models read the conversation", _on_off),
    "facts": SlashCommand(_facts, "[WORDS]", "list what Brain remembers"),
    "task": SlashCommand(_task, '[--when|--every "…"] PROMPT', "run work in the background"),
    "tasks": SlashCommand(
        _tasks,
        "[ACTION ID]",
        "list background tasks, or show, change or decide one",
        lambda session: sorted(TASK_ACTIONS),
    ),
    "quit": SlashCommand(_quit, "", "exit"),
}
