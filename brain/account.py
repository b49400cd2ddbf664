"""Core: what a turn took so far: its passes, their tokens, the time."""

import time
from dataclasses import replace
from datetime import UTC, datetime

from brain.events import ErrorCode, StopReason, Usage
from brain.messages import PassUsage
from brain.report import PassReport
from brain.usage import Counted, estimated


class Account:
    """One turn's.

    Attributes:
        began: when, as `time.monotonic` tells it; `began_at` in UTC.
        tokens: those of the pass that runs, and of all before it.
        passes: those that ended.
        first_token_ms: when the first visible text came, if any did.
    """

    __slots__ = ("began", "began_at", "first_token_ms", "passes", "tokens")

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.began_at = datetime.now(UTC)
        self.tokens = Counted()
        self.passes: list[PassReport] = []
        self.first_token_ms: int | None = None

    @property
    def usage(self) -> Usage:
        """The tokens of all passes that ended."""
        return self.tokens.total()

    def since(self, moment: float) -> int:
        """Milliseconds of the turn at this moment of `time.monotonic`."""
        return round((moment - self.began) * 1000)

    def now(self) -> int:
        """Milliseconds since the turn began."""
        return self.since(time.monotonic())

    def take(self, began: float, first_text: float | None, finish: StopReason) -> None:
        """A pass ended, however it did."""
        taken, estimated = self.tokens.pass_ended()
        one = self._pass(began, first_text, taken, estimated)
        if self.first_token_ms is None:
            self.first_token_ms = one.first_token_ms
        self.passes.append(replace(one, ended_ms=self.now(), finish=finish))

    def tokens_of(self, asked: int, unread: int) -> int:
        """What the newest exchange takes of a prompt, by the server's own count of the last pass; 0 without one.

        Args:
            asked: the bytes of the exchange that the pass was asked with; `unread`, those of the blocks behind it.
        """
        last = self.passes[-1]
        if last.estimated or not self.tokens.asked_bytes:
            return 0
        share = last.prompt_tokens * asked / self.tokens.asked_bytes
        return round(share) + last.completion_tokens + estimated(unread)

    def running(self, began: float, first_text: float | None) -> PassReport:
        """The pass that runs; what it took so far is estimated."""
        return self._pass(began, first_text, *self.tokens.so_far())

    def _pass(self, began: float, first_text: float | None, taken: PassUsage, estimated: bool) -> PassReport:
        return PassReport(
            number=len(self.passes) + 1,
            began_ms=self.since(began),
            first_token_ms=None if first_text is None else self.since(first_text),
            ended_ms=None,
            prompt_tokens=taken.prompt,
            completion_tokens=taken.completion,
            reused_tokens=taken.reused,
            estimated=estimated,
            finish=None,
        )

    def cut(self, reason: StopReason) -> None:
        """The turn was ended in its last pass, if it had any."""
        if self.passes:
            self.passes[-1] = replace(self.passes[-1], finish=reason)

    def fail(self, code: ErrorCode) -> None:
        """The turn failed in its last pass, if it had any."""
        if self.passes:
            self.passes[-1] = replace(self.passes[-1], error=code)
