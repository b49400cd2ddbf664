"""The threads of the store: whose turn it is, and what happens when the file is held by another process."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from stores import kept


@pytest.mark.parametrize("aside", [False, True])
def test_who_asks_much_does_not_keep_others_waiting(tmp_path: Path, aside: bool) -> None:
    begun, may_end, order = threading.Event(), threading.Event(), list[str]()

    def long(db: sqlite3.Connection) -> bool:
        begun.set()
        return may_end.wait(10)

    def noted(user: str) -> Callable[[sqlite3.Connection], None]:
        return lambda db: order.append(user)

    async def test() -> None:
        async with kept(tmp_path / "kept.db") as store:
            first = asyncio.create_task(store._database.read(long, aside=aside))
            assert await asyncio.to_thread(begun.wait, 10)
            asked = [store._database.read(noted(user), user=user, aside=aside) for user in ["eve"] * 5 + ["ann"]]
            all_asked = asyncio.gather(*asked)
            await asyncio.sleep(0)  # each is asked for
            may_end.set()
            await asyncio.gather(first, all_asked)

    asyncio.run(test())
    assert order == ["eve", "eve", "ann", "eve", "eve", "eve"]
