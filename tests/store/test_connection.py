"""The threads of the store: whose turn it is, and what happens when the file is held by another process."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from stores import asked, kept, said, turn

from brain.errors import BadRequest, StoreError
from brain.store import connection
from brain.store.connection import Database
from brain.store.sqlite import SQLite


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


@contextmanager
def held(path: Path) -> Iterator[None]:
    """As another process does that writes, and is stuck."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_what_waits_for_the_same_stuck_process_waits_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.5)
    path = tmp_path / "kept.db"

    async def test() -> None:
        async with kept(path) as store:
            with held(path):
                began = time.monotonic()
                waiting = (store.begin("ada", f"c{number}", asked("Hello"), ()) for number in range(10))
                found = await asyncio.gather(*waiting, return_exceptions=True)
                assert time.monotonic() - began < 3
            assert [str(one)[:51] for one in found] == ["What is kept is in use by another process; try agai"] * 10
            await turn(store, "ada", "c")
            assert len(await said(store, "ada", "c")) == 1

    asyncio.run(test())


@pytest.mark.timeout(20)
def test_who_ends_does_not_wait_for_a_stuck_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.store.sqlite.HURRY_SECONDS", 0.1)
    path = tmp_path / "kept.db"

    async def test() -> None:
        store = SQLite(path)
        await store.open()
        with held(path):
            waiting = [asyncio.create_task(store.begin("ada", "c", asked("Hello"), ())) for _ in range(4)]
            await asyncio.sleep(0)
            await store.close()
            for one in waiting:
                with pytest.raises(StoreError):
                    await one

    asyncio.run(test())


def test_what_waits_together_is_committed_together_and_undone_apart(tmp_path: Path) -> None:
    statements: list[str] = []

    def failing(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO user (name) VALUES ('undone')")
        raise BadRequest("No.")

    def adding(name: str) -> Callable[[sqlite3.Connection], str]:
        def add(db: sqlite3.Connection) -> str:
            db.execute("INSERT INTO user (name) VALUES (?)", (name,))
            return name

        return add

    async def main() -> None:
        database = Database(tmp_path / "brain.db")
        await database.open(lambda db: None)
        database._connections[0].set_trace_callback(statements.append)
        begun, blocked = threading.Event(), threading.Event()

        def hold(db: sqlite3.Connection) -> bool:
            begun.set()
            return blocked.wait(60)

        holding = database.writing(hold)
        await asyncio.to_thread(begun.wait, 60)
        waiting = [database.writing(work) for work in (adding("a"), failing, adding("b"))]
        alone = database.writing(adding("c"), alone=True)
        blocked.set()
        assert await holding is True
        first, refused, *others = await asyncio.gather(*waiting, alone, return_exceptions=True)
        assert (first, type(refused), others) == ("a", BadRequest, ["b", "c"])
        names = await database.read(lambda db: [name for (name,) in db.execute("SELECT name FROM user ORDER BY key")])
        assert names == ["a", "b", "c"]
        await database.close()

    asyncio.run(main())
    assert [one for one in statements if one in ("BEGIN IMMEDIATE", "COMMIT")] == ["BEGIN IMMEDIATE", "COMMIT"] * 3
