"""`brain chat`, as somebody at a terminal uses it: what is typed, what is seen, what is kept."""

import base64
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from emulator import Screen, Terminal
from serving import Process, script

SPECIALISTS = '''\
"""Specialists for these tests."""

from pathlib import Path

from brain import specialist


@specialist(approval="always")
def deletes(name: str = "all") -> str:
    """Deletes."""
    with Path(__file__).with_name("deleted.txt").open("a") as file:
        file.write(f"{name}\\n")
    return f"{name} is gone."
'''
MODEL = "script:script.jsonl"
UP, ALT_ENTER, CTRL_C, CTRL_D, CTRL_R, TAB, CLEAR = "\x1b[A", "\x1b\r", "\x03", "\x04", "\x12", "\t", "\x15"
Pass = Sequence[str] | Mapping[str, object]


class Chat(Terminal):
    """A session. The prompt is there when the line below it is."""

    def __init__(self, home: Path, *arguments: str, columns: int = 140, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.prompts = 0
        own = {"XDG_DATA_HOME": str(home), "HOME": str(home), "BRAIN_SPECIALISTS_FOLDER": str(home / "specialists")}
        super().__init__("chat", *arguments, env=own | dict(env or {}), columns=columns, lines=40, cwd=home)
        self.ready()

    def ready(self) -> str:
        """What is on the screen once the next prompt is there."""
        self.prompts += 1

        def is_there(screen: Screen) -> bool:
            rows = screen.text.split("\n")
            return sum(row.startswith("›") for row in rows) == self.prompts and " · " in rows[-1]

        return self.until(is_there, f"prompt {self.prompts}")

    def says(self, text: str) -> str:
        """Sends a line; what was seen of it when the next prompt is there."""
        self.types(text + "\r")
        rows = self.ready().split("\n")
        prompts = [place for place, row in enumerate(rows) if row.startswith("›")]
        return "\n".join(rows[prompts[-2] + 1 : prompts[-1]])

    @property
    def below(self) -> str:
        """The line below the prompt."""
        return self.screen.text.split("\n")[-1]

    def leaves(self) -> str:
        self.types(CTRL_D)
        code, seen = self.end()
        assert code == 0, seen
        assert self.echoes()
        return seen


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a user who has nothing yet."""
    found = tmp_path / "home"
    (found / "specialists").mkdir(parents=True)
    (found / "specialists" / "some.py").write_text(SPECIALISTS)
    return found


@contextmanager
def chatting(
    home: Path,
    *passes: Pass,
    arguments: Sequence[str] = (),
    columns: int = 140,
    env: Mapping[str, str] | None = None,
) -> Iterator[Chat]:
    """A session with a model that plays these passes, in each turn from the first."""
    script(home, *passes or [["Hello, *you*."]])
    with Chat(home, "--model", MODEL, *arguments, columns=columns, env=env) as chat:
        yield chat
        assert chat.screen.unknown_sequences == []


def kept(home: Path) -> list[tuple[str, str, str]]:
    """Title, what was said, and how it ended, of all that is kept."""
    with closing(sqlite3.connect(home / "brain" / "brain.db")) as db:
        columns = "c.title, e.data ->> 'message', e.outcome"
        query = f"SELECT {columns} FROM exchange e JOIN conversation c ON c.key = e.key >> 32 ORDER BY e.key"
        return db.execute(query).fetchall()


def files(home: Path) -> list[tuple[str, bytes]]:
    with closing(sqlite3.connect(home / "brain" / "brain.db")) as db:
        return db.execute("SELECT name, data FROM file ORDER BY key").fetchall()


# Talking


def test_a_conversation_at_the_terminal(home: Path) -> None:
    with chatting(home) as chat:
        assert chat.screen.text.startswith(f"{MODEL} answers. /help lists the commands, Ctrl-D leaves.\n›")
        assert chat.below == f"{MODEL} · new conversation"
        assert chat.says("How are you?").startswith("\nHello, you.\n")
        assert "Hello, \x1b[3myou\x1b[0m." in chat.raw
        assert chat.below.endswith(" · How are you?")
        chat.says("And now?")
        seen = chat.leaves()
    conversation = re.search(r"\nGo on with: brain chat --conversation (conv\w+)$", seen)
    assert conversation is not None
    assert kept(home) == [("How are you?", "How are you?", "complete"), ("How are you?", "And now?", "complete")]
    for arguments, messages in ((["--continue"], 4), (["--conversation", conversation[1]], 6)):
        with chatting(home, arguments=arguments) as chat:
            assert f"How are you? ({messages} messages)\n\n> How are you?\n\nHello, you.\n" in chat.screen.text
            chat.says("Again.")
            chat.types("/quit\r")
            assert chat.end()[0] == 0
    assert [row[:2] for row in kept(home)[2:]] == [("How are you?", "Again.")] * 2


def test_what_was_typed_is_there_again_for_its_user_alone(home: Path) -> None:
    with chatting(home) as chat:
        chat.says("first message")
        chat.says("second message")
        chat.leaves()
    path = home / "brain" / "chat-history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with chatting(home) as chat:
        chat.types(UP + UP)
        chat.until(lambda screen: "› first message" in screen.window)
        chat.types(CTRL_C)
        chat.ready()
        chat.types(CTRL_R + "secon")
        chat.sees("second message")
        chat.types("\r")
        chat.types("\r")
        chat.until(lambda screen: screen.text.count("Hello, you.") == 1)
        chat.ready()
        chat.leaves()
    assert kept(home)[-1][1] == "second message"


def test_a_store_that_keeps_nothing_has_no_history(home: Path) -> None:
    with chatting(home, env={"BRAIN_STORE": "memory:"}) as chat:
        chat.says("secret")
        assert "Go on with" not in chat.leaves()
    assert not (home / "brain").exists()


def test_a_message_may_have_several_lines(home: Path) -> None:
    with chatting(home) as chat:
        chat.types(f"one{ALT_ENTER}two")
        chat.until(lambda screen: "› one\n  two" in screen.window)
        chat.says("")
        chat.types("\x1b[200~three\nfour\n/help\x1b[201~")
        chat.until(lambda screen: "› three\n  four\n  /help" in screen.window)
        chat.says("")
        chat.leaves()
    assert [said for _, said, _ in kept(home)] == ["one\ntwo", "three\nfour\n/help"]


def test_ctrl_c_stops_the_answer_and_not_the_session(home: Path) -> None:
    endless = {"chunks": ["So far. ", *["and on "] * 4000], "delay_ms": 5}
    with chatting(home, endless) as chat:
        for said in ("one", "two"):
            chat.types(f"{said}\r")
            chat.until(lambda screen: "and on" in screen.text.rpartition("›")[2])
            chat.interrupt()
            seen = chat.ready()
            assert "Stopped." in seen.rpartition(f"› {said}")[2]
        chat.types("draft" + CTRL_C)
        assert "leaves" not in chat.ready().rpartition("› draft")[2]
        chat.types(CTRL_C)
        chat.ready()
        assert "›\nCtrl-D leaves.\n›" in chat.screen.text
        chat.leaves()
    assert [row[1:] for row in kept(home)] == [("one", "cancelled"), ("two", "cancelled")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("answers", [True, False], ids=["while it answers", "at the prompt"])
def test_who_is_ended_leaves_the_terminal_and_the_answer_in_order(
    home: Path, number: int, code: int, answers: bool
) -> None:
    with chatting(home, {"chunks": ["So far ", *["and on "] * 4000], "delay_ms": 5}) as chat:
        chat.types("hi\r" if answers else "half typed")
        chat.sees("So far and on" if answers else "half typed")
        chat.process.send_signal(number)
        assert chat.end()[0] == code
        assert chat.echoes()
        assert termios.tcgetattr(chat.master)[3] & termios.ICANON
    if answers:
        assert kept(home) == [("hi", "hi", "cancelled")]


def test_what_is_typed_while_an_answer_is_written_is_the_next_message(home: Path) -> None:
    with chatting(home, {"chunks": ["One. ", "Two."], "delay_ms": 400}) as chat:
        chat.types("first\r")
        chat.sees("One.")
        chat.types("second")
        chat.until(lambda screen: "› second" in screen.window)
        assert chat.screen.text.count("second") == 1
        chat.prompts += 1
        chat.says("")
        chat.leaves()
    assert [said for _, said, _ in kept(home)] == ["first", "second"]


def test_what_was_typed_before_ctrl_c_is_the_next_message(home: Path) -> None:
    with chatting(home, {"chunks": ["So far. ", *["and on "] * 4000], "delay_ms": 5}) as chat:
        chat.types("first\r")
        chat.sees("and on")
        chat.types("second" + CTRL_C)
        chat.until(lambda screen: "› second" in screen.window)
        chat.prompts += 1
        chat.types(CTRL_C)
        chat.ready()
        chat.leaves()
        assert not termios.tcgetattr(chat.master)[3] & termios.NOFLSH


def test_a_person_is_asked_in_a_session(home: Path) -> None:
    with chatting(home, ['SPECIALIST_REQUEST[deletes:{"name": "lunch"}]'], ["So."]) as chat:
        for typed, gone in (("n", []), ("y", ["lunch"])):
            chat.types("Delete it.\r")
            chat.until(lambda screen: screen.window.endswith("\nApprove deletes (1 parameter)? [y/N]"))
            chat.types(f"{typed}\r")
            chat.ready()
            path = home / "specialists" / "deleted.txt"
            assert (path.read_text().split() if path.exists() else []) == gone
        assert "Approve deletes (1 parameter)? [y/N] y\n" in chat.leaves()


def test_the_stand_in_says_so_once(home: Path) -> None:
    with Chat(home, "--model", "builtin") as chat:
        chat.says("hello")
        chat.says("hello again")
        seen = chat.leaves()
    assert seen.startswith("builtin answers, a rule-based stand-in: no language model is connected. /help")
    assert seen.count("stand-in answers") <= 1


# Commands


def test_the_commands_are_listed_and_completed(home: Path) -> None:
    with chatting(home) as chat:
        seen = chat.says("/help")
        names = re.findall(r"^/(\w+)", seen, re.MULTILINE)
        assert names == [
            *("help", "attach", "detach", "new", "open", "rename", "delete", "retry", "edit", "copy", "save", "model"),
            *("specialists", "memory", "facts", "quit"),
        ]
        chat.types("/rena" + TAB)
        chat.until(lambda screen: "› /rename" in screen.window)
        chat.types(CLEAR + "/specialists of" + TAB)
        chat.until(lambda screen: "› /specialists off" in screen.window)
        chat.types(" delet" + TAB)
        chat.until(lambda screen: "› /specialists off deletes" in screen.window)
        chat.types(CLEAR)
        seen = " ".join(chat.says("/nothing").split())
        assert seen.startswith("There is no /nothing. There are: /help, /attach, ")
        assert chat.says("//help me").startswith("\nHello, you.")
        chat.leaves()
    assert [said for _, said, _ in kept(home)] == ["/help me"]


def test_lists_are_set_in_where_their_lines_go_on(home: Path) -> None:
    with chatting(home, columns=60) as chat:
        seen = chat.says("/help")
        assert f"\n/memory [on|off]                 whether facts and memories\n{' ' * 33}are recalled\n" in seen
        chat.leaves()


def test_files_are_attached(home: Path) -> None:
    (home / "my notes.txt").write_text("notes")
    (home / "two.txt").write_text("two")
    (home / "empty.txt").touch()
    with chatting(home) as chat:
        seen = chat.says("/attach '~/my notes.txt' ~/two.txt")
        assert "Attached: my notes.txt (5 bytes), two.txt (3 bytes)." in seen
        assert chat.below.endswith("attached: my notes.txt, two.txt")
        chat.says("/detach two.txt")
        assert chat.below.endswith("attached: my notes.txt")
        assert "~/nothing.txt: No such file or directory." in chat.says("/attach ~/nothing.txt")
        assert "empty.txt is empty." in chat.says("/attach ~/empty.txt")
        assert "Say which: /attach PATH" in chat.says("/attach")
        assert "a quote is open" in chat.says("/attach 'x")
        assert "At most 10 attachments a message." in chat.says("/attach" + " ~/two.txt" * 10)
        chat.types("/attach ~/my" + TAB)
        chat.until(lambda screen: "› /attach ~/my\\ notes.txt" in screen.window)
        chat.types(" ~/tw" + TAB)
        chat.until(lambda screen: "› /attach ~/my\\ notes.txt ~/two.txt" in screen.window)
        chat.says("")
        assert chat.below.endswith("attached: my notes.txt, my notes.txt, two.txt")
        assert "Attached: my notes.txt" in chat.says(str(home / "my notes.txt").replace(" ", "\\ "))
        chat.says("What do they say?")
        assert "attached" not in chat.below
        chat.leaves()
    mine = ("my notes.txt", b"notes")
    assert files(home) == [mine, mine, ("two.txt", b"two"), mine]


def test_files_may_be_given_at_the_start(home: Path) -> None:
    (home / "two.txt").write_text("two")
    with chatting(home, arguments=["--file", str(home / "two.txt")]) as chat:
        assert chat.below.endswith("attached: two.txt")
        chat.leaves()


def test_conversations_are_listed_opened_named_and_deleted(home: Path) -> None:
    with chatting(home) as chat:
        assert "There is no conversation yet." in chat.says("/open")
        assert "Nothing was said yet." in chat.says("/rename Tea")
        chat.says("I like oolong.")
        chat.says("/new")
        assert chat.below.endswith(" · new conversation")
        chat.says("What is the weather?")
        listed = chat.says("/open")
        assert re.search(r"1 \d{4}-\d\d-\d\d \d\d:\d\d  What is the weather\?  \(2 messages, conv\w+\)", listed)
        assert re.search(r"2 \d{4}-\d\d-\d\d \d\d:\d\d  I like oolong\.  \(2 messages, conv\w+\)", listed)
        assert "> I like oolong.\n\nHello, you." in chat.says("/open 2")
        assert chat.below.endswith(" · I like oolong.")
        assert "It is called: Tea time" in chat.says("/rename Tea time")
        assert chat.below.endswith(" · Tea time")
        assert "title must be one line of 1 to 200 characters." in chat.says(f"/rename {'x' * 201}")
        chat.says("/new")
        assert "> I like oolong." in chat.says("/open oolong")
        assert "There is no conversation 99; /open lists them." in chat.says("/open 99")
        assert "There is no conversation nowhere" in chat.says("/open nowhere")
        assert delete(chat, CTRL_C).endswith("Delete? [y/N]\nNothing was deleted.")
        assert delete(chat, CTRL_D).endswith("Delete? [y/N]\nNothing was deleted.")
        assert delete(chat, "\r").endswith("Delete? [y/N]\nNothing was deleted.")
        assert delete(chat, "yesy\r").endswith("Delete? [y/N] yesy\nNothing was deleted.")
        assert len(kept(home)) == 2
        seen = delete(chat, "y\r")
        assert seen == "This deletes “Tea time” with its files and its memory.\nDelete? [y/N] y\nDeleted."
        assert chat.below.endswith(" · new conversation")
        chat.leaves()
    assert [said for _, said, _ in kept(home)] == ["What is the weather?"]


def delete(chat: Chat, said: str) -> str:
    """What is seen of `/delete` when this is the answer to its question."""
    chat.types("/delete\ry\r")  # the yes is typed before the question, and is none
    chat.until(lambda screen: screen.window.endswith("\nDelete? [y/N]"), "the question")
    chat.types(said)
    return chat.ready().rpartition("› /delete\n")[2].rpartition("\n›")[0]


def test_the_last_message_is_asked_again_or_changed(home: Path) -> None:
    (home / "two.txt").write_text("two")
    with chatting(home) as chat:
        assert "Nothing was said yet." in chat.says("/retry")
        chat.says("/attach ~/two.txt")
        chat.says("one")
        assert chat.says("/retry").startswith("> one\n\nHello, you.")
        assert "\x1b[2m> one\x1b[0m" in chat.raw
        assert [row[1] for row in kept(home)] == ["one"]
        chat.says("/edit")
        chat.until(lambda screen: "› one" in screen.window.rpartition("/edit")[2])
        assert "replaces the last message" in chat.below
        chat.types(" and two\r")
        chat.ready()
        chat.says("/edit")
        chat.types(CTRL_C)
        chat.ready()
        assert "replaces" not in chat.below
        chat.says(f"three\x1b\r {'four ' * 40}")
        assert chat.says("/retry").startswith(f"> three {('four ' * 40)[:130]}…\n\nHello, you.")
        chat.leaves()
    assert [row[1] for row in kept(home)] == ["one and two", f"three\n {'four ' * 40}".strip()]
    assert files(home) == [("two.txt", b"two")]


def test_an_answer_is_copied_and_a_conversation_saved(home: Path) -> None:
    with chatting(home) as chat:
        chat.says("hi")
        assert "13 characters: copied, if your terminal allows it; otherwise: /save FILE" in chat.says("/copy")
        assert chat.screen.os_commands == [f"52;c;{base64.b64encode(b'Hello, *you*.').decode()}"]
        assert "Saved: ~/talk.md" in chat.says("/save ~/talk.md")
        assert "is there already; name another file." in chat.says("/save ~/talk.md")
        assert "No such file or directory." in chat.says("/save ~/nowhere/talk.md")
        assert "Say where to" in chat.says("/save")
        chat.leaves()
    assert stat.S_IMODE((home / "talk.md").stat().st_mode) == 0o600
    assert (home / "talk.md").read_text() == "# hi\n\n**You:**\n\nhi\n\n**Brain:**\n\nHello, *you*.\n"


def test_what_is_saved_says_where_an_answer_ended_early(home: Path) -> None:
    with chatting(home, {"chunks": ["So far. ", *["and on "] * 4000], "delay_ms": 5}) as chat:
        chat.types("one\r")
        chat.until(lambda screen: "and on" in screen.text)
        chat.interrupt()
        chat.ready()
        chat.says("/save ~/talk.md")
        chat.leaves()
    assert re.fullmatch(r"(?s)# one\n.*\nSo far\. and on .*\n\n\*Stopped\.\*\n", (home / "talk.md").read_text())
    with chatting(home, {"chunks": ["   "], "error": "secret"}) as chat:
        chat.says("two")
        chat.says("/save ~/failed.md")
        chat.leaves()
    assert (home / "failed.md").read_text().endswith("**Brain:**\n\n*The model failed.*\n")


def test_what_begins_with_two_slashes_is_no_file(home: Path) -> None:
    with chatting(home) as chat:
        assert "Hello, you." in chat.says("//etc/hosts")
        assert "attached" not in chat.below
        chat.leaves()
    assert [said for _, said, _ in kept(home)] == ["/etc/hosts"]


def test_a_conversation_that_goes_on_shows_its_end(home: Path) -> None:
    with chatting(home) as chat:
        for said in ("one", "two", "three", "four"):
            chat.says(said)
        chat.leaves()
    with chatting(home, arguments=["--continue"]) as chat:
        assert "one (8 messages)\n\n> two\n\nHello, you.\n\n> three\n\nHello, you.\n\n> four" in chat.screen.text
        chat.leaves()


def test_a_conversation_that_goes_on_shows_what_was_called(home: Path) -> None:
    found = "[Citation('m', 'The menu', 'https://menu.example/')]"
    source = (home / "specialists" / "some.py").read_text()
    source = source.replace("import specialist", "import Citation, Result, specialist").replace("-> str", "-> Result")
    source = source.replace('return f"{name} is gone."', f'return Result("gone", citations={found})')
    (home / "specialists" / "some.py").write_text(source)
    passes = (['Let me look. SPECIALIST_REQUEST[deletes:{"name": "lunch"}]', " And again."],)
    with chatting(home, *passes, ['SPECIALIST_REQUEST[dletes:{"name": "tea"}]'], ["After *that*."]) as chat:
        chat.types("Delete it.\r")
        chat.until(lambda screen: screen.window.endswith("\nApprove deletes (1 parameter)? [y/N]"))
        chat.types("y\r")
        chat.ready()
        chat.leaves()
    with chatting(home, arguments=["--continue"]) as chat:
        seen = re.sub(r"\d+ ms", "9 ms", chat.screen.text.partition("\n\n")[2].partition("\n›")[0])
        assert seen == (
            "> Delete it.\n\nLet me look.\n\n"
            '✓ deletes 9 ms, approved {"name": "lunch"}\n'
            "✗ dletes 9 ms unknown: there is no specialist of this name\n\n"
            "After that.\n\n"
            "Sources\n1. The menu · https://menu.example/\n"
        )
        chat.leaves()


def test_a_conversation_goes_on_with_the_model_that_answered_last(home: Path) -> None:
    script(home, ["Hello, *you*."])
    models = f"builtin,{MODEL}"
    with Chat(home, "--model", models) as chat:
        chat.says(f"/model {MODEL}")
        chat.says("one")
        chat.says("/model builtin")
        chat.says("/new")
        chat.says("two")
        chat.says("/open 2")
        assert chat.below.startswith(f"{MODEL} · ")
        chat.says("three")
        chat.leaves()
    with Chat(home, "--model", models, "--continue") as chat:
        assert chat.screen.text.startswith(f"{MODEL} answers. /help")
        assert chat.below.startswith(f"{MODEL} · ")
        chat.leaves()
    with Chat(home, "--model", "builtin", "--continue") as chat:
        assert chat.below.startswith("builtin · ")
        chat.leaves()


def test_who_answers_and_who_may_be_called_is_chosen(home: Path) -> None:
    script(home, ['SPECIALIST_REQUEST[docs:{"query": "settings"}]'], ["So."])
    with Chat(home, "--model", f"{MODEL},builtin") as chat:
        assert f"{MODEL} answers. On offer: builtin, {MODEL}" in chat.says("/model")
        assert "model must be one of: builtin, " in chat.says("/model nobody")
        assert "off docs: " in chat.says("/specialists off docs")
        assert re.search(r"✗ docs \d+ ms denied", chat.says("How?"))
        assert "on  docs: " in chat.says("/specialists on docs")
        assert re.search(r"✓ docs \d+ ms", chat.says("And now?"))
        assert "There is no dcos. There are: " in chat.says("/specialists off dcos")
        assert "builtin, a rule-based stand-in, answers." in chat.says("/model builtin")
        assert chat.below.startswith("builtin · ")
        chat.leaves()


def test_facts_are_seen_and_recalled_or_not(home: Path) -> None:
    env = {"XDG_DATA_HOME": str(home)}
    with Process("memory", "add", "I am vegetarian.", env=env) as process:
        assert process.end()[0] == 0
    with chatting(home) as chat:
        assert re.search(r"^\w{4} +general +I am vegetarian\.", chat.says("/facts"))
        assert "Recalled 1 fact: I am vegetarian." in chat.says("What shall I cook?")
        assert "Nothing is recalled in this session." in chat.says("/memory off")
        assert " · no memory" in chat.below
        assert "Recalled" not in chat.says("What shall I cook?")
        assert "There are none." in chat.says("/facts zebra")
        assert "Say /memory on or /memory off." in chat.says("/memory maybe")
        chat.leaves()


# What goes wrong


def test_a_model_that_fails_ends_no_session(home: Path) -> None:
    with chatting(home, {"chunks": ["Half an "], "error": "secret"}) as chat:
        for said in ("one", "/retry"):
            seen = " ".join(chat.says(said).split())
            assert "Error: The model failed in the middle of its answer. (model_failed)" in seen
            assert "Your message is kept: /retry asks it again, /edit changes it." in seen
        chat.leaves()
    assert [row[1:] for row in kept(home)] == [("one", "model_failed")]


def test_a_message_that_cannot_be_sent_is_in_the_prompt_again(home: Path) -> None:
    chunks = ["So ", *(f"{n} and on " for n in range(4000))]
    endless = script(home, {"chunks": chunks, "delay_ms": 5}, name="endless.jsonl")
    env = {"XDG_DATA_HOME": str(home)}
    (home / "two.txt").write_text("two")
    with Process("ask", "hi", "--model", endless, "--conversation", "c", env=env) as process:
        assert process.process.stdout is not None
        process.process.stdout.read(3)
        with chatting(home, arguments=["--conversation", "c"]) as chat:
            chat.says("/attach ~/two.txt")
            assert "An answer is being written in this conversation already;" in chat.says("too early")
            chat.until(lambda screen: "› too early" in screen.window.rpartition("already")[2])
            assert chat.below.endswith("attached: two.txt")
            process.process.send_signal(signal.SIGINT)
            process.process.wait()
            assert chat.says("").startswith("\nHello, you.")
            assert "attached" not in chat.below
            chat.leaves()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--continue"], "There is no conversation to go on with yet."),
        (["--continue", "--conversation", "c"], "Give either --conversation or --continue, not both."),
        (["--conversation", "a b"], "--conversation must be 1 to 64 letters, digits, _ or -."),
        (["--file", "nothing.txt"], "--file nothing.txt: No such file or directory."),
        (["--file", "/dev/zero"], "--file /dev/zero: Not a regular file. Pipe it: … | brain ask"),
    ],
)
def test_what_cannot_begin_says_why(home: Path, arguments: list[str], sentence: str) -> None:
    with Process("chat", "--model", "builtin", *arguments, env={"XDG_DATA_HOME": str(home)}) as process:
        assert process.end() == (1, "", f"brain: {sentence}\n")


# Without a terminal


def piped(home: Path, text: str | bytes, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "brain", "chat", *arguments]
    env = {"XDG_DATA_HOME": str(home), "PATH": "/usr/bin:/bin"}
    data = text.encode() if isinstance(text, str) else text
    found = subprocess.run(command, input=data, capture_output=True, check=False, env=env, cwd=home, timeout=30)
    return found.returncode, found.stdout.decode(), found.stderr.decode()


def test_what_is_piped_is_one_message_a_line(home: Path) -> None:
    model = script(home, ["Hello, *you*."])
    code, out, err = piped(home, "one\n\n  two  \n//three\n/save talk.md\n/quit\nfour\n", "--model", model)
    assert (code, out) == (0, "Hello, *you*.\n" * 3)
    assert err == "Saved: talk.md\n"
    assert [said for _, said, _ in kept(home)] == ["one", "two", "/three"]


def test_a_script_must_say_yes_to_delete(home: Path) -> None:
    model = script(home, ["Hello, *you*."])
    code, _, err = piped(home, "one\n/delete\n", "--model", model)
    assert (code, err) == (1, "Nobody can be asked here; /delete yes deletes it.\n")
    assert len(kept(home)) == 1
    code, _, err = piped(home, "/delete yes\n", "--model", model, "--continue")
    assert (code, err) == (0, "Deleted.\n")
    assert kept(home) == []


def test_what_fails_for_a_script_is_told_by_the_exit_code(home: Path) -> None:
    model = script(home, {"chunks": ["Half "], "error": "secret"})
    code, out, err = piped(home, "one\n/nothing\n", "--model", model)
    assert (code, out) == (1, "Half \n")
    assert err.startswith("secret\nError: The model failed in the middle of its answer. (model_failed)\n")
    assert "There is no /nothing." in err
    assert piped(home, "", "--model", model) == (0, "", "")


NO_SIZE = "is empty. What is made as it is read can be piped: … | brain ask"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"/attach a\0b", "ab: No file can have this name."),
        (b"/save a\0b", "ab: No file can have this name."),
        (b"/attach ~nobody-of-this-name/x", "~nobody-of-this-name/x: There is no such home folder."),
        (b"/attach /dev/zero", "/dev/zero: Not a regular file. Pipe it: … | brain ask"),
        (b"/attach fifo", "fifo: Not a regular file. Pipe it: … | brain ask"),
        (b"/attach .", ".: Is a directory."),
        (b"/attach /proc/self/status", f"/proc/self/status {NO_SIZE}"),
        (b"/attach large", "large is larger than 16 MiB."),
        (b"/open caf\xe9 \xed\xa0\x80", "There is no conversation caf\ufffd \ufffd\ufffd\ufffd; /open lists them."),
    ],
)
def test_what_cannot_be_done_is_a_sentence(home: Path, line: bytes, sentence: str) -> None:
    os.mkfifo(home / "fifo")
    with (home / "large").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    model = script(home, ["Hello."])
    code, out, err = piped(home, b"file://[abc \xff\n" + line + b"\n", "--model", model)
    assert (code, out, err) == (1, "Hello.\n", f"{sentence}\n")
    assert [said for _, said, _ in kept(home)] == ["file://[abc \ufffd"]


def test_a_line_without_end_is_one_message_that_is_refused(home: Path) -> None:
    model = script(home, ["Hello."])
    code, out, err = piped(home, "é" * 450_000 + " the rest\nshort\n", "--model", model)
    assert (code, out) == (1, "Hello.\n")
    assert err == "The message has 400,050 characters; 200,000 are the most. Attach it as a file.\n"


def test_a_message_that_is_too_long_is_refused(home: Path) -> None:
    code, out, err = piped(home, "x" * 200_001, "--model", "builtin")
    sentence = "The message has 200,001 characters; 200,000 are the most. Attach it as a file.\n"
    assert (code, out, err) == (1, "", sentence)
