"""What an operator sees of the turns: metrics, traces, a line in the log."""

import logging

from brain.messages import TurnReport
from brain.plugins.registry import Registry
from brain.settings import Settings
from brain.telemetry import logs
from brain.telemetry.metrics import Metrics
from brain.telemetry.tracing import Traces

log = logging.getLogger("brain")


class Telemetry:
    """Is told what happens in one application, and tells those who look."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self.metrics = Metrics(registry)
        self._settings = settings
        self._registry = registry
        self._traces: Traces | None = None

    def open(self) -> None:
        """Makes ready for traces, if they are wanted.

        Raises:
            SettingsError: as `Traces`.
        """
        if self._settings.traces != "off":
            self._traces = Traces(self._settings.traces, self._registry)

    async def close(self) -> None:
        """Sends the last traces."""
        if self._traces is not None:
            traces, self._traces = self._traces, None
            await traces.close()

    def record(self, report: TurnReport, traceparent: str = "") -> None:
        """A turn ended; `traceparent` is the header of the request for it."""
        self.metrics.record(report)
        if self._traces is not None:
            self._traces.ended(report, traceparent)
        log.info("%s", logs.turn(report), extra={"fields": logs.turn_fields(report)})
