"""Shared by the commands about a user's data: opening the store, reading items, describing counts."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import platformdirs

from brain.errors import BrainError
from brain.messages import Category, Counts, Item, Kind
from brain.settings import Settings
from brain.store import open_store, path_of
from brain.store.sqlite import SQLite

PAGE = 200


@asynccontextmanager
async def open_existing_store(settings: Settings, *, creates: bool = False) -> AsyncIterator[SQLite]:
    """Open the store for the duration of the block; a server may use it at the same time.

    Args:
        creates: whether a missing file is created.

    Raises:
        BrainError: when it cannot be opened, saying why and what to do.
    """
    path = path_of(settings.store)
    if path is None:
        raise BrainError(
            f"STORE={settings.store} keeps nothing that a command could see; name the file: BRAIN_STORE=sqlite:PATH."
        )
    if not creates and not path.exists():
        raise BrainError(
            f"Nothing is kept: there is no {path}. Where it is elsewhere, name it: BRAIN_STORE=sqlite:PATH."
        )
    store = await open_store(settings.store)
    try:
        yield store
    finally:
        await store.close()


def chat_history() -> Path:
    """The file with the input history of `brain chat`."""
    return platformdirs.user_data_path("brain") / "chat-history"


async def read_all_items(
    store: SQLite, user: str, *, kind: Kind | None = None, category: Category | None = None, words: str = ""
) -> list[Item]:
    """All facts and memories of a user, or those that match."""
    items: list[Item] = []
    before = None
    while page := await store.items(user, kind=kind, category=category, words=words, before=before, limit=PAGE):
        items += page
        before = items[-1].id
    return items


def describe_no_data(user: str, users: Sequence[str]) -> str:
    """A sentence: the user has no data, and these users have some."""
    return f"Nothing is kept of {user}. Of whom something is: {', '.join(users) or 'nobody'}."


def format_counts(counts: Counts) -> str:
    """Counts in words: `12 conversations, 1 fact`."""
    rows = (
        (counts.conversations, "conversation", "conversations"),
        (counts.messages, "message", "messages"),
        (counts.files, "file", "files"),
        (counts.facts, "fact", "facts"),
        (counts.memories, "memory", "memories"),
    )
    return ", ".join(f"{n:,} {one if n == 1 else many}" for n, one, many in rows if n) or "nothing"
