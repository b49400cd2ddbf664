"""`brain ask`: one turn, in a new or an existing conversation, with files and with what is piped to it."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from brain_servers import script
from limits import WAIT_SECONDS
from turn_helpers import words

from brain.cli.commands import input
from cli.command import Brain, interrupt

SPECIALISTS = '''\
"""Specialists for these tests."""

import asyncio
from threading import Event

from brain import Progress, specialist


@specialist
async def count(to: int):
    """Counts, with half of a surrogate pair."""
    yield Progress("at 1\\ud83d", 1 / to)
    yield f"{to} it is.\\ud83d"


@specialist(timeout=60)
def block() -> str:
    """Blocks its thread."""
    Event().wait()


@specialist(timeout=60)
async def deaf() -> str:
    """Ignores its cancellation."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
'''
EXCHANGES = (
    "SELECT c.id, e.source, e.data ->> 'message', e.outcome "
    "FROM exchange e JOIN conversation c ON c.key = e.key >> 32 ORDER BY e.key"
)
ENDLESS = {"chunks": ["So ", "far. ", *words(4000)], "delay_ms": 50}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with specialists."""
    found = tmp_path / "specialists"
    found.mkdir()
    (found / "some.py").write_text(SPECIALISTS)
    monkeypatch.setenv("BRAIN_SPECIALISTS_FOLDER", str(found))
    return found


@pytest.fixture
def model(tmp_path: Path) -> str:
    return script(tmp_path, ["Hello."])


def events(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


# Output


def test_the_answer_goes_to_stdout_and_the_rest_to_stderr(brain: Brain, folder: Path) -> None:
    call = 'I count: SPECIALIST_REQUEST[count:{"to": 2}]SPECIALIST_REQUEST[unknown]'
    code, out, err = brain("ask", "--model", script(folder, [call], ["So it is ", "two."]), "how many?")
    assert (code, out) == (0, "I count: So it is two.\n")
    lines = [line.partition(" ms")[0].rstrip("0123456789") for line in err.splitlines()]
    assert lines[0] == '… count {"to": 2}'
    assert "✓ count, " in lines
    assert any(line.startswith("✗ unknown: unknown: ") for line in lines)


def test_json_prints_each_event_on_a_line(brain: Brain, folder: Path) -> None:
    passes = ['SPECIALIST_REQUEST[count:{"to": 2}]'], {"chunks": ["Grüezi"], "error": "secret"}
    code, out, _ = brain("ask", "--json", "--model", script(folder, *passes), "hello")
    found = events(out)
    assert code == 1
    assert [event["event"] for event in found] == [
        *("turn_start", "specialist_start", "specialist_progress", "specialist_result", "token", "usage", "error"),
    ]
    assert [event["id"].partition(".")[2] for event in found] == [str(n) for n in range(1, 8)]
    assert {event["id"].partition(".")[0] for event in found} == {found[0]["data"]["turn_id"]}
    data = {event["event"]: event["data"] for event in found}
    assert data["token"] == {"text": "Grüezi"}
    assert data["specialist_progress"]["text"] == "at 1\ufffd"
    assert data["specialist_result"]["text"] == "2 it is.\ufffd"
    assert "secret" not in out


# Conversations


def test_a_conversation_is_new_or_continues(brain: Brain, model: str) -> None:
    first = events(brain("ask", "--json", "--model", model, "hello")[1])
    conversation = first[0]["data"]["conversation_id"]
    arguments = "--conversation", conversation, "--source", "voice"
    second = events(brain("ask", "--json", "--model", model, *arguments, "And?")[1])
    for _ in range(2):
        assert brain("ask", "--model", model, "--conversation", "own-name", "hello") == (0, "Hello.\n", "")
    assert brain.query(EXCHANGES) == [
        (conversation, "chat", "hello", "complete"),
        (conversation, "voice", "And?", "complete"),
        *[("own-name", "chat", "hello", "complete")] * 2,
    ]
    assert second[-2]["data"]["prompt_tokens"] > first[-2]["data"]["prompt_tokens"]  # the model read what came before


def test_facts_are_recalled_or_not(brain: Brain, model: str) -> None:
    assert brain("memory", "add", "I am vegetarian.")[0] == 0
    ask = "ask", "--model", model, "Is tofu vegetarian?"
    assert brain(*ask) == (0, "Hello.\n", "Recalled 1 fact: I am vegetarian.\n")
    assert brain(*ask, "--no-memory") == (0, "Hello.\n", "")


def test_an_interrupted_answer_is_stored_and_a_busy_conversation_refused(
    brain: Brain, model: str, tmp_path: Path
) -> None:
    endless = script(tmp_path, ENDLESS, name="endless.jsonl")
    with brain.process("ask", "hi", "--model", endless, "--conversation", "c") as asking:
        assert asking.process.stdout is not None
        assert asking.process.stdout.read(8) == b"So far. "
        code, out, err = brain("ask", "--model", model, "--conversation", "c", "hello")
        assert (code, out) == (1, "")
        assert err.startswith("brain: This conversation has a running turn.")
        assert brain("ask", "--model", model, "--conversation", "another", "hello")[0] == 0
        asking.process.send_signal(signal.SIGINT)
        assert asking.end()[0] == 130
    assert ("c", "chat", "hi", "cancelled") in brain.query(EXCHANGES)
    ((text,),) = brain.query("SELECT data ->> '$.parts[0].text' FROM exchange WHERE outcome = 'cancelled'")
    assert text.startswith("So far. ")


# Processes that end in time


def test_ctrl_c_ends_it_though_a_specialist_ignores_that(brain: Brain, folder: Path) -> None:
    with brain.process("ask", "--model", script(folder, ["So far. SPECIALIST_REQUEST[deaf]"]), "hi") as asking:
        asking.said("… deaf")
        asking.process.send_signal(signal.SIGINT)
        code, out, err = asking.end()
    assert (code, out) == (130, "So far. \n")
    assert "Traceback" not in err


def test_it_ends_though_an_abandoned_thread_does_not(brain: Brain, folder: Path) -> None:
    model = script(folder, ["SPECIALIST_REQUEST[block]"], ["Without it."])
    with brain.process("ask", "--model", model, "hi", TURN_SECONDS=1) as asking:
        code, _, err = asking.end(WAIT_SECONDS)
    assert code == 0
    assert "✗ block: deadline:" in err


def test_a_reader_that_closes_the_pipe_is_no_error(brain: Brain, tmp_path: Path) -> None:
    with brain.process("ask", "--model", script(tmp_path, {"chunks": ["line\n"] * 50, "delay_ms": 10}), "hi") as asking:
        assert asking.process.stdout is not None
        asking.process.stdout.read(5)
        asking.process.stdout.close()
        assert asking.end(WAIT_SECONDS)[2] == ""


# Files and standard input

SAID, FILES = "SELECT data ->> 'message' FROM exchange", "SELECT name, type, data FROM file ORDER BY key"
PNG = b"\x89PNG\r\n\x1a\nno picture"


@pytest.mark.parametrize(
    ("arguments", "data", "message", "files", "size"),
    [
        (["Hi."], b"disk is full", "Hi.", [("standard-input.txt", "text/plain", b"disk is full")], "12 bytes"),
        (["Hi."], PNG, "Hi.", [("standard-input", "image/png", PNG)], "18 bytes"),
        (["--file", "-", "Hi."], b"twice\n", "Hi.", [("standard-input.txt", "text/plain", b"twice\n")], ""),
        (["-"], "Grüezi\nmitenand\n".encode(), "Grüezi\nmitenand", [], ""),
        (["Hi."], b"", "Hi.", [], ""),
        (["Hi.", "--file", "one.txt", "--file", "zwei.md"], None, "Hi.",
         [("one.txt", "text/plain", b"one"), ("zwei.md", "text/markdown", b"zwei")], ""),
    ],
)  # fmt: skip
def test_files_and_what_is_piped_are_attached(
    arguments: list[str],
    data: bytes | None,
    message: str,
    files: list[tuple[str, str, bytes]],
    size: str,
    brain: Brain,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("one")
    (tmp_path / "zwei.md").write_text("zwei")
    code, out, err = brain("ask", "--model", model, *arguments, stdin=data)
    assert (code, out) == (0, "Hello.\n")
    assert err.partition("\n")[0] == (f"Attached: standard input, {size}" if size else "")
    assert (brain.query(SAID), brain.query(FILES)) == ([(message,)], files)


def test_a_silent_pipe_that_nobody_named_is_not_read(brain: Brain, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input, "SILENT_SECONDS", 0.0)
    reading, writing = os.pipe()
    with os.fdopen(reading) as source:
        monkeypatch.setattr("sys.stdin", source)
        assert input.read_piped_attachments() == []
        os.write(writing, b"not silent")
        os.close(writing)
        assert [one.data for one in input.read_piped_attachments()] == [b"not silent"]


def test_ctrl_c_ends_the_wait_for_a_pipe_that_was_named(brain: Brain, model: str) -> None:
    reading, writing = os.pipe()
    with brain.process("ask", "-", "--model", model, stdin=reading) as asking:
        os.write(writing, b"x" * 200_000)  # more than a pipe holds: it reads, and waits for the rest
        assert interrupt(asking) == 130
    os.close(reading)
    os.close(writing)
    assert not brain.store.exists()


LARGE = b"a" * (16 * 1024 * 1024 + 1)


@pytest.mark.parametrize(
    ("arguments", "data", "part"),
    [
        (["-"], b" \n", "empty"),
        (["Hi.", "--file", "-"], b"", "Standard input is empty."),
        (["Hi."], LARGE, "16 MiB"),
        (["Hi.", *["--file", "nothing"] * 11], None, "10 "),
        (["Hi.", "--file", "empty"], None, "empty is empty."),
        (["Hi.", "--file", "large"], None, "16 MiB"),
        *((["Hi.", "--conversation", name], None, f"'{name[:64]}'") for name in ("", "a b", "x" * 65)),
    ],
)
def test_a_bad_message_or_file_stops_before_the_store_is_created(
    arguments: list[str],
    data: bytes | None,
    part: str,
    brain: Brain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(LARGE)
    code, out, err = brain("ask", "--model", "builtin", *arguments, stdin=data)
    assert (code, out, err.count("\n")) == (2 if "--conversation" in arguments else 1, "", 1)
    assert part in err
    assert not brain.store.exists()


def test_a_store_that_cannot_be_opened_stops_it(brain: Brain) -> None:
    brain.store.mkdir(parents=True)
    for _ in range(2):
        code, out, err = brain("ask", "--model", "builtin", "hello")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"brain: {brain.store} ")
        if brain.store.is_dir():
            brain.store.rmdir()
            brain.store.write_bytes(b"no database" * 200)
