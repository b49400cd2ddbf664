"""`brain forget`: what is erased, who is asked, what specialists are told, and how it goes beside a server."""

import asyncio
import os
import pty
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from emulator import read
from serving import Process, post, script

from brain.cli.main import run
from brain.messages import Attachment, Exchange, Item, Text
from brain.store import vacuum
from brain.store.sqlite import SQLite

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
KEEPERS = '''\
"""Specialists that keep something, and one that cannot forget it."""

from dataclasses import dataclass
from pathlib import Path

from brain import specialist


@dataclass(frozen=True)
class KeeperSettings:
    file: str = ""


def told(user: str, conversation_id: str | None, *, settings: KeeperSettings) -> None:
    with Path(settings.file).open("a") as file:
        file.write(f"{user} {conversation_id}\\n")


def stubborn(user: str, conversation_id: str | None) -> None:
    raise OSError("secret")


@specialist(settings=KeeperSettings, forget=told)
def keeper() -> str:
    """Keeps."""
    return ""
'''
STUBBORN = '\n\n@specialist(forget=stubborn)\ndef mule() -> str:\n    """Keeps."""\n    return ""\n'


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the store, which is not there yet."""
    path = tmp_path / "kept" / "brain.db"
    monkeypatch.setenv("BRAIN_STORE", f"sqlite:{path}")
    return path


@pytest.fixture
def keepers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with specialists that keep something; what they are told stands in `told.txt`."""
    folder = tmp_path / "specialists"
    folder.mkdir()
    (folder / "keepers.py").write_text(KEEPERS)
    monkeypatch.setenv("BRAIN_SPECIALISTS_FOLDER", str(folder))
    monkeypatch.setenv("BRAIN_SPECIALIST_KEEPER_FILE", str(folder / "told.txt"))
    return folder


def brain(*arguments: str) -> Process:
    """`brain` with these arguments, on the same store."""
    return Process(*arguments, env={"BRAIN_STORE": os.environ["BRAIN_STORE"]})


def using(path: Path, use: Callable[[SQLite], Coroutine[Any, Any, Any]]) -> Any:
    async def used() -> Any:
        one = SQLite(path)
        await one.open()
        try:
            return await use(one)
        finally:
            await one.close()

    return asyncio.run(used())


async def fill(store: SQLite) -> None:
    """Of two users the same, but for one word in everything."""
    for user, word in (("ada", "xylophone"), ("ben", "zeppelin")):
        for conversation in ("c1", "c2"):
            question = Exchange(f"{word} q", question_id="q1", message=f"{word} said", started=NOON)
            record = await store.begin(user, conversation, question, [Attachment(1, word, "text/plain", word.encode())])
            question.outcome, question.parts, question.files = "complete", [Text(f"{word} answered", 1)], (1,)
            await store.end(record, question)
        await store.put(user, Item("k7m2", "fact", f"{word} fact", NOON, NOON, "general"))
        await store.put(user, Item("aaaa", "memory", f"{word} memory", NOON, NOON, conversation_id="c1"))


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def test_all_of_one_user_is_erased_from_the_files_too(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    using(store, fill)
    assert b"xylophone" in bytes_of(store.parent)
    assert run(["forget", "ada", "--yes"]) == 0
    told = "Erased of ada: 2 conversations, 4 messages, 2 files, 1 fact, 1 memory.\n"
    assert capsys.readouterr() == (told, "")
    left = bytes_of(store.parent)
    assert (b"xylophone" in left, b"ada" in left, left.count(b"zeppelin answered")) == (False, False, 2)
    assert using(store, SQLite.users) == ["ben"]


def test_what_was_typed_in_a_chat_goes_with_its_user(store: Path) -> None:
    using(store, fill)
    history = Path(os.environ["XDG_DATA_HOME"]) / "brain" / "chat-history"
    history.parent.mkdir(parents=True, exist_ok=True)
    history.touch()
    assert run(["forget", "ada", "--yes"]) == 0
    assert history.exists()
    run(["forget", "local", "--yes"])
    assert not history.exists()


def test_specialists_are_told(store: Path, keepers: Path) -> None:
    using(store, fill)
    assert run(["forget", "ada", "--yes"]) == 0
    assert (keepers / "told.txt").read_text() == "ada None\n"


def test_one_that_cannot_forget_is_named_and_can_be_told_again(
    store: Path, keepers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    using(store, fill)
    (keepers / "keepers.py").write_text(KEEPERS + STUBBORN)
    assert run(["forget", "ada", "--yes"]) == 1
    assert capsys.readouterr().err.endswith("brain: mule could not forget what it keeps of ada; run it again\n")
    (keepers / "keepers.py").write_text(KEEPERS)
    assert run(["forget", "ada", "--yes"]) == 1, "nothing of ada is in the store any more"
    assert (keepers / "told.txt").read_text() == "ada None\nada None\n"


def test_what_cannot_be_scrubbed_is_erased_all_the_same_and_is_when_it_is_run_again(
    store: Path, keepers: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "SCRUB_PATIENCE_SECONDS", 0.01)
    using(store, fill)
    with closing(sqlite3.connect(store, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM user").fetchall()
        assert run(["forget", "ada", "--yes"]) == 1
        assert b"xylophone" in bytes_of(store.parent)
    out, err = capsys.readouterr()
    assert out == "Erased of ada: 2 conversations, 4 messages, 2 files, 1 fact, 1 memory.\n"
    assert err == (
        "brain: what is erased has left traces in the free space of the file, which are still there: "
        "Somebody reads what is kept; run it again\n"
    )
    assert (keepers / "told.txt").read_text() == "ada None\n"
    assert run(["forget", "ada", "--yes"]) == 1, "nothing of ada is in the store any more"
    assert capsys.readouterr() == ("", "Nothing is kept of ada. Of whom something is: ben.\n")
    assert b"xylophone" not in bytes_of(store.parent)


def test_of_whom_nothing_is_kept_says_so_and_names_the_others(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    using(store, fill)
    assert run(["forget", "Ada", "--yes"]) == 1
    assert capsys.readouterr() == ("", "Nothing is kept of Ada. Of whom something is: ada, ben.\n")
    assert using(store, SQLite.users) == ["ada", "ben"]


def test_where_there_is_no_store_none_is_made(store: Path, keepers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["forget", "ada", "--yes"]) == 1
    assert capsys.readouterr() == ("", "Nothing is kept of ada. Of whom something is: nobody.\n")
    assert not store.exists()
    assert (keepers / "told.txt").read_text() == "ada None\n"


def test_where_nobody_can_be_asked_nothing_is_erased(store: Path) -> None:
    using(store, fill)
    with brain("forget", "ada") as process:
        sentence = "brain: Nobody can be asked here whether to erase all that is kept of ada: say so with --yes.\n"
        assert process.end() == (1, "", sentence)
    assert using(store, SQLite.users) == ["ada", "ben"]


def test_a_turn_that_runs_is_not_erased_under_its_feet(store: Path, tmp_path: Path) -> None:
    model = script(tmp_path, {"chunks": ["So ", *["and on "] * 200], "delay_ms": 50})
    with brain("ask", "hi", "--model", model) as asking:
        assert asking.process.stdout is not None
        asking.process.stdout.read(3)
        with brain("forget", "local", "--yes") as process:
            code, out, err = process.end()
        assert (code, out) == (1, "")
        assert err == "brain: A turn of local is running; wait for its end, or stop it. Nothing was erased.\n"
    assert using(store, SQLite.users) == ["local"]


# Somebody is asked


@contextmanager
def at_terminal(*arguments: str) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "brain", *arguments],
        stdin=slave, stdout=subprocess.PIPE, stderr=slave, env={**os.environ, "BRAIN_MODEL": "builtin"},
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        yield master, process
    finally:
        process.kill()
        process.communicate()
        os.close(master)


def seen(master: int, until: str) -> str:
    text = ""
    while until not in text:
        brought = read(master)
        assert brought, f"never saw {until!r}: {text!r}"
        text += brought.decode().replace("\r\n", "\n")
    return text


@pytest.mark.parametrize(("typed", "left"), [("y\n", ["ben"]), ("Yes\n", ["ben"])])
def test_a_yes_erases(typed: str, left: Sequence[str], store: Path) -> None:
    using(store, fill)
    with at_terminal("forget", "ada") as (master, process):
        there = "2 conversations, 4 messages, 2 files, 1 fact, 1 memory, and what specialists keep"
        assert seen(master, "[y/N] ") == f"Erase all that is kept of ada: {there}? [y/N] "
        os.write(master, typed.encode())
        assert process.communicate(timeout=20)[0].startswith(b"Erased of ada: 2 conversations,")
        assert process.returncode == 0
    assert using(store, SQLite.users) == left


@pytest.mark.parametrize("typed", ["\n", "n\n", "ja\n", "\x04"], ids=["enter", "n", "ja", "ctrl-d"])
def test_whatever_is_no_yes_erases_nothing(typed: str, store: Path) -> None:
    using(store, fill)
    with at_terminal("forget", "ada") as (master, process):
        seen(master, "[y/N] ")
        os.write(master, typed.encode())
        assert "Nothing was erased.\n" in seen(master, "erased.\n")
        assert process.communicate(timeout=20)[0] == b""
        assert process.returncode == 1
    assert using(store, SQLite.users) == ["ada", "ben"]


def test_ctrl_c_erases_nothing(store: Path) -> None:
    using(store, fill)
    with at_terminal("forget", "ada") as (master, process):
        seen(master, "[y/N] ")
        os.write(master, b"\x03")
        os.killpg(process.pid, 2)  # a terminal that is not the controlling one of the process sends no signal
        assert process.wait(10) == 130
    assert using(store, SQLite.users) == ["ada", "ben"]


# Beside a server


def test_beside_a_server_that_goes_on(store: Path, tmp_path: Path) -> None:
    model = script(tmp_path, ["Hello."])
    with brain("serve", "--port", "0", "--model", model) as server:
        url = server.url()
        assert post(url, json={"message": "the xylophone", "conversation_id": "c1"}).names[-1] == "done"
        assert run(["memory", "add", "I play the xylophone."]) == 0
        time.sleep(1.1)  # after which the server sees what others wrote
        answer = post(url, json={"message": "the xylophone?", "conversation_id": "c1"})
        assert "recalled" in [event.data.get("code") for event in answer.events]
        assert run(["forget", "local", "--yes"]) == 0
        assert b"xylophone" not in bytes_of(store.parent)
        time.sleep(1.1)
        answer = post(url, json={"message": "the drum?", "conversation_id": "c1"})
        assert (answer.names[-1], "notice" in answer.names) == ("done", False)
        found = httpx.get(f"{url}/v1/conversations", trust_env=False).json()["conversations"]
        assert [(one["id"], one["title"], one["messages"]) for one in found] == [("c1", "the drum?", 2)]
        assert run(["export"]) == 0
