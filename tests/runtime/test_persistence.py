"""The exchange of a turn, where the store fails."""

import pytest

from brain.errors import StoreError
from brain.messages import Exchange, History
from brain.runtime.persistence import ExchangeLease
from brain.store.sqlite import SQLite


class FullStore(SQLite):
    """A store whose disk is full."""

    async def end(self, history: History, exchange: Exchange) -> None:
        raise StoreError("the disk is full", "ENOSPC")

    async def drop(self, history: History) -> None:
        raise StoreError("the disk is full", "ENOSPC")


@pytest.mark.anyio
async def test_an_answer_that_cannot_be_stored_ends_its_turn_with_a_reason() -> None:
    lease = ExchangeLease(FullStore(None), History("c", user="ada", key=1))
    assert await lease.store(Exchange("Hi")) == "the disk is full"
    assert lease.is_stored
    await lease.drop()
