"""`brain chat`: a session in the terminal; or one message a line, where what is said is piped."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from brain.cli.commands.chat_commands import COMMANDS, Leaving, attach, obey, reopened
from brain.cli.commands.chat_session import ChatSession, Choices, Draft
from brain.cli.commands.input import attached, conversation_id, dropped
from brain.cli.commands.store_access import chat_history
from brain.cli.process import DONE, FAILED, completed
from brain.cli.terminal.keyboard import silent
from brain.cli.terminal.prompt import Prompt, Words, agrees
from brain.errors import BadRequest, BrainError, StoreError
from brain.messages import ConversationPage
from brain.plugins.registry import Registry
from brain.protocols.native.request import MESSAGE_LENGTH
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
    return completed(_chat(given, settings))


async def _chat(given: argparse.Namespace, settings: Settings) -> int:
    is_person = sys.stdin.isatty() and sys.stdout.isatty()
    files = [attached(path, f"--file {path}") for path in given.file]
    chosen = conversation_id(given.conversation)
    engine = Engine(settings, Registry(settings).discover())
    await engine.open()
    try:
        choices, plain = Choices(memory=not given.no_memory), given.plain or not is_person
        talk = ChatSession(engine, choices, Draft(files=files), plain=plain, thinks=given.thinking)
        found = await _go_on(talk, chosen, newest=given.go_on)
        await (_with_person(talk, settings, found) if is_person else _with_lines(talk))
        return FAILED if talk.failed and not is_person else DONE
    finally:
        await engine.close()  # and so what was said is kept, however it ends


async def _go_on(talk: ChatSession, chosen: str | None, *, newest: bool) -> ConversationPage | None:
    if newest:
        found = await talk.engine.store.conversations(LOCAL_USER, limit=1)
        if not found:
            raise BrainError("There is no conversation to go on with yet.")
        chosen = found[0].id
    opened = None if chosen is None else await talk.open(chosen)
    if opened is None:
        talk.conversation_id = chosen  # a name of one's own begins one
    return opened


async def _with_lines(talk: ChatSession) -> None:
    """One message a line."""
    while line := await asyncio.to_thread(_line):
        try:
            await _take(talk, line.strip())
        except Leaving:
            return
        talk.draft.text = ""


def _line() -> str:
    """The next line of standard input; of one that is too long, as much as tells it."""
    line = part = sys.stdin.buffer.readline(LINE_BYTES)
    while len(part) == LINE_BYTES and not part.endswith(b"\n"):
        part = sys.stdin.buffer.readline(LINE_BYTES)
    return line.decode(errors="replace")


async def _with_person(talk: ChatSession, settings: Settings, opened: ConversationPage | None) -> None:
    prompt = Prompt(
        None if settings.store == "memory:" else chat_history(),
        {name: _completed(talk, command.completes) for name, command in COMMANDS.items()},
        lambda: _below(talk),
    )
    with suppress(NotImplementedError):  # where there are no signals, Ctrl-C ends it
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, talk.stop)
    answers = talk.engine.model(talk.choices.model)
    stand_in = ", a rule-based stand-in: no language model is connected" if answers.is_demo else ""
    talk.tell(f"{answers.name} answers{stand_in}. /help lists the commands, Ctrl-D leaves.")
    if opened is not None:
        reopened(talk, opened)
    with silent(sys.stdin) as keyboard, suppress(EOFError, Leaving):
        talk.keyboard, talk.agrees = keyboard, partial(agrees, sys.stdin)
        while True:
            await _next(talk, prompt)
    if talk.conversation_id is not None and settings.store != "memory:":
        talk.tell(f"Go on with: brain chat --conversation {talk.conversation_id}")


async def _next(talk: ChatSession, prompt: Prompt) -> None:
    draft, talk.draft.text = talk.draft.text, ""
    try:
        line = await prompt.line(draft)
    except KeyboardInterrupt as given_up:
        talk.draft.replacing = None
        if not str(given_up):
            talk.tell("Ctrl-D leaves.")
    else:
        await _take(talk, replace_surrogates(line.strip()))


async def _take(talk: ChatSession, line: str) -> None:
    """Does what a line says; what cannot be done is said in a sentence."""
    try:
        if not line:
            return
        if (path := dropped(line)) is not None:
            attach(talk, [path])
        elif line.startswith("/") and not line.startswith("//"):
            await obey(talk, line)
        else:
            await talk.say(line.removeprefix("/") if line.startswith("//") else line)
    except (BadRequest, StoreError) as error:
        talk.failed = True
        talk.tell(str(error))


def _completed(talk: ChatSession, kind: str) -> Words | None:
    """What Tab completes behind a command; None for a path."""

    def names() -> Sequence[str]:
        known = [one.name for one in talk.engine.registry.usable()]
        return {
            "specialists": ["on", "off", *known],
            "switch": ["on", "off"],
            "models": sorted(talk.engine.names()),
        }.get(kind, [])

    return None if kind == "path" else names


def _below(talk: ChatSession) -> str:
    """Who answers, in which conversation, and what goes along."""
    parts = [_short(talk.engine.model(talk.choices.model).name), _short(talk.title or "new conversation")]
    parts += ["replaces the last message"] if talk.draft.replacing is not None else []
    parts += [] if talk.choices.memory else ["no memory"]
    names = _short(", ".join(file.name for file in talk.draft.files))
    parts += [f"attached: {names}"] if names else []
    return " · ".join(parts)


def _short(text: str) -> str:
    return text if len(text) <= PART_LENGTH else f"{text[: PART_LENGTH - 1]}…"
