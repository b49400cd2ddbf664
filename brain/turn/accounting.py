"""How many tokens and milliseconds a turn takes. Tokens are as the server counted them, or estimated from bytes.

Bytes and not characters: a Chinese character is about a token, as three bytes nearly are; four letters of English are
one too.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from brain.events import StopReason, Usage
from brain.messages import Message, PassReport, PassUsage
from brain.text import estimate_tokens, utf8_size


class Accounting:
    """The times and tokens of one turn.

    Attributes:
        began: on the clock of `time.monotonic`, in seconds; `began_at` in UTC.
        passes: those that ended; `usage` sums their tokens.
        first_token_ms: when the first visible text came, if any did.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.began_at = datetime.now(UTC)
        self.passes: list[PassReport] = []
        self.usage = Usage(0, 0, None, False)
        self.first_token_ms: int | None = None
        self._prompt_bytes = 0  # of the newest pass
        self._text_bytes = 0
        self._reported: PassUsage | None = None
        self._is_final = False  # the newest pass was read to its end

    def milliseconds(self, moment: float | None = None) -> int:
        """Return the milliseconds from the beginning of the turn until now, or to a moment of `time.monotonic`."""
        return round(((time.monotonic() if moment is None else moment) - self.began) * 1000)

    def begin_request(self, messages: Sequence[Message]) -> None:
        """The model is asked with these messages."""
        self._prompt_bytes = sum(utf8_size(message.content) for message in messages)
        self._text_bytes = 0
        self._reported, self._is_final = None, False

    def add_text(self, text: str) -> None:
        """The model wrote this text."""
        self._text_bytes += len(text) if text.isascii() else utf8_size(text)

    def set_usage(self, usage: PassUsage) -> None:
        """The server reported the usage of the pass, so far or in all."""
        self._reported = usage

    def mark_final(self) -> None:
        """The model finished the pass by itself."""
        self._is_final = True

    def report_pass(self, began: float, first_text: float | None) -> PassReport:
        """Return what is known of the pass that is running.

        What the server reported of a pass that was cut short is from before the cut: it lacks what the model wrote
        since.

        Args:
            began, first_text: on the clock of `time.monotonic`, in seconds.
        """
        usage = self._reported
        is_estimated = usage is None or not self._is_final
        if is_estimated:
            prompt, completion = estimate_tokens(self._prompt_bytes), estimate_tokens(self._text_bytes)
            usage = usage or PassUsage(prompt, completion)
            usage = PassUsage(usage.prompt or prompt, max(usage.completion, completion), usage.reused)
        assert usage is not None
        return PassReport(
            number=len(self.passes) + 1,
            began_ms=self.milliseconds(began),
            first_token_ms=None if first_text is None else self.milliseconds(first_text),
            ended_ms=None,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            reused_tokens=usage.reused,
            estimated=is_estimated,
            finish=None,
        )

    def end_pass(self, began: float, first_text: float | None, finish: StopReason) -> None:
        """Record a finished pass; for the arguments, see `report_pass`."""
        report, total = self.report_pass(began, first_text), self.usage
        reused = total.reused_tokens
        if report.reused_tokens is not None:
            reused = (reused or 0) + report.reused_tokens
        self.usage = Usage(
            total.prompt_tokens + report.prompt_tokens,
            total.completion_tokens + report.completion_tokens,
            reused,
            total.estimated or report.estimated,
        )
        self._reported = None
        if self.first_token_ms is None:
            self.first_token_ms = report.first_token_ms
        self.passes.append(replace(report, ended_ms=self.milliseconds(), finish=finish))

    def update_last_pass(self, **changes: Any) -> None:
        """Change fields of the report of the last pass, if there was one."""
        if self.passes:
            self.passes[-1] = replace(self.passes[-1], **changes)

    def count_exchange(self, prompt_bytes: int, block_bytes: int) -> int:
        """Return the tokens that the newest exchange takes of a prompt, by the server's count of the last pass.

        Args:
            prompt_bytes: of the exchange, as the pass was asked with it.
            block_bytes: of the blocks after it, which no pass has read.

        Returns:
            0 where the server did not count.
        """
        last = self.passes[-1]
        if last.estimated or not self._prompt_bytes:
            return 0
        share = last.prompt_tokens * prompt_bytes / self._prompt_bytes
        return round(share) + last.completion_tokens + estimate_tokens(block_bytes)
