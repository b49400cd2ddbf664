"""`brain chat`: at a terminal, where a person types, and as a script of one message per line."""

import base64
import json
import os
import re
import signal
import stat
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from brain_servers import script
from terminal_emulator import Screen, Terminal
from turn_helpers import words

from cli.command import Brain

SPECIALISTS = '''\
"""Specialists for these tests."""

from pathlib import Path

from brain import Citation, Result, specialist


@specialist(approval="always")
def deletes(name: str = "all") -> Result:
    """Deletes."""
    with Path(__file__).with_name("deleted.txt").open("a") as file:
        file.write(f"{name}\\n")
    return Result("gone", citations=[Citation("m", "The menu", "https://menu.example/")])
'''
MODEL = "script:script.jsonl"
UP, ALT_ENTER, CTRL_C, CTRL_D, CTRL_R, TAB, CLEAR = "\x1b[A", "\x1b\r", "\x03", "\x04", "\x12", "\t", "\x15"
MESSAGES = (
    "SELECT c.title, e.data ->> 'message', e.outcome "
    "FROM exchange e JOIN conversation c ON c.key = e.key >> 32 ORDER BY e.key"
)
FILES = "SELECT name, data FROM file ORDER BY key"
ENDLESS = {"chunks": ["So far. ", *(f"and on {word} " for word in words(4000))], "delay_ms": 5}
Pass = Sequence[str] | Mapping[str, object]


class Chat(Terminal):
    """A session. The prompt is ready when the toolbar below it is there."""

    def __init__(self, home: Path, *arguments: str, columns: int = 140, **settings: str) -> None:
        env = {"XDG_DATA_HOME": str(home), "HOME": str(home), "BRAIN_SPECIALISTS_FOLDER": str(home / "specialists")}
        env |= {"BRAIN_STORE": os.environ["BRAIN_STORE"]} | {f"BRAIN_{key}": value for key, value in settings.items()}
        super().__init__("chat", *arguments, env=env, columns=columns, lines=40, cwd=home)
        self.prompts = 0
        self.wait_for_prompt()

    def wait_for_prompt(self) -> str:
        """The whole screen once the next prompt is ready."""
        self.prompts += 1

        def is_ready(screen: Screen) -> bool:
            rows = screen.text.split("\n")
            return sum(row.startswith("›") for row in rows) == self.prompts and " · " in rows[-1]

        return self.until(is_ready, f"prompt {self.prompts}")

    def send(self, text: str) -> str:
        """Send a line; what the screen shows between it and the next prompt."""
        self.types(text + "\r")
        rows = self.wait_for_prompt().split("\n")
        prompts = [place for place, row in enumerate(rows) if row.startswith("›")]
        return "\n".join(rows[prompts[-2] + 1 : prompts[-1]])

    @property
    def toolbar(self) -> str:
        return self.screen.text.split("\n")[-1]

    def leave(self) -> str:
        self.types(CTRL_D)
        code, seen = self.end()
        assert code == 0, seen
        assert self.echoes()
        return seen


@pytest.fixture
def home(tmp_path: Path, brain: Brain, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of a user without data."""
    found = tmp_path / "home"
    (found / "specialists").mkdir(parents=True)
    (found / "specialists" / "some.py").write_text(SPECIALISTS)
    monkeypatch.setenv("BRAIN_SPECIALISTS_FOLDER", str(found / "specialists"))
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.chdir(found)
    return found


@contextmanager
def chatting(
    home: Path, *passes: Pass, arguments: Sequence[str] = (), columns: int = 140, **settings: str
) -> Iterator[Chat]:
    """A session with a model that plays these passes in each turn."""
    script(home, *passes or [["Hello, *you*."]])
    with Chat(home, "--model", MODEL, *arguments, columns=columns, **settings) as chat:
        yield chat
        assert chat.screen.unknown == []


# At a terminal


def test_a_session_and_the_next_one(brain: Brain, home: Path) -> None:
    with chatting(home) as chat:
        assert chat.screen.text.startswith(f"Connected to {MODEL}. Type /help for commands, Ctrl-D to exit.\n›")
        assert chat.toolbar == f"{MODEL} · new conversation"
        assert chat.send("How are you?").startswith("\nHello, you.\n")
        assert "Hello, \x1b[3myou\x1b[0m." in chat.raw
        assert chat.toolbar.endswith(" · How are you?")
        chat.types(f"one{ALT_ENTER}two")
        chat.until(lambda screen: "› one\n  two" in screen.window)
        chat.send("")
        chat.types("\x1b[200~three\nfour\n/help\x1b[201~")  # pasted
        chat.until(lambda screen: "› three\n  four\n  /help" in screen.window)
        chat.send("")
        chat.types(CTRL_C)
        assert chat.wait_for_prompt().rpartition("\n›")[0].endswith("›\nPress Ctrl-D to exit.")
        chat.send("/copy")
        assert f"\x1b]52;c;{base64.b64encode(b'Hello, *you*.').decode()}\x07" in chat.raw
        chat.send("Bye.")
        seen = chat.leave()
    assert re.search(r"\nContinue with: brain chat --conversation conv\w+$", seen)
    sent = ["How are you?", "one\ntwo", "three\nfour\n/help", "Bye."]
    assert brain.query(MESSAGES) == [("How are you?", message, "complete") for message in sent]
    assert stat.S_IMODE((home / "brain" / "chat-history").stat().st_mode) == 0o600
    with chatting(home, arguments=["--continue"]) as chat:
        assert (
            "How are you? (8 messages)\n\n> one\n> two\n\nHello, you.\n\n> three\n> four\n> /help\n\nHello"
            in chat.screen.text
        )
        chat.types(UP)
        chat.until(lambda screen: "› Bye." in screen.window)
        chat.types(CTRL_C)
        chat.wait_for_prompt()
        chat.types(CTRL_R + "are yo")
        chat.sees("are you?")
        chat.types("\r\r")
        chat.wait_for_prompt()
        chat.types("/quit\r")
        assert chat.end()[0] == 0
    assert brain.query(MESSAGES)[-1] == ("How are you?", "How are you?", "complete")


def test_a_store_in_memory_leaves_nothing_and_the_demo_model_says_what_it_is_once(home: Path) -> None:
    with Chat(home, "--model", "builtin", STORE="memory:") as chat:
        chat.send("hello")
        chat.send("hello again")
        seen = chat.leave()
    assert seen.startswith("Connected to builtin. Demo mode: no language model is connected. Type /help")
    assert len(re.findall("(?i)demo model|stand-in answers", seen.partition("hello again")[2])) <= 1
    assert "Continue with" not in seen
    assert not (home / "brain").exists()


def test_ctrl_c_stops_the_answer_and_keeps_what_is_typed_meanwhile(brain: Brain, home: Path) -> None:
    with chatting(home, ENDLESS) as chat:
        chat.types("one\r")
        chat.until(lambda screen: "and on" in screen.text)
        chat.types("two" + CTRL_C)
        chat.until(lambda screen: "› two" in screen.window)
        assert "Stopped." in chat.screen.text
        assert chat.screen.text.count("two") == 1
        chat.prompts += 1
        chat.types("\r")
        chat.until(lambda screen: "and on" in screen.text.rpartition("›")[2])
        chat.interrupt()
        assert "Stopped." in chat.wait_for_prompt().rpartition("› two")[2]
        chat.send("/save ~/talk.md")
        chat.leave()
        assert not termios.tcgetattr(chat.master)[3] & termios.NOFLSH
    assert brain.query(MESSAGES) == [("one", "one", "cancelled"), ("one", "two", "cancelled")]
    saved = (home / "talk.md").read_text()
    assert re.fullmatch(r"(?s)# one\n.*\nSo far\. and on .*\n\n\*Stopped\.\*\n.*\*Stopped\.\*\n", saved)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_the_terminal_and_the_answer_in_order(brain: Brain, home: Path, number: int, code: int) -> None:
    is_answering = number == signal.SIGTERM
    with chatting(home, ENDLESS) as chat:
        chat.types("hi\r" if is_answering else "half typed")
        chat.sees("So far. and on" if is_answering else "half typed")
        chat.process.send_signal(number)
        assert chat.end()[0] == code
        assert chat.echoes()
        assert termios.tcgetattr(chat.master)[3] & termios.ICANON
    if is_answering:
        assert brain.query(MESSAGES) == [("hi", "hi", "cancelled")]


def test_calls_are_approved_and_shown_again_when_the_conversation_continues(home: Path) -> None:
    passes = (['Let me look. SPECIALIST_REQUEST[deletes:{"name": "lunch"}]', " And again."],)
    with chatting(home, *passes, ['SPECIALIST_REQUEST[dletes:{"name": "tea"}]'], ["After *that*."]) as chat:
        for typed, deleted in (("n", ""), ("y", "lunch\n")):
            chat.types("Delete it.\r")
            chat.until(lambda screen: screen.window.endswith("\nApprove deletes (1 parameter)? [y/N]"))
            chat.types(f"{typed}\r")
            chat.wait_for_prompt()
            path = home / "specialists" / "deleted.txt"
            assert (path.read_text() if path.exists() else "") == deleted
        chat.leave()
    with chatting(home, arguments=["--continue"]) as chat:
        seen = re.sub(r"\d+ ms", "9 ms", chat.screen.text.partition("After that.\n\n")[2].partition("\n›")[0])
        assert seen == (
            "> Delete it.\n\nLet me look.\n\n"
            '✓ deletes 9 ms, approved {"name": "lunch"}\n'
            "✗ dletes 9 ms unknown: There is no specialist with this name. "
            "If the answer lacks something, rephrase your message.\n\n"
            "After that.\n\n"
            "Sources\n1. The menu · https://menu.example/\n"
        )
        chat.leave()


def test_tab_completes_commands_and_files_are_attached(brain: Brain, home: Path) -> None:
    (home / "my notes.txt").write_text("notes")
    (home / "two.txt").write_text("two")
    with chatting(home, arguments=["--file", "two.txt"]) as chat:
        assert chat.toolbar.endswith("attached: two.txt")
        for typed, completed in (
            ("/rena", "/rename"),
            ("/specialists of", "/specialists off"),
            ("/specialists off delet", "/specialists off deletes"),
            ("/attach ~/my", "/attach ~/my\\ notes.txt"),
        ):
            chat.types(CLEAR + typed + TAB)
            chat.until(lambda screen: f"› {completed}" in screen.window, completed)  # noqa: B023
        chat.types(" ~/tw" + TAB)
        chat.until(lambda screen: "› /attach ~/my\\ notes.txt ~/two.txt" in screen.window)
        assert "Attached to the next message: my notes.txt (5 bytes), two.txt (3 bytes)." in chat.send("")
        assert "Attached to the next message: my notes.txt" in chat.send(
            str(home / "my notes.txt").replace(" ", "\\ ")
        )  # dropped
        assert chat.toolbar.endswith("attached: two.txt, my notes.txt, two.txt, my note…")
        chat.send("What do they say?")
        assert "attached" not in chat.toolbar
        chat.leave()
    mine, two = ("my notes.txt", b"notes"), ("two.txt", b"two")
    assert brain.query(FILES) == [two, mine, two, mine]


def test_a_message_is_edited_and_a_conversation_deleted_by_a_yes(brain: Brain, home: Path) -> None:
    with chatting(home) as chat:
        chat.send("one")
        assert chat.send("/retry").startswith("> one\n\nHello, you.")
        assert "\x1b[2m> one\x1b[0m" in chat.raw
        chat.send("/edit")
        chat.until(lambda screen: "› one" in screen.window.rpartition("/edit")[2])
        assert "replaces the last message" in chat.toolbar
        chat.types(" and two\r")
        chat.wait_for_prompt()
        chat.send("/edit")
        chat.types(CTRL_C)
        assert "Ctrl-D" not in chat.wait_for_prompt().rpartition("› one and two")[2]
        assert "replaces" not in chat.toolbar
        assert [row[1] for row in brain.query(MESSAGES)] == ["one and two"]
        for typed in (CTRL_C, CTRL_D, "\r", "yesy\r"):
            assert delete(chat, typed).endswith("\nNot deleted.")
        assert delete(chat, "y\r") == (
            "This deletes “one and two” with its files and its summary.\nDelete? [y/N] y\nDeleted."
        )
        assert chat.toolbar.endswith(" · new conversation")
        chat.leave()
    assert brain.query(MESSAGES) == []


def delete(chat: Chat, typed: str) -> str:
    """What `/delete` shows when this answers its question."""
    chat.types("/delete\ry\r")  # the yes before the question is no answer
    chat.until(lambda screen: screen.window.endswith("\nDelete? [y/N]"), "the question")
    chat.types(typed)
    return chat.wait_for_prompt().rpartition("› /delete\n")[2].rpartition("\n›")[0]


def test_a_message_that_cannot_be_sent_returns_to_the_prompt(brain: Brain, home: Path) -> None:
    endless = script(home, ENDLESS, name="endless.jsonl")
    (home / "two.txt").write_text("two")
    with brain.process("ask", "hi", "--model", endless, "--conversation", "c") as asking:
        assert asking.process.stdout is not None
        asking.process.stdout.read(3)
        with chatting(home, arguments=["--conversation", "c", "--file", "two.txt"]) as chat:
            assert "busy" in chat.send("too early")
            chat.until(lambda screen: "› too early" in screen.window.rpartition("busy")[2])
            assert chat.toolbar.endswith("attached: two.txt")
            asking.process.send_signal(signal.SIGINT)
            asking.process.wait()
            assert chat.send("").startswith("\nHello, you.")
            assert "attached" not in chat.toolbar
            chat.leave()


# As a script


def play(brain: Brain, *lines: str | bytes, arguments: Sequence[str] = ()) -> tuple[int, str, list[str]]:
    """Exit code, answers and messages of a session that gets these lines."""
    data = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    code, out, err = brain("chat", "--model", MODEL, *arguments, stdin=data)
    return code, out, err.splitlines()


def test_a_script_is_one_message_per_line(brain: Brain, home: Path) -> None:
    script(home, ["Hello, *you*."])
    lines = "one", "", "  two  ", "//three", "/save talk.md", "/quit", "four"
    assert play(brain, *lines) == (0, "Hello, *you*.\n" * 3, ["Saved to talk.md."])
    assert [message for _, message, _ in brain.query(MESSAGES)] == ["one", "two", "/three"]
    assert (home / "talk.md").read_text().startswith("# one\n\n**You:**\n\none\n\n**Brain:**\n\nHello, *you*.\n")
    assert stat.S_IMODE((home / "talk.md").stat().st_mode) == 0o600
    assert play(brain) == (0, "", [])


def test_conversations_are_listed_opened_renamed_and_deleted(brain: Brain, home: Path) -> None:
    script(home, ["Hello."])
    lines = ["/open", "/rename Tea", "I like oolong.", "/new", "What is the weather?", "/open", "/open 2"]
    lines += ["/rename Tea time", f"/rename {'x' * 201}", "/new", "/open oolong", "/open 99", "/open nowhere"]
    lines += ["/delete"]
    code, _, err = play(brain, *lines)
    assert code == 1
    listed = r"%d \d{4}-\d\d-\d\d \d\d:\d\d  %s  \(2 messages, conv\w+\)"
    expected = [
        "No conversations yet.",
        "This conversation is empty.",
        "Your next message starts a new conversation.",
        listed % (1, r"What is the weather\?"),
        listed % (2, r"I like oolong\."),
        "Type /open NUMBER to continue a conversation.",
        r"I like oolong\. \(2 messages\)",
        "> I like oolong.",
        "Renamed to “Tea time”.",
        "title has 201 characters.*",
        "Your next message starts a new conversation.",
        r"Tea time \(2 messages\)",
        "> I like oolong.",
        "No conversation '99'. Type /open to list them.",
        "No conversation 'nowhere'. Type /open to list them.",
        "Cannot ask for confirmation without a terminal. Use /delete yes.",
    ]
    assert len(err) == len(expected)
    assert [line for line, one in zip(err, expected, strict=True) if not re.fullmatch(one, line.strip())] == []
    assert play(brain, "/delete yes", arguments=["--continue"])[2][-1] == "Deleted."
    assert [row[0] for row in brain.query(MESSAGES)] == ["Tea time"]


def test_the_last_message_is_retried_and_replaced_with_its_files(brain: Brain, home: Path) -> None:
    script(home, ["Hello."])
    (home / "two.txt").write_text("two")
    assert (
        play(brain, "/retry", "/attach two.txt", "/attach two.txt", "/detach", "/attach two.txt", "one", "/retry")[0]
        == 1
    )
    assert [row[1] for row in brain.query(MESSAGES)] == ["one"]
    assert play(brain, "/edit", "three", arguments=["--continue"])[0] == 0
    assert [row[1] for row in brain.query(MESSAGES)] == ["three"]
    assert brain.query(FILES) == [("two.txt", b"two")]


def test_models_specialists_and_memory_are_chosen(brain: Brain, home: Path) -> None:
    script(home, ['SPECIALIST_REQUEST[docs:{"query": "settings"}]'], ["So."])
    assert brain("memory", "add", "I am vegetarian.")[0] == 0
    models = ["--model", f"{MODEL},builtin"]
    lines = [
        "/model",
        "/model builtn",
        "/specialists off docs",
        "Is tofu vegetarian?",
        "/specialists on docs",
        "/facts",
    ]
    lines += ["/memory off", "Is rice vegetarian?", "/specialists off dcos", "/facts zebra", "/memory maybe"]
    lines += ["/assist", "/assist off", "/assist maybe"]
    text = "\n".join(play(brain, *lines, arguments=models)[2])
    assert text.startswith(
        f"Model: {MODEL}. Available: builtin, {MODEL}.\nUnknown model 'builtn'. Did you mean 'builtin'?"
    )
    assert "\noff docs: " in text
    assert "\nRecalled 1 fact: I am vegetarian.\n… docs {" not in text
    before, _, after = text.partition("\non  docs: ")
    assert "Recalled 1 fact: I am vegetarian." in before
    assert "✗ docs: denied: " in before
    assert re.search(r"\n\w{4} +general +I am vegetarian\.\nMemory is off in this session\.", after)
    assert "✓ docs, " in after
    assert "Recalled" not in after
    assert "\nUnknown specialist 'dcos'. Did you mean 'docs'?" in after
    assert "\nNo facts found.\nType /memory on or /memory off.\nAssist: auto. " in after
    assert "\nAssist: off. " in after
    models = ["--model", f"builtin,{MODEL}"]
    play(brain, f"/model {MODEL}", "Hi.", "/model builtin", "/new", "Hi?", arguments=models)
    text = "\n".join(play(brain, "/model", "/open 2", "/model", arguments=[*models, "--continue"])[2])
    assert text.count("Model: builtin (demo model).") == 1
    assert text.endswith(f"Model: {MODEL}. Available: builtin, {MODEL}.")  # the model that answered in it


def test_a_conversation_is_made_private(brain: Brain, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIN_MODELS", json.dumps({"far": {"is": script(home, ["Far."]), "local": False}}))
    models = ["--model", "far,builtin"]
    lines = ["/private off", "/private maybe", "/private", "Hi.", "/private off", "/model far", "/new", "/private off"]
    text = "\n".join(play(brain, *lines, "Hi?", "/open", arguments=models)[2])
    assert text.startswith("The conversation is not private.\nType /private on or /private off.\n")
    assert "A private conversation stays private." in text
    assert "use one of: builtin." in text
    assert text.count("is not private") == 2
    assert [" ".join(text.split()).count(count) for count in ("(2 messages", "(private, 2 messages")] == [1, 1]
    query = (
        "SELECT c.private, e.data ->> 'model' FROM exchange e JOIN conversation c ON c.key = e.key >> 32 ORDER BY e.key"
    )
    assert brain.query(query) == [(1, "builtin"), (0, "far")]
    assert brain("ask", "--private", "--model", "far,builtin", "Hi.")[0] == 0
    assert play(brain, "Hi.", arguments=["--continue", *models])[0] == 0
    assert brain.query(query)[2:] == [(1, "builtin"), (1, "builtin")]
    assert brain("ask", "--private", "--model", "far", "Hi.")[0] == 1


def test_a_strategy_is_chosen(brain: Brain, home: Path) -> None:
    script(home, ["Hello."])
    every = "Available: mono, reason, dual, step."
    lines = ["/strategy", "/strategy daul", "/strategy dual", "/strategy"]
    found = play(brain, *lines, arguments=["--strategy", "step"])[2]
    strategies = [line.partition(".")[0] for line in found]
    assert strategies == ["Strategy: step", "Unknown strategy 'daul'", "Strategy: dual", "Strategy: dual"]
    assert [line.endswith(every) for line in found] == [True] * 4


def test_a_failed_answer_does_not_end_the_session(brain: Brain, home: Path) -> None:
    script(home, {"chunks": ["Half an "], "error": "secret"})
    code, out, err = play(brain, "one", "/retry", "/save failed.md")
    assert (code, out) == (1, "Half an \nHalf an \n")
    assert sum("(model_failed)" in line for line in err) == sum("/retry" in line for line in err) == 2
    assert brain.query(MESSAGES) == [("one", "one", "model_failed")]
    assert (home / "failed.md").read_text().endswith(" error.*\n")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"/attach", "No file. Type /attach PATH …"),
        (b"/attach 'x", "A quote is not closed. Type /attach PATH …"),
        (b"/attach" + b" a.txt" * 11, "10 "),
        (b"/attach a\0b", "Cannot read ab: invalid file name."),
        (b"/attach ~nobody-of-this-name/x", "Cannot read ~nobody-of-this-name/x: no such home directory."),
        (b"/attach /dev/zero", '/dev/zero is not a regular file. Pipe it instead: cat /dev/zero | brain ask "…"'),
        (b"/attach fifo", 'fifo is not a regular file. Pipe it instead: cat fifo | brain ask "…"'),
        (b"/attach .", "Cannot read .: is a directory."),
        (b"/attach /proc/self/status", "/proc/self/status is empty. "),
        (b"/attach large", "large "),
        (b"/detach", "No file is attached."),
        (b"/save", "No file name. Type /save FILE; quote a name with spaces."),
        (b"/save a\0b", "Cannot write to ab: invalid file name."),
        (b"/save large", "large already exists. Choose another name."),
        (b"/save nowhere/talk.md", "Cannot write to nowhere/talk.md: no such file or directory."),
        (b"/open caf\xe9 \xed\xa0\x80", "No conversation 'caf\ufffd \ufffd\ufffd\ufffd'. Type /open to list them."),
        ("é".encode() * 450_000 + b" the rest", "The message has 400,050 characters; the limit is 200,000. "),
        (b"x" * 200_001, "The message has 200,001 characters; the limit is 200,000. "),
    ],
    ids=range(18),
)
def test_a_bad_line_is_answered_with_one_sentence(line: bytes, sentence: str, brain: Brain, home: Path) -> None:
    os.mkfifo(home / "fifo")
    with (home / "large").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    script(home, ["Hello."])
    code, out, (error,) = play(brain, b"file://[abc \xff", line)
    assert (code, out) == (1, "Hello.\n")
    assert sentence in error
    assert [message for _, message, _ in brain.query(MESSAGES)] == ["file://[abc \ufffd"]


# Background tasks


def test_tasks_run_and_are_reported_above_the_prompt(brain: Brain, home: Path) -> None:
    with chatting(
        home,
        ["Forty *papers*."],
        TASK_QUIET_SECONDS="0.1",
        TASK_WAIT_SECONDS="0.2",
        TASK_PAUSE_SECONDS="0.1",
    ) as chat:
        assert "This conversation reports the result." in chat.send("/task Read them")
        chat.until(
            lambda screen: (
                "Your background tasks:\n\nForty papers.\n" in screen.text
                and screen.text.rpartition("\n")[2].startswith(MODEL)
            )
        )
        assert "succeeded  Read them" in chat.send("/tasks")
        assert "\n› " not in chat.send("/tasks show nothing")
        chat.types('/task --every "every day at 8" Briefing\r')
        chat.until(lambda screen: "Add this task? [y/N]" in screen.text)
        chat.types("y\r")
        chat.until(lambda screen: "Briefing”. This conversation" in screen.text)
        chat.wait_for_prompt()
        task_id = brain.query("SELECT id FROM task WHERE state = 'waiting'")[0][0]
        assert "Paused “Briefing”" in chat.send(f"/tasks pause {task_id[:8]}")
        chat.leave()
    assert brain.query("SELECT source FROM exchange ORDER BY key") == [("task",), ("report",)]


def test_a_script_adds_tasks_that_run_later(brain: Brain, home: Path) -> None:
    script(home, ["Hello."])
    code, out, _ = brain("chat", "--model", MODEL, stdin=b"/task Read them\n/tasks\n/tasks fly x\n")
    assert (code, "Read them" in out) == (1, True)
    assert brain.query("SELECT state FROM task") == [("pending",)]
