"""`brain export` and `brain import`: files, lines and progress. The store has the tests of records."""

import asyncio
import base64
import json
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from brain.cli.commands import store_access, transfer
from brain.events import Citation
from brain.messages import Attachment, Call, Exchange, FormerText, Item, Steer, Text
from brain.prompts.templates import marker
from brain.runtime import import_sanitizer
from brain.store import items, users
from brain.store.store import Store
from cli.command import Brain, interrupt

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TIME = "2026-11-20T12:00:00Z"
HEAD = {"kind": "brain", "version": 1, "user": "ada"}
CONVERSATION = {"kind": "conversation", "id": "c1", "title": "Tea", "created": TIME}
EXCHANGE = {
    "kind": "exchange", "conversation": "c1", "question_id": "m1", "answer_id": "m2", "said": "I like tea.",
    "question": "I like tea.", "asked": TIME, "outcome": "complete",
    "parts": [{"kind": "said", "text": "Noted.", "turn_pass": 1}],
}  # fmt: skip
FACT = {"kind": "item", "type": "fact", "id": "k7m2", "text": "Likes tea.", "category": "preferences"}
FACT |= {"created": TIME, "updated": TIME}
WHOLE = [HEAD, CONVERSATION, EXCHANGE, FACT]
Record = dict[str, Any]


async def fill(store: Store) -> None:
    """Something of everything of one user, and with the same ids of another one."""
    for user, word in (("ada", "tea"), ("ben", "coffee")):
        question = Exchange(
            "(Now: noon)\n\nLook.", question_id="q1", message=f"{word}: look.", source="voice", started=NOON
        )
        record = await store.write_question(
            user, "c1", question, [Attachment(1, "a.bin", "image/png", bytes(range(256)))]
        )
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
        await store.end(await store.write_question(user, "c1", again, []), again)
        await store.write_question(user, "c2", Exchange("Runs.", question_id="q1", message="Runs.", started=NOON), [])
        former = (FormerText(f"Likes no {word}.", NOON),)
        fact = Item("k7m2", "fact", f"Likes {word}.", NOON, NOON, "preferences", False, "c1", "q1", True, former)
        await store.write(items.put, user, fact)
        await store.write(
            items.put, user, Item("aaaa", "memory", f"Spoke of {word}.", NOON, NOON, conversation_id="c1")
        )
    await store.write(users.set_recalls, "ada", False)


def parse(text: str) -> list[Record]:
    return [json.loads(line) for line in text.split("\n") if line]  # U+2028 ends no line of JSON


def to_lines(*records: object) -> bytes:
    """JSON Lines; a text or bytes stand as they are."""
    lines = [one.encode() if isinstance(one, str) else one for one in records]
    return b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines)


def write(path: Path, *records: object) -> str:
    path.write_bytes(to_lines(*records))
    return str(path)


def export(brain: Brain, user: str = "ada") -> list[Record]:
    code, out, _ = brain("export", "--user", user)
    assert code == 0
    return parse(out)


def imported(records: Sequence[Record]) -> list[Record]:
    """What becomes of exported records: nothing proves any more who wrote them."""
    found = deepcopy(list(records))
    for exchange in (one for one in found if one["kind"] == "exchange"):
        exchange |= {"untrusted": True, "author": "unknown"}
        exchange.pop("tokens", None)
        exchange["question"] = exchange["question"].replace("(Now:", "（Now:")
        for call in (part for part in exchange.get("parts", ()) if part["type"] == "call"):
            call["marker"] = marker(call["name"], call.get("params") or {}, "bracket")
            call["block"] = call["block"].strip("\n")
    return found


def test_an_export_is_imported_once_and_replaces_nothing(brain: Brain, tmp_path: Path) -> None:
    brain.use(fill)
    before = {user: export(brain, user) for user in ("ada", "ben")}
    assert "coffee" not in json.dumps(before["ada"])
    file = write(tmp_path / "ada.jsonl", *before["ada"])
    counts = "2 conversations, 4 messages, 1 file, 1 fact, 1 summary"
    found = f"Imported for user cora: {counts}. Skipped (already present): nothing.\n"
    assert brain("import", file, "--user", "cora") == (0, found, "")
    copy = export(brain, "cora")
    assert copy[1:] == imported(before["ada"])[1:]
    assert base64.b64decode(next(one["data"] for one in copy if one["kind"] == "file")) == bytes(range(256))
    found = "Imported for user ada: nothing. Skipped (already present): 2 conversations, 1 fact, 1 summary.\n"
    assert brain("import", file) == (0, found, "")
    changed = {**FACT, "text": "Hates tea."}, {**FACT, "id": "zzzz"}
    found = "Imported for user ben: 1 fact. Skipped (already present): 1 fact.\n"
    assert brain("import", "-", "--user", "ben", stdin=to_lines(HEAD, *changed)) == (0, found, "")
    assert [one for one in export(brain, "ben") if one.get("id") != "zzzz"][1:] == before["ben"][1:]


def test_an_exported_file_is_private_and_complete_or_not_there(brain: Brain, tmp_path: Path) -> None:
    brain.use(fill)
    path = tmp_path / "copies" / "ada.jsonl"
    command = "export", "--output", str(path), "--user"
    code, _, err = brain(*command, "ada")
    assert (code, str(path) in err) == (1, True)
    path.parent.mkdir()
    path.write_text("the one before")
    assert brain(*command, "nobody")[0] == 1
    assert path.read_text() == "the one before"
    assert brain(*command, "ada") == (0, "", f"Exported 10 records of user ada to {path}.\n")
    assert parse(path.read_text())[1:] == export(brain)[1:]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["ada.jsonl"]
    for place in (os.devnull, "."):
        code, _, err = brain("export", "--user", "ada", "--output", place)
        assert (code, f" {place}: " in err) == (1, True)


# import


def deep(levels: int) -> Record:
    """An exchange with a call whose parameters nest so deep."""
    params: object = 1
    for _ in range(levels):
        params = [params]
    call = {"kind": "called", "call_id": "c", "name": "x", "marker": "", "block": "", "turn_pass": 1}
    return {**EXCHANGE, "parts": [{**call, "params": {"a": params}}]}


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([], " is empty."),
        (["", " "], " is empty."),
        (["[1"], ", line 1 is not valid JSON: "),
        ([HEAD, b"\xff\xfe"], ", line 2 is not valid JSON: "),
        ([HEAD, '"\xff'.encode("latin-1")], ", line 2 is not valid JSON: "),
        ([HEAD, [1]], ", line 2: "),
        ([HEAD, "[" * 90_000], ", line 2 is not valid JSON: it is nested too deeply."),
        ([HEAD, CONVERSATION, deep(80)], ", line 3 "),
        ([HEAD, {**FACT, "text": "x" * 200_000}], ", line 2 "),
        ([HEAD, {**FACT, "was": [0] * 30_000}], ", line 2: "),
        ([FACT], ", line 1: "),
        ([{**HEAD, "version": 3}], ", line 1, version: "),
        ([{"kind": "brain", "version": 1}], ", line 1: "),
        ([{**HEAD, "user": ["ada"]}], ", line 1: "),
        ([{**HEAD, "exported": "noon"}], ", line 1, exported: must be a time such as "),
        ([HEAD, {**FACT, "text": 5}], ", line 2, text: "),
        ([HEAD, EXCHANGE], ", line 2, conversation: "),
        ([HEAD, "", CONVERSATION, EXCHANGE, "", FACT, FACT], ", line 7, id: "),
    ],
)  # fmt: skip
def test_a_problem_names_the_line_and_nothing_is_imported(
    records: list[object], sentence: str, brain: Brain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "MAX_LINE", 100_000)
    monkeypatch.setattr(transfer, "MAX_COMMAS", 20_000)
    assert brain("memory", "add", "I was here.", "--user", "ada")[0] == 0
    file = write(tmp_path / "x.jsonl", *records)
    code, out, err = brain("import", file)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"brain: {file}{sentence}")
    assert [one.get("text") for one in export(brain) if one["kind"] == "item"] == ["I was here."]
    code, _, err = brain("import", "-", stdin=to_lines(*records))
    assert (code, f"standard input{sentence}" in err) == (1, True)


def test_parameters_may_nest_as_deep_as_in_a_call(brain: Brain) -> None:
    assert brain("import", "-", stdin=to_lines(HEAD, CONVERSATION, deep(63)))[0] == 0


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ([HEAD, "", FACT, {**FACT, "id": ""}], ", line 4, id: "),
        ([{**HEAD, "user": "ben"}, FACT], ", line 1: "),
        ([{**HEAD, "version": 2}, FACT], ", line 1: "),
        ([FACT], ", line 1: "),
        ([], " is empty."),
        (None, ": "),
    ],
)
def test_several_files_are_imported_together_or_not_at_all(
    second: list[object] | None, sentence: str, brain: Brain, tmp_path: Path
) -> None:
    one = write(tmp_path / "one.jsonl", HEAD, "", CONVERSATION, EXCHANGE)
    bad = str(tmp_path / "bad.jsonl") if second is None else write(tmp_path / "bad.jsonl", *second)
    code, out, err = brain("import", one, bad)
    assert (code, out) == (1, "")
    assert f"{bad}{sentence}" in err
    assert brain("export", "--user", "ada")[0] == 1
    two = write(tmp_path / "two.jsonl", {**HEAD, "user": "ben"}, FACT)
    found = "Imported for user cora: 1 conversation, 2 messages, 1 fact. Skipped (already present): nothing.\n"
    assert brain("import", one, two, "--user", "cora")[:2] == (0, found)
    assert [record["kind"] for record in export(brain, "cora")] == [
        *("brain", "conversation", "exchange", "item", "preferences"),
    ]


def test_ctrl_c_ends_the_wait_for_standard_input(brain: Brain) -> None:
    with brain.process("import", "-", stdin=subprocess.PIPE) as process:
        assert process.process.stdin is not None
        process.process.stdin.write(to_lines(HEAD) + b" " * 200_000)  # more than a pipe holds: it reads
        process.process.stdin.flush()
        assert interrupt(process) == 130
    assert not brain.store.exists()


def test_long_work_shows_its_progress(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_access, "PROGRESS_SECONDS", 0.001)
    facts = ({**FACT, "id": f"k{n}", "text": f"Likes tea number {n}."} for n in range(3_000))
    code, _, err = brain("import", "-", stdin=to_lines(HEAD, *facts))
    assert code == 0
    assert " records read …\n" in err
    assert "3,001 records being stored …\n" in err
    assert " records written …\n" in brain("export", "--user", "ada")[2]


def test_a_cancelled_import_stores_nothing(brain: Brain, caplog: pytest.LogCaptureFixture) -> None:
    async def cancel(store: Store) -> None:
        read = asyncio.Event()

        def records() -> Iterator[Record]:
            yield HEAD
            for n in range(20_000):
                yield {**FACT, "id": f"k{n}"}
            read.set()

        task = asyncio.create_task(store.import_user("ada", records(), import_sanitizer))
        await read.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.search(users.names) == []

    brain.use(cancel)
    assert caplog.records == []
