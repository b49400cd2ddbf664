"""Rooms: the calls of a turn that wait for a person. Each is decided once, or expires."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Literal

from brain.alarm import Alarm
from brain.errors import BadRequest

Decision = Literal["approved", "declined", "expired"]


class Approvals:
    """What is open, and what was decided. While anything is open, the turn's clock stands still.

    Args:
        seconds: how long a person may take.

    Attributes:
        alarm: the turn's clock.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[str, asyncio.Future[bool]] = {}
        self._decided: dict[str, Decision] = {}
        self.alarm: Alarm | None = None
        self._held = 0.0
        self._since = 0.0  # when the first of those that are open was opened

    @property
    def waiting(self) -> bool:
        """Whether a person is waited for."""
        return bool(self._open)

    @property
    def held(self) -> float:
        """Seconds for which the clock stood still so far."""
        return self._held + (time.monotonic() - self._since if self._open else 0.0)

    def of(self, call_id: str) -> "Decision | Literal['asked']":
        """What came of asking about a call: nothing yet, or ever, when its turn ended before."""
        return self._decided.get(call_id, "asked")

    def open(self, call_id: str) -> datetime:
        """Opens one; until when it can be decided (aware, UTC)."""
        if not self._open:
            self._since = time.monotonic()
            if self.alarm is not None:
                self.alarm.hold()
        self._open[call_id] = asyncio.get_running_loop().create_future()
        return datetime.now(UTC) + timedelta(seconds=self._seconds)

    async def decided(self, call_id: str) -> bool:
        """Whether the person said yes, once it is known; one that was not asked for in time did not."""
        future = self._open[call_id]
        try:
            await asyncio.wait({future}, timeout=self._seconds)
            if not future.done():
                self._decided[call_id] = "expired"
                return False
            self._decided[call_id] = "approved" if future.result() else "declined"
            return future.result()
        finally:
            self._close(call_id)

    def decide(self, call_id: str, approve: bool) -> None:
        """Decides one; the same decision again changes nothing.

        Raises:
            BadRequest: when nothing was asked about this call, or it expired, or was decided otherwise.
        """
        earlier = self.of(call_id)
        if earlier is None:
            message = "No call of this id waits for an approval in this turn."
            raise BadRequest(message, "call_id", code="not_found", status=404)
        if earlier == "expired":
            raise BadRequest("The time to approve this call is over.", "call_id", code="gone", status=410)
        if earlier == "asked":
            self._open[call_id].set_result(approve)
        elif (earlier == "approved") is not approve:
            raise BadRequest(f"This call was {earlier} already.", "approve", code="decided", status=409)

    def _close(self, call_id: str) -> None:
        held = self.held
        del self._open[call_id]
        if not self._open:
            self._held = held
            if self.alarm is not None:
                self.alarm.go_on()


def _decision(approved: bool) -> Decision:
    return "approved" if approved else "declined"
