"""`brain ask` in a conversation: what is kept of it, how it goes on, and what is said to who reads it in a terminal."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from emulator import Terminal
from serving import Process, script

from brain.cli.main import run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "kept" / "brain.db"


def ask(store: Path | str, model: str, *arguments: str, message: str = "hello") -> tuple[int, str, str]:
    place = store if isinstance(store, str) else f"sqlite:{store}"
    with Process("ask", message, "--model", model, *arguments, env={"BRAIN_STORE": place}) as process:
        return process.end(30)


def events(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def exchanges(store: Path) -> list[tuple[str, str, str, str]]:
    """Conversation, source, what was said, and how it ended, of all that is kept."""
    with closing(sqlite3.connect(store)) as db:
        columns = "c.id, e.source, e.data ->> 'message', e.outcome"
        query = f"SELECT {columns} FROM exchange e JOIN conversation c ON c.key = e.key >> 32 ORDER BY e.key"
        return db.execute(query).fetchall()


def test_each_question_begins_a_conversation(store: Path, tmp_path: Path) -> None:
    model = script(tmp_path, ["Hello."])
    assert [ask(store, model)[0] for _ in range(2)] == [0, 0]
    (first, *_), (second, *rest) = exchanges(store)
    assert first != second
    assert rest == ["chat", "hello", "complete"]


def test_a_conversation_goes_on(store: Path) -> None:
    _, out, _ = ask(store, "builtin", "--json", message="I said potato.")
    conversation = events(out)[0]["data"]["conversation_id"]
    code, out, _ = ask(store, "builtin", "--json", "--conversation", conversation, "--source", "voice", message="And?")
    usage = next(event["data"] for event in events(out) if event["event"] == "usage")
    assert (code, events(out)[0]["data"]["conversation_id"]) == (0, conversation)
    assert [row[:3] for row in exchanges(store)] == [
        (conversation, "chat", "I said potato."),
        (conversation, "voice", "And?"),
    ]
    alone = next(
        event["data"]
        for event in events(ask(store, "builtin", "--json", message="And?")[1])
        if event["event"] == "usage"
    )
    assert usage["prompt_tokens"] > alone["prompt_tokens"] + 100, "it read what was said before"


def test_a_name_of_ones_own_begins_a_conversation_and_goes_on_with_it(store: Path, tmp_path: Path) -> None:
    model = script(tmp_path, ["Hello."])
    for _ in range(2):
        assert ask(store, model, "--conversation", "shopping")[0] == 0
    assert [row[0] for row in exchanges(store)] == ["shopping", "shopping"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "../x"])
def test_what_cannot_be_an_id_is_refused(store: Path, name: str) -> None:
    sentence = "brain: --conversation must be 1 to 64 letters, digits, _ or -.\n"
    assert ask(store, "builtin", "--conversation", name) == (1, "", sentence)
    assert not store.exists()


def test_ctrl_c_keeps_what_was_said(store: Path, tmp_path: Path) -> None:
    model = script(tmp_path, {"chunks": ["So ", "far. ", *["and on "] * 200], "delay_ms": 50})
    with Process(
        "ask", "hi", "--model", model, "--conversation", "c", env={"BRAIN_STORE": f"sqlite:{store}"}
    ) as process:
        assert process.process.stdout is not None
        assert process.process.stdout.read(8) == b"So far. "
        process.process.send_signal(signal.SIGINT)
        assert process.end()[0] == 130
    assert exchanges(store) == [("c", "chat", "hi", "cancelled")]
    with closing(sqlite3.connect(store)) as db:
        ((data,),) = db.execute("SELECT data FROM exchange").fetchall()
    assert json.loads(data)["parts"][0]["text"].startswith("So far. ")


def test_facts_are_recalled_unless_it_is_said_otherwise(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIN_STORE", f"sqlite:{store}")
    assert run(["memory", "add", "I am vegetarian."]) == 0
    model = script(tmp_path, ["Lentils."])
    told = "Recalled 1 fact: I am vegetarian.\n"
    assert ask(store, model, message="What shall I cook?") == (0, "Lentils.\n", told)
    assert ask(store, model, "--no-memory", message="What shall I cook?") == (0, "Lentils.\n", "")


def test_a_conversation_is_not_asked_twice_at_once(store: Path, tmp_path: Path) -> None:
    model = script(tmp_path, {"chunks": ["So ", *["and on "] * 200], "delay_ms": 50})
    with Process(
        "ask", "hi", "--model", model, "--conversation", "c", env={"BRAIN_STORE": f"sqlite:{store}"}
    ) as process:
        assert process.process.stdout is not None
        process.process.stdout.read(3)
        code, out, err = ask(store, "builtin", "--conversation", "c")
        assert (code, out) == (1, "")
        assert err.startswith("brain: A turn of this conversation is running;")
        assert ask(store, "builtin", "--conversation", "another")[0] == 0


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.write_bytes(b"no database" * 200), "is no database; name another file"),
        (lambda path: path.mkdir(), "is a folder; name a file"),
    ],
    ids=["no database", "folder"],
)
def test_a_store_that_cannot_be_opened_stops_it(tmp_path: Path, make: Any, sentence: str) -> None:
    place = tmp_path / "brain.db"
    make(place)
    code, out, err = ask(place, "builtin")
    assert (code, out) == (1, "")
    assert err.startswith(f"brain: {place}")
    assert sentence in err
    assert "Traceback" not in err


def in_terminal(store: str, model: str, *arguments: str) -> str:
    """`brain ask` in a terminal; what is seen there, at the end."""
    with Terminal("ask", "hello", "--model", model, *arguments, env={"BRAIN_STORE": store}) as terminal:
        code, seen = terminal.end()
    assert code == 0
    return seen


def test_one_who_reads_it_in_a_terminal_is_told_how_to_go_on(store: Path, tmp_path: Path) -> None:
    seen = in_terminal(f"sqlite:{store}", script(tmp_path, ["Hello."]))
    ((conversation, *_),) = exchanges(store)
    assert seen == f'Hello.\n\nGo on with: brain ask --conversation {conversation} "…"'


def test_programs_and_those_who_keep_nothing_are_not(store: Path, tmp_path: Path) -> None:
    model = script(tmp_path, ["Hello."])
    assert in_terminal("memory:", model) == "Hello."
    assert "Go on with" not in in_terminal(f"sqlite:{store}", model, "--json")
    assert ask(store, model) == (0, "Hello.\n", "")


# What is piped to it


def files(store: Path) -> list[tuple[str, str, bytes]]:
    with closing(sqlite3.connect(store)) as db:
        return db.execute("SELECT name, type, data FROM file ORDER BY key").fetchall()


def fed(store: Path, model: str, data: bytes, *arguments: str) -> tuple[int, str, str]:
    """`brain ask` with a pipe that brings these bytes, and ends."""
    command = [sys.executable, "-m", "brain", "ask", "--model", model, *arguments]
    env = {**os.environ, "BRAIN_STORE": f"sqlite:{store}"}
    found = subprocess.run(command, input=data, capture_output=True, check=False, env=env)
    return found.returncode, found.stdout.decode(), found.stderr.decode()


def test_what_is_piped_is_attached(store: Path, tmp_path: Path) -> None:
    model = script(tmp_path, ["Hello."])
    said = "Attached: standard input, 12 bytes\n"
    assert fed(store, model, b"disk is full", "What went wrong?") == (0, "Hello.\n", said)
    code, _, err = fed(store, model, b"\x89PNG\r\n\x1a\nno picture", "--json", "What is it?")
    assert (code, err.splitlines()[0]) == (0, "Attached: standard input, 18 bytes")
    assert files(store) == [
        ("standard-input.txt", "text/plain", b"disk is full"),
        ("standard-input", "image/png", b"\x89PNG\r\n\x1a\nno picture"),
    ]


def test_a_file_that_is_redirected_is_attached_too(store: Path, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("from a file")
    model = script(tmp_path, ["Hello."])
    with (
        (tmp_path / "log.txt").open() as file,
        Process("ask", "Hi.", "--model", model, env={"BRAIN_STORE": f"sqlite:{store}"}, stdin=file) as process,
    ):
        assert process.end() == (0, "Hello.\n", "Attached: standard input, 11 bytes\n")
    assert files(store) == [("standard-input.txt", "text/plain", b"from a file")]


@pytest.mark.parametrize("arguments", [["--file", "-", "Hi."], ["-"]], ids=["file", "message"])
def test_a_dash_is_standard_input(store: Path, tmp_path: Path, arguments: list[str]) -> None:
    model = script(tmp_path, ["Hello."])
    assert fed(store, model, "Grüezi\nmitenand\n".encode(), *arguments) == (0, "Hello.\n", "")
    ((_, _, said, _),) = exchanges(store)
    kept = "".join(data.decode() for _, _, data in files(store))
    assert (said, kept) == (("Hi.", "Grüezi\nmitenand\n") if "--file" in arguments else ("Grüezi\nmitenand", ""))


def test_an_empty_pipe_is_nothing(store: Path, tmp_path: Path) -> None:
    assert fed(store, script(tmp_path, ["Hello."]), b"", "Hi.") == (0, "Hello.\n", "")
    assert files(store) == []


def test_a_silent_pipe_that_nobody_named_is_not_waited_for(store: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    model = script(tmp_path, ["Hello."])
    with Process("ask", "Hi.", "--model", model, env={"BRAIN_STORE": f"sqlite:{store}"}, stdin=reading) as process:
        code, out, err = process.end()
    os.close(reading)
    os.close(writing)
    assert (code, out) == (0, "Hello.\n")
    assert err == (
        "Standard input is silent and was not waited for; --file - attaches it, < /dev/null says there is none.\n"
    )


def test_ctrl_c_ends_the_wait_for_a_pipe_that_was_named(store: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    model = script(tmp_path, ["Hello."])
    with Process("ask", "-", "--model", model, env={"BRAIN_STORE": f"sqlite:{store}"}, stdin=reading) as process:
        os.write(writing, b"half a ")
        with pytest.raises(subprocess.TimeoutExpired):
            process.end(2)  # it waits for the rest
        process.process.send_signal(signal.SIGINT)
        assert process.end()[0] == 130
    os.close(reading)
    os.close(writing)
    assert not store.exists()


@pytest.mark.parametrize(
    ("arguments", "data", "sentence"),
    [
        (["-", "--file", "-"], b"x", "Standard input can be read once: as the message, or as one file."),
        (["Hi.", "--file", "-"], b"", "Standard input is empty."),
        (["-"], b" \n", "The message is empty."),
        (["Hi.", *["--file", "nothing"] * 11], b"", "At most 10 attachments a message."),
        (["Hi."], b"x" * (16 * 1024 * 1024 + 1), "Standard input is larger than 16 MiB."),
    ],
    ids=["twice", "empty file", "empty message", "too many", "too large"],
)
def test_what_cannot_be_read_is_said(store: Path, arguments: list[str], data: bytes, sentence: str) -> None:
    assert fed(store, "builtin", data, *arguments) == (1, "", f"brain: {sentence}\n")


def test_a_missing_message_is_an_error_that_says_how(store: Path) -> None:
    code, out, err = fed(store, "builtin", b"")
    assert (code, out) == (2, "")
    assert err.endswith(
        'brain ask: error: say what to ask: brain ask "…", or brain ask - to read it from standard input\n'
    )
