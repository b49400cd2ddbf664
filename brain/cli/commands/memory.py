"""`brain memory`: a user's facts and memories, listed and changed by hand."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from brain.cli.commands.store_access import open_existing_store, read_all_items
from brain.cli.process import DONE, FAILED, run_command
from brain.errors import BadRequest, BrainError
from brain.memory.edits import MemoryEdits
from brain.memory.items import Items
from brain.messages import Item
from brain.protocols.native.resources import encode_items
from brain.settings import Settings
from brain.store.sqlite import SQLite
from brain.text import escape_invisible

Action = Callable[[argparse.Namespace, SQLite, MemoryEdits], Awaitable[int]]

_REMEDIES = {
    "immutable": "{id} is immutable: with --mutable its text can be changed; brain memory delete {id} removes it.",
    "not_found": "There is no fact or memory {id}; brain memory lists them.",
}


def memory(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run one action on the memory of a user."""
    return run_command(_memory(arguments, settings))


async def _memory(arguments: argparse.Namespace, settings: Settings) -> int:
    action: Action = arguments.action
    async with open_existing_store(settings, creates=action is add) as store:
        return await action(arguments, store, MemoryEdits(Items(store, lambda: datetime.now(UTC))))


async def show(arguments: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """List facts and memories: newest first, or best first when words are searched."""
    user, kind, category, words = arguments.user, arguments.kind, arguments.category, arguments.search
    items = await read_all_items(store, user, kind=kind, category=category, words=words)
    is_recall_on = await store.is_recall_on(user)
    if arguments.json:
        sys.stdout.buffer.write(encode_items(items, len(items), recall=is_recall_on) + b"\n")
        return DONE
    for item in items:
        _print_item(item)
    if not items:
        print(f"No facts and memories of {user}{' are like this' if kind or category or words else ''}.")
    if not is_recall_on:
        print("None of it is recalled: brain memory recall on")
    return DONE


async def add(arguments: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """Add a fact."""
    mutable = not arguments.immutable
    _print_item(await edits.write(arguments.user, arguments.text, arguments.category, mutable=mutable))
    return DONE


async def edit(arguments: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """Change a fact or a memory."""
    changes = {name: getattr(arguments, name) for name in ("text", "category", "mutable")}
    if not any(value is not None for value in changes.values()):
        raise BrainError("Say what is to change: its text, --category, --mutable or --immutable.")
    try:
        _print_item(await edits.change(arguments.user, _parse_id(arguments.id), **changes))
    except BadRequest as error:
        raise BrainError(_REMEDIES.get(error.code, "{error}").format(id=arguments.id, error=error)) from None
    return DONE


async def delete(arguments: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """Delete facts and memories."""
    missing = [typed for typed in arguments.id if not await edits.delete(arguments.user, _parse_id(typed))]
    for typed in missing:
        print(f"brain: {_REMEDIES['not_found'].format(id=escape_invisible(typed))}", file=sys.stderr)
    return FAILED if missing else DONE


async def recall(arguments: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """Turn the recall of facts and memories on or off."""
    await edits.set_recall(arguments.user, arguments.on == "on")
    return DONE


def _parse_id(typed: str) -> str:
    """Models read ids with a `#`, which begins a comment in a shell."""
    return typed.removeprefix("#").lower()


def _print_item(item: Item) -> None:
    """Print an item, its former texts and its restrictions."""
    lines = [f"{item.id:<8} {item.updated.astimezone():%Y-%m-%d} {item.category or item.kind:<11} {item.text}"]
    lines += [f"{'':<19} was: {was.text} (until {was.until.astimezone():%Y-%m-%d})" for was in reversed(item.former)]
    if not item.mutable:
        lines.append(f"{'':<19} immutable: no model changes it")
    if item.untrusted:
        lines.append(f"{'':<19} may hold strangers' words")
    for line in lines:
        print(escape_invisible(line))
