"""`brain replay`: play a recorded turn."""

import argparse
import sys
from functools import partial

from brain.cli.commands.output import open_screen, print_json_event, show_run
from brain.cli.process import DONE, FAILED, CommandError, run_command
from brain.errors import BadRequest
from brain.events import Error
from brain.runtime.replay import Recording, ReplayLoop, make_run, read_recording
from brain.settings import Settings


def replay(arguments: argparse.Namespace, settings: Settings) -> int:
    """Show a recorded turn as it was shown when it ran."""
    try:
        recording = read_recording(arguments.file)
    except BadRequest as error:
        raise CommandError(error.message.rstrip("."), "brain replay ARCHIVE/DAY/FILE.jsonl") from None
    loop_factory = partial(ReplayLoop, is_instant=arguments.speed == "instant")
    return run_command(_play(recording, arguments), loop_factory=loop_factory)


async def _play(recording: Recording, arguments: argparse.Namespace) -> int:
    run = make_run(recording)
    screen = open_screen(sys.stdout, sys.stderr, plain=arguments.plain or arguments.json, thinks=arguments.thinking)
    show = print_json_event(run.id) if arguments.json else None
    last = await show_run(run, screen, asks_person=False, show=show)
    return FAILED if isinstance(last, Error) else DONE
