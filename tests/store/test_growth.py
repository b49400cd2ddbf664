"""What the store does for one thing stays the same, or grows no faster than that thing, however much is stored.

Work is counted, in instructions of SQLite's virtual machine and of Python's, and never timed.
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from stores import NOON, kept

from brain.messages import Kind
from brain.runtime import import_sanitizer
from brain.store import connection, conversations, items, schema, transfer
from brain.store.sqlite import SQLite

BOTH: tuple[Kind, ...] = ("fact", "memory")
NOW = NOON.isoformat()


def run(path: Path | None, test: Callable[[SQLite], Awaitable[None]]) -> None:
    async def main() -> None:
        async with kept(path) as store:
            await test(store)

    asyncio.run(main())


def facts(texts: list[str], category: str = "general") -> Iterator[dict[str, Any]]:
    yield {"kind": "brain", "version": 1}
    for number, text in enumerate(texts):
        yield {
            "kind": "item", "type": "fact", "id": f"f{number}", "text": text, "category": category, "created": NOW,
            "updated": NOW,
        }  # fmt: skip


def talks(count: int, said: str = "I like jazz", name: str = "c") -> Iterator[dict[str, Any]]:
    yield {"kind": "brain", "version": 1}
    for n in range(count):
        yield {"kind": "conversation", "id": f"{name}{n}", "title": "Music", "created": NOW}
        yield {
            "kind": "exchange", "conversation": f"{name}{n}", "question_id": "q", "answer_id": "a", "said": said,
            "question": said, "asked": NOW, "outcome": "complete", "parts": [],
        }  # fmt: skip


async def steps(store: SQLite, work: Callable[[], Awaitable[object]]) -> int:
    """How many instructions SQLite executes for something, on any connection of the store."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    for opened in store._database._connections:
        opened.set_progress_handler(step, 1)
    await work()
    for opened in store._database._connections:
        opened.set_progress_handler(None, 1)
    return count


def instructions(work: Callable[[], object]) -> int:
    """How many instructions Python executes for something, in this thread."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_facts_are_recalled_with_the_same_work_however_many_others_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(items, "COUNTED_MOST", 50)
    costs = []

    async def test(texts: list[str], store: SQLite) -> None:
        await store.import_user("ada", facts(texts), import_sanitizer)

        async def look() -> None:
            found = await store.search_words("ada", "cycling in Bergen", kinds=BOTH, limit=30)
            assert [item.id for item, _ in found] == [f"f{number}" for number in range(20)]
            assert await store.items("ada", kind="fact", category="personal", limit=9) == []

        await look()
        costs.append(await steps(store, look))

    for others in (100, 1_000):
        texts = ["I went cycling in Bergen"] * 20 + ["My neighbour grows tomatoes"] * others
        run(tmp_path / f"{others}.db", partial(test, texts))
    assert costs[1] < 1.5 * costs[0]


def test_an_import_of_facts_takes_work_for_each_of_them_once() -> None:
    costs = []
    for count in (100, 800):
        lines = [json.dumps(record).encode() for record in facts(["I like tea"] * count)]
        with closing(connection.connected(None)) as db:
            schema.migrate(db)

            def import_user(db: sqlite3.Connection = db, lines: list[bytes] = lines) -> None:
                incoming = transfer.Import("ada", lines, import_sanitizer)
                incoming.begin(db, 0)
                while incoming.take(db, 0):
                    pass
                incoming.end(db, 0)

            costs.append(instructions(import_user) / count)
    assert costs[1] < 1.1 * costs[0]


def test_a_frequent_word_is_found_with_the_same_work_however_many_conversations_have_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(conversations, "FREQUENT", 50)
    costs = []

    async def test(count: int, store: SQLite) -> None:
        await store.import_user("ada", talks(count), import_sanitizer)

        async def look() -> None:
            found = await store.conversations("ada", words="jazz", limit=20)
            assert [heading.id for heading in found] == [f"c{n}" for n in range(count - 1, count - 21, -1)]
            assert "jazz" in found[0].excerpt

        await look()
        costs.append(await steps(store, look))

    for count in (100, 800):
        run(tmp_path / f"{count}.db", partial(test, count))
    assert costs[1] < 1.5 * costs[0]


def test_frequent_words_are_found_wherever_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(conversations, "FREQUENT", 10)
    monkeypatch.setattr(conversations, "NEWEST_SEARCHED", 30)

    async def test(store: SQLite) -> None:
        await store.import_user("ada", talks(100), import_sanitizer)
        await store.import_user("ada", talks(60, "I like chess", "d"), import_sanitizer)  # which are newer
        for words in ("jazz", "jazz like", "jazz tuba", "ja"):
            found, before = list[str](), None
            while page := await store.conversations("ada", words=words, before=before, limit=15):
                found += [heading.id for heading in page]
                before = found[-1]
            assert found == [f"c{n}" for n in range(99, -1, -1)], words

    run(tmp_path / "brain.db", test)
