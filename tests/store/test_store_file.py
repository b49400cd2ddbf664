"""The file: where it is, which files are refused, damage, a full disk, a stuck process, and how work shares threads."""

import asyncio
import errno
import gzip
import logging
import os
import shutil
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from limits import WAIT_SECONDS
from store_helpers import NOON, TOMORROW, Clock, add_turn, answer, fact, question, read_turns, sqlite_of, store_at

from brain.errors import BadRequest, StoreError
from brain.store import conversations, items, open_store, server_data, turns, users, vectors
from brain.store.rows import LATEST
from brain.store.sqlite import connection
from brain.store.sqlite.database import MIN_FREE_BYTES, SQLite
from brain.store.store import Store
from brain.store.tx import Tx
from brain.store.vectors import Query

pytestmark = pytest.mark.anyio


async def execute(store: Store, statement: str, *values: object) -> None:
    await store.write(lambda tx: tx.execute(statement, values))


# opening


async def test_the_setting_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for setting in (None, "memory:", f"sqlite:{tmp_path}/named.db"):
        await (await open_store(setting)).close()
    assert (tmp_path / "data" / "brain" / "brain.db").exists()
    assert (tmp_path / "named.db").exists()


async def test_a_file_outlives_its_process_and_is_its_owners_alone(path: Path) -> None:
    for place, left in ((None, []), (path, [("Hello", "Hi", "complete")])):
        async with store_at(place) as store:
            await add_turn(store, "ada", "c")
            await store.write_question("ada", "d", question("Lost"), ())
        async with store_at(place) as store:
            assert await read_turns(store, "ada", "c") == left
            assert [one[2] for one in await read_turns(store, "ada", "d")] == ["interrupted"] * len(left)
            assert len(await store.list_conversations("ada", words="lost")) == len(left)
            await add_turn(store, "ada", "d", number=2)  # at once: nobody else has the file open
            if place is not None:
                assert {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    public, link = path.with_name("public.db"), path.with_name("link.db")
    public.touch(0o644)
    link.symlink_to(path.with_name("linked.db"))
    for one in (public, link):
        async with store_at(one) as store:
            await add_turn(store, "ada", "c")
    assert [one.stat().st_mode & 0o777 for one in (public, link)] == [0o600, 0o600]


def write_sql(path: Path, script: str, *, new: bool = False) -> None:
    if new:
        path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(script)


def empty_beside_a_log(path: Path) -> None:
    path.with_name("brain.db-wal").write_bytes(path.read_bytes())
    path.write_bytes(b"")


def damage_schema(path: Path) -> None:
    """Make SQLite's own message about the schema one that is not UTF-8."""
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"recalls INTEGER NOT NULL DEFAULT", b"recalls INTEGER NOT NULL DEF\x84ULT"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.write_text("Dear diary, " * 1000), "is not a database; use another file."),
        (lambda path: path.write_bytes(b"\0" * 5000), "is not a database"),
        (lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\xee" * 40_000), "is damaged; restore a backup"),
        (damage_schema, "is damaged"),
        (empty_beside_a_log, "is empty, but brain.db-wal is not"),
        (lambda path: [path.unlink(), path.mkdir()], "is a directory; use a file."),
        (partial(write_sql, script="CREATE TABLE t (x)", new=True), "is a database of another program"),
        (partial(write_sql, script="PRAGMA user_version = 99"), "was written by a newer version of Brain"),
        (partial(write_sql, script="PRAGMA user_version = 13"), "was written by an unreleased version of Brain"),
        (partial(write_sql, script="PRAGMA user_version = 17"), "was written by an unreleased version of Brain"),
    ],
)
async def test_a_file_that_cannot_be_used_is_refused_and_stays(
    path: Path, change: Callable[[Path], object], reason: str
) -> None:
    async with store_at(path) as store:
        await add_turn(store, "ada", "c", reply="x" * 40_000)
    change(path)
    wal = path.with_name("brain.db-wal")
    before = [one.read_bytes() for one in (path, wal) if one.is_file()]
    with pytest.raises(StoreError, match=f"^{path} {reason}"):
        await open_store(f"sqlite:{path}")
    assert [one.read_bytes() for one in (path, wal) if one.is_file()] == before


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="check the directory and its permissions"):
        await open_store(f"sqlite:{tmp_path}/file/brain.db")


@pytest.mark.parametrize("version", ["brain", "brain-0.2.0"])
async def test_a_migrated_file_is_like_a_new_one(tmp_path: Path, version: str) -> None:
    migrated, new = tmp_path / "migrated.db", tmp_path / "new.db"
    migrated.write_bytes(gzip.decompress((Path(__file__).parent / "data" / f"{version}.db.gz").read_bytes()))
    for path in (migrated, new):
        async with store_at(path):
            pass
    assert tables(migrated) == tables(new)


def tables(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql <> ''").fetchall()
        return {name: sql.replace('"', "").replace("'", "") for name, sql in found}  # SQLite quotes renamed tables


# damage, and a disk that is full


async def test_half_a_character_in_a_row_is_replaced(file_store: Store) -> None:
    await add_turn(file_store, "ada", "c", "I like tea", number=0)
    await execute(file_store, "UPDATE exchange SET data = replace(data, 'tea', ?)", "\\ud800")
    assert [one[0] for one in await read_turns(file_store, "ada", "c")] == ["I like \ufffd"]


@pytest.mark.parametrize("damage", ['[{"kind": "secret"}]', '["secret', b'{"question":"\xffsecret"'])
async def test_damaged_rows_are_left_out_and_not_shown_in_the_log(
    file_store: Store, damage: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    store = file_store
    for number in range(4):
        await add_turn(store, "ada", "c", f"I like tea {number}", number=number)
        await store.write(items.put, "ada", fact(f"f{number}", f"I like tea {number}", number))
    assert len(await store.list_conversations("ada", words="tea")) == 1
    await execute(store, "UPDATE exchange SET data = CAST(? AS TEXT) WHERE question_id IN ('q2', 'q3')", damage)
    await execute(store, "UPDATE item SET former = CAST(? AS TEXT) WHERE id = 'f2'", damage)
    assert [one[0] for one in await read_turns(store, "ada", "c")] == ["I like tea 0", "I like tea 1"]
    page = await store.read(conversations.read_page, "ada", "c", limit=1)
    assert page is not None
    assert (page.exchanges, page.earlier) == ([], "q3")
    assert [one.id for one in await store.read(items.list_items, "ada", limit=2)] == ["f3", "f1"]
    assert len(await store.read(items.search, "ada", "tea", kinds=("fact",), limit=9)) == 3
    assert [item.id for _, item in await store.search(vectors.lacking, "m", 3)] == ["f3", "f1", "f0"]
    assert len((await store.read(turns.history, "ada", "c", 9)).exchanges) == 2
    assert [len(one.exchanges) for one in await store.write_unsynced(conversations.claim_idle, TOMORROW, 9)] == [2]
    assert len(await store.read(conversations.recent, "ada", 9)) == 2
    kinds = [record["kind"] async for record in store.export("ada")]
    assert (kinds.count("exchange"), kinds.count("item")) == (2, 3)
    with pytest.raises(StoreError, match="damaged"):
        await store.read(items.find, "ada", "f2")
    await add_turn(store, "ada", "c", "And?", number=5)
    assert caplog.messages[0] == "exchange 4294967299 is damaged and was skipped"
    assert "secret" not in caplog.text


@pytest.mark.parametrize("time", [-(2**61), -1, LATEST, 2**61])
async def test_times_that_no_clock_shows_stop_nothing(memory_store: Store, time: int) -> None:
    store = memory_store
    for user in ("ann", "eve"):
        await add_turn(store, user, "c", "I like tea")
        await store.write(items.put, user, fact("f", "I like tea"))
    await execute(store, "UPDATE exchange SET started = ?, ended = ? WHERE key >> 32 = 2", time, time)
    await execute(store, "UPDATE conversation SET created = ?, updated = ? WHERE account = 2", time, min(time, 0))
    await execute(store, "UPDATE item SET created = ?, updated = ? WHERE account = 2", time, time)
    assert [one.user for one in await store.write_unsynced(conversations.claim_idle, TOMORROW, 9)] == ["ann", "eve"]
    assert sorted(user for user, _ in await store.search(vectors.lacking, "m", 9)) == ["ann", "eve"]
    expected = "1970-01-01T00:00:00+00:00" if time < 0 else "2199-12-31T23:59:59.999999+00:00"
    assert [one.created.isoformat() for one in await store.read(items.list_items, "eve")] == [expected]
    assert [one.id for one in await store.list_conversations("eve")] == ["c"]
    assert len(await store.read(conversations.recent, "eve", 9)) == len(await read_turns(store, "eve", "c")) == 1
    assert [record["kind"] async for record in store.export("eve")][1:4] == ["conversation", "exchange", "item"]
    await add_turn(store, "eve", "c", "And?")


async def test_damage_that_shows_later_is_logged_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def read_all(tx: Tx) -> None:
        tx.execute("SELECT sum(length(data)) FROM exchange").fetchall()

    async with store_at(path) as store:
        await add_turn(store, "ada", "c", "x" * 500_000)
    async with store_at(path) as store:
        assert await store.database.find_problem() is None
        with path.open("r+b") as file:  # pages that nobody has read yet
            file.seek(path.stat().st_size // 2)
            file.write(b"\xee" * (path.stat().st_size // 4))
        for _ in range(3):
            with pytest.raises(StoreError, match="damaged"):
                await store.read(read_all)
        assert await store.database.find_problem() is not None
    assert len([line for line in caplog.messages if line.startswith(f"{path} is damaged; restore a backup")]) == 1


@asynccontextmanager
async def full_disk(store: Store) -> AsyncIterator[None]:
    """Let no large write succeed inside the block."""

    async def limit(pages: int) -> None:
        await sqlite_of(store).run_outside(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").close())

    await limit(1)  # no more than there are
    try:
        yield
    finally:
        await limit(1_000_000)


async def test_on_a_full_disk_nothing_is_written_by_halves(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with store_at(path) as store:
        history = await store.write_question("ada", "c", question("One"), ())
        async with full_disk(store):
            assert await store.database.find_problem() is None
            with pytest.raises(StoreError, match="full"):
                await store.end(history, answer("x" * 500_000))
            assert await read_turns(store, "ada", "c") == [("One", "", "")]
            for _ in range(2):
                assert await store.database.find_problem() == "The disk is full."
        assert await store.database.find_problem() is None
        await store.end(history, answer("1"))
    async with store_at(path) as store:  # the longer answer, which had to wait, does not replace the newer one
        assert await read_turns(store, "ada", "c") == [("One", "1", "complete")]
    assert len([line for line in caplog.messages if "brain.db is on a full disk" in line]) == 1


async def test_a_disk_that_is_nearly_full_is_a_problem(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await file_store.database.find_problem() is None
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=MIN_FREE_BYTES - 1))
    assert await file_store.database.find_problem() == "The disk is full."


async def test_a_disk_that_cannot_be_synced_is_an_error(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StoreError, match="cannot be read or written") as caught:
        await file_store.write(users.set_recalls, "ada", False)
    assert caught.value.may_pass


async def test_a_file_that_cannot_be_written_is_searched(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*arguments: object) -> None:
        raise StoreError("The database is read-only.")

    await add_turn(file_store, "ada", "c")
    assert len(await file_store.list_conversations("ada", words="hello")) == 1
    await add_turn(file_store, "ada", "d")
    monkeypatch.setattr(file_store.database, "write_in_steps", fail)
    assert len(await file_store.list_conversations("ada", words="hello")) == 1


async def test_permissions_that_cannot_be_changed_are_logged(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(file: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    path.parent.mkdir()
    path.touch(0o666)
    path.chmod(0o666)
    monkeypatch.setattr(Path, "chmod", fail)
    await (await open_store(f"sqlite:{path}")).close()
    assert "is accessible to other system users" in caplog.text


@pytest.mark.parametrize("by", ["the next turn", "time", "deletion", "closing"])
async def test_an_answer_is_stored_when_the_disk_has_space_again(
    path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.store.store.MAINTAIN_SECONDS", 0 if by == "time" else 1e6)
    long = "x" * 500_000
    async with store_at(path, Clock(step=0)) as store:
        history, other = [await store.write_question("ada", name, question("One"), ()) for name in ("c", "d")]
        async with full_disk(store):
            with pytest.raises(StoreError, match="full") as caught:
                await store.end(history, answer(long))
            assert caught.value.may_pass
            with pytest.raises(StoreError, match="full"):  # not: busy
                await store.write_question("ada", "c", question("Two", 2), ())
            await store.end(other, answer("Short."))
        if by == "the next turn":
            await add_turn(store, "ada", "c", "Two", "Short.", number=2)
        elif by == "deletion":
            assert await store.delete("ada", "c")
        elif by == "time":
            async with asyncio.timeout(WAIT_SECONDS):
                await store.wait_written(history)
    async with store_at(path) as store:
        expected = [("One", long, "complete"), *([("Two", "Short.", "complete")] if by == "the next turn" else [])]
        assert await read_turns(store, "ada", "c") == ([] if by == "deletion" else expected)
        assert await read_turns(store, "ada", "d") == [("One", "Short.", "complete")]


async def test_answers_that_wait_for_space_are_limited(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("brain.store.unwritten.MAX_UNWRITTEN_BYTES", 1_200_000)
    async with store_at(path, Clock(step=0)) as store:
        begun = [await store.write_question("ada", f"c{n}", question("One"), ()) for n in range(3)]
        async with full_disk(store):
            for history in begun:
                with pytest.raises(StoreError, match="full"):
                    await store.end(history, answer("x" * 500_000))
    assert [line for line in caplog.messages if "an answer is lost" in line] == [
        "conversation c0: an answer is lost, because too many wait to be stored"
    ]
    async with store_at(path) as store:
        turns = [await read_turns(store, "ada", f"c{n}") for n in range(3)]
        assert [outcome for ((_, _, outcome),) in turns] == ["interrupted", "complete", "complete"]


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_nothing_is_acknowledged_that_goes_into_a_deleted_file(
    path: Path, is_replaced: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("brain.store.store.SWEEP_SECONDS", 0)
    async with store_at(path) as store:
        history = await store.write_question("ada", "c", question("runs"), ())
        path.unlink()
        if is_replaced:
            path.touch()
        for work in (store.end(history, answer("done")), store.write_question("ada", "d", question("runs"), ())):
            with pytest.raises(StoreError, match="deleted or moved"):
                await work
        assert "deleted or moved" in (await store.database.find_problem() or "")
        async with asyncio.timeout(WAIT_SECONDS):
            while "traces of deleted data cannot be removed" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0)
    assert str(path) not in caplog.text


async def test_errors_quote_nothing_that_is_stored_or_looked_for(memory_store: Store) -> None:
    def search(tx: Tx) -> None:
        tx.execute("SELECT 1 FROM item_words WHERE item_words MATCH 'secret ('")

    with pytest.raises(StoreError) as caught:
        await memory_store.read(search)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


# threads and other processes


@contextmanager
def stuck_writer(path: Path) -> Iterator[None]:
    """Another process that writes, and does not end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_all_that_waits_for_a_stuck_process_waits_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SECONDS", 3)
    async with store_at(path) as store:
        with stuck_writer(path):
            waiting = (store.write_question("ada", f"c{number}", question("Hello"), ()) for number in range(100))
            async with asyncio.timeout(WAIT_SECONDS):  # one after the other, they would take 300 seconds
                found = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in found} == {StoreError}
        await add_turn(store, "ada", "c")
        assert len(await read_turns(store, "ada", "c")) == 1


async def test_closing_does_not_wait_for_a_stuck_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.store.store.CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(connection, "BUSY_SECONDS", 1000)
    store = Store(SQLite(path))
    await store.open()
    with stuck_writer(path):
        waiting = [asyncio.create_task(store.write_question("ada", "c", question("Hello"), ())) for _ in range(4)]
        await asyncio.sleep(0)
        await store.close()
        assert {type(one) for one in await asyncio.gather(*waiting, return_exceptions=True)} == {StoreError}


async def test_many_questions_for_problems_write_once(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write, count = file_store.database.write_unsynced, 0

    async def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return await write(*arguments)

    monkeypatch.setattr(file_store.database, "write_unsynced", counted)
    assert [await file_store.database.find_problem() for _ in range(3)] == [None] * 3
    assert count == 1


async def test_a_stuck_process_is_no_problem_of_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.store.sqlite.database.PROBE_SECONDS", 0.0)
    async with store_at(path) as store:
        with stuck_writer(path):
            assert await store.database.find_problem() is None


class Blocker:
    """Work that holds a thread of the store until it is released."""

    def __init__(self) -> None:
        self.has_begun, self._may_end = threading.Event(), threading.Event()

    def __call__(self, tx: Tx) -> bool:
        self.has_begun.set()
        return self._may_end.wait(WAIT_SECONDS)

    async def hold(self, start: Callable[[], Awaitable[bool]]) -> "asyncio.Future[bool]":
        holding = asyncio.ensure_future(start())
        assert await asyncio.to_thread(self.has_begun.wait, 30)
        return holding

    def release(self) -> None:
        self._may_end.set()


@pytest.mark.parametrize("long", [False, True])
async def test_a_user_who_reads_much_does_not_keep_others_waiting(file_store: Store, long: bool) -> None:
    order, blocker = list[str](), Blocker()
    read = file_store.search if long else file_store.read

    def note(tx: Tx, user: str) -> None:
        order.append(user)

    holding = await blocker.hold(lambda: read(blocker))
    reads = asyncio.gather(*(read(note, user) for user in ["eve"] * 5 + ["ann"]))
    await asyncio.sleep(0)
    blocker.release()
    await asyncio.gather(holding, reads)
    assert order == ["eve", "eve", "ann", "eve", "eve", "eve"]


async def export(store: Store) -> list[object]:
    return [record async for record in store.export("ada")]


READS_OF_TURNS: list[Callable[[Store], Awaitable[object]]] = [
    lambda store: store.read(turns.history, "ada", "c", 5),
    lambda store: store.read(conversations.read_page, "ada", "c"),
    lambda store: store.read(conversations.recent, "ada", 5),
    lambda store: store.read(items.list_items, "ada"),
    lambda store: store.read(items.search, "ada", "jazz", kinds=("fact",), limit=5),
    lambda store: store.read(vectors.search, "ada", Query("m", [1.0]), kinds=["fact"], limit=5, cache=store.signs),
    lambda store: store.read(users.recalls, "ada"),
]
READS_OF_USERS: list[Callable[[Store], Awaitable[object]]] = [
    lambda store: store.list_conversations("ada", words="jazz"),
    lambda store: store.search(items.list_items, "ada", words="jazz"),
    lambda store: store.search(vectors.lacking, "m", 5),
    lambda store: store.search(users.names),
    export,
]


@pytest.mark.parametrize(("long", "reads"), [(True, READS_OF_TURNS), (False, READS_OF_USERS)], ids=["turns", "users"])
async def test_turns_do_not_wait_for_searches_and_exports(
    file_store: Store, long: bool, reads: list[Callable[[Store], Awaitable[object]]]
) -> None:
    blocker = Blocker()
    await add_turn(file_store, "ada", "c", "I like jazz")
    holding = await blocker.hold(lambda: (file_store.search if long else file_store.read)(blocker))
    for read in reads:
        await read(file_store)
    assert not holding.done()
    blocker.release()
    assert await holding


async def test_what_waits_together_is_committed_together_and_undone_apart(
    tmp_path: Path, connections: list[sqlite3.Connection]
) -> None:
    statements, blocker = list[str](), Blocker()

    def add(name: str) -> Callable[[Tx], str]:
        def work(tx: Tx) -> str:
            tx.execute("INSERT INTO account (name) VALUES (?)", (name,))
            if name == "undone":
                raise BadRequest("No.")
            return name

        return work

    database = SQLite(tmp_path / "brain.db")
    await database.open(lambda tx: None)
    connections[0].set_trace_callback(statements.append)
    holding = await blocker.hold(lambda: database.submit(blocker))
    waiting = [database.submit(add(name)) for name in ("a", "undone", "b")]
    waiting.append(database.submit(add("c"), alone=True))
    blocker.release()
    assert await holding
    first, failed, *others = await asyncio.gather(*waiting, return_exceptions=True)
    assert (first, type(failed), others) == ("a", BadRequest, ["b", "c"])
    names = await database.read(lambda tx: [name for (name,) in tx.execute("SELECT name FROM account ORDER BY key")])
    assert names == ["a", "b", "c"]
    await database.close()
    assert [one for one in statements if one in ("BEGIN IMMEDIATE", "COMMIT")] == ["BEGIN IMMEDIATE", "COMMIT"] * 3


async def test_what_sqlite_undoes_with_the_whole_group_is_written_alone(path: Path) -> None:
    """As it does on some errors of the disk."""

    def undo(tx: Tx) -> None:
        tx.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    blocker = Blocker()
    async with store_at(path) as store:
        holding = await blocker.hold(lambda: store.database.submit(blocker))
        waiting = [store.database.submit(lambda tx: users.set_recalls(tx, "ada", False)), store.database.submit(undo)]
        blocker.release()
        assert await holding
        done, failed = await asyncio.gather(*waiting, return_exceptions=True)
        assert (done, type(failed)) == (None, StoreError)
        assert not await store.read(users.recalls, "ada")


async def test_specialists_that_blocked_are_listed_for_a_month() -> None:
    clock = Clock(0)
    async with store_at(None, clock) as store:
        for place in ("a.py:1", "a.py:2"):
            await store.write_unsynced(server_data.add_blocked, "slow", place)
        assert await store.read(server_data.blocked) == [("slow", NOON, 2, "a.py:2")]
        clock.advance(days=31)
        assert await store.read(server_data.blocked) == []
