"""Counts the tokens and milliseconds of a turn. The model server counts tokens; otherwise bytes give an estimate.

Bytes estimate better than characters: one token is about four English letters, or one Chinese character of three bytes.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from brain.events import ModelUsage, StopReason, Usage
from brain.messages import Message, PassRecord, PassUsage, RoundRecord
from brain.models.model import Model
from brain.text import estimate_tokens, utf8_size

NOTHING = ModelUsage(0, 0, None, False)


class Accounting:
    """The times and tokens of one turn.

    Args:
        rounds: The rounds of the strategy so far.

    Attributes:
        began: Start on the `time.monotonic` clock, in seconds.
        passes: Finished passes.
        usage: Sum of their tokens.
        first_token_ms: Milliseconds to the first visible text, if any.
        is_prefill_refused: Whether the server refused to continue the started answer in the current pass.
        are_tools_refused: Whether it refused tools in the current pass.
    """

    def __init__(self, rounds: Sequence[RoundRecord]) -> None:
        self.began = time.monotonic()
        self.passes: list[PassRecord] = []
        self.usage = Usage(0, 0, None, False)
        self._rounds = rounds
        self._model = ""  # of the current pass
        self._pass_began = self.began
        self._passes_by_model: Counter[int] = Counter()
        self._earlier: Counter[str] = Counter()  # passes of an interrupted turn, by the names of their models
        self._models: dict[str, ModelUsage] = {}
        self.first_token_ms: int | None = None
        self.is_prefill_refused = False
        self.are_tools_refused = False
        self._prompt_bytes = 0  # of the newest pass
        self._text_bytes = 0
        self._reported: PassUsage | None = None
        self._is_final = False  # Brain read the newest pass to its end

    def resume(self, passes: Sequence[PassRecord], last: int) -> None:
        """Continue after earlier passes of an interrupted turn; up to number `last`, whose record may be missing."""
        self._earlier.update(one.model for one in passes)
        lost = range(len(passes) + 1, last + 1)
        self.passes = [replace(one, finish=one.finish or "cancelled") for one in passes]
        self.passes += [PassRecord(n, 0, None, 0, 0, 0, None, True, "cancelled") for n in lost]

    def milliseconds(self, moment: float | None = None) -> int:
        """Return the milliseconds from the start of the turn to a `time.monotonic` value (default: now)."""
        return round(((time.monotonic() if moment is None else moment) - self.began) * 1000)

    def record_first_text(self) -> None:
        """Record that text of the answer is shown now."""
        if self.first_token_ms is None:
            self.first_token_ms = self.milliseconds()

    def begin_pass(self, model: Model) -> int:
        """Start to count a pass of a model. Return the number of its earlier ones."""
        self._model = model.name
        self._pass_began = time.monotonic()
        self._passes_by_model[id(model)] += 1
        return self._earlier[model.name] + self._passes_by_model[id(model)] - 1

    def begin_request(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """Start to count a request with these messages and tools."""
        self._prompt_bytes = sum(utf8_size(text) for message in messages for text in message.texts)
        self._prompt_bytes += len(msgspec.json.encode(tools)) if tools else 0
        self._text_bytes = 0
        self._reported, self._is_final = None, False

    def cancel_request(self) -> None:
        """Count nothing for a request that the server refused."""
        self._prompt_bytes = 0
        self._reported, self._is_final = PassUsage(0, 0), True

    def add_text(self, text: str) -> None:
        """Count text from the model."""
        self._text_bytes += len(text) if text.isascii() else utf8_size(text)

    def set_usage(self, usage: PassUsage) -> None:
        """Record the usage that the server reported for the pass, partial or final.

        A last report of zeros, as some servers send, does not replace real counts.
        """
        if (last := self._reported) is not None:
            reused = last.reused if usage.reused is None else usage.reused
            usage = PassUsage(usage.prompt or last.prompt, usage.completion or last.completion, reused)
        self._reported = usage if usage.prompt or usage.completion else None

    def mark_final(self) -> None:
        """Record that the model finished the pass by itself."""
        self._is_final = True

    def make_record(
        self, first_text: float | None, ended_ms: int | None = None, finish: StopReason | None = None
    ) -> PassRecord:
        """Return the record of the current pass.

        If Brain cut the pass short, the server's last count lacks the text after it, so the count is estimated.

        Args:
            first_text: Time of its first text on the `time.monotonic` clock, in seconds.
        """
        usage = self._reported
        is_estimated = usage is None or not self._is_final
        if is_estimated:
            prompt, completion = estimate_tokens(self._prompt_bytes), estimate_tokens(self._text_bytes)
            usage = usage or PassUsage(prompt, completion)
            usage = PassUsage(usage.prompt or prompt, max(usage.completion, completion), usage.reused)
        assert usage is not None
        return PassRecord(
            number=len(self.passes) + 1,
            began_ms=self.milliseconds(self._pass_began),
            first_token_ms=None if first_text is None else self.milliseconds(first_text),
            ended_ms=ended_ms,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            reused_tokens=usage.reused,
            estimated=is_estimated,
            finish=finish,
            model=self._model,
            round=len(self._rounds),
            is_prefill_refused=self.is_prefill_refused,
            are_tools_refused=self.are_tools_refused,
        )

    def end_pass(self, first_text: float | None, finish: StopReason) -> None:
        """Record a finished pass. See `make_record` for the arguments."""
        record = self.make_record(first_text, self.milliseconds(), finish)
        self._models[self._model] = _add(self._models.get(self._model, NOTHING), record)
        total = _add(self.usage, record)
        models = self._models if len(self._models) > 1 else None
        self.usage = Usage(total.prompt_tokens, total.completion_tokens, total.reused_tokens, total.estimated, models)
        self._reported = None
        self.is_prefill_refused = self.are_tools_refused = False
        if self.first_token_ms is None:
            self.first_token_ms = record.first_token_ms
        self.passes.append(record)

    def update_last_pass(self, **changes: Any) -> None:
        """Change fields of the record of the last pass, if there is one."""
        if self.passes:
            self.passes[-1] = replace(self.passes[-1], **changes)

    def count_exchange(self, prompt_bytes: int, block_bytes: int) -> int:
        """Return the prompt tokens of the newest exchange, from the server's count of the last pass.

        Args:
            prompt_bytes: Size of the exchange in the request of the pass.
            block_bytes: Size of the blocks after it, which no pass has read.

        Returns:
            The token count, or 0 if the server did not count.
        """
        last = self.passes[-1]
        if last.estimated or not self._prompt_bytes:
            return 0
        share = last.prompt_tokens * prompt_bytes / self._prompt_bytes
        return round(share) + last.completion_tokens + estimate_tokens(block_bytes)


def _add(usage: ModelUsage, record: PassRecord) -> ModelUsage:
    """Return the usage with the tokens of one more pass."""
    reused = usage.reused_tokens
    if record.reused_tokens is not None:
        reused = (reused or 0) + record.reused_tokens
    return ModelUsage(
        usage.prompt_tokens + record.prompt_tokens,
        usage.completion_tokens + record.completion_tokens,
        reused,
        usage.estimated or record.estimated,
    )
