"""Imports and deletions are never seen half done, let others write meanwhile, and leave nothing behind."""

import asyncio
import io
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from store_helpers import NOON, TOMORROW, Clock, add_turn, fact, file, read_turns

from brain.errors import StoreError
from brain.messages import Kind
from brain.runtime import import_sanitizer
from brain.store import conversations, deletion, items, transfer, users, vectors
from brain.store.store import Store
from brain.store.tx import Tx
from brain.store.users import Counts

pytestmark = pytest.mark.anyio

BOTH: tuple[Kind, ...] = ("fact", "memory")
NOW = NOON.isoformat()
WHOLE = Counts(conversations=1, messages=200, files=1, facts=100)
TABLES = ("conversation", "exchange", "file", "item", "exchange_words", "item_words", "account", "import")


def export(exchanges: int = 100, facts: int = 100) -> Iterator[dict[str, Any]]:
    yield {"kind": "brain", "version": 2}
    yield {"kind": "conversation", "id": "c", "title": "Music", "created": NOW}
    yield {"kind": "file", "conversation": "c", "id": 1, "name": "a.txt", "type": "text/plain", "data": "eA=="}
    for n in range(exchanges):
        yield {
            "kind": "exchange", "conversation": "c", "question_id": f"q{n}", "answer_id": f"a{n}",
            "message": "I like jazz", "question": "I like jazz", "started": NOW, "outcome": "complete",
            "files": [] if n else [1], "parts": [{"type": "text", "text": "Fine", "turn_pass": 1}],
        }  # fmt: skip
    for n in range(facts):
        link = {"conversation_id": "c", "message_id": f"q{n}"} if n < exchanges else {}
        yield {
            "kind": "item", "type": "fact", "id": f"f{n}", "text": "I like jazz", "created": NOW, "updated": NOW, **link
        }  # fmt: skip


class SlowImport:
    """An import whose transactions a test makes one by one, as if its process were slow, or killed."""

    def __init__(self, store: Store, records: Iterable[dict[str, Any]]) -> None:
        self._store, self._records, self._lines = store, records, io.BytesIO()
        self._import = transfer.Import("ada", self._lines, import_sanitizer)
        self.end_in = self._import.end

    async def begin(self, transactions: int) -> "SlowImport":
        await transfer.check(self._records, self._lines)
        self._lines.seek(0)
        await self._store.write(self._import.begin)
        for _ in range(transactions):
            assert await self.take()
        return self

    async def take(self) -> bool:
        return await self._store.write(self._import.insert_some)

    async def end(self) -> Counts:
        return await self._store.write(self._import.end)

    async def is_refused(self) -> bool:
        """Whether it can neither continue nor end."""
        outcomes = [await asyncio.gather(work, return_exceptions=True) for work in (self.take(), self.end())]
        return [type(outcome) for (outcome,) in outcomes] == [StoreError] * 2


async def rows(store: Store) -> dict[str, int]:
    """How many rows there are of any user, visible or not."""

    def count(tx: Any) -> dict[str, int]:
        found = {table: tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
        return {table: number for table, number in found.items() if number}

    return await store.read(count)


async def everything(store: Store) -> list[object]:
    """What anybody can see of a user."""
    return [
        await store.search(users.names),
        await store.search(users.count, "ada"),
        await store.list_conversations("ada"),
        await store.list_conversations("ada", words="jazz"),
        await store.read(conversations.read_page, "ada", "c"),
        await store.read(conversations.recent, "ada", 5),
        await store.read(items.list_items, "ada", limit=5),
        await store.read(items.list_items, "ada", words="jazz", limit=5),
        await store.read(items.search, "ada", "jazz", kinds=BOTH, limit=5),
        await store.search(vectors.lacking, "m", 5),
        await store.write_unsynced(conversations.claim_idle, TOMORROW, 5),
        [record["kind"] async for record in store.export("ada")],
    ]


NOTHING: list[object] = [[], Counts(), [], [], None, [], [], [], [], [], [], ["brain", "preferences"]]


async def test_an_import_is_seen_when_all_of_it_is_there(store: Store) -> None:
    slow = await SlowImport(store, export()).begin(3)
    assert (await rows(store))["item"] > 0
    assert await everything(store) == NOTHING
    while await slow.take():
        assert await everything(store) == NOTHING
    assert [await slow.end(), await store.search(users.count, "ada")] == [WHOLE, WHOLE]
    assert len(await store.list_conversations("ada", words="jazz")) == 1
    found = await store.read(items.search, "ada", "jazz", kinds=BOTH, limit=500)
    assert len(found) == 100
    assert {(item.conversation_id, item.message_id) for item, _ in found} == {("c", f"q{n}") for n in range(100)}


async def test_nothing_is_left_of_an_import_whose_process_was_killed(store: Store, clock: Clock) -> None:
    await SlowImport(store, export()).begin(3)
    await store.sweep()
    assert (await rows(store))["item"] > 0
    clock.advance(seconds=60)
    await store.sweep()
    assert await rows(store) == {}


@pytest.mark.parametrize("seconds", [60, -3_600])
async def test_an_import_that_counts_as_dead_cannot_continue(store: Store, clock: Clock, seconds: int) -> None:
    slow = await SlowImport(store, export()).begin(3)
    clock.advance(seconds=seconds)
    await store.sweep()
    assert await slow.is_refused()
    assert await rows(store) == {}


async def test_the_end_of_an_import_can_be_repeated(store: Store) -> None:
    records = [*export(9, 0), *({**record, "id": "d"} for record in export(9, 0) if record["kind"] == "conversation")]
    records += [{**record, "conversation": "d"} for record in export(9, 0) if "conversation" in record]
    slow = await SlowImport(store, records).begin(1)
    while await slow.take():
        pass

    def undo(tx: Tx) -> None:
        slow.end_in(tx)
        raise StoreError("The connection is lost.")

    with pytest.raises(StoreError, match="lost"):
        await store.write(undo)
    assert await slow.end() == Counts(conversations=2, messages=36, files=2)
    assert [one.id for one in await store.list_conversations("ada")] == ["d", "c"]
    assert len(await store.write_unsynced(conversations.claim_idle, TOMORROW, 5)) == 2


async def test_an_import_for_a_user_who_was_erased_cannot_continue(store: Store) -> None:
    slow = await SlowImport(store, export()).begin(1)
    await store.forget("ada")
    assert await slow.is_refused()


async def test_what_came_to_exist_during_an_import_stays(store: Store) -> None:
    slow = await SlowImport(store, export()).begin(1)
    await add_turn(store, "ada", "c", "Mine")
    await store.write(items.put, "ada", fact("f3", "I like rock"))
    while await slow.take():
        pass
    assert await slow.end() == Counts(facts=99)
    await store.sweep()
    assert await read_turns(store, "ada", "c") == [("Mine", "Hi", "complete")]
    assert [one.text for one in await store.read(items.list_items, "ada", limit=200) if one.id == "f3"] == [
        "I like rock"
    ]
    assert len(await store.list_conversations("ada", words="mine")) == 1
    expected = {"conversation": 1, "exchange": 1, "exchange_words": 1, "item": 100, "item_words": 100, "account": 1}
    assert await rows(store) == expected
    sizes = "SELECT (SELECT bytes FROM account), (SELECT sum(bytes) FROM item) + (SELECT sum(bytes) FROM conversation)"
    ((counted, summed),) = await store.read(lambda tx: tx.execute(sizes).fetchall())
    assert counted == summed


async def test_turns_run_while_somebody_imports(store: Store) -> None:
    has_read = asyncio.Event()

    def records() -> Iterator[dict[str, Any]]:
        yield from export(1_000)
        has_read.set()

    importing = asyncio.create_task(store.import_user("ada", records(), import_sanitizer))
    await has_read.wait()
    for number in (1, 2):
        await add_turn(store, "bob", "d", number=number)
        assert not importing.done()
    await importing
    assert (await store.search(users.count, "ada")).messages == 2_000


async def test_a_long_conversation_is_hidden_at_once_and_removed_in_small_steps(store: Store) -> None:
    await store.import_user("ada", export(300, 5), import_sanitizer)
    await add_turn(store, "ada", "d", "I like jazz", files=[file(b"x")])
    assert len(await store.list_conversations("ada", words="jazz")) == 2
    key = await store.write(conversations.delete, "ada", "c")
    assert [one.id for one in await store.list_conversations("ada", words="jazz")] == ["d"]
    assert await store.search(users.count, "ada") == Counts(conversations=1, messages=2, files=1, facts=5)
    assert {item.conversation_id for item in await store.read(items.list_items, "ada")} == {None}
    assert (await rows(store))["exchange"] == 301
    steps = 0

    def remove(tx: Tx) -> bool:
        nonlocal steps
        steps += 1
        return deletion.remove_some(tx, conversation=key)

    await store.database.write_in_steps(remove)
    assert steps > 300 / deletion.REMOVED_ROWS
    assert (await rows(store))["exchange"] == 1
    await store.write(conversations.delete, "ada", "d")
    await store.sweep()
    assert await rows(store) == {"item": 5, "item_words": 5, "account": 1}


async def test_an_erased_user_is_gone_at_once(store: Store) -> None:
    await store.import_user("ada", export(), import_sanitizer)
    assert await store.write(conversations.delete_user, "ada") == WHOLE
    assert await everything(store) == NOTHING
    await add_turn(store, "ada", "c", "Anew")
    assert len(await store.list_conversations("ada", words="anew")) == 1
    await store.sweep()
    assert await rows(store) == {"conversation": 1, "exchange": 1, "exchange_words": 1, "account": 1}
