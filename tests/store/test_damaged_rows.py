"""Rows that are damaged: they stop nobody but who asks for them, and tell the log nothing of what stands in them."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from stores import NOON, fact, kept, said, turn

from brain.errors import StoreError
from brain.messages import Item
from brain.store.rows import LATEST
from brain.store.sqlite import SQLite

LATER = NOON + timedelta(days=1)


async def change(store: SQLite, statement: str, *values: object) -> None:
    await store._database.write(lambda db: db.execute(statement, values))


async def items(store: SQLite, user: str) -> list[Item]:
    return await store.items(user, limit=2)


@pytest.mark.parametrize("time", [-(2**61), -1, 2**61])
def test_a_time_that_no_clock_tells_stops_nothing(time: int) -> None:
    async def test() -> None:
        async with kept(None) as store:
            for user in ("ann", "eve"):
                await turn(store, user, "c", "I like tea")
                await store.put(user, fact("f", "I like tea"))
            await change(store, "UPDATE exchange SET started = ?, ended = ? WHERE key >> 32 = 2", time, time)
            await change(store, "UPDATE conversation SET created = ?, updated = ? WHERE user = 2", time, min(time, 0))
            await change(store, "UPDATE item SET created = ?, updated = ? WHERE user = 2", time, time)
            assert [one.user for one in await store.claim_idle(LATER, 9)] == ["ann", "eve"]
            assert sorted(user for user, _ in await store.without_vector("m", 9)) == ["ann", "eve"]
            assert [one.id for one in await store.items("eve")] == ["f"]
            assert [one.id for one in await store.conversations("eve")] == ["c"]
            assert len(await store.recent("eve", 9)) == len(await said(store, "eve", "c")) == 1
            kinds = [record["kind"] async for record in store.export("eve")]
            assert kinds == ["brain", "conversation", "exchange", "item", "preferences"]
            await turn(store, "eve", "c", "And?")

    asyncio.run(test())


def test_the_latest_time_is_kept_as_it_is() -> None:
    async def test() -> None:
        async with kept(None) as store:
            await store.put("ann", fact("f", "I like tea"))
            await change(store, "UPDATE item SET created = ?", LATEST)
            assert (await items(store, "ann"))[0].created.isoformat() == "2199-12-31T23:59:59.999999+00:00"

    asyncio.run(test())


@pytest.mark.parametrize("damage", ['[{"kind": "secret"}]', '["secret', b'{"question":"\xffsecret"'])
def test_what_is_damaged_is_left_out(damage: str | bytes, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.WARNING)

    async def test() -> None:
        async with kept(tmp_path / "brain.db") as store:
            for number in range(4):
                await turn(store, "ann", "c", f"I like tea {number}", number=number)
                await store.put("ann", fact(f"f{number}", f"I like tea {number}", number))
            await change(store, "UPDATE exchange SET data = CAST(? AS TEXT) WHERE question_id IN ('q2', 'q3')", damage)
            await change(store, "UPDATE item SET former = CAST(? AS TEXT) WHERE id = 'f2'", damage)
            assert [one[0] for one in await said(store, "ann", "c")] == ["I like tea 0", "I like tea 1"]
            opened = await store.conversation("ann", "c", limit=1)
            assert opened is not None
            assert (opened.exchanges, opened.earlier) == ([], "q3")
            assert [one.id for one in await items(store, "ann")] == ["f3", "f1"]
            assert len(await store.search_words("ann", "tea", kinds=("fact",), limit=9)) == 3
            assert [item.id for _, item in await store.without_vector("m", 3)] == ["f3", "f1", "f0"]
            assert len((await store.history("ann", "c", 9)).exchanges) == 2
            assert [len(one.exchanges) for one in await store.claim_idle(LATER, 9)] == [2]
            assert len(await store.recent("ann", 9)) == 2
            kinds = [record["kind"] async for record in store.export("ann")]
            assert (kinds.count("exchange"), kinds.count("item")) == (2, 3)
            with pytest.raises(StoreError, match="damaged"):
                await store.item("ann", "f2")
            await turn(store, "ann", "c", "And?", number=5)

    asyncio.run(test())
    assert caplog.messages[0] == "exchange 4294967299 is damaged, and left out"
    assert "secret" not in caplog.text


FOLDER, EMPTIED, SCHEMA, ZEROS = "is a folder", "is empty, but kept.db-wal", "is damaged", "is no database"


@pytest.mark.parametrize("wrong", [FOLDER, EMPTIED, SCHEMA, ZEROS])
def test_a_file_that_cannot_be_used_is_refused_and_stays_as_it_is(tmp_path: Path, wrong: str) -> None:
    path, wal = tmp_path / "kept.db", tmp_path / "kept.db-wal"

    async def fill() -> None:
        async with kept(path) as store:
            await turn(store, "ann", "c", "I like tea")

    if wrong == FOLDER:
        path.mkdir()
    else:
        asyncio.run(fill())
    if wrong == EMPTIED:
        wal.write_bytes(path.read_bytes())
        path.write_bytes(b"")
    if wrong == SCHEMA:  # in words of SQLite that are no UTF-8
        path.write_bytes(
            path.read_bytes().replace(b"recalls INTEGER NOT NULL DEFAULT", b"recalls INTEGER NOT NULL DEF\x84ULT")
        )
    if wrong == ZEROS:
        path.write_bytes(b"\0" * 5000)
    before = [one.read_bytes() for one in (path, wal) if one.is_file()]
    with pytest.raises(StoreError, match=f"^{path} {wrong}"):
        asyncio.run(fill())
    assert [one.read_bytes() for one in (path, wal) if one.is_file()] == before


def test_damage_that_shows_later_is_logged_once_with_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "kept.db"

    async def test() -> None:
        async with kept(path) as store:
            await turn(store, "ann", "c", "x" * 500_000)
        async with kept(path) as store:
            assert await store.find_problem() is None
            with path.open("r+b") as file:  # pages that nobody has read yet
                file.seek(path.stat().st_size // 2)
                file.write(b"\xee" * (path.stat().st_size // 4))
            for _ in range(3):
                with pytest.raises(StoreError, match="damaged"):
                    await store._database.read(read_all)
            assert await store.find_problem() == "What is kept is damaged."

    def read_all(db: sqlite3.Connection) -> None:
        db.execute("SELECT sum(length(data)) FROM exchange").fetchall()

    asyncio.run(test())
    assert len([line for line in caplog.messages if line.startswith(f"{path} is damaged; put a copy")]) == 1


def test_a_full_disk_is_seen_until_a_write_succeeds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def limit(pages: int) -> Callable[[sqlite3.Connection], None]:
        return lambda db: db.execute(f"PRAGMA max_page_count = {pages}").close()

    async def test() -> None:
        async with kept(tmp_path / "kept.db") as store:
            await store._database.outside(limit(1))  # as many as there are
            assert await store.find_problem() is None
            with pytest.raises(StoreError, match="no room"):
                await turn(store, "ann", "c", "x" * 500_000)
            for _ in range(2):
                assert await store.find_problem() == "There is no room left to keep this."
            await store._database.outside(limit(100_000))
            assert await store.find_problem() is None
            await turn(store, "ann", "c", "x" * 500_000)

    asyncio.run(test())
    assert len([line for line in caplog.messages if "kept.db has no room on its disk" in line]) == 1


def test_no_error_tells_what_was_kept_or_looked_for() -> None:
    def strange(db: sqlite3.Connection) -> None:
        db.execute("SELECT 1 FROM item_words WHERE item_words MATCH 'secret ('")

    async def test() -> None:
        async with kept(None) as store:
            with pytest.raises(StoreError) as caught:
                await store._database.read(strange)
            assert str(caught.value) == "What is kept cannot be used. (SQLITE_ERROR)"
            assert caught.value.__suppress_context__

    asyncio.run(test())
