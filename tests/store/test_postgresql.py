"""What PostgreSQL does beyond the tests of all databases: locks, lost connections, announcements, and upgrades."""

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from limits import WAIT_SECONDS
from postgresql_servers import Cluster
from store_helpers import (
    Blocker,
    add_turn,
    answer,
    fact,
    join,
    opened,
    question,
    read_turns,
)
from tcp_proxy import Proxy, run_proxy

from brain import install_command
from brain.errors import OutcomeUnknown, StoreError
from brain.store import (
    conversations,
    database_of,
    full_text,
    items,
    open_store,
    processes,
    schema,
    turns,
    users,
)
from brain.store.postgresql import database, tables
from brain.store.store import Store
from brain.store.tx import Tx

pytestmark = [pytest.mark.anyio, pytest.mark.postgresql]
T = TypeVar("T")


@asynccontextmanager
async def stores(url: str, number: int = 2) -> AsyncIterator[list[Store]]:
    """Stores of one database, each as of another process."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(Store(database_of(url)))) for _ in range(number)]


@pytest.fixture
async def store(postgresql_store_url: str) -> AsyncIterator[Store]:
    async with opened(Store(database_of(postgresql_store_url))) as store:
        yield store


@pytest.fixture
def proxy(postgresql_store_url: str) -> Iterator[Proxy]:
    with run_proxy(postgresql_store_url) as proxy:
        yield proxy


async def until(check: Callable[[], Awaitable[T]]) -> T:
    """Ask until the answer is true, and return it. An error that may pass is no answer."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                if answer := await check():
                    return answer
            except StoreError as error:
                if not error.may_pass or isinstance(error, OutcomeUnknown):
                    raise
            await asyncio.sleep(0)


def query(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def add(tx: Tx, value: int = 1, name: str = "n") -> int:
    """Add to a number in a table, and return it: what is written twice is counted twice."""
    insert = "INSERT INTO blocked (specialist, times, last, place) VALUES (?, ?, 0, '') "
    change = "ON CONFLICT (specialist) DO UPDATE SET times = blocked.times + excluded.times RETURNING times"
    return int(tx.execute(insert + change, (name, value)).fetchone()[0])


async def total(store: Store, name: str = "n") -> int:
    row = await store.read(lambda tx: tx.execute("SELECT times FROM blocked WHERE specialist = ?", (name,)).fetchone())
    return 0 if row is None else int(row[0])


# connections and locks

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


WRITERS = (
    "SELECT client_port FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND query <> 'LISTEN brain'"
)


async def count_waiting(url: str) -> int:
    """The number of connections that wait for a lock."""
    ((waiting,),) = query(url, WAITING)
    return int(waiting)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transactions take long, and wait long for others."""
    monkeypatch.setattr(database, "FROZEN_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(database, "BUSY_SECONDS", WAIT_SECONDS)


@pytest.mark.usefixtures("patient")
async def test_a_user_who_waits_holds_one_connection_and_others_go_on(postgresql_store_url: str) -> None:
    async with stores(postgresql_store_url) as (store, other):
        blocker = Blocker()
        holding = await blocker.hold(lambda: other.database.submit(partial(blocker, owner="ada"), "ada"))
        writes = [store.database.submit(partial(add, value=n), "ada") for n in range(20)]
        assert await until(lambda: count_waiting(postgresql_store_url)) == 1
        for n in range(9):
            await add_turn(store, "eve", f"c{n}")
            assert await store.list_conversations("ada") == []  # searches of the same user
        assert await count_waiting(postgresql_store_url) == 1
        assert not any(write.done() for write in writes)
        blocker.release()
        assert await holding
        assert await asyncio.gather(*writes) == [sum(range(n + 1)) for n in range(20)]


async def test_a_user_whose_requests_are_cancelled_holds_one_connection(store: Store) -> None:
    blocker = Blocker()
    reading = await blocker.hold(lambda: store.read(blocker, "ada"))
    reading.cancel()
    again = asyncio.create_task(store.read(turns.find_newest, "ada", "c"))
    for _ in range(9):
        assert await store.read(turns.find_newest, "eve", "c") is None
    assert not again.done()
    blocker.release()
    assert await again is None


@pytest.mark.usefixtures("patient")
async def test_a_write_that_runs_alone_waits_without_holding_up_others(postgresql_store_url: str) -> None:
    async with stores(postgresql_store_url) as (store, other):
        blocker = Blocker()
        holding = await blocker.hold(lambda: other.database.submit(partial(blocker, owner="ada"), "ada"))
        alone = store.database.submit(add)
        for n in range(9):
            await add_turn(store, "eve", f"c{n}")
        assert not alone.done()
        blocker.release()
        assert (await holding, await alone) == (True, 1)


@pytest.mark.parametrize("owner", ["ada", None])
async def test_others_wait_for_a_frozen_process_only_for_a_while(
    postgresql_store_url: str, owner: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "FROZEN_SECONDS", 0.3)
    async with stores(postgresql_store_url) as (frozen, store):
        blocker = Blocker()

        def freeze(tx: Tx) -> int:
            add(tx)
            assert blocker(tx)
            return add(tx)

        frozen_write = await blocker.hold(lambda: frozen.database.submit(freeze, owner))
        assert await store.database.submit(add, owner) == 1
        assert await store.database.submit(add, "eve") == 2
        assert not frozen_write.done()
        blocker.release()
        assert await frozen_write == 4  # its transaction was rolled back and repeated
        assert await total(store) == 4


# lost connections


@pytest.mark.skipif(sys.platform != "linux", reason="finds the connections in /proc")
async def test_the_system_notices_that_the_machine_of_the_server_is_gone(store: Store) -> None:
    await add_turn(store, "ada", "c")
    found = set[tuple[int, ...]]()
    for link in Path("/proc/self/fd").iterdir():
        if link.is_symlink() and str(link.readlink()).startswith("socket:"):
            with socket.fromfd(int(link.name), socket.AF_INET, socket.SOCK_STREAM) as one, suppress(OSError):
                if f":{[*one.getpeername(), 0, 0][1]}/" in store.database.place:
                    options = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT
                    found.add(tuple(one.getsockopt(socket.IPPROTO_TCP, option) for option in options))
    assert found == {(5, 1, 5, 10_000)}


MOMENTS = ("first statement", "second statement", "commit")


def cut(tx: Tx, proxy: Proxy, **how: bool) -> None:
    """Cut the connection of a transaction at its next statement."""
    proxy.cut_next(tx.execute("SELECT inet_client_port()").fetchone()[0], **how)


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_write_whose_connection_is_cut_is_written_once(proxy: Proxy, moment: str, is_answered: bool) -> None:
    async with opened(Store(database_of(proxy.url))) as store:
        attempts = 0

        def work(tx: Tx) -> int:
            nonlocal attempts
            attempts += 1
            for step in MOMENTS:
                if step == moment and attempts == 1:
                    cut(tx, proxy, is_answered=is_answered)
                if step != "commit":
                    added = add(tx)
            return added

        assert await store.database.submit(work, "ada") == 2
        assert attempts == (1 if moment == "commit" and is_answered else 2)
        assert await total(store) == 2
        assert await store.database.find_problem() is None
        before, attempts = await total(store), 0
        if moment != "commit":  # what cannot be repeated fails, and changes nothing
            with pytest.raises(StoreError) as caught:
                await store.database.submit(work, "ada", alone=True)
            assert (caught.value.may_pass, attempts) == (True, 1)
            assert await total(store) == before


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_write_that_meets_a_dead_connection_is_written_once(
    postgresql_store_url: str, proxy: Proxy, is_answered: bool
) -> None:
    async with opened(Store(database_of(proxy.url))) as store:
        for n in range(1, 4):
            for (port,) in query(postgresql_store_url, WRITERS):
                proxy.cut_next(port, is_answered=is_answered)
            assert await store.database.submit(add, "ada") == n
            assert await total(store) == n


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_write_whose_outcome_nobody_can_tell_is_said_to_be_so(proxy: Proxy, is_answered: bool) -> None:
    async with opened(Store(database_of(proxy.url))) as store:

        def work(tx: Tx) -> None:
            add(tx)
            cut(tx, proxy, is_answered=is_answered, refuses=True)

        with pytest.raises(OutcomeUnknown) as caught:
            await store.database.submit(work, "ada")
        assert caught.value.may_pass
        proxy.accept()
        assert await until(lambda: store.database.submit(add, "ada")) == 1 + is_answered


async def test_a_question_whose_outcome_is_unknown_is_dropped(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.store.store.MAINTAIN_SECONDS", 0.01)
    write_question = turns.write_question

    def write_and_cut(tx: Tx, **arguments: Any) -> Any:
        written = write_question(tx, **arguments)
        cut(tx, proxy, is_answered=True, refuses=True)
        return written

    async with opened(Store(database_of(proxy.url))) as store:
        await add_turn(store, "ada", "c")
        monkeypatch.setattr(turns, "write_question", write_and_cut)
        with pytest.raises(OutcomeUnknown):
            await store.write_question("ada", "c", question("Two", 2), ())
        monkeypatch.setattr(turns, "write_question", write_question)
        proxy.accept()
        await until(lambda: has_turns(store, 1))


async def has_turns(store: Store, number: int) -> bool:
    return len(await read_turns(store, "ada", "c")) == number


async def test_an_answer_that_cannot_be_written_is_written_later(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.store.store.MAINTAIN_SECONDS", 0.01)
    async with opened(Store(database_of(proxy.url))) as store:
        history = await store.write_question("ada", "c", question("One"), ())
        proxy.refuse()
        proxy.cut()
        with pytest.raises(StoreError) as caught:
            await store.end(history, answer("1"))
        assert caught.value.may_pass
        proxy.accept()
        await asyncio.wait_for(store.wait_written(history), WAIT_SECONDS)
        assert await read_turns(store, "ada", "c") == [("One", "1", "complete")]


async def test_reads_and_exports_survive_a_cut_connection(proxy: Proxy) -> None:
    async with opened(Store(database_of(proxy.url))) as store:
        for n in range(50):
            await add_turn(store, "ada", f"c{n}")
        proxy.cut()
        for n in range(20):  # in each thread
            assert len(await read_turns(store, "ada", f"c{n}")) == 1
            assert len(await store.list_conversations("ada", words="hello")) == 50
        attempts = 0

        def read(tx: Tx) -> int:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                cut(tx, proxy)
            return int(tx.execute("SELECT count(*) FROM exchange").fetchone()[0])

        assert (await store.read(read), attempts) == (50, 2)
        records = store.export("ada")
        await anext(records)
        proxy.cut()
        with pytest.raises(StoreError) as caught:
            async for _ in records:
                pass
        assert caught.value.may_pass
        assert len([record async for record in store.export("ada")]) == 102


@pytest.mark.parametrize("how", ["restarted", "killed"])
async def test_a_server_that_restarts_in_a_write_loses_nothing(postgresql_cluster: Cluster, how: str) -> None:
    async with opened(Store(database_of(postgresql_cluster.create_database("brain")))) as store:
        assert await store.database.submit(add, "ada") == 1
        attempts = 0

        def restart() -> None:
            if how == "killed":
                postgresql_cluster.kill()
                postgresql_cluster.start()
            else:
                postgresql_cluster.restart()

        def work(tx: Tx) -> int:
            nonlocal attempts
            attempts += 1
            add(tx)
            if attempts == 1:
                restart()
            return add(tx)

        assert await until(lambda: store.database.submit(work, "ada")) == 3
        assert await until(lambda: store.database.submit(add, "ada")) == 4
        assert await total(store) == 4
        restart()
        assert await until(lambda: store.database.submit(add, "ada")) == 5  # between two writes


async def is_usable(store: Store) -> bool:
    return await store.database.find_problem() is None


async def test_while_the_server_is_away_all_fails_for_now(postgresql_cluster: Cluster) -> None:
    async with opened(Store(database_of(postgresql_cluster.create_database("brain")))) as store:
        await add_turn(store, "ada", "c")
        assert await store.database.find_problem() is None
        postgresql_cluster.stop()
        attempts: list[Callable[[], Any]] = [
            lambda: store.write_question("ada", "d", question("One"), ()),
            lambda: store.write(items.put, "ada", fact("f", "I like jazz")),
            lambda: store.read(conversations.read_page, "ada", "c"),
            lambda: store.search(users.names),
            lambda: store.list_conversations("ada", words="hello"),
        ]
        for attempt in attempts:
            with pytest.raises(StoreError) as caught:
                await attempt()
            assert caught.value.may_pass
        problem = await until(store.database.find_problem)  # its last answer is reused for a second
        assert problem is not None
        assert "reached" in problem
        postgresql_cluster.start()
        await until(lambda: is_usable(store))
        assert await read_turns(store, "ada", "c") == [("Hello", "Hi", "complete")]


async def test_nothing_acknowledged_is_lost_and_nothing_is_written_twice(postgresql_cluster: Cluster) -> None:
    """Four users of two processes write without a pause, while the server is restarted, stopped and killed."""
    url = postgresql_cluster.create_database("brain")
    async with stores(url) as found:
        acknowledged, unknown = dict.fromkeys("abcd", 0), dict.fromkeys("abcd", 0)
        is_over = False

        async def write(store: Store, user: str) -> None:
            while not is_over:
                try:
                    await store.write(add, name=user) if user in "ab" else await store.write(add_for, user)
                    acknowledged[user] += 1
                except OutcomeUnknown:
                    unknown[user] += 1
                except StoreError as error:
                    if not error.may_pass:
                        raise
                    await asyncio.sleep(0)

        def add_for(tx: Tx, user: str) -> int:
            return add(tx, name=user)

        async def progress() -> None:
            before = dict(acknowledged)

            async def all_wrote() -> bool:
                return all(acknowledged[user] > before[user] + 20 for user in before)

            await until(all_wrote)

        writers = [asyncio.create_task(write(store, user)) for store, user in zip(found * 2, "abcd", strict=True)]
        for change in (postgresql_cluster.restart, postgresql_cluster.kill, postgresql_cluster.stop):
            await progress()
            await asyncio.to_thread(change)
            if change != postgresql_cluster.restart:
                await asyncio.to_thread(postgresql_cluster.start)
        await progress()
        is_over = True
        await asyncio.gather(*writers)
        for user in "abcd":
            assert acknowledged[user] <= await total(found[0], user) <= acknowledged[user] + unknown[user]


# announcements


async def test_a_change_of_another_process_is_announced(postgresql_store_url: str) -> None:
    async with stores(postgresql_store_url) as (store, other):
        heard = asyncio.Event()
        store.database.on_change = heard.set
        version = await store.database.data_version()
        with psycopg.connect(postgresql_store_url, autocommit=True) as spy:
            spy.execute("LISTEN brain")

            def wait_for(process: str) -> None:
                for notice in spy.notifies(timeout=WAIT_SECONDS):
                    if notice.payload == process:
                        return

            await store.write(add)
            await asyncio.to_thread(wait_for, store.database.process)
            await store.write_unsynced(add)
            await other.write(add)
            await asyncio.to_thread(wait_for, other.database.process)
        await asyncio.wait_for(heard.wait(), WAIT_SECONDS)
        assert await store.database.data_version() == store.database.known_version[0] == version + 1


async def test_a_change_is_announced_again_if_that_failed(postgresql_store_url: str) -> None:
    administrator = postgresql_store_url.replace("brain@", "postgres@", 1)
    notified = "datname = current_database() AND starts_with(query, 'SELECT pg_notify') AND state = 'idle'"
    asked = f"SELECT max(query_start) FROM pg_stat_activity WHERE {notified}"
    async with stores(postgresql_store_url) as (store, other):
        heard = asyncio.Event()
        other.database.on_change = heard.set
        ((opened_at,),) = query(administrator, asked)
        query(administrator, "REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC")
        await store.write(add)

        async def has_failed() -> bool:
            return bool(query(administrator, asked) != [(opened_at,)])

        await until(has_failed)
        assert not heard.is_set()
        query(administrator, "GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO PUBLIC")
        await asyncio.wait_for(heard.wait(), WAIT_SECONDS)


async def test_the_last_change_before_a_process_ends_is_announced(
    postgresql_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANNOUNCE_SECONDS", WAIT_SECONDS)
    async with stores(postgresql_store_url, 1) as (other,):
        heard = asyncio.Event()
        async with stores(postgresql_store_url, 1) as (store,):
            other.database.on_change = heard.set
            await store.write(add)
            await asyncio.wait_for(heard.wait(), WAIT_SECONDS)
            heard.clear()
            await store.write(add)
        await asyncio.wait_for(heard.wait(), WAIT_SECONDS)


async def test_a_process_listens_again_and_reports_what_it_may_have_missed(
    postgresql_store_url: str, proxy: Proxy
) -> None:
    async with opened(Store(database_of(proxy.url))) as store, stores(postgresql_store_url, 1) as (other,):
        heard = asyncio.Event()
        store.database.on_change = heard.set
        for _ in range(2):
            proxy.cut()
            await asyncio.wait_for(heard.wait(), WAIT_SECONDS)  # it listens again
            heard.clear()
            await other.write(add)
            await asyncio.wait_for(heard.wait(), WAIT_SECONDS)
            heard.clear()


@pytest.mark.pgbouncer
async def test_behind_pgbouncer_changes_are_looked_for(pgbouncer_url: str) -> None:
    async with stores(pgbouncer_url) as (store, other):
        assert store.database.known_version[1] < 0
        versions = [await store.database.data_version() for _ in range(3)]
        assert len(set(versions)) == 3
        for one in (store, other):
            await join(one)
        for n in range(12):  # more often than until statements are prepared
            history = await store.write_question("ada", "c", question(f"{n} tea", n), ())
            assert await store.write(turns.append, history, 1, turns.Appended("x", 1))
            await other.write(items.put, "ada", fact(f"f{n}", f"I like tea {n}"))
            await store.end(history, answer("Fine", n))
            assert len(await other.list_conversations("ada", words="tea")) == 1
            assert len(await store.read(items.list_items, "ada", words="tea")) == n + 1
        begun = await asyncio.gather(
            *(one.write_question("eve", "c", question("Hi"), ()) for one in (store, other)), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in begun) == ["ConversationBusy", "History"]


# values


async def test_a_text_with_a_nul_is_an_error_that_quotes_nothing(store: Store) -> None:
    for _ in range(20):  # in each thread, several times
        for work in (store.write, store.read):
            with pytest.raises(StoreError) as caught:
                await work(lambda tx: tx.execute("SELECT 1 FROM account WHERE name = ?", ("secret\0",)).fetchall())
            assert "secret" not in str(caught.value)
            assert caught.value.__suppress_context__
            assert not caught.value.may_pass
    await add_turn(store, "ada", "c")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_url_with_another_encoding_stores_all_characters(postgresql_store_url: str, encoding: str) -> None:
    url = f"{postgresql_store_url}?client_encoding={encoding}"
    async with opened(Store(database_of(url))) as store:
        await add_turn(store, "ada", "c", "☃ 漢字")
        assert [message for message, _, _ in await read_turns(store, "ada", "c")] == ["☃ 漢字"]


async def test_errors_quote_nothing_that_is_stored_or_looked_for(store: Store) -> None:
    await store.write(items.put, "ada", fact("f1", "secret"))
    statements = (
        "SELECT to_tsquery('brain', 'secret & (')",
        "SELECT CAST(text AS BIGINT) FROM item",
        "INSERT INTO server_value VALUES ('secret', 'a'), ('secret', 'b')",
        "SELECT secret FROM item",
    )
    for statement in statements:
        with pytest.raises(StoreError) as caught:
            await store.write(lambda tx, statement=statement: tx.execute(statement).fetchall())  # type: ignore[misc]
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__


async def test_every_term_of_the_index_begins_with_its_owner(store: Store) -> None:
    characters = "".join(map(chr, (*range(1, 0xD800), *range(0xE000, 0x11000))))
    texts = [characters[n : n + 2000] for n in range(0, len(characters), 2000)]
    texts += ["I'd e-mail x.y@example.org", "3.5 -7 1e9 v1.2.3 R2-D2", "https://example.org/a?b=c /usr/bin <b>&amp;"]
    for text in texts:
        assert await store.read(foreign_lexemes, full_text.index_terms("7q", text)) == []


def foreign_lexemes(tx: Tx, terms: str) -> list[Any]:
    found = tx.execute("SELECT lexeme FROM unnest(to_tsvector('brain', ?))", (terms,)).fetchall()
    return [lexeme for (lexeme,) in found if not lexeme.startswith("7q")]


# upgrades


class Upgrade:
    """A version after this one, whose tables have one more column and then one less."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.old = schema.VERSION

    def be(self, version: int, *before: str) -> None:
        """Be a process of another version from now on."""
        for module in (schema, processes):
            self._patch.setattr(module, "VERSION", version)
        add = "ALTER TABLE account ADD COLUMN added BIGINT NOT NULL DEFAULT 7"
        migration = tables.Migration((add, *before), ("ALTER TABLE blocked DROP COLUMN place",))
        self._patch.setattr(tables, "MIGRATIONS", {self.old + 1: migration})

    def versions(self, url: str) -> tuple[int, int]:
        """The newest version that has opened the database, and the oldest one that can still use it."""
        ((version, oldest),) = query(url, "SELECT version, oldest FROM schema_version")
        return version - self.old, oldest - self.old


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    return Upgrade(monkeypatch)


def has_columns(url: str) -> tuple[bool, bool]:
    found = query(
        url,
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE (table_name, column_name) IN (('account', 'added'), ('blocked', 'place'))",
    )
    return ("account", "added") in found, ("blocked", "place") in found


async def test_old_and_new_processes_work_side_by_side_until_the_last_old_one_ends(
    postgresql_store_url: str, upgrade: Upgrade
) -> None:
    url = postgresql_store_url
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(opened(Store(database_of(url))))
        await join(old)
        history = await old.write_question("ada", "c", question("One"), ())
        upgrade.be(upgrade.old + 1)
        new = await stack.enter_async_context(opened(Store(database_of(url))))
        await join(new)
        assert (upgrade.versions(url), has_columns(url)) == ((1, 0), (True, True))
        await old.end(history, answer("1"))
        await add_turn(new, "eve", "c")
        await add_turn(old, "bob", "c")
        await new.sweep()
        assert (upgrade.versions(url), has_columns(url)) == ((1, 0), (True, True))
        upgrade.be(upgrade.old)  # which can still join
        async with opened(Store(database_of(url))) as another:
            await add_turn(another, "bob", "d")
        upgrade.be(upgrade.old + 1)
        await old.write(processes.remove)
        await new.sweep()
        assert (upgrade.versions(url), has_columns(url)) == ((1, 1), (True, False))
        for user in ("ada", "bob", "eve"):
            assert len(await read_turns(new, user, "c")) == 1
        upgrade.be(upgrade.old)
        with pytest.raises(StoreError, match="newer version"):
            await open_store(url)


async def test_two_new_processes_that_open_at_once_change_the_tables_once(
    postgresql_store_url: str, upgrade: Upgrade
) -> None:
    upgrade.be(upgrade.old + 1)
    found = [Store(database_of(postgresql_store_url)) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in found))
    await asyncio.gather(*(store.sweep() for store in found))
    await asyncio.gather(*(store.close() for store in found))
    assert (upgrade.versions(postgresql_store_url), has_columns(postgresql_store_url)) == ((1, 1), (True, False))


async def test_two_processes_that_open_an_empty_database_at_once_create_the_tables_once(postgresql_url: str) -> None:
    found = [Store(database_of(postgresql_url)) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in found))
    for store in found:
        await add_turn(store, "ada", store.database.process)
    assert len(await found[0].list_conversations("ada")) == 4
    await asyncio.gather(*(store.close() for store in found))


async def test_an_upgrade_waits_for_an_export(postgresql_store_url: str, upgrade: Upgrade) -> None:
    async with opened(Store(database_of(postgresql_store_url))) as old:
        for n in range(50):
            await add_turn(old, "ada", f"c{n}")
        records = old.export("ada")
        await anext(records)
        upgrade.be(upgrade.old + 1)
        new = Store(database_of(postgresql_store_url))
        opening = asyncio.create_task(new.open())
        assert await until(lambda: count_waiting(postgresql_store_url)) == 1
        await add_turn(old, "ada", "new")
        assert not opening.done()
        assert len([record async for record in records]) > 100
        await opening
        await new.close()


UPGRADE = """
import asyncio, sys
sys.path[:0] = ["tests", "tests/store"]
import pytest
from test_postgresql import Upgrade
from brain.store import open_store
upgrade = Upgrade(pytest.MonkeyPatch())
upgrade.be(upgrade.old + 1, "SELECT pg_advisory_xact_lock(7)")
asyncio.run(open_store(sys.argv[1]))
"""


async def test_an_upgrade_whose_process_is_killed_is_done_again(postgresql_store_url: str, upgrade: Upgrade) -> None:
    url = postgresql_store_url
    with psycopg.connect(url) as lock:
        lock.execute("SELECT pg_advisory_xact_lock(7)")
        command = [sys.executable, "-c", UPGRADE, url]
        with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:  # noqa: ASYNC220 - it is killed
            assert await until(lambda: count_waiting(url)) == 1
            process.kill()
    assert (upgrade.versions(url), has_columns(url)) == ((0, 0), (False, True))
    upgrade.be(upgrade.old + 1)
    async with opened(Store(database_of(url))) as store:
        await add_turn(store, "ada", "c")
        await store.sweep()
    assert (upgrade.versions(url), has_columns(url)) == ((1, 1), (True, False))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@host:5433/brain", "postgresql://ada@host:5433/brain"),
        ("postgres://ada@host/brain?password=secret&sslmode=require", "postgresql://ada@host/brain"),
        ("postgresql:///brain", "postgresql://localhost/brain"),
        ("postgresql://ada:secret@host/brain?secret=1", None),
        ("postgresql://ada:secret@[::1/brain", None),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str | None) -> None:
    if shown is None:
        with pytest.raises(StoreError) as caught:
            database_of(url)
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__
    else:
        assert database_of(url).place == shown


def test_a_missing_driver_is_an_error_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "brain.store.postgresql.database")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=re.escape(install_command("postgres"))):
        database_of("postgresql://brain@localhost/brain")
