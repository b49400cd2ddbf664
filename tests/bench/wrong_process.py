"""Measure requests that reach another process than that of their turn, by real processes of `brain serve`.

    python tests/bench/wrong_process.py [NAME ...] [--before FOLDER] [--times N] [--replicas N] [--store STORE]

Names: requests, streams, slow, cost, turns (default: all). `cost` compares with the `brain` of another checkout, such
as `git worktree add FOLDER COMMIT`. All times are on the clock of this machine; the model server puts its time into
each token. In `streams`, the µs of processor time at the wrong process are those of forwarding.

The processes are two workers, which clients reach by their private sockets. With `--replicas 3`, they are replicas as
on several machines, each with its own address, port and folders: `requests`, `streams` and `slow` only. STORE is
for a PostgreSQL of Debian's package, which this script runs, or the setting (default: a SQLite file).
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tables import Table, quantile

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from postgresql_servers import run_cluster  # noqa: E402
from replicas import ADDRESSES, replica  # noqa: E402

KEY = "key-of-the-benchmark"
SPECIALIST = '''\
"""A specialist that needs an approval."""

from brain import specialist


@specialist(approval="always")
async def stopwatch(lap: str) -> str:
    """Stops the time."""
    return f"stopped {lap}"
'''
WARM_UP = 2.0
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
say = sys.stdout.write


@dataclass(frozen=True)
class Worker:
    """One process: the path of its private socket, or its host and port; and its number."""

    place: str
    pid: int

    @property
    def cpu(self) -> float:
        """Seconds of processor time."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def megabytes(self) -> float:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE / 1e6


@dataclass
class Served:
    """A server: its port, its processes, and the port of its model server."""

    port: int
    workers: list[Worker]
    model: int

    @property
    def places(self) -> Sequence["Place"]:
        """Where clients begin turns, one after the other."""
        return [self.port] if self.port else self.workers


Place = Worker | int
"""A process, or the port of all."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def model_server() -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen([sys.executable, str(HERE / "upstream.py"), str(port)])
    try:
        _wait_listening(port)
        yield port
    finally:
        process.kill()
        process.wait()


def _wait_listening(port: int) -> None:
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)


@contextmanager
def served(model: int, workers: int = 2, brain: Path | None = None, **values: str) -> Iterator[Served]:
    """Run `brain serve`, of this checkout or another one."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as folder:
        (Path(folder) / "stopwatch.py").write_text(SPECIALIST)
        clean = {key: value for key, value in os.environ.items() if not key.startswith("BRAIN_") and key != "PORT"}
        env = {
            "BRAIN_MODEL": "openai:fake",
            "BRAIN_MODEL_URL": f"http://127.0.0.1:{model}/v1",
            "BRAIN_STORE": f"sqlite:{folder}/brain.db",
            "BRAIN_SPECIALISTS_FOLDER": folder,
            "BRAIN_CONNECTIONS_PER_ADDRESS": "10000",
            "BRAIN_REST_SECONDS": "3600",
            **({"PYTHONPATH": str(brain)} if brain is not None else {}),
            **values,
        }
        command = [sys.executable, "-m", "brain", "serve", "--port", str(port), "--workers", str(workers)]
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen(command, env={**clean, **env}, stdout=log, stderr=log, cwd=brain or HERE)
        try:
            while b"Specialists:" not in Path(f"{folder}/log").read_bytes():
                if process.poll() is not None:
                    raise SystemExit(Path(f"{folder}/log").read_text())
                time.sleep(0.1)
            time.sleep(2)  # the processes see each other
            yield Served(port, _find_workers(process.pid, f"{folder}/brain.db", workers, has_sockets=not brain), model)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


@contextmanager
def replicas_served(model: int, count: int, store: str, **values: str) -> Iterator[Served]:
    """Run replicas."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp")))
        (folder / "specialists").mkdir()
        (folder / "specialists" / "stopwatch.py").write_text(SPECIALIST)
        if store == "postgresql":
            store = stack.enter_context(run_cluster()).create_database("bench")
        env = {
            "BRAIN_MODEL": "openai:fake",
            "BRAIN_MODEL_URL": f"http://127.0.0.1:{model}/v1",
            "BRAIN_STORE": store or f"sqlite:{folder}/brain.db",
            "BRAIN_KEYS": f"{KEY}:ann",
            "BRAIN_TURNS_A_MINUTE": "0",
            "BRAIN_TURNS_AT_ONCE": "0",
            "BRAIN_SPECIALISTS_FOLDER": str(folder / "specialists"),
            "BRAIN_CONNECTIONS_PER_ADDRESS": "10000",
            "BRAIN_REST_SECONDS": "3600",
            **values,
        }
        running = [stack.enter_context(replica(folder, number, env)) for number in range(count)]
        workers = [Worker(one.url().removeprefix("http://"), one.process.pid) for one in running]
        time.sleep(2)  # the processes see each other
        yield Served(0, workers, model)
        for one in running:
            one.process.send_signal(signal.SIGTERM)
        for one in running:
            one.process.wait()


def _find_workers(server: int, store: str, count: int, *, has_sockets: bool) -> list[Worker]:
    found = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(server)], capture_output=True, text=True).stdout
    pids = [int(line.split()[0]) for line in found.splitlines() if "spawn_main" in line] or [server]
    if not has_sockets:
        return [Worker("", pid) for pid in pids]
    with sqlite3.connect(store) as connection:
        paths = [row[0].removeprefix("unix:") for row in connection.execute("SELECT address FROM process")]
    assert len(paths) == len(pids) == count, (paths, pids)
    listening = subprocess.run(["ss", "-xlpH"], capture_output=True, text=True).stdout
    owners = {path: int(pid) for path, pid in re.findall(r" (/\S+\.sock) .*?pid=(\d+)", listening)}
    return [Worker(path, owners.get(path, pid)) for path, pid in zip(paths, pids, strict=True)]


# Requests


async def connect(at: Place, limit: int = 1 << 22) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(at, int):
        return await asyncio.open_connection("127.0.0.1", at, limit=limit)
    if at.place.startswith("/"):
        return await asyncio.open_unix_connection(at.place, limit=limit)
    host, _, port = at.place.rpartition(":")
    return await asyncio.open_connection(host, int(port), limit=limit)


@asynccontextmanager
async def opened(
    at: Place, method: str, path: str, body: Any = None, **headers: str
) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
    """The status and the body of a response, by a connection of its own."""
    reader, writer = await connect(at)
    data = b"" if body is None else json.dumps(body).encode()
    sent = {"host": "localhost", "authorization": f"Bearer {KEY}", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(data)}"]
    writer.write("\r\n".join([*lines, "", ""]).encode() + data)
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        yield int(head.split(b" ", 2)[1]), reader
    finally:
        writer.close()


async def fetch(at: Place, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    async with opened(at, method, path, body, connection="close", **headers) as (status, reader):
        data = await reader.read()
        return status, json.loads(data) if data[:1] == b"{" else data


async def begin(worker: Place, play: str, **more: object) -> str:
    status, body = await fetch(worker, "POST", "/v1/turns", {"message": f"play:{play}", **more})
    assert status == 201, body
    turn_id: str = body["turn_id"]
    return turn_id


async def until(reader: asyncio.StreamReader, text: bytes) -> bytes:
    """Read lines until one contains the text; return it, or nothing at the end."""
    while line := await reader.readline():
        if text in line:
            return line
    return b""


async def closed_at(model: int, label: str) -> float:
    """Wait until the connection of a turn to the model server is closed; return that time."""
    while True:
        for what, found, at in await _log(model):
            if (what, found) == ("closed", label):
                return at / 1e9
        await asyncio.sleep(0.01)


async def _log(model: int) -> list[tuple[str, str, int]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", model, limit=1 << 22)
    writer.write(b"GET /log HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].split(b"\r")[0])
    found: list[tuple[str, str, int]] = json.loads(await reader.readexactly(length))
    writer.close()
    return found


# Kinds of requests: each returns the seconds that it took, and raises if its result is wrong


async def stop(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    """The time until the connection to the model server is closed."""
    turn = await begin(owner, f"100000:50:end:{label}")
    async with opened(asked, "GET", f"/v1/turns/{turn}/events") as (_, reader):
        assert await until(reader, b"token")
        began = time.monotonic()
        status, body = await fetch(asked, "POST", f"/v1/turns/{turn}/cancel", {})
        assert status == 202, body
        assert b"cancelled" in await until(reader, b"stop_reason")
    return await closed_at(server.model, label) - began


async def waiting(owner: Worker, asked: Worker, label: str) -> tuple[str, str]:
    turn = await begin(owner, f"1:0:call:{label}")
    async with opened(asked, "GET", f"/v1/turns/{turn}/events") as (_, reader):
        asks = await until(reader, b'"call_id"')
        return turn, json.loads(asks[6:])["call_id"]


async def approve(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    """The time until the event of the call's result."""
    turn, call = await waiting(owner, asked, label)
    async with opened(asked, "GET", f"/v1/turns/{turn}/events") as (_, reader):
        assert await until(reader, b"approval_required")
        began = time.monotonic()
        status, body = await fetch(asked, "POST", f"/v1/turns/{turn}/approvals/{call}", {"approve": True})
        assert status == 200, body
        assert await until(reader, b"specialist_result")
        seconds = time.monotonic() - began
        assert b'"complete"' in await until(reader, b"stop_reason")
    return seconds


async def steer(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    turn, _ = await waiting(owner, asked, label)
    began = time.monotonic()
    status, body = await fetch(asked, "POST", f"/v1/turns/{turn}/steer", {"message": "hurry"})
    seconds = time.monotonic() - began
    assert status == 202, body
    await fetch(owner, "POST", f"/v1/turns/{turn}/cancel", {})
    return seconds


async def join(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    """The time until the first event of a turn with the same request ID."""
    turn = await begin(owner, f"100000:50:end:{label}", request_id=label)
    began = time.monotonic()
    body = {"message": "other", "request_id": label}
    async with opened(asked, "POST", "/v1/chat/stream", body) as (status, reader):
        start = await until(reader, b'"turn_id"')
        seconds = time.monotonic() - began
        assert (status, turn.encode() in start) == (200, True), start
    await fetch(owner, "POST", f"/v1/turns/{turn}/cancel", {})
    return seconds


async def resume(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    turn, _ = await waiting(owner, asked, label)
    began = time.monotonic()
    headers = {"last-event-id": f"{turn}.1"}
    async with opened(asked, "GET", "/v1/chat/stream", None, **headers) as (status, reader):
        found = await until(reader, f"id: {turn}.2\n".encode())
        seconds = time.monotonic() - began
        assert (status, bool(found)) == (200, True)
    await fetch(owner, "POST", f"/v1/turns/{turn}/cancel", {})
    return seconds


async def explain(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    turn, _ = await waiting(owner, asked, label)
    began = time.monotonic()
    status, body = await fetch(asked, "GET", f"/v1/turns/{turn}")
    seconds = time.monotonic() - began
    assert (status, body["state"]) == (200, "waiting")
    await fetch(owner, "POST", f"/v1/turns/{turn}/cancel", {})
    return seconds


async def second(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    """The time until the 409 of a second message."""
    turn, _ = await waiting(owner, asked, label)
    _, report = await fetch(owner, "GET", f"/v1/turns/{turn}")
    began = time.monotonic()
    body = {"message": "x", "conversation_id": report["conversation_id"]}
    status, _ = await fetch(asked, "POST", "/v1/turns", body)
    seconds = time.monotonic() - began
    assert status == 409
    await fetch(owner, "POST", f"/v1/turns/{turn}/cancel", {})
    return seconds


async def barge_in(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    turn, _ = await waiting(owner, asked, label)
    _, report = await fetch(owner, "GET", f"/v1/turns/{turn}")
    began = time.monotonic()
    body = {"message": "x", "conversation_id": report["conversation_id"], "barge_in": True}
    status, found = await fetch(asked, "POST", "/v1/turns", body)
    seconds = time.monotonic() - began
    assert status == 201, found
    return seconds


async def delete(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    turn, _ = await waiting(owner, asked, label)
    _, report = await fetch(owner, "GET", f"/v1/turns/{turn}")
    began = time.monotonic()
    status, found = await fetch(asked, "DELETE", f"/v1/conversations/{report['conversation_id']}")
    seconds = time.monotonic() - began
    assert status == 204, found
    return seconds


async def expired(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    """The time until the 404 of a turn that the other process does not have."""
    process = (await begin(owner, f"1:0:end:{label}"))[1:9]
    began = time.monotonic()
    status, _ = await fetch(asked, "GET", f"/v1/turns/t{process}0123456789abcdef")
    seconds = time.monotonic() - began
    assert status == 404
    return seconds


# The same on other wires


def chat_body(label: str, message: str, approval: str = "") -> dict[str, Any]:
    """A body of the AI SDK, with an approved call if there is one."""
    messages: list[dict[str, Any]] = [{"id": "u", "role": "user", "parts": [{"type": "text", "text": message}]}]
    if approval:
        call = {"type": "dynamic-tool", "toolName": "stopwatch", "state": "approval-responded", "input": {}}
        part = {**call, "toolCallId": approval, "approval": {"id": approval, "approved": True}}
        messages.append({"id": "a", "role": "assistant", "parts": [part]})
    return {"id": f"chat-{label}", "messages": messages, "sdk_version": 6, "resumable": True}


async def cancel_newest(owner: Worker, asked: Worker, label: str) -> None:
    """Stop the newest turn of a conversation."""
    _, shown = await fetch(owner, "GET", f"/v1/conversations/chat-{label}")
    turn = shown["messages"][-1]["id"].replace("m", "t", 1)
    status, found = await fetch(asked, "POST", f"/v1/turns/{turn}/cancel", {})
    assert status == 202, found


async def ai_sdk_resume(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    """The time until the first text."""
    body = chat_body(label, f"play:100000:50:end:{label}")
    async with opened(owner, "POST", "/ai-sdk/chat", body) as (_, reader):
        assert await until(reader, b"text-delta")
    began = time.monotonic()
    async with opened(asked, "GET", f"/ai-sdk/chat/chat-{label}/stream") as (status, reader):
        assert (status, bool(await until(reader, b"text-delta"))) == (200, True)
        seconds = time.monotonic() - began
    await cancel_newest(owner, owner, label)
    return seconds


async def ai_sdk_approve(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    """The time until the result of the call."""
    async with opened(owner, "POST", "/ai-sdk/chat", chat_body(label, f"play:1:0:call:{label}")) as (_, reader):
        asks = json.loads((await until(reader, b'"approvalId"'))[6:])
        assert await until(reader, b"[DONE]")
    began = time.monotonic()
    body = chat_body(label, f"play:1:0:call:{label}", asks["approvalId"])
    async with opened(asked, "POST", "/ai-sdk/chat", body) as (status, reader):
        assert (status, bool(await until(reader, b"tool-output-available"))) == (200, True)
        seconds = time.monotonic() - began
        assert await until(reader, b"[DONE]")
    return seconds


def run_body(label: str, *answers: dict[str, Any]) -> dict[str, Any]:
    messages = [{"id": "m", "role": "user", "content": f"play:1:0:call:{label}"}]
    return {"threadId": f"chat-{label}", "runId": label, "messages": messages, "resume": [*answers]}


async def ag_ui_approve(server: Served, owner: Worker, asked: Worker, label: str) -> float:
    """The time until the result of the call."""
    async with opened(owner, "POST", "/ag-ui/run", run_body(label)) as (_, reader):
        end = json.loads((await until(reader, b"RUN_FINISHED"))[6:])
    (interrupt,) = end["outcome"]["interrupts"]
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    began = time.monotonic()
    async with opened(asked, "POST", "/ag-ui/run", run_body(label, answer)) as (status, reader):
        assert (status, bool(await until(reader, b"TOOL_CALL_RESULT"))) == (200, True)
        seconds = time.monotonic() - began
        assert await until(reader, b"RUN_FINISHED")
    return seconds


WIRES: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "openai": (
        "/v1/chat/completions",
        lambda text: {"model": "brain", "stream": True, "messages": [{"role": "user", "content": text}]},
    ),
    "ollama": ("/api/chat", lambda text: {"model": "brain", "messages": [{"role": "user", "content": text}]}),
    "generate": ("/api/generate", lambda text: {"model": "brain", "prompt": text}),
}


def stop_on(wire: str) -> "Kind":
    """The time until the connection to the model server is closed, with that of finding the turn."""
    path, body = WIRES[wire]

    async def stop_on_wire(server: Served, owner: Worker, asked: Worker, label: str) -> float:
        headers = {"x-conversation-id": f"chat-{label}", "connection": "close"}
        async with opened(owner, "POST", path, body(f"play:100000:50:end:{label}"), **headers) as (_, reader):
            assert await until(reader, b" @")
            began = time.monotonic()
            await cancel_newest(owner, asked, label)
            await reader.read()
        return await closed_at(server.model, label) - began

    stop_on_wire.__name__ = f"stop_{wire}"
    return stop_on_wire


def second_on(wire: str) -> "Kind":
    """The time until the 409 of a second message."""
    path, body = WIRES[wire]

    async def second_on_wire(server: Served, owner: Worker, asked: Worker, label: str) -> float:
        turn = await begin(owner, f"1:0:call:{label}", conversation_id=f"chat-{label}")
        began = time.monotonic()
        status, found = await fetch(asked, "POST", path, body("x"), **{"x-conversation-id": f"chat-{label}"})
        seconds = time.monotonic() - began
        assert status == 409, found
        await fetch(owner, "POST", f"/v1/turns/{turn}/cancel", {})
        return seconds

    second_on_wire.__name__ = f"second_{wire}"
    return second_on_wire


Kind = Callable[[Served, Worker, Worker, str], Awaitable[float]]
KINDS: tuple[Kind, ...] = (
    *(stop, approve, steer, join, resume, explain, second, barge_in, delete, expired),
    *(ai_sdk_resume, ai_sdk_approve, ag_ui_approve),
    *(stop_on(wire) for wire in WIRES),
    *(second_on(wire) for wire in WIRES),
)


async def measure_requests(server: Served, times: int) -> None:
    places = len(server.workers)
    table = Table("Requests, ms", ("right", "wrong", "right p99", "wrong p99", "failed at the wrong one"), "request")
    for kind in KINDS:
        took: dict[str, list[float]] = {"right": [], "wrong": []}
        failed = 0
        for number in range(times):
            owner = server.workers[number % places]
            rest = server.workers[(number + 1 + number // places % (places - 1)) % places]
            for place, asked in (("right", owner), ("wrong", rest)):
                try:
                    async with asyncio.timeout(15):
                        seconds = await kind(server, owner, asked, f"{kind.__name__}{number}{place}")
                    took[place].append(seconds * 1e3)
                except (AssertionError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                    failed += place == "wrong"
                    say(f"{kind.__name__} at the {place} process: {error!r}\n")
        for place, found in took.items():
            table.add(kind.__name__, place, quantile(found, 0.5))
            table.add(kind.__name__, f"{place} p99", quantile(found, 0.99))
        table.add(kind.__name__, "failed at the wrong one", failed)
    say(f"{times} requests of each kind\n\n{table}\n")


# Streams


async def follow(asked: Worker, turn: str, begins: float, ends: float) -> list[float]:
    """Return the latency of each token that arrives between two times, in ms."""
    found: list[float] = []
    async with opened(asked, "GET", f"/v1/turns/{turn}/events") as (_, reader):
        while (now := time.monotonic()) < ends:
            line = await reader.readline()
            if not line:
                break
            if line.startswith(b'data: {"text":" @') and now >= begins:
                found.append((time.monotonic_ns() - int(line[17:33])) / 1e6)
    return found


async def measure_stream(
    server: Served, asked: Worker, streams: int, rate: int, seconds: float
) -> tuple[list[float], float]:
    """Latencies of streams whose turns all run in the first worker, and µs per token of the asked one."""
    owner = server.workers[0]
    turns = [await begin(owner, f"1000000:{rate}:end:") for _ in range(streams)]
    begins = time.monotonic() + WARM_UP
    following = asyncio.gather(*(follow(asked, turn, begins, begins + seconds) for turn in turns))
    await asyncio.sleep(begins - time.monotonic())
    before = asked.cpu
    await asyncio.sleep(seconds)
    used = asked.cpu - before
    latencies = [one for some in await following for one in some]
    for turn in turns:
        await fetch(owner, "POST", f"/v1/turns/{turn}/cancel", {})
    await asyncio.sleep(1)
    return latencies, used / len(latencies) * 1e6


async def measure_streams(server: Served, rounds: int = 3) -> None:
    columns = ("right p50", "right p99", "wrong p50", "wrong p99", "right µs", "wrong µs", "share at the wrong one")
    table = Table("Latency of events, ms, and µs of processor time per token", columns, "streams")
    for streams, rate, seconds in ((1, 50, 6.0), (100, 50, 6.0), (1000, 4, 8.0)):
        row = f"{streams} of {rate} tokens/s"
        for _ in range(rounds if streams < 1000 else 1):
            for asked, place in enumerate(("right", "wrong")):
                found, cost = await measure_stream(server, server.workers[asked], streams, rate, seconds)
                table.add(row, f"{place} p50", quantile(found, 0.5))
                table.add(row, f"{place} p99", quantile(found, 0.99))
                table.add(row, f"{place} µs", cost)
            table.add(row, columns[-1], len(found) / (streams * rate * seconds))
    say(f"{table}\n")


async def measure_slow(server: Served) -> None:
    """A client at the wrong process that reads nothing of a turn that writes as fast as it can."""
    table = Table("A client that reads nothing", ("MB at the owner", "MB at the other", "seconds until dropped"), "")
    owner, other, *_ = server.workers
    before = owner.megabytes, other.megabytes
    turn = await begin(owner, "1000000:5000:end:slow")
    reader, writer = await connect(other, limit=1 << 10)
    head = f"GET /v1/turns/{turn}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    began, most = time.monotonic(), [0.0, 0.0]
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    dropped = float("inf")
    while time.monotonic() < began + 60:
        await asyncio.sleep(0.5)
        most = [max(most[0], owner.megabytes - before[0]), max(most[1], other.megabytes - before[1])]
        if not _is_connected(other.place):
            dropped = time.monotonic() - began
            break
    await fetch(owner, "POST", f"/v1/turns/{turn}/cancel", {})
    writer.close()
    for column, value in zip(table.columns, (*most, dropped), strict=True):
        table.add("most", column, value)
    say(f"{table}\n")


def _is_connected(place: str) -> bool:
    family = "-xH" if place.startswith("/") else "-tH"
    found = subprocess.run(["ss", family, "state", "connected", "src", place], capture_output=True, text=True).stdout
    return bool(found.strip())


# Cost and turns


async def cost(server: Served, streams: int = 100, rate: int = 50, seconds: float = 12.0) -> tuple[float]:
    """Return the µs of processor time of the workers per token that clients read where the turn runs."""

    async def read_all() -> int:
        count = 0
        body = {"message": f"play:1000000:{rate}:end:"}
        async with opened(server.port, "POST", "/v1/chat/stream", body) as (_, reader):
            while time.monotonic() < ends:
                count += (await reader.readline()).startswith(b'data: {"text"') and time.monotonic() >= begins
        return count

    begins = time.monotonic() + WARM_UP
    ends = begins + seconds
    reading = [asyncio.create_task(read_all()) for _ in range(streams)]
    await asyncio.sleep(WARM_UP)
    before = sum(worker.cpu for worker in server.workers)
    await asyncio.sleep(seconds - 0.5)
    used = sum(worker.cpu for worker in server.workers) - before
    tokens = sum(await asyncio.gather(*reading)) * (seconds - 0.5) / seconds
    return (used / tokens * 1e6,)


async def turns_per_second(server: Served, clients: int = 32, seconds: float = 6.0) -> tuple[float, float]:
    """Return the number of turns of one token, and the ms of processor time of each in the workers.

    On two cores, the clients and the model server take much of what a second worker needs.
    """
    count, places = 0, itertools.cycle(server.places)

    async def run() -> None:
        nonlocal count
        while time.monotonic() < ends:
            body = {"message": "play:1:0:end:"}
            async with opened(next(places), "POST", "/v1/chat/stream", body) as (status, reader):
                found = await until(reader, b"stop_reason")
            count += status == 200 and b'"complete"' in found and time.monotonic() >= begins

    begins = time.monotonic() + 1
    ends = begins + seconds
    running = asyncio.gather(*(run() for _ in range(clients)))
    await asyncio.sleep(1)
    before = sum(worker.cpu for worker in server.workers)
    await running
    return count / seconds, (sum(worker.cpu for worker in server.workers) - before) / count * 1e3


def compare(
    table: Table,
    measure: Callable[[Served], Coroutine[Any, Any, Sequence[float]]],
    rows: dict[str, Callable[[int], AbstractContextManager[Served]]],
) -> None:
    with model_server() as model:
        for _ in range(3):
            for row, run in rows.items():
                with run(model) as server:
                    for column, value in zip(table.columns, asyncio.run(measure(server)), strict=True):
                        table.add(row, column, value)
    say(f"{table}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["requests", "streams", "slow", "cost", "turns"])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--replicas", type=int, default=0, choices=(0, *range(2, len(ADDRESSES) + 1)))
    parser.add_argument("--store", default="")
    arguments = parser.parse_args()
    count, store = arguments.replicas, arguments.store
    run = partial(replicas_served, count=count, store=store) if count else served
    say(f"load {os.getloadavg()[0]:.1f}\n")
    for name in arguments.names:
        if name == "cost":
            rows: dict[str, Any] = {"now": served}
            if arguments.before is not None:
                rows["before"] = partial(served, brain=arguments.before.resolve())
            compare(Table("Processor time per token, µs", ("two workers",)), cost, rows)
        elif name == "turns":
            rows = {"one worker": partial(served, workers=1), "two workers": served}
            rows = {f"{count} replicas": run} if count else rows
            compare(
                Table("Turns of one token", ("turns per second", "ms of processor time per turn")),
                turns_per_second,
                rows,
            )
        else:
            heartbeat = "2" if name == "slow" else "15"
            with ExitStack() as stack:
                model = stack.enter_context(model_server())
                server = stack.enter_context(run(model, BRAIN_HEARTBEAT_SECONDS=heartbeat))
                if name == "requests":
                    asyncio.run(measure_requests(server, arguments.times))
                elif name == "streams":
                    asyncio.run(measure_streams(server))
                else:
                    asyncio.run(measure_slow(server))
        say(f"load {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main()
