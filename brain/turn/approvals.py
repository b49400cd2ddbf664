"""Approvals: the calls of a turn that wait for a person. A person decides each call once, or it expires."""

import asyncio
import logging
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from brain.errors import BadRequest
from brain.markers.neutralize import neutralize
from brain.messages import Call
from brain.plugins.context import Result
from brain.plugins.executor import Failure, plain_text, run
from brain.plugins.schema import find_injected, inject
from brain.plugins.specialist import Specialist
from brain.text import escape_invisible
from brain.turn.deadline import Deadline

RACE_SECONDS = 0.1
"""If an approval and a request to stop the turn arrive within this time, the first one wins.

No person presses two buttons on purpose that fast.
"""
PREVIEW_SECONDS = 2.0
"""Time limit for a preview. After it, the person sees the parameters alone."""
MAX_PREVIEW_LENGTH = 20_000
"""Characters of a preview. A person sees all of them, so a call with a longer preview is declined."""

log = logging.getLogger("brain")


def stopped_before() -> BadRequest:
    """Return the error for a decision that comes after its turn was stopped."""
    message = "The turn was stopped first, so this call does not run."
    return BadRequest(message, "call_id", code="cancelled", status=409)


class Approvals:
    """The approval requests and decisions of one turn. Open requests pause the turn's deadline.

    Args:
        seconds: Time limit for a decision.

    Attributes:
        deadline: Deadline of the turn while it runs.
        is_closed: Whether the turn was stopped. No call may start after that.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline: Deadline | None = None
        self.is_closed = False
        self._calls: dict[str, Call] = {}
        self._open: dict[str, asyncio.Future[None]] = {}
        self._approved_at: float | None = None

    @property
    def has_just_approved(self) -> bool:
        """Whether a person approved a call within the last `RACE_SECONDS`."""
        return self._approved_at is not None and time.monotonic() - self._approved_at < RACE_SECONDS

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for a decision."""
        return any(self._calls[call_id].approval == "asked" for call_id in self._open)

    def open(self, call: Call) -> datetime:
        """Request approval of a call. Return when the request expires (aware, UTC)."""
        if not self._open and self.deadline is not None:
            self.deadline.pause()
        self._open[call.id] = asyncio.get_running_loop().create_future()
        self._calls[call.id] = call
        call.approval = "asked"
        return datetime.now(UTC) + timedelta(seconds=self.seconds)

    async def wait(self, call: Call) -> bool:
        """Wait for the decision about an opened call. Return whether it was approved in time."""
        await asyncio.wait({self._open[call.id]}, timeout=self.seconds)
        if call.approval == "asked":
            call.approval = "expired"
        return call.approval == "approved"

    def close(self, call: Call) -> None:
        """Stop waiting for a call."""
        if self._open.pop(call.id, None) is not None and not self._open and self.deadline is not None:
            self.deadline.resume()

    def decide(self, call_id: str, approve: bool) -> None:
        """Approve or decline a call. Repeating a decision changes nothing.

        Raises:
            BadRequest: The call needs no approval, has expired or was decided differently, or the turn was stopped.
        """
        call = self._calls.get(call_id)
        if call is None:
            message = "No call with this ID waits for approval in this turn."
            raise BadRequest(message, "call_id", code="not_found", status=404)
        if call.approval == "asked" and self.is_closed:
            raise stopped_before()
        if call.approval == "asked" and call_id in self._open:
            call.approval = "approved" if approve else "declined"
            self._open[call_id].set_result(None)
            if approve:
                self._approved_at = time.monotonic()
        elif call.approval in ("asked", "expired"):
            message = f"This call could be approved for {self.seconds:g} seconds. That time has passed."
            raise BadRequest(message, "call_id", code="gone", status=410)
        elif call.approval != ("approved" if approve else "declined"):
            raise BadRequest(f"This call was already {call.approval}.", "approve", code="decided", status=409)


async def make_preview(
    specialist: Specialist[..., Any], params: Mapping[str, Any], dependencies: Mapping[type, Any], seconds: float
) -> Result | Failure | None:
    """Return a preview of a call, or its refusal. Return None if there is no preview within `seconds`."""
    if specialist.preview is None:
        return None
    injected = inject(find_injected(specialist.preview), dependencies)
    function = partial(specialist.preview, deepcopy(dict(params)), **injected)  # it may change the parameters
    preview = await run(specialist.name, function, _read_preview, lambda progress: None, timeout=seconds)
    if isinstance(preview, Failure):
        if preview.code == "refused":
            return preview
        log.warning("specialist %s: its preview failed (%s)", specialist.name, preview.code)
        return None
    return preview if preview.text.strip() else None


def _read_preview(value: Any) -> Result:
    if isinstance(value, Result):
        return replace(value, text=plain_text(value.text))
    return Result("" if value is None else plain_text(value))


def preview_text(preview: Result) -> str:
    """Return a preview for people, with invisible characters made visible. It is too long if the original is."""
    if len(preview.text) > MAX_PREVIEW_LENGTH:
        return preview.text
    words = [line.split() for line in preview.text.splitlines()]
    return "\n".join(escape_invisible(neutralize(" ".join(line))) for line in words if line)
