"""Writes of different owners that run at the same time, as they do on PostgreSQL, are as good as one after another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import psycopg
import pytest
from limits import WAIT_SECONDS
from store_helpers import NOON, Blocker, add_turn, answer, opened, question, read_turns, task_of

from brain.messages import History, Text
from brain.runtime import import_sanitizer
from brain.settings import Settings
from brain.store import conversations, database_of, deletion, tasks, transfer, turns
from brain.store.postgresql import database
from brain.store.store import Store
from brain.store.turns import Appended, QuestionOptions
from brain.store.tx import Tx
from brain.task import TaskEdit
from brain.tasks import Tasks

pytestmark = [pytest.mark.anyio, pytest.mark.postgresql]


@pytest.fixture
async def stores(postgresql_store_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Store]]:
    """Two stores of one database, each as of another process."""
    monkeypatch.setattr(database, "FROZEN_SECONDS", WAIT_SECONDS)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(Store(database_of(postgresql_store_url)))) for _ in range(2)]


async def wait_for_lock(url: str) -> None:
    """Wait until a connection waits for a lock."""
    async with asyncio.timeout(WAIT_SECONDS), await psycopg.AsyncConnection.connect(url, autocommit=True) as asking:
        query = b"SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while True:
            if await (await asking.execute(query)).fetchone() is not None:
                return


async def count_rows(store: Store, table: str) -> int:
    ((count,),) = await store.read(lambda tx: tx.execute(f"SELECT count(*) FROM {table}").fetchall())
    return int(count)


@pytest.mark.parametrize("first", ["older", "newer"])
async def test_an_older_checkpoint_that_is_written_later_changes_nothing(
    stores: list[Store], postgresql_store_url: str, first: str
) -> None:
    store, _ = stores
    history, blocker = await store.write_question("ada", "c", question("One"), []), Blocker()

    def write_older(tx: Tx) -> bool:
        if first == "older":
            blocker(tx)
        older = question("One", parts=[Text("Once", 1)], started=NOON)
        return turns.append(tx, history, 4, Appended("O", 1)) and turns.checkpoint(tx, history, 5, older)

    def write_newer(tx: Tx) -> bool:
        newer = question("One", parts=[Text("Once upon", 1)], started=NOON)
        is_own = turns.checkpoint(tx, history, 9, newer)
        if first == "newer":
            blocker(tx)
        return is_own

    writes = {"older": (write_older, store.database.process), "newer": (write_newer, "ada")}
    (second,) = writes.keys() - {first}
    blocked = await blocker.hold(lambda: store.database.submit(*writes[first]))
    waiting = store.database.submit(*writes[second])
    if first == "older":
        await waiting
    else:
        await wait_for_lock(postgresql_store_url)
    blocker.release()
    assert [await blocked, await waiting] == [True, True]
    assert await store.write(turns.append, history, 12, Appended(" a time", 1))
    assert await read_turns(store, "ada", "c") == [("One", "Once upon a time", "")]


async def test_nothing_is_left_of_a_user_who_is_erased_while_the_rows_of_another_are_removed(
    stores: list[Store], postgresql_store_url: str
) -> None:
    store, other = stores
    await add_turn(store, "ada", "c")
    await store.write(tasks.append_report, "ada", "c", "t1")
    await add_turn(store, "bob", "c", "Secret")
    await store.write(conversations.delete_user, "ada")
    with psycopg.connect(postgresql_store_url) as connection:
        connection.execute("SELECT 1 FROM channel FOR UPDATE")  # its row is the last one of ada to be removed
        sweeping = asyncio.create_task(store.sweep())
        await wait_for_lock(postgresql_store_url)
        await other.write(conversations.delete_user, "bob")
    await sweeping
    await store.sweep()
    assert [await count_rows(store, table) for table in ("account", "conversation", "exchange")] == [0, 0, 0]


async def test_a_user_whose_import_failed_begins_a_turn_while_the_import_is_removed(
    stores: list[Store], postgresql_store_url: str
) -> None:
    store, other = stores
    new = transfer.Import("ada", [], import_sanitizer)
    await store.write(transfer.expire, await store.write(new.begin))
    blocker = Blocker()

    def begin(tx: Tx) -> History:
        history, _ = turns.write_question(tx, "ada", "c", question("One"), [], QuestionOptions())
        blocker(tx)
        return history

    beginning = await blocker.hold(lambda: other.database.submit(begin, "ada"))
    sweeping = asyncio.create_task(store.sweep())
    await wait_for_lock(postgresql_store_url)
    blocker.release()
    assert await other.end(await beginning, answer("Hi"))
    await sweeping
    assert await read_turns(store, "ada", "c") == [("One", "Hi", "complete")]


async def test_an_import_that_renews_its_lease_while_rows_are_removed_continues(stores: list[Store]) -> None:
    store, other = stores
    new = transfer.Import("ada", [], import_sanitizer)
    await store.write(new.begin)
    blocker = Blocker()

    def remove(tx: Tx) -> bool:
        blocker(tx)
        return deletion.remove_some(tx)

    removing = await blocker.hold(lambda: other.database.submit(remove, "deleted rows"))
    assert not await store.database.submit(new.insert_some, "ada")
    blocker.release()
    await removing
    assert (await store.write(new.end)).conversations == 0


async def test_users_get_tasks_and_reports_while_another_one_writes(stores: list[Store]) -> None:
    store, other = stores
    service, blocker = Tasks(store, Settings(), store.now), Blocker()
    deferred, _ = service.defer()
    writing = await blocker.hold(lambda: other.database.submit(blocker, "bob"))
    task = await service.create(task_of("ada"))
    assert await deferred.change("ada", task.id, TaskEdit(title="Later")) is not None
    found = await deferred.store.read(tasks.find, "ada", task.id)
    assert found is not None
    assert found.title == "Later"
    assert not writing.done()
    blocker.release()
    await writing


async def test_a_packet_that_is_committed_late_is_news(stores: list[Store]) -> None:
    store, other = stores
    for user in ("ada", "bob"):
        await add_turn(store, user, "c")
    blocker = Blocker()

    def append(tx: Tx) -> None:
        tasks.append_report(tx, "ada", "c", "t1")
        blocker(tx)

    appending = await blocker.hold(lambda: other.database.submit(append, "ada"))
    await store.write(tasks.append_report, "bob", "c", "t2")
    before = await store.read(tasks.look, 0, 0)
    blocker.release()
    await appending
    after = await store.read(tasks.look, 0, 0)
    assert (after.last_packet, after.packets) == (before.last_packet, before.packets + 1)
