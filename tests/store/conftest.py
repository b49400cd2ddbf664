"""What tests of a store in a file share."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from store_helpers import Clock, store_at

from brain.store.sqlite import connection
from brain.store.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a store file that does not exist yet, in a folder of its own."""
    return tmp_path / "data" / "brain.db"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections that the test opens from now on; of a store, the first one writes, and the next one reads."""
    opened, connect = list[sqlite3.Connection](), connection.connect

    def note(path: Path | None) -> sqlite3.Connection:
        opened.append(connect(path))
        return opened[-1]

    monkeypatch.setattr(connection, "connect", note)
    return opened


@pytest.fixture
async def file_store(path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with store_at(path, clock) as store:
        yield store
