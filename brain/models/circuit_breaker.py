"""Keeps turns away from a model that keeps failing."""

import time
from collections.abc import Callable
from typing import Literal

from brain.errors import ModelError

FAILURES = 3
"""Failures in a row after which turns skip the model."""
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 300.0
"""Seconds until a turn tries the model again. Each further failure doubles the pause."""
SHORT_WAIT = 3
"""A pass waits for a busy server that asks for at most this many seconds."""
_ABOUT_SERVER = frozenset({401, 402, 403, 404, 408, 425, 429})
"""Client error statuses that are not about the request."""

BreakerState = Literal["closed", "half_open", "open"]


class CircuitBreaker:
    """Counts the failures of one model. Only turns test the model: their outcomes open and close the breaker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._opened_until = 0.0

    @property
    def state(self) -> BreakerState:
        """`closed`: turns use the model; `open`: they skip it; `half_open`: the next turn tries it."""
        if self._failures < FAILURES:
            return "closed"
        return "open" if self._clock() < self._opened_until else "half_open"

    def allow(self) -> bool:
        """Return whether a turn may use the model now. While it is half open, only one turn may per pause."""
        state = self.state
        if state == "half_open":
            self._opened_until = self._clock() + self._pause()
        return state != "open"

    def record_success(self) -> None:
        """Close the breaker."""
        self._failures = 0

    def record_failure(self) -> None:
        """Count a failure, and open the breaker after several in a row."""
        self._failures += 1
        if self._failures >= FAILURES:
            self._opened_until = self._clock() + self._pause()

    def _pause(self) -> float:
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures - FAILURES, 10))


def is_server_failure(error: ModelError) -> bool:
    """Return whether another model may succeed where this one failed: the error is not about the request."""
    if error.code == "model_unreachable":
        return True
    if error.code == "model_context":
        return False
    if error.status is None or error.status >= 500:
        return True
    return error.status in _ABOUT_SERVER


def short_wait(error: ModelError) -> int | None:
    """Return the seconds after which to ask a busy server again, or None if it did not ask for a short wait."""
    if error.status != 429 or error.retry_after is None or error.retry_after > SHORT_WAIT:
        return None
    return error.retry_after
