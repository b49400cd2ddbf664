"""Roof: `brain ask`: one turn in the terminal, in a new conversation or in one that goes on."""

import argparse
import json
import mimetypes
import sys
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from brain.ask import Ask, Attachment
from brain.engine import Engine
from brain.errors import BadRequest
from brain.events import Error, Event
from brain.process import DONE, FAILED, completed
from brain.registry import Registry
from brain.settings import LOCAL_USER, Settings
from brain.terminal import Person, Terminal, can_be_asked
from brain.turns import Run
from brain.unicode import well_formed
from brain.wire import native
from brain.wire.attaching import attachment_of
from brain.wire.native.request import ID


def ask(given: argparse.Namespace, settings: Settings) -> int:
    """Asks once, and streams the answer to standard output."""
    return completed(_ask(given, settings))


async def _ask(given: argparse.Namespace, settings: Settings) -> int:
    asked = _asked(given, settings)
    engine = Engine(settings, Registry(settings).discover())
    await engine.open()
    try:
        run = await engine.begin(asked, "terminal", joinable=False)
        goes_on = not given.json and settings.store != "memory:" and sys.stdout.isatty() and sys.stderr.isatty()
        return await _printed(run, as_json=given.json, asks_person=asked.asks_person, goes_on=goes_on)
    finally:
        await engine.close()  # and so what was said is kept, also behind Ctrl-C


def _asked(given: argparse.Namespace, settings: Settings) -> Ask:
    if not given.message.strip():
        raise BadRequest("The message is empty.", "message")
    if given.conversation is not None and not ID.fullmatch(given.conversation):
        raise BadRequest("--conversation must be 1 to 64 letters, digits, _ or -.", "conversation")
    return Ask(
        message=given.message,
        user=LOCAL_USER,
        limits=settings.limits,
        syntax=settings.syntax,
        time_zone=settings.time_zone,
        now=datetime.now(ZoneInfo(settings.time_zone)),
        conversation_id=given.conversation,
        attachments=tuple(_attachment(path, n) for n, path in enumerate(given.file, 1)),
        asks_person=can_be_asked(sys.stdin, sys.stderr),
        source=given.source,
        memory=not given.no_memory,
    )


def _attachment(path: Path, number: int) -> Attachment:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadRequest(f"--file {path}: {error.strerror}.", "file") from None
    claimed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    made = attachment_of(path.name, claimed, data, f"--file {path}")
    return Attachment(number, made.name, made.type, made.data)


async def _printed(run: Run, *, as_json: bool, asks_person: bool, goes_on: bool) -> int:
    printed = Terminal(sys.stdout, sys.stderr)
    person = Person(printed, sys.stdin, run.decide) if asks_person else None
    number = 0
    failed = False
    async with AsyncExitStack() as stack:
        if goes_on:
            stack.callback(printed.say, f'Go on with: brain ask --conversation {run.conversation_id} "…"')
        batches = await stack.enter_async_context(aclosing(run.lead()))
        if person is not None:
            stack.callback(person.leave)
        async for batch in batches:
            for event in batch:
                number += 1
                failed = isinstance(event, Error)
                if person is not None:
                    person.hear(event)
                if as_json:
                    _print_line(event, f"{run.id}.{number}")
                else:
                    printed.show(event)
    return FAILED if failed else DONE


def _print_line(event: Event, event_id: str) -> None:
    line: dict[str, Any] = {"event": native.EVENT_NAMES[type(event)], "id": event_id, "data": native.plain(event)}
    print(well_formed(json.dumps(line, ensure_ascii=False)), flush=True)
