"""Compare whole servers: CPU time, latency, capacity, memory, and reaction times."""

import math
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from load import Failed, Outcome, Play, Window
from tables import Table, quantile, rotated
from targets import Bench, Target

RATE = 50
"""Tokens per second of a paced stream."""
LATE = 0.050
"""Latency in seconds above which a stream stutters visibly."""
MILLION = 1e6


@dataclass
class Run:
    """The options of the command line."""

    bench: Bench
    names: Sequence[str]
    rounds: int
    quick: bool

    def in_turn(self, *without: str) -> list[str]:
        return list(rotated([name for name in self.names if name not in without], self.rounds))

    def less(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def cpu(run: Run) -> Table:
    """Measure CPU time per token: as fast as possible, paced, and of an answer with one token."""
    columns = ("burst", f"20 streams × {RATE}/s", f"200 streams × {RATE}/s", "one-token answer")
    table = Table("CPU time per token, µs", columns, "server")
    for name in run.in_turn("direct"):
        say(f"cpu: {name}")
        target = run.bench.target(name)
        replies = 4 if run.quick else 8 if target.kind.slow else 24
        table.add(name, columns[0], busy(target, [Play(2_000)] * replies))
        table.add(name, columns[1], paced(target, 20, run.less(2, 1))[0])
        if not run.quick:
            table.add(name, columns[2], paced(target, 200, 2)[0])
        table.add(name, columns[3], busy(target, [Play(1)] * run.less(200, 50), at_once=1))
    return table


def busy(target: Target, plays: Sequence[Play], at_once: int = 8) -> float:
    """Return microseconds of CPU time per token of these answers, from request to end."""
    before = target.cpu()
    outcome = target.run(plays, at_once)
    return (target.cpu() - before) / outcome.tokens / 1000


def paced(
    target: Target, streams: int, seconds: float, rate: int = RATE, patience: float = 30.0
) -> tuple[float, Outcome]:
    """Return microseconds of CPU time per token while no stream starts or ends, and the outcome with latencies.

    Raises:
        Failed: the run is not over `patience` seconds after its planned end.
    """
    spread = max(0.5, streams / 1_000)
    window = Window(spread + 0.3, spread + 0.3 + seconds, target.cpu)
    tokens = math.ceil((spread + 0.5 + seconds) * rate)
    limit = spread + tokens / rate + patience
    outcome = target.run([Play(tokens, rate)] * streams, spread=spread, window=window, limit=limit)
    return window.used / max(1, window.tokens) / 1000, outcome


def latency(run: Run) -> Table:
    """Measure the latency of tokens, and the time to the first one."""
    quiet, first, many = "token", "first token", f"first token, {run.less(1_000, 100):,} turns at once"
    columns = [f"{what}, {share}" for what in (quiet, first, many) for share in ("p50", "p99")]
    table = Table("Latency, ms", columns, "server")
    for name in run.in_turn():
        say(f"latency: {name}")
        target = run.bench.target(name)
        _, outcome = paced(target, 1, run.less(3, 1), rate=100)
        one = target.run([Play(1)] * run.less(200, 50), at_once=1)
        all_at_once = target.run([Play(1)] * run.less(1_000, 100))
        for what, nanoseconds in ((quiet, outcome.late), (first, firsts(one)), (many, firsts(all_at_once))):
            table.add(name, f"{what}, p50", quantile(nanoseconds, 0.5) / MILLION)
            table.add(name, f"{what}, p99", quantile(nanoseconds, 0.99) / MILLION)
    return table


def firsts(outcome: Outcome) -> list[int]:
    return [stream.first - stream.began for stream in outcome.streams]


def capacity(run: Run) -> Table:
    """Find the number of paced streams without stutter, by doubling and bisection, in one long round."""
    column = f"streams of {RATE} tokens/s"
    table = Table(f"Capacity: concurrent streams with p99 latency below {LATE * 1000:.0f} ms", [column])
    table.first = "server"
    most = run.less(3_200, 200)
    for name in sorted(run.names, key="direct".__ne__):
        found = _most_streams(run.bench.target(name), most)
        table.add(name, column, found)
        if name == "direct":
            most = found
    if "direct" in table.rows:
        table.notes.append(
            "The tools reach their limit at the value of `direct`: a server with this value may carry more."
        )
    return table


def _most_streams(target: Target, most: int) -> int:
    good, bad = 0, most + 1
    trial = min(most, 100)
    while good < most and bad - good > max(4, good // 10):
        fluent = _fluent(target, trial)
        say(f"capacity: {target.name}: {trial} streams {'run' if fluent else 'stutter'}")
        good, bad = (trial, bad) if fluent else (good, trial)
        trial = min(most, 2 * trial) if bad > most else (good + bad) // 2
    return good


def _fluent(target: Target, streams: int) -> bool:
    try:
        _, outcome = paced(target, streams, 2, patience=1)
    except Failed:
        time.sleep(1)  # until it has noticed the disconnects
        return False
    return quantile(outcome.late, 0.99) < LATE * 1e9


def memory(run: Run) -> Table:
    """Measure the memory of an open stream in a new process. In an old one, freed memory would hide it."""
    silent, spoken = "per waiting stream, KiB", "per stream after 2,000 tokens, KiB"
    table = Table("Memory", ("process, MiB", silent, spoken), "server")
    for name in run.names:
        if name == "direct":
            continue
        say(f"memory: {name}")
        for column, tokens, streams in ((silent, 1, run.less(500, 50)), (spoken, 2_000, run.less(100, 10))):
            with run.bench.fresh(name) as target:
                before = target.memory()
                outcome = target.run([Play(tokens, how="stay")] * streams, at_once=10)
                time.sleep(0.5)
                table.add(name, column, (target.memory() - before) / streams)
                outcome.close()
            if column == silent:
                table.add(name, "process, MiB", before / 1024)
    return table


def leaving(run: Run) -> Table:
    """Measure the time from a client's disconnect to the close of the model's connection, with other streams."""
    others, probes = run.less(100, 20), run.less(50, 10)
    columns = ("p50", "p99")
    table = Table(
        f"Disconnect: time until the model's stream is closed, with {others} other streams, ms", columns, "server"
    )
    for name in run.in_turn():
        say(f"leaving: {name}")
        target = run.bench.target(name)
        run.bench.log()
        plays = [Play(400, RATE, label=f"leaver{n}", leave=5) for n in range(probes)]
        outcome = target.run(_beside(others, plays), spread=2)
        time.sleep(0.5)
        closed = {label: at for what, label, at in run.bench.log() if what == "closed"}
        took = [
            closed.get(stream.play.label, math.inf) - stream.left
            for stream in outcome.streams
            if stream.play.leave is not None
        ]
        for column, share in zip(columns, (0.5, 0.99), strict=True):
            table.add(name, column, quantile(took, share) / MILLION)
    return table


def marker(run: Run) -> Table:
    """Measure the times from the end of a call to the specialist, the close of the stream and the next request."""
    columns = ("call → specialist", "call → stream closed", "next text → stream closed", "specialist → next request")
    table = Table("Call, ms", columns, "the model continues")
    calls = run.less(50, 5)
    with run.bench.fresh("brain", specialists=1) as target:
        for row, rate, others in (
            ("at once", 0, 0),
            (f"at {RATE} tokens/s", RATE, 0),
            (f"at {RATE} tokens/s, 100 other streams", RATE, 100),
        ):
            say(f"marker: {row}")
            run.bench.log()
            plays = [Play(20, rate, "call", f"m{n}", keep=True) for n in range(calls)]
            outcome = target.run(_beside(others, plays), spread=2 if others else 0, at_once=0 if others else 1)
            for times in _marker_times(outcome, run.bench.log()):
                for column, nanoseconds in zip(columns, times, strict=True):
                    table.add(row, column, nanoseconds / MILLION)
    table.notes.append("After a call, Brain reads the model's stream until other text arrives, or for 100 ms.")
    return table


def _marker_times(outcome: Outcome, log: Sequence[tuple[str, str, int]]) -> list[tuple[int, int, int, int]]:
    at = {(what, label): time for what, label, time in log}
    found = []
    for stream in outcome.streams:
        if not stream.play.label:
            continue
        label, ran = stream.play.label, re.search(rb"at (\d+) ns", stream.body)
        if ran is None or ("closed", label) not in at:
            raise Failed(f"brain: the call of {label} was not run: {stream.body[-300:]!r}")
        called, closed, asked = (at[what, label] for what in ("called", "closed", "asked"))
        behind = at.get(("behind", label), closed)
        found.append((int(ran[1]) - called, closed - called, closed - behind, asked - int(ran[1])))
    return found


def _beside(others: int, plays: Sequence[Play]) -> list[Play]:
    """Return these plays after `others` paced ones that outlast them."""
    return [Play(4 * RATE, RATE)] * others + list(plays)
