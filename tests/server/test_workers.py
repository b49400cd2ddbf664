"""`brain serve` as real processes: how workers start, what each serves, and how a server ends."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from brain_servers import Process, script
from limits import WAIT_SECONDS
from model_servers import OllamaServer, in_thread
from sse_events import read

SPECIALISTS = '''\
"""Specialists that report their process, wait, or crash."""

import asyncio
import gc
import os
import signal
import threading

from brain import specialist


@specialist
async def who() -> str:
    """Returns the process, and how many objects its collector spares."""
    return f"{os.getpid()} {gc.get_freeze_count()}"


@specialist(timeout=60)
async def waits() -> str:
    """Waits."""
    await asyncio.Event().wait()
    return ""


@specialist(timeout=60)
async def deaf() -> str:
    """Ignores a cancellation."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@specialist(timeout=60)
def blocks() -> str:
    """Blocks a thread."""
    threading.Event().wait()
    return ""


@specialist(approval="always")
async def letter() -> str:
    """Sends a letter."""
    return "Sent."


@specialist
async def crashes() -> str:
    """Kills the process like a fault in C code."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""
'''
WHO = ["SPECIALIST_REQUEST[who]"], ["That is who."]
WAITING = ("waits", "deaf", "blocks", "letter")
STUCK = [
    ["SPECIALIST_REQUEST[who]"],
    ["So far. ", *(f"SPECIALIST_REQUEST[{name}]" for name in WAITING)],
]


@contextmanager
def serving(folder: Path, *passes: Sequence[str], workers: int = 2) -> Iterator[Process]:
    """Run `brain serve` with a model that plays these passes."""
    (folder / "specialists").mkdir(exist_ok=True)
    (folder / "specialists" / "some.py").write_text(SPECIALISTS)
    arguments = ("serve", "--workers", str(workers), "--port", "0", "--model", script(folder, *passes))
    with Process(*arguments, env={"BRAIN_SPECIALISTS_FOLDER": str(folder / "specialists")}) as brain:
        yield brain


class Caller:
    """A client with one connection, and so at one worker; its turn as far as it was read."""

    def __init__(self, url: str, until: str, stack: ExitStack) -> None:
        self.client = stack.enter_context(
            httpx.Client(base_url=url, timeout=WAIT_SECONDS, trust_env=False, verify=False)
        )
        response = stack.enter_context(self.client.stream("POST", "/v1/chat/stream", json={"message": "who?"}))
        self._pieces = response.iter_text()
        self.text = ""
        while until not in self.text:
            self.text += next(self._pieces)
        result = re.search(r'"name":"who","params":{},"text":"([0-9]+) ([0-9]+)"', self.text)
        assert result is not None
        self.worker, self.spared = int(result[1]), int(result[2])

    def read_rest(self) -> None:
        self.text += "".join(self._pieces)


@contextmanager
def a_caller_each(url: str, workers: int = 2, until: str = "event: done") -> Iterator[dict[int, Caller]]:
    """A caller for each worker, by the worker's process ID."""
    found: dict[int, Caller] = {}
    with ExitStack() as stack:
        for _ in range(200):
            caller = Caller(url, until, stack)
            found.setdefault(caller.worker, caller)
            if len(found) == workers:
                break
        assert len(found) == workers
        yield found


def wait_ended(pid: int) -> None:
    """Wait until a process has ended; it may still wait for its exit code to be read."""
    state = "?"
    while state not in ("", "Z"):
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        state = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()[:1]


def test_every_worker_serves_and_streams_all_events_of_tasks_that_run_once(tmp_path: Path) -> None:
    def read_events(pieces: Iterator[str]) -> list[tuple[str, str]]:
        text = ""
        while text.count('"kind":"result"') < 4 or not text.endswith("\n\n"):
            text += next(pieces)
        return [(message.id, message.text) for message in read(text.encode())]

    with serving(tmp_path, *WHO) as brain, a_caller_each(brain.url()) as callers, ExitStack() as stack:
        assert brain.process.pid not in callers
        streams = []
        for caller in callers.values():
            caller.read_rest()
            assert caller.spared > 10_000
            assert caller.client.get("/readyz").json()["status"] == "ok"
            streams.append(stack.enter_context(caller.client.stream("GET", "/v1/tasks/events?after=0")).iter_text())
        for n in range(4):
            answer = httpx.post(
                f"{brain.url()}/v1/tasks", json={"prompt": f"Who? {n}"}, trust_env=False, timeout=WAIT_SECONDS
            )
            assert answer.status_code == 201
        first, second = map(read_events, streams)
        assert first == second
        ends = [json.loads(data)["task_id"] for _, data in first if '"state":"succeeded"' in data]
        assert len(ends) == len(set(ends)) == 4
        with httpx.Client(base_url=brain.url(), trust_env=False, timeout=WAIT_SECONDS) as client:
            assert {one["run"] for one in client.get("/v1/tasks?state=succeeded").json()["tasks"]} == {1}
            assert 'brain_tasks{state="succeeded"} 4.0' in client.get("/metrics").text


def test_the_automatic_model_is_found_once_for_all_workers() -> None:
    empty = {f"GET /api/{path}": (200, {"models": [], "version": "0.33.0"}) for path in ("version", "ps", "tags")}
    with in_thread(OllamaServer(answers=empty)) as server:
        env = {"BRAIN_MODEL_URL": server.url, "BRAIN_WORKERS": "3"}
        with Process("serve", "--model", "auto", "--port", "0", env=env) as brain:
            brain.url()
            assert "Model: builtin (" in brain.stderr
    assert server.lines == list(empty)


def test_a_killed_worker_is_replaced_and_the_other_continues(tmp_path: Path) -> None:
    with serving(tmp_path, *WHO) as brain, a_caller_each(brain.url()) as callers:
        killed, other = callers
        os.kill(killed, signal.SIGKILL)
        brain.said("replaces it")
        callers[other].read_rest()
        assert callers[other].client.get("/healthz").status_code == 200
        with a_caller_each(brain.url()) as new:
            assert other in new
            assert killed not in new
        brain.process.kill()  # without a word to the workers
        for pid in new:
            wait_ended(pid)


SLOW_START = """\
import fcntl
import os
import sys

from uvicorn.supervisors.multiprocess import Multiprocess

if "--multiprocessing-fork" in sys.orig_argv:
    with open(os.environ["START_LOCK"]) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
else:
    handle_signals, numbers = Multiprocess.handle_signals, iter(range(1, 1000))

    def look(self):
        print(f"look {next(numbers)}", file=sys.stderr, flush=True)
        handle_signals(self)

    Multiprocess.handle_signals = look
"""


def test_a_worker_may_take_any_time_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_START)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("START_LOCK", str(tmp_path / "lock"))
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with Process("serve", "--workers", "2", "--port", "0", "--model", script(tmp_path, ["Hi."])) as brain:
            brain.said("look 4")
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert httpx.get(f"{brain.url()}/healthz", trust_env=False).status_code == 200
            assert "replaces it" not in brain.stderr


@pytest.mark.parametrize(
    ("how", "workers", "everybody"),
    [
        (signal.SIGINT, 1, False),
        (signal.SIGTERM, 2, False),
        (signal.SIGINT, 2, True),  # as a terminal does it
        (signal.SIGHUP, 2, False),
    ],
)
def test_a_signal_ends_all_turns_and_processes(
    tmp_path: Path, how: signal.Signals, workers: int, everybody: bool
) -> None:
    with serving(tmp_path, *STUCK, workers=workers) as brain, ExitStack() as stack:
        callers = stack.enter_context(a_caller_each(brain.url(), workers, until="approval_required"))
        if workers == 1:
            assert list(callers) == [brain.process.pid]
            assert callers[brain.process.pid].spared > 10_000
        for pid in {brain.process.pid, *(callers if everybody else ())}:
            os.kill(pid, how)
        for caller in callers.values():
            caller.read_rest()
        code, out, err = brain.end()
    assert (code, out) == (0, "")
    assert [word for word in ("Traceback", "ERROR", "WARNING") if word in err] == [], err
    greeting = [line.split()[0] for line in err.splitlines() if not line.startswith("INFO brain: ")]
    assert (greeting[0], len(set(greeting))) == ("Brain", len(greeting))  # printed once, not by each worker
    name = "Ctrl-C (SIGINT)" if how is signal.SIGINT else how.name
    assert err.count(f"the server stopped on {name};") == 1
    for pid, caller in callers.items():
        wait_ended(pid)
        events = [(message.name, message.data) for message in read(caller.text.encode())]
        assert [kind for kind, _ in events[-2:]] == ["usage", "error"]
        assert (events[-1][1]["code"], events[-1][1]["recoverable"]) == ("shutdown", True)
        errors = sorted((data["name"], data["code"]) for kind, data in events if kind == "specialist_error")
        assert errors == sorted((name, "cancelled") for name in WAITING)


def test_a_process_that_waits_for_its_turns_closes_idle_connections(tmp_path: Path) -> None:
    """A proxy would otherwise send new turns on connections that it keeps."""
    waiting = ["SPECIALIST_REQUEST[who]"], ["SPECIALIST_REQUEST[waits]"]
    with serving(tmp_path, *waiting, workers=1) as brain, serving(tmp_path, *waiting, workers=1) as other:
        other.url()
        with ExitStack() as stack:
            caller = Caller(brain.url(), '"name":"waits"', stack)
            address = "127.0.0.1", int(brain.url().rpartition(":")[2])
            new, idle = (stack.enter_context(socket.create_connection(address, WAIT_SECONDS)) for _ in range(2))
            request, found = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b""
            idle.sendall(request)
            while b'{"status":"ok"}' not in found:
                found += idle.recv(65536)
            brain.process.send_signal(signal.SIGTERM)
            with suppress(ConnectionError):
                while True:
                    socket.create_connection(address, WAIT_SECONDS).close()
            new.sendall(request)
            assert b"\r\nconnection: close\r\n" in new.makefile("rb").read()
            with suppress(ConnectionError):
                idle.sendall(request)
                assert idle.recv(65536) == b""
            turn = re.findall(r'"turn_id":"(\w+)"', caller.text)[0]
            cancel = httpx.post(f"{other.url()}/v1/turns/{turn}/cancel", trust_env=False, timeout=WAIT_SECONDS)
            assert cancel.status_code == 202
            caller.read_rest()
            assert '"stop_reason":"cancelled"' in caller.text
        assert brain.end()[0] == 0


def test_clients_that_read_or_send_nothing_do_not_delay_the_stop(tmp_path: Path) -> None:
    with serving(tmp_path, ["a" * 4_000] * 500, workers=1) as brain, ExitStack() as stack:
        url = brain.url()
        started = httpx.post(f"{url}/v1/turns", json={"message": "hi"}, trust_env=False, timeout=WAIT_SECONDS).json()
        download = f"GET {started['events']} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        upload = "POST /v1/turns HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for request in (download, f"{upload}Content-Length: 9\r\n\r\n{{"):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            connection.sendall(request.encode())
        brain.process.send_signal(signal.SIGTERM)
        code, _, err = brain.end()
    assert (code, "Traceback" in err, "ERROR" in err) == (0, False, False)


def test_a_crash_of_the_interpreter_leaves_its_stacks(tmp_path: Path) -> None:
    with serving(tmp_path, ["SPECIALIST_REQUEST[crashes]"]) as brain:
        httpx.post(f"{brain.url()}/v1/turns", json={"message": "hi"}, trust_env=False, timeout=WAIT_SECONDS)
        brain.said("in crashes")


def test_what_cannot_be_served_is_reported_once_before_any_worker_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments in (("--model", "script:none.jsonl"), ("--model", "builtin", "--port", port)):
            with Process("serve", "--workers", "2", *arguments, cwd=tmp_path) as brain:
                code, out, err = brain.end()
            assert (code != 0, out, err.count("brain: ")) == (True, "", 1), err
