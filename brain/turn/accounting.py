"""How many tokens and milliseconds a turn takes. Tokens are as the server counted them, or estimated from bytes.

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


class TokenCount:
    """Tokens of all passes of a turn.

    Attributes:
        prompt_bytes: of the messages of the newest pass.
    """

    def __init__(self) -> None:
        self.prompt_bytes = 0
        self._prompt = self._completion = 0
        self._reused: int | None = None
        self._is_estimated = False
        self._text_bytes = 0
        self._of_pass: PassUsage | None = None
        self._is_final = False  # the pass was read to its end

    def begin_request(self, messages: Sequence[Message]) -> None:
        """The model is asked with these messages."""
        self.prompt_bytes = sum(utf8_size(message.content) for message in messages)
        self._text_bytes = 0
        self._of_pass, self._is_final = None, False

    def add_text(self, text: str) -> None:
        """The model wrote this text."""
        self._text_bytes += len(text) if text.isascii() else utf8_size(text)

    def set_usage(self, usage: PassUsage) -> None:
        """The server reported the usage of the pass, so far or in all."""
        self._of_pass = usage

    def mark_final(self) -> None:
        """The model finished the pass by itself."""
        self._is_final = True

    def snapshot(self) -> tuple[PassUsage, bool]:
        """Return the usage of the pass so far, and whether any of it is estimated.

        A count of a pass that was cut short is from before the cut: it lacks what the model wrote since.
        """
        counted = self._of_pass
        if counted is not None and self._is_final:
            return counted, False
        prompt, completion = estimate_tokens(self.prompt_bytes), estimate_tokens(self._text_bytes)
        if counted is None:
            return PassUsage(prompt, completion), True
        return PassUsage(counted.prompt or prompt, max(counted.completion, completion), counted.reused), True

    def end_pass(self) -> tuple[PassUsage, bool]:
        """Add the pass to the total; return its usage, and whether any of it is estimated."""
        usage, is_estimated = self.snapshot()
        self._of_pass = None
        self._is_estimated = self._is_estimated or is_estimated
        self._prompt += usage.prompt
        self._completion += usage.completion
        if usage.reused is not None:
            self._reused = (self._reused or 0) + usage.reused
        return usage, is_estimated

    def total(self) -> Usage:
        """Return the sum over the passes so far."""
        return Usage(self._prompt, self._completion, self._reused, self._is_estimated)


class Accounting:
    """The times and tokens of one turn.

    Attributes:
        began: on the clock of `time.monotonic`, in seconds; `began_at` in UTC.
        passes: those that ended.
        first_token_ms: when the first visible text came, if any did.
    """

    __slots__ = ("began", "began_at", "first_token_ms", "passes", "tokens")

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.began_at = datetime.now(UTC)
        self.tokens = TokenCount()
        self.passes: list[PassReport] = []
        self.first_token_ms: int | None = None

    @property
    def usage(self) -> Usage:
        """The tokens of all passes that ended."""
        return self.tokens.total()

    def milliseconds_at(self, moment: float) -> int:
        """Return the milliseconds from the beginning of the turn to this moment of `time.monotonic`."""
        return round((moment - self.began) * 1000)

    def milliseconds(self) -> int:
        """Return the milliseconds since the turn began."""
        return self.milliseconds_at(time.monotonic())

    def end_pass(self, began: float, first_text: float | None, finish: StopReason) -> None:
        """Record a finished pass.

        Args:
            began, first_text: on the clock of `time.monotonic`, in seconds.
        """
        report = self._report(began, first_text, *self.tokens.end_pass())
        if self.first_token_ms is None:
            self.first_token_ms = report.first_token_ms
        self.passes.append(replace(report, ended_ms=self.milliseconds(), finish=finish))

    def count_exchange(self, prompt_bytes: int, block_bytes: int) -> int:
        """Return the tokens that the newest exchange takes of a prompt, by the server's count of the last pass.

        Args:
            prompt_bytes: of the exchange, as the pass was asked with it.
            block_bytes: of the blocks after it, which no pass has read.

        Returns:
            0 where the server did not count.
        """
        last = self.passes[-1]
        if last.estimated or not self.tokens.prompt_bytes:
            return 0
        share = last.prompt_tokens * prompt_bytes / self.tokens.prompt_bytes
        return round(share) + last.completion_tokens + estimate_tokens(block_bytes)

    def report_running(self, began: float, first_text: float | None) -> PassReport:
        """Return what is known of the pass that is running."""
        return self._report(began, first_text, *self.tokens.snapshot())

    def _report(self, began: float, first_text: float | None, usage: PassUsage, is_estimated: bool) -> PassReport:
        return PassReport(
            number=len(self.passes) + 1,
            began_ms=self.milliseconds_at(began),
            first_token_ms=None if first_text is None else self.milliseconds_at(first_text),
            ended_ms=None,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            reused_tokens=usage.reused,
            estimated=is_estimated,
            finish=None,
        )

    def set_finish(self, reason: StopReason) -> None:
        """The turn was stopped in its last pass, if it had any."""
        if self.passes:
            self.passes[-1] = replace(self.passes[-1], finish=reason)

    def set_error(self, code: ErrorCode) -> None:
        """The turn failed in its last pass, if it had any."""
        if self.passes:
            self.passes[-1] = replace(self.passes[-1], error=code)
