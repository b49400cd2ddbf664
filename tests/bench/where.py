"""Sample Brain's process with `perf`: shares of kernel, interpreter and libraries."""

import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from load import Failed, Play
from tables import Table
from targets import Target
from whole import RATE, Run, paced, say

WHO = {
    "kernel": ("[kernel", "[vdso", "[k"),
    "interpreter": ("libpython", "python"),
    "libc": ("libc.", "ld-linux"),
    "uvloop": ("loop.",),
}
REST = "other libraries"
LINE = re.compile(r"^ +([\d.]+)% +(\S+)", re.MULTILINE)


def where(run: Run) -> Table:
    """Measure the shares of CPU time in percent, by kind of work."""
    table = Table("CPU time by component, % of samples", [*WHO, REST], "work")
    target = run.bench.target("brain")
    seconds = run.less(3, 1)
    works: dict[str, Callable[[], object]] = {
        f"200 streams × {RATE}/s": lambda: paced(target, 200, seconds),
        "burst": lambda: target.run([Play(2_000)] * seconds * 80, at_once=8),
        "one-token answers": lambda: target.run([Play(1)] * seconds * 1_000, at_once=4),
    }
    for name, work in works.items():
        say(f"where: {name}")
        for who, share in _shares(target, work).items():
            table.add(name, who, share)
    return table


def _shares(target: Target, work: Callable[[], object]) -> dict[str, float]:
    """Return the share of each component in the samples during this work."""
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "perf.data")
        try:
            perf = subprocess.Popen(["perf", "record", "-q", "-F", "2000", "-p", str(target.pid), "-o", data])
        except FileNotFoundError:
            raise Failed("perf is not installed") from None
        try:
            time.sleep(0.3)
            work()
        finally:
            perf.terminate()
            perf.wait()
        report = ["perf", "report", "-q", "-i", data, "--sort", "dso", "--stdio"]
        said = subprocess.run(report, capture_output=True, text=True, check=False)
    found = dict.fromkeys([*WHO, REST], 0.0)
    for share, library in LINE.findall(said.stdout):
        found[next((who for who, starts in WHO.items() if library.startswith(starts)), REST)] += float(share)
    if not sum(found.values()):
        raise Failed(f"perf saw nothing: {said.stderr[-200:].strip()}")
    return found
