"""Rooms: what a person is asked about the calls of one pass: together, and in the order of the requests."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field

from brain.approvals import Approvals
from brain.context import Result
from brain.events import Approval
from brain.running import Failure

GATHERING_SECONDS = 1.0
"""How long a call waits for further ones of its pass before a person is asked."""


@dataclass(slots=True, eq=False)
class Inquiry:
    """What a person is asked before a call runs.

    Attributes:
        known: that it is known what the call would do.
        over: that the person was asked, or need not be.
        text: what they were told.
    """

    call_id: str
    approvals: Approvals
    known: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    text: str | None = None

    @property
    def decision(self) -> Approval | None:
        """How it stands with it; None before it is asked."""
        return self.approvals.of(self.call_id)


class Inquiries:
    """Those of one pass.

    Args:
        all_taken: that no more calls will come.
    """

    def __init__(self, approvals: Approvals, all_taken: asyncio.Event) -> None:
        self._approvals = approvals
        self._all_taken = all_taken
        self._inquiries: list[Inquiry] = []

    def add(self, call_id: str) -> Inquiry:
        """One more, before any call that is taken later has its own."""
        inquiry = Inquiry(call_id, self._approvals)
        self._inquiries.append(inquiry)
        return inquiry

    async def previewed(self, inquiry: Inquiry, preview: Awaitable[Result | Failure | None]) -> Result | Failure | None:
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
