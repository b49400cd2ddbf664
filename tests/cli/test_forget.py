"""`brain forget`: erased data, the confirmation, and a server on the same store."""

import io
import os
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from brain_servers import post, script
from limits import WAIT_SECONDS
from store_helpers import NO_LIMITS, task_of
from terminal_emulator import Terminal
from turn_helpers import words

from brain.messages import Attachment, Exchange, Item, Text
from brain.store import items, tasks
from brain.store.store import Store
from cli.command import Brain

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SPECIALISTS = '''\
"""Specialists that store data of a user."""

from pathlib import Path

from brain import specialist

HERE = Path(__file__).parent


def erase(user: str, conversation_id: str | None) -> None:
    with (HERE / "erased.txt").open("a") as file:
        file.write(f"{user} {conversation_id}\\n")


def fail(user: str, conversation_id: str | None) -> None:
    if (HERE / "fails").exists():
        raise OSError("secret")


@specialist(forget=erase)
def keeper() -> str:
    """Keeps."""
    return ""


@specialist(forget=fail)
def mule() -> str:
    """Keeps."""
    return ""
'''
ALL = "2 conversations, 4 messages, 2 files, 1 fact, 1 summary, 1 task"
ERASED = f"Erased for user ada: {ALL}.\n"
QUESTION = f"Erase all data of user ada? {ALL} and specialist data. This cannot be undone. [y/N]"


async def fill(store: Store) -> None:
    """The same data of two users, but for one word in every text."""
    for user, word in (("ada", "xylophone"), ("ben", "zeppelin")):
        for conversation in ("c1", "c2"):
            question = Exchange(f"{word} q", question_id="q1", message=f"{word} said", started=NOON)
            record = await store.write_question(
                user, conversation, question, [Attachment(1, word, "text/plain", word.encode())]
            )
            question.outcome, question.parts, question.files = "complete", [Text(f"{word} answered", 1)], (1,)
            await store.end(record, question)
        await store.write(items.put, user, Item("k7m2", "fact", f"{word} fact", NOON, NOON, "general"))
        await store.write(items.put, user, Item("aaaa", "memory", f"{word} memory", NOON, NOON, conversation_id="c1"))
        await store.write(tasks.create, task_of(user, f"{word} task", "c1"), NO_LIMITS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with specialists; `erased.txt` has what they erased."""
    found = tmp_path / "specialists"
    found.mkdir()
    (found / "some.py").write_text(SPECIALISTS)
    monkeypatch.setenv("BRAIN_SPECIALISTS_FOLDER", str(found))
    return found


def stored_bytes(brain: Brain) -> bytes:
    return b"".join(path.read_bytes() for path in brain.store.parent.iterdir())


def users(brain: Brain) -> list[str]:
    return [user for (user,) in brain.query("SELECT name FROM account ORDER BY name")]


def test_all_data_of_one_user_is_erased_also_from_the_files(brain: Brain, folder: Path) -> None:
    brain.use(fill)
    history = Path(os.environ["XDG_DATA_HOME"]) / "brain" / "chat-history"
    history.parent.mkdir(parents=True, exist_ok=True)
    history.touch()
    assert b"xylophone" in stored_bytes(brain)
    assert brain("forget", "ada", "--yes") == (0, ERASED, "")
    left = stored_bytes(brain)
    assert (b"xylophone" in left, b"ada" in left, left.count(b"zeppelin answered")) == (False, False, 2)
    assert users(brain) == ["ben"]
    assert history.exists()
    assert brain("forget", "local", "--yes") == (1, "", "brain: No data for user local. Users with data: ben.\n")
    assert not history.exists()
    assert (folder / "erased.txt").read_text() == "ada None\nlocal None\n"


def test_without_a_store_specialists_erase_all_the_same(brain: Brain, folder: Path) -> None:
    assert brain("forget", "ada", "--yes") == (1, "", "brain: No data for user ada. Users with data: none.\n")
    assert not brain.store.exists()
    assert (folder / "erased.txt").read_text() == "ada None\n"


def test_what_fails_is_named_and_done_when_it_is_run_again(
    brain: Brain, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brain.store.sqlite.database.SCRUB_PATIENCE_SECONDS", 0.01)
    brain.use(fill)
    (folder / "fails").touch()
    with closing(sqlite3.connect(brain.store, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM account").fetchall()
        code, out, err = brain("forget", "ada", "--yes")
        assert (code, out, err.count("Try: brain forget ada\n")) == (1, ERASED, 2)
        assert "mule" in err
        assert "secret" not in err
        assert b"xylophone" in stored_bytes(brain)
    (folder / "fails").unlink()
    assert brain("forget", "ada", "--yes") == (1, "", "brain: No data for user ada. Users with data: ben.\n")
    assert b"xylophone" not in stored_bytes(brain)
    assert (folder / "erased.txt").read_text() == "ada None\nada None\n"


def test_data_of_a_running_turn_is_not_erased(brain: Brain, tmp_path: Path) -> None:
    model = script(tmp_path, {"chunks": ["So ", *words(4000)], "delay_ms": 50})
    with brain.process("ask", "hi", "--model", model) as asking:
        assert asking.process.stdout is not None
        asking.process.stdout.read(3)
        assert brain("forget", "local", "--yes")[:2] == (1, "")
    assert users(brain) == ["local"]


# The question


class Tty(io.StringIO):
    """One side of a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "left"),
    [("y\n", ["ben"]), ("Yes\n", ["ben"]), *((no, ["ada", "ben"]) for no in ("\n", "n\n", "ja\n", ""))],
)
def test_only_a_yes_erases(typed: str, left: list[str], brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    brain.use(fill)
    monkeypatch.setattr(sys, "stderr", shown := Tty())
    code, _, _ = brain("forget", "ada", stdin=Tty(typed))
    assert (code, users(brain)) == (int(len(left) == 2), left)
    assert shown.getvalue() == f"{QUESTION} " + ("" if len(left) == 1 else "Nothing was erased.\n")


def test_ctrl_c_at_the_question_erases_nothing(brain: Brain) -> None:
    brain.use(fill)
    env = {"BRAIN_STORE": f"sqlite:{brain.store}", "BRAIN_MODEL": "builtin"}
    with Terminal("forget", "ada", env=env, columns=200) as terminal:
        terminal.sees(QUESTION)
        terminal.types("\x03")
        assert terminal.end()[0] == 130
    assert users(brain) == ["ada", "ben"]


def test_a_server_on_the_same_store_goes_on(brain: Brain, tmp_path: Path) -> None:
    with brain.process("serve", "--port", "0", "--model", script(tmp_path, ["Hello."])) as server:
        url = server.url()

        def ask(question: str) -> set[object]:
            """The codes of the notices of a turn."""
            return {event.data.get("code") for event in post(url, json={"message": question}).events}

        ask("the xylophone")
        assert brain("memory", "add", "I play the xylophone.")[0] == 0
        while "recalled" not in ask("the xylophone?"):  # until the server notices what another process wrote
            pass
        assert brain("forget", "local", "--yes")[0] == 0
        assert b"xylophone" not in stored_bytes(brain)
        while "recalled" in ask("the drum?"):
            pass
        found = httpx.get(f"{url}/v1/conversations", trust_env=False, timeout=WAIT_SECONDS).json()["conversations"]
        assert {one["title"] for one in found} == {"the drum?"}
        assert brain("export")[0] == 0
