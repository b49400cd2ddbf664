"""Copies of a store: everything is there, in any direction, also after kills; nothing that is there is overwritten."""

import asyncio
import gzip
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import store_copier
from limits import WAIT_SECONDS
from postgresql_servers import Cluster
from store_helpers import (
    NO_LIMITS,
    TOMORROW,
    add_turn,
    answer,
    fact,
    file,
    join,
    memory,
    opened,
    question,
    read_turns,
    task_of,
)
from store_writer import import_records

from brain.errors import StoreError
from brain.messages import Call, Text
from brain.runtime import import_sanitizer
from brain.store import (
    answers,
    conversations,
    copying,
    database_of,
    items,
    processes,
    server_data,
    tasks,
    transfer,
    turns,
    users,
    vectors,
)
from brain.store.copying import Progress
from brain.store.store import Store
from brain.store.turns import Appended, QuestionOptions
from brain.store.vectors import ItemEmbedding, Query

pytestmark = [pytest.mark.anyio, pytest.mark.postgresql]

SQLITE, POSTGRESQL = "sqlite", "postgresql"
DIRECTIONS = [(SQLITE, POSTGRESQL), (POSTGRESQL, SQLITE), (SQLITE, SQLITE), (POSTGRESQL, POSTGRESQL)]
WORDS = ["jazz", "jazz fin", "Köln", "東京", "held", "Music", "weather tea", "mine"]
VECTOR = [0.6, -0.8, 0.0, 0.0]
NewStore = Callable[[str], str]
_numbers = count()


@pytest.fixture
def new_store(tmp_path: Path, shared_cluster: Cluster) -> Iterator[NewStore]:
    """Make the value of STORE for an empty database of an engine."""
    databases = []

    def make(engine: str) -> str:
        number = next(_numbers)
        if engine == SQLITE:
            return f"sqlite:{tmp_path / f'{number}.db'}"
        databases.append(f"copying_{number}")
        return shared_cluster.create_database(databases[-1])

    yield make
    for name in databases:
        shared_cluster.drop_database(name)


def store_of(setting: str) -> Store:
    return Store(database_of(setting))


async def copy(source: str, target: str) -> Progress:
    progress = Progress()
    counts = await copying.copy(database_of(source), database_of(target), progress)
    assert progress.total == sum(counts.values())
    return progress


async def fill(store: Store) -> None:
    """Something of everything, of several users, as a server leaves it that is killed."""
    await join(store)
    for user in ("ada", "bob"):
        for n in range(4):
            await add_turn(store, user, f"c{n}", f"I like jazz, {user} {n}", f"Fine in Köln, 東京は雨 {n}", number=n)
            await add_turn(store, user, f"c{n}", "Again?", [], number=f"r{n}", outcome="model_failed")
        await store.write(items.put, user, fact("f1", "I like jazz in Köln", conversation_id="c1", message_id="q1"))
        await store.write(items.put, user, fact("f2", "東京は雨"))
    call = Call("web", "[web]", {"q": "ü\0"}, id="c1", block="It rains.", turn_pass=1, private_data=True)
    history = await store.write_question("ada", "files", question("Look"), [file(bytes(range(256)) * 4), file(b"")])
    await store.end(history, answer([Text("Fine ", 1), call], private_data=True))
    await store.write(conversations.rename, "ada", "files", "Mine")
    for idle in await store.write_unsynced(conversations.claim_idle, TOMORROW, 3):
        item = memory(
            f"m{next(_numbers)}", f"They like jazz in {idle.conversation_id}", conversation_id=idle.conversation_id
        )
        await store.write(conversations.set_memory, idle, item)
    for item_id, text in (("f1", "I like jazz in Köln"), ("f2", "東京は雨")):
        await store.write(vectors.write, [("ada", item_id, text, ItemEmbedding(VECTOR, 0.1, 0.2))], "embedder")
    await store.write(server_data.set_server_value, "router", "weights")
    await store.write(server_data.add_blocked, "slow", "slow.py:7")
    texts = answers.pieces([Text("A known answer", 1)])
    await store.write(answers.remember, "ada", answer("A known answer", untrusted=True), texts)
    await store.write(users.set_recalls, "bob", False)
    await store.write(tasks.create, task_of("ada", "weather tea", "c0"), NO_LIMITS)
    ended = await store.write(tasks.create, task_of("bob", "read", "c0"), NO_LIMITS)
    await store.write(tasks.cancel, "bob", ended.id)
    # what is deleted, whose rows are removed later
    await store.write(conversations.delete, "bob", "c3")
    await add_turn(store, "eve", "c", "I like jazz")
    await store.write(users.set_recalls, "eve", False)
    await store.write(conversations.delete_user, "eve")
    # what runs
    running = await store.write_question("bob", "held", question("held jazz"), [], QuestionOptions(resume="how"))
    assert running.question is not None
    assert await store.write(turns.checkpoint, running, 3, running.question)
    assert await store.write(turns.append, running, 5, Appended("So far", 1))
    await store.write_question("bob", "lost", question("lost jazz"), [])
    lines = [json.dumps(record).encode() for record in import_records()]
    cut_off = transfer.Import("zoe", lines, import_sanitizer)
    await store.write(cut_off.begin)
    assert await store.write(cut_off.insert_some)
    # keys that are not used any more
    await add_turn(store, "gone", "c", "I like jazz")
    await store.forget("gone")
    await store.write(users.set_recalls, "last", True)


async def die(store: Store) -> None:
    """Close the database as a process leaves it that is killed, except for its leases, which are over."""
    await store.write(processes.remove)
    await store.write(transfer.expire_all)
    await store.database.close()


async def filled(setting: str) -> None:
    store = store_of(setting)
    await store.database.open(lambda tx: None)
    await fill(store)
    await die(store)


async def view(store: Store) -> dict[Any, Any]:
    """What can be seen of a store, whose running turns are interrupted."""
    claimed, _ = await store.write(turns.claim, 9, continues=True)
    for one in claimed:
        await store.write(turns.interrupt, one.history)
    names = await store.search(users.names)
    found: dict[Any, Any] = {"users": names}
    for user in (*names, "eve", "gone", "zoe"):
        found[user] = [record async for record in store.export(user) if record["kind"] != "brain"]
        found[user, "counts"] = await store.search(users.count, user)
        found[user, "channel"] = await store.read(tasks.read_channel, user, 0)
        found[user, "near"] = await store.search(
            vectors.search, user, Query("embedder", VECTOR), items.KINDS, 9, store.signs
        )
        found[user, "marks"] = [
            await store.read(answers.find_marks, user, answers.pieces([Text(text, 1)]))
            for text in ("A known answer", "unknown")
        ]
        for words in WORDS:
            found[user, words] = await store.list_conversations(user, words=words)
            found[user, words, "items"] = await store.search(items.search, user, words, items.KINDS, 9)
    found["server"] = await store.read(server_data.server_value, "router"), await store.read(server_data.blocked)
    found["secret"] = await store.write(processes.add, "")
    await store.write(processes.remove)
    return found


async def check_copy(source: str, target: str) -> None:
    """Compare a store that was used last by a process that was killed, and its copy."""
    async with opened(store_of(source)) as original, opened(store_of(target)) as copied:
        assert await view(copied) == await view(original)


@pytest.mark.parametrize(("source", "target"), DIRECTIONS)
async def test_a_copy_has_everything(source: str, target: str, new_store: NewStore) -> None:
    original, copied = new_store(source), new_store(target)
    await filled(original)
    progress = await copy(original, copied)
    assert progress.rows == progress.total > 100
    again = await copy(original, copied)  # which changes nothing
    assert (again.total, again.size) == (progress.total, 0)
    async with opened(store_of(copied)) as store:
        # the turn that ran continues elsewhere, with its text; the other one is interrupted
        claimed, _ = await store.write(turns.claim, 9, continues=True)
        assert [(one.history.id, one.resume, one.last) for one in claimed] == [("held", "how", 5)]
        assert claimed[0].history.question is not None
        assert claimed[0].history.question.answer == "So far"
        # new rows get keys that were never used
        former = await store.read(users.find, "bob")
        assert former is not None
        for user in ("new", "newer"):
            await add_turn(store, user, "c", "I like tea", files=[file(b"tea")])
            await store.write(items.put, user, fact("f", "I like tea"))
            await store.write(tasks.create, task_of(user), NO_LIMITS)
            await store.write(vectors.write, [(user, "f", "I like tea", ItemEmbedding(VECTOR))], "embedder")
            assert [one.id for one in await store.list_conversations(user, words="tea")] == ["c"]
        new = await store.read(users.find, "new")
        assert new is not None
        assert new > former + 3  # those of `eve`, `zoe` and `gone`


@pytest.mark.parametrize(("source", "target"), DIRECTIONS)
async def test_a_copy_shows_the_same(source: str, target: str, new_store: NewStore) -> None:
    original, copied = new_store(source), new_store(target)
    await filled(original)
    await copy(original, copied)
    await check_copy(original, copied)


@pytest.mark.parametrize(("source", "target"), DIRECTIONS[:2])
async def test_a_copy_that_is_killed_anywhere_continues(source: str, target: str, new_store: NewStore) -> None:
    original, copied = new_store(source), new_store(target)
    await filled(original)
    command = (sys.executable, store_copier.__file__, original, copied)
    ended = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 20
    await check_copy(original, copied)


class CutOff(Exception):
    """Ends a copy."""


async def copy_partly(source: str, target: str, number: int = 20) -> None:
    def end() -> None:
        raise CutOff

    with pytest.raises(CutOff):
        await store_copier.copy(source, target, number, end)


@pytest.mark.parametrize(("source", "target"), DIRECTIONS[:2])
async def test_a_copy_starts_again_if_the_store_was_used_since(source: str, target: str, new_store: NewStore) -> None:
    original, copied = new_store(source), new_store(target)
    await filled(original)
    await copy_partly(original, copied, 1)  # before the database is marked
    await copy_partly(original, copied)
    async with opened(store_of(original)) as store:
        await store.forget("ada")
        await add_turn(store, "bob", "c0", "I like tea")
    await copy_partly(original, copied, 5)  # while it deletes
    progress = await copy(original, copied)
    assert progress.starts_again
    await check_copy(original, copied)


@pytest.mark.parametrize(("source", "target"), DIRECTIONS[:2])
async def test_an_unfinished_copy_is_no_store(source: str, target: str, new_store: NewStore) -> None:
    original, copied, other = new_store(source), new_store(target), new_store(target)
    await filled(original)
    await copy_partly(original, copied)
    with pytest.raises(StoreError):
        await store_of(copied).open()
    for pair in ((copied, other), (new_store(source), copied)):  # nor is it copied, or overwritten
        with pytest.raises(StoreError):
            await copy(*pair)
    await copy(original, copied)
    await check_copy(original, copied)


@pytest.mark.parametrize("engine", [SQLITE, POSTGRESQL])
async def test_a_database_with_data_is_not_overwritten(engine: str, new_store: NewStore) -> None:
    original, copied, used = new_store(engine), new_store(engine), new_store(engine)
    await filled(original)
    with pytest.raises(StoreError):
        await copy(original, original)
    async with opened(store_of(used)) as store:
        await store.write(users.set_recalls, "ada", False)
    with pytest.raises(StoreError):
        await copy(original, used)
    async with opened(store_of(used)) as store:
        assert await store.search(users.names) == ["ada"]
    async with opened(store_of(copied)):
        pass  # it has tables, and no data
    await copy(original, copied)
    async with opened(store_of(copied)) as store:
        await add_turn(store, "bob", "new", "I like tea")
    with pytest.raises(StoreError):
        await copy(original, copied)
    async with opened(store_of(copied)) as store:
        assert await read_turns(store, "bob", "new") == [("I like tea", "Hi", "complete")]


@pytest.mark.parametrize("is_source", [True, False])
@pytest.mark.parametrize("engine", [SQLITE, POSTGRESQL])
async def test_a_store_in_use_is_not_copied(engine: str, is_source: bool, new_store: NewStore) -> None:
    used, other = new_store(engine), new_store(engine)
    pair = (used, other) if is_source else (other, used)
    async with opened(store_of(other)):
        pass
    async with opened(store_of(used)) as store:
        if engine == SQLITE:
            with pytest.raises(StoreError):
                await copy(*pair)
        lines = [json.dumps(record).encode() for record in import_records()]
        running = transfer.Import("ada", lines, import_sanitizer)
        number = await store.write(running.begin)
        with pytest.raises(StoreError):
            await copy(*pair)
        await store.write(transfer.expire, number)
        await store.sweep()
        await join(store)

        async def renew() -> None:
            while True:
                if len(await store.read(processes.read)) > 1:
                    await store.write(processes.renew, "")

        renewing = asyncio.create_task(renew())  # as a process does that sees another one
        with pytest.raises(StoreError):
            await copy(*pair)
        renewing.cancel()
        await asyncio.wait({renewing})
    await copy(*pair)


@pytest.mark.parametrize("is_opened", [True, False])
async def test_a_store_that_changes_while_it_is_copied_is_copied_again(is_opened: bool, new_store: NewStore) -> None:
    original, copied = new_store(SQLITE), new_store(POSTGRESQL)
    await filled(original)

    def change() -> None:
        if is_opened:
            asyncio.run(open_it())
        else:
            with closing(sqlite3.connect(original.removeprefix("sqlite:"), isolation_level=None)) as database:
                database.execute("DELETE FROM account WHERE name = 'last'")

    async def open_it() -> None:
        async with opened(store_of(original)):
            pass

    with pytest.raises(StoreError):
        await store_copier.copy(original, copied, 20, change)
    progress = await copy(original, copied)
    assert progress.starts_again
    await check_copy(original, copied)


async def test_what_older_versions_stored_is_copied(new_store: NewStore, tmp_path: Path) -> None:
    original, copied = new_store(SQLITE), new_store(POSTGRESQL)
    async with opened(store_of(original)) as store:
        await store.write(items.put, "ada", fact("f1", "I like\0 jazz"))
    await copy(original, copied)
    async with opened(store_of(copied)) as store:
        assert [item.text for item in await store.read(items.list_items, "ada")] == ["I like jazz"]
    old = tmp_path / "0.2.0.db"
    old.write_bytes(gzip.decompress((Path(__file__).parent / "data" / "brain-0.2.0.db.gz").read_bytes()))
    upgraded = new_store(POSTGRESQL)
    await copy(f"sqlite:{old}", upgraded)
    await check_copy(f"sqlite:{old}", upgraded)
