"""The cost of tokens and answers as everything around them grows. It should stay flat."""

import time
from collections.abc import Sequence

from load import Play
from pieces import a_turn
from tables import Table, quantile
from targets import KINDS, Target
from whole import MILLION, Run, busy, paced, say

A_TOKEN, A_REPLY = "µs per token", "µs per one-token answer"
LATE = "latency p99, ms"
TOKENS = 2_000


def length(run: Run) -> Table:
    """Measure answers of growing length, as fast as possible. The cost of the request spreads over more tokens."""
    alone, a_read = "turn alone, µs per token", "tokens per read"
    table = Table("Length of the answer, burst", [A_TOKEN, a_read, alone], "tokens")
    target = run.bench.target("brain")
    for _ in range(run.rounds):
        for tokens in (100, 1_000, 10_000) if run.quick else (100, 1_000, 10_000, 100_000):
            say(f"length: {tokens}")
            replies = max(run.less(8, 2), run.less(100_000, 10_000) // tokens)
            row, before = f"{tokens:,}", target.reads()
            table.add(row, A_TOKEN, busy(target, [Play(tokens)] * replies))
            table.add(row, a_read, tokens * replies / (target.reads() - before))
            table.add(row, alone, a_turn(tokens) / 1000)
    return table


def streams(run: Run) -> Table:
    """Measure parallel streams of 20 tokens per second while none starts or ends; nginx shows the common minimum."""
    names = [name for name in ("brain", "nginx") if not KINDS[name].missing]
    columns = [f"{name}, {what}" for name in names for what in (A_TOKEN, LATE)]
    table = Table("Number of streams of 20 tokens/s", columns, "streams")
    for _ in range(run.rounds):
        for count in (1, 20) if run.quick else (1, 20, 200, 1_000):
            say(f"streams: {count}")
            for name in names:
                used, outcome = paced(run.bench.target(name), count, 5 if count == 1 else 2, rate=20)
                table.add(f"{count:,}", f"{name}, {A_TOKEN}", used)
                table.add(f"{count:,}", f"{name}, {LATE}", quantile(outcome.late, 0.99) / MILLION)
    table.notes.append(f"Without streams, Brain uses {_idle(run.bench.target('brain')):.1f} ms of CPU per second.")
    return table


def _idle(target: Target, seconds: float = 2.0) -> float:
    """Return the milliseconds of CPU time per second of an idle server."""
    before = target.cpu()
    time.sleep(seconds)
    return (target.cpu() - before) / MILLION / seconds


def specialists(run: Run) -> Table:
    """Measure with more registered specialists. They lengthen the prompt of each request, and no token."""
    table = Table("Number of specialists", [A_TOKEN, A_REPLY], "registered")
    for more in (0, 10) if run.quick else (0, 10, 100, 300):
        say(f"specialists: {more} more")
        with run.bench.fresh("brain", more) as target:
            for _ in range(run.rounds):
                _costs(table, f"3 + {more}", target, [None] * run.less(100, 20))
    return table


def history(run: Run) -> Table:
    """Measure with earlier turns of 100 tokens each, which every request sends."""
    table = Table("Length of the history", [A_TOKEN, A_REPLY], "earlier turns")
    target = run.bench.target("brain")
    for n in range(run.rounds):
        for earlier in (0, 10) if run.quick else (0, 10, 100):
            say(f"history: {earlier}")
            talks = [f"h{n}-{earlier}-{talk}" for talk in range(run.less(40, 10))]
            for _ in range(earlier):
                target.run([Play(100, conversation=talk) for talk in talks], at_once=8)
            _costs(table, f"{earlier}", target, talks)
    return table


def _costs(table: Table, row: str, target: Target, talks: Sequence[str | None]) -> None:
    """Measure the cost of an answer, and of one more token in it."""
    a_reply = busy(target, [Play(1, conversation=talk) for talk in talks], at_once=1)
    long = busy(target, [Play(TOKENS, conversation=talk) for talk in talks[:24]], at_once=8) * TOKENS
    table.add(row, A_TOKEN, (long - a_reply) / (TOKENS - 1))
    table.add(row, A_REPLY, a_reply)
