"""The command line, as a user runs it: what goes to which stream, which exit code, and what stops the start."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers import OpenAIServer
from serving import Process, post, script

from brain.cli.main import main

COMMANDS = [
    *("serve", "ask", "chat", "specialists", "index", "memory", "export", "import", "forget", "check", "completion"),
]
SPECIALISTS = '''\
"""Specialists for these tests."""

import asyncio
import time

from brain import Progress, specialist


@specialist(timeout=60)
async def nap(seconds: float = 60) -> str:
    """Sleeps."""
    await asyncio.sleep(seconds)
    return "Rested."


@specialist(timeout=60)
def block(seconds: float = 60) -> str:
    """Blocks its thread."""
    time.sleep(seconds)
    return "Done."


@specialist(timeout=60)
async def deaf() -> str:
    """Does not listen to a cancellation."""
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@specialist
async def count(to: int):
    """Counts."""
    for n in range(1, to + 1):
        yield Progress(f"at {n}", n / to)
    yield f"{to} it is."
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with specialists in it."""
    found = tmp_path / "specialists"
    found.mkdir()
    (found / "some.py").write_text(SPECIALISTS)
    return found


def brain(*arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `python -m brain`."""
    with Process(*arguments, env=env, cwd=cwd) as process:
        return process.end(30)


def parsed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    """The same for arguments that are answered before anything runs."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    told = capsys.readouterr()
    return end.value.code, told.out, told.err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = parsed(capsys, command, "--help")
    assert (code, err) == (0, "")
    assert f"Example: brain {command}" in out
    assert all(option in out for option in ("--config", "--model"))
    assert all((option in out) == (command == "serve") for option in ("--host", "--port", "--workers"))


def test_help_lists_the_commands_and_nothing_else() -> None:
    code, out, _ = brain("--help")
    assert code == 0
    assert "Example: brain ask" in out
    listed = [line.split()[0] for line in out.partition("COMMAND\n")[2].splitlines() if line.startswith("    ")]
    assert [name for name in listed if name in COMMANDS] == COMMANDS
    assert not {"worker", "mcp", "replay"} & set(listed)


@pytest.mark.parametrize("arguments", [[], ["worker"], ["ask"], ["serve", "--nothing"], ["completion", "tcsh"]])
def test_what_is_no_command_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = parsed(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: brain")


@pytest.mark.parametrize(
    "user", ["", " ", "a\nb", "a\x1b[2J", "a\udcff"], ids=["empty", "blank", "lines", "escape", "bytes"]
)
@pytest.mark.parametrize(
    "command", ["forget", "export --user", "import x --user", "memory --user", "memory list --user"]
)
def test_what_is_no_name_of_a_user_exits_with_2(command: str, user: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = parsed(capsys, *command.split(), user)
    assert (code, out) == (2, "")
    assert err.endswith(": this is no name of a user\n")


@pytest.mark.parametrize("command", ["ask --model builtin", "memory add", "memory list --search", "memory delete"])
def test_bytes_that_are_no_text_do_no_harm(command: str) -> None:
    code, _, err = brain(*command.split(), "x\udcff")
    assert (code in (0, 1), "Traceback" in err) == (True, False)


def test_the_installed_command_is_the_same() -> None:
    installed = Path(sys.executable).with_name("brain")
    if not installed.exists():
        pytest.skip("the package is not installed into this environment")
    told = subprocess.run([installed, "--version"], capture_output=True, text=True, check=True).stdout
    assert told == brain("--version")[1]
    assert told.startswith("brain 0.")


# ask


def test_the_answer_goes_to_stdout_and_the_rest_to_stderr(folder: Path, tmp_path: Path) -> None:
    call = 'I count: SPECIALIST_REQUEST[count:{"to": 2}]SPECIALIST_REQUEST[unknown]'
    model = script(tmp_path, [call], ["So it is ", "two."])
    code, out, err = brain("ask", "--model", model, "how many?", env={"BRAIN_SPECIALISTS_FOLDER": str(folder)})
    assert (code, out) == (0, "I count: \nSo it is two.\n")
    lines = [line.partition(" ms")[0].rstrip("0123456789") for line in err.splitlines()]
    assert lines[0] == '… count {"to": 2}'
    assert "✓ count, " in lines
    assert any(line.startswith("✗ unknown: unknown: there is no specialist of this name") for line in lines)


def test_a_failed_answer_exits_with_1(tmp_path: Path) -> None:
    model = script(tmp_path, {"chunks": ["Half an "], "error": "secret"})
    code, out, err = brain("ask", "--model", model, "hello")
    assert (code, out) == (1, "Half an \n")
    assert err.splitlines()[-1] == "Error: The model failed in the middle of its answer. (model_failed)"


def test_json_prints_one_event_a_line(tmp_path: Path) -> None:
    code, out, err = brain("ask", "--json", "--model", script(tmp_path, ["Grüezi"]), "hello")
    events: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [set(event) for event in events] == [{"event", "id", "data"}] * 4
    assert [event["event"] for event in events] == ["turn_start", "token", "usage", "done"]
    assert events[1]["data"] == {"text": "Grüezi"}
    turn = events[0]["data"]["turn_id"]
    assert [event["id"] for event in events] == [f"{turn}.{n}" for n in (1, 2, 3, 4)]


def test_json_holds_what_utf_8_can_carry(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(
        "from brain import Progress, specialist\n\n"
        "@specialist\nasync def half():\n    'Halves.'\n    yield Progress('a\\ud83d')\n    yield 'b\\ud83d'\n"
    )
    model = script(tmp_path, ["SPECIALIST_REQUEST[half]"], ["Done."])
    code, out, err = brain("ask", "--json", "--model", model, "x", env={"BRAIN_SPECIALISTS_FOLDER": str(tmp_path)})
    assert (code, err) == (0, "")
    data = {event["event"]: event["data"] for event in map(json.loads, out.splitlines())}
    assert data["specialist_progress"]["text"] == "a\ufffd"
    assert data["specialist_result"]["text"] == "b\ufffd"


def test_json_of_a_failed_answer_ends_with_the_error(tmp_path: Path) -> None:
    code, out, _ = brain("ask", "--json", "--model", script(tmp_path, {"error": "secret"}), "hello")
    assert code == 1
    assert json.loads(out.splitlines()[-1])["event"] == "error"
    assert "secret" not in out


def test_files_are_attached(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("one")
    (tmp_path / "zwei.md").write_text("zwei")
    model = script(tmp_path, ["SPECIALIST_REQUEST[ocr:{}]"], ["Read."])
    files = ["--file", str(tmp_path / "one.txt"), "--file", str(tmp_path / "zwei.md")]
    code, out, _ = brain("ask", *files, "--model", model, "read")
    assert (code, out.splitlines()[-1]) == (0, "Read.")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "brain: --file {path}: No such file or directory.\n"),
        (lambda path: path.mkdir(), "brain: --file {path}: Is a directory.\n"),
        (
            lambda path: path.touch(),
            "brain: --file {path} is empty. What is made as it is read can be piped: … | brain ask\n",
        ),
        (lambda path: path.write_bytes(b"a" * (16 * 1024 * 1024 + 1)), "brain: --file {path} is larger than 16 MiB.\n"),
    ],
    ids=["missing", "folder", "empty", "large"],
)
def test_a_file_that_cannot_be_attached_is_named(tmp_path: Path, make: Any, sentence: str) -> None:
    path = tmp_path / "file"
    make(path)
    assert brain("ask", "--model", "builtin", "--file", str(path), "read") == (1, "", sentence.format(path=path))


def test_an_empty_message_is_refused() -> None:
    assert brain("ask", "--model", "builtin", " ") == (1, "", "brain: The message is empty.\n")


@pytest.mark.parametrize("name", ["nap", "block", "deaf"])
def test_ctrl_c_ends_an_answer_promptly(folder: Path, tmp_path: Path, name: str) -> None:
    model = script(tmp_path, [f"So far. SPECIALIST_REQUEST[{name}]"])
    with Process("ask", "--model", model, "hi", env={"BRAIN_SPECIALISTS_FOLDER": str(folder)}) as process:
        process.said(f"… {name}")
        process.process.send_signal(signal.SIGINT)
        code, out, err = process.end()
    assert (code, out) == (130, "So far. \n")
    assert "Traceback" not in err


def test_an_answer_ends_though_a_given_up_thread_does_not(folder: Path, tmp_path: Path) -> None:
    model = script(tmp_path, ["SPECIALIST_REQUEST[block]"], ["Without it."])
    env = {"BRAIN_SPECIALISTS_FOLDER": str(folder), "BRAIN_TURN_SECONDS": "1"}
    code, _, err = brain("ask", "--model", model, "hi", env=env)
    assert code == 0
    assert "✗ block: deadline:" in err


def test_a_reader_who_has_seen_enough_is_no_trouble(tmp_path: Path) -> None:
    model = script(tmp_path, {"chunks": ["line\n"] * 50, "delay_ms": 10})
    with Process("ask", "--model", model, "hi") as process:
        assert process.process.stdout is not None
        process.process.stdout.read(5)
        process.process.stdout.close()
        process.process.wait(10)
        assert process.process.stderr is not None
        assert process.process.stderr.read() == b""


# specialists, check


def test_specialists_are_listed(folder: Path) -> None:
    (folder / "broken.py").write_text("import nothing_of_that_name\n")
    (folder / "twice.py").write_text(SPECIALISTS)
    code, out, err = brain("specialists", env={"BRAIN_SPECIALISTS_FOLDER": str(folder)})
    assert (code, err) == (0, "")
    own, strangers = "none but its own or the user's words", "may hold strangers' words"
    listed = f"{{to: integer}}\n  auth: everybody; approval: never; results: {strangers}\n"
    assert f"\ncount (some.py): Counts.\n  parameters: {listed}" in out
    assert f"  auth: signed-in users; approval: depends; results: {own}\n" in out
    assert out.startswith("block (some.py): Blocks its thread.\n")
    assert "\nrefused: broken (broken.py): it cannot be imported: ModuleNotFoundError: " in out
    assert "\nrefused: nap (twice.py): specialist nap from twice.py: some.py already brings this name\n" in out


def test_specialists_as_json(folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    code, out, _ = brain("specialists", "--json", env={"BRAIN_SPECIALISTS_FOLDER": str(folder)})
    listed = json.loads(out)
    assert code == 0
    assert {"count", "calendar", "docs", "ocr", "web"} <= {one["name"] for one in listed["specialists"]}
    assert listed["refused"] == [
        {
            "name": "broken",
            "origin": "broken.py",
            "reason": "it cannot be imported: ZeroDivisionError: division by zero",
        }
    ]


def test_check_says_what_is_well_and_what_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    env = {
        "BRAIN_SPECIALIST_PUBMED_BASE": f"{url}/",
        "BRAIN_SPECIALIST_WEB_SEARXNG": url,
        "BRAIN_SPECIALIST_WEB_BACKEND": "searxng",
        "BRAIN_SPECIALIST_WIKI_WIKIS": f"own={url}/api.php",
        "BRAIN_SPECIALIST_WIKI_DEFAULT": "own",
    }
    code, out, err = brain("check", "--model", "builtin", env=env)
    first, *lines = out.splitlines()
    assert first == "ok   model builtin: it was asked for; resumes by prefill"
    found = {line[5:].partition(":")[0].removeprefix("specialist "): line[:4] for line in lines}
    far = {name: said for name, said in found.items() if name in ("pubmed", "web", "wiki")}
    assert far == dict.fromkeys(["pubmed", "web", "wiki"], "FAIL")
    near = {name for name, said in found.items() if said == "ok  "}
    near -= {"memory", f"store {os.environ['XDG_DATA_HOME']}/brain/brain.db"}
    assert near | {"ocr"} == {"calendar", "docs", "knowledge", "medical", "ocr", "vision"}  # ocr needs an engine
    assert "ok   specialist docs: brain-sse " in out
    assert (code, err) == (1, "")


def test_check_says_what_is_wrong(folder: Path) -> None:
    (folder / "ill.py").write_text(
        "from brain import Context, specialist\n\n"
        "async def late() -> str:\n    return 'its disk is full'\n\n"
        "@specialist(health=late)\ndef ill() -> str:\n    '''Is ill.'''\n    return ''\n\n"
        "@specialist(health=lambda: 1 / 0)\ndef worse() -> str:\n    '''Is worse.'''\n    return ''\n\n"
        "async def looks(*, context: Context) -> None:\n    await context.fetch('http://127.0.0.1/')\n\n"
        "@specialist(health=looks)\ndef cut_off() -> str:\n    '''Is cut off.'''\n    return ''\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    env = {"BRAIN_SPECIALISTS_FOLDER": str(folder), "BRAIN_MODEL_URL": url}
    code, out, _ = brain("check", "--model", "ollama:none", env=env)
    assert code == 1
    assert "FAIL model ollama:none: " in out
    assert "FAIL specialist ill: its disk is full\n" in out
    assert "FAIL specialist worse: ZeroDivisionError: division by zero\n" in out
    assert "FAIL specialist cut_off: there is no public host 127.0.0.1;" in out
    assert "ok   specialist count: some.py\n" in out


# serve


def test_serve_says_where_with_whom_and_who_was_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "poor.py").write_text(
        "from brain import specialist\n\n"
        "@specialist(needs=lambda: 'it needs a moon: buy one')\ndef poor() -> str:\n    '''Is poor.'''\n    return ''\n"
    )
    env = {"BRAIN_SPECIALISTS_FOLDER": str(folder)}
    model = script(tmp_path, ["Hello."])
    with Process("serve", "--port", "0", "--model", model, env=env) as process:
        url = process.url()
        assert httpx.get(f"{url}/healthz", trust_env=False).json() == {"status": "ok"}
        assert post(url, json={"message": "hi"}).last["text"] == "Hello."
        process.said("turn t")
        process.process.terminate()
        code, out, err = process.end()
    lines = err.splitlines()
    assert (code, out) == (0, "")
    assert url.startswith("http://127.0.0.1:")
    assert lines[0] == f"Brain listens on {url}"
    assert lines[1] == f"Model: {model} (it was asked for)"
    assert lines[2] == f"Conversations: {os.environ['XDG_DATA_HOME']}/brain/brain.db"
    assert {"block", "count", "deaf", "docs", "nap"} <= set(lines[3].removeprefix("Specialists: ").split(", "))
    assert "Unavailable: poor: it needs a moon: buy one" in lines
    assert "Refused: broken from broken.py: it cannot be imported: ZeroDivisionError: division by zero" in lines
    (turn,) = [line for line in lines if line.startswith("INFO brain: turn t")]
    assert f" of local: complete, native, {model}, 0 calls, 1 passes, " in turn


def test_serve_listens_beyond_loopback_only_with_keys() -> None:
    code, out, err = brain("serve", "--host", "0.0.0.0", "--port", "0")
    assert (code, out) == (1, "")
    assert err.startswith("brain: HOST=0.0.0.0 is not loopback, so anybody who reaches it could call: set BRAIN_KEYS")
    with Process("serve", "--host", "0.0.0.0", "--port", "0", env={"BRAIN_KEYS": "k:u"}) as process:
        assert process.url().startswith("http://0.0.0.0:")
        assert "Only loopback names are accepted as Host until BRAIN_HOSTS names the public one." in process.said(
            "Only"
        )
    env = {"BRAIN_KEYS": "k:u", "BRAIN_HOSTS": "chat.example"}
    with Process("serve", "--host", "0.0.0.0", "--port", "0", env=env) as process:
        process.url()
        assert "loopback" not in process.stderr.decode()


def test_serve_says_whom_it_would_allow_and_does_not_have() -> None:
    env = {"BRAIN_ALLOWED_SPECIALISTS": "docs,wether", "BRAIN_MODEL": "builtin"}
    with Process("serve", "--port", "0", env=env) as process:
        said = process.said("Not there:")
    assert "Not there: wether, which ALLOWED_SPECIALISTS names\n" in said
    assert "Not there: docs" not in said


def test_plain_port_opens_to_the_world_and_so_needs_keys(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    code, _, err = brain("serve", env={"PORT": port})
    assert code == 1
    assert err.startswith("brain: HOST=0.0.0.0 is not loopback")
    assert "plain PORT alone means 0.0.0.0" in err
    env = {"PORT": port, "BRAIN_KEYS": "k:u", "BRAIN_MODEL": script(tmp_path, ["Hi."])}
    with Process("serve", env=env) as process:
        assert process.url() == f"http://0.0.0.0:{port}"
        answer = post(f"http://127.0.0.1:{port}", json={"message": "hi"}, headers={"authorization": "Bearer k"})
        assert answer.last["text"] == "Hi."
    with Process("serve", "--host", "127.0.0.1", "--model", "builtin", env={"PORT": port}) as process:
        assert process.url() == f"http://127.0.0.1:{port}"


def test_a_port_that_is_taken_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, err = brain("serve", "--model", "builtin", "--port", str(taken.getsockname()[1]))
    assert (code, out) == (1, "")
    assert "address already in use" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_store_that_cannot_be_opened_ends_the_start(workers: str, tmp_path: Path) -> None:
    env = {"BRAIN_STORE": f"sqlite:{tmp_path}"}
    sentence = f"brain: {tmp_path} is a folder; name a file.\n"
    assert brain("serve", "--model", "builtin", "--port", "0", "--workers", workers, env=env) == (1, "", sentence)


def test_serve_says_when_nothing_outlives_it() -> None:
    env = {"BRAIN_STORE": "memory:", "BRAIN_MODEL": "builtin"}
    with Process("serve", "--port", "0", env=env) as process:
        assert "\nConversations: in the memory of this process; they end with it (STORE)\n" in process.said(
            "Conversations:"
        )


@pytest.mark.parametrize(
    ("arguments", "env", "sentence"),
    [
        ([], {"BRAIN_MODLE": "builtin"}, "BRAIN_MODLE is not a setting"),
        ([], {"BRAIN_CALLS": "many"}, "BRAIN_CALLS='many' is not allowed. Allowed: a whole number from 0 to 100."),
        (["--port", "x"], {}, "--port='x' is not allowed. Allowed: a port from 0 to 65535."),
        (["--workers", "0"], {}, "--workers='0' is not allowed. Allowed: a whole number from 1 to 256."),
        (["--workers", "-1"], {}, "--workers='-1' is not allowed. Allowed: a whole number from 1 to 256."),
        ([], {"BRAIN_WORKERS": "two"}, "BRAIN_WORKERS='two' is not allowed. Allowed: a whole number from 1 to 256."),
        (["--model", "gpt"], {}, "--model='gpt' is not allowed."),
        (["--config", "none.toml"], {}, "--config none.toml: cannot be read: No such file or directory."),
        (["--model", "script:none.jsonl"], {}, "MODEL=script:none.jsonl: "),
        ([], {"BRAIN_KEYS": "secret"}, "BRAIN_KEYS=(not shown) is not allowed."),
    ],
    ids=["unknown", "value", "port", "no workers", "-1 workers", "workers", "model", "config", "script", "secret"],
)
def test_what_is_set_wrong_stops_the_start(
    arguments: list[str], env: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    code, out, err = brain("serve", *arguments, env=env, cwd=tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith(f"brain: {sentence}")
    assert "Traceback" not in err
    assert "secret" not in err


@pytest.mark.parametrize("command", [["ask", "hi"], ["check"]], ids=["ask", "check"])
def test_it_stops_the_other_commands_too(command: list[str], tmp_path: Path) -> None:
    sentence = "brain: MODEL=script:none.jsonl: the file cannot be read: No such file or directory.\n"
    assert brain(*command, "--model", "script:none.jsonl", cwd=tmp_path) == (1, "", sentence)


def test_a_settings_file_is_read_and_the_environment_wins(tmp_path: Path) -> None:
    config = tmp_path / "brain.toml"
    config.write_text(f'model = "{script(tmp_path, ["From the file."])}"\ncalls = 2\n[specialists.nowhere]\nx = 1\n')
    code, out, err = brain("ask", "--json", "--config", str(config), "hi", env={"BRAIN_CALLS": "3"})
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, events[-1]["data"]["text"]) == (0, "From the file.")
    assert events[0]["data"]["limits"]["calls"] == 3
    assert err == "WARNING brain: settings for specialist nowhere, which is not there\n"
    config.write_text("colour = 'red'\n")
    code, _, err = brain("serve", "--config", str(config))
    assert code == 1
    assert err.startswith("brain: colour in brain.toml is not a setting.")


def test_importing_brain_opens_nothing() -> None:
    told = (
        "import sys, threading, brain; "
        "print(sorted({'starlette', 'sse_starlette', 'uvicorn', 'httpx', 'ollama'} & set(sys.modules)), "
        "threading.active_count())"
    )
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("[] 1\n", "")


def test_check_names_a_context_that_is_too_small() -> None:
    def checked(context: int) -> tuple[int, str]:
        async def main() -> tuple[int, str]:
            answers = {
                "GET /v1/models": (200, {"data": [{"id": "m", "owned_by": "llamacpp"}]}),
                "GET /props": (200, {"default_generation_settings": {"n_ctx": context}}),
            }
            async with OpenAIServer(answers=answers) as server:
                command = ("check", "--model", "openai:m")
                code, out, _ = await asyncio.to_thread(brain, *command, env={"BRAIN_MODEL_URL": server.url})
                return code, out.splitlines()[0]

        return asyncio.run(main())

    for context, state in ((0, "ok   "), (8192, "ok   "), (1024, "WARN "), (64, "FAIL ")):
        _, line = checked(context)
        assert line.startswith(f"{state}model openai:m: "), line
        assert (f"{context:,} tokens" in line) is (state in ("WARN ", "FAIL "))
