"""The command line as a whole: arguments, settings, exit codes; `specialists`, `check` and `serve`."""

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from brain_servers import Process, post, script
from limits import WAIT_SECONDS

from brain.store.sqlite import connection
from cli.command import Brain

COMMANDS = [
    *("serve", "ask", "chat", "memory", "index", "export", "import", "forget", "check", "specialists", "completion"),
]
SPECIALISTS = '''\
"""Specialists for these tests."""

from brain import Context, specialist


async def late() -> str:
    return "its disk is full"


async def looks(*, context: Context) -> None:
    await context.fetch("http://127.0.0.1/")


@specialist
def count(to: int) -> str:
    """Counts."""
    return ""


@specialist(health=late)
def ill() -> str:
    """Is ill."""
    return ""


@specialist(health=lambda: 1 / 0)
def worse() -> str:
    """Is worse."""
    return ""


@specialist(health=looks)
def cut_off() -> str:
    """Is cut off."""
    return ""


@specialist(needs=lambda: "it needs a moon: buy one")
def poor() -> str:
    """Is poor."""
    return ""
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with specialists, one of which is broken and one of which is there twice."""
    found = tmp_path / "specialists"
    found.mkdir()
    (found / "some.py").write_text(SPECIALISTS)
    (found / "broken.py").write_text("1 / 0\n")
    (found / "twice.py").write_text(
        "from brain import specialist\n\n@specialist\ndef ill() -> str:\n    '''Is ill.'''\n"
    )
    monkeypatch.setenv("BRAIN_SPECIALISTS_FOLDER", str(found))
    return found


def unreachable() -> str:
    """The address of a server that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        return f"http://127.0.0.1:{nobody.getsockname()[1]}"


# Arguments


def test_help_lists_every_command_in_its_group_with_an_example(brain: Brain) -> None:
    code, out, err = brain("--help")
    listed = re.findall(r"^  (\w+)  ", out, re.MULTILINE)
    assert (code, err) == (0, "")
    assert [name for name in listed if name in COMMANDS] == COMMANDS
    assert re.findall(r"^(\w+):$", out, re.MULTILINE) == ["Run", "Data", "Admin", "options"]
    for command in COMMANDS:
        code, out, err = brain(command, "--help")
        assert (code, err) == (0, "")
        assert f"\nExample: brain {command}" in out
        assert all(option in out for option in ("--config", "--model"))


def test_global_options_may_come_first(brain: Brain, tmp_path: Path) -> None:
    (tmp_path / "brain.toml").write_text('model = "no-such-kind:x"\n')
    assert (
        brain("--config", str(tmp_path / "brain.toml"), "--model", script(tmp_path, ["Hi."]), "ask", "x")[1] == "Hi.\n"
    )


@pytest.mark.parametrize("command", ["ask --model builtin", "memory add", "memory list --search", "memory delete"])
def test_arguments_that_are_no_utf_8_do_no_harm(command: str, brain: Brain) -> None:
    assert brain(*command.split(), "x\udcff")[0] in (0, 1)


def test_the_installed_command_is_the_same() -> None:
    installed = Path(sys.executable).with_name("brain")
    if not installed.exists():
        pytest.skip("the package is not installed into this environment")
    version = subprocess.run([installed, "--version"], capture_output=True, text=True, check=True).stdout
    with Process("--version") as process:
        assert process.end(WAIT_SECONDS) == (0, version, "")
    assert version.startswith("brain 0.")


@pytest.mark.parametrize(
    ("arguments", "out", "err"),
    [
        (["ask", "x"], b"caf\xe9 ? ??\n", b""),
        (["ask", "--json", "x"], '"text":"café √ 寿司"'.encode(), b""),
        (["memory", "add", "I like 寿司"], b"I like ??\n", b""),
        (["asl", "寿"], b"", b"brain: Unknown command 'asl'."),
    ],
)
def test_what_the_output_cannot_encode_is_replaced(
    arguments: list[str], out: bytes, err: bytes, tmp_path: Path
) -> None:
    model, store = script(tmp_path, ["café √ 寿司"]), f"sqlite:{tmp_path / 'brain.db'}"
    env = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0", "BRAIN_MODEL": model, "BRAIN_STORE": store}
    found = subprocess.run([sys.executable, "-m", "brain", *arguments], capture_output=True, env=env, check=False)
    assert out in found.stdout
    assert err in found.stderr
    assert b"Traceback" not in found.stderr


# Settings


def test_the_environment_wins_over_the_settings_file(
    brain: Brain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "brain.toml"
    config.write_text(f'model = "{script(tmp_path, ["From the file."])}"\ncalls = 2\n')
    monkeypatch.setenv("BRAIN_CALLS", "3")
    events = [json.loads(line) for line in brain("ask", "--json", "--config", str(config), "hi")[1].splitlines()]
    assert events[0]["data"]["limits"]["calls"] == 3
    assert events[-1]["data"]["text"] == "From the file."


# specialists, check


def test_specialists_are_listed(brain: Brain, folder: Path) -> None:
    code, out, err = brain("specialists")
    assert (code, err) == (0, "")
    listed = "{to: integer}\n  users: all; approval: never; results: may contain untrusted content\n"
    assert f"\ncount (some.py): Counts.\n  parameters: {listed}" in out
    assert "  users: signed-in users only; approval: depends; results: trusted\n" in out
    assert "\n  unavailable: it needs a moon: buy one\n" in out
    assert "\nRejected: ill from twice.py: some.py " in out
    assert len(re.findall(r"^\w+ \(", brain("specialists", "count", "poor")[1], re.MULTILINE)) == 2
    found = json.loads(brain("specialists", "--json")[1])
    assert {"count", "calendar", "docs", "ocr", "web"} <= {one["name"] for one in found["specialists"]}
    reason = "it cannot be imported: ZeroDivisionError: division by zero"
    assert {"name": "broken", "origin": "broken.py", "reason": reason} in found["refused"]


def test_check_reports_what_works_and_what_does_not(
    brain: Brain, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = unreachable()
    for name, value in (
        ("PUBMED_BASE", f"{url}/"),
        ("WEB_SEARXNG", url),
        ("WEB_BACKEND", "searxng"),
        ("WIKI_WIKIS", f"own={url}/api.php"),
        ("WIKI_DEFAULT", "own"),
    ):
        monkeypatch.setenv(f"BRAIN_SPECIALIST_{name}", value)
    code, out, err = brain("check", "--model", "builtin")
    assert (code, err) == (1, "")
    states = {line[5:].partition(":")[0].removeprefix("specialist "): line[:4] for line in out.splitlines()}
    assert {name for name, state in states.items() if state == "FAIL"} - {"ocr"} == {  # ocr needs an engine
        *("pubmed", "web", "wiki", "ill", "worse", "cut_off", "poor", "Rejected"),
    }
    assert "ok   model builtin: as configured (resume mode: prefill)\n" in out
    assert "ok   memory: keyword search." in out
    assert re.search(
        rf"^ok   database {brain.store}: SQLite [\d.]+, \d+ KiB, [\d,]+ [GM]iB free, no process uses it$",
        out,
        re.MULTILINE,
    )
    assert "ok   specialist count: some.py\n" in out
    assert "FAIL specialist ill: its disk is full\n" in out
    assert "FAIL specialist worse: its health check failed with ZeroDivisionError: division by zero\n" in out
    assert "FAIL specialist cut_off: " in out


def test_check_names_the_url_of_a_model_server_that_is_away(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.cli.commands.check.Registry.discover", lambda registry: registry)
    url = unreachable()
    monkeypatch.setenv("BRAIN_MODEL_URL", url)
    for model in ("openai:m", "ollama:m"):
        code, out, _ = brain("check", "--model", model)
        assert code == 1
        assert re.search(rf"^FAIL model {model}: .*{url}\b", out, re.MULTILINE)


def test_check_names_processes_that_cannot_be_reached(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brain.cli.commands.check.Registry.discover", lambda registry: registry)
    monkeypatch.setattr("brain.store.processes.LEASE_SECONDS", 2e6)
    with brain.process("serve", "--model", "builtin", "--port", "0", ADVERTISE="127.0.0.2:0", KEYS="k:u") as process:
        process.said("Specialists:")

        def state() -> tuple[int, str]:
            code, out, _ = brain("check", "--model", "builtin")
            (line,) = [line for line in out.splitlines() if line[5:].startswith("process ")]
            return code, line

        code, line = state()
        assert code == 0
        assert re.fullmatch(r"ok   process \w{8} at http://127.0.0.2:\d+: can be reached; not encrypted: .*", line)
        with closing(sqlite3.connect(brain.store)) as db, db:
            until = round((time.monotonic() + 1e6) * 1e6)
            # and the row of a process of which the database is a copy, which does not use this one
            db.execute(
                "INSERT INTO process (id, address, until, version) SELECT 'past', address, 1, version FROM process"
            )
            db.execute("UPDATE process SET address = 'http://127.0.0.1:1', until = ? WHERE id <> 'past'", (until,))
        code, line = state()
        assert code == 1
        problem = "connection refused. Try: export BRAIN_ADVERTISE=HOST:PORT there"
        assert re.fullmatch(rf"FAIL process \w{{8}} at http://127.0.0.1:1: {problem}", line)


def test_check_names_what_is_wrong_with_the_store(brain: Brain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "brain.cli.commands.check.Registry.discover", lambda registry: registry
    )  # nothing but the store

    def state() -> str:
        return next(line for line in brain("check", "--model", "builtin")[1].splitlines() if "database" in line)

    assert brain("memory", "add", "I like tea.")[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(connection, "MIN_FREE_BYTES", 2**60)
        assert state().endswith(" free: free some space")
    data = bytearray(brain.store.read_bytes())
    data[4096 * 3 : 4096 * 12] = bytes(4096 * 9)
    brain.store.write_bytes(data)
    assert state().startswith(f"FAIL database {brain.store}: ")
    brain.store.write_bytes(b"no database" * 500)
    assert state().startswith(f"FAIL database {brain.store}: ")
    monkeypatch.setenv("BRAIN_STORE", "memory:")
    assert state().startswith("ok   database: in memory;")


# serve


def test_serve_says_where_it_listens_and_what_it_has(brain: Brain, folder: Path) -> None:
    model = script(folder, ["Hello."])
    with brain.process("serve", "--port", "0", "--model", model, FALLBACK_MODEL="builtin") as process:
        url = process.url()
        assert httpx.get(f"{url}/healthz", trust_env=False, timeout=WAIT_SECONDS).json() == {"status": "ok"}
        assert post(url, json={"message": "hi"}).last["text"] == "Hello."
        process.said("turn t")
        process.process.terminate()
        code, out, err = process.end()
    lines = err.splitlines()
    assert (code, out) == (0, "")
    assert url.startswith("http://127.0.0.1:")
    assert lines[:4] == [
        f"Brain is running at {url}",
        f"Model: {model} (as configured)",
        "Fallback: builtin (as configured)",
        f"Database: {brain.store}",
    ]
    assert {"count", "docs", "ill"} <= set(lines[4].removeprefix("Specialists: ").split(", "))
    assert "Unavailable: poor: it needs a moon: buy one" in lines
    reason = "it cannot be imported: ZeroDivisionError: division by zero"
    assert f"Rejected: broken from broken.py: {reason}. Try: brain check" in lines
    (turn,) = [line for line in lines if line.startswith("INFO brain: turn t")]
    assert f" of local: complete, native, {model}, 0 calls, 1 passes, " in turn


def test_serve_listens_to_everybody_with_keys_only(tmp_path: Path) -> None:
    port = unreachable().rpartition(":")[2]
    env = {
        "PORT": port,
        "BRAIN_KEYS": "k:u",
        "BRAIN_STORE": "memory:",
        "BRAIN_ALLOWED_SPECIALISTS": "docs",
        "BRAIN_MODEL": script(tmp_path, ["Hi."]),
    }
    with Process("serve", env=env) as process:
        assert process.url() == f"http://0.0.0.0:{port}"
        answer = post(f"http://127.0.0.1:{port}", json={"message": "hi"}, headers={"authorization": "Bearer k"})
        assert answer.last["text"] == "Hi."
        greeting = process.said("use 16 or more")
    assert "Warning: only localhost names are accepted." in greeting
    assert "Database: in memory only;" in greeting


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_that_cannot_start_says_why(workers: str, brain: Brain) -> None:
    brain.store.mkdir(parents=True)
    with brain.process("serve", "--model", "builtin", "--port", "0", "--workers", workers) as process:
        code, out, err = process.end(WAIT_SECONDS)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert str(brain.store) in err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_at_an_advertised_address_of_another_machine_says_why(workers: str, brain: Brain) -> None:
    address = "192.0.2.1:8700"  # of no machine
    arguments = ("serve", "--model", "builtin", "--port", "0", "--workers", workers)
    with brain.process(*arguments, ADVERTISE=address) as process:
        code, out, err = process.end(WAIT_SECONDS)
    sentence = f"brain: Cannot listen on {address} for other processes: cannot assign requested address. "
    advice = "Set BRAIN_ADVERTISE to an IP address of this machine, or to its host name.\n"
    assert (code, out, err) == (1, "", f"{sentence}{advice}")


def test_a_busy_port_is_named_with_who_uses_it(brain: Brain) -> None:
    serve = "serve", "--model", "builtin"
    with brain.process(*serve, "--port", "0", STORE="memory:") as server:
        port = server.url().rpartition(":")[2]
        pid = f" (process {server.process.pid})" if sys.platform == "linux" else ""
        sentence = f"brain: Cannot listen on 127.0.0.1:{port}: the port is in use by Brain{pid}. "
        with brain.process(*serve, "--port", port, STORE="memory:") as second:
            assert second.end(WAIT_SECONDS) == (1, "", f"{sentence}Try: brain serve --port {int(port) + 1}\n")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with brain.process(*serve, "--port", port, "--workers", "2", STORE="memory:") as second:
            code, _, err = second.end(WAIT_SECONDS)
        assert (code, "in use by Brain" in err, port in err) == (1, False, True)
