"""`brain index` as a user runs it: its output, its index, and a stop at any moment."""

import json
import os
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from brain_servers import Process, script
from embedding_server import embedding
from specialist_calls import full_disk

from brain.cli.main import main
from specialists._knowledge.index import Index, hold_lock, path_for


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "handbook.md").write_text("# Notice\n\nThree months.\n\n# Leave\n\nThirty days.")
    (folder / "sub" / "price.txt").write_text("The pump costs 120 euro.")
    (folder / "photo.png").write_bytes(b"\x89PNG")
    (folder / "junk.docx").write_bytes(b"junk")
    return folder


class Terminal:
    """Where a user types commands."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.path = path_for(folder / "db", "local")
        self.environ = {"BRAIN_SPECIALIST_KNOWLEDGE_DATABASE": str(folder / "db"), "BRAIN_MODEL": "builtin"}
        self._patch = patch
        self._captured = captured
        patch.chdir(folder)

    def index(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        for name, value in self.environ.items():
            self._patch.setenv(name, value)
        code = main(["index", *arguments])
        return code, *self._captured.readouterr()

    def process(self, *arguments: str) -> Process:
        """The same in a process of its own."""
        return Process(*arguments, env=self.environ, cwd=self.folder)


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def test_progress_is_on_stderr_the_summary_on_stdout(terminal: Terminal, docs: Path) -> None:
    code, out, err = terminal.index("docs")
    assert code == 0
    lines = sorted(err.splitlines())
    assert (lines[0], lines[2]) == ("[1/3] handbook.md: 2 passages", "[3/3] sub/price.txt: 1 passage")
    assert lines[1].startswith("[2/3] junk.docx: is damaged")
    summary, problem, skipped, embedded = out.splitlines()
    assert summary == "2 files read (3 passages), 0 unchanged, 0 removed"
    assert [part in line for part, line in (("junk.docx: is damaged", problem), (".png", skipped))] == [True, True]
    assert embedded.startswith("embeddings: none")
    (docs / "handbook.md").write_text("# Notice\n\nSix months.")
    (docs / "sub" / "price.txt").unlink()
    _, out, err = terminal.index()
    assert err == "[1/1] handbook.md: 1 passage\n"
    assert out.startswith("1 file read (1 passage), 1 unchanged, 1 removed\n")


def test_folders_are_listed_and_removed_per_user(terminal: Terminal, docs: Path) -> None:
    terminal.index("docs/sub", "docs/handbook.md")
    code, out, err = terminal.index("--list")
    assert (code, err) == (0, "")
    assert [line.partition(", 0 with")[0] for line in out.splitlines()] == [
        f"{docs}/handbook.md: 1 file, 2 passages",
        f"{docs}/sub: 1 file, 1 passage",
    ]
    assert str(docs) not in terminal.index("--list", "--user", "ada")[1]
    assert (terminal.folder / "db").stat().st_mode & 0o77 == 0, "only this account may read it"
    assert terminal.index("--forget", "docs/sub")[:2] == (0, f"removed {docs}/sub: 1 file, 1 passage\n")
    code, _, err = terminal.index("--forget", "docs/sub")
    assert (code, err[:16]) == (1, "brain: docs/sub ")
    assert f"{docs}/sub" not in terminal.index("--list")[1]


@pytest.mark.parametrize(
    ("arguments", "part"), [(["docs", "nowhere"], "nowhere"), (["docs", "docs/photo.png"], "docs/photo.png"), ([], "")]
)
def test_invalid_paths_are_named(terminal: Terminal, docs: Path, arguments: list[str], part: str) -> None:
    code, out, err = terminal.index(*arguments)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert part in err


def test_a_damaged_index_and_a_full_disk_are_named(terminal: Terminal, docs: Path) -> None:
    (docs / "long.txt").write_text("".join(f"Word {n} of many. " for n in range(20_000)))
    with full_disk():
        code, _, err = terminal.index("docs")
    assert code == 1
    assert re.search(r"^brain: .*(database or disk is full|disk I/O)", err)
    terminal.path.write_bytes(b"no database" * 100)
    code, _, err = terminal.index("docs")
    assert (code, f"rm {terminal.path}" in err) == (1, True)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_files_that_were_read_stay_indexed_after_a_stop(terminal: Terminal, docs: Path, stop: signal.Signals) -> None:
    for n in range(40):
        paragraphs = [f"Paragraph {n} {part} {'word ' * 180}" for part in range(50)]
        (docs / f"many{n:03}.txt").write_text("\n\n".join(paragraphs))
    with terminal.process("index", "docs") as process:
        process.said("[5/")
        process.process.send_signal(stop)
        code, _, err = process.end()
    if stop == signal.SIGINT:
        assert code == 130
        assert "Traceback" not in err
    with closing(Index(terminal.path)) as index:
        index.db.execute("INSERT INTO passage (passage) VALUES ('integrity-check')")
        assert index.db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        stored = index.count(index.roots()[0]).files
        assert stored >= 4
        sizes = index.db.execute("SELECT count(*) FROM chunk WHERE name LIKE 'many%' GROUP BY file")
        assert {size for (size,) in sizes} <= {50}, "whole files"
    code, out, _ = terminal.index()
    unchanged = re.search(r"(\d+) unchanged", out)
    assert code == 0
    assert unchanged is not None
    assert int(unchanged[1]) >= stored + 1, "the damaged one too"


def test_a_second_one_waits_for_the_first(terminal: Terminal, docs: Path) -> None:
    with hold_lock(terminal.path) as is_free, terminal.process("index", "docs") as process:
        assert is_free
        process.said("waiting for another process")
        with closing(sqlite3.connect(terminal.path)) as db:
            assert db.execute("SELECT count(*) FROM chunk").fetchone() == (0,)
        os.kill(process.process.pid, signal.SIGINT)
        assert process.end()[0] == 130


@pytest.mark.parametrize("is_random", [False, True])
def test_the_model_server_makes_embeddings(terminal: Terminal, docs: Path, is_random: bool) -> None:
    with embedding() as server:
        server.is_random = is_random
        terminal.environ |= {"BRAIN_MODEL": "openai:toy", "BRAIN_MODEL_URL": server.url}
        code, out, err = terminal.index("docs")
    assert code == 0
    assert "embeddings: 3 created, " in out
    assert ("failed the embedding check" in out) is is_random
    assert err.splitlines()[-1] == "embeddings: 3 of 3"
    assert ", 3 with an embedding" in terminal.index("--list")[1]


def test_a_turn_finds_what_was_indexed(terminal: Terminal, docs: Path, tmp_path: Path) -> None:
    terminal.index("docs")
    model = script(tmp_path, ['I look: SPECIALIST_REQUEST[knowledge:{"query": "price of the pump"}]'], ["It is 120."])
    with terminal.process("ask", "--json", "--model", model, "price?") as process:
        code, out, _ = process.end(30)
    assert code == 0
    (result,) = [one["data"] for one in map(json.loads, out.splitlines()) if one["event"] == "specialist_result"]
    assert "[1] sub/price.txt\n\nThe pump costs 120 euro." in result["text"]
    assert result["citations"] == [{"id": "sub/price.txt", "title": "sub/price.txt"}]
