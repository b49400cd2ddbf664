"""What was deleted is in no byte of the file or its log: soon while the store is open, and when it is closed."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from limits import WAIT_SECONDS
from store_helpers import add_turn, fact, file, question, sqlite_of, store_at

from brain.errors import StoreError
from brain.store import conversations, items
from brain.store.store import Store

pytestmark = pytest.mark.anyio

WORD = b"xylofon"  # which is its own stem


def traces(path: Path, word: bytes = WORD) -> int:
    return sum(one.read_bytes().lower().count(word) for one in path.parent.iterdir())


async def fill(store: Store) -> None:
    for n in range(40):
        await add_turn(store, "eve", f"c{n % 5}", f"I play the trombon {n}", "The trombon! " * 50, number=n)
        if n % 10 == 0:
            files = [file(b"xylofon " * 1_000)]
            await add_turn(
                store, "adelheid", "c", f"I play the xylofon {n}", "The xylofon! " * 50, number=n, files=files
            )
    await add_turn(store, "adelheid", "d", "Hello", "The xylofon?")
    await store.write(items.put, "adelheid", fact("f1", "I play the xylofon"))
    assert len(await store.list_conversations("adelheid", words="xylofon")) == 2


async def erase_all(store: Store) -> None:
    assert await store.delete("adelheid", "c")
    assert await store.delete("adelheid", "d")
    assert await store.write(items.erase, "adelheid", "f1")


@contextmanager
def reader(path: Path) -> Iterator[None]:
    """Another process that reads for long what is still in the log."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM account").fetchall()
        yield


async def test_deleted_words_leave_an_open_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.store.store.SWEEP_SECONDS", 0)
    monkeypatch.setattr("brain.store.store.REST", 0)
    async with store_at(path) as store:
        await fill(store)
        await erase_all(store)
        async with asyncio.timeout(WAIT_SECONDS):
            while traces(path):
                await store.database.data_version()
        assert traces(path, b"trombon") > 1_000
        assert len(await store.list_conversations("eve", words="trombon")) == 5


async def test_deleted_words_are_gone_when_one_of_two_stores_is_closed(path: Path) -> None:
    async with store_at(path):
        async with store_at(path) as store:
            await fill(store)
            await erase_all(store)
            assert traces(path) > 0
        assert traces(path) == 0


async def rename(store: Store) -> None:
    await store.write(conversations.rename, "adelheid", "n", "A xylofon of mine")
    await store.write(conversations.rename, "adelheid", "n", "Mine")


async def correct(store: Store) -> None:
    await store.write(items.put, "adelheid", fact("f1", "I play the xylofon"))
    await store.write(items.put, "adelheid", fact("f1", "I play nothing"))


async def replace(store: Store) -> None:
    await add_turn(store, "adelheid", "n", "The xylofon", number=2)
    assert len(await store.list_conversations("adelheid", words="xylofon")) == 1
    await add_turn(store, "adelheid", "n", "Nothing", number=3, replaces="q2")


async def drop(store: Store) -> None:
    await store.drop(await store.write_question("adelheid", "n", question("The xylofon", 2), [file(WORD)]))


@pytest.mark.parametrize("change", [rename, correct, replace, drop])
async def test_replaced_words_are_removed_too(path: Path, change: Callable[[Store], Awaitable[object]]) -> None:
    async with store_at(path) as store:
        await add_turn(store, "adelheid", "n")
        await change(store)
        assert traces(path) > 0
        await store.sweep()
        assert traces(path) == 0


async def test_a_sweep_writes_nothing_where_nothing_was_deleted(file_store: Store) -> None:
    async def changes_of_a_sweep() -> int:
        before = await sqlite_of(file_store).run_outside(lambda db: db.total_changes)
        await file_store.sweep()
        return await sqlite_of(file_store).run_outside(lambda db: db.total_changes) - before

    await fill(file_store)
    assert await changes_of_a_sweep() == 0
    await erase_all(file_store)
    assert await changes_of_a_sweep() > 0
    assert await changes_of_a_sweep() == 0


async def test_a_sweep_that_had_no_time_is_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.store.sqlite.database.PAGES", 1)
    async with store_at(path) as store:
        await fill(store)
        await erase_all(store)
        await store.sweep(0)
        assert traces(path) > 0
        await store.sweep()
        assert traces(path) == 0


async def test_another_process_removes_what_one_left(path: Path) -> None:
    async with store_at(path) as store:
        await fill(store)
    with reader(path):
        async with store_at(path) as store:
            await erase_all(store)
        assert traces(path) > 0
    async with store_at(path) as store:
        await store.sweep()
        assert traces(path) == 0


async def test_a_file_that_is_read_cannot_be_scrubbed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.store.sqlite.database.SCRUB_PATIENCE_SECONDS", 0.01)
    free_pages = "PRAGMA freelist_count"
    async with store_at(path) as store:
        await fill(store)
        await store.forget("adelheid")
        assert await sqlite_of(store).run_outside(lambda db: db.execute(free_pages).fetchone()[0]) > 0
        with reader(path), pytest.raises(StoreError, match="is reading"):
            await store.scrub()
        assert traces(path) > 0
        await store.scrub()
        assert (traces(path), traces(path, b"adelheid")) == (0, 0)
        assert await sqlite_of(store).run_outside(lambda db: db.execute(free_pages).fetchone()[0]) == 0
        assert len(await store.list_conversations("eve", words="trombon")) == 5
    async with store_at(None) as store:
        await store.scrub()
