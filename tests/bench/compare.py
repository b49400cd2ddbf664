"""Compare Brain's CPU time with that of other programs in the same run, and the ratios with recorded ones.

Ratios differ less between machines and versions of Python than times. `ratios.json` has those of the rounds that were
recorded last, of several runs: other load on the machine changes how many tokens arrive together.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from load import Play
from tables import number, shown
from targets import CORES, Bench, Target
from whole import RATE, busy, paced, say

RECORDED = Path(__file__).parent / "ratios.json"
ROUNDS, QUICK_ROUNDS = 9, 3
MAX_RECORDED = 27
REFERENCE = [sys.executable, "-P", "-c", "import starlette.applications, httpx"]
TURNS: Mapping[str, Callable[[Target], float]] = {
    "burst, per token": lambda target: busy(target, [Play(2_000)] * 24),
    f"20 streams of {RATE} tokens/s, per token": lambda target: paced(target, 20, 1)[0],
    "one-token answer": lambda target: busy(target, [Play(1)] * 200, at_once=1),
}
STARTS = {
    "`brain --version`": [sys.executable, "-P", "-m", "brain", "--version"],
    "`from brain import specialist`": [sys.executable, "-P", "-c", "from brain import specialist"],
    "`brain ask hello`": [sys.executable, "-P", "-m", "brain", "ask", "hello"],
}
Ratios = Mapping[str, Sequence[float]]


def find_obstacle() -> str | None:
    """Return why this machine cannot compare, if it cannot."""
    if sys.platform != "linux":
        return "it needs Linux"
    if len(CORES) < 2:
        return "it needs two cores"
    return None if shutil.which("taskset") else "taskset is not installed"


def measure(rounds: int) -> Ratios:
    """Return the ratios of all rounds. A round measures Brain and the other program one after the other."""
    ratios: dict[str, list[float]] = {}

    def add(name: str, ours: float, other: float) -> None:
        ratios.setdefault(name, []).append(ours / other)

    with Bench() as bench:
        brain, passthrough = bench.target("brain"), bench.target("passthrough")
        for n in range(rounds):
            say(f"compare: round {n + 1} of {rounds}")
            for name, cost in TURNS.items():
                add(name, cost(brain), cost(passthrough))
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as folder:
        for name, seconds in measure_starts(Path(folder), rounds).items():
            for ours, other in zip(*seconds, strict=True):
                add(name, ours, other)
    return ratios


def measure_starts(folder: Path, rounds: int) -> Mapping[str, tuple[Sequence[float], Sequence[float]]]:
    """Return the CPU seconds of each command, and those of a program that imports Starlette and httpx only.

    Args:
        folder: Where the compiled modules are. An installed package has them, a clone may not.
    """
    cpu = CommandCPU(folder)
    for command in (REFERENCE, *STARTS.values()):
        cpu(command)
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in STARTS}
    for _ in range(rounds):
        reference = cpu(REFERENCE)
        for name, command in STARTS.items():
            found[name][0].append(cpu(command))
            found[name][1].append(reference)
    return found


class CommandCPU:
    """Measures the CPU time of commands with the demo model. Their first call compiles the modules into a folder."""

    def __init__(self, folder: Path) -> None:
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        own = {"BRAIN_STORE": "memory:", "BRAIN_MODEL": "builtin", "BRAIN_SPECIALISTS_FOLDER": ""}
        self.environ = {**clean, **own, "PYTHONPYCACHEPREFIX": str(folder)}

    def __call__(self, command: Sequence[str]) -> float:
        """Run a command and return its CPU time in seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=self.environ, capture_output=True, stdin=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def record(ratios: Ratios) -> None:
    """Add the ratios of a run to the recorded ones, and drop the oldest."""
    recorded = _read()
    lines = []
    for name, found in ratios.items():
        rounds = [*recorded.get(name, ()), *(round(one, 3) for one in found)]
        lines.append(f" {json.dumps(name)}: {rounds[-MAX_RECORDED:]}")
    RECORDED.write_text("{{\n{}\n}}\n".format(",\n".join(lines)), "utf-8")


def _read() -> Ratios:
    found: Ratios = json.loads(RECORDED.read_text("utf-8"))
    return found


def report(ratios: Ratios) -> str:
    """Return a table, and what got worse: a median above nine of ten recorded rounds."""
    recorded = _read()
    lines = ["| CPU time, ratio to the other program | recorded | now | |", "|---|---|---|---|"]
    worse = []
    for name, found in ratios.items():
        if len(before := recorded.get(name, ())) < 2:
            lines.append(f"| {name} | – | {shown(found)} | new |")
            continue
        now, deciles = statistics.median(found), statistics.quantiles(before, n=10, method="inclusive")
        verdict = "worse" if now > deciles[-1] else "better" if now < deciles[0] else ""
        lines.append(f"| {name} | {shown(deciles)} | {shown(found)} | {verdict} |")
        if verdict == "worse":
            worse.append(f"{name}: {number(now)}; nine of ten recorded rounds have at most {number(deciles[-1])}")
    end = ["What got worse:", *(f"- {one}" for one in worse)] if worse else ["Nothing got worse."]
    return "\n".join([*lines, "", *end, ""])
