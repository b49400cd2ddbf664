"""How many tokens a turn takes, as the server counted them or estimated from the bytes of the texts.

Bytes and not characters: a Chinese character is about a token, as three bytes nearly are; four letters of English are
one too.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from brain.events import ErrorCode, StopReason, Usage
from brain.messages import Message, PassReport, PassUsage
from brain.text import estimate_tokens, utf8_size


class Counted:
    """Tokens over all passes of a turn."""

    def __init__(self) -> None:
        self._prompt = self._completion = 0
        self._reused: int | None = None
        self._estimated = False
        self._asked_bytes = self._heard_bytes = 0
        self._of_pass: PassUsage | None = None
        self._is_whole = False  # whether the pass was read to its end, so that its count is final

    def asked(self, messages: Sequence[Message]) -> None:
        """A pass begins with these messages."""
        self._asked_bytes = sum(utf8_size(message.content) for message in messages)
        self._heard_bytes = 0
        self._of_pass, self._is_whole = None, False

    @property
    def asked_bytes(self) -> int:
        """What the pass was asked with."""
        return self._asked_bytes

    def heard(self, text: str) -> None:
        """The model said this in the pass."""
        self._heard_bytes += len(text) if text.isascii() else utf8_size(text)

    def counted(self, usage: PassUsage) -> None:
        """The server told what the pass took, so far or in all."""
        self._of_pass = usage

    def read_whole(self) -> None:
        """The model finished the pass by itself."""
        self._is_whole = True

    def snapshot(self) -> tuple[PassUsage, bool]:
        """What the pass took so far, and whether any of it is estimated.

        A count of a pass that was cut short is one of before the cut: it lacks what the model wrote since.
        """
        counted = self._of_pass
        if counted is not None and self._is_whole:
            return counted, False
        prompt, completion = estimate_tokens(self._asked_bytes), estimate_tokens(self._heard_bytes)
        if counted is None:
            return PassUsage(prompt, completion), True
        return PassUsage(counted.prompt or prompt, max(counted.completion, completion), counted.reused), True

    def pass_ended(self) -> tuple[PassUsage, bool]:
        """The pass is over, however it ended: what it took, and whether that is estimated."""
        usage, estimate_tokens = self.snapshot()
        self._of_pass = None
        self._estimated = self._estimated or estimate_tokens
        self._prompt += usage.prompt
        self._completion += usage.completion
        if usage.reused is not None:
            self._reused = (self._reused or 0) + usage.reused
        return usage, estimate_tokens

    def total(self) -> Usage:
        """The sum over the passes so far."""
        return Usage(self._prompt, self._completion, self._reused, self._estimated)


class Accounting:
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
        taken, estimate_tokens = self.tokens.pass_ended()
        one = self._pass(began, first_text, taken, estimate_tokens)
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
        return round(share) + last.completion_tokens + estimate_tokens(unread)

    def running(self, began: float, first_text: float | None) -> PassReport:
        """The pass that runs; what it took so far is estimated."""
        return self._pass(began, first_text, *self.tokens.snapshot())

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
