"""A turn's place in the store, where the store fails."""

import asyncio

from brain.errors import StoreError
from brain.messages import ConversationPage, Exchange, History, new_conversation_id
from brain.runtime.persistence import ExchangeLease


def test_ids_are_not_guessed() -> None:
    assert new_conversation_id() != new_conversation_id()
    assert new_conversation_id().startswith("conv")
    assert len(new_conversation_id()) == 20


class Full:
    """A store whose disk is full."""

    def __init__(self) -> None:
        self.ended: list[Exchange] = []

    async def begin(self, *args: object, **more: object) -> History:
        raise NotImplementedError

    async def end(self, record: History, exchange: Exchange) -> None:
        self.ended.append(exchange)
        raise StoreError("What was said could not be kept: the disk is full.", "ENOSPC")

    async def drop(self, record: History) -> None:
        raise StoreError("What was said could not be taken back.", "ENOSPC")

    async def conversation(self, *args: object, **more: object) -> ConversationPage | None:
        raise NotImplementedError


def test_what_cannot_be_kept_is_told_in_a_sentence() -> None:
    async def main() -> None:
        lease = ExchangeLease(Full(), History("c", user="ada", key=1))
        assert await lease.store(Exchange("Hi")) == "What was said could not be kept: the disk is full."
        assert lease.is_stored
        await lease.drop()

    asyncio.run(main())
