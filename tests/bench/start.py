"""Measure the first second: `python tests/bench/start.py`. Linux only.

CPU of `brain ask hello`, of the first answer after `brain serve`, and how long other work waits while the router learns
the specialists of others.
"""

import asyncio
import gc
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx

from brain import settings
from brain.assist.router import find_router
from brain.plugins.registry import Registry

ROUNDS = 5
STRANGERS = Path(__file__).parent / "strangers"
BRAIN = (sys.executable, "-P", "-m", "brain")
ENVIRON = {**os.environ, "BRAIN_STORE": "memory:", "BRAIN_MODEL": "builtin", "BRAIN_SPECIALISTS_FOLDER": ""}
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    asked = sorted(ask() for _ in range(ROUNDS))
    served = [serve() for _ in range(ROUNDS)]
    first, cpu = (sorted(column) for column in zip(*served, strict=True))
    gap, fitted = asyncio.run(learn())
    for name, value in (
        ("CPU of `brain ask hello`, s", _show(asked)),
        ("first token after `brain serve` is ready, s", _show(first)),
        ("its CPU, s", _show(cpu)),
        ("CPU to learn six specialists of others, s", f"{fitted:.2f}"),
        ("99th percentile of the wait of other work meanwhile, ms", f"{gap * 1000:.1f}"),
    ):
        sys.stdout.write(f"| {name} | {value} |\n")
    return 0


def ask() -> float:
    """Return the CPU time of one command, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*BRAIN, "ask", "hello"], env=ENVIRON, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def serve() -> tuple[float, float]:
    """Return the seconds and the CPU seconds from the first message to its first token."""
    command = [*BRAIN, "serve", "--port", "0"]
    with subprocess.Popen(command, env=ENVIRON, stderr=subprocess.PIPE, text=True) as server:
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


async def learn() -> tuple[float, float]:
    """Return how long a task that wakes up each millisecond waits meanwhile, and the CPU time, in seconds."""
    options = settings.read({**ENVIRON, "BRAIN_SPECIALISTS_FOLDER": str(STRANGERS)})
    specialists = tuple(Registry(options).discover().usable())
    gc.collect()
    gc.freeze()  # as `brain serve` does
    gaps, began = [], time.process_time()
    task = asyncio.create_task(find_router(specialists))
    while not task.done():
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        gaps.append(time.perf_counter() - before - 0.001)
    return statistics.quantiles(gaps, n=100)[98], time.process_time() - began


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.ConnectError:
        return False


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _show(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({values[0]:.2f}..{values[-1]:.2f})"


if __name__ == "__main__":
    sys.exit(main())
