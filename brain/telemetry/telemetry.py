"""Records metrics, traces and a log line for each turn, and for each run of a task."""

import logging

from brain.messages import Exchange
from brain.plugins.registry import Registry
from brain.settings import Settings
from brain.task import Task
from brain.telemetry import logs
from brain.telemetry.metrics import Metrics
from brain.telemetry.tracing import Tracer

log = logging.getLogger("brain")


class Telemetry:
    """The telemetry of one application."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self.metrics = Metrics(registry)
        self._settings = settings
        self._registry = registry
        self._tracer: Tracer | None = None

    def open(self) -> None:
        """Prepare traces if the setting TRACES enables them."""
        if self._settings.traces != "off":
            self._tracer = Tracer(self._settings.traces, self._registry)

    async def close(self) -> None:
        """Export the last spans."""
        if self._tracer is not None:
            await self._tracer.close()

    def record(self, exchange: Exchange, conversation_id: str, user: str | None, traceparent: str = "") -> None:
        """Record a turn that ended; `traceparent` is the header of its request."""
        self.metrics.record(exchange)
        if self._tracer is not None:
            self._tracer.record(exchange, conversation_id, traceparent)
        log.info("%s", logs.turn_line(exchange, user), extra={"fields": logs.turn_fields(exchange, user)})

    def record_background(self, exchange: Exchange, conversation_id: str, user: str | None) -> None:
        """Record the turn of a background task, or a report on tasks, that ended."""
        self.metrics.count_start()
        self.record(exchange, conversation_id, user)

    def record_task(self, task: Task, outcome: str, seconds: float) -> None:
        """Record a run of a background task that ended.

        Args:
            task: the task before the end of the run.
        """
        self.metrics.record_task(task.profile, outcome, seconds)
        fields = logs.task_fields(task, outcome, seconds)
        log.info("%s", logs.task_line(task, outcome, seconds), extra={"fields": fields})
