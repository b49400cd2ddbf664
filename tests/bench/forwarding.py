"""Measure streams that another process forwards, next to streams that clients read at the owner of their turns.

    python tests/bench/forwarding.py [STREAMS] [TOKENS_PER_SECOND] [SECONDS]

Three processes: the owner, with Brain's application and a model that puts the time into each token; a forwarder; and
this one, which reads. CPU time is that of the process per token. Latency is from the model to the reader.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvicorn

sys.path.insert(0, str(Path(__file__).parent.parent))

from peers import Peers, send_elsewhere

from brain.messages import Chunk, Finish
from brain.models.model import Model, PassRequest
from brain.plugins.registry import Registry
from brain.server.app import create_app
from brain.server.uvicorn_protocol import Protocol
from brain.settings import read

WARM_UP = 2.0
say = sys.stdout.write


class Paced(Model):
    """Writes the time as a token, so often per second."""

    is_language_model = False

    def __init__(self, rate: float, seconds: float) -> None:
        super().__init__("builtin")
        self._rate = rate
        self._seconds = seconds

    async def stream(self, request: PassRequest) -> AsyncGenerator[Chunk, None]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(int(self._rate * self._seconds)):
            await asyncio.sleep(began + number / self._rate - loop.time())
            yield f" {time.monotonic_ns()}"
        yield Finish("stop")


class Server(uvicorn.Server):
    """Brain on a Unix socket; it reports its address and, for each message, its CPU time."""

    def __init__(self, path: str, pipe: Connection, owner: str, paced: Model) -> None:
        app = create_app(read({"BRAIN_MODEL": "builtin", "BRAIN_STORE": "memory:"}), Registry())
        super().__init__(uvicorn.Config(app, uds=path, http=Protocol, log_level="critical", ws="none", loop="uvloop"))
        self._app, self._pipe, self._owner, self._paced = app, pipe, owner, paced

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        engine = self._app.state.brain.engine
        engine.runs.processes = Peers(str(os.getpid()), time.time())
        engine.runs.processes.clock = time.time
        engine.models = [self._paced]
        if self._owner:
            send_elsewhere(engine.runs, f"unix:{self._owner}")
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._report)
        self._pipe.send("ready")

    def _report(self) -> None:
        self._pipe.recv()
        self._pipe.send(time.process_time())


def serve(path: str, pipe: Connection, owner: str, rate: float, seconds: float) -> None:
    Server(path, pipe, owner, Paced(rate, seconds)).run()


async def request(path: str, head: str, body: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
    length = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
    writer.write(f"{head} HTTP/1.1\r\nhost: localhost\r\n{length}\r\n".encode() + body)
    return reader, writer


async def begin(path: str) -> str:
    """Begin a turn at the owner; return its ID."""
    reader, writer = await request(path, "POST /v1/turns", b'{"message":"go"}')
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    body = json.loads(await reader.readexactly(length))
    writer.close()
    turn_id: str = body["turn_id"]
    return turn_id


async def follow(path: str, turn_id: str, until: float) -> list[float]:
    """Read the events of a turn until this time; return the latency of each token, in milliseconds."""
    reader, writer = await request(path, f"GET /v1/turns/{turn_id}/events")
    latencies: list[float] = []
    while time.monotonic() < until:
        line = await reader.readline()
        if line.startswith(b'data: {"text":" '):
            sent = int(line[15:].partition(b'"')[0])
            latencies.append((time.monotonic_ns() - sent) / 1e6)
        elif not line:
            break
    writer.close()
    return latencies


async def measure(owner: str, reads_at: str, streams: int, seconds: float, pipes: list[Connection]) -> str:
    turns = await asyncio.gather(*(begin(owner) for _ in range(streams)))
    until = time.monotonic() + WARM_UP + seconds
    following = [asyncio.create_task(follow(reads_at, turn, until)) for turn in turns]
    await asyncio.sleep(WARM_UP)
    before = [_cpu(pipe) for pipe in pipes]
    counts = await asyncio.gather(*following)
    used = [_cpu(pipe) - one for pipe, one in zip(pipes, before, strict=True)]
    latencies = sorted(one for count in counts for one in count[int(len(count) * WARM_UP / (WARM_UP + seconds)) :])
    costs = " / ".join(f"{1e6 * one / len(latencies):.1f}" for one in used)
    p50, p99 = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
    return f"{len(latencies)} tokens; {costs} µs per token; latency p50 {p50:.2f}, p99 {p99:.2f} ms\n"


def _cpu(pipe: Connection) -> float:
    pipe.send("cpu")
    seconds: float = pipe.recv()
    return seconds


def main(streams: int = 100, rate: float = 50.0, seconds: float = 6.0) -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="brain-", dir="/tmp") as folder:
        owner, forwarder = f"{folder}/owner", f"{folder}/forwarder"
        pipes: list[Connection] = []
        processes = []
        for path, to in ((owner, ""), (forwarder, owner)):
            ours, theirs = context.Pipe()
            length = WARM_UP + seconds + 5
            processes.append(context.Process(target=serve, args=(path, theirs, to, rate, length), daemon=True))
            processes[-1].start()
            ours.recv()
            pipes.append(ours)
        try:
            say(f"{streams} streams of {rate:.0f} tokens/s; CPU of owner / forwarder; load {os.getloadavg()[0]:.1f}\n")
            for name, path in (("at the owner", owner), ("forwarded", forwarder)):
                say(f"{name:>13}: {asyncio.run(measure(owner, path, streams, seconds, pipes))}")
                time.sleep(8)  # the turns end
        finally:
            for process in processes:
                process.kill()


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, float, float), sys.argv[1:], strict=False)))
