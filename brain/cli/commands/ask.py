"""`brain ask`: one turn in the terminal, in a new or an existing conversation."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from brain.cli.commands import input
from brain.cli.commands.input import build_request, conversation_id, read_attachment
from brain.cli.commands.output import has_person, open_screen, show_run, silence_keyboard
from brain.cli.process import DONE, FAILED, run_command
from brain.cli.terminal.approval import Screen
from brain.cli.terminal.messages import ENDINGS
from brain.errors import BadRequest
from brain.events import Error, Event
from brain.messages import Attachment
from brain.plugins.registry import Registry
from brain.protocols import native
from brain.protocols.attachments import MAX_ATTACHMENTS, too_many_attachments
from brain.runtime.engine import Engine
from brain.runtime.run import Run
from brain.settings import Settings
from brain.text import replace_surrogates
from brain.turn_request import TurnRequest

STDIN = "-"


def ask(given: argparse.Namespace, settings: Settings) -> int:
    """Ask once and stream the answer to standard output."""
    if given.message is None:
        given.parser.error('say what to ask: brain ask "…", or brain ask - to read it from standard input')
    request = _request(given, settings)  # before the loop runs, so that Ctrl-C ends the wait for standard input
    return run_command(_ask(request, given, settings))


async def _ask(request: TurnRequest, given: argparse.Namespace, settings: Settings) -> int:
    screen = open_screen(sys.stdout, sys.stderr, plain=given.plain or given.json, thinks=given.thinking)
    request = replace(request, asks_person=has_person(screen))
    engine = Engine(settings, Registry(settings).discover())
    await engine.open()
    try:
        run = await engine.begin(request, "terminal")
        shows_hint = not given.json and settings.store != "memory:" and sys.stdout.isatty() and sys.stderr.isatty()
        return await _show(run, screen, as_json=given.json, asks_person=request.asks_person, shows_hint=shows_hint)
    finally:
        await engine.close()  # stores the turn, also after Ctrl-C


def _request(given: argparse.Namespace, settings: Settings) -> TurnRequest:
    conversation = conversation_id(given.conversation)
    message = input.read_message() if given.message == STDIN else given.message
    return replace(
        build_request(settings, message, _files(given.file, is_taken=given.message == STDIN)),
        conversation_id=conversation,
        source=given.source,
        memory=not given.no_memory,
    )


def _files(paths: Sequence[Path], *, is_taken: bool) -> list[Attachment]:
    """The files that were named, and standard input if it is not taken and brings anything."""
    names = [str(path) for path in paths]
    if names.count(STDIN) + is_taken > 1:
        raise BadRequest("Standard input can be read once: as the message, or as one file.", "file")
    if len(paths) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    files = [
        input.read_stdin_attachment() if str(path) == STDIN else read_attachment(path, f"--file {path}")
        for path in paths
    ]
    return files if is_taken or STDIN in names else [*files, *input.read_piped_attachments()]


async def _show(run: Run, screen: Screen, *, as_json: bool, asks_person: bool, shows_hint: bool) -> int:
    with ExitStack() as stack:
        if shows_hint:
            stack.callback(_say_how_to_continue, screen, run.conversation_id)
        keyboard = stack.enter_context(silence_keyboard(screen))
        show = _json_printer(run.id) if as_json else None
        try:
            ended = await show_run(run, screen, asks_person=asks_person, keyboard=keyboard, show=show)
        except asyncio.CancelledError:  # by Ctrl-C
            screen.say(ENDINGS["cancelled"])
            screen.close()
            raise
    return FAILED if isinstance(ended, Error) else DONE


def _say_how_to_continue(screen: Screen, conversation: str) -> None:
    screen.say(f'Go on with: brain ask --conversation {conversation} "…"')
    screen.close()


def _json_printer(turn_id: str) -> Callable[[Event], None]:
    """A function that prints each event as a line of JSON."""
    numbers = count(1)

    def show(event: Event) -> None:
        event_id = f"{turn_id}.{next(numbers)}"
        name, data = native.EVENT_NAMES[type(event)], native.event_data(event)
        line: dict[str, Any] = {"event": name, "id": event_id, "data": data}
        print(replace_surrogates(json.dumps(line, ensure_ascii=False)), flush=True)

    return show
