"""Prometheus metrics of turns, passes, calls, tokens and tasks; the only module that imports prometheus_client.

A turn is counted when it ends, from its report; nothing is counted per token. Labels have few values: registered
specialists, configured models and Brain's codes. Users and their texts are never labels.
"""

import itertools
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, get_args

from prometheus_client import Counter, Gauge, Histogram, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from brain.messages import Exchange
from brain.models.circuit_breaker import BreakerState
from brain.task import TaskState

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of the library: the directory with the shared metrics of several processes."""

FIRST_TOKEN_SECONDS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 30, 60)
CALL_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60)
TASK_SECONDS = (1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
TASKS_TOTAL = "brain_tasks_total"
TURN_SECONDS = (0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)

REASONS = ("address", "connections", "overload")
"""Reasons for rejected connections and requests."""

STATES: Sequence[BreakerState] = ("closed", "half_open", "open")
"""States of circuit breakers; the metric is the position."""

EXECUTED = frozenset(("ok", "refused", "timeout", "failed", "deadline", "cancelled"))
"""Outcomes of executed calls."""

_locks: list[IO[str]] = []


class Metrics:
    """The metrics of one application, separate from other applications in the same process.

    Args:
        specialists: known names; calls of other names are counted as `?`.
    """

    def __init__(self, specialists: Container[str]) -> None:
        self._specialists = specialists
        self._registry = one = CollectorRegistry()
        self._turns = Counter("brain_turns_total", "ended turns by outcome", ["wire", "outcome"], registry=one)
        self._running = Gauge("brain_turns_running", "running turns", registry=one, multiprocess_mode="livesum")
        self._streams = Gauge("brain_streams_open", "open response streams", registry=one, multiprocess_mode="livesum")
        self._passes = Counter("brain_passes_total", "requests to models", ["model"], registry=one)
        self._calls = Counter(
            "brain_calls_total",
            "specialist calls; `forged`: the model wrote the result itself; `?`: unknown name",
            ["specialist", "outcome"],
            registry=one,
        )
        self._call_seconds = Histogram(
            "brain_call_seconds",
            "duration of executed calls, without cached results",
            ["specialist"],
            buckets=CALL_SECONDS,
            registry=one,
        )
        self._tokens = Counter(
            "brain_tokens_total",
            "tokens: `prompt`, `completion`, and prompt tokens `reused` from the server's cache",
            ["model", "kind"],
            registry=one,
        )
        self._first_token = Histogram(
            "brain_first_token_seconds",
            "time from the request to the first text",
            buckets=FIRST_TOKEN_SECONDS,
            registry=one,
        )
        self._turn_seconds = Histogram("brain_turn_seconds", "duration of turns", buckets=TURN_SECONDS, registry=one)
        self._errors = Counter(
            "brain_upstream_errors_total", "passes that failed at the model", ["model", "code"], registry=one
        )
        self._states = Gauge(
            "brain_model_state",
            "0: turns use the model; 1: the next turn tries it; 2: turns skip it after repeated failures",
            ["model"],
            registry=one,
            multiprocess_mode="livemax",
        )
        self._tasks = Counter(TASKS_TOTAL, "ended runs of background tasks", ["profile", "outcome"], registry=one)
        self._task_seconds = Histogram(
            "brain_task_seconds", "duration of runs of tasks", ["profile"], buckets=TASK_SECONDS, registry=one
        )
        self._task_states: Mapping[str, int] = {}
        self._blocked = Counter(
            "brain_loop_blocked_total",
            "times the event loop was blocked for 250 ms; `?`: not by a specialist",
            ["specialist"],
            registry=one,
        )
        self._connections = Gauge(
            "brain_connections_open", "open client connections", registry=one, multiprocess_mode="livesum"
        )
        self._refused = Counter(
            "brain_refused_total",
            "rejected connections and requests, by limit: per `address`, total `connections`, or `overload`",
            ["reason"],
            registry=one,
        )
        for reason in REASONS:
            self._refused.labels(reason)
        self._written = Counter(
            "brain_store_bytes_total", "text and files written to the store, in bytes", registry=one
        )
        self._lag = Gauge(
            "brain_loop_lag_seconds",
            "smoothed lag of the event loop; the maximum of all workers",
            registry=one,
            multiprocess_mode="livemax",
        )

    def count_block(self, specialist: str) -> None:
        """Count a block of the event loop; thread-safe."""
        self._blocked.labels(specialist if specialist in self._specialists else "?").inc()

    def set_connections(self, number: int) -> None:
        """Set the number of open connections."""
        self._connections.set(number)

    def count_rejection(self, reason: str) -> None:
        """Count a rejected connection or request, or an idle connection that was closed instead."""
        self._refused.labels(reason).inc()

    def set_lag(self, seconds: float) -> None:
        """Set the lag of the event loop."""
        self._lag.set(seconds)

    def count_written(self, size: int) -> None:
        """Count bytes that were written to the store."""
        self._written.inc(size)

    def count_start(self) -> None:
        """Count the start of a turn."""
        self._running.inc()

    def count_handover(self) -> None:
        """Count that another process continues a turn, and records its end."""
        self._running.dec()

    def count_streams(self, change: int) -> None:
        """Add to the number of open streams."""
        self._streams.inc(change)

    def set_model_states(self, states: Mapping[str, BreakerState]) -> None:
        """Set the state of each model's circuit breaker."""
        for model, state in states.items():
            self._states.labels(model).set(STATES.index(state))

    def set_task_states(self, counts: Mapping[str, int]) -> None:
        """Set the number of tasks of all users by state."""
        self._task_states = {**dict.fromkeys(get_args(TaskState), 0), **counts}

    def record_task(self, profile: str, outcome: str, seconds: float) -> None:
        """Count the end of a run of a task."""
        self._tasks.labels(profile, outcome).inc()
        self._task_seconds.labels(profile).observe(seconds)

    def record(self, exchange: Exchange) -> None:
        """Count the end of a turn."""
        self._running.dec()
        self._turns.labels(exchange.wire, exchange.outcome).inc()
        self._turn_seconds.observe(exchange.duration_ms / 1000)
        if exchange.first_token_ms is not None:
            self._first_token.observe(exchange.first_token_ms / 1000)
        for one in exchange.passes:
            model = one.model or exchange.model
            self._passes.labels(model).inc()
            self._tokens.labels(model, "prompt").inc(one.prompt_tokens)
            self._tokens.labels(model, "completion").inc(one.completion_tokens)
            self._tokens.labels(model, "reused").inc(one.reused_tokens or 0)
            if one.error is not None and one.error.startswith("model_"):
                self._errors.labels(model, one.error).inc()
        for call in exchange.calls:
            if call.by == "client":
                continue
            name = call.name if call.name in self._specialists else "?"
            self._calls.labels(name, call.outcome or "running").inc()
            may_run = call.approval in (None, "approved")
            if call.ms is not None and call.outcome in EXECUTED and not call.cached and may_run:
                self._call_seconds.labels(name).observe(call.ms / 1000)

    # Output

    def expose(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and the content type: OpenMetrics if `accept` names it, else the Prometheus format."""
        if "application/openmetrics-text" in accept:
            return openmetrics.generate_latest(_OpenMetrics(self)), openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(self), CONTENT_TYPE_PLAIN_0_0_4

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all processes, without the creation times of counters."""
        shared = os.environ.get(SHARED)
        workers = _live_processes(Path(shared)) if shared else []
        for metric in MultiProcessCollector.merge(_files(Path(shared))) if shared else self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        if self._task_states:
            states = GaugeMetricFamily("brain_tasks", "background tasks of all users by state", labels=["state"])
            for state, count in self._task_states.items():
                states.add_metric([state], count)
            yield states
        yield from _process_metrics(workers) if workers else ProcessCollector(registry=None).collect()


class _OpenMetrics:
    """The metrics for OpenMetrics. There, the counter of runs has no type: its family has the name of the gauge."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for metric in self._metrics.collect():
            if f"{metric.name}_total" == TASKS_TOTAL and metric.type == "counter":
                untyped = Metric(TASKS_TOTAL, metric.documentation, "unknown")
                untyped.samples = metric.samples
                yield untyped
            else:
                yield metric


# Several processes


def share(folder: Path) -> None:
    """Share metrics with all processes that use the directory. Call this before creating `Metrics`.

    A process continues the files of one that ended, so counters never decrease and the number of files is limited.
    """
    number = next(number for number in itertools.count() if _acquire(folder, number))
    os.environ[SHARED] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: number)


def _acquire(folder: Path, number: int) -> bool:
    """Lock an unused number until this process ends."""
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
    import fcntl  # not on Windows, where Brain has no workers

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _live_processes(folder: Path) -> list[int]:
    """The IDs of running processes. Gauges of ended processes are dropped."""
    pids = []
    for path in folder.glob("*.lock"):
        with path.open("a+") as lock:
            if _try_lock(lock):
                mark_process_dead(int(path.stem), str(folder))
                continue
            lock.seek(0)
            if pid := lock.read():  # empty if a process has just locked it
                pids.append(int(pid))
    return sorted(pids)


def _files(folder: Path) -> Iterator[str]:
    """The files with metrics. A new file is empty and not readable yet."""
    for path in folder.glob("*.db"):
        with suppress(FileNotFoundError):  # the process has ended
            if path.stat().st_size:
                yield str(path)


def _process_metrics(pids: Sequence[int]) -> Iterable[Metric]:
    """The system metrics of each process, labelled with its ID."""
    metrics: dict[str, Metric] = {}
    for pid in pids:
        for metric in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
            merged = metrics.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
            for sample in metric.samples:
                merged.add_sample(sample.name, {"pid": str(pid)}, sample.value)
    return metrics.values()
