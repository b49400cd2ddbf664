"""`brain ask`: one turn in the terminal, in a new or an existing conversation."""

import argparse
import asyncio
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from brain.cli.commands.input import (
    build_request,
    check_conversation_id,
    check_strategy,
    read_attachment,
    read_message,
    read_piped_attachments,
    read_stdin_attachment,
)
from brain.cli.commands.output import has_person, open_engine, open_screen, print_json_event, show_run, silence_keyboard
from brain.cli.process import DONE, FAILED, UsageError, print_error
from brain.cli.terminal.messages import explain_outcome
from brain.events import Error, Event, TaskChange
from brain.messages import Attachment
from brain.protocols.common import MAX_ATTACHMENTS, too_many_attachments
from brain.settings import Settings
from brain.turn_request import STRATEGY_OPTIONS, TurnRequest

STDIN = "-"
HELP = "brain ask --help"


def ask(arguments: argparse.Namespace, settings: Settings) -> Coroutine[Any, Any, int]:
    """Run one turn and stream the answer to standard output."""
    if arguments.message is None:
        raise UsageError('No message. Use brain ask "your message", or brain ask - to read standard input.', HELP)
    conversation = check_conversation_id(arguments.conversation)
    strategy = check_strategy(arguments.strategy, settings)
    if arguments.critic and "critic" not in STRATEGY_OPTIONS[strategy or settings.strategy]:
        raise UsageError("--critic needs --strategy dual.", HELP)
    is_message = arguments.message == STDIN
    message = read_message() if is_message else arguments.message  # before the loop runs, so that Ctrl-C ends it
    request = replace(
        build_request(
            settings,
            message,
            _read_files(arguments.file, is_message=is_message),
            strategy,
            critic=arguments.critic,
        ),
        conversation_id=conversation,
        source=arguments.source,
        memory=not arguments.no_memory,
        private=arguments.private,
    )
    return _ask(request, arguments, settings)


def _read_files(paths: Sequence[Path], *, is_message: bool) -> list[Attachment]:
    """Read the named files, and piped input unless it is the message or a named file."""
    names = [str(path) for path in paths]
    if names.count(STDIN) + is_message > 1:
        raise UsageError("Standard input can be read once: as the message, or as one file.", HELP)
    if len(paths) > MAX_ATTACHMENTS:
        raise too_many_attachments(len(paths))
    files = [
        read_stdin_attachment() if name == STDIN else read_attachment(path, name)
        for name, path in zip(names, paths, strict=True)
    ]
    return files if is_message or STDIN in names else [*files, *read_piped_attachments()]


async def _ask(request: TurnRequest, arguments: argparse.Namespace, settings: Settings) -> int:
    screen = open_screen(sys.stdout, sys.stderr, plain=arguments.plain or arguments.json, thinks=arguments.thinking)
    request = replace(request, asks_person=has_person(screen))
    has_task = False
    async with open_engine(settings) as engine:
        run = await engine.begin(request, "terminal")
        try:
            with silence_keyboard(screen) as keyboard:
                show_event = print_json_event(run.id) if arguments.json else screen.show

                def show(event: Event) -> None:
                    nonlocal has_task
                    has_task = has_task or isinstance(event, TaskChange)
                    show_event(event)

                last = await show_run(run, screen, asks_person=request.asks_person, keyboard=keyboard, show=show)
        except asyncio.CancelledError:  # by Ctrl-C
            screen.show_message(explain_outcome("cancelled"))
            screen.close()
            raise
        finally:
            if has_task and not arguments.json:
                screen.show_message("Tasks run while brain serve or brain chat runs. List them with: brain tasks")
                screen.close()
            if not arguments.json and settings.store != "memory:" and sys.stdout.isatty() and sys.stderr.isatty():
                screen.show_message(f'Continue with: brain ask --conversation {run.conversation_id} "…"')
                screen.close()
        if not isinstance(last, Error):
            return DONE
        if not arguments.json:
            advice = 'brain ask "a shorter message"' if last.code == "model_context" else "brain check"
            print_error(f"The answer failed ({last.code})", advice)
        return FAILED
