"""`brain ask` at a terminal: what a person sees of a turn while it runs and when it ended. Real pseudo-terminals."""

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
from emulator import Screen, Terminal
from playing import words
from serving import Process, script

SPECIALISTS = '''\
"""Specialists for these tests."""

import asyncio
from pathlib import Path

from brain import Citation, Progress, Refused, Result, specialist

HERE = Path(__file__).parent


@specialist(timeout=60)
async def counts(to: int = 4, note: str = ""):
    """Counts; waits for a file before each number."""
    for n in range(1, to + 1):
        yield Progress(f"at {n}", n / to)
        while not (HERE / f"go{n}").exists():
            await asyncio.sleep(0.005)
    yield Result("counted", citations=[Citation("1", "Numbers \\x1b[2J", "https://example.org/numbers")])


@specialist(timeout=60)
async def fails(why: str = "Which one? home, work") -> str:
    """Refuses."""
    raise Refused(why)


@specialist(timeout=0.2)
async def sleeps() -> str:
    """Sleeps."""
    await asyncio.sleep(60)


def told(params) -> str:
    return f"Delete {params.get('name')}.\\nFor \x1b[2Jever."


@specialist(approval="always", preview=told)
def deletes(name: str = "all", more: str = "") -> str:
    """Deletes."""
    with (HERE / "deleted.txt").open("a") as file:
        file.write(f"{name}\\n")
    return f"{name} is gone."


@specialist(approval="always")
def sends(name: str, more: str, last: str, to: str) -> str:
    """Sends."""
    return "sent"
'''
WIDTHS = pytest.mark.parametrize("columns", [40, 200])
CALL = "SPECIALIST_REQUEST[%s:%s]"
Pass = Sequence[str] | Mapping[str, object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "specialists"
    found.mkdir()
    (found / "some.py").write_text(SPECIALISTS)
    return found


@contextmanager
def asked(
    folder: Path,
    *passes: Pass,
    arguments: Sequence[str] = (),
    columns: int = 80,
    lines: int = 24,
    env: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:
    """`brain ask` at a terminal; the model plays these passes."""
    model = script(folder.parent, *passes)
    env = {"BRAIN_SPECIALISTS_FOLDER": str(folder), "BRAIN_STORE": "memory:", **(env or {})}
    with Terminal("ask", "Please.", "--model", model, *arguments, env=env, columns=columns, lines=lines) as terminal:
        yield terminal
        assert terminal.screen.unknown_sequences == []


def slowly(*chunks: str, delay: float = 5) -> dict[str, object]:
    return {"chunks": chunks, "delay_ms": delay}


def for_ever(*chunks: str) -> dict[str, object]:
    """A pass that goes on and on behind these."""
    return slowly(*chunks, *(f"and on {word} " for word in words(4000)))


def ended(terminal: Terminal, code: int = 0) -> str:
    found, seen = terminal.end()
    assert found == code, seen
    return seen


# The answer


@WIDTHS
def test_the_answer_comes_as_it_is_written_and_is_markdown(folder: Path, columns: int) -> None:
    with asked(folder, for_ever("# Tea\n\nBoil **water**.\n\n", "Then ", "wait "), columns=columns) as terminal:
        terminal.until(lambda screen: screen.text.startswith("Tea\n\nBoil water.\n\nThen wait and on"))
        terminal.interrupt()
        ended(terminal, 130)
        assert "\x1b[1;4mTea\x1b[0m" in terminal.raw
        assert "Boil \x1b[1mwater\x1b[0m." in terminal.raw


@WIDTHS
def test_an_answer_larger_than_the_window_scrolls_and_is_whole_at_the_end(folder: Path, columns: int) -> None:
    lines = [f"line{n}" for n in range(120)]
    pieces = [f"{line}\n" if n % 3 else f"{line}\n\n" for n, line in enumerate(lines)]
    with asked(folder, slowly(*pieces, delay=1), columns=columns, lines=10) as terminal:
        assert re.findall(r"line\d+", ended(terminal)) == lines


def test_code_that_is_higher_than_the_window_is_seen_from_its_end(folder: Path) -> None:
    code = [f"x = {n}\n" for n in range(40)]
    with asked(folder, for_ever("```python\n", *code), lines=10) as terminal:
        terminal.until(lambda screen: "x = 39" in screen.window and "x = 20\n" not in screen.window)
        terminal.interrupt()
        seen = ended(terminal, 130)
        assert re.findall(r"x = (\d+)", seen) == [str(n) for n in range(40)]


@pytest.mark.parametrize("narrower", [40, 23, 150])
def test_the_window_may_change_while_it_is_written(folder: Path, narrower: int) -> None:
    words = [f"word{n}" for n in range(600)]
    pieces = [f"{word} " if (n + 1) % 50 else f"{word}\n\n" for n, word in enumerate(words)]
    with asked(folder, slowly(*pieces, delay=3)) as terminal:
        terminal.sees("word120 ")
        terminal.resize(narrower, 20)
        terminal.sees("word320")
        terminal.resize(80, 30)
        ended(terminal)
        seen = re.findall(r"word\d+", terminal.screen.unwrapped)
    first = [word for n, word in enumerate(seen) if word not in seen[:n]]
    assert first == words
    assert len(seen) < len(words) + 60, "some lines at most are there twice"


def test_nothing_is_drawn_that_did_not_change(folder: Path) -> None:
    with asked(folder, slowly("Hello.\n\n", "Bye.", delay=300)) as terminal:
        ended(terminal)
        assert terminal.raw.count("Hello.") <= 3
        assert terminal.raw.count("Bye.") <= 2


def test_a_marker_is_never_seen(folder: Path) -> None:
    marker = CALL % ("fails", "{}")
    with asked(folder, slowly("I ask. ", *marker, delay=10), ["Done."]) as terminal:
        ended(terminal)
        assert "SPECIALIST_" not in terminal.raw


# What happens besides


@WIDTHS
def test_a_call_is_a_line_with_its_time_and_how_far_it_is(folder: Path, columns: int) -> None:
    params = {"to": 4, "note": "n" * 150}
    with asked(folder, [f"I count. {CALL % ('counts', json.dumps(params))}"], ["Four."], columns=columns) as terminal:
        terminal.until(lambda screen: re.search(r"\n\S counts .* [1-9]\.\d s\n", screen.text) is not None)
        assert f"  {'━' * 5}{'╌' * 15} 25% at 1" in terminal.screen.text
        rows = terminal.screen.window.split("\n")
        assert rows[0] == "I count."
        assert len(rows) == 4, "nothing else moves"
        assert len([row for row in rows if "counts" in row]) == 1, "it is one line, however long its parameters"
        for n in range(1, 5):
            (folder / f"go{n}").touch()
        seen = ended(terminal)
    call = next(row for row in seen.split("\n") if "counts" in row and "✓" in row)
    assert re.match(r'✓ counts \d+ ms \{"to": 4, "note": "n', call)
    assert len(call) <= columns
    assert seen.startswith("I count.\n\n✓ counts")
    sources = " ".join(seen.partition("Sources\n")[2].split())
    assert sources == "1. Numbers [2J · https://example.org/numbers"


@WIDTHS
def test_a_call_that_fails_says_why(folder: Path, columns: int) -> None:
    with asked(folder, [CALL % ("fails", "{}") + CALL % ("nobody", "{}")], ["So."], columns=columns) as terminal:
        seen = " ".join(ended(terminal).split())
    assert re.search(r"✗ fails \d+ ms refused: Which one\? home, work", seen)
    assert re.search(r"✗ nobody \d+ ms unknown: there is no specialist of this name (So|✗)", seen)
    assert seen.endswith("So.")


@pytest.mark.parametrize("plain", [[], ["--plain"]], ids=["live", "plain"])
def test_what_a_model_is_told_to_do_is_not_said_to_a_person(folder: Path, plain: list[str]) -> None:
    wrong, late = CALL % ("counts", '{"to": "x"}'), CALL % ("sleeps", "{}")
    with asked(folder, [wrong + late], ["So."], arguments=plain) as terminal:
        seen = ended(terminal)
    assert re.search(r"✗ sleeps.* timeout: it took longer than 0\.\d s\n", seen)
    told = r"✗ counts.* invalid_params: the model asked with wrong parameters\n  .*to.*; correct the parameters"
    assert re.search(told, seen), "here the reason says more, and stands below"


def test_calls_that_run_side_by_side_are_seen_together(folder: Path) -> None:
    two = CALL % ("counts", '{"note": "a"}') + CALL % ("counts", '{"note": "b"}')
    with asked(folder, [two], ["Done."]) as terminal:
        terminal.until(lambda screen: len(re.findall(r"\S counts .*\n.* 25% at 1", screen.text)) == 2)
        for n in range(1, 5):
            (folder / f"go{n}").touch()
        assert ended(terminal).count("✓ counts") == 2


def test_thinking_is_folded_into_a_line(folder: Path) -> None:
    thought = slowly("<think>", *[f"thought{n} " for n in range(50)], "</think>", "Hello.")
    with asked(folder, thought) as terminal:
        terminal.until(lambda screen: re.search(r"^\S thinking … .*thought\d+", screen.text) is not None)
        seen = ended(terminal)
    assert re.fullmatch(r"\(thought for \d+\.\d s\)\n\nHello\.", seen)


@pytest.mark.parametrize("plain", [[], ["--plain"]], ids=["live", "plain"])
def test_thinking_is_shown_whole_when_it_is_asked_for(folder: Path, plain: list[str]) -> None:
    with asked(folder, ["<think>One.\nTwo\x1b[2J.</think>Hello."], arguments=["--thinking", *plain]) as terminal:
        seen = ended(terminal)
    assert "".join(seen.split()) == "One.Two[2J.Hello."
    assert "\x1b[2mOne." in terminal.raw


def test_the_stand_in_says_that_it_is_one(folder: Path) -> None:
    env = {"BRAIN_STORE": "memory:"}
    with Terminal("ask", "hello", "--model", "builtin", env=env) as terminal:
        seen = ended(terminal)
    assert seen.startswith("No language model is connected: a rule-based stand-in answers.\n\n")
    assert "\x1b[2mNo language model is connected" in terminal.raw


def test_an_answer_that_fails_says_so_and_keeps_what_was_written(folder: Path) -> None:
    with asked(folder, {"chunks": ["Half **an** "], "error": "secret"}) as terminal:
        seen = ended(terminal, 1)
    assert seen.endswith("\n\nError: The model failed in the middle of its answer. (model_failed)")
    assert sorted(seen.split("\n\n")[:-1]) == ["Half an", "secret"]  # the log does not wait for the terminal


def test_how_it_ended_is_said_when_it_did_not_end_by_itself(folder: Path) -> None:
    with asked(folder, for_ever("So. "), env={"BRAIN_TURN_SECONDS": "1"}) as terminal:
        assert ended(terminal).endswith("\n\nIt ends here because its time was over.")


# Ctrl-C


def test_ctrl_c_keeps_what_was_written(folder: Path) -> None:
    with asked(folder, for_ever("A *list*:\n\n- one\n", "- two\n\n")) as terminal:
        terminal.sees("and on")
        terminal.interrupt()
        assert ended(terminal, 130).startswith("A list:\n\n • one\n • two\n\nand on worda")
        assert terminal.echoes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_other_signals_end_it_like_ctrl_c(folder: Path, number: int, code: int) -> None:
    with asked(folder, for_ever("So ", "far ")) as terminal:
        terminal.sees("So far and on")
        terminal.process.send_signal(number)
        assert ended(terminal, code).endswith("\n\nStopped.")
        assert terminal.echoes()


def test_who_was_stopped_goes_on_below_what_the_shell_wrote(folder: Path) -> None:
    with asked(folder, slowly("So far " + "and on " * 30, *["and on "] * 400, delay=100)) as terminal:
        terminal.until(lambda screen: screen.y == 2)
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
        assert "and on\n[1]+  Stopped\n$ fg\nSo far and on" in ended(terminal, 130)


def test_what_nohup_has_ignored_ends_nothing(tmp_path: Path) -> None:
    model = script(tmp_path, {"chunks": ["So ", "far."], "delay_ms": 300})
    env = {**os.environ, "BRAIN_STORE": "memory:"}
    command = ["nohup", sys.executable, "-m", "brain", "ask", "Please.", "--model", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as process:
        assert process.stdout is not None
        first = process.stdout.read(3)
        process.send_signal(signal.SIGHUP)
        assert (first + process.stdout.read(), process.wait()) == (b"So far.\n", 0)


def test_ctrl_c_while_a_specialist_runs(folder: Path) -> None:
    with asked(folder, [f"I count. {CALL % ('counts', '{}')}"]) as terminal:
        terminal.sees("at 1")
        terminal.interrupt()
        assert ended(terminal, 130) == "I count.\n\nStopped."
        assert terminal.echoes()


def test_ctrl_c_before_anything_is_written(folder: Path) -> None:
    with asked(folder, {"chunks": ["late"], "delay_ms": 60_000}) as terminal:
        terminal.until(lambda screen: re.match(r"\S 1 s", screen.text) is not None)
        terminal.interrupt()
        assert ended(terminal, 130) == "Stopped."


def test_ctrl_c_while_it_thinks(folder: Path) -> None:
    with asked(folder, for_ever("<think>")) as terminal:
        terminal.sees("thinking …")
        terminal.interrupt()
        assert re.fullmatch(r"\(thought for \d+\.\d s\)\n\nStopped\.", ended(terminal, 130))


def test_ctrl_c_while_a_person_is_asked(folder: Path) -> None:
    with asked(folder, [CALL % ("deletes", "{}")]) as terminal:
        terminal.sees("Approve deletes (no parameters)? [y/N]")
        terminal.interrupt()
        ended(terminal, 130)
        assert terminal.echoes()
    assert not (folder / "deleted.txt").exists()


# Approval


@WIDTHS
def test_what_is_to_be_approved_is_shown_whole(folder: Path, columns: int) -> None:
    params = {"name": "lunch " * 20, "more": "a\u202egpj.exe\x1b[2K\nApprove? [y/N] y"}
    question = "\nApprove deletes (2 parameters)? [y/N]"
    call = CALL % ("deletes", json.dumps(params))
    with asked(folder, [f"I will. {call}"], ["It is gone."], columns=columns) as terminal:
        seen = "".join(terminal.sees(question).split())
        assert seen.startswith("Iwill.?deletesneedsyourapproval,until")
        assert "\x1b[1;33m?\x1b[0m\x1b[1m deletes needs" in terminal.raw
        assert f"Delete{'lunch' * 20}.For" in seen
        assert f'name:"{"lunch" * 20}"' in seen
        assert r'more:"a\u{202e}gpj.exe\u001b[2K\nApprove?[y/N]y"' in seen
        assert terminal.screen.window.endswith(question)
        assert not (folder / "deleted.txt").exists()
        terminal.types("y\n")
        seen = ended(terminal)
    assert f"{question} y\n" in seen
    assert re.search(r"\n✓ deletes \d+ ms, approved ", seen)
    assert seen.endswith("\n\nIt is gone.")
    assert (folder / "deleted.txt").exists()


@pytest.mark.parametrize("plain", [[], ["--plain"]], ids=["live", "plain"])
def test_no_parameter_is_out_of_sight(folder: Path, plain: list[str]) -> None:
    params = {"name": "lunch", "more": "x" * 5_000 + " " * 100 + "    name: all", "last": "漢" * 99, "to": "eve"}
    with asked(folder, [CALL % ("sends", json.dumps(params))], ["Done."], arguments=plain, lines=16) as terminal:
        terminal.sees("Approve sends (4 parameters)? [y/N]")
        shown = terminal.screen.window.split("\n")
        terminal.types("n\n")
        ended(terminal)
    assert shown[-6:] == [
        "  In short:",
        '    name: "lunch"',
        f'    more: "{"x" * 32} … {" " * 23}name: all"',
        f'    last: "{"漢" * 16} … {"漢" * 16}"',
        '    to: "eve"',
        "Approve sends (4 parameters)? [y/N]",
    ]
    assert [line for line in shown if line.startswith("    name")] == ['    name: "lunch"']


def test_of_fifty_parameters_the_first_are_seen(folder: Path) -> None:
    names = [f"p{n}" for n in range(50)]
    takes = f'def takes({", ".join(f"{name}: str" for name in names)}) -> str:\n    """Takes."""\n    return "."\n'
    (folder / "takes.py").write_text(f'from brain import specialist\n\n@specialist(approval="always")\n{takes}')
    call = CALL % ("takes", json.dumps({name: f"{name} is long" for name in names}))
    with asked(folder, [call], ["Done."], lines=8, columns=40) as terminal:
        terminal.sees("Approve takes (50 parameters)? [y/N]")
        shown = terminal.screen.window.split("\n")
        terminal.types("n\n")
        ended(terminal)
    assert shown == [
        "  In short:",
        '    p0: "p0 is long"',
        '    p1: "p1 is long"',
        '    p2: "p2 is long"',
        '    p3: "p3 is long"',
        '    p4: "p4 is long"',
        "  45 more stand above.",
        "Approve takes (50 parameters)? [y/N]",
    ]


@pytest.mark.parametrize("marks", ["\u0301", "\u11a8"], ids=["accents", "jamo"])
def test_marks_without_end_are_shown_as_their_numbers(folder: Path, marks: str) -> None:
    call = CALL % ("deletes", json.dumps({"name": "é" + marks * 400}, ensure_ascii=False))
    with asked(folder, [call], ["I did not."]) as terminal:
        terminal.sees("Approve deletes (1 parameter)? [y/N]")
        assert f"\\u{{{ord(marks):x}}}" * 5 in "".join(terminal.screen.window.split())
        terminal.types("n\n")
        assert ended(terminal).endswith("I did not.")


def test_what_is_typed_meanwhile_is_neither_seen_nor_an_answer(folder: Path) -> None:
    both = CALL % ("counts", '{"to": 1}')
    with asked(folder, [both], [CALL % ("deletes", "{}")], ["Done."]) as terminal:
        terminal.sees("at 1")
        assert not terminal.echoes()
        terminal.types("y\ny\n")
        (folder / "go1").touch()
        seen = terminal.sees("Approve deletes (no parameters)? [y/N]")
        assert terminal.echoes()
        assert not re.search(r"^y$", seen, re.MULTILINE)
        terminal.types("n\n")
        seen = ended(terminal)
    assert "Approve deletes (no parameters)? [y/N] n\n" in seen
    assert not (folder / "deleted.txt").exists()


def test_the_question_stays_while_other_calls_go_on(folder: Path) -> None:
    two = CALL % ("deletes", "{}") + CALL % ("counts", '{"to": 2}')
    with asked(folder, [two], ["Done."]) as terminal:
        terminal.sees("Approve deletes (no parameters)? [y/N]")
        (folder / "go1").touch()
        (folder / "go2").touch()
        terminal.types("y")
        terminal.until(lambda screen: screen.window.endswith("Approve deletes (no parameters)? [y/N] y"))
        terminal.types("\n")
        seen = ended(terminal)
    assert seen.count("Approve deletes (no parameters)? [y/N] y") == 1
    assert "✓ counts" in seen
    assert "✓ deletes" in seen


# What nobody may write


HOSTILE = (
    "\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b]52;c;ZXZpbA==\x07", "\x1b]8;;https://evil.example\x1b\\x\x1b]8;;\x1b\\",
    "\x1bP+q544e\x1b\\", "\x9b2J", "\x1b[?1049h", "\x1b[6n", "\x1bc", "\u202e", "&#27;[2J",
)  # fmt: skip


def steered(raw: str) -> list[str]:
    """What steers a terminal in other ways than ours: colours, going up, erasing to the end of a line or below."""
    rest = re.sub(r"\x1b\[(?:[0-9;]*m|\d*A|0?K|J)|[\r\n]", "", raw)
    return re.findall("[\x00-\x1f\x7f-\x9f\u202e].{0,9}", rest)


@pytest.mark.parametrize("arguments", [[], ["--thinking"], ["--plain"]], ids=["live", "thinking", "plain"])
def test_no_model_steers_the_terminal_however_its_text_is_cut(folder: Path, arguments: list[str]) -> None:
    evil = "".join(f"{one} " for one in HOSTILE)
    once = [f"<think>{evil}</think>{evil}"]
    with asked(folder, once, arguments=arguments) as terminal:
        ended(terminal)
        assert steered(terminal.raw) == []
    with asked(folder, slowly("<think>", *evil, "</think>", *evil, delay=1), arguments=arguments) as terminal:
        ended(terminal)
        assert steered(terminal.raw) == []
        assert terminal.screen.os_commands == []


def test_no_parameter_result_or_reason_steers_the_terminal(folder: Path) -> None:
    evil = json.dumps("".join(HOSTILE))
    calls = CALL % ("fails", f'{{"why": {evil}}}') + CALL % ("counts", f'{{"to": 1, "note": {evil}}}')
    (folder / "go1").touch()
    with asked(folder, [calls + CALL % ("deletes", f'{{"name": {evil}}}')], ["Done."]) as terminal:
        terminal.sees("Approve deletes (1 parameter)? [y/N]")
        terminal.types("n\n")
        ended(terminal)
        assert steered(terminal.raw) == []


def test_a_link_shows_where_it_leads(folder: Path) -> None:
    with asked(folder, ["[your bank](https://evil.example/login)"]) as terminal:
        assert ended(terminal) == "your bank (https://evil.example/login)"
        assert "\x1b]" not in terminal.raw


# Terminals that can less


def test_plain_is_the_bare_text(folder: Path) -> None:
    with asked(folder, [f"# I *ask*. {CALL % ('fails', '{}')}"], ["Done."], arguments=["--plain"]) as terminal:
        seen = ended(terminal)
    assert seen.startswith("# I *ask*. \n… fails\n✗ fails: refused: Which one?".replace(". \n", ".\n"))
    assert seen.endswith("\nDone.")
    assert not re.search(r"\x1b\[(?!2m|0m)", terminal.raw)


@pytest.mark.parametrize(
    ("env", "columns"), [({"TERM": "dumb"}, 80), ({"TERM": ""}, 80), ({}, 20)], ids=["dumb", "unknown", "narrow"]
)
def test_a_terminal_that_can_less_gets_text(folder: Path, env: dict[str, str], columns: int) -> None:
    with asked(folder, ["# Hello, *you*."], columns=columns, env=env) as terminal:
        assert ended(terminal) == "# Hello, *you*."
        assert "\x1b" not in terminal.raw


@pytest.mark.parametrize("arguments", [[], ["--plain"]], ids=["live", "plain"])
def test_no_color_means_none(folder: Path, arguments: list[str]) -> None:
    call = CALL % ("fails", "{}")
    with asked(
        folder, [f"`code` {call}"], ["```python\nx = 1\n```"], arguments=arguments, env={"NO_COLOR": "1"}
    ) as terminal:
        ended(terminal)
        assert not re.search(r"\x1b\[[0-9;]*(3|9|4)[0-7][;m]", terminal.raw)


def test_a_pipe_gets_the_text_as_ever_and_no_colours_unless_they_are_forced(tmp_path: Path) -> None:
    model = script(tmp_path, ["# Hello, *you*."])
    arguments = ["ask", "--model", model, "--conversation", "c", "hello"]
    with Process(*arguments, env={"BRAIN_STORE": "memory:"}) as process:
        assert process.end() == (0, "# Hello, *you*.\n", "")
    with Process("ask", "--model", "builtin", "hi", env={"BRAIN_STORE": "memory:", "FORCE_COLOR": "1"}) as process:
        _, out, err = process.end()
    assert "\x1b" not in out
    assert err == "\x1b[2mNo language model is connected: a rule-based stand-in answers.\x1b[0m\n"


def test_whoever_pipes_does_not_pay_for_what_draws(tmp_path: Path) -> None:
    model = script(tmp_path, ["Hello."])
    code = (
        "import sys; from brain.cli.main import main; "
        f"code = main(['ask', '--model', {model!r}, 'hi']); "
        "print(sorted({'rich.markdown', 'prompt_toolkit', 'shtab', 'markdown_it'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    assert found.stdout == "Hello.\n[]\n"


def test_the_screen_of_these_tests_breaks_lines_anew() -> None:
    screen = Screen(10, 5)
    screen.feed("one two three four\r\n日本語日本語\x1b[1A\rX")
    assert screen.text == "one two th\nree four\nX 本語日本\n語"
    screen.resize(20, 5)
    assert screen.text == "one two three four\nX 本語日本語"
