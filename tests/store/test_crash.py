"""Processes are killed at any instruction, and several use one file: nothing that was acknowledged is lost or mixed.

BRAIN_TEST_KILLS says how often one is killed; ten times without.
"""

import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from stores import answered, asked, kept, said, turn

from brain.errors import BadRequest, StoreError
from brain.store import open_store
from brain.store.sqlite import SQLite

WRITER = Path(__file__).parent.parent / "store_writer.py"
KILLS = int(os.environ.get("BRAIN_TEST_KILLS", "10"))
Text = dict[tuple[str, str], list[list[str]]]

pytestmark = pytest.mark.timeout(60 + 5 * KILLS)


@contextmanager
def writer(path: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, that has said its first word."""
    command = [sys.executable, str(WRITER), str(path), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def used(path: Path) -> AsyncIterator[SQLite]:
    """The store by the same clock as the other process's."""
    store = await open_store(f"sqlite:{path}")
    try:
        yield store
    finally:
        await store.close()


def told(process: subprocess.Popen[bytes]) -> list[list[Any]]:
    """All it said; the last line may have been cut."""
    assert process.stdout is not None
    return [json.loads(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]


def apply(word: list[Any], conversations: Text, items: dict[tuple[str, str], str]) -> None:
    """What was acknowledged, in a model of the store."""
    what, user, name, *more = word
    if what == "deleted":
        conversations.pop((user, name), None)
    elif what == "put":
        items[user, name] = more[0]
    elif what == "begun":
        conversations.setdefault((user, name), []).append([more[0], "", "interrupted"])
    elif what == "ended":
        conversations[user, name][-1][1:] = [more[0], "complete"]


ACKNOWLEDGED = {"deletes": "deleted", "puts": "put", "begins": "begun", "ends": "ended"}


async def found(path: Path, names: list[str]) -> tuple[Text, dict[tuple[str, str], str]]:
    """What a process finds that begins now."""
    conversations, items = {}, {}
    async with kept(path) as store:
        for user in ("ada", "eve"):
            for name in names:
                if exchanges := await said(store, user, name):
                    conversations[user, name] = [[*one] for one in exchanges]
                if item := await store.item(user, name):
                    items[user, name] = item.text
    return conversations, items


def whole(path: Path) -> None:
    """Nothing in the file is broken, and all counts are right."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        for index in ("exchange_words", "item_words"):
            db.execute(f"INSERT INTO {index} ({index}) VALUES ('integrity-check')")
        wrong = db.execute(
            "SELECT id FROM conversation c WHERE bytes <> (SELECT sum(bytes) FROM exchange WHERE key >> 32 = c.key) "
            "OR messages <> (SELECT sum(messages) FROM exchange WHERE key >> 32 = c.key) "
            "UNION ALL SELECT name FROM user u WHERE bytes <> "
            "(SELECT coalesce(sum(bytes), 0) FROM conversation WHERE user = u.key) + "
            "(SELECT coalesce(sum(bytes), 0) FROM item WHERE user = u.key) "
            "UNION ALL SELECT rowid FROM exchange_words WHERE rowid NOT IN (SELECT key FROM exchange) "
            "AND rowid NOT IN (SELECT key << 32 FROM conversation) "
            "UNION ALL SELECT key FROM exchange WHERE key NOT IN (SELECT rowid FROM exchange_words) "
            "UNION ALL SELECT key FROM item WHERE key NOT IN (SELECT rowid FROM item_words)"
        ).fetchall()
        assert wrong == []


def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    path, rng = tmp_path / "brain.db", random.Random(KILLS)
    for kill in range(KILLS):
        with writer(path, f"w{kill}") as process:
            time.sleep(rng.uniform(0, 0.3))
            process.kill()
            words = told(process)
        conversations: Text = {}
        items: dict[tuple[str, str], str] = {}
        for word in words:
            apply(word, conversations, items)
        after: tuple[Text, dict[tuple[str, str], str]] = json_copy(conversations), dict(items)
        if words and words[-1][0] in ACKNOWLEDGED:  # was about to: it happened, or it did not
            apply([ACKNOWLEDGED[words[-1][0]], *words[-1][1:]], *after)
        there = asyncio.run(found(path, [f"w{kill}.{n}" for n in range(6)]))
        assert there in ((conversations, items), after)
        whole(path)


def json_copy(conversations: Text) -> Text:
    return {key: [[*one] for one in exchanges] for key, exchanges in conversations.items()}


def test_two_processes_never_mix_a_conversation(tmp_path: Path) -> None:
    path = tmp_path / "brain.db"

    async def main() -> None:
        async with used(path) as store:
            with writer(path, "w", "hold"):
                with pytest.raises(BadRequest) as caught:
                    await store.begin("ada", "shared", asked("mine"), ())
                assert (caught.value.code, caught.value.status) == ("busy", 409)
                assert [heading.running for heading in await store.conversations("ada")] == [True]
                await turn(store, "ada", "other")
            with pytest.raises(BadRequest):  # nobody knows yet that it was killed
                await store.begin("ada", "shared", asked("mine"), ())
        async with used(path) as store:  # nobody else is alive
            assert await said(store, "ada", "shared") == [("held", "", "interrupted")]
            await turn(store, "ada", "shared", number=2)

    asyncio.run(main())
    whole(path)


def test_two_processes_write_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "brain.db"

    async def main() -> None:
        async with kept(path) as store:
            with writer(path, "w1", "turns") as one, writer(path, "w2", "turns") as other:
                for n in range(50):
                    await turn(store, "ada", "w0", f"w0 {n}", f"answer {n}", number=n)
                await asyncio.to_thread(one.wait, 30)
                await asyncio.to_thread(other.wait, 30)
                assert (one.returncode, other.returncode) == (0, 0)
            for name in ("w0", "w1", "w2"):
                expected = [(f"{name} {n}", f"answer {n}", "complete") for n in range(50)]
                assert await said(store, "ada", name) == expected

    asyncio.run(main())
    whole(path)


def test_who_starts_beside_another_leaves_its_turns_alone(tmp_path: Path) -> None:
    path = tmp_path / "brain.db"

    async def main() -> None:
        async with kept(path) as store:
            record = await store.begin("ada", "c", asked("runs"), ())
            async with kept(path) as second:
                with pytest.raises(BadRequest):
                    await second.begin("ada", "c", asked("mine", 2), ())
            await store.end(record, answered("done"))
            assert await said(store, "ada", "c") == [("runs", "done", "complete")]

    asyncio.run(main())


@pytest.mark.parametrize("another", [False, True])
def test_nothing_is_acknowledged_that_goes_into_a_file_that_is_gone(
    tmp_path: Path, another: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("brain.store.leases.PROLONG_SECONDS", 0.01)
    path = tmp_path / "brain.db"

    async def main() -> None:
        async with kept(path) as store:
            record = await store.begin("ada", "c", asked("runs"), ())
            path.unlink()
            if another:
                path.touch()
            with pytest.raises(StoreError, match="deleted or moved"):
                await store.end(record, answered("done"))
            with pytest.raises(StoreError, match="deleted or moved"):
                await store.begin("ada", "d", asked("runs"), ())
            assert await store.find_problem() == "What is kept was deleted or moved while it was in use; restart Brain."
            await asyncio.sleep(0.1)

    asyncio.run(main())
    assert "deleted or moved" in caplog.text
    assert str(path) not in caplog.text


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path, link = tmp_path / "brain.db", tmp_path / "link.db"
    path.touch(0o644)
    link.symlink_to(tmp_path / "linked.db")

    async def main() -> None:
        for one in (path, link):
            async with kept(one) as store:
                await turn(store, "ada", "c", "hello")

    asyncio.run(main())
    assert [one.stat().st_mode & 0o777 for one in (path, link)] == [0o600, 0o600]
