"""`brain memory`: what is remembered is seen and changed by hand. `brain check`: whether the store is well."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from remembering import Vectors

from brain.cli.main import run
from brain.messages import FormerText, Item
from brain.store import connection
from brain.store.sqlite import SQLite

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TEA = Item("k7m2", "fact", "Likes tea.", NOON, NOON, "preferences", former=(FormerText("Likes coffee.", NOON),))
BLOOD = Item("f3a9", "fact", "My blood group is 0.", NOON, NOON, "personal", mutable=False)
TALK = Item("mm22", "memory", "Planned a trip\x1b[2J to Bergen.", NOON + timedelta(days=1), NOON, untrusted=True)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with items of two users."""
    path = tmp_path / "brain.db"
    monkeypatch.setenv("BRAIN_STORE", f"sqlite:{path}")

    async def fill(store: SQLite) -> None:
        for item in (TEA, BLOOD, TALK):
            await store.put("local", item)
        await store.put("ada", Item("k7m2", "fact", "Likes rain.", NOON, NOON, "general"))

    using(path, fill)
    return path


def using(path: Path, use: Callable[[SQLite], Coroutine[Any, Any, Any]]) -> Any:
    async def used() -> Any:
        one = SQLite(path)
        await one.open()
        try:
            return await use(one)
        finally:
            await one.close()

    return asyncio.run(used())


def memory(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    return run(["memory", *arguments]), *capsys.readouterr()


LISTED = """\
mm22     2026-11-20 memory      Planned a trip\\u{1b}[2J to Bergen.
                    may hold strangers' words
f3a9     2026-11-20 personal    My blood group is 0.
                    immutable: no model changes it
k7m2     2026-11-20 preferences Likes tea.
                    was: Likes coffee. (until 2026-11-20)
"""


@pytest.mark.parametrize("arguments", [[], ["list"], ["--user", "local"], ["list", "--user", "local"]])
def test_all_is_listed_newest_first(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert memory(capsys, *arguments) == (0, LISTED, "")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--kind", "memory"], ["mm22"]),
        (["--kind", "fact"], ["f3a9", "k7m2"]),
        (["--category", "personal"], ["f3a9"]),
        (["--search", "trips to drink tea"], ["k7m2", "mm22"]),
        (["--search", "tea", "--kind", "memory"], []),
        (["--search", 'AND "'], []),
    ],
)
def test_some_are_listed(arguments: list[str], found: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = memory(capsys, "list", *arguments)
    assert (code, err) == (0, "")
    if found:
        assert sorted(re.findall(r"^\w{4}", out, re.MULTILINE)) == sorted(found)
    else:
        assert out == "No facts and memories of local are like this.\n"


def test_another_user_has_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory(capsys, "--user", "ada")[1] == "k7m2     2026-11-20 general     Likes rain.\n"
    assert memory(capsys, "list", "--user", "ben") == (0, "No facts and memories of ben.\n", "")
    assert memory(capsys, "delete", "k7m2", "--user", "ada") == (0, "", "")
    assert memory(capsys)[1] == LISTED


def test_programs_get_what_the_route_tells(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = memory(capsys, "list", "--json", "--search", "blood")
    found = json.loads(out)
    assert (found["recall"], found["next"], [one["id"] for one in found["items"]]) == (True, None, ["f3a9"])
    assert found["items"][0]["mutable"] is False


def test_more_than_a_page_is_listed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def more(store: SQLite) -> None:
        for n in range(450):
            await store.put("cora", Item(f"n{n}", "fact", f"Number {n}.", NOON, NOON, "general"))

    using(store, more)
    assert len(json.loads(memory(capsys, "list", "--json", "--user", "cora")[1])["items"]) == 450


def test_a_fact_is_written_down(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = memory(capsys, "add", "I am allergic to penicillin.", "--immutable")
    assert code == 0
    item_id = out.split()[0]
    assert out.splitlines()[1:] == ["                    immutable: no model changes it"]
    kept = json.loads(memory(capsys, "list", "--json", "--search", "penicillin")[1])["items"]
    assert [(one["id"], one["category"], one["mutable"]) for one in kept] == [(item_id, "general", False)]
    memory(capsys, "add", "Water boils at 100 °C.", "--category", "knowledge")
    kept = json.loads(memory(capsys, "list", "--json", "--category", "knowledge")[1])["items"]
    assert [one["text"] for one in kept] == ["Water boils at 100 °C."]
    assert memory(capsys, "add", " ") == (1, "", "brain: text must say something.\n")


def test_the_first_fact_makes_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIN_STORE", f"sqlite:{tmp_path / 'new.db'}")
    assert memory(capsys, "list")[0] == 1
    assert memory(capsys, "add", "I like tea.")[0] == 0
    assert memory(capsys, "list")[0] == 0


@pytest.mark.parametrize("typed", ["k7m2", "#k7m2", "K7M2"])
def test_a_text_is_corrected_and_what_it_was_is_told(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = memory(capsys, "edit", typed, "Likes green tea.")
    first, second, *_ = out.splitlines()
    assert code == 0
    assert re.fullmatch(r"k7m2     \d{4}-\d\d-\d\d preferences Likes green tea\.", first)
    assert re.fullmatch(r" {20}was: Likes tea\. \(until \d{4}-\d\d-\d\d\)", second)
    assert memory(capsys)[1].endswith(out)


def test_what_is_immutable_is_changed_only_by_who_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = (
        "brain: f3a9 is immutable: with --mutable its text can be changed; brain memory delete f3a9 removes it.\n"
    )
    assert memory(capsys, "edit", "f3a9", "My blood group is A.") == (1, "", sentence)
    assert memory(capsys, "edit", "f3a9", "My blood group is A.", "--mutable")[0] == 0
    assert memory(capsys, "edit", "f3a9", "--immutable", "--category", "knowledge")[0] == 0
    (kept,) = json.loads(memory(capsys, "list", "--json", "--search", "blood")[1])["items"]
    assert (kept["text"], kept["category"], kept["mutable"]) == ("My blood group is A.", "knowledge", False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["edit", "k7m2"], "Say what is to change: its text, --category, --mutable or --immutable."),
        (["edit", "none", "x"], "There is no fact or memory none; brain memory lists them."),
        (["edit", "k7m2", "x" * 501], "text must have at most 500 characters."),
        (["edit", "mm22", "--category", "general"], "Only a fact has a category; leave it out."),
        (["delete", "no\x1bne"], "There is no fact or memory no\\u{1b}ne; brain memory lists them."),
    ],
)
def test_what_cannot_be_done_says_why(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert memory(capsys, *arguments) == (1, "", f"brain: {sentence}\n")
    assert memory(capsys)[1] == LISTED


def test_some_are_removed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = memory(capsys, "delete", "k7m2", "none", "#F3A9")
    assert (code, out, err) == (1, "", "brain: There is no fact or memory none; brain memory lists them.\n")
    assert memory(capsys)[1].splitlines()[0].startswith("mm22")
    assert "k7m2" not in memory(capsys)[1]


def test_recall_is_switched_off_and_on(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert memory(capsys, "recall", "off") == (0, "", "")
    assert memory(capsys)[1] == f"{LISTED}None of it is recalled: brain memory recall on\n"
    assert using(store, lambda store: store.is_recall_on("ada")) is True
    memory(capsys, "recall", "on")
    assert memory(capsys)[1] == LISTED


# brain check


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    capsys.readouterr()
    run(["check", *(arguments or ("--model", "builtin"))])
    lines = capsys.readouterr().out.splitlines()
    return {name: line for line in lines for name in ("store", "memory:") if line[5:].startswith(name)}


def test_check_says_that_the_store_is_well(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = checked(capsys)
    assert re.fullmatch(rf"ok   store {store}: \d+ KiB, [\d,]+ [GM]iB free", told["store"])
    assert told["memory:"] == "ok   memory: found by words; with a model server that makes vectors, by meaning, too"


def test_check_says_what_is_wrong_with_the_store(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(store.read_bytes())
    data[4096 * 3 : 4096 * 12] = bytes(4096 * 9)
    store.write_bytes(data)
    assert checked(capsys)["store"].startswith(f"FAIL store {store}: ")
    store.write_bytes(b"no database" * 500)
    assert checked(capsys)["store"] == f"FAIL store {store}: is no database; name another file."
    store.unlink()
    monkeypatch.setattr(connection, "FREE_BYTES_LEAST", 2**60)
    assert checked(capsys)["store"].endswith(" are free on its disk: make some room")
    monkeypatch.setenv("BRAIN_STORE", "memory:")
    assert checked(capsys)["store"] == "ok   store: in memory: what is said ends with its process (STORE)"


@contextmanager
def embedding(vectors: Vectors) -> Iterator[str]:
    """A server of OpenAI's embeddings that has these; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
            found = [] if vectors.broken else asyncio.run(vectors.embed(texts))
            body = json.dumps({"data": [{"embedding": vector} for vector in found]}).encode()
            self.send_response(500 if vectors.broken else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("vectors", "told"),
    [
        (Vectors(), "by words and by meaning, with the vectors of openai:toy"),
        (
            Vectors(blind=True),
            "by words: the vectors of openai:toy tell meanings badly apart (EMBEDDINGS names another)",
        ),
        (Vectors(broken=True), "by words: openai:toy gives no vectors (EMBEDDINGS names a model that does)"),
    ],
    ids=["good", "blind", "none"],
)
def test_check_says_whether_vectors_serve_the_memory(
    vectors: Vectors, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedding(vectors) as url:
        monkeypatch.setenv("BRAIN_MODEL_URL", url)
        assert checked(capsys, "--model", "openai:toy")["memory:"] == f"ok   memory: found {told}"
