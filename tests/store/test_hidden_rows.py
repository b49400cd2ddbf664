"""What is imported or deleted in small steps: nobody sees half of it, others write meanwhile, nothing is left."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from stores import NOON, Clock, fact, file, kept, said, turn

from brain.errors import StoreError
from brain.messages import Counts, Kind
from brain.runtime import import_sanitizer
from brain.store import conversations, hidden, transfer
from brain.store.sqlite import SQLite

BOTH: tuple[Kind, ...] = ("fact", "memory")
NOW = NOON.isoformat()
TABLES = ("conversation", "exchange", "file", "item", "exchange_words", "item_words")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "brain.db"


def run(path: Path | None, test: Callable[[SQLite], Awaitable[None]], clock: Clock | None = None) -> None:
    async def main() -> None:
        async with kept(path, clock) as store:
            await test(store)

    asyncio.run(main())


def export(exchanges: int = 100, facts: int = 100) -> Iterator[dict[str, Any]]:
    yield {"kind": "brain", "version": 1}
    yield {"kind": "conversation", "id": "c", "title": "Music", "created": NOW}
    yield {"kind": "file", "conversation": "c", "id": 1, "name": "a.txt", "type": "text/plain", "data": "eA=="}
    for n in range(exchanges):
        yield {
            "kind": "exchange", "conversation": "c", "question_id": f"q{n}", "answer_id": f"a{n}",
            "said": "I like jazz", "question": "I like jazz", "asked": NOW, "outcome": "complete",
            "files": [] if n else [1], "parts": [{"kind": "said", "text": "Fine", "turn_pass": 1}],
        }  # fmt: skip
    for n in range(facts):
        link = {"conversation": "c", "message": f"q{n}"} if n < exchanges else {}
        yield {
            "kind": "item", "type": "fact", "id": f"f{n}", "text": "I like jazz", "created": NOW, "updated": NOW, **link
        }  # fmt: skip


async def begun(store: SQLite, records: Iterable[dict[str, Any]], transactions: int) -> transfer.Import:
    """An import that got so far and no further, as if its process had been killed."""
    incoming = transfer.Import("ada", iter([json.dumps(record).encode() for record in records]), import_sanitizer)
    await store._database.write(lambda db: incoming.begin(db, store._now()))
    for _ in range(transactions):
        assert await store._database.write(lambda db: incoming.take(db, store._now()))
    return incoming


async def rows(store: SQLite) -> dict[str, int]:
    """How many rows there are of anybody, seen or not."""

    def count(db: Any) -> dict[str, int]:
        found = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in (*TABLES, "user")}
        return {table: number for table, number in found.items() if number}

    return await store._database.read(count)


async def see(store: SQLite, user: str = "ada") -> list[object]:
    """What anybody sees of a user."""
    return [
        user in await store.users(),
        await store.count(user),
        [heading.id for heading in await store.conversations(user)],
        [heading.id for heading in await store.conversations(user, words="jazz")],
        await store.conversation(user, "c"),
        await store.recent(user, 5),
        await store.items(user, limit=5),
        await store.items(user, words="jazz", limit=5),
        await store.search_words(user, "jazz", kinds=BOTH, limit=5),
        await store.without_vector("m", 5),
        await store.claim_idle(NOON + timedelta(days=9), 5),
        [record["kind"] async for record in store.export(user)],
    ]


NOTHING: list[object] = [False, Counts(), [], [], None, [], [], [], [], [], [], ["brain", "preferences"]]


def test_what_is_imported_is_seen_when_all_of_it_is_there(path: Path) -> None:
    async def test(store: SQLite) -> None:
        incoming = await begun(store, export(), 3)
        assert (await rows(store))["item"] > 0
        assert await see(store) == NOTHING
        while await store._database.write(lambda db: incoming.take(db, store._now())):
            assert await see(store) == NOTHING
        whole = Counts(conversations=1, messages=200, files=1, facts=100)
        assert await store._database.write(lambda db: incoming.end(db, store._now())) == whole
        assert await store.count("ada") == whole
        assert len(await store.conversations("ada", words="jazz")) == 1
        found = await store.search_words("ada", "jazz", kinds=BOTH, limit=500)
        assert len(found) == 100
        assert {(item.conversation_id, item.message_id) for item, _ in found} == {("c", f"q{n}") for n in range(100)}

    run(path, test)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_of_an_import_whose_process_was_killed_nothing_is_left(path: Path, is_restarted: bool) -> None:
    clock = Clock()

    async def test(store: SQLite) -> None:
        await begun(store, export(), 3)
        await store._leftovers.sweep()
        assert (await rows(store))["item"] > 0
        if not is_restarted:
            clock.now += 60
            await store._leftovers.sweep()
            assert await rows(store) == {}

    async def look(store: SQLite) -> None:
        await store._leftovers.sweep()
        assert await rows(store) == {}

    run(path, test, clock)
    run(path, look, clock)


@pytest.mark.parametrize("seconds", [60, -3_600])
def test_an_import_that_was_taken_for_dead_does_not_go_on(path: Path, seconds: int) -> None:
    clock = Clock()

    async def test(store: SQLite) -> None:
        incoming = await begun(store, export(), 3)
        clock.now += seconds
        ((user,),) = await store._database.read(lambda db: [hidden.dead(db, store._now())])
        assert await store._database.write(lambda db: hidden.remove_some(db, user))
        for work in (incoming.take, incoming.end):
            with pytest.raises(StoreError, match="stood still for too long"):
                await store._database.write(lambda db, work=work: work(db, store._now()))  # type: ignore[misc]
        await store._leftovers.sweep()
        assert await rows(store) == {}

    run(path, test, clock)


def test_turns_get_their_turn_while_somebody_imports(path: Path) -> None:
    async def test(store: SQLite) -> None:
        read = asyncio.Event()

        def records() -> Iterator[dict[str, Any]]:
            yield from export(3_000)
            read.set()

        task = asyncio.create_task(store.import_user("ada", records(), import_sanitizer))
        await read.wait()
        await turn(store, "bob", "d")
        assert not task.done()
        await turn(store, "bob", "d", number=2)
        assert not task.done()
        await task
        assert (await store.count("ada")).messages == 6_000

    run(path, test)


def test_what_came_to_be_there_during_an_import_stays(path: Path) -> None:
    async def test(store: SQLite) -> None:
        incoming = await begun(store, export(), 1)
        await turn(store, "ada", "c", "Mine")
        await store.put("ada", fact("f3", "I like rock"))
        while await store._database.write(lambda db: incoming.take(db, store._now())):
            pass
        counts = await store._database.write(lambda db: incoming.end(db, store._now()))
        assert counts == Counts(facts=99)
        await store._leftovers.sweep()
        assert await said(store, "ada", "c") == [("Mine", "Hi", "complete")]
        assert [one.text for one in await store.items("ada", limit=200) if one.id == "f3"] == ["I like rock"]
        expected = {"conversation": 1, "exchange": 1, "exchange_words": 1, "item": 100, "item_words": 100, "user": 1}
        assert await rows(store) == expected
        sizes = "SELECT (SELECT bytes FROM user), (SELECT sum(bytes) FROM item) + (SELECT sum(bytes) FROM conversation)"
        ((counted, summed),) = await store._database.read(lambda db: db.execute(sizes).fetchall())
        assert counted == summed

    run(path, test)


def test_who_is_erased_during_an_import_gets_nothing_of_it(path: Path) -> None:
    async def test(store: SQLite) -> None:
        incoming = await begun(store, export(), 1)
        await store.forget("ada")
        for work in (incoming.take, incoming.end):
            with pytest.raises(StoreError, match="its user was erased"):
                await store._database.write(lambda db, work=work: work(db, store._now()))  # type: ignore[misc]

    run(path, test)


def test_a_long_conversation_is_deleted_at_once_and_removed_in_small_steps(path: Path) -> None:
    clock = Clock()

    async def delete(store: SQLite) -> None:
        await store.import_user("ada", export(300, 5), import_sanitizer)
        await turn(store, "ada", "d", "I like jazz", files=[file(b"x")])
        commits: list[str] = []
        store._database._connections[0].set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        deleted = await store._database.write(lambda db: conversations.delete(db, "ada", "c", store._leases.lease))
        assert deleted is not None
        assert [one.id for one in await store.conversations("ada", words="jazz")] == ["d"]
        assert await store.count("ada") == Counts(conversations=1, messages=2, files=1, facts=5)
        assert {item.conversation_id for item in await store.items("ada")} == {None}
        assert (await rows(store))["exchange"] == 301
        assert await store._leftovers.remove(deleted)
        assert len(commits) > 300 / hidden.REMOVED_ROWS
        assert (await rows(store))["exchange"] == 1
        deleted = await store._database.write(lambda db: conversations.delete(db, "ada", "d", store._leases.lease))

    async def look(store: SQLite) -> None:
        await store._leftovers.sweep()
        assert await rows(store) == {"item": 5, "item_words": 5, "user": 1}

    run(path, delete, clock)
    run(path, look, clock)


def test_a_user_who_is_forgotten_is_gone_at_once(path: Path) -> None:
    async def test(store: SQLite) -> None:
        await store.import_user("ada", export(), import_sanitizer)
        counts, _ = await store._database.write(lambda db: conversations.delete_user(db, "ada", store._leases.lease))
        assert counts == Counts(conversations=1, messages=200, files=1, facts=100)
        assert await see(store) == NOTHING
        await turn(store, "ada", "c", "Anew")
        await store._leftovers.sweep()
        assert await rows(store) == {"conversation": 1, "exchange": 1, "exchange_words": 1, "user": 1}

    run(path, test)
