"""Processes are killed at any instruction, and several use one database: nothing acknowledged is lost or mixed.

BRAIN_TEST_KILLS says how often one is killed; ten times by default.
"""

import asyncio
import copy
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from limits import WAIT_SECONDS
from store_helpers import Clock, add_turn, answer, join, opened, place_of, question, read_turns, store_at

from brain.errors import BadRequest
from brain.store import database_of, items, processes, users
from brain.store.store import Store
from brain.store.tx import Tx
from brain.store.users import Counts

WRITER = Path(__file__).parent.parent / "store_writer.py"
KILLS = int(os.environ.get("BRAIN_TEST_KILLS", "10"))

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300 + 5 * KILLS)]


@contextmanager
def writer(setting: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has opened the store, or, with `hold`, begun its turn."""
    command = [sys.executable, str(WRITER), setting, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            for _ in range(2 if "hold" in words else 1):
                assert process.stdout.readline()
            yield process
        finally:
            process.kill()


class Expected:
    """What was acknowledged: exchanges of conversations, and texts of items, by user and ID."""

    def __init__(self) -> None:
        self.conversations: dict[tuple[str, str], list[list[str]]] = {}
        self.items: dict[tuple[str, str], str] = {}

    def apply(self, what: str, user: str, name: str, text: str = "") -> None:
        match what:
            case "deleted":
                self.conversations.pop((user, name), None)
            case "put":
                self.items[user, name] = text
            case "begun":
                self.conversations.setdefault((user, name), []).append([text, "", "interrupted"])
            case "ended":
                self.conversations[user, name][-1][1:] = [text, "complete"]

    async def is_in(self, setting: str, names: list[str]) -> bool:
        """Whether a process that begins now finds exactly this."""
        found = Expected()
        async with opened(Store(database_of(setting))) as store:
            for user in ("ada", "eve"):
                for name in names:
                    if exchanges := await read_turns(store, user, name):
                        found.conversations[user, name] = [[*one] for one in exchanges]
                    if item := await store.read(items.find, user, name):
                        found.items[user, name] = item.text
        return vars(found) == vars(self)


ACKNOWLEDGED = {"deletes": "deleted", "puts": "put", "begins": "begun", "ends": "ended"}


WRONG = """
SELECT id FROM conversation c WHERE bytes <> (SELECT sum(bytes) FROM exchange WHERE key >> 32 = c.key)
    OR messages <> (SELECT sum(messages) FROM exchange WHERE key >> 32 = c.key)
UNION ALL SELECT name FROM account a WHERE bytes <>
    (SELECT coalesce(sum(bytes), 0) FROM conversation WHERE account = a.key) +
    (SELECT coalesce(sum(bytes), 0) FROM item WHERE account = a.key)
UNION ALL SELECT 'words' FROM exchange_words w WHERE w.{key} NOT IN (SELECT key FROM exchange)
    AND w.{key} NOT IN (SELECT key << 32 FROM conversation)
UNION ALL SELECT question_id FROM exchange
    WHERE unindexed = 0 AND key NOT IN (SELECT w.{key} FROM exchange_words w)
UNION ALL SELECT id FROM item WHERE key NOT IN (SELECT w.{key} FROM item_words w)
"""


async def check(setting: str) -> None:
    """Nothing in the database is broken, and all counts are right."""
    kind, _, path = setting.partition(":")
    async with opened(Store(database_of(setting))) as store:
        query = WRONG.format(key="rowid" if kind == "sqlite" else "key")
        assert await store.read(lambda tx: tx.execute(query).fetchall()) == []
    if kind == "sqlite":
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert db.execute("PRAGMA foreign_key_check").fetchall() == []
            for index in ("exchange_words", "item_words"):
                db.execute(f"INSERT INTO {index} ({index}) VALUES ('integrity-check')")


async def test_a_killed_process_loses_nothing_that_it_acknowledged(store_setting: str) -> None:
    rng = random.Random(KILLS)
    for kill in range(KILLS):
        with writer(store_setting, f"w{kill}") as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(rng.randrange(60))]
            process.kill()
            lines += [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
        words: list[list[Any]] = [json.loads(line) for line in lines]
        before = Expected()
        for word in words:
            before.apply(*word)
        after = copy.deepcopy(before)
        if words and words[-1][0] in ACKNOWLEDGED:  # was about to: it happened, or it did not
            after.apply(ACKNOWLEDGED[words[-1][0]], *words[-1][1:])
        names = [f"w{kill}.{n}" for n in range(6)]
        assert await before.is_in(store_setting, names) or await after.is_in(store_setting, names)
        await check(store_setting)


def count(tx: Tx, table: str) -> int:
    return int(tx.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


async def test_a_killed_import_leaves_nothing(store_setting: str) -> None:
    rng, clock = random.Random(KILLS), Clock(step=0)
    clock.now = time.time() + 3600  # when leases of killed imports are over
    imported = set[str]()
    for kill in range(max(2, KILLS // 4)):
        with writer(store_setting, f"w{kill}", "imports") as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(1 + 2 * rng.randrange(2))]
            async with opened(Store(database_of(store_setting))) as store:
                some = rng.randrange(1, 90)
                async with asyncio.timeout(WAIT_SECONDS):
                    while await store.read(count, "conversation WHERE account IS NULL") < some:  # noqa: ASYNC110
                        await asyncio.sleep(0)
                process.kill()
            lines += [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")]
        words = [json.loads(line) for line in lines]
        imported |= {user for what, user in words if what == "imported"}
        async with store_at(place_of(store_setting), clock) as store:
            names = set(await store.search(users.names))
            assert imported <= names <= imported | {words[-1][1]}  # the last one may have ended, too
            imported = names
            await store.sweep()
            whole = Counts(conversations=100, messages=100, facts=100)
            assert [await store.search(users.count, user) for user in names] == [whole] * len(names)
            for table, each in {"account": 1, "conversation": 100, "exchange": 100, "item": 100, "import": 0}.items():
                assert await store.read(count, table) == each * len(names), table
        await check(store_setting)


async def test_two_processes_never_mix_a_conversation(store_setting: str) -> None:
    async with opened(Store(database_of(store_setting))) as store:
        with writer(store_setting, "w", "hold"):
            with pytest.raises(BadRequest) as caught:
                await store.write_question("ada", "shared", question("mine"), ())
            assert (caught.value.code, caught.value.status) == ("busy", 409)
            assert [one.running for one in await store.list_conversations("ada")] == [True]
            await add_turn(store, "ada", "other")
        with pytest.raises(BadRequest):  # nobody knows yet that it was killed
            await store.write_question("ada", "shared", question("mine"), ())
        await store.write(processes.remove_all)  # when its lease is over
        assert await read_turns(store, "ada", "shared") == [("held", "", "interrupted")]
        await add_turn(store, "ada", "shared", number=2)
    await check(store_setting)


async def test_two_processes_write_side_by_side(store_setting: str) -> None:
    async with opened(Store(database_of(store_setting))) as store:
        with writer(store_setting, "w1", "turns") as one, writer(store_setting, "w2", "turns") as other:
            for n in range(50):
                await add_turn(store, "ada", "w0", f"w0 {n}", f"answer {n}", number=n)
            for process in (one, other):
                assert await asyncio.to_thread(process.wait, WAIT_SECONDS) == 0
        for name in ("w0", "w1", "w2"):
            expected = [(f"{name} {n}", f"answer {n}", "complete") for n in range(50)]
            assert await read_turns(store, "ada", name) == expected
    await check(store_setting)


async def test_a_store_that_is_opened_beside_another_leaves_its_turns_alone(store_setting: str) -> None:
    async with opened(Store(database_of(store_setting))) as store:
        await join(store)
        history = await store.write_question("ada", "c", question("runs"), ())
        async with opened(Store(database_of(store_setting))) as second:
            with pytest.raises(BadRequest):
                await second.write_question("ada", "c", question("mine", 2), ())
        await store.end(history, answer("done"))
        assert await read_turns(store, "ada", "c") == [("runs", "done", "complete")]
