"""The store of conversations, facts and memories, and its database from the setting STORE."""

from pathlib import Path

from brain.errors import StoreError
from brain.installation import install_command
from brain.store.database import Database
from brain.store.sqlite.database import SQLite
from brain.store.store import Store

POSTGRESQL = ("postgresql", "postgres")
"""Schemes of URLs."""


async def open_store(setting: str | None) -> Store:
    """Open the store that STORE names.

    Raises:
        StoreError: with the place of the database, and what to do.
    """
    store = Store(database_of(setting))
    await store.open()
    return store


def database_of(setting: str | None) -> Database:
    """Return the database that STORE names, which is not opened.

    Args:
        setting: `memory:`, `sqlite:` and the path of a file, the URL of a PostgreSQL database, or None for the file in
            the user's data directory.

    Raises:
        StoreError: the extra `postgres` is not installed, or the URL is invalid.
    """
    kind, _, place = (setting or "sqlite:").partition(":")
    if kind == "memory":
        return SQLite(None)
    if kind in POSTGRESQL:
        try:
            from brain.store.postgresql.database import PostgreSQL
        except ModuleNotFoundError as error:
            command = install_command("postgres")
            raise StoreError(f"STORE=postgresql: needs the extra `postgres`. Try: {command}") from error
        return PostgreSQL(setting or "")
    if place:
        return SQLite(Path(place).expanduser())
    import platformdirs

    return SQLite(platformdirs.user_data_path("brain") / "brain.db")
