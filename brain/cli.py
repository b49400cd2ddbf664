"""Roof: the command line. `brain serve`, `ask`, `specialists`, `index`, `check`; the same as `python -m brain`."""

import argparse
import asyncio
import inspect
import json
import mimetypes
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from brain import conversation, own_settings, threads
from brain.ask import Ask, Attachment
from brain.errors import BadRequest, BrainError, Refused
from brain.events import Error
from brain.models import AnyModel, opened, trouble_of
from brain.process import DONE, FAILED, INTERRUPTED, completed, log_to_stderr
from brain.prompts import shape
from brain.registry import Entry, Registry
from brain.schema import filled, injected_of
from brain.settings import PREFIX, Settings, read
from brain.specialist import Context
from brain.terminal import Person, Terminal, can_be_asked
from brain.turn import Conversation, Turn
from brain.unicode import well_formed
from brain.wire import native
from brain.wire.attaching import attachment_of

HEALTH_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code is 0 when all went well, 1 when not, 130 after Ctrl-C."""
    given = _parser().parse_args(arguments)
    code = _run(given)
    if threads.taken():  # by foreign code that nobody can stop, and that may not survive the interpreter's end
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(given: argparse.Namespace) -> int:
    try:
        settings = _settings(given)
        log_to_stderr(settings.log)
        return int(given.command(given, settings))
    except BrainError as error:
        print(f"brain: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # whoever read our output has seen enough, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", type=Path, metavar="FILE", help="settings file, such as brain.toml")
    common.add_argument("--model", metavar="MODEL", help="auto, builtin, ollama:NAME, openai:NAME or script:FILE")
    common.add_argument("--host", help="address that serve listens on (127.0.0.1)")
    common.add_argument("--port", help="port that serve listens on (8000)")
    parser = argparse.ArgumentParser(
        prog="brain",
        description="Streaming middleware that lets any text model call specialists in the middle of its answer.",
        epilog='Example: brain ask "How do I write a specialist?"',
    )
    parser.add_argument("--version", action="version", version=f"brain {version('brain-sse')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, function: Any, text: str, example: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, parents=[common], help=text, description=text, epilog=f"Example: {example}")
        one.set_defaults(command=function)
        return one

    served = command("serve", serve, "Run the server.", "brain serve --model ollama:llama3.2 --port 8080")
    served.add_argument("--workers", metavar="N", help="processes that share the port, for more cores (1)")
    served.add_argument("--log", metavar="FORM", help="text, or json: one object a line (text)")
    asked = command("ask", ask, "Ask once, and stream the answer.", 'brain ask --file scan.png "What does it say?"')
    asked.add_argument("message", help="what to ask")
    asked.add_argument("--file", action="append", default=[], type=Path, metavar="F", help="attach a file (repeatable)")
    asked.add_argument("--json", action="store_true", help="print each event as one JSON object a line")
    listed = command("specialists", specialists, "List the specialists.", "brain specialists --json")
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    indexed = command("index", index, "Read documents into knowledge.", "brain index notes handbook.pdf")
    indexed.add_argument("path", nargs="*", type=Path, help="folder or file; without one, what was read before")
    indexed.add_argument("--user", default="local", metavar="NAME", help="whose documents they are (local)")
    indexed.add_argument("--list", action="store_true", help="say what is indexed, and read nothing")
    indexed.add_argument("--forget", action="append", default=[], type=Path, metavar="PATH", help="take it out again")
    command("check", check, "Check the model and the specialists.", "brain check --model openai:gpt-4o-mini")
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    flags = ("model", "host", "port", "workers", "log")
    overrides = {key.upper(): getattr(given, key) for key in flags if getattr(given, key, None)}
    return read(os.environ, given.config, overrides)


# serve


def serve(given: argparse.Namespace, settings: Settings) -> int:
    """Runs the server until it is told to stop."""
    from brain import serving  # with uvicorn, and the app, which imports sse_starlette: only who serves pays for them

    return serving.serve(settings)


# ask


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


# specialists


def specialists(given: argparse.Namespace, settings: Settings) -> int:
    """Lists what is registered, what is unavailable and why, and what was refused."""
    registry = Registry(settings).discover()
    if given.json:
        found = {
            "specialists": [entry.described() for entry in registry.values()],
            "refused": [{"name": r.name, "origin": r.origin, "reason": r.reason} for r in registry.refused],
        }
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return DONE
    for entry in registry.values():
        one = entry.specialist
        print(f"{one.name} ({entry.origin}): {one.description}")
        print(f"  parameters: {shape(one.parameters)}")
        auth = "signed-in users" if one.requires_user else "everybody"
        words = "may hold strangers' words" if one.outside else "none but its own or the user's words"
        print(f"  auth: {auth}; approval: {entry.approval}; results: {words}")
        for setting in own_settings.declared(one):
            print(f"  setting {PREFIX}{setting.key} ({setting.default}): {setting.meaning}")
        if entry.missing:
            print(f"  unavailable: {entry.missing}")
    for refusal in registry.refused:
        print(f"refused: {refusal.name} ({refusal.origin}): {refusal.reason}")
    return DONE


# index


def index(given: argparse.Namespace, settings: Settings) -> int:
    """Reads documents into the specialist `knowledge`, with progress on standard error."""
    return completed(_index(given, settings))


async def _index(given: argparse.Namespace, settings: Settings) -> int:
    from specialists.knowledge import index as indexed  # the one specialist that has a command

    registry = Registry(settings).discover()
    if "knowledge" not in registry:
        refused = next((refusal.reason for refusal in registry.refused if refusal.name == "knowledge"), "not installed")
        raise BrainError(f"specialist knowledge: {refused}")
    async with AsyncExitStack() as stack:
        model = (await opened(settings, registry.usable()))[0].model
        stack.push_async_callback(model.aclose)
        tell = partial(print, file=sys.stderr, flush=True)
        chosen = {"forget": given.forget, "listing": given.list}
        done = await indexed(given.path, registry["knowledge"].settings, given.user, model, print, tell, **chosen)
        return DONE if done else FAILED


# check


def check(given: argparse.Namespace, settings: Settings) -> int:
    """Says whether the model answers, how it resumes, and whether each specialist loads and is healthy."""
    return completed(_check(settings))


async def _check(settings: Settings) -> int:
    registry = Registry(settings).discover()
    troubles = 0
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(registry.running())
        models = await opened(settings, registry.usable())
        for one in models:
            stack.push_async_callback(one.model.aclose)
            trouble = one.trouble or await trouble_of(one.model)
            troubles += _line(f"model {one.model.name}", trouble, f"{one.why}; resumes by {one.model.resume}")
        for name, entry in registry.items():
            trouble = entry.missing or await _illness(registry, entry, models[0].model, settings.time_zone)
            troubles += _line(f"specialist {name}", trouble, entry.origin)
    for refusal in registry.refused:
        troubles += _line(f"specialist {refusal.name}", refusal.reason, refusal.origin)
    return FAILED if troubles else DONE


def _line(what: str, trouble: str | None, detail: str) -> bool:
    print(f"{'FAIL' if trouble else 'ok  '} {what}: {trouble or detail}")
    return trouble is not None


def _ignore(item: Any) -> None:
    """A health check has no progress to tell."""


async def _illness(registry: Registry, entry: Entry, model: AnyModel, time_zone: str) -> str | None:
    """What a specialist's health check finds."""
    health = entry.specialist.health
    if health is None:
        return None
    deadline = time.monotonic() + HEALTH_SECONDS
    context = Context(None, "", "", (), time_zone, deadline, entry.settings, model, registry.fetch)
    check = partial(health, **filled(injected_of(health), {**entry.provided, Context: context}))
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            found = await threads.in_thread(entry.specialist.name, check, _ignore)
            trouble: str | None = (await found) if inspect.isawaitable(found) else found
            return trouble
    except TimeoutError:
        return f"its health check took longer than {HEALTH_SECONDS:g} seconds"
    except Refused as refusal:
        return refusal.reason
    except Exception as error:  # noqa: BLE001 - a stranger's check; whatever it raises is what it found
        return f"{type(error).__name__}: {error}"
