"""Shared by the commands for data: open the store, read items, format counts."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import platformdirs

from brain.cli.process import CommandError
from brain.errors import StoreError
from brain.messages import Category, Item, Kind
from brain.settings import Settings
from brain.store import database_of, items, open_store
from brain.store.store import Store
from brain.store.users import Counts
from brain.text import escape_invisible

PAGE = 200
PROGRESS_SECONDS, MAX_PROGRESS_SECONDS = 1.0, 10.0
_SET_STORE, _SET_URL = "export BRAIN_STORE=sqlite:PATH", "export BRAIN_STORE=postgresql://USER@HOST/NAME"


@asynccontextmanager
async def open_existing_store(settings: Settings, *, creates: bool = False) -> AsyncIterator[Store]:
    """Open the store for the duration of the block; a server may use it at the same time.

    Raises:
        StoreError: It cannot be opened.
    """
    database = database_of(settings.store)
    if not database.is_shared:
        raise CommandError(f"This command needs a database on disk, but BRAIN_STORE is {settings.store}", _SET_STORE)
    if not creates and not await database.exists():
        is_url = "://" in database.place
        raise CommandError(f"No store at {database.place}", _SET_URL if is_url else _SET_STORE)
    store = await open_store(settings.store)
    try:
        yield store
    finally:
        await store.close()


def print_status(text: str) -> None:
    """Print a line about the work of a command on standard error."""
    print(escape_invisible(text), file=sys.stderr, flush=True)


@asynccontextmanager
async def show_progress(describe: Callable[[], str]) -> AsyncIterator[None]:
    """Print the progress of the block after one second, then less and less often."""

    async def report() -> None:
        pause = PROGRESS_SECONDS
        while True:
            await asyncio.sleep(pause)
            print_status(describe())
            pause = min(2 * pause, MAX_PROGRESS_SECONDS)

    task = asyncio.create_task(report(), name="progress")
    try:
        yield
    finally:
        task.cancel()


@asynccontextmanager
async def open_learned(settings: Settings) -> AsyncIterator[Store | None]:
    """Open the store for what servers have learned; yield None if there is none, or it cannot be opened."""
    async with AsyncExitStack() as stack:
        store = None
        with suppress(CommandError, StoreError):
            store = await stack.enter_async_context(open_existing_store(settings))
        yield store


def chat_history() -> Path:
    """Return the file with the input history of `brain chat`."""
    return platformdirs.user_data_path("brain") / "chat-history"


async def read_all_items(
    store: Store, user: str, *, kind: Kind | None = None, category: Category | None = None, words: str = ""
) -> list[Item]:
    """Return all facts and summaries of a user, or those that match."""
    found: list[Item] = []
    before = None
    while page := await store.read(
        items.list_items, user, kind=kind, category=category, words=words, before=before, limit=PAGE
    ):
        found += page
        before = found[-1].id
    return found


def describe_no_data(user: str, users: Sequence[str]) -> str:
    """Return a sentence: the user has no data, but these users have."""
    return f"No data for user {user}. Users with data: {', '.join(users) or 'none'}."


def format_counts(counts: Counts) -> str:
    """Format counts: `12 conversations, 1 fact`."""
    rows = (
        (counts.conversations, "conversation", "conversations"),
        (counts.messages, "message", "messages"),
        (counts.files, "file", "files"),
        (counts.facts, "fact", "facts"),
        (counts.memories, "summary", "summaries"),
        (counts.tasks, "task", "tasks"),
    )
    return ", ".join(f"{n:,} {one if n == 1 else many}" for n, one, many in rows if n) or "nothing"
