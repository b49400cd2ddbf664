"""Rooms: one call, from where it was taken on to its block: how it stands, and what is told of it."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from brain import blocks
from brain.context import Progress
from brain.events import Approval, SpecialistError, SpecialistProgress, SpecialistResult
from brain.inquiries import Inquiry
from brain.messages import Called
from brain.report import CallReport
from brain.running import Answer, Outcome
from brain.template_tokens import ControlTokens

PROGRESS_SECONDS = 0.05
"""Progress of one call is told at most so often, and not twice the same; what comes in between is left out."""

By = Literal["model", "auto"]


@dataclass(slots=True)
class OpenCall:
    """A call that was taken on; `began` is set again when a person let it run, `part` when it is over."""

    call_id: str
    name: str
    params: Mapping[str, Any] | None
    marker: str
    by: By
    turn_pass: int
    taken: float
    began: float
    outcome: "asyncio.Future[Outcome]"
    cached: bool = False
    handed: bool = False
    ended: float | None = None
    part: Called | None = None
    task: "asyncio.Task[None] | None" = None
    told: Progress | None = None
    told_at: float = 0.0
    inquiry: Inquiry | None = None

    @property
    def approval(self) -> Approval | None:
        """What came of asking a person, if one was asked."""
        return None if self.inquiry is None else self.inquiry.decision

    def progressed(self, progress: Progress) -> SpecialistProgress | None:
        """What is told of it; None when it is not: too soon, the same again, or over."""
        now = time.monotonic()
        if self.part is not None or now - self.told_at < PROGRESS_SECONDS or progress == self.told:
            return None
        self.told_at, self.told = now, progress
        return SpecialistProgress(self.call_id, progress.text, progress.fraction)

    def ending(
        self, outcome: Outcome, block_bytes: int, tokens: ControlTokens, outside: bool
    ) -> tuple[SpecialistResult | SpecialistError, Called]:
        """How it ended: as it is told, and as it stands in the answer, with its block."""
        how = self.cached, _milliseconds(time.monotonic() - self.began), self.approval
        event: SpecialistResult | SpecialistError
        if isinstance(outcome, Answer):
            text = blocks.result_text(outcome.text, block_bytes, outcome.more, tokens)
            block, code, citations = blocks.result_block(self.name, text), None, outcome.citations
            event = SpecialistResult(self.call_id, self.name, self.params or {}, text, citations, *how)
        else:
            reason = blocks.reason_text(outcome.reason, tokens)
            block, code, citations = blocks.error_block(self.name, reason), outcome.code, ()
            event = SpecialistError(self.call_id, self.name, self.params, outcome.code, reason, *how[1:])
        about = self.call_id, self.name, self.params, self.marker
        return event, Called(*about, code, block, citations, self.turn_pass, outside, *how)

    def report(self, turn_began: float) -> CallReport:
        """How it stands with the call."""
        return CallReport(
            self.call_id,
            self.name,
            self.params,
            "client" if self.handed else self.by,
            self.turn_pass,
            began_ms=_milliseconds(self.taken - turn_began),
            ms=None if self.ended is None else _milliseconds(self.ended - self.began),
            outcome=None if self.part is None else (self.part.outcome or "ok"),
            cached=self.cached,
            approval=self.approval,
            preview=None if self.inquiry is None else self.inquiry.text,
        )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
