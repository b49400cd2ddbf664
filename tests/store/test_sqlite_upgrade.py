"""Databases and exports of an earlier version: `data/record.py` wrote them, and what its API showed of them."""

import asyncio
import gzip
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from brain_servers import Server, brain_served, post
from limits import WAIT_SECONDS
from store_helpers import only_exchange, opened
from turn_helpers import Player

from brain.cli.main import run
from brain.errors import StoreError
from brain.messages import OWN_WORDS, Call, Marks, Text
from brain.store import answers, conversations, items, schema, tasks, turns, users
from brain.store.sqlite.database import SQLite
from brain.store.store import Store

DATA = Path(__file__).parent / "data"
VIEWS: dict[str, dict[str, Any]] = json.loads((DATA / "views.json").read_text("utf-8"))
for view in (*VIEWS["ada"].values(), *VIEWS["bob"].values()):
    for item in view.get("items", ()):
        del item["against"]  # a field that facts no longer have
    for message in view.get("messages", ()):
        if message["role"] == "assistant":
            message["strategy"] = "mono"  # a field that answers did not have
RECORDED = datetime(2026, 11, 23, 6, tzinfo=UTC)
KEYS = {"BRAIN_KEYS": "a-long-key-of-ada:ada,a-long-key-of-bob:bob", "BRAIN_MODEL": "builtin"}


@pytest.fixture(autouse=True)
def file(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path.parent.mkdir()
    # later, idle conversations are summarized
    monkeypatch.setattr("brain.store.database.Database.now", lambda self: RECORDED)
    for name, value in {**KEYS, "BRAIN_STORE": f"sqlite:{path}"}.items():
        monkeypatch.setenv(name, value)
    return path


def key(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer a-long-key-of-{user}"}


def serve(path: Path) -> Any:
    return brain_served(STORE=f"sqlite:{path}", KEYS=KEYS["BRAIN_KEYS"])


def get(server: Server, user: str, path: str) -> Any:
    return httpx.get(server.url + path, headers=key(user), timeout=WAIT_SECONDS).raise_for_status().json()


def check_import(path: Path) -> None:
    """Compare all that is shown; estimated tokens differ, since an import writes markers anew."""
    with serve(path) as server:
        for place, view in VIEWS["ada"].items():
            shown = get(server, "ada", place)
            for message, expected in zip(shown.get("messages", ()), view.get("messages", ()), strict=True):
                if "tokens" in message:
                    message["tokens"] = expected["tokens"]
            assert shown == view, place


def test_a_database_shows_what_it_showed_and_continues(file: Path) -> None:
    file.write_bytes(gzip.decompress((DATA / "brain.db.gz").read_bytes()))
    with serve(file) as server:
        for user, views in VIEWS.items():
            for place, view in views.items():
                assert get(server, user, place) == view, place
        assert httpx.get(f"{server.url}/v1/conversations/tea/files/1", headers=key("ada")).text == "Buy milk."
        server.play(Player(["Yes."]))
        assert post(server.url, json={"message": "More?", "conversation_id": "tea"}, headers=key("ada")).status == 200
        messages = get(server, "ada", "/v1/conversations/tea")["messages"]
        assert messages[:-2] == VIEWS["ada"]["/v1/conversations/tea"]["messages"]
        assert [message["parts"][-1]["text"] for message in messages[-2:]] == ["More?", "Yes."]

    async def blocks() -> list[str]:
        async with opened(Store(SQLite(file))) as store:
            history = await store.read(turns.history, "ada", "tea", 9)
            return [part.block for one in history.exchanges for part in one.parts if isinstance(part, Call)]

    assert asyncio.run(blocks())[0] == "[SPECIALIST_RESULT: lookup]\nAll about tea.\n[/SPECIALIST_RESULT]"


def test_a_database_of_0_2_0_gets_the_marks_of_private_data(file: Path) -> None:
    """A task has the words of its user, and what a model wrote counts as private."""
    file.write_bytes(gzip.decompress((DATA / "brain-0.2.0.db.gz").read_bytes()))
    private = {"tea": [False, True, True], "milk": [True, True], "me": [True, True], "cold": [True], "story": [True]}

    async def check(store: Store) -> None:
        for name, marks in private.items():
            found = await store.read(turns.history, "ada", name, 9)
            assert [one.private_data for one in found.exchanges] == marks, name
            assert found.private_data is marks[-1], name
        found_tasks = {one.prompt: one for one in await store.read(tasks.list_tasks, "ada")}
        made, added = found_tasks["Search for tea news"], found_tasks["Search for milk news"]
        words = "Search for tea news each Monday"
        assert (made.private_data, made.untrusted, made.user_text, made.is_from_user) == (True, True, words, False)
        assert (added.private_data, added.untrusted, added.is_from_user) == (False, False, True)
        # answers that an older version gave are unknown, and may contain private data
        assert await store.read(answers.find_marks, "bob", ["anything"]) == Marks(untrusted=True, private_data=True)

    async def main() -> None:
        async with opened(Store(SQLite(file))) as store:
            await check(store)
        async with opened(Store(SQLite(file))) as store:
            await check(store)

    asyncio.run(main())
    with serve(file) as server:
        server.play(Player(["Yes."]))
        assert post(server.url, json={"message": "More?", "conversation_id": "tea"}, headers=key("ada")).status == 200
        messages = get(server, "ada", "/v1/conversations/tea")["messages"]
        assert [message["parts"][-1]["text"] for message in messages[-2:]] == ["More?", "Yes."]


def test_memories_of_0_2_0_that_say_the_same_become_one(file: Path) -> None:
    file.write_bytes(gzip.decompress((DATA / "brain-0.2.0.db.gz").read_bytes()))
    with closing(sqlite3.connect(file)) as db, db:
        text = f"{OWN_WORDS}What is tea?"
        db.execute(
            "UPDATE item SET text = ?, updated = updated + key WHERE key IN (6, 7, 8, 9)", (text,)
        )  # 6 is of bob
        db.execute("UPDATE item SET untrusted = (key = 7) WHERE kind = 'memory'")
        vectors = "INSERT INTO vector (user, item, kind, model, signs, value) "
        db.execute(f"{vectors} SELECT user, key, kind, 'm', x'', x'' FROM item")
        db.execute("""UPDATE exchange SET recalled_ids = '["2k3r","qzhu"]' WHERE recalled_ids LIKE '%2k3r%'""")

    async def recalling(store: Store) -> int:
        page = await store.read(conversations.read_page, "ada", "planned", limit=9)
        return 0 if page is None else sum("Recalled" in one.question for one in page.exchanges)

    async def main() -> None:
        async with opened(Store(SQLite(file))) as store:
            found = {
                one.id: one for one in await store.read(items.list_items, "ada", kind="memory") if one.text == text
            }
            ((item_id, one),) = found.items()
            assert (item_id, one.count, one.untrusted) == ("9m6n", 3, True)
            assert [one.count for one in await store.read(items.list_items, "bob", kind="memory")] == [1]
            assert [await store.read(items.memory_of, "ada", name) for name in ("tea", "me", "cold")] == [one] * 3
            assert [one.id for one, _ in await store.read(items.search, "ada", "tea", kinds=["memory"], limit=9)][
                :1
            ] == ["9m6n"]
            before = await recalling(store)
            await store.write(items.erase, "ada", item_id)
            assert (before, await recalling(store)) == (1, 0)

    asyncio.run(main())
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        rows = "SELECT bytes FROM item UNION ALL SELECT bytes FROM conversation"
        assert len(db.execute(f"SELECT sum(bytes) FROM account UNION SELECT sum(bytes) FROM ({rows})").fetchall()) == 1
        counts = "SELECT count(*) FROM item UNION SELECT count(*) FROM item_words UNION SELECT count(*) FROM embedding"
        assert len(db.execute(counts).fetchall()) == 1


def test_texts_without_spaces_are_indexed_again(file: Path) -> None:
    file.write_bytes(gzip.decompress((DATA / "brain-0.2.0.db.gz").read_bytes()))
    with closing(sqlite3.connect(file)) as db, db:
        ((user, item, kind),) = db.execute("SELECT user, key, kind FROM item WHERE kind = 'fact' LIMIT 1").fetchall()
        ((key, data),) = db.execute("SELECT key, data FROM exchange WHERE source = 'chat' LIMIT 1").fetchall()
        old = " ".join(f"{user}{kind[0]}x{ord(character):x}" for character in "绿茶好喝")
        db.execute("UPDATE item SET text = '绿茶好喝' WHERE key = ?", (item,))
        db.execute("UPDATE item_words SET words = ? WHERE rowid = ?", (old, item))
        row = json.dumps({**json.loads(data), "message": "绿茶好喝"}, ensure_ascii=False)
        db.execute("UPDATE exchange SET data = ? WHERE key = ?", (row, key))
        db.execute("UPDATE conversation SET title = '红茶' WHERE key = ?", (key >> 32,))
        db.execute("INSERT OR REPLACE INTO exchange_words (rowid, words) VALUES (?, 'old')", (key >> 32 << 32,))
        query = "SELECT u.name, c.id FROM conversation c JOIN user u ON u.key = c.user WHERE c.key = ?"
        ((name, conversation),) = db.execute(query, (key >> 32,)).fetchall()
        ((owner,),) = db.execute("SELECT name FROM user WHERE key = ?", (user,)).fetchall()

    async def main() -> None:
        async with opened(Store(SQLite(file))) as store:
            for word in ("绿茶", "喝"):
                assert len(await store.read(items.list_items, owner, words=word)) == 1
            for word in ("绿茶", "喝", "红茶", "茶"):
                assert [one.id for one in await store.list_conversations(name, words=word)] == [conversation]

    asyncio.run(main())


def test_what_0_2_0_had_hidden_is_removed(file: Path) -> None:
    """It moved rows to a hidden user to delete them, or to import them."""
    file.write_bytes(gzip.decompress((DATA / "brain-0.2.0.db.gz").read_bytes()))
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE user SET name = char(10) || 'f00d', hidden = 1 WHERE name = 'bob'")
        kept = db.execute(
            "SELECT count(*) FROM conversation c JOIN user u ON u.key = c.user WHERE hidden = 0"
        ).fetchone()

    async def main() -> None:
        async with opened(Store(SQLite(file))) as store:
            assert await store.search(users.names) == ["ada"]

    asyncio.run(main())
    with closing(sqlite3.connect(file)) as db:
        assert db.execute("SELECT count(*) FROM conversation").fetchone() == kept
        assert db.execute("SELECT name FROM account").fetchall() == [("ada",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_what_ran_with_0_2_0_is_interrupted_with_its_text_and_tasks_continue(file: Path) -> None:
    file.write_bytes(gzip.decompress((DATA / "brain-0.2.0.db.gz").read_bytes()))
    call = {"type": "call", "name": "web", "id": "c1", "block": "b", "turn_pass": 4}
    checkpoints = {"story": [{"type": "text", "text": "Once", "turn_pass": 1}], "killed": [call]}
    with closing(sqlite3.connect(file)) as db, db:
        for name, parts in checkpoints.items():
            query = "SELECT e.key, turn, data FROM exchange e JOIN conversation c ON c.key = e.key >> 32 WHERE c.id = ?"
            ((key, turn, data),) = db.execute(query, (name,)).fetchall()
            row = json.dumps({**json.loads(data), "parts": parts, "outcome": "", "ended": None})
            changes = "outcome = '', ended = NULL, owner = 'o', until = 9, unindexed = 1, data = ?"
            db.execute(f"UPDATE exchange SET {changes} WHERE key = ?", (row, key))
            db.execute("UPDATE turn SET snapshot_last = 2 WHERE key = ?", (turn,))
            db.execute("DELETE FROM turn_log WHERE turn = ?", (turn,))
            for first, last, text in ((1, 2, "(in the checkpoint)"), (3, 4, " upon"), (5, 5, ""), (6, 6, " a time")):
                log = "INSERT INTO turn_log (turn, first, last, frames, text) VALUES (?, ?, ?, x'', ?)"
                db.execute(log, (turn, first, last, text))
        data = "replace(data, '\"waiting\"', '\"running\"')"
        db.execute(f"UPDATE task SET state = 'running', owner = 'o', until = 9, data = {data}")

    async def main() -> None:
        async with opened(Store(SQLite(file))) as store:
            story, killed = await only_exchange(store, "ada", "story"), await only_exchange(store, "bob", "killed")
            assert (story.outcome, story.parts) == ("interrupted", [Text("Once upon a time", 1)])
            assert (killed.outcome, killed.parts[1:]) == ("interrupted", [Text(" upon a time", 5)])
            assert [one.state for one in await store.read(tasks.list_tasks, "ada")] == ["pending"] * 2

    asyncio.run(main())


_DIE = """
import asyncio, os, sys
from brain.store import open_store
from brain.store.sqlite import connection
connect, left = connection.connect, int(sys.argv[2])
def count(statement):
    global left
    left -= 1
    if not left:
        os._exit(9)
def connect_and_count(path):
    db = connect(path)
    db.set_trace_callback(count)
    return db
connection.connect = connect_and_count
asyncio.run(open_store(f"sqlite:{sys.argv[1]}"))
"""
"""Opens a store, and ends like a killed process before the given statement."""


@pytest.mark.parametrize("version", ["brain", "brain-0.2.0"])
def test_an_upgrade_whose_process_was_killed_is_done_again(file: Path, version: str) -> None:
    file.write_bytes(gzip.decompress((DATA / f"{version}.db.gz").read_bytes()))
    for statement in (20, 40, 60, 80):
        died = subprocess.run([sys.executable, "-c", _DIE, file, str(statement)], check=False)
        assert died.returncode == 9

    async def main() -> None:
        async with opened(Store(SQLite(file))) as store:
            assert await store.search(users.names) == ["ada", "bob"]
            assert len((await store.read(turns.history, "ada", "tea", 9)).exchanges) >= 2

    asyncio.run(main())
    with closing(sqlite3.connect(file)) as db, closing(sqlite3.connect(":memory:")) as new:
        for create in schema.CREATE:
            new.execute(create)
        tables = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name"
        assert [(name, _plain(sql)) for name, sql in db.execute(tables)] == [
            (name, _plain(sql)) for name, sql in new.execute(tables)
        ]
        others = "SELECT type, name, sql FROM sqlite_schema WHERE type <> 'table' ORDER BY name"
        assert db.execute(others).fetchall() == new.execute(others).fetchall()
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        for name, last in db.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
            assert db.execute(f"SELECT coalesce(max(key), 0) FROM {name}").fetchone()[0] <= last


def _plain(statement: str) -> str:
    """Return a statement without the quotes that SQLite puts around the name of a renamed table."""
    return statement.replace('"', "").replace("'", "")


@pytest.mark.parametrize("version", ["brain", "brain-0.2.0"])
def test_a_file_that_an_older_version_has_open_is_refused(file: Path, version: str) -> None:
    fcntl = pytest.importorskip("fcntl")
    file.write_bytes(before := gzip.decompress((DATA / f"{version}.db.gz").read_bytes()))

    async def main() -> None:
        with pytest.raises(StoreError, match="stop its processes, then start this version"):
            await Store(SQLite(file)).open()

    with file.with_name(f"{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as each version does
        asyncio.run(main())
    assert file.read_bytes() == before


@pytest.mark.parametrize("damage", ["{", "[]", '{"parts":7}'])
def test_a_damaged_row_of_0_2_0_stops_no_upgrade(file: Path, damage: str) -> None:
    file.write_bytes(gzip.decompress((DATA / "brain-0.2.0.db.gz").read_bytes()))
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE exchange SET data = ? WHERE key % 2", (damage,))
        db.execute("UPDATE task SET data = ? WHERE key = 1", (damage,))

    async def main() -> None:
        async with opened(Store(SQLite(file))) as store:
            assert len(await store.read(tasks.list_tasks, "ada")) == 1
            assert (await store.read(turns.history, "ada", "cold", 9)).private_data

    asyncio.run(main())


def test_an_export_is_imported_and_exported_again(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "--user", "ada", str(DATA / "ada.jsonl")]) == 0
    check_import(file)
    capsys.readouterr()
    assert run(["export", "--user", "ada"]) == 0
    exported = capsys.readouterr().out
    assert run(["forget", "ada", "--yes"]) == 0
    (again := file.with_name("again.jsonl")).write_text(exported)
    assert run(["import", "--user", "ada", str(again)]) == 0
    check_import(file)
