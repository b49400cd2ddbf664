"""Rooms: the calls of a turn that wait for a person. Each is decided once, or expires."""

import asyncio
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
        held: seconds for which it stood still.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[str, asyncio.Future[bool]] = {}
        self._decided: dict[str, Decision] = {}
        self.alarm: Alarm | None = None
        self.held = 0.0

    @property
    def waiting(self) -> bool:
        """Whether a person is waited for."""
        return bool(self._open)

    def of(self, call_id: str) -> "Decision | Literal['asked'] | None":
        """How it stands with a call; None for one that nobody was asked about."""
        return "asked" if call_id in self._open else self._decided.get(call_id)

    def open(self, call_id: str) -> datetime:
        """Opens one; until when it can be decided (aware, UTC)."""
        if self.alarm is not None and not self._open:
            self.alarm.hold()
        self._open[call_id] = asyncio.get_running_loop().create_future()
        return datetime.now(UTC) + timedelta(seconds=self._seconds)

    async def decided(self, call_id: str) -> bool:
        """Whether the person said yes, once it is known; one that was not asked for in time did not."""
        try:
            async with asyncio.timeout(self._seconds):
                approved = await self._open[call_id]
        except TimeoutError:
            approved = False
            self._decided[call_id] = "expired"
        else:
            self._decided[call_id] = "approved" if approved else "declined"
        finally:
            self._close(call_id)
        return approved

    def decide(self, call_id: str, approve: bool) -> None:
        """Decides one; the same decision again changes nothing.

        Raises:
            BadRequest: when nothing was asked about this call, or it expired, or was decided otherwise.
        """
        decision: Decision = "approved" if approve else "declined"
        earlier = self._decided.get(call_id)
        future = self._open.get(call_id)
        if future is not None and future.done():
            earlier = "approved" if future.result() else "declined"
        if future is None and earlier is None:
            message = "No call of this id waits for an approval in this turn."
            raise BadRequest(message, "call_id", code="not_found", status=404)
        if earlier == "expired":
            raise BadRequest("The time to approve this call is over.", "call_id", code="gone", status=410)
        if earlier not in (None, decision):
            raise BadRequest(f"This call was {earlier} already.", "approve", code="decided", status=409)
        if future is not None and earlier is None:
            future.set_result(approve)

    def _close(self, call_id: str) -> None:
        del self._open[call_id]
        if self.alarm is not None and not self._open:
            self.held += self.alarm.go_on()
