"""Several workers behind one port, as real processes: how they start, what each serves, and how they end."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from answering import in_thread
from servers import OllamaServer
from serving import Process, script

SPECIALISTS = '''\
"""Specialists that tell of their process."""

import asyncio
import gc
import os

from brain import specialist


@specialist
async def who() -> str:
    """Says which process this is, and what its collector spares."""
    return f"{os.getpid()} {gc.get_freeze_count()}"


@specialist(timeout=60)
async def deaf() -> str:
    """Does not listen to a cancellation."""
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
'''
WHO = ["SPECIALIST_REQUEST[who]"], ["That is who."]
STUCK = ["SPECIALIST_REQUEST[who]"], ["SPECIALIST_REQUEST[deaf]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with these specialists in it."""
    found = tmp_path / "specialists"
    found.mkdir()
    (found / "some.py").write_text(SPECIALISTS)
    return found


@contextmanager
def serving(folder: Path, model: str, workers: int = 2) -> Iterator[Process]:
    """`brain serve` with so many workers."""
    env = {"BRAIN_SPECIALISTS_FOLDER": str(folder)}
    with Process("serve", "--workers", str(workers), "--port", "0", "--model", model, env=env) as brain:
        yield brain


class Caller:
    """A client with one connection, and so at one worker; its first turn as far as it was read."""

    def __init__(self, url: str, until: str, stack: ExitStack) -> None:
        self.client = stack.enter_context(httpx.Client(base_url=url, timeout=20, trust_env=False))
        response = stack.enter_context(self.client.stream("POST", "/v1/chat/stream", json={"message": "who?"}))
        self._pieces = response.iter_text()
        self.text = ""
        while until not in self.text:
            self.text += next(self._pieces)
        told = re.search(r'"name":"who","params":{},"text":"([0-9]+) ([0-9]+)"', self.text)
        assert told is not None
        self.worker, self.spared = int(told[1]), int(told[2])

    def rest(self) -> str:
        """What else comes of that turn."""
        return "".join(self._pieces)


@contextmanager
def a_caller_each(url: str, workers: int = 2, until: str = "event: done") -> Iterator[dict[int, Caller]]:
    """A caller for each worker, by the worker's process id."""
    found: dict[int, Caller] = {}
    with ExitStack() as stack:
        for _ in range(200):
            caller = Caller(url, until, stack)
            found.setdefault(caller.worker, caller)
            if len(found) == workers:
                break
        assert len(found) == workers
        yield found


def gone(pid: int) -> bool:
    """Whether a process has ended, once it has; it may still wait for its exit code to be read."""
    while True:
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        state = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        if state.strip()[:1] in ("", "Z"):
            return True


def test_every_worker_serves_and_the_greeting_is_said_once(folder: Path, tmp_path: Path) -> None:
    model = script(tmp_path, *WHO)
    with serving(folder, model) as brain, a_caller_each(url := brain.url()) as callers:
        assert brain.process.pid not in callers
        for caller in callers.values():
            caller.rest()
            assert caller.client.get("/healthz").json() == {"status": "ok"}
            assert caller.client.get("/readyz").json() == {"status": "ok", "model": model, "specialists": 12}
            assert len(caller.client.get("/v1/specialists").json()["specialists"]) == 12
        brain.process.terminate()
        code, out, err = brain.end()
    assert (code, out) == (0, "")
    assert [line for line in err.splitlines() if not line.startswith("INFO brain: ")] == [
        f"Brain listens on {url}",
        "Workers: 2",
        f"Model: {model} (it was asked for)",
        f"Conversations: {os.environ['XDG_DATA_HOME']}/brain/brain.db",
        "Specialists: calendar, deaf, docs, knowledge, medical, memory, ocr, pubmed, vision, web, who, wiki",
    ]


def test_one_worker_is_the_process_itself(folder: Path, tmp_path: Path) -> None:
    with serving(folder, script(tmp_path, *WHO), 1) as brain, a_caller_each(brain.url(), 1) as callers:
        assert list(callers) == [brain.process.pid]
        assert "Workers" not in brain.stderr.decode()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_collector_is_spared_what_was_loaded(folder: Path, tmp_path: Path, workers: int) -> None:
    with serving(folder, script(tmp_path, *WHO), workers) as brain, a_caller_each(brain.url(), workers) as callers:
        assert min(caller.spared for caller in callers.values()) > 10_000


def test_what_the_settings_file_says_reaches_the_workers(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "brain.toml"
    model = script(tmp_path, *WHO)
    config.write_text(f'model = "{model}"\nworkers = 2\ncalls = 2\nspecialists_folder = "{folder}"\n')
    with Process("serve", "--config", str(config), "--port", "0") as brain, a_caller_each(brain.url()) as callers:
        assert all('"limits":{"calls":2,' in caller.text for caller in callers.values())


def test_what_auto_means_is_found_once_for_all() -> None:
    empty = {f"GET /api/{path}": (200, {"models": [], "version": "0.33.0"}) for path in ("version", "ps", "tags")}
    with in_thread(OllamaServer(answers=empty)) as server:
        env = {"BRAIN_MODEL_URL": server.url, "BRAIN_WORKERS": "3"}
        with Process("serve", "--model", "auto", "--port", "0", env=env) as brain:
            brain.url()
            assert f"Model: builtin (Ollama at {server.url} has no model that can complete)" in brain.stderr.decode()
    assert server.lines == list(empty)


def test_a_worker_that_is_killed_is_started_anew_and_the_other_goes_on(folder: Path, tmp_path: Path) -> None:
    with serving(folder, script(tmp_path, *WHO)) as brain, a_caller_each(brain.url()) as callers:
        killed, other = callers
        os.kill(killed, signal.SIGKILL)
        assert f"WARNING brain: worker {killed} ended (exit code -9), " in brain.said("takes its place")
        callers[other].rest()
        assert callers[other].client.get("/healthz").json() == {"status": "ok"}
        with a_caller_each(brain.url()) as now:
            assert other in now
            assert killed not in now
        brain.process.terminate()
        code, _, err = brain.end()
    assert code == 0
    assert err.count("Brain listens on") == 1
    assert all(gone(pid) for pid in now)


@pytest.mark.parametrize("everybody", [False, True], ids=["it", "everybody"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_told_to_stop_all_workers_say_farewell(
    folder: Path, tmp_path: Path, how: signal.Signals, everybody: bool
) -> None:
    model = script(tmp_path, *STUCK)
    with serving(folder, model) as brain, a_caller_each(brain.url(), until='"name":"deaf"') as callers:
        for pid in [brain.process.pid, *(callers if everybody else ())]:  # a terminal tells everybody
            os.kill(pid, how)
        ends = [caller.rest() for caller in callers.values()]
        code, out, err = brain.end()
    assert ["event: error" in end and '"code":"shutdown"' in end for end in ends] == [True, True]
    assert (code, out) == (0, "")
    assert [word for word in ("Traceback", "ERROR", "WARNING") if word in err] == [], err
    assert all(gone(pid) for pid in callers)


def test_when_the_first_process_is_killed_the_workers_leave(folder: Path, tmp_path: Path) -> None:
    with serving(folder, script(tmp_path, *WHO)) as brain, a_caller_each(url := brain.url()) as callers:
        brain.process.kill()
        assert all(gone(pid) for pid in callers)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_what_cannot_be_served_is_said_once_before_any_worker_starts(tmp_path: Path) -> None:
    with Process("serve", "--workers", "2", "--model", "script:none.jsonl", cwd=tmp_path) as brain:
        code, out, err = brain.end()
    assert (code, out) == (1, "")
    assert err == "brain: MODEL=script:none.jsonl: the file cannot be read: No such file or directory.\n"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with Process("serve", "--workers", "2", "--model", "builtin", "--port", port) as brain:
            code, out, err = brain.end()
    assert (code, out) == (1, "")
    assert err == f"brain: HOST=127.0.0.1 PORT={port} cannot be listened on: address already in use.\n"
