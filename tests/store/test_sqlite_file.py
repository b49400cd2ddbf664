"""A store in a file: where it is, which files are refused, damage, a full disk, other processes, and threads."""

import asyncio
import errno
import gzip
import io
import os
import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from limits import WAIT_SECONDS
from store_helpers import (
    NOON,
    Blocker,
    Clock,
    add_turn,
    answer,
    join,
    lose_turns,
    question,
    read_turns,
    sqlite_of,
    store_at,
)

from brain.errors import BadRequest, StoreError
from brain.runtime import import_sanitizer
from brain.store import open_store, processes, transfer, turns, users
from brain.store.sqlite import connection
from brain.store.sqlite.database import MIN_FREE_BYTES, SQLite
from brain.store.store import Store
from brain.store.turns import Appended, QuestionOptions
from brain.store.tx import Tx

pytestmark = pytest.mark.anyio


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


async def test_a_draft_that_is_no_text_loses_only_itself(file_store: Store) -> None:
    history = await file_store.write_question("ada", "c", question("One"), ())
    for number, text in enumerate(("Once", " upon", " a time"), 1):
        assert await file_store.write(turns.append, history, number, Appended(text, 1))
    damage = "UPDATE draft SET data = CAST(x'7bff7d' AS TEXT) WHERE last = 2"
    await file_store.write(lambda tx: tx.execute(damage).rowcount)
    lose_turns(file_store)
    await file_store.write(turns.claim, 9, continues=True)
    assert await read_turns(file_store, "ada", "c") == [("One", "Once a time", "interrupted")]


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


def count(tx: Tx, table: str) -> int:
    return int(tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def test_a_process_that_is_alone_on_a_file_takes_over_all(path: Path, clock: Clock) -> None:
    async with store_at(path, clock) as store:
        await join(store)
        await store.write_question("ada", "c", question("One"), (), QuestionOptions(resume="{}"))
        await store.write_question("ada", "d", question("Two"), ())
        records = io.BytesIO()
        now = NOON.isoformat()
        imported = {"kind": "item", "type": "fact", "id": "f", "text": "I like jazz", "created": now, "updated": now}
        await transfer.check([{"kind": "brain", "version": 2}, imported], records)
        records.seek(0)
        half = transfer.Import("eve", records, import_sanitizer)
        await store.write(half.begin)
        await store.write(half.insert_some)
        assert await store.read(count, "item") == 1
    async with store_at(path, clock) as store:
        assert await store.read(processes.read) == []
        assert (await read_turns(store, "ada", "d")) == [("Two", "", "interrupted")]
        # one that can be continued waits for a process that does so
        (claimed,), _ = await store.write(turns.claim, 9, continues=True)
        assert claimed.history.id == "c"
        await store.sweep()
        assert [await store.read(count, table) for table in ("import", "item")] == [0, 0]


async def test_a_question_whose_caller_leaves_stays_if_it_cannot_be_deleted(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with store_at(path) as store:
        beginning = asyncio.create_task(store.write_question("ada", "c", question("One"), ()))
        await asyncio.sleep(0)
        beginning.cancel()
        await sqlite_of(store).run_outside(lambda db: db.execute("PRAGMA query_only = ON"))
    with pytest.raises(asyncio.CancelledError):
        await beginning
    assert "could not be deleted" in caplog.text
    async with store_at(path) as store:
        assert await store.search(users.names) == ["ada"]


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
