"""`brain ask`: one turn in the terminal, in a new or an existing conversation."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from brain.cli.commands.input import (
    build_request,
    check_conversation_id,
    read_attachment,
    read_message,
    read_piped_attachments,
    read_stdin_attachment,
)
from brain.cli.commands.output import has_person, open_screen, show_run, silence_keyboard
from brain.cli.process import DONE, FAILED, run_command
from brain.cli.terminal.messages import ENDINGS
from brain.errors import BadRequest
from brain.events import Error, Event
from brain.messages import Attachment
from brain.plugins.registry import Registry
from brain.protocols import native
from brain.protocols.attachments import MAX_ATTACHMENTS, too_many_attachments
from brain.runtime.engine import Engine
from brain.settings import Settings
from brain.text import replace_surrogates
from brain.turn_request import TurnRequest

STDIN = "-"


def ask(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run one turn and stream the answer to standard output."""
    if arguments.message is None:
        arguments.parser.error('say what to ask: brain ask "…", or brain ask - to read it from standard input')
    conversation = check_conversation_id(arguments.conversation)
    is_message = arguments.message == STDIN
    message = read_message() if is_message else arguments.message  # before the loop runs, so that Ctrl-C ends it
    request = replace(
        build_request(settings, message, _read_files(arguments.file, is_message=is_message)),
        conversation_id=conversation,
        source=arguments.source,
        memory=not arguments.no_memory,
    )
    return run_command(_ask(request, arguments, settings))


def _read_files(paths: Sequence[Path], *, is_message: bool) -> list[Attachment]:
    """The named files, and what is piped unless standard input is the message or a named file."""
    names = [str(path) for path in paths]
    if names.count(STDIN) + is_message > 1:
        raise BadRequest("Standard input can be read once: as the message, or as one file.", "file")
    if len(paths) > MAX_ATTACHMENTS:
        raise too_many_attachments()
    files = [
        read_stdin_attachment() if name == STDIN else read_attachment(path, f"--file {path}")
        for name, path in zip(names, paths, strict=True)
    ]
    return files if is_message or STDIN in names else [*files, *read_piped_attachments()]


async def _ask(request: TurnRequest, arguments: argparse.Namespace, settings: Settings) -> int:
    screen = open_screen(sys.stdout, sys.stderr, plain=arguments.plain or arguments.json, thinks=arguments.thinking)
    request = replace(request, asks_person=has_person(screen))
    engine = Engine(settings, Registry(settings).discover())
    await engine.open()
    try:
        run = await engine.begin(request, "terminal")
        numbers = count(1)

        def print_json(event: Event) -> None:
            name, data = native.EVENT_NAMES[type(event)], native.event_data(event)
            line = json.dumps({"event": name, "id": f"{run.id}.{next(numbers)}", "data": data}, ensure_ascii=False)
            print(replace_surrogates(line), flush=True)

        try:
            with silence_keyboard(screen) as keyboard:
                show = print_json if arguments.json else None
                last = await show_run(run, screen, asks_person=request.asks_person, keyboard=keyboard, show=show)
        except asyncio.CancelledError:  # by Ctrl-C
            screen.say(ENDINGS["cancelled"])
            screen.close()
            raise
        finally:
            if not arguments.json and settings.store != "memory:" and sys.stdout.isatty() and sys.stderr.isatty():
                screen.say(f'Go on with: brain ask --conversation {run.conversation_id} "…"')
                screen.close()
        return FAILED if isinstance(last, Error) else DONE
    finally:
        await engine.close()  # stores the turn, also after Ctrl-C
