"""What any database does for the store: it outlives its processes, keeps what it is given, and lets others work."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from limits import WAIT_SECONDS
from store_helpers import (
    NO_LIMITS,
    NOON,
    TOMORROW,
    Blocker,
    Clock,
    DatabasePlace,
    add_turn,
    answer,
    claim_due,
    fact,
    join,
    question,
    read_turns,
    store_at,
    task_of,
)

from brain.errors import BadRequest, StoreError
from brain.messages import History
from brain.store import conversations, items, server_data, tasks, turns, users, vectors
from brain.store.rows import LATEST
from brain.store.store import Store
from brain.store.tx import Tx
from brain.store.vectors import Query

pytestmark = pytest.mark.anyio


async def execute(store: Store, statement: str, *values: object) -> None:
    await store.write(lambda tx: tx.execute(statement, values))


async def test_a_database_outlives_its_process(shared_place: DatabasePlace) -> None:
    async with store_at(shared_place) as store:
        await add_turn(store, "ada", "c")
        await store.write_question("ada", "d", question("Lost"), ())
    async with store_at(shared_place) as store:
        assert await read_turns(store, "ada", "c") == [("Hello", "Hi", "complete")]
        assert [one[2] for one in await read_turns(store, "ada", "d")] == ["interrupted"]
        assert len(await store.list_conversations("ada", words="hello")) == 1
        await add_turn(store, "ada", "d", number=2)


async def test_closing_a_store_waits_for_its_writes(shared_place: DatabasePlace) -> None:
    async with store_at(shared_place) as store:
        writes = [store.database.submit(partial(add_value, value=n), "ada") for n in range(9)]
    assert [one.result() for one in writes] == [1] * 9
    async with store_at(shared_place) as store:
        assert await values(store) == [*range(9)]


# values and transactions


def add_value(tx: Tx, value: int, name: str | None = None) -> int:
    """Add a row to a table that has text and integers; return how many were added."""
    row = (name or f"{value}", value, 0, "")
    return tx.execute("INSERT INTO blocked (specialist, times, last, place) VALUES (?, ?, ?, ?)", row).rowcount


async def values(store: Store) -> list[int]:
    query = "SELECT times FROM blocked ORDER BY times"
    return await store.read(lambda tx: [value for (value,) in tx.execute(query).fetchall()])


async def test_values_come_back_as_they_were_written(store: Store) -> None:
    def write(tx: Tx) -> Any:
        named = {"name": "ada", "recalls": True, "revision": 2**62}
        insert = "INSERT INTO account (name, recalls, revision) VALUES (:name, :recalls, :revision) RETURNING key"
        ((key,),) = tx.execute(insert, named).fetchall()
        digests = [(key, b"\0\xff", -(2**63), False), (key, b"", 2**63 - 1, 2**31)]
        tx.executemany("INSERT INTO answer (account, digest, marks, at) VALUES (?, ?, ?, ?)", digests)
        return key

    key = await store.write(write)

    def read(tx: Tx) -> Any:
        account = tx.execute("SELECT key, recalls, revision FROM account WHERE name = ?", ("ada",)).fetchone()
        digests = tx.execute("SELECT digest, marks, at FROM answer ORDER BY marks").fetchall()
        sums = tx.execute("SELECT sum(at), count(*), max(marks), sum(marks) FROM answer").fetchone()
        nothing = tx.execute("SELECT sum(at), max(at) FROM answer WHERE account = :key + 1", {"key": key}).fetchone()
        return account, digests, sums, nothing

    account, digests, sums, nothing = await store.read(read)
    assert account == (key, 1, 2**62)
    assert digests == [(b"\0\xff", -(2**63), 0), (b"", 2**63 - 1, 2**31)]
    assert (sums, nothing) == ((2**31, 2, 2**63 - 1, -1), (None, None))
    assert {type(value) for value in (*account, *sums, *digests[0][1:])} == {int}
    assert {type(digest) for digest, *_ in digests} == {bytes}


async def test_a_write_that_fails_changes_nothing_and_no_other_write(store: Store) -> None:
    wrong = {
        "a column": "SELECT nothing FROM blocked",
        "a key": "INSERT INTO server_value VALUES ('a', 'b'), ('a', 'b')",
    }

    def fail(tx: Tx, how: str) -> None:
        add_value(tx, 10)
        if how == "rejected":
            raise BadRequest("No.")
        tx.execute(wrong[how])

    writes = [store.database.submit(partial(add_value, value=n), "ada") for n in range(3)]
    failing = [store.database.submit(partial(fail, how=how), "ada") for how in ("rejected", *wrong)]
    writes += [store.database.submit(partial(add_value, value=n), "ada") for n in range(3, 6)]
    assert await asyncio.gather(*writes) == [1] * 6
    errors = await asyncio.gather(*failing, return_exceptions=True)
    assert [type(error) for error in errors] == [BadRequest, StoreError, StoreError]
    assert not any(error.may_pass for error in errors if isinstance(error, StoreError))
    assert await values(store) == [*range(6)]
    with pytest.raises(StoreError):
        await store.read(lambda tx: tx.execute("SELECT nothing FROM blocked"))
    assert await values(store) == [*range(6)]


async def test_a_write_whose_caller_leaves_is_done(store: Store) -> None:
    writing = asyncio.create_task(store.write(add_value, 1))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await store.write(add_value, 2)
    assert await values(store) == [1, 2]


async def test_writes_of_one_owner_keep_their_order(store: Store) -> None:
    def add(tx: Tx, number: int) -> None:
        before = server_data.server_value(tx, "order")
        server_data.set_server_value(tx, "order", f"{before or ''}{number} ")

    writes = [
        store.database.submit(partial(add, number=n), "ada", durable=n % 2 == 0, alone=n % 3 == 0) for n in range(50)
    ]
    await asyncio.gather(*writes)
    assert await store.read(server_data.server_value, "order") == "".join(f"{n} " for n in range(50))


async def test_steps_are_written_until_one_is_the_last(store: Store) -> None:
    done: list[int] = []

    def step(tx: Tx) -> bool:
        done.append(add_value(tx, len(done)))
        return len(done) < 4

    await store.database.write_in_steps(step, "steps")
    assert await values(store) == [0, 1, 2, 3]


# two processes


async def test_a_number_changes_when_another_process_has_written(shared_place: DatabasePlace) -> None:
    async with store_at(shared_place) as one, store_at(shared_place) as other:
        before = await one.database.data_version()
        await other.write(add_value, 1)
        async with asyncio.timeout(WAIT_SECONDS):  # it may be told a little later
            while await one.database.data_version() == before:  # noqa: ASYNC110 - it is read from the database
                await asyncio.sleep(0)


@pytest.mark.parametrize("owner", ["ada", None])
async def test_functions_that_read_and_then_write_lose_nothing(shared_place: DatabasePlace, owner: str | None) -> None:
    def increase(tx: Tx) -> None:
        ((value,),) = tx.execute("SELECT times FROM blocked").fetchall()
        tx.execute("UPDATE blocked SET times = ?", (value + 1,))

    async with store_at(shared_place) as one, store_at(shared_place) as other:
        await one.write(add_value, 0)
        await asyncio.gather(*(store.database.submit(increase, owner) for _ in range(30) for store in (one, other)))
        assert await values(other) == [60]


async def test_of_two_turns_that_begin_at_once_one_begins(shared_place: DatabasePlace) -> None:
    """In a conversation that exists, and in a new one of a new user."""
    async with store_at(shared_place) as one, store_at(shared_place) as other:
        for store in (one, other):
            await join(store)
        for number in range(60):
            user = "ada" if number % 2 else f"user{number}"
            stores = (one, other) if number % 3 else (other, one)
            begun = await asyncio.gather(
                *(store.write_question(user, "c", question(f"{number}", number), ()) for store in stores),
                return_exceptions=True,
            )
            errors = [error for error in begun if isinstance(error, BaseException)]
            assert [(type(error), getattr(error, "code", "")) for error in errors] == [(turns.ConversationBusy, "busy")]
            for store, history in zip(stores, begun, strict=True):
                if isinstance(history, History):
                    await store.end(history, answer("Done", number))
        assert len(await read_turns(one, "ada", "c")) == 30
        assert len(await one.search(users.names)) == 31


async def test_processes_that_claim_tasks_at_once_claim_each_once(shared_place: DatabasePlace) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(store_at(shared_place, Clock(step=0))) for _ in range(4)]
        for store in stores:
            await join(store)
        for n in range(7):
            await stores[0].write(tasks.create, task_of(f"user{n % 3}", f"{n}"), NO_LIMITS)
        claimed = await asyncio.gather(*(claim_due(store, at_once=5) for store in stores))
        names = [task.id for some in claimed for task in some]
        assert len(names) == len(set(names)) == 5
        for store, some in zip(stores, claimed, strict=True):
            assert set((await store.read(tasks.look, 9, 9)).own) == {task.id for task in some}


# damage


async def test_half_a_character_in_a_row_is_replaced(store: Store) -> None:
    await add_turn(store, "ada", "c", "I like tea", number=0)
    await execute(store, "UPDATE exchange SET data = replace(data, 'tea', ?)", "\\ud800")
    assert [one[0] for one in await read_turns(store, "ada", "c")] == ["I like \ufffd"]


@pytest.mark.parametrize("damage", ['[{"kind": "secret"}]', '["secret', b'{"question":"\xffsecret"'])
async def test_damaged_rows_are_left_out_and_not_shown_in_the_log(
    store: Store, damage: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
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


async def test_a_database_that_cannot_be_written_is_searched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*arguments: object) -> None:
        raise StoreError("The database is read-only.")

    await add_turn(store, "ada", "c")
    assert len(await store.list_conversations("ada", words="hello")) == 1
    await add_turn(store, "ada", "d")
    monkeypatch.setattr(store.database, "write_in_steps", fail)
    assert len(await store.list_conversations("ada", words="hello")) == 1


# reads


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
    shared_store: Store, long: bool, reads: list[Callable[[Store], Awaitable[object]]]
) -> None:
    blocker = Blocker()
    await add_turn(shared_store, "ada", "c", "I like jazz")
    holding = await blocker.hold(lambda: (shared_store.search if long else shared_store.read)(blocker))
    for read in reads:
        await read(shared_store)
    assert not holding.done()
    blocker.release()
    assert await holding


async def test_specialists_that_blocked_are_listed_for_a_month(store_place: DatabasePlace) -> None:
    clock = Clock(0)
    async with store_at(store_place, clock) as store:
        for line in ("a.py:1", "a.py:2"):
            await store.write_unsynced(server_data.add_blocked, "slow", line)
        assert await store.read(server_data.blocked) == [("slow", NOON, 2, "a.py:2")]
        clock.advance(days=31)
        assert await store.read(server_data.blocked) == []
