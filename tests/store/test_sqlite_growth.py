"""Work for one thing does not grow with how much is stored. It is counted in SQLite's instructions, never timed."""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from store_helpers import NOON, TOMORROW, add_turn, fact, store_at

from brain.runtime import import_sanitizer
from brain.store import conversations, items, tasks, turns, vectors
from brain.store.store import Store
from brain.store.vectors import ItemEmbedding

pytestmark = pytest.mark.anyio

NOW = NOON.isoformat()
HEAD = {"kind": "brain", "version": 2}


def facts(texts: list[str]) -> Iterator[dict[str, Any]]:
    yield HEAD
    for number, text in enumerate(texts):
        yield {"kind": "item", "type": "fact", "id": f"f{number}", "text": text, "category": "general",
               "created": NOW, "updated": NOW}  # fmt: skip


def talks(count: int, message: str = "I like jazz", name: str = "c") -> Iterator[dict[str, Any]]:
    yield HEAD
    for n in range(count):
        yield {"kind": "conversation", "id": f"{name}{n}", "title": "Music", "created": NOW}
        yield {"kind": "exchange", "conversation": f"{name}{n}", "question_id": "q", "answer_id": "a",
               "message": message, "question": message, "started": NOW, "outcome": "complete"}  # fmt: skip


async def steps(connections: Sequence[sqlite3.Connection], work: Callable[[], Awaitable[object]]) -> int:
    """How many instructions SQLite executes for something, on any of these connections."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    await work()
    for db in connections:
        db.set_progress_handler(step, 1)
    await work()
    for db in connections:
        db.set_progress_handler(None, 1)
    return count


async def test_recall_takes_the_same_work_however_many_other_facts_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connections: list[sqlite3.Connection]
) -> None:
    monkeypatch.setattr(items, "MAX_COUNTED", 50)
    costs = []
    for others in (100, 1_000):
        async with store_at(tmp_path / f"{others}.db") as store:
            texts = ["I went cycling in Bergen"] * 20 + ["My neighbour grows tomatoes"] * others
            await store.import_user("ada", facts(texts), import_sanitizer)

            async def search(store: Store = store) -> None:
                found = await store.read(items.search, "ada", "cycling in Bergen", kinds=("fact", "memory"), limit=30)
                assert [item.id for item, _ in found] == [f"f{number}" for number in range(20)]
                assert await store.read(items.list_items, "ada", kind="fact", category="personal", limit=9) == []

            costs.append(await steps(connections[-3:], search))
    assert costs[1] < 1.5 * costs[0]


async def test_a_frequent_word_takes_the_same_work_however_many_conversations_have_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connections: list[sqlite3.Connection]
) -> None:
    monkeypatch.setattr(conversations, "FREQUENT", 50)
    costs = []
    for count in (100, 800):
        async with store_at(tmp_path / f"{count}.db") as store:
            await store.import_user("ada", talks(count), import_sanitizer)
            newest = [f"c{n}" for n in range(count - 1, count - 21, -1)]

            async def search(store: Store = store, newest: list[str] = newest) -> None:
                found = await store.list_conversations("ada", words="jazz", limit=20)
                assert [one.id for one in found] == newest
                assert "jazz" in found[0].excerpt

            costs.append(await steps(connections[-3:], search))
    assert costs[1] < 1.5 * costs[0]


async def test_running_turns_and_recalled_facts_are_found_by_their_indexes(
    path: Path, connections: list[sqlite3.Connection]
) -> None:
    plans: list[str] = []
    async with store_at(path) as store:
        connections[0].set_trace_callback(plans.append)
        await add_turn(store, "ada", "c")
        await store.delete("ada", "c")
        await store.write(items.put, "ada", fact("f1", "I like jazz"))
        await store.write(items.erase, "ada", "f1")
        await store.write(conversations.claim_idle, TOMORROW, 1)
        await store.write(turns.has_orphans, continues=True)
        await store.write(turns.claim, 9, continues=True)
        await store.write(turns.find_request, "ada", "r1")
        await store.write(tasks.recover)
        connections[0].set_trace_callback(None)
        await store.list_conversations("ada")
    found = {}
    with closing(sqlite3.connect(path)) as db:
        for name, filtered in (
            ("exchange_unindexed", "unindexed = 1"),
            ("exchange_recalled", "recalled_ids <> '[]'"),
            ("exchange_request", "e.request ="),
            ("draft_exchange", "FROM draft"),
            ("task_state", "state = 'running'"),
        ):
            for plan in plans:
                if filtered in plan and plan.startswith(("SELECT", "UPDATE", "DELETE")):
                    steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {plan}")]
                    found[plan] = any(f"INDEX {name}" in step for step in steps)
    assert len(found) >= 8
    assert [plan for plan, is_fast in found.items() if not is_fast] == []


async def test_items_with_vectors_are_skipped_when_vectors_are_made(
    connections: list[sqlite3.Connection], file_store: Store
) -> None:
    await file_store.import_user("ada", facts([f"{n}" for n in range(299)]), import_sanitizer)
    await file_store.write_unsynced(
        vectors.write, [("ada", f"f{n}", f"{n}", ItemEmbedding([1.0])) for n in range(299)], "m"
    )
    await file_store.write(items.put, "ada", fact("new", "new"))

    async def search() -> None:
        assert [item.id for _, item in await file_store.search(vectors.lacking, "m", 32)] == ["new"]

    assert await steps(connections, search) < 300
