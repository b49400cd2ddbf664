"""Stops a turn at its time limit, and a pass whose model sends nothing for too long."""

import asyncio
import math
from collections.abc import Callable

from brain.events import Limits

ANSWER_SHARE = 0.25
MAX_ANSWER_SECONDS = 60.0
"""Time reserved for the answer after the last call: a share of the turn's time limit, and its maximum."""


def seconds_for_calls(limits: Limits) -> float:
    """Return the seconds from the start of a turn until its calls end. The rest is reserved for the answer."""
    seconds = limits.turn_seconds - min(limits.turn_seconds * ANSWER_SHARE, MAX_ANSWER_SECONDS)
    return seconds if limits.step_seconds is None else min(seconds, limits.step_seconds)


class Deadline:
    """The deadline timer of one turn. One timer re-arms itself when it fires early, so reads schedule nothing.

    Args:
        on_end: Called once, at the time limit of the turn.
        on_silence: Called with the exceeded limit, in seconds.
        on_answer_time: Called once, when only the time for the answer is left.
        silence: Longest time between two reads from the model, in seconds.
        first_token: Longest time to the first token of a pass, in seconds. None means `silence`.
    """

    __slots__ = (
        "_ends_at", "_first_token", "_loop", "_on_answer_time", "_on_end", "_on_silence", "_paused_at", "_reserved",
        "_silence", "_silence_limit", "_silent_at", "_timer",
    )  # fmt: skip

    def __init__(
        self,
        limits: Limits,
        on_end: Callable[[], None],
        on_silence: Callable[[float], None] = lambda seconds: None,
        *,
        silence: float = math.inf,
        first_token: float | None = None,
        on_answer_time: Callable[[], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_end, self._on_silence, self._on_answer_time = on_end, on_silence, on_answer_time
        self._silence = silence
        self._first_token = silence if first_token is None else first_token
        self._ends_at = self._loop.time() + limits.turn_seconds
        self._reserved = limits.turn_seconds - seconds_for_calls(limits)
        self._paused_at: float | None = None
        self._silent_at = math.inf
        self._silence_limit = math.inf  # that ends at `_silent_at`
        self._set_timer()

    def expect_first_token(self) -> None:
        """Start the time limit for the first token."""
        self._silence_limit = self._first_token
        self._silent_at = self._loop.time() + self._first_token

    def expect_next_token(self) -> None:
        """Start the time limit for the next token."""
        self._silence_limit = self._silence
        self._silent_at = self._loop.time() + self._silence

    def expect_nothing(self) -> None:
        """Stop the time limit for tokens."""
        self._silent_at = math.inf

    def pause(self) -> None:
        """Stop the clock while a person decides."""
        self._paused_at = self._loop.time()

    def resume(self) -> None:
        """Restart the clock."""
        assert self._paused_at is not None
        self._ends_at += self._loop.time() - self._paused_at
        self._paused_at = None

    def seconds_left(self) -> float:
        """Return the seconds until the turn stops."""
        return self._ends_at - (self._loop.time() if self._paused_at is None else self._paused_at)

    def call_seconds_left(self) -> float:
        """Return the seconds until calls stop, which leaves time for the answer."""
        now = self._loop.time() if self._paused_at is None else self._paused_at
        return self._ends_at - now - self._reserved

    def close(self) -> None:
        """Stop the timer, and free what the callbacks refer to."""
        self._timer.cancel()
        self._on_end, self._on_silence, self._on_answer_time = lambda: None, lambda seconds: None, None

    def _set_timer(self) -> None:
        # Fire no later than the shortest silence: its limit may start in the meantime.
        silent_in = min(self._silent_at - self._loop.time(), self._silence, self._first_token)
        seconds = self.seconds_left()
        if self._on_answer_time is not None:
            seconds -= self._reserved
        self._timer = self._loop.call_later(min(seconds, silent_in), self._check)

    def _check(self) -> None:
        if self.seconds_left() <= 0:
            self._on_end()
            return
        if self._silent_at <= self._loop.time():
            self._silent_at = math.inf
            self._on_silence(self._silence_limit)
        if self._on_answer_time is not None and self.call_seconds_left() <= 0:
            callback, self._on_answer_time = self._on_answer_time, None
            callback()
        self._set_timer()
