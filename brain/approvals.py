"""Rooms: the calls of a turn that wait for a person. Each is decided once, or expires."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Literal

from brain.alarm import Alarm
from brain.errors import BadRequest
from brain.events import Approval

RACE_SECONDS = 0.1
"""Within this time, a request to stop the turn and an approval are one race, which the first of them wins.

Nobody presses two buttons one after the other so fast.
"""

Decision = Literal["approved", "declined", "expired"]


def stopped_before() -> BadRequest:
    """For a decision about a call whose turn was told to end first."""
    return BadRequest("The turn was stopped before; this call does not run.", "call_id", code="cancelled", status=409)


class Approvals:
    """What is open, and what was decided. While anything is open, the turn's clock stands still.

    Args:
        seconds: how long a person may take.

    Attributes:
        alarm: the turn's clock.
        closed: whether the turn was told to end, so that no call may begin any more.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked: dict[str, asyncio.Future[Decision]] = {}
        self._open: set[str] = set()
        self._held = 0.0
        self._since = 0.0  # when the first of those that are open was opened
        self.alarm: Alarm | None = None
        self.closed = False
        self._approved_at: float | None = None

    @property
    def just_approved(self) -> bool:
        """Whether a person approved a call a moment ago."""
        return self._approved_at is not None and time.monotonic() - self._approved_at < RACE_SECONDS

    @property
    def waiting(self) -> bool:
        """Whether a person is waited for."""
        return any(self.of(call_id) == "asked" for call_id in self._open)

    @property
    def held(self) -> float:
        """Seconds for which the clock stood still so far."""
        return self._held + (time.monotonic() - self._since if self._open else 0.0)

    def of(self, call_id: str) -> Approval | None:
        """How it stands with a call; None for one that nobody was asked about.

        `asked` stays what was neither decided nor expired when its turn ended.
        """
        future = self._asked.get(call_id)
        if future is None:
            return None
        return future.result() if future.done() else "asked"

    def open(self, call_id: str) -> datetime:
        """Opens one; until when it can be decided (aware, UTC)."""
        if not self._open:
            self._since = time.monotonic()
            if self.alarm is not None:
                self.alarm.hold()
        self._open.add(call_id)
        self._asked[call_id] = asyncio.get_running_loop().create_future()
        return datetime.now(UTC) + timedelta(seconds=self._seconds)

    async def decided(self, call_id: str) -> bool:
        """Whether the person said yes, once it is known; one that was not decided in time did not."""
        future = self._asked[call_id]
        try:
            await asyncio.wait({future}, timeout=self._seconds)  # which leaves alone what is decided at the last moment
            if not future.done():
                future.set_result("expired")
            return future.result() == "approved"
        finally:
            self._close(call_id)

    def decide(self, call_id: str, approve: bool) -> None:
        """Decides one; the same decision again changes nothing.

        Raises:
            BadRequest: when nothing was asked about this call, it expired or was decided, or its turn was stopped.
        """
        earlier = self.of(call_id)
        decision: Decision = "approved" if approve else "declined"
        if earlier is None:
            message = "No call of this id waits for an approval in this turn."
            raise BadRequest(message, "call_id", code="not_found", status=404)
        if earlier == "asked" and self.closed:
            raise stopped_before()
        if earlier == "asked" and call_id in self._open:
            self._asked[call_id].set_result(decision)
            if approve:
                self._approved_at = time.monotonic()
        elif earlier in ("asked", "expired"):
            raise BadRequest("The time to approve this call is over.", "call_id", code="gone", status=410)
        elif earlier != decision:
            raise BadRequest(f"This call was {earlier} already.", "approve", code="decided", status=409)

    def _close(self, call_id: str) -> None:
        held = self.held
        self._open.remove(call_id)
        if not self._open:
            self._held = held
            if self.alarm is not None:
                self.alarm.go_on()
