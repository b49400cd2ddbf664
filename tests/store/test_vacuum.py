"""What was deleted is in no byte of the file or its log: soon while the store is open, and when it is closed."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from stores import asked, fact, file, kept, turn

from brain.errors import StoreError
from brain.store import vacuum
from brain.store.sqlite import SQLite

WORD = b"xylofon"  # which is its own stem
Deed = Callable[[SQLite], Awaitable[object]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "brain.db"


def traces(path: Path, word: bytes = WORD) -> int:
    return sum(one.read_bytes().lower().count(word) for one in path.parent.iterdir())


async def fill(store: SQLite) -> None:
    for n in range(40):
        await turn(store, "eve", f"c{n % 5}", f"I play the trombon {n}", "The trombon! " * 50, number=n)
        if n % 10 == 0:
            files = [file(b"xylofon " * 1_000)]
            await turn(store, "ada", "c", f"I play the xylofon {n}", "The xylofon! " * 50, number=n, files=files)
    await turn(store, "ada", "d", "Hello", "The xylofon?")
    await store.put("ada", fact("f1", "I play the xylofon"))


async def erase_all(store: SQLite) -> None:
    assert await store.delete("ada", "c")
    assert await store.delete("ada", "d")
    assert await store.erase("ada", "f1")


def free_pages(db: sqlite3.Connection) -> int:
    ((count,),) = db.execute("PRAGMA freelist_count")
    return int(count)


@contextmanager
def reader(path: Path) -> Iterator[None]:
    """Somebody who reads for long what is still in the log."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM user").fetchall()
        yield


def test_what_was_deleted_is_swept_out_of_the_file_that_is_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "SWEEP_SECONDS", 0.01)

    async def main() -> None:
        async with kept(path) as store:
            await fill(store)
            await erase_all(store)
            for _ in range(500):
                if not traces(path):
                    break
                await asyncio.sleep(0.01)
            assert traces(path) == 0
            assert traces(path, b"trombon") > 1_000
            assert len(await store.conversations("eve", words="trombon")) == 5

    asyncio.run(main())


def test_what_was_deleted_is_gone_when_the_store_is_closed_beside_another(path: Path) -> None:
    async def main() -> None:
        async with kept(path):
            async with kept(path) as store:
                await fill(store)
                await erase_all(store)
                assert traces(path) > 0
            assert traces(path) == 0

    asyncio.run(main())


async def rename(store: SQLite) -> None:
    await store.rename("ada", "n", "A xylofon of mine")
    await store.rename("ada", "n", "Mine")


async def correct(store: SQLite) -> None:
    await store.put("ada", fact("f1", "I play the xylofon"))
    await store.put("ada", fact("f1", "I play nothing"))


async def replace(store: SQLite) -> None:
    await turn(store, "ada", "n", "The xylofon", number=2)
    await turn(store, "ada", "n", "Nothing", number=3, replaces="q2")


async def drop(store: SQLite) -> None:
    await store.drop(await store.begin("ada", "n", asked("The xylofon", 2), [file(WORD)]))


@pytest.mark.parametrize("deed", [rename, correct, replace, drop])
def test_what_was_replaced_is_swept_out_too(path: Path, deed: Deed) -> None:
    async def main() -> None:
        async with kept(path) as store:
            await turn(store, "ada", "n")
            await deed(store)
            assert traces(path) > 0
            await store._leftovers.sweep()
            assert traces(path) == 0

    asyncio.run(main())


def test_where_nothing_was_deleted_nothing_is_done(path: Path) -> None:
    def changes(db: sqlite3.Connection) -> int:
        return db.total_changes

    async def main() -> None:
        async with kept(path) as store:
            await fill(store)
            before = await store._database.outside(changes)
            await store._leftovers.sweep()
            assert await store._database.outside(changes) == before
            await erase_all(store)
            await store._leftovers.sweep()
            before = await store._database.outside(changes)
            await store._leftovers.sweep()
            assert await store._database.outside(changes) == before

    asyncio.run(main())


def test_what_is_not_done_in_time_is_gone_on_with(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "PAGES", 1)

    async def main() -> None:
        async with kept(path) as store:
            await fill(store)
            await erase_all(store)
            await store._leftovers.sweep(0)
            assert traces(path) > 0
            await store._leftovers.sweep()
            assert traces(path) == 0

    asyncio.run(main())


def test_what_one_process_leaves_another_removes(path: Path) -> None:
    async def main() -> None:
        async with kept(path) as store:
            await fill(store)
        with reader(path):
            async with kept(path) as store:
                await erase_all(store)
            assert traces(path) > 0
        async with kept(path) as store:
            await store._leftovers.sweep()
            assert traces(path) == 0

    asyncio.run(main())


def test_who_is_read_cannot_be_scrubbed_until_then(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "SCRUB_PATIENCE_SECONDS", 0.01)

    async def main() -> None:
        async with kept(path) as store:
            await fill(store)
            await store.forget("ada")
            assert await store._database.outside(free_pages) > 0
            with reader(path), pytest.raises(StoreError, match="Somebody reads what is kept; try again"):
                await store.scrub()
            assert traces(path) > 0
            await store.scrub()
            assert (traces(path), traces(path, b"ada")) == (0, 0)
            assert await store._database.outside(free_pages) == 0
            assert len(await store.conversations("eve", words="trombon")) == 5

    asyncio.run(main())


def test_in_memory_there_is_nothing_to_scrub() -> None:
    async def main() -> None:
        async with kept(None) as store:
            await fill(store)
            await store.forget("ada")
            await store.scrub()
            assert await store.users() == ["eve"]

    asyncio.run(main())
