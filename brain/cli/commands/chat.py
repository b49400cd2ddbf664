"""`brain chat`: an interactive session at a terminal; elsewhere a script with one message per line."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from brain.cli.commands.chat_commands import COMMANDS, Quit, attach, run_slash_command, show_reopened
from brain.cli.commands.chat_session import ChatSession, Draft
from brain.cli.commands.input import check_conversation_id, check_strategy, parse_dropped_path, read_attachment
from brain.cli.commands.output import open_engine
from brain.cli.commands.store_access import chat_history
from brain.cli.process import DONE, FAILED, CommandError, UsageError
from brain.cli.terminal.keyboard import silent
from brain.cli.terminal.prompt import Prompt, confirm
from brain.errors import BadRequest, StoreError
from brain.protocols.common import MESSAGE_LENGTH
from brain.settings import LOCAL_USER, Settings
from brain.store.conversations import ConversationPage
from brain.text import replace_surrogates, shorten
from brain.turn_request import STRATEGY_OPTIONS

MAX_PART_LENGTH = 40
"""Characters of one part of the status line."""
TYPING_SECONDS = 3.0
"""Shortest time between two notes that the person types."""
LINE_BYTES = 4 * MESSAGE_LENGTH + 100
"""More than the longest allowed message in any script."""


log = logging.getLogger("brain")


async def chat(arguments: argparse.Namespace, settings: Settings) -> int:
    """Chat until the person leaves or standard input ends."""
    if arguments.conversation is not None and arguments.go_on:
        raise UsageError("Use --conversation or --continue, not both.", "brain chat --continue")
    is_interactive = sys.stdin.isatty() and sys.stdout.isatty()
    files = [read_attachment(path, str(path)) for path in arguments.file]
    conversation_id = check_conversation_id(arguments.conversation)
    strategy = check_strategy(arguments.strategy, settings)
    on_task_end = (lambda task, outcome, seconds: None) if is_interactive else None
    async with open_engine(settings, on_task_end) as engine:
        session = ChatSession(
            engine,
            Draft(files=files),
            recalls=not arguments.no_memory,
            private=arguments.private,
            critic=arguments.critic,
            plain=arguments.plain or not is_interactive,
            thinks=arguments.thinking,
        )
        if arguments.go_on:
            newest = await engine.store.list_conversations(LOCAL_USER, limit=1)
            if not newest:
                raise CommandError("No conversations yet.", "brain chat")
            conversation_id = newest[0].id
        opened = None if conversation_id is None else await session.open(conversation_id)
        if opened is None:
            session.conversation_id = conversation_id  # a new conversation with an ID of the person's choice
        session.strategy = strategy or session.strategy
        if arguments.critic and "critic" not in STRATEGY_OPTIONS[session.strategy or settings.strategy]:
            raise UsageError("--critic needs --strategy dual.", "brain chat --help")
        if is_interactive:
            await _run_interactive(session, settings, opened)
            return DONE
        with suppress(Quit):
            while line := await asyncio.to_thread(_read_line):
                await _handle_line(session, line.strip())
                session.draft.text = ""
        return FAILED if session.has_failed else DONE


def _read_line() -> str:
    """Read the next line of standard input; only the beginning of a line that is too long."""
    line = part = sys.stdin.buffer.readline(LINE_BYTES)
    while len(part) == LINE_BYTES and not part.endswith(b"\n"):
        part = sys.stdin.buffer.readline(LINE_BYTES)
    return line.decode(errors="replace")


async def _run_interactive(session: ChatSession, settings: Settings, opened: ConversationPage | None) -> None:
    has_typed = asyncio.Event()
    prompt = Prompt(
        None if settings.store == "memory:" else chat_history(),
        {name: one.words and partial(one.words, session) for name, one in COMMANDS.items()},
        lambda: _status_line(session),
        lambda: has_typed.set(),
    )
    with suppress(NotImplementedError):  # without signals, Ctrl-C ends the session
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, session.stop)
    model = session.engine.find_model(session.model, private=session.private)
    demo = " Demo mode: no language model is connected." if model.is_demo else ""
    session.print(f"Connected to {model.name}.{demo} Type /help for commands, Ctrl-D to exit.")
    if opened is not None:
        show_reopened(session, opened)
    await session.read_reports()
    background = [
        asyncio.create_task(_show_reports(session, prompt), name="reports"),
        asyncio.create_task(_delay_reports(session, has_typed), name="typing"),
    ]
    with silent(sys.stdin) as keyboard, suppress(EOFError, Quit), _canceling(background):
        session.keyboard, session.confirm = keyboard, partial(confirm, sys.stdin)
        while True:
            session.show_reports()
            draft, session.draft.text = session.draft.text, ""
            try:
                line = await prompt.read(draft)
            except KeyboardInterrupt as interrupt:
                session.draft.replaced = None
                if not str(interrupt):  # nothing was typed
                    session.print("Press Ctrl-D to exit.")
            else:
                await _handle_line(session, replace_surrogates(line.strip()))
    if session.conversation_id is not None and settings.store != "memory:":
        session.print(f"Continue with: brain chat --conversation {session.conversation_id}")


@contextmanager
def _canceling(background: Sequence[asyncio.Task[None]]) -> Iterator[None]:
    try:
        yield
    finally:
        for task in background:
            task.cancel()


async def _show_reports(session: ChatSession, prompt: Prompt) -> None:
    """Show reports on tasks above the prompt; those that arrive during an answer come before the next prompt."""
    changed = asyncio.Event()
    unsubscribe = session.engine.tasks.subscribe(changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            try:
                await session.read_reports()
            except StoreError as error:
                log.warning("reports on tasks cannot be read: %s", error)
            if session.reports:
                await prompt.print_above(session.show_reports)
    finally:
        unsubscribe()


async def _delay_reports(session: ChatSession, has_typed: asyncio.Event) -> None:
    """Let reports in the conversation wait while the person types."""
    while True:
        await has_typed.wait()
        has_typed.clear()
        if session.conversation_id is not None:
            with suppress(StoreError):
                await session.engine.reports.delay(LOCAL_USER, session.conversation_id)
        await asyncio.sleep(TYPING_SECONDS)


async def _handle_line(session: ChatSession, line: str) -> None:
    """Send a message, attach a dropped file or run a command; print why it failed."""
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
        session.print(str(error).replace("`", ""))


def _status_line(session: ChatSession) -> str:
    """Return the model, the conversation and the files of the next message."""
    strategy = session.strategy or session.engine.settings.strategy
    parts = [shorten(session.model_name, MAX_PART_LENGTH), *([] if strategy == "mono" else [strategy])]
    parts += ["critic"] if session.critic and "critic" in STRATEGY_OPTIONS[strategy] else []
    parts += [shorten(session.title or "new conversation", MAX_PART_LENGTH)]
    parts += ["private"] if session.private else []
    parts += ["replaces the last message"] if session.draft.replaced is not None else []
    parts += [] if session.recalls else ["no memory"]
    names = shorten(", ".join(file.name for file in session.draft.files), MAX_PART_LENGTH)
    parts += [f"attached: {names}"] if names else []
    return " · ".join(parts)
