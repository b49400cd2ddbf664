"""Measure the first second: `python tests/bench/start.py`. Needs Linux and two cores.

CPU of commands, the first answer after `brain serve`, the latency of streams in a server's first ten seconds, and how
long other work waits while Brain learns the specialists of others.
"""

import asyncio
import gc
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
from compare import CommandCPU, measure_starts
from tables import quantile, shown
from targets import Bench
from whole import RATE, paced

from brain import Registry, settings
from brain.assist.router import find_router

ROUNDS = 5
STRANGERS = Path(__file__).parent / "strangers"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as folder:
        for name, values in measure(Path(folder)):
            sys.stdout.write(f"| {name} | {shown(values)} |\n")
            sys.stdout.flush()
    return 0


def measure(folder: Path) -> Iterator[tuple[str, list[float]]]:
    """Yield each measurement with its values."""
    starts = measure_starts(folder, ROUNDS)
    reference = next(iter(starts.values()))[1]
    yield "CPU of a program that imports Starlette and httpx, ms", [1000 * one for one in reference]
    for name, (seconds, _) in starts.items():
        yield f"CPU of {name}, ms", [1000 * one for one in seconds]
    served = [serve(CommandCPU(folder).environ) for _ in range(ROUNDS)]
    yield "first token after `brain serve` is ready, ms", [1000 * seconds for seconds, _ in served]
    yield "its CPU, ms", [1000 * cpu for _, cpu in served]
    early, later = zip(*(stream() for _ in range(3)), strict=True)
    what = f"p99 latency of 20 streams of {RATE} tokens/s, ms:"
    yield f"{what} in the first ten seconds of the server", [*early]
    yield f"{what} later", [*later]
    waits, cpu = asyncio.run(learn())
    yield "CPU of the server's process to learn six specialists of others, ms", [1000 * cpu]
    yield "delay of other work during this, p50, ms", [1000 * quantile(waits, 0.5)]
    yield "the same, p99, ms", [1000 * quantile(waits, 0.99)]


def serve(environ: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds from the first message to its first token."""
    command = [sys.executable, "-P", "-m", "brain", "serve", "--port", "0"]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = next(found[0] for line in server.stderr if (found := re.search(r"http://[\w.:]+", line)))
        try:
            while not _is_ready(url):
                time.sleep(0.05)
            began, before = time.perf_counter(), _cpu_of(server.pid)
            body = {"message": "hello"}
            with httpx.stream("POST", f"{url}/v1/chat/stream", json=body, timeout=60) as response:
                next(line for line in response.iter_lines() if line == "event: token")
                return time.perf_counter() - began, _cpu_of(server.pid) - before
        finally:
            server.terminate()


def stream() -> tuple[float, float]:
    """Return the p99 latency of the tokens of streams that start with a server, and of later ones, in milliseconds."""
    with Bench() as bench, bench.fresh("brain", settings={"BRAIN_SPECIALISTS_FOLDER": str(STRANGERS)}) as target:
        early, later = (paced(target, 20, 9)[1] for _ in range(2))
    return quantile(early.late, 0.99) / 1e6, quantile(later.late, 0.99) / 1e6


async def learn() -> tuple[list[float], float]:
    """Return how long a task that wakes up each millisecond waits during this, and the CPU time, in seconds."""
    options = settings.read({"BRAIN_MODEL": "builtin", "BRAIN_SPECIALISTS_FOLDER": str(STRANGERS)})
    specialists = tuple(Registry(options).discover().usable())
    gc.collect()
    gc.freeze()  # as `brain serve` does
    waits, began = [], time.process_time()
    task = asyncio.create_task(find_router(specialists))
    while not task.done():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        waits.append(time.perf_counter() - before - 0.001)
    return waits, time.process_time() - began


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.ConnectError:
        return False


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    sys.exit(main())
