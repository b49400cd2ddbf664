"""`brain chat`: a session in the terminal; or one message a line, where what is said is piped."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from brain.cli.commands.chat_commands import COMMANDS, Quit, attach, run_slash_command, show_reopened
from brain.cli.commands.chat_session import ChatSession, Choices, Draft
from brain.cli.commands.input import conversation_id, parse_dropped_path, read_attachment
from brain.cli.commands.store_access import chat_history
from brain.cli.process import DONE, FAILED, run_command
from brain.cli.terminal.keyboard import silent
from brain.cli.terminal.prompt import Prompt, Words, confirm
from brain.errors import BadRequest, BrainError, StoreError
from brain.messages import ConversationPage
from brain.plugins.registry import Registry
from brain.protocols.native import MESSAGE_LENGTH
from brain.runtime.engine import Engine
from brain.settings import LOCAL_USER, Settings
from brain.text import replace_surrogates

PART_LENGTH = 40
"""Characters that a part of the line below the prompt may have."""
LINE_BYTES = 4 * MESSAGE_LENGTH + 100
"""More than a message may have, whatever its characters are."""


def chat(given: argparse.Namespace, settings: Settings) -> int:
    """Talks with whoever sits at the terminal, until they leave."""
    if given.conversation is not None and given.go_on:
        raise BadRequest("Give either --conversation or --continue, not both.", "conversation")
    return run_command(_chat(given, settings))


async def _chat(given: argparse.Namespace, settings: Settings) -> int:
    is_person = sys.stdin.isatty() and sys.stdout.isatty()
    files = [read_attachment(path, f"--file {path}") for path in given.file]
    chosen = conversation_id(given.conversation)
    engine = Engine(settings, Registry(settings).discover())
    await engine.open()
    try:
        choices, plain = Choices(memory=not given.no_memory), given.plain or not is_person
        session = ChatSession(engine, choices, Draft(files=files), plain=plain, thinks=given.thinking)
        found = await _open_start(session, chosen, newest=given.go_on)
        await (_run_interactive(session, settings, found) if is_person else _run_script(session))
        return FAILED if session.has_failed and not is_person else DONE
    finally:
        await engine.close()  # and so what was said is kept, however it ends


async def _open_start(session: ChatSession, chosen: str | None, *, newest: bool) -> ConversationPage | None:
    if newest:
        found = await session.engine.store.conversations(LOCAL_USER, limit=1)
        if not found:
            raise BrainError("There is no conversation to go on with yet.")
        chosen = found[0].id
    opened = None if chosen is None else await session.open(chosen)
    if opened is None:
        session.conversation_id = chosen  # a name of one's own begins one
    return opened


async def _run_script(session: ChatSession) -> None:
    """One message a line."""
    while line := await asyncio.to_thread(_line):
        try:
            await _handle_line(session, line.strip())
        except Quit:
            return
        session.draft.text = ""


def _line() -> str:
    """The next line of standard input; of one that is too long, as much as tells it."""
    line = part = sys.stdin.buffer.readline(LINE_BYTES)
    while len(part) == LINE_BYTES and not part.endswith(b"\n"):
        part = sys.stdin.buffer.readline(LINE_BYTES)
    return line.decode(errors="replace")


async def _run_interactive(session: ChatSession, settings: Settings, opened: ConversationPage | None) -> None:
    prompt = Prompt(
        None if settings.store == "memory:" else chat_history(),
        {name: _completions(session, command.completes) for name, command in COMMANDS.items()},
        lambda: _status_line(session),
    )
    with suppress(NotImplementedError):  # where there are no signals, Ctrl-C ends it
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, session.stop)
    answers = session.engine.find_model(session.choices.model)
    stand_in = ", a rule-based stand-in: no language model is connected" if answers.is_demo else ""
    session.print(f"{answers.name} answers{stand_in}. /help lists the commands, Ctrl-D leaves.")
    if opened is not None:
        show_reopened(session, opened)
    with silent(sys.stdin) as keyboard, suppress(EOFError, Quit):
        session.keyboard, session.confirm = keyboard, partial(confirm, sys.stdin)
        while True:
            await _next(session, prompt)
    if session.conversation_id is not None and settings.store != "memory:":
        session.print(f"Go on with: brain chat --conversation {session.conversation_id}")


async def _next(session: ChatSession, prompt: Prompt) -> None:
    draft, session.draft.text = session.draft.text, ""
    try:
        line = await prompt.line(draft)
    except KeyboardInterrupt as given_up:
        session.draft.replacing = None
        if not str(given_up):
            session.print("Ctrl-D leaves.")
    else:
        await _handle_line(session, replace_surrogates(line.strip()))


async def _handle_line(session: ChatSession, line: str) -> None:
    """Does what a line says; what cannot be done is said in a sentence."""
    try:
        if not line:
            return
        if (path := parse_dropped_path(line)) is not None:
            attach(session, [path])
        elif line.startswith("/") and not line.startswith("//"):
            await run_slash_command(session, line)
        else:
            await session.send(line.removeprefix("/") if line.startswith("//") else line)
    except (BadRequest, StoreError) as error:
        session.has_failed = True
        session.print(str(error))


def _completions(session: ChatSession, kind: str) -> Words | None:
    """What Tab completes behind a command; None for a path."""

    def names() -> Sequence[str]:
        known = [one.name for one in session.engine.registry.usable()]
        return {
            "specialists": ["on", "off", *known],
            "switch": ["on", "off"],
            "models": sorted(session.engine.model_names()),
        }.get(kind, [])

    return None if kind == "path" else names


def _status_line(session: ChatSession) -> str:
    """Who answers, in which conversation, and what goes along."""
    parts = [
        _shorten(session.engine.find_model(session.choices.model).name),
        _shorten(session.title or "new conversation"),
    ]
    parts += ["replaces the last message"] if session.draft.replacing is not None else []
    parts += [] if session.choices.memory else ["no memory"]
    names = _shorten(", ".join(file.name for file in session.draft.files))
    parts += [f"attached: {names}"] if names else []
    return " · ".join(parts)


def _shorten(text: str) -> str:
    return text if len(text) <= PART_LENGTH else f"{text[: PART_LENGTH - 1]}…"
