"""The calls of a turn that wait for a person. Each is decided once, or expires."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from brain.errors import BadRequest
from brain.events import Approval
from brain.markers.neutralize import neutralize
from brain.messages import Call
from brain.plugins.context import Progress, Result
from brain.plugins.executor import Arguments, Dependencies, Failure, execute, plain_text
from brain.plugins.schema import find_injected
from brain.plugins.specialist import Specialist
from brain.text import escape_invisible
from brain.turn.deadline import Deadline

RACE_SECONDS = 0.1
"""Within this time, a request to stop the turn and an approval are one race, which the first of them wins.

Nobody presses two buttons one after the other so fast.
"""


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
        self._asked: dict[str, Call] = {}
        self._open: dict[str, asyncio.Future[None]] = {}
        self._held = 0.0
        self._since = 0.0  # when the first of those that are open was opened
        self.alarm: Deadline | None = None
        self.closed = False
        self._approved_at: float | None = None

    @property
    def just_approved(self) -> bool:
        """Whether a person approved a call a moment ago."""
        return self._approved_at is not None and time.monotonic() - self._approved_at < RACE_SECONDS

    @property
    def waiting(self) -> bool:
        """Whether a person is waited for."""
        return any(self._asked[call_id].approval == "asked" for call_id in self._open)

    @property
    def held(self) -> float:
        """Seconds for which the clock stood still so far."""
        return self._held + (time.monotonic() - self._since if self._open else 0.0)

    def open(self, call: Call) -> datetime:
        """Opens one; until when it can be decided (aware, UTC)."""
        if not self._open:
            self._since = time.monotonic()
            if self.alarm is not None:
                self.alarm.hold()
        self._open[call.id] = asyncio.get_running_loop().create_future()
        self._asked[call.id] = call
        call.approval = "asked"
        return datetime.now(UTC) + timedelta(seconds=self._seconds)

    async def decided(self, call: Call) -> bool:
        """Whether the person said yes, once it is known; one that was not decided in time did not."""
        try:
            await asyncio.wait({self._open[call.id]}, timeout=self._seconds)
            if call.approval == "asked":
                call.approval = "expired"
            return call.approval == "approved"
        finally:
            self._close(call.id)

    def decide(self, call_id: str, approve: bool) -> None:
        """Decides one; the same decision again changes nothing.

        Raises:
            BadRequest: when nothing was asked about this call, it expired or was decided, or its turn was stopped.
        """
        call = self._asked.get(call_id)
        decision: Approval = "approved" if approve else "declined"
        if call is None:
            message = "No call of this id waits for an approval in this turn."
            raise BadRequest(message, "call_id", code="not_found", status=404)
        earlier = call.approval
        if earlier == "asked" and self.closed:
            raise stopped_before()
        if earlier == "asked" and call_id in self._open:
            call.approval = decision
            self._open[call_id].set_result(None)
            if approve:
                self._approved_at = time.monotonic()
        elif earlier in ("asked", "expired"):
            raise BadRequest("The time to approve this call is over.", "call_id", code="gone", status=410)
        elif earlier != decision:
            raise BadRequest(f"This call was {earlier} already.", "approve", code="decided", status=409)

    def _close(self, call_id: str) -> None:
        held = self.held
        del self._open[call_id]
        if not self._open:
            self._held = held
            if self.alarm is not None:
                self.alarm.go_on()


GATHERING_SECONDS = 1.0
"""How long a call waits for further ones of its pass before a person is asked."""


@dataclass(slots=True, eq=False)
class PendingApproval:
    """What a person is asked before a call runs.

    Attributes:
        known: that it is known what the call would do.
        over: that the person was asked, or need not be.
    """

    known: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class PendingApprovals:
    """Those of one pass.

    Args:
        all_taken: that no more calls will come.
    """

    def __init__(self, all_taken: asyncio.Event) -> None:
        self._all_taken = all_taken
        self._inquiries: list[PendingApproval] = []

    def add(self) -> PendingApproval:
        """One more, before any call that is taken later has its own."""
        inquiry = PendingApproval()
        self._inquiries.append(inquiry)
        return inquiry

    @property
    def are_over(self) -> bool:
        """Whether none is still to be asked about."""
        return all(inquiry.over.is_set() for inquiry in self._inquiries)

    async def previewed(
        self, inquiry: PendingApproval, preview: Awaitable[Result | Failure | None]
    ) -> Result | Failure | None:
        """What a call would do, as soon as it is its turn to be asked about; at once when it is refused."""
        latest = asyncio.get_running_loop().time() + GATHERING_SECONDS
        try:
            found = await preview
        finally:
            inquiry.known.set()
        if isinstance(found, Failure):
            return found
        with suppress(TimeoutError):
            async with asyncio.timeout_at(latest):
                await self._all_taken.wait()
        inquiries = [*self._inquiries]
        for other in inquiries:
            await other.known.wait()
        for earlier in inquiries[: inquiries.index(inquiry)]:
            await earlier.over.wait()
        return found


SECONDS = 2.0
"""How long a person waits for it at most; then the parameters alone are shown."""
LINES_MOST = 10
LENGTH_MOST = 2_000

log = logging.getLogger("brain")


async def preview(
    specialist: Specialist[..., Any], params: Mapping[str, Any], provided: Dependencies, *, timeout: float
) -> Result | Failure | None:
    """What a call with these parameters would do, or that it is refused; None where nothing is said of it."""
    if specialist.preview is None:
        return None
    asked = replace(
        specialist, function=specialist.preview, injected=find_injected(specialist.preview), idle_timeout=None
    )
    own = Arguments((deepcopy(dict(params)),), {})  # what it changes is its own
    found = await execute(asked, own, provided, _untold, timeout=timeout, read=_read)
    if isinstance(found, Failure):
        if found.code == "refused":
            return found
        log.warning("specialist %s: it does not say what a call would do (%s)", specialist.name, found.code)
        return None
    return found if found.text.strip() else None


def shown(found: Result) -> str:
    """Its text, in which nothing is hidden, or looks like more than it is: a few lines, cut to size."""
    head = found.text[: 2 * LENGTH_MOST]
    words = [line.split() for line in head.splitlines()]
    lines = [escape_invisible(neutralize(" ".join(line))) for line in words if line]
    text = "\n".join(lines[:LINES_MOST])
    is_whole = len(head) == len(found.text) and len(lines) <= LINES_MOST and len(text) <= LENGTH_MOST
    return text if is_whole else f"{text[: LENGTH_MOST - 1]}…"


def _untold(progress: Progress) -> None:
    """Nobody waits for it so long."""


def _read(value: Any) -> Result:
    if isinstance(value, Result):
        return replace(value, text=plain_text(value.text))
    return Result("" if value is None else plain_text(value))
