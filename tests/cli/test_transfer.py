"""`brain export` and `brain import`: what goes out comes in again, all of it or nothing."""

import asyncio
import base64
import fcntl
import io
import json
import os
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from brain.cli.commands import transfer
from brain.cli.main import run
from brain.events import Citation
from brain.messages import Attachment, Call, Exchange, FormerText, Item, Steer, Text
from brain.prompts.templates import marker
from brain.runtime import import_sanitizer
from brain.store.sqlite import SQLite

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HEAD = {"kind": "brain", "version": 1, "user": "ada"}
CONVERSATION = {"kind": "conversation", "id": "c1", "title": "Tea", "created": "2026-11-20T12:00:00Z"}
EXCHANGE = {
    "kind": "exchange",
    "conversation": "c1",
    "question_id": "m1",
    "answer_id": "m2",
    "said": "I like tea.",
    "question": "I like tea.",
    "asked": "2026-11-20T12:00:00Z",
    "outcome": "complete",
    "parts": [{"kind": "said", "text": "Noted.", "turn_pass": 1}],
}
TIMES = {"created": "2026-11-20T12:00:00Z", "updated": "2026-11-20T12:00:00Z"}
FACT = {"kind": "item", "type": "fact", "id": "k7m2", "text": "Likes tea.", "category": "preferences", **TIMES}
WHOLE = [HEAD, CONVERSATION, EXCHANGE, FACT]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the store, which is not there yet."""
    return uses(tmp_path / "brain.db", monkeypatch)


def uses(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BRAIN_STORE", f"sqlite:{path}")
    return path


def filled(path: Path, fill: Callable[[SQLite], Coroutine[Any, Any, None]]) -> None:
    async def filling() -> None:
        one = SQLite(path)
        await one.open()
        try:
            await fill(one)
        finally:
            await one.close()

    asyncio.run(filling())


async def fill(store: SQLite) -> None:
    """Something of everything, and on the same ids something of somebody else."""
    for user, word in (("ada", "tea"), ("ben", "coffee")):
        question = Exchange(
            "(Now: noon)\n\nLook.", question_id="q1", message=f"{word}: look.", source="voice", started=NOON
        )
        record = await store.begin(user, "c1", question, [Attachment(1, "a.bin", "image/png", bytes(range(256)))])
        question.answer_id, question.outcome, question.ended, question.model = "a1", "call_limit", NOON, "player"
        question.files, question.recalled_ids, question.tokens = (1,), ("k7m2",), 321
        params = {"deep": [[{"a": "b ] c", "ü": None}]], "big": 10**15, "control": "\x00\u2028"}
        block = "\n\n[SPECIALIST_RESULT: x]\n…\n[/SPECIALIST_RESULT]\n\n"
        cited = (Citation("1", "T", "http://e.org"),)
        failed = "[SPECIALIST_ERROR: y failed - no]"
        question.parts = [
            Text(f"I look for {word}. ", 1),
            Call("x", "SPECIALIST_REQUEST[x:{}]", params, id="c1", block=block, citations=cited, turn_pass=1),
            Call("y", "SPECIALIST_REQUEST[y:{", id="c2", code="malformed", block=failed, turn_pass=1),
            Steer("in German", 2),
            Text("Grüße 👩‍🚀", 2),
        ]  # fmt: skip
        await store.end(record, question)
        again = Exchange("Again?", question_id="q2", message="Again?", started=NOON, outcome="model_unreachable")
        await store.end(await store.begin(user, "c1", again, []), again)
        await store.begin(user, "c2", Exchange("Runs.", question_id="q1", message="Runs.", started=NOON), [])
        was = (FormerText(f"Likes no {word}.", NOON),)
        await store.put(
            user,
            Item("k7m2", "fact", f"Likes {word}.", NOON, NOON, "preferences", False, "c1", "q1", True, was),
        )
        await store.put(user, Item("aaaa", "memory", f"Spoke of {word}.", NOON, NOON, conversation_id="c1"))
    await store.set_recall("ada", False)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n") if line]  # U+2028 ends no line of JSON


def written(path: Path, records: Sequence[object]) -> str:
    """A file with these records; what is a text or bytes stands in it as it is."""
    raw = [
        one if isinstance(one, bytes) else one.encode() if isinstance(one, str) else json.dumps(one).encode()
        for one in records
    ]
    path.write_bytes(b"".join(line + b"\n" for line in raw))
    return str(path)


def exported(capsys: pytest.CaptureFixture[str], user: str = "ada") -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(["export", "--user", user]) == 0
    return lines(capsys.readouterr().out)


def taken_in(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What becomes of an export that comes in: nothing says any more who wrote it."""
    found = deepcopy(list(records))
    for exchange in (one for one in found if one["kind"] == "exchange"):
        exchange["untrusted"] = True
        exchange.pop("tokens", None)
        exchange["question"] = exchange["question"].replace("(Now:", "（Now:")
        for call in (part for part in exchange.get("parts", ()) if part["type"] == "call"):
            call["marker"] = marker(call["name"], call.get("params") or {}, "bracket")
            call["block"] = call["block"].strip("\n")
    return found


def test_what_goes_out_comes_in_again(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store, fill)
    before = exported(capsys)
    assert "coffee" not in json.dumps(before)
    file = written(tmp_path / "ada.jsonl", before)
    uses(tmp_path / "new" / "brain.db", monkeypatch)
    assert run(["import", file]) == 0
    told = "Imported for ada: 2 conversations, 4 messages, 1 file, 1 fact, 1 memory. There already: nothing.\n"
    assert capsys.readouterr() == (told, "")
    after = exported(capsys)
    assert (after[0]["user"], after[1:]) == ("ada", taken_in(before)[1:])
    assert base64.b64decode(next(one["data"] for one in after if one["kind"] == "file")) == bytes(range(256))
    assert run(["import", file]) == 0
    told = "Imported for ada: nothing. There already: 2 conversations, 1 fact, 1 memory.\n"
    assert capsys.readouterr().out == told
    assert exported(capsys)[1:] == after[1:]


def test_it_may_become_somebody_elses(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(store, fill)
    before = {user: exported(capsys, user) for user in ("ada", "ben")}
    file = written(tmp_path / "ada.jsonl", before["ada"])
    assert run(["import", file, "--user", "cora"]) == 0
    assert exported(capsys, "cora")[1:] == taken_in(before["ada"])[1:]
    for user, records in before.items():
        assert exported(capsys, user)[1:] == records[1:]


def test_what_is_there_already_stays_as_it_is(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", written(tmp_path / "one.jsonl", WHOLE)]) == 0
    before = exported(capsys)
    other = [HEAD, {**CONVERSATION, "title": "Coffee"}, {**EXCHANGE, "said": "Coffee"}, {**FACT, "text": "Hates tea."}]
    new = {**FACT, "id": "zzzz"}
    assert run(["import", written(tmp_path / "two.jsonl", [*other, new])]) == 0
    assert capsys.readouterr().out == "Imported for ada: 1 fact. There already: 1 conversation, 1 fact.\n"
    after = exported(capsys)
    assert [one for one in after if one.get("id") != "zzzz"][1:] == before[1:]


def test_of_whom_nothing_is_kept_says_so_and_names_the_others(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(store, fill)
    assert run(["export"]) == 1
    assert capsys.readouterr() == ("", "brain: Nothing is kept of local. Of whom something is: ada, ben.\n")


@pytest.mark.parametrize("command", [["export"], ["memory"], ["memory", "delete", "k7m2"]])
def test_where_nothing_is_kept_nothing_is_made(
    command: list[str], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == 1
    sentence = (
        f"brain: Nothing is kept: there is no {store}. Where it is elsewhere, name it: BRAIN_STORE=sqlite:PATH.\n"
    )
    assert capsys.readouterr() == ("", sentence)
    assert not store.exists()


def test_memory_that_ends_with_its_process_is_no_store_for_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIN_STORE", "memory:")
    assert run(["export"]) == 1
    assert "STORE=memory: keeps nothing that a command could see" in capsys.readouterr().err


# --output


def test_a_copy_is_a_file_for_its_owner_and_whole(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(store, fill)
    path = tmp_path / "copies" / "ada.jsonl"
    assert run(["export", "--user", "ada", "--output", str(path)]) == 1
    assert capsys.readouterr().err == f"brain: --output {path}: No such file or directory.\n"
    path.parent.mkdir()
    path.write_text("the one before")
    assert run(["export", "--user", "nobody", "--output", str(path)]) == 1
    assert path.read_text() == "the one before"
    capsys.readouterr()
    assert run(["export", "--user", "ada", "--output", str(path)]) == 0
    assert capsys.readouterr() == ("", "Exported ada: 10 records.\n")
    assert lines(path.read_text())[1:] == exported(capsys)[1:]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["ada.jsonl"]


@pytest.mark.parametrize("place", [os.devnull, "."])
def test_what_is_no_file_is_not_replaced(place: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(store, fill)
    assert run(["export", "--user", "ada", "--output", place]) == 1
    assert capsys.readouterr().err == f"brain: --output {place}: this is no file.\n"


# import


def deep(levels: int) -> str:
    params: object = 1
    for _ in range(levels):
        params = [params]
    part = {
        "kind": "called",
        "call_id": "c",
        "name": "x",
        "marker": "",
        "block": "",
        "turn_pass": 1,
        "params": {"a": params},
    }
    return json.dumps({**EXCHANGE, "parts": [part]})


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([], "FILE is empty."),
        (["", " "], "FILE is empty."),
        (["[1"], "FILE, line 1 is not valid JSON: it ends too early, or in the middle of a character."),
        ([HEAD, b"\xff\xfe"], "FILE, line 2 is not valid JSON: "),
        ([HEAD, '"\xff'.encode("latin-1")], "FILE, line 2 is not valid JSON: "),
        ([HEAD, [1]], "FILE, line 2: this must be an object."),
        ([HEAD, "[" * 90_000], "FILE, line 2 is not valid JSON: it is nested too deeply."),
        ([HEAD, CONVERSATION, deep(80)], "FILE, line 3 may be nested 72 levels deep."),
        ([HEAD, {**FACT, "text": "x" * 200_000}], "FILE, line 2 may be 100,000 bytes long."),
        ([HEAD, {**FACT, "was": [0] * 30_000}], "FILE, line 2: this holds more than a line of an export."),
        ([FACT], "FILE, line 1, kind: this is no export of Brain's; it begins with a line of the kind brain."),
        ([{**HEAD, "version": 3}], "FILE, line 1, version: "),
        ([{"kind": "brain", "version": 1}], "FILE, line 1, user: nobody is named; say with --user whose it becomes."),
        ([{**HEAD, "user": ["ada"]}], "FILE, line 1, user: nobody is named;"),
        ([HEAD, {"kind": "secret"}], "FILE, line 2, kind: Invalid value 'secret'."),
        ([HEAD, {"kind": ["item"]}], "FILE, line 2, kind: Expected `str`."),
        ([HEAD, {**FACT, "text": 5}], "FILE, line 2, text: Expected `str`, got `int`."),
        ([HEAD, {**FACT, "updated": "yesterday"}], "FILE, line 2, updated: "),
        ([HEAD, {**FACT, "was": [{"text": "x"}]}], "FILE, line 2, was[0]: Object missing required field `until`."),
        ([HEAD, EXCHANGE], "FILE, line 2, conversation: it must stand behind the record of its conversation."),
        ([HEAD, "", CONVERSATION, EXCHANGE, "", FACT, FACT], "FILE, line 7, id: there are two records of this item."),
        ([*WHOLE, HEAD], "FILE, line 5, kind: the head comes once, first."),
    ],
)  # fmt: skip
def test_every_problem_names_the_line_and_nothing_is_taken_in(
    records: list[object],
    sentence: str,
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "LINE_MOST", 100_000)
    monkeypatch.setattr(transfer, "COMMAS_MOST", 20_000)
    filled(store, fill)
    before = exported(capsys)
    file = written(tmp_path / "x.jsonl", records)
    assert run(["import", file]) == 1
    out, err = capsys.readouterr()
    assert (out, err.replace(file, "FILE")[: len(sentence) + 7]) == ("", f"brain: {sentence}")
    assert err.count("\n") == 1
    assert exported(capsys)[1:] == before[1:]


def test_depth_of_what_a_call_may_be_given_is_taken_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", written(tmp_path / "x.jsonl", [HEAD, CONVERSATION, deep(63)])]) == 0


@pytest.mark.parametrize(("name", "reason"), [("none", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_named(
    name: str, reason: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", str(tmp_path / name)]) == 1
    assert capsys.readouterr() == ("", f"brain: {tmp_path / name}: {reason}.\n")
    assert not store.exists()


def test_several_files_are_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = written(tmp_path / "one.jsonl", [HEAD, CONVERSATION, EXCHANGE])
    two = written(tmp_path / "two.jsonl", [HEAD, FACT])
    assert run(["import", one, two]) == 0
    assert capsys.readouterr().out == "Imported for ada: 1 conversation, 2 messages, 1 fact. There already: nothing.\n"
    assert [one["kind"] for one in exported(capsys)] == ["brain", "conversation", "exchange", "item", "preferences"]


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ([HEAD, "", FACT, {**FACT, "id": ""}], "line 4, id: Expected `str` of length >= 1."),
        ([{**HEAD, "user": "ben"}, FACT], "line 1, user: the files before are of another user; say with --user whose"),
        ([{**HEAD, "version": 2}, FACT], "line 1, version: the files before are of another version;"),
        ([FACT], "line 1, kind: this is no export of Brain's;"),
        ([], "is empty."),
    ],
)
def test_a_bad_file_keeps_out_the_others(
    second: list[object], sentence: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path / "one.jsonl", [HEAD, "", CONVERSATION, EXCHANGE])
    two = written(tmp_path / "two.jsonl", second)
    assert run(["import", one, two]) == 1
    assert sentence in capsys.readouterr().err.removeprefix(f"brain: {two}")
    assert run(["export", "--user", "ada"]) == 1


def test_files_of_several_users_may_become_one_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = written(tmp_path / "one.jsonl", WHOLE)
    two = written(tmp_path / "two.jsonl", [{**HEAD, "user": "ben"}, {**FACT, "id": "zzzz"}])
    assert run(["import", one, two, "--user", "cora"]) == 0
    assert (
        capsys.readouterr().out == "Imported for cora: 1 conversation, 2 messages, 2 facts. There already: nothing.\n"
    )


def test_standard_input_is_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(*records: object) -> None:
        data = Path(written(tmp_path / "x.jsonl", records)).read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    typed(*WHOLE)
    assert run(["import", "-"]) == 0
    typed(HEAD, 1)
    assert run(["import", "-"]) == 1
    assert capsys.readouterr().err == "brain: standard input, line 2: this must be an object.\n"


def test_ctrl_c_ends_the_waiting_for_standard_input(store: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "brain", "import", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(HEAD).encode() + b"\n")
    process.stdin.flush()
    while any(fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4))):  # until it has read the line
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(5) == 130
    process.communicate()
    assert not store.exists()


def test_what_takes_long_tells_how_far_it_is(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = ({**FACT, "id": f"k{n}", "text": f"Likes tea number {n}."} for n in range(3_000))
    file = written(tmp_path / "x.jsonl", [HEAD, *facts])
    monkeypatch.setattr(transfer, "TELL_SECONDS", 0.001)
    assert run(["import", file]) == 0
    said = capsys.readouterr().err
    assert " records read …\n" in said
    assert "3,001 records are being kept …\n" in said
    assert run(["export", "--user", "ada"]) == 0
    assert " records written …\n" in capsys.readouterr().err


@pytest.mark.alone
def test_who_leaves_while_it_is_kept_has_nothing_of_it_kept(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def leave(store: SQLite) -> None:
        read = asyncio.Event()

        def records() -> Iterator[dict[str, Any]]:
            yield HEAD
            for n in range(20_000):
                yield {**FACT, "id": f"k{n}"}
            read.set()

        task = asyncio.create_task(store.import_user("ada", records(), import_sanitizer))
        await read.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 0.5
        assert await store.users() == []

    filled(store, leave)
    assert caplog.records == []
