"""A memory over a store for each test, with a clock that the test moves."""

from collections.abc import AsyncIterator

import pytest
from memory_helpers import BreakableStore, open_memory
from store_helpers import Clock

from brain.memory import Memory

Opened = tuple[Memory, BreakableStore, Clock]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is not taken for a store or a model that answers late."""
    monkeypatch.setattr("brain.memory.cache.VERSION_TIMEOUT", 30.0)
    monkeypatch.setattr("brain.models.embedder.QUERY_SECONDS", 30.0)


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with open_memory() as found:
        yield found


@pytest.fixture
def memory(opened: Opened) -> Memory:
    return opened[0]


@pytest.fixture
def store(opened: Opened) -> BreakableStore:
    return opened[1]


@pytest.fixture
def clock(opened: Opened) -> Clock:
    return opened[2]
