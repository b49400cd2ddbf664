"""`brain memory`: a user's facts and memories, seen and changed by hand."""

import argparse
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime

from brain.cli.commands.store_access import PAGE, open_existing_store, read_all_pages
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


def memory(given: argparse.Namespace, settings: Settings) -> int:
    """Does to the memory of a user what was typed."""
    return run_command(_memory(given, settings))


async def _memory(given: argparse.Namespace, settings: Settings) -> int:
    action: Action = given.action
    async with open_existing_store(settings, makes=action is add) as store:
        return await action(given, store, MemoryEdits(Items(store, lambda: datetime.now(UTC))))


async def show(given: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """Lists facts and memories, the newest first, or those with some words, the best first."""
    items = await read_all_pages(
        lambda before: store.items(
            given.user, kind=given.kind, category=given.category, words=given.search, before=before, limit=PAGE
        )
    )
    recalls = await store.is_recall_on(given.user)
    if given.json:
        sys.stdout.buffer.write(encode_items(items, len(items), recall=recalls) + b"\n")
        return DONE
    for item in items:
        for line in _lines(item):
            print(escape_invisible(line))
    if not items:
        print(f"No facts and memories of {given.user}{' are like this' if _narrowed(given) else ''}.")
    if not recalls:
        print("None of it is recalled: brain memory recall on")
    return DONE


async def add(given: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """Writes a fact down."""
    item = await edits.write(given.user, given.text, given.category, mutable=not given.immutable)
    return _say(item)


async def edit(given: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """Changes a fact or a memory."""
    if (given.text, given.category, given.mutable) == (None, None, None):
        raise BrainError("Say what is to change: its text, --category, --mutable or --immutable.")
    try:
        changed = await edits.change(
            given.user, _id(given.id), text=given.text, category=given.category, mutable=given.mutable
        )
    except BadRequest as error:
        raise BrainError(_REMEDIES.get(error.code, "{error}").format(id=given.id, error=error)) from None
    return _say(changed)


async def delete(given: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """Removes facts and memories."""
    missing = [name for name in given.id if not await edits.delete(given.user, _id(name))]
    for name in missing:
        print(f"brain: {_REMEDIES['not_found'].format(id=escape_invisible(name))}", file=sys.stderr)
    return FAILED if missing else DONE


async def recall(given: argparse.Namespace, store: SQLite, edits: MemoryEdits) -> int:
    """Switches on or off that facts and memories are recalled."""
    await edits.set_recall(given.user, given.on == "on")
    return DONE


def _id(typed: str) -> str:
    """Ids are shown to a model with a `#`, which begins a comment in a shell."""
    return typed.removeprefix("#").lower()


def _narrowed(given: argparse.Namespace) -> bool:
    return bool(given.kind or given.category or given.search)


def _say(item: Item) -> int:
    for line in _lines(item):
        print(escape_invisible(line))
    return DONE


def _lines(item: Item) -> Iterator[str]:
    """An item: what it says, and below, what else there is to know of it."""
    kind = item.category or item.kind
    yield f"{item.id:<8} {item.updated.astimezone():%Y-%m-%d} {kind:<11} {item.text}"
    for former in reversed(item.former):
        yield f"{'':<19} was: {former.text} (until {former.until.astimezone():%Y-%m-%d})"
    if not item.mutable:
        yield f"{'':<19} immutable: no model changes it"
    if item.untrusted:
        yield f"{'':<19} may hold strangers' words"
