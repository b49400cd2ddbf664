"""Events in, lines on a screen out: the live display and plain text."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from typing import Any, get_args

import pytest
from terminal_emulator import Screen

from brain.cli.commands.output import open_screen
from brain.cli.terminal.approval import format_request, question
from brain.cli.terminal.live import Live
from brain.cli.terminal.messages import REWOUND, explain_call, explain_error, explain_outcome
from brain.cli.terminal.plain import Plain
from brain.events import (
    ApprovalRequired,
    CallCode,
    Citation,
    Done,
    Error,
    ErrorCode,
    Event,
    Limits,
    Notice,
    Rewind,
    Round,
    SpecialistError,
    SpecialistProgress,
    SpecialistResult,
    SpecialistStart,
    StopReason,
    Thinking,
    Token,
    TurnStart,
)

START = TurnStart("t1", "conv1", "player", "mono", Limits())
CITED = (Citation("1", "Numbers \x1b[2J", "https://example.org/numbers"), Citation("2", "A book"))
WIDTHS = pytest.mark.parametrize("columns", [40, 200])


class Window(StringIO):
    """A stream that writes to an emulated screen."""

    encoding = "utf-8"

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        super().__init__()
        self.screen = Screen(columns, lines)
        self._written = asyncio.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.screen.feed(text.replace("\n", "\r\n"))
        self._written.set()
        return super().write(text)

    async def until(self, is_as_expected: Callable[[Screen], object]) -> None:
        while not is_as_expected(self.screen):
            self._written.clear()
            await self._written.wait()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A terminal that can do everything, whatever runs the tests."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@contextmanager
def sized(columns: int, lines: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("LINES", str(lines))
        yield


def live(scenario: Callable[[Live, Window], Coroutine[Any, Any, None]], columns: int = 80, lines: int = 24) -> Window:
    """The screen after a scenario with a live display."""

    async def play() -> Window:
        window = Window(columns, lines)
        display = Live(window)
        await scenario(display, window)
        display.close()
        return window

    with sized(columns, lines):
        return asyncio.run(play())


def shown(*events: Event, kind: str = "live", thinks: bool = False, columns: int = 80) -> Window:
    """The screen after these events and the end of the turn."""

    async def play() -> Window:
        window = Window(columns)
        display = Plain(window, window, thinks=thinks) if kind == "plain" else Live(window, thinks=thinks)
        for event in events:
            display.show(event)
        display.close()
        return window

    with sized(columns, 24):
        return asyncio.run(play())


# The answer


@WIDTHS
def test_an_answer_higher_than_the_window_scrolls_and_is_complete(columns: int) -> None:
    lines = [f"line{n}" for n in range(120)]

    async def scenario(display: Live, window: Window) -> None:
        for n, line in enumerate(lines):
            display.show(Token(f"{line}\n" if n % 3 else f"{line}\n\n"))
            if n % 20 == 10:
                await window.until(lambda screen: line in screen.window)  # noqa: B023

    assert re.findall(r"line\d+", live(scenario, columns, lines=10).screen.text) == lines


def test_markdown_is_drawn_while_it_is_written_and_only_what_changed() -> None:
    async def scenario(display: Live, window: Window) -> None:
        display.show(Token("# Tea\n\nBoil **water**.\n\nThen "))
        await window.until(lambda screen: screen.text == "Tea\n\nBoil water.\n\nThen")
        display.show(Token("wait"))
        await window.until(lambda screen: screen.text.endswith("Then wait"))
        display.show(Token(".\n\n```python\n" + "".join(f"x = {n}\n" for n in range(40))))
        await window.until(lambda screen: "x = 39" in screen.window and "x = 10\n" not in screen.window)

    window = live(scenario)
    assert re.findall(r"x = (\d+)", window.screen.text) == [str(n) for n in range(40)]
    raw = window.getvalue()
    assert "\x1b[1;4mTea\x1b[0m" in raw
    assert "Boil \x1b[1mwater\x1b[0m." in raw
    assert raw.count("Tea") == 1


@pytest.mark.parametrize("kind", ["live", "plain"])
@pytest.mark.parametrize(
    ("before", "text", "repeated"),
    [
        ("One.\n\nTwo.\n\nThree, lost", "One.\n\nTwo.\n\nThree", "Three"),
        ("One.\n\nTwo.\n\nThree", "One.\n\nTwo.\n\nThree", "Three"),
        ("One.\n\nTwo.", "One.\n\nOther.\n\nThree", "Other.\n\nThree"),
        ("One.\n\nTwo.\n\nLost.", "One", "One"),
    ],
)
def test_after_a_rewind_the_text_stands_again_from_the_paragraph_that_differs(
    kind: str, before: str, text: str, repeated: str
) -> None:
    lost = SpecialistStart("c1", "lost", {}, "model")
    window = shown(START, Token(before), lost, Rewind(2, text), Token(" and four."), kind=kind, columns=200)
    assert window.screen.text.endswith(f"{REWOUND}\n{'' if kind == 'plain' else chr(10)}{repeated} and four.")


@pytest.mark.parametrize("kind", ["live", "plain"])
def test_a_turn_that_another_process_began_shows_its_text_so_far(kind: str) -> None:
    first: list[Event] = [Token("Hello."), Done("complete", "m1", "Hello.", 0, 1, 1, 1)]
    window = shown(*first, Rewind(2, "One"), Token(" two."), kind=kind)
    assert window.screen.text.split() == ["Hello.", "One", "two."]


# Calls


@WIDTHS
def test_calls_run_in_a_line_each_with_time_and_progress(columns: int) -> None:
    async def scenario(display: Live, window: Window) -> None:
        display.show(Token("I count. "))
        for call, note in (("c1", "n" * 250), ("c2", "b")):
            display.show(SpecialistStart(call, "counts", {"to": 4, "note": note}, "model"))
        display.show(SpecialistProgress("c1", "at 1", 0.25))
        await window.until(lambda screen: len(re.findall(r"\n\S counts .* 0\.\d s", screen.text)) == 2)
        rows = window.screen.window.split("\n")
        assert [rows[0], rows[3]] == ["I count.", f"  {'━' * 5}{'╌' * 15} 25% at 1"]
        assert len(rows) == 5
        display.show(SpecialistResult("c2", "counts", {"to": 4, "note": "b"}, "4", CITED, True, 12, "approved"))
        display.show(SpecialistResult("c1", "counts", {"to": 4, "note": "n" * 250}, "4", CITED, False, 12))
        display.show(Token("Four."))
        display.show(Done("complete", "m1", "", 2, 2, 1, 1))

    rows = live(scenario, columns).screen.text.split("\n")
    assert rows[:2] == ["I count.", ""]
    assert rows[2].startswith("✓ counts 12 ms, cached, approved ")
    assert rows[3].startswith('✓ counts 12 ms {"to": 4, "note": "n')
    assert max(map(len, rows)) <= columns
    assert " ".join(rows[4:]).split() == (
        ["Four.", "Sources", "1.", "Numbers", "[2J", "·", "https://example.org/numbers", "2.", "A", "book"]
    )


def failed(code: CallCode, reason: str = "the reason", ms: int = 5_003) -> SpecialistError:
    return SpecialistError("c1", "one", {}, code, reason, ms)


TIMEOUT = "timeout: The reason. Try again, or ask for less at once."
ENDS: Sequence[tuple[Event, str, str]] = [
    (failed("refused", "Which {one}?"), "✗ one 5003 ms refused: Which {one}?", "✗ one: refused: Which {one}?"),
    (failed("timeout"), f"✗ one 5003 ms {TIMEOUT}", f"✗ one: {TIMEOUT}"),
    (Round(2, 20, "actor", "small", "Find\n it."), "Round 2 of 20, actor (small): Find it.", ""),
    (Notice("trimmed", "The oldest was left out."), "The oldest was left out.", "The oldest was left out."),
    (Notice("repetition", "As the ending."), "", ""),
    (Error("model_failed", "The model failed.", True), "Error: The model failed. (model_failed)", ""),
    (Done("deadline", "m1", "", 0, 1, 1, 1), "The answer stopped at its time limit.", ""),
    (SpecialistProgress("c1", "at 1", 0.5), "", "  at 1 (50%)"),
    (SpecialistStart("c1", "one", {"a": "ü"}, "model"), "", '… one {"a": "ü"}'),
    (SpecialistResult("c1", "one", {}, "text", (), True, 12), "✓ one 12 ms, cached", "✓ one, 12 ms, cached"),
]  # fmt: skip


ASSISTED = SpecialistResult("c1", "one", {}, "**Four.**", (), False, 12, by="assist")


@pytest.mark.parametrize("kind", ["live", "plain"])
@pytest.mark.parametrize(
    ("events", "rest"),
    [
        ([Token("It is"), Token(" four.")], "RESULT\nIt is four."),
        ([Token("From one:\n\n"), Token("Four.")], "From one:\nFour."),
        ([Token("\n\nFrom one:\n\nFour.")], "From one:\nFour."),
        ([Token("From two:\n\nFive.")], "RESULT\nFrom two:\nFive."),
        ([Done("cancelled", "m1", "", 0, 1, 1, 1)], "RESULT\nStopped."),
    ],
)
def test_the_result_of_a_call_that_brain_chose_is_above_the_answer(kind: str, events: list[Event], rest: str) -> None:
    rows = shown(START, ASSISTED, *events, kind=kind).screen.text.split("\n")
    assert rows[0].endswith("one, 12 ms, chosen by Brain" if kind == "plain" else "one 12 ms, chosen by Brain")
    result = "**Four.**" if kind == "plain" else "Four."
    assert [row for row in rows[1:] if row] == rest.replace("RESULT", result).split("\n")


@pytest.mark.parametrize(("event", "lively", "plainly"), ENDS)
def test_an_event_in_words(event: Event, lively: str, plainly: str) -> None:
    assert shown(START, Token("So."), event).screen.text == f"So.\n\n{lively}".rstrip()
    assert shown(START, Token("So."), event, kind="plain").screen.text == f"So.\n{plainly or lively}".rstrip()


SUCCESSES = {"complete", "deliverable", "ready", "converged"}


def test_every_failure_and_every_ending_has_a_text() -> None:
    for call in get_args(CallCode):
        assert len(explain_call(call, "")) > len(f"{call}: ")
    for code in get_args(ErrorCode):
        known, unknown = Error(code, "", True), Error("unknown", "", True)  # type: ignore[arg-type]
        assert len(explain_error(known)) > len(code) + len(explain_error(unknown))
        assert len(explain_error(Error(code, "", False))) < len(explain_error(known))
    ends = ["", "interrupted", *get_args(StopReason), *get_args(ErrorCode)]
    assert {outcome for outcome in ends if not explain_outcome(outcome)} == SUCCESSES


def test_thinking_is_folded_unless_it_is_wanted() -> None:
    async def scenario(display: Live, window: Window) -> None:
        display.show(START)
        display.show(Thinking("Let me\nsee."))
        await window.until(lambda screen: re.search(r"^\S thinking … Let me see\.", screen.text))
        display.show(Token("Hello."))

    assert re.fullmatch(r"\(thought for \d+\.\d s\)\n\nHello\.", live(scenario).screen.text)
    events = START, Thinking("One.\nTwo"), Thinking("\x1b[2J."), Token("Hello.")
    assert shown(*events, kind="plain").screen.text == "Hello."
    for kind in ("live", "plain"):
        window = shown(*events, kind=kind, thinks=True)
        assert "".join(window.screen.text.split()) == "One.Two[2J.Hello."
        assert "\x1b[2mOne." in window.getvalue()


def test_a_wait_for_the_model_shows_what_it_does() -> None:
    async def scenario(display: Live, window: Window) -> None:
        display.show(START)
        await window.until(lambda screen: len(screen.text) == 1)
        display.show(Notice("prompt_progress", "reads the prompt: 40 %", 0.4))
        await window.until(lambda screen: screen.text.endswith(" reads the prompt: 40 %"))

    assert live(scenario).screen.text == ""


# Approval


def request(params: Mapping[str, Any], text: str | None = None) -> ApprovalRequired:
    return ApprovalRequired("c1", "sends", params, datetime(2026, 1, 1, tzinfo=UTC), text)


LONG = "x" * 36
PARAMS = {"name": "lunch", "more": "x" * 5_000 + " " * 100 + "    name: all", "last": "漢" * 99, "to": "eve"}
IN_SHORT = [
    "  In short:",
    '    name: "lunch"',
    f'    more: "{"x" * 32} … {" " * 23}name: all"',
    f'    last: "{"漢" * 16} … {"漢" * 16}"',
    '    to: "eve"',
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u11a8" * 5, ["  \u11a8\u11a8\u11a8\\u{11a8}\\u{11a8}"]),
        (LONG + "e\u0301", [f"  {LONG}e\u0301"]),
        (LONG + "xe\u0301", [f"  {LONG}x", "        e\u0301"]),
        (LONG + "❤\ufe0f", [f"  {LONG}", "        ❤\ufe0f"]),
        ("漢" * 19, [f"  {'漢' * 18}", "        漢"]),
        ("For \x1b[2Jever.\nAnd \u202ever.", ["  For \\u{1b}[2Jever.", "  And \\u{202e}ver."]),
    ],
)
def test_a_preview_is_cut_between_characters_and_hides_none(text: str, expected: list[str]) -> None:
    assert format_request(request({"to": "eve"}, text), 40, 24).split("\n")[2:] == [*expected, '    to: "eve"']


def test_no_parameter_is_out_of_sight() -> None:
    text = format_request(request(PARAMS), 80, 16).split("\n")
    assert text[-5:] == IN_SHORT
    assert [line for line in text if line.startswith("    name")] == ['    name: "lunch"'] * 2
    many = {f"p{n}": f"p{n} is long" for n in range(50)}
    assert format_request(request(many), 40, 8).split("\n")[-7:] == [
        "  In short:",
        *(f'    p{n}: "p{n} is long"' for n in range(5)),
        "  45 more above.",
    ]
    short = format_request(request({"to": "eve"}, "a\n" * 99), 40, 24).split("\n")[-3:]
    assert short == ["  In short:", f"  {'a ' * 8}a … a{' a' * 8}", '    to: "eve"']
    odd = format_request(request({"a b": "é" + "\u0301" * 400, "x": "\n? [y/N] y"}), 80, 24)
    assert "".join(odd.split()).count("\\u{301}") > 300
    assert odd.split("\n")[-1] == r'    x: "\n? [y/N] y"'


@pytest.mark.parametrize("kind", ["live", "plain"])
def test_a_question_stays_the_last_line_until_it_is_answered(kind: str) -> None:
    asked = request({"to": "eve"})

    async def play() -> Window:
        window = Window()
        display = Plain(window, window) if kind == "plain" else Live(window)
        display.show(Token("I ask."))
        display.ask(format_request(asked, 80, 24), question(asked))
        assert window.screen.text.endswith("\nApprove sends (1 parameter)? [y/N]")
        display.show(SpecialistResult("c2", "counts", {}, "4", (), False, 12))
        assert window.screen.text.endswith("\nApprove sends (1 parameter)? [y/N]")
        display.end_question(by_person=False)
        display.close()
        return window

    with sized(80, 24):
        text = asyncio.run(play()).screen.text
    assert text.startswith("I ask.\n")
    assert "? sends needs your approval (expires " in text
    assert text.count("✓ counts") == 1


# Control characters

HOSTILE = "".join((
    "\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b]52;c;ZXZpbA==\x07", "\x1b]8;;https://evil.example\x1b\\x\x1b]8;;\x1b\\",
    "\x1bP+q544e\x1b\\", "\x9b2J", "\x1b[?1049h", "\x1b[6n", "\x1bc", "\u202e", "&#27;[2J ",
))  # fmt: skip
ATTACKS: Mapping[str, Sequence[Event]] = {
    "whole": [Thinking(HOSTILE), Token(HOSTILE)],
    "in characters": [*map(Thinking, HOSTILE), *map(Token, HOSTILE)],
    "calls": [
        SpecialistStart("c1", "one", {HOSTILE: HOSTILE}, "model"),
        SpecialistProgress("c1", HOSTILE),
        SpecialistResult("c1", "one", {HOSTILE: HOSTILE}, HOSTILE, (Citation("1", HOSTILE, HOSTILE),), False, 1),
        SpecialistError("c2", "one", {}, "refused", HOSTILE, 1),
        SpecialistError("c3", "one", {}, "invalid_params", HOSTILE, 1),
        Notice("steered", HOSTILE),
        Error("internal", HOSTILE, True),
    ],
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(("kind", "thinks"), [("live", False), ("live", True), ("plain", True)])
def test_no_text_steers_the_terminal(kind: str, thinks: bool, attack: str) -> None:
    raw = shown(*ATTACKS[attack], kind=kind, thinks=thinks).getvalue()
    ours = r"\x1b\[(?:[0-9;]*m|\d*A|0?K|J)|[\r\n]"  # colours, going up, erasing to the end of a line or below
    assert re.findall("[\x00-\x1f\x7f-\x9f\u202e].{0,9}", re.sub(ours, "", raw)) == []
    assert "2J" in raw


# Terminals that can less


@pytest.mark.parametrize(
    ("env", "plain", "is_live"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": ""}, False, False),
        ({"COLUMNS": "23"}, False, False),
    ],
)
def test_a_live_display_is_for_terminals_that_can_show_it(
    env: Mapping[str, str], plain: bool, is_live: bool, environment: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        environment.setenv(name, value)
    window = Window()
    assert isinstance(open_screen(window, window, plain=plain, thinks=False), Live) == is_live
    assert isinstance(open_screen(StringIO(), window, plain=False, thinks=False), Plain)


def test_plain_text_is_bare_and_dims_only_what_is_no_answer() -> None:
    window = shown(Token("# I *ask*.\n"), failed("refused", "Which?"), Token("Done."), kind="plain")
    assert window.getvalue() == "# I *ask*.\n\x1b[2m✗ one: refused: Which?\x1b[0m\nDone.\n"


@pytest.mark.parametrize("kind", ["live", "plain"])
def test_no_color_means_none(kind: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("NO_COLOR", "1")
    window = shown(Token("`code`"), failed("refused", "No."), Token("\n\n```python\nx = 1\n```"), kind=kind)
    assert not re.search(r"\x1b\[[0-9;]*(3|9|4)[0-7][;m]", window.getvalue())


def test_a_program_gets_the_text_as_it_is() -> None:
    answer, messages = StringIO(), StringIO()
    screen = Plain(answer, messages)
    screen.show(Token("one\x1b[2J\r\n"))
    screen.show(Done("cancelled", "m1", "one", 0, 1, 1, 1))
    assert (answer.getvalue(), messages.getvalue()) == ("one\x1b[2J\r\n", "Stopped.\n")
