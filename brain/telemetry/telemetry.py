"""Records metrics, traces and a log line for each turn."""

import logging

from brain.messages import TurnReport
from brain.plugins.registry import Registry
from brain.settings import Settings
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
        """Prepare traces if the setting TRACES enables them.

        Raises:
            SettingsError: as in `Tracer`.
        """
        if self._settings.traces != "off":
            self._tracer = Tracer(self._settings.traces, self._registry)

    async def close(self) -> None:
        """Export the last spans."""
        if self._tracer is not None:
            tracer, self._tracer = self._tracer, None
            await tracer.close()

    def record(self, report: TurnReport, traceparent: str = "") -> None:
        """Record a turn that ended; `traceparent` is the header of its request."""
        self.metrics.record(report)
        if self._tracer is not None:
            self._tracer.record(report, traceparent)
        log.info("%s", logs.turn_line(report), extra={"fields": logs.turn_fields(report)})
