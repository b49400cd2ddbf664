"""`brain ask` at a real pseudo-terminal: signals, resizing, and a person who approves calls."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from brain_servers import Process, script
from terminal_emulator import Terminal
from turn_helpers import words

from brain.turn.notices import DEMO

SPECIALISTS = '''\
"""Specialists for these tests."""

from pathlib import Path

from brain import Progress, specialist

HERE = Path(__file__).parent


@specialist(timeout=60)
def waits():
    """Waits for a file, or for a text in a pipe."""
    yield Progress("waits for the file")
    yield (HERE / "go").read_text()


@specialist(approval="always", preview=lambda params: f"Delete {params.get('name')}.")
def deletes(name: str = "all") -> str:
    """Deletes."""
    with (HERE / "deleted.txt").open("a") as file:
        file.write(f"{name}\\n")
    return f"{name} is gone."
'''
CALL = "SPECIALIST_REQUEST[%s:%s]"
QUESTION = "Approve deletes (1 parameter)? [y/N]"
Pass = Sequence[str] | Mapping[str, object]


def delete(name: str) -> str:
    return CALL % ("deletes", json.dumps({"name": name}))


def endless(*chunks: str) -> Pass:
    """A pass that continues for ever after these chunks."""
    return {"chunks": [*chunks, *(f"and on {word} " for word in words(4000))], "delay_ms": 5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "specialists"
    found.mkdir()
    (found / "some.py").write_text(SPECIALISTS)
    return found


@contextmanager
def asking(folder: Path, *passes: Pass, arguments: Sequence[str] = (), **settings: object) -> Iterator[Terminal]:
    """`brain ask` at a terminal; the model plays these passes."""
    env = {"BRAIN_SPECIALISTS_FOLDER": str(folder), "BRAIN_STORE": "memory:"}
    env |= {f"BRAIN_{key}": str(value) for key, value in settings.items()}
    with Terminal("ask", "Please.", "--model", script(folder.parent, *passes), *arguments, env=env) as terminal:
        yield terminal
        assert terminal.screen.unknown == []


def deleted(folder: Path) -> list[str]:
    path = folder / "deleted.txt"
    return path.read_text().split() if path.exists() else []


# Signals


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["int", "term", "hup"]
)
def test_a_signal_stops_the_answer_and_leaves_the_terminal_in_order(folder: Path, number: int, code: int) -> None:
    with asking(folder, endless("A *list*:\n\n- one\n", "- two\n\n")) as terminal:
        terminal.sees("and on")
        terminal.process.send_signal(number)
        found, seen = terminal.end()
        assert found == code
        assert seen.startswith("A list:\n\n • one\n • two\n\nand on worda")
        assert seen.endswith("\n\nStopped.")
        assert terminal.echoes()


@pytest.mark.parametrize(
    ("text", "sign", "left"),
    [
        (f"I wait. {CALL % ('waits', '{}')}", "waits for the file", r"I wait\.\n\nStopped\."),
        (delete("one"), QUESTION, rf"(?s).*{re.escape(QUESTION)}\n\nStopped\."),
    ],
    ids=["during a call", "during a question"],
)
def test_ctrl_c_stops_what_waits(folder: Path, text: str, sign: str, left: str) -> None:
    os.mkfifo(folder / "go")
    with asking(folder, [text]) as terminal:
        terminal.sees(sign)
        terminal.interrupt()
        code, seen = terminal.end()
        assert code == 130
        assert re.fullmatch(left, seen)
        assert terminal.echoes()
    assert deleted(folder) == []


def test_a_stopped_process_continues_below_what_the_shell_wrote(folder: Path) -> None:
    with asking(folder, {"chunks": ["So far " + "and on " * 30, *["and on "] * 400], "delay_ms": 100}) as terminal:
        terminal.until(lambda screen: screen.cursor.y == 2)
        terminal.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
        terminal.until(lambda screen: not select.select([terminal.master], [], [], 0)[0])
        modes = termios.tcgetattr(terminal.master)
        modes[3] |= termios.ECHO
        termios.tcsetattr(terminal.master, termios.TCSANOW, modes)
        terminal.screen.feed("\r\n[1]+  Stopped\r\n$ fg\r\n")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda screen: screen.text.rpartition("Stopped\n$ fg\n")[2].startswith("So far and on"))
        terminal.until(lambda screen: not terminal.echoes())
        terminal.interrupt()
        assert "and on\n[1]+  Stopped\n$ fg\nSo far and on" in terminal.end()[1]


def test_a_signal_that_nohup_ignores_stops_nothing(tmp_path: Path) -> None:
    model = script(tmp_path, {"chunks": ["So ", "far."], "delay_ms": 300})
    command = ["nohup", sys.executable, "-m", "brain", "ask", "Please.", "--model", model]
    env = {**os.environ, "BRAIN_STORE": "memory:"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as process:
        assert process.stdout is not None
        first = process.stdout.read(3)
        process.send_signal(signal.SIGHUP)
        assert (first + process.stdout.read(), process.wait()) == (b"So far.\n", 0)


def test_the_window_may_change_while_the_answer_is_written(folder: Path) -> None:
    text = [f"word{n}" for n in range(800)]
    pieces = [f"{word} " if (n + 1) % 50 else f"{word}\n\n" for n, word in enumerate(text)]
    with asking(folder, {"chunks": pieces, "delay_ms": 3}) as terminal:
        for word, columns in (
            ("word120 ", 40),
            ("word250 ", 80),
            ("word380 ", 23),
            ("word510 ", 150),
            ("word640 ", 80),
        ):
            terminal.sees(word)
            terminal.resize(columns, 20)
        assert terminal.end()[0] == 0
        seen = re.findall(r"word\d+", terminal.screen.unwrapped)
    assert list(dict.fromkeys(seen)) == text
    assert len(seen) < len(text) + 150  # some lines may be there twice


# Approval


def test_only_a_yes_approves_a_call(folder: Path) -> None:
    answers = {"one": "n\n", "two": "\n", "three": "no, never\n", "four": "yy\n", "five": "\x04", "six": "YES\n"}
    calls = "".join(map(delete, answers))
    with asking(folder, ["I will. " + calls], ["Done."], CALLS=9, CALLS_PER_SPECIALIST=9) as terminal:
        for name, typed in answers.items():
            terminal.until(lambda screen: f'name: "{name}"' in screen.text and screen.text.endswith(QUESTION))  # noqa: B023
            assert f"Delete {name}." in terminal.screen.text
            terminal.types(typed)
        code, seen = terminal.end()
    assert (code, deleted(folder)) == (0, ["six"])
    assert len(re.findall(r"✗ deletes \d+ ms declined: ", seen)) == 5
    assert re.search(r"✓ deletes \d+ ms, approved ", seen)
    assert seen.endswith("\n\nDone.")
    assert "\x1b[1;33m?\x1b[0m\x1b[1m deletes needs" in terminal.raw


def test_keys_pressed_before_a_question_are_no_answer(folder: Path) -> None:
    os.mkfifo(folder / "go")
    with asking(folder, [CALL % ("waits", "{}")], [delete("one")], ["Done."]) as terminal:
        terminal.sees("waits for the file")
        assert not terminal.echoes()
        terminal.types("y\ny\n")
        (folder / "go").write_text("It is there.")
        seen = terminal.sees(QUESTION)
        assert terminal.echoes()
        assert not re.search(r"^y$", seen, re.MULTILINE)
        terminal.types("n\n")
        assert f"{QUESTION} n\n" in terminal.end()[1]
    assert deleted(folder) == []


@pytest.mark.parametrize("arguments", [[], ["--plain"]], ids=["live", "plain"])
def test_a_question_ends_when_its_time_is_over(folder: Path, arguments: list[str]) -> None:
    with asking(folder, [delete("one")], ["Done."], arguments=arguments, APPROVAL_SECONDS=0.2) as terminal:
        code, seen = terminal.end()
    assert code == 0
    assert re.search(rf"{re.escape(QUESTION)}\n+The approval expired\.\n+✗ deletes.* declined: ", seen)
    assert seen.endswith("\nDone.")
    assert deleted(folder) == []


def test_a_person_is_asked_beside_the_events_for_a_program(folder: Path) -> None:
    model = script(folder.parent, [delete("one")], ["Done."])
    env = {"BRAIN_SPECIALISTS_FOLDER": str(folder), "BRAIN_STORE": "memory:"}
    with Terminal("ask", "Please.", "--json", "--model", model, env=env, stdout=subprocess.PIPE) as terminal:
        terminal.sees(QUESTION)
        terminal.types("y\n")
        assert terminal.process.stdout is not None
        events = [json.loads(line) for line in terminal.process.stdout]
        assert terminal.end()[0] == 0
    assert [event["event"] for event in events] == [
        *("turn_start", "approval_required", "specialist_start", "specialist_result", "token", "usage", "done"),
    ]
    assert events[1]["data"]["params"] == {"name": "one"}
    assert deleted(folder) == ["one"]


# The screen as a whole


def test_a_turn_at_a_terminal(folder: Path) -> None:
    (folder / "go").write_text("It is there.")
    passes = [f"I *wait*. {CALL % ('waits', '{}')}"], {"chunks": ["Half **an** "], "error": "secret"}
    with asking(folder, *passes) as terminal:
        code, seen = terminal.end()
        assert "SPECIALIST_" not in terminal.raw
    assert code == 1
    assert re.match(r"I wait\.\n\n✓ waits \d+ ms\n\n", seen)
    assert seen.endswith(" (model_failed)\nbrain: The answer failed (model_failed). Try: brain check")
    assert {"Half an", "secret"} < set(seen.split("\n\n"))


def test_a_person_reads_how_to_continue(tmp_path: Path) -> None:
    env = {"BRAIN_STORE": f"sqlite:{tmp_path / 'brain.db'}"}
    arguments = "ask", "hello", "--model", script(tmp_path, ["Hello."]), "--conversation", "c"
    with Terminal(*arguments, env=env) as terminal:
        assert terminal.end()[1] == 'Hello.\n\nContinue with: brain ask --conversation c "…"'


def test_a_pipe_gets_plain_text_and_no_drawing_libraries(tmp_path: Path) -> None:
    model = script(tmp_path, ["# Hello, *you*."])
    code = (
        "import sys; from brain.cli.main import main; "
        f"code = main(['ask', '--model', {model!r}, 'hi']); "
        "print(sorted({'rich.markdown', 'prompt_toolkit', 'shtab', 'markdown_it'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout == "# Hello, *you*.\n[]\n"
    with Process("ask", "--model", "builtin", "hi", env={"BRAIN_STORE": "memory:", "FORCE_COLOR": "1"}) as process:
        _, out, err = process.end()
    assert "\x1b" not in out
    assert err == f"\x1b[2m{DEMO.text}\x1b[0m\n"
