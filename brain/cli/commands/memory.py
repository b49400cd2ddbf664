"""`brain memory`: list and edit the facts and conversation summaries of a user."""

import argparse
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from brain.cli.commands.store_access import open_existing_store, read_all_items
from brain.cli.process import DONE, FAILED, CommandError, UsageError, print_error, print_json
from brain.errors import BadRequest
from brain.memory.edits import MemoryEdits
from brain.memory.items import Items
from brain.messages import Item
from brain.protocols.native.resources import item_data, list_data
from brain.settings import Settings
from brain.store import users
from brain.store.store import Store
from brain.text import escape_invisible

Action = Callable[[argparse.Namespace, Store, MemoryEdits], Awaitable[int]]

_LIST = "brain memory list"


async def memory(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run one action on the memory of a user."""
    async with open_existing_store(settings, creates=arguments.action == "add") as store:
        return await ACTIONS[arguments.action](arguments, store, MemoryEdits(Items(store, lambda: datetime.now(UTC))))


async def show(arguments: argparse.Namespace, store: Store, edits: MemoryEdits) -> int:
    """List facts and conversation summaries: newest first, or best match first in a search."""
    user, kind, category, words = arguments.user, arguments.kind, arguments.category, arguments.search
    items = await read_all_items(store, user, kind=kind, category=category, words=words)
    is_recall_on = await store.read(users.recalls, user)
    if arguments.json:
        print_json(list_data("items", [*map(item_data, items)], len(items), recall=is_recall_on))
        return DONE
    for item in items:
        _print_item(item)
    if not items:
        print(f"No{' matching' if kind or category or words else ''} facts or summaries for user {user}.")
    if not is_recall_on:
        print("Memory is off. Turn it on with: brain memory recall on")
    return DONE


async def add(arguments: argparse.Namespace, store: Store, edits: MemoryEdits) -> int:
    """Add a fact."""
    if not arguments.text.strip():
        raise CommandError("The fact is empty", "brain memory add --help")
    mutable = not arguments.immutable
    _print_item(await edits.write(arguments.user, arguments.text, arguments.category, mutable=mutable))
    return DONE


async def edit(arguments: argparse.Namespace, store: Store, edits: MemoryEdits) -> int:
    """Edit a fact or a summary."""
    changes = {name: getattr(arguments, name) for name in ("text", "category", "mutable")}
    if not any(value is not None for value in changes.values()):
        advice = f'brain memory edit {arguments.id} "new text"'
        raise UsageError("Nothing to change. Give a new text, --category, --mutable or --immutable.", advice)
    try:
        _print_item(await edits.change(arguments.user, _parse_id(arguments.id), **changes))
    except BadRequest as error:
        if error.code == "not_found":
            raise CommandError(f"No memory item '{arguments.id}'", _LIST) from None
        if error.code == "immutable":
            advice = f"add --mutable, or brain memory delete {arguments.id}"
            raise CommandError(f"{arguments.id} is protected", advice) from None
        raise CommandError(error.message, "brain memory edit --help") from None
    return DONE


async def delete(arguments: argparse.Namespace, store: Store, edits: MemoryEdits) -> int:
    """Delete facts and summaries."""
    missing = [typed for typed in arguments.id if not await edits.delete(arguments.user, _parse_id(typed))]
    for typed in missing:
        print_error(f"No memory item '{typed}'", _LIST)
    return FAILED if missing else DONE


async def recall(arguments: argparse.Namespace, store: Store, edits: MemoryEdits) -> int:
    """Turn the use of memory on or off."""
    await edits.set_recall(arguments.user, arguments.on == "on")
    return DONE


ACTIONS: Mapping[str, Action] = {
    "list": show,
    "add": add,
    "edit": edit,
    "delete": delete,
    "recall": recall,
}


def _parse_id(typed: str) -> str:
    """Return an ID without the `#` that models read before it; in a shell it begins a comment."""
    return typed.removeprefix("#").lower()


def _print_item(item: Item) -> None:
    """Print an item, its former texts and its restrictions."""
    lines = [f"{item.id:<8} {item.updated.astimezone():%Y-%m-%d} {item.category or item.kind:<11} {item.text}"]
    lines += [f"{'':<19} was: {was.text} (until {was.until.astimezone():%Y-%m-%d})" for was in reversed(item.former)]
    if item.count > 1:
        lines.append(f"{'':<19} in {item.count} conversations")
    if not item.mutable:
        lines.append(f"{'':<19} protected: the model cannot change or delete it")
    if item.untrusted:
        lines.append(f"{'':<19} may contain untrusted content")
    for line in lines:
        print(escape_invisible(line))
