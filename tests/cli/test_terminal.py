"""A person at a terminal: what is shown, what is asked, and what an answer does. Real terminals, in a real process."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from emulator import read
from serving import script

from brain.cli.terminal.plain import Plain
from brain.events import Done, Notice, SpecialistProgress, SpecialistStart, Token

SPECIALISTS = '''\
"""Specialists for these tests."""

from pathlib import Path

from brain import specialist


@specialist(approval="always")
def deletes(name: str = "all", more: str = "") -> str:
    """Deletes."""
    with Path(__file__).with_name("deleted.txt").open("a") as file:
        file.write(f"{name}\\n")
    return f"{name} is gone."

'''
CALL = 'SPECIALIST_REQUEST[deletes:{"name":"%s"}]'
QUESTION = "Approve deletes (1 parameter)? [y/N] "


class AtTerminal:
    """`brain ask` with a person at its terminal, who sees standard error and types; standard output is a pipe."""

    def __init__(self, folder: Path, model: str, arguments: Sequence[str], **settings: object) -> None:
        self.master, slave = pty.openpty()
        kept = {key: value for key, value in os.environ.items() if not key.startswith("BRAIN_")}
        given = {f"BRAIN_{key}": str(value) for key, value in settings.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "brain", "ask", "Please.", "--model", model, *arguments],
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=slave,
            env={**kept, "BRAIN_SPECIALISTS_FOLDER": str(folder), **given},
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def sees(self, text: str) -> str:
        """All that was seen once this is there; what comes after is not taken for it."""
        while text not in self.seen:
            assert self._read(20), f"never saw {text!r}: {self.seen!r}"
        found, _, self.seen = self.seen.partition(text)
        return found + text

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def end(self) -> tuple[int, str, str]:
        """Exit code, standard output, and what else was seen."""
        out, _ = self.process.communicate(timeout=20)
        while self._read(0.2):
            pass
        return self.process.returncode, out.decode(), self.seen

    def _read(self, seconds: float) -> bool:
        data = read(self.master, seconds)
        self.seen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "specialists"
    found.mkdir()
    (found / "some.py").write_text(SPECIALISTS)
    return found


def deleted(folder: Path) -> list[str]:
    path = folder / "deleted.txt"
    return path.read_text().split() if path.exists() else []


@contextmanager
def asked(folder: Path, *passes: str, arguments: Sequence[str] = (), **settings: object) -> Iterator[AtTerminal]:
    model = script(folder.parent, *([text] for text in passes))
    one = AtTerminal(folder, model, arguments, **settings)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()
        os.close(one.master)


@pytest.mark.parametrize("said", ["n\n", "\n", "no, never\n", "yy\n", "\x04"], ids=["n", "enter", "no", "yy", "ctrl-d"])
def test_whatever_is_no_yes_is_a_no(folder: Path, said: str) -> None:
    with asked(folder, CALL % "lunch", "I did not.") as one:
        one.sees(QUESTION)
        one.types(said)
        code, out, rest = one.end()
        assert (code, out) == (0, "I did not.\n")
        assert "✗ deletes: declined: you did not approve it\033[0m\n" in rest
        assert deleted(folder) == []


def test_each_call_is_asked_about_in_its_turn(folder: Path) -> None:
    with asked(folder, f"{CALL % 'one'}{CALL % 'two'}", "Done.") as one:
        assert 'name: "one"' in one.sees(QUESTION)
        one.types("n\n")
        assert 'name: "two"' in one.sees(QUESTION)
        one.types("YES\n")
        assert one.end()[0] == 0
        assert deleted(folder) == ["two"]


def test_an_answer_that_comes_too_late_is_none(folder: Path) -> None:
    with asked(folder, CALL % "one", CALL % "two", "Done.", APPROVAL_SECONDS=0.5) as one:
        one.sees(QUESTION)
        rest = one.sees(QUESTION)
        assert rest.startswith("\n")
        assert "✗ deletes: declined: " in rest
        assert 'name: "two"' in rest
        one.types("y\n")
        one.end()
        assert deleted(folder) == ["two"]


def test_events_for_programs_are_printed_and_a_person_is_asked_all_the_same(folder: Path) -> None:
    with asked(folder, CALL % "one", "Done.", arguments=["--json"]) as one:
        one.sees(QUESTION)
        one.types("y\n")
        code, out, _ = one.end()
        events = [json.loads(line) for line in out.splitlines()]
        assert code == 0
        assert [event["event"] for event in events] == [
            "turn_start",
            "approval_required",
            "specialist_start",
            "specialist_result",
            "token",
            "usage",
            "done",
        ]
        assert events[1]["data"]["params"] == {"name": "one"}
        assert deleted(folder) == ["one"]


# What is shown


class Screen(StringIO):
    """A terminal's side of a stream."""

    def isatty(self) -> bool:
        return True


def test_a_model_does_not_move_the_cursor() -> None:
    answer, aside = Screen(), Screen()
    screen = Plain(answer, aside)
    screen.show(Token("one\x1b[2J\r\x07\ttwo\x9b1A é 👩‍🚀\n"))
    screen.show(SpecialistStart("c1", "one", {"to": "e\u3164v\u202ee"}, "model"))
    screen.show(SpecialistProgress("c1", "\x1b[1Aup"))
    screen.show(Notice("steered", "line\nanother\x1b]0;title\x07"))
    assert answer.getvalue() == "one[2J\ttwo1A é 👩‍🚀\n"
    started, _, rest = aside.getvalue().partition("\n")
    assert started == '\033[2m… one {"to": "e\\u{3164}v\\u{202e}e"}\033[0m'
    assert rest == "\033[2m  [1Aup\033[0m\n\033[2mline\nanother]0;title\033[0m\n"


def test_a_program_gets_the_text_as_it_is() -> None:
    answer, aside = StringIO(), StringIO()
    screen = Plain(answer, aside)
    screen.show(Token("one\x1b[2J\r\n"))
    screen.show(Done("cancelled", "m1", "one", 0, 1, 1, 1))
    assert (answer.getvalue(), aside.getvalue()) == ("one\x1b[2J\r\n", "Stopped.\n")
