"""A server that is told to stop: every turn gets its end, every reader is told, and the process is gone in time."""

import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from eventsource import Message, read
from serving import Process, script

from brain.server.event_stream import SHUTDOWN_SECONDS

SPECIALISTS = '''
import asyncio, time
from brain import specialist

@specialist(timeout=60)
async def waits() -> str:
    """Waits."""
    await asyncio.sleep(60)
    return ""

@specialist(timeout=60)
async def deaf() -> str:
    """Does not listen."""
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

@specialist(timeout=60)
def blocks() -> str:
    """Blocks a thread."""
    time.sleep(60)
    return ""

@specialist(approval="always")
async def letter() -> str:
    """Sends a letter."""
    return "Sent."
'''
CRASHES = '''
import os, signal
from brain import specialist

@specialist
async def crashes() -> str:
    """Kills the process the way a fault in C code does."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""
'''
CALLS = ("waits", "deaf", "blocks", "letter")


class Reader(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, url: str, method: str, address: str, **options: Any) -> None:
        super().__init__()
        self._url, self._method, self._address, self._options = url, method, address, options
        self.begun = threading.Event()
        self.told: list[Message] = []
        self.start()

    def run(self) -> None:
        found = b""
        with (
            httpx.Client(base_url=self._url, timeout=20, trust_env=False) as client,
            client.stream(self._method, self._address, **self._options) as response,
        ):
            for piece in response.iter_raw():
                found += piece
                self.begun.set()
        self.told = read(found)


@contextmanager
def brain(tmp_path: Path, *passes: list[str] | Mapping[str, object]) -> Iterator[Process]:
    (tmp_path / "some.py").write_text(SPECIALISTS)
    env = {"BRAIN_SPECIALISTS_FOLDER": str(tmp_path)}
    with Process("serve", "--port", "0", "--model", script(tmp_path, *passes), env=env) as process:
        yield process


def begin(url: str) -> str:
    answer = httpx.post(f"{url}/v1/turns", json={"message": "hi"}, trust_env=False)
    assert answer.status_code == 201
    return str(answer.headers["location"])


def is_told(told: list[Message], *calls: str) -> bool:
    """Whether a stream ends as one does whose server leaves, with an end for each call."""
    assert [message.type for message in told[-2:]] == ["usage", "error"]
    error = json.loads(told[-1].data)
    assert (error["code"], error["recoverable"]) == ("shutdown", True)
    ended = [json.loads(message.data) for message in told if message.type == "specialist_error"]
    assert sorted((one["name"], one["code"]) for one in ended) == sorted((name, "cancelled") for name in calls)
    return True


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_every_stop_is_logged_with_its_reason_and_duration(how: signal.Signals, workers: str) -> None:
    with Process("serve", "--port", "0", "--model", "builtin", "--workers", workers) as process:
        process.url()
        process.process.send_signal(how)
        code, _, err = process.end()
    assert code == 0
    begun = re.findall(r"^INFO brain: the server stops on (.*);", err, re.M)
    ended = re.findall(
        r"^INFO brain: the server stopped on (.*); the stop took [0-9.]+ s, the run [0-9.]+ s$", err, re.M
    )
    assert begun == ended == ["Ctrl-C (SIGINT)" if how is signal.SIGINT else how.name]
    stopped = re.findall(r"^INFO brain: worker [0-9]+ stopped on SIGTERM; the stop took", err, re.M)
    assert len(stopped) == (2 if workers == "2" else 0)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_crash_of_the_interpreter_leaves_its_stacks(tmp_path: Path, workers: str) -> None:
    (tmp_path / "some.py").write_text(CRASHES)
    env = {"BRAIN_SPECIALISTS_FOLDER": str(tmp_path)}
    model = script(tmp_path, ["SPECIALIST_REQUEST[crashes]"])
    with Process("serve", "--port", "0", "--model", model, "--workers", workers, env=env) as process:
        begin(process.url())
        err = process.said("in crashes")
    assert "Fatal Python error: Segmentation fault" in err


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_all_turns_end_and_all_their_readers_are_told(tmp_path: Path, how: signal.Signals) -> None:
    calls = [f"SPECIALIST_REQUEST[{name}]" for name in CALLS]
    with brain(tmp_path, ["So far. ", *calls]) as process:
        url = process.url()
        detached = [begin(url) for _ in range(5)]  # four of them with nobody who reads
        readers = [
            Reader(url, "POST", "/v1/chat/stream", json={"message": "hi"}),
            Reader(url, "GET", "/v1/chat/stream", params={"message": "hi"}),
            *(Reader(url, "GET", f"{detached[0]}/events") for _ in range(5)),
        ]
        for reader in readers:
            assert reader.begun.wait(5)
        waits = {call["name"] for call in httpx.get(f"{url}{detached[1]}", trust_env=False).json()["calls"]}
        assert waits == set(CALLS)
        began = time.monotonic()
        process.process.send_signal(how)
        for reader in readers:
            reader.join(10)
        code, out, err = process.end()
    assert time.monotonic() - began < 2
    assert [is_told(reader.told, *CALLS) for reader in readers] == [True] * 7
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert "ERROR" not in err
    assert err.count(": shutdown, native") == 7


def test_clients_that_take_nothing_hold_nothing_up(tmp_path: Path) -> None:
    with brain(tmp_path, ["a" * 4_000] * 5_000) as process:
        url = process.url()
        port = int(url.rpartition(":")[2])
        connections = []
        for address in ("/v1/chat/stream?message=hi", *(f"{begin(url)}/events" for _ in range(3))):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
            connection.connect(("127.0.0.1", port))
            connection.sendall(f"GET {address} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            connections.append(connection)
        time.sleep(0.5)
        began = time.monotonic()
        process.process.send_signal(signal.SIGTERM)
        code, _, err = process.end()
        for connection in connections:
            connection.close()
    assert time.monotonic() - began < SHUTDOWN_SECONDS
    assert code == 0
    assert "Traceback" not in err
    assert "ERROR" not in err
