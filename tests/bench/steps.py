"""What each step of a one-token turn costs: `python tests/bench/steps.py`.

`brain serve` runs with default settings and a store on disk, alone on a core, in front of the fake model server. Its
CPU time is measured twice: without a profiler, and with samples of the stack of its event loop, one per millisecond of
CPU time. A sample belongs to the innermost function of `STEPS`. The CPU time of the store's threads comes from the
system. The table also says how much of the measured total its rows explain.

A second table shows how much later than directly from the model server the first token arrives.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from load import Play
from targets import Bench, Target

INTERVAL_SECONDS = 0.001
SETTLE_SECONDS = 1.0
AT_ONCE = (1, 16)

STORE = "store: threads that write question and answer"
LOOP = "event loop: sockets, timers, wake-ups"
STEPS: Mapping[str, Sequence[str]] = {
    "connection, headers": ("HttpToolsProtocol.", "Protocol.", "FlowControl."),
    "middleware, routing": ("ProxyHeadersMiddleware.",),
    "body: read and check": ("read_turn_request",),
    "admission, question to the store": ("begin_run", "Engine._admit"),
    "history, memory, setup, prompt": ("Engine._prepare", "Turn.__init__", "Engine._launch"),
    "response: start, send, end": ("EventStreamResponse.", "Reader.", "RequestResponseCycle.send", "write_chunk"),
    "turn: strategy, pass, limits": ("Run._execute",),
    "messages to the model": ("Remote._ask", "Transcript.messages", "Turn._set_question"),
    "answer: decode": ("stream_chunks", "Reply.", "_Connection.data_received"),
    "answer: scan": ("ModelPass._take",),
    "events: encode, log": ("EventLog.append",),
    "answer to the store": ("StoredExchange.store",),
    "metrics, log line": ("Telemetry.record",),
    "memory of the user": ("Engine._record_end",),
    "learn whether the model calls": ("Assistant.learn", "Assistant._watch", "Assistant._learn"),
    "periodic work": (
        "ServerState._measure_forever", "RunRegistry._sweep", "Processes._look_forever", "TaskRunner._look_forever",
        "Server.main_loop", "Store._maintain_forever", "Store._sweep_forever", "_collect_when_idle",
    ),
}  # fmt: skip

out = sys.stdout.write


def find_step(frame: FrameType | None) -> str:
    """Return the step of the innermost function that belongs to one."""
    while frame is not None:
        name = frame.f_code.co_qualname
        for step, starts in STEPS.items():
            if name.startswith(tuple(starts)):
                return step
        frame = frame.f_back
    return LOOP


def serve(path: str, arguments: Sequence[str]) -> int:
    """Run `brain serve` in this process. Sample from SIGUSR1 to SIGUSR2, and write the samples to a file."""
    from brain.cli.main import main

    samples: Counter[str] = Counter()

    def stop(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Path(path).write_text(json.dumps(samples), "utf-8")

    signal.signal(signal.SIGPROF, lambda number, frame: samples.update((find_step(frame),)))
    signal.signal(signal.SIGUSR1, lambda number, frame: signal.setitimer(signal.ITIMER_PROF, *[INTERVAL_SECONDS] * 2))
    signal.signal(signal.SIGUSR2, stop)
    return main(arguments)


def threads_cpu(target: Target) -> Sequence[float]:
    """Return the CPU time of the event loop and of the other threads, in microseconds."""
    used = {
        int(task.name): int((task / "schedstat").read_text("utf-8").split()[0]) / 1000
        for task in Path(f"/proc/{target.pid}/task").iterdir()
    }
    loop = used.pop(int(target.pid or 0))
    return loop, sum(used.values())


def whole_turn(target: Target, turns: int) -> float:
    """Return the CPU time of a turn, in microseconds."""
    target.run([Play(1)] * 300, at_once=1)
    before = target.cpu()
    target.run([Play(1)] * turns, at_once=1)
    return (target.cpu() - before) / 1000 / turns


def measure(turns: int) -> tuple[dict[str, float], float, float]:
    """Return the microseconds of each step, of a whole turn without a profiler, and of one of the passthrough."""
    with tempfile.TemporaryDirectory() as folder, Bench() as bench:
        path = Path(folder, "samples")
        bench.brain = [__file__, "--serve", str(path)]
        passthrough = whole_turn(bench.target("passthrough"), turns)
        with bench.fresh("brain") as target:
            total = whole_turn(target, turns)
            assert target.pid is not None
            began = threads_cpu(target)
            os.kill(target.pid, signal.SIGUSR1)
            target.run([Play(1)] * turns, at_once=1)
            ended = threads_cpu(target)
            os.kill(target.pid, signal.SIGUSR2)
            time.sleep(SETTLE_SECONDS)
            samples: dict[str, int] = json.loads(path.read_text("utf-8"))
    loop, store = (ended[0] - began[0]) / turns, (ended[1] - began[1]) / turns
    each = (loop + store) / sum(samples.values())
    found = {step: samples.get(step, 0) * each for step in (LOOP, *STEPS)}
    found[LOOP] -= store  # the event loop waits while a thread works
    return {STORE: store, **found}, total, passthrough


def first_token(requests: int) -> None:
    """Print how much later the first token arrives than directly from the model server, in milliseconds."""
    out("\n| requests at once | first token, added p50, ms | added p99, ms |\n|---|---|---|\n")
    with Bench() as bench:
        for at_once in AT_ONCE:
            found = []
            for name in ("direct", "brain"):
                target = bench.target(name)
                target.run([Play(1)] * 300, at_once=at_once)
                streams = target.run([Play(1)] * requests, at_once=at_once).streams
                found.append(statistics.quantiles([(one.first - one.began) / 1e6 for one in streams], n=100))
            direct, brain = found
            out(f"| {at_once} | {brain[49] - direct[49]:.2f} | {brain[98] - direct[98]:.2f} |\n")


def main() -> int:
    parser = argparse.ArgumentParser("python tests/bench/steps.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--turns", type=int, default=5_000, metavar="N", help="turns per measurement (default: 5000)")
    given = parser.parse_args()
    costs, total, passthrough = measure(given.turns)
    out("| step | µs of CPU |\n|---|---|\n")
    for step, cost in sorted(costs.items(), key=lambda one: -one[1]):
        out(f"| {step} | {cost:.0f} |\n")
    out(f"| sum | {sum(costs.values()):.0f} |\n| measured without a profiler | {total:.0f} |\n")
    out(f"| the passthrough in the same run | {passthrough:.0f} |\n")
    first_token(given.turns // 4)
    return 0


if __name__ == "__main__":
    sys.exit(serve(sys.argv[2], sys.argv[3:]) if sys.argv[1:2] == ["--serve"] else main())
