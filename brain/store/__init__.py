"""The store of conversations, facts and memories, and its location from the setting STORE."""

from pathlib import Path

import platformdirs

from brain.store.store import Store


async def open_store(setting: str | None) -> Store:
    """Open the store that STORE names.

    Args:
        setting: `memory:`, `sqlite:` and the path of a file, or None for the file in the user's data directory.

    Raises:
        StoreError: with the path of the file, and what to do.
    """
    store = Store(path_of(setting))
    await store.open()
    return store


def path_of(setting: str | None) -> Path | None:
    """The file that STORE names; None for memory."""
    kind, _, place = (setting or "sqlite:").partition(":")
    if kind == "memory":
        return None
    return Path(place).expanduser() if place else platformdirs.user_data_path("brain") / "brain.db"
