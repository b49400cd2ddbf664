"""The packages that a command imports: each takes milliseconds that the person waits for."""

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from brain_servers import script
from limits import WAIT_SECONDS

from brain.cli.arguments import GROUPS

RUN = """
import atexit, sys
before = set(sys.modules)

@atexit.register
def report():
    found = {name.partition(".")[0] for name in sys.modules.keys() - before}
    known = sys.stdlib_module_names - {"asyncio", "sqlite3"}
    print("imported:", *sorted(one for one in found - known - {"brain"} if not one.startswith("_")))

"""
COMMAND = f"{RUN}from brain.cli.main import run\nsys.exit(run(sys.argv[1:]))"

PARSER = {"msgspec", "regex", "typing_extensions"}
REGISTRY = PARSER | {"anyio", "asyncio"}
STORE = REGISTRY | {"platformdirs", "sqlite3"}
SPECIALISTS = REGISTRY | {"specialists", "sqlite3"}
"""The modules of specialists themselves, and none of their libraries."""
PSYCOPG = {"cython_runtime", "psycopg", "psycopg_binary", "psycopg_pool"}
ENGINE = SPECIALISTS | {"rich", "sniffio"}
SERVER = SPECIALISTS | {
    *("click", "cython_runtime", "httptools", "prometheus_client", "python_multipart", "sniffio", "sse_starlette"),
    *("starlette", "uvicorn", "uvloop"),
}

COMMANDS: list[tuple[list[str], set[str]]] = [
    (["--version"], PARSER),
    (["--help"], PARSER),
    (["serve", "--help"], PARSER),
    (["tasks", "add", "--help"], PARSER),
    (["asl"], PARSER),
    (["ask", "hello"], ENGINE),
    (["chat"], ENGINE | {"platformdirs", "prompt_toolkit", "wcwidth"}),
    (["replay", "missing.jsonl"], REGISTRY | {"rich", "sniffio", "sqlite3"}),
    (["explain", "last"], STORE),
    (["tasks", "list"], STORE),
    (["memory", "add", "I like tea."], STORE),
    (["export", "--user", "local"], STORE),
    (["import", "missing.jsonl"], STORE),
    (["copy-store", "sqlite:missing.db", "postgresql://127.0.0.1:1/missing"], STORE | PSYCOPG),
    (["models"], STORE),
    (["forget", "nobody", "--yes"], STORE | SPECIALISTS),
    (["index", "missing"], STORE | SPECIALISTS),
    (["specialists"], SPECIALISTS),
    (["completion", "bash"], REGISTRY | {"shtab", "sqlite3"}),
]
TRIES_EVERYTHING = {"check"}
"""It calls the health check of each specialist, which uses its libraries."""


def environment(folder: Path) -> dict[str, str]:
    return {
        "BRAIN_MODEL": script(folder, ["Hello."]),
        "BRAIN_STORE": f"sqlite:{folder / 'brain.db'}",
        "BRAIN_SPECIALISTS_FOLDER": "",
        "HOME": str(folder),
        "PYTHONPATH": "",
    }


def excess(out: str, allowed: Collection[str]) -> set[str]:
    return set(out.rpartition("imported:")[2].split()) - set(allowed)


@pytest.mark.parametrize(("arguments", "allowed"), COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_a_command_imports_only_what_it_needs(arguments: list[str], allowed: set[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMMAND, *arguments]
    env = environment(tmp_path)
    done = subprocess.run(
        command, env=env, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert "imported:" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    assert excess(done.stdout, allowed) == set()


def test_the_server_imports_no_library_of_a_specialist(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMMAND, "serve", "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(tmp_path), stdout=pipe, stderr=pipe, text=True) as server:
        assert server.stderr is not None
        next(line for line in server.stderr if "http://" in line)
        server.terminate()
        assert excess(server.communicate(timeout=WAIT_SECONDS)[0], SERVER) == set()


def test_each_command_is_measured() -> None:
    measured = {arguments[0] for arguments, _ in COMMANDS if not arguments[0].startswith("-")}
    commands = {name for names in GROUPS.values() for name in names}
    assert commands - measured == TRIES_EVERYTHING


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import brain", set()),
        ("from brain import Context, Refused, Result, specialist", PARSER),
        ("from brain import Registry, dates", REGISTRY),
        ("from brain import stream_with_specialists", REGISTRY | {"sniffio", "sqlite3"}),
    ],
)
def test_a_program_imports_only_what_it_uses(code: str, allowed: set[str]) -> None:
    done = subprocess.run([sys.executable, "-c", f"{RUN}{code}"], capture_output=True, text=True, check=True)
    assert excess(done.stdout, allowed) == set()
