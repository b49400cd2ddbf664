"""Counts turns, passes, calls and tokens for Prometheus; the only importer of prometheus_client.

Nothing is counted per token: a turn is counted when it ends, from its report. Labels have few values: registered
specialists, configured models, and our own codes. No user, and no text of one, is a label.
"""

import itertools
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from prometheus_client import Counter, Gauge, Histogram, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from brain.messages import TurnReport

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable of the folder in which processes count together; the library knows it by this name."""

FIRST_TOKEN_SECONDS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 30, 60)
CALL_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)
TURN_SECONDS = (0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)

REASONS = ("address", "connections", "overload")
"""Why connections and requests are refused."""

EXECUTED = frozenset(("ok", "refused", "timeout", "failed", "deadline", "cancelled"))
"""Outcomes of calls that were executed."""

_locks: list[IO[str]] = []


class Metrics:
    """The metrics of one application, which share nothing with those of another in the same process.

    Args:
        specialists: known names; calls of other names count as `?`.
    """

    def __init__(self, specialists: Container[str]) -> None:
        self._specialists = specialists
        self._registry = one = CollectorRegistry()
        self._turns = Counter("brain_turns_total", "turns that ended, and how", ["wire", "outcome"], registry=one)
        self._running = Gauge("brain_turns_running", "turns that run", registry=one, multiprocess_mode="livesum")
        self._streams = Gauge(
            "brain_streams_open", "streams that somebody reads", registry=one, multiprocess_mode="livesum"
        )
        self._passes = Counter("brain_passes_total", "requests to a model", ["model"], registry=one)
        self._calls = Counter(
            "brain_calls_total",
            "calls of specialists; `forged`: a result that the model invented; `?`: no name of ours",
            ["specialist", "outcome"],
            registry=one,
        )
        self._call_seconds = Histogram(
            "brain_call_seconds",
            "what calls took that ran and were not answered from an earlier one",
            ["specialist"],
            buckets=CALL_SECONDS,
            registry=one,
        )
        self._tokens = Counter(
            "brain_tokens_total",
            "tokens: `prompt`, `completion`, and those of the prompt that the server `reused`",
            ["model", "kind"],
            registry=one,
        )
        self._first_token = Histogram(
            "brain_first_token_seconds", "from the request to the first text", buckets=FIRST_TOKEN_SECONDS, registry=one
        )
        self._turn_seconds = Histogram("brain_turn_seconds", "whole turns", buckets=TURN_SECONDS, registry=one)
        self._errors = Counter(
            "brain_upstream_errors_total", "passes in which the model failed", ["model", "code"], registry=one
        )

        self._blocked = Counter(
            "brain_loop_blocked_total",
            "times that the event loop was blocked for 250 ms; `?`: by no specialist's code",
            ["specialist"],
            registry=one,
        )
        self._connections = Gauge(
            "brain_connections_open", "open client connections", registry=one, multiprocess_mode="livesum"
        )
        self._refused = Counter(
            "brain_refused_total",
            "refused connections and requests: too many of one `address`, `connections` in total, or `overload`",
            ["reason"],
            registry=one,
        )
        for reason in REASONS:
            self._refused.labels(reason)
        self._lag = Gauge(
            "brain_loop_lag_seconds",
            "smoothed lag of the event loop, of several workers the largest",
            registry=one,
            multiprocess_mode="livemax",
        )

    def count_block(self, specialist: str) -> None:
        """Count that the event loop was blocked; any thread may call this."""
        self._blocked.labels(specialist if specialist in self._specialists else "?").inc()

    def set_connections(self, number: int) -> None:
        """Set how many connections are open."""
        self._connections.set(number)

    def count_rejection(self, reason: str) -> None:
        """Count a rejected connection or request, or an idle connection that was closed to make room."""
        self._refused.labels(reason).inc()

    def set_lag(self, seconds: float) -> None:
        """Set the lag of the event loop."""
        self._lag.set(seconds)

    def count_start(self) -> None:
        """Count a turn that starts."""
        self._running.inc()

    def count_streams(self, change: int) -> None:
        """Add to the number of open streams."""
        self._streams.inc(change)

    def record(self, report: TurnReport) -> None:
        """Count a turn that ended, after `count_start`."""
        self._running.dec()
        self._turns.labels(report.wire, report.outcome).inc()
        self._turn_seconds.observe(report.total_ms / 1000)
        if report.first_token_ms is not None:
            self._first_token.observe(report.first_token_ms / 1000)
        model, usage = report.model, report.usage
        self._passes.labels(model).inc(len(report.passes))
        self._tokens.labels(model, "prompt").inc(usage.prompt_tokens)
        self._tokens.labels(model, "completion").inc(usage.completion_tokens)
        self._tokens.labels(model, "reused").inc(usage.reused_tokens or 0)
        for one in report.passes:
            if one.error is not None and one.error.startswith("model_"):
                self._errors.labels(model, one.error).inc()
        for call in report.calls:
            if call.by == "client":
                continue
            name = call.name if call.name in self._specialists else "?"
            self._calls.labels(name, call.outcome or "running").inc()
            may_run = call.approval in (None, "approved")
            if call.ms is not None and call.outcome in EXECUTED and not call.cached and may_run:
                self._call_seconds.labels(name).observe(call.ms / 1000)

    # Output

    def expose(self, accept: str) -> tuple[bytes, str]:
        """All metrics as text, and its content type: OpenMetrics if `accept` names it, else Prometheus's format."""
        if "application/openmetrics-text" in accept:
            return openmetrics.generate_latest(self), openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self), CONTENT_TYPE_PLAIN_0_0_4

    def collect(self) -> Iterator[Metric]:
        """The metrics of all processes that count together, without the start times of counters."""
        shared = os.environ.get(SHARED)
        workers = _live_processes(Path(shared)) if shared else []
        for metric in MultiProcessCollector.merge(_files(Path(shared))) if shared else self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        yield from _process_metrics(workers) if workers else ProcessCollector(registry=None).collect()


# Several processes


def share(folder: Path) -> None:
    """Count together with all other processes of a folder. Call this before the first `Metrics` is made.

    A process continues the files of one that ended, so counters never fall, and files do not pile up.
    """
    number = next(number for number in itertools.count() if _acquire(folder, number))
    os.environ[SHARED] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: number)


def _acquire(folder: Path, number: int) -> bool:
    """Lock a number that no other process has, until this process ends in any way."""
    lock = (folder / f"{number}.lock").open("a+")
    if not _try_lock(lock):
        lock.close()
        return False
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    mark_process_dead(number, str(folder))
    _locks.append(lock)
    return True


def _try_lock(lock: IO[str]) -> bool:
    import fcntl  # not on Windows, which has no workers either

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _live_processes(folder: Path) -> list[int]:
    """The processes that have a number. Gauges of other processes are dropped."""
    pids = []
    for path in folder.glob("*.lock"):
        with path.open("a+") as lock:
            if _try_lock(lock):
                mark_process_dead(int(path.stem), str(folder))
                continue
            lock.seek(0)
            if pid := lock.read():  # a process that has just locked it has not written its ID yet
                pids.append(int(pid))
    return sorted(pids)


def _files(folder: Path) -> Iterator[str]:
    """The files that hold counts. A new file is empty, and cannot be read yet."""
    for path in folder.glob("*.db"):
        with suppress(FileNotFoundError):  # the process has ended
            if path.stat().st_size:
                yield str(path)


def _process_metrics(pids: Sequence[int]) -> Iterable[Metric]:
    """The system's metrics of each process, labelled with its ID."""
    metrics: dict[str, Metric] = {}
    for pid in pids:
        for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
            merged = metrics.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                merged.add_sample(sample.name, {"pid": str(pid)}, sample.value)
    return metrics.values()
