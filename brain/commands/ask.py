"""Roof: `brain ask`: one turn in the terminal."""

import argparse
import json
import mimetypes
import sys
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from brain import conversation
from brain.ask import Ask, Attachment
from brain.errors import BadRequest
from brain.events import Error
from brain.models import AnyModel, opened
from brain.process import DONE, FAILED, completed
from brain.registry import Registry
from brain.settings import Settings
from brain.terminal import Person, Terminal, can_be_asked
from brain.turn import Conversation, Turn
from brain.unicode import well_formed
from brain.wire import native
from brain.wire.attaching import attachment_of


def ask(given: argparse.Namespace, settings: Settings) -> int:
    """Asks once, and streams the answer to standard output."""
    return completed(_ask(given, settings))


async def _ask(given: argparse.Namespace, settings: Settings) -> int:
    registry = Registry(settings).discover()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(registry.running())
        models = await opened(settings, registry.usable())
        for one in models:
            stack.push_async_callback(one.model.aclose)
        asked = Ask(
            message=given.message,
            user="local",
            limits=settings.limits,
            syntax=settings.syntax,
            time_zone=settings.time_zone,
            now=datetime.now(ZoneInfo(settings.time_zone)),
            attachments=tuple(_attachment(path, n) for n, path in enumerate(given.file, 1)),
            asks_person=can_be_asked(sys.stdin, sys.stderr),
        )
        turn = _turn(asked, models[0].model, registry, settings)
        return await _print_turn(turn, as_json=given.json, asks_person=asked.asks_person)


def _turn(asked: Ask, model: AnyModel, registry: Registry, settings: Settings) -> Turn:
    if not asked.message.strip():
        raise BadRequest("The message is empty.", "message")
    silence = settings.model_idle_seconds
    recalled = Conversation(conversation.new_id())
    seconds = settings.approval_seconds
    return Turn(asked, recalled, model, registry, system=settings.system, silence=silence, approval_seconds=seconds)


async def _print_turn(turn: Turn, *, as_json: bool, asks_person: bool) -> int:
    printed = Terminal(sys.stdout, sys.stderr)
    person = Person(printed, sys.stdin, turn.decide) if asks_person else None
    number = 0
    failed = False
    async with aclosing(turn.events()) as events, AsyncExitStack() as stack:
        if person is not None:
            stack.callback(person.leave)
        async for event in events:
            number += 1
            failed = isinstance(event, Error)
            if person is not None:
                person.hear(event)
            if as_json:
                line: dict[str, Any] = {"event": native.EVENT_NAMES[type(event)], "id": f"{turn.id}.{number}"}
                line["data"] = native.plain(event)
                print(well_formed(json.dumps(line, ensure_ascii=False)), flush=True)
            else:
                printed.show(event)
    return FAILED if failed else DONE


def _attachment(path: Path, number: int) -> Attachment:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadRequest(f"--file {path}: {error.strerror}.", "file") from None
    claimed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    made = attachment_of(path.name, claimed, data, f"--file {path}")
    return Attachment(number, made.name, made.type, made.data)
