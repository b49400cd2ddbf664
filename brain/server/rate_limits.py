"""Rate limits: turns per user, and invalid keys per address. Pure: the caller passes the time."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from brain.errors import BadRequest
from brain.settings import Rights

MINUTE = 60.0
ADDRESS_FAILURES = 20
"""Invalid keys per minute and address."""
TOTAL_FAILURES = 200
"""Invalid keys per minute from all addresses, since a client behind a proxy can fake its address."""
ADDRESSES_LIMIT = 10_000
RETRY_SOON = 1
"""Retry delay in seconds if the end of a turn is unknown."""

_NEARLY = 1e-6
"""Tolerance for rounding errors of the clock."""


@dataclass(slots=True)
class _Bucket:
    """Turns that a user could still start at the time `updated`, and running turns."""

    tokens: float
    updated: float
    running: int = 0


class UserRateLimits:
    """Limits the turns of users: per minute and at the same time.

    Each user has a token bucket with the turns of one minute; it is full at first and refills evenly.
    """

    def __init__(self, rights: Callable[[str | None], Rights]) -> None:
        self._rights = rights
        self._buckets: dict[str | None, _Bucket] = {}
        self._sweep_at = 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def acquire(self, user: str | None, now: float) -> None:
        """Count a turn that starts. The caller calls `release` once for it.

        Args:
            now: seconds of a monotonic clock.

        Raises:
            BadRequest: `rate_limited`, if the user has reached a limit.
        """
        rights = self._rights(user)
        per_minute, at_once = rights.turns_a_minute, rights.turns_at_once
        if not (per_minute or at_once):
            return
        if now >= self._sweep_at:  # after a minute without a new turn, a bucket is full
            self._sweep_at = now + MINUTE
            for name, bucket in [*self._buckets.items()]:
                if not bucket.running and now - bucket.updated >= MINUTE:
                    del self._buckets[name]
        bucket = self._buckets.get(user) or _Bucket(per_minute, now)
        if at_once and bucket.running >= at_once:
            message = f"You have {_turns(bucket.running)} running; the limit is {at_once}. Wait for one to finish."
            raise rate_limited(message, RETRY_SOON)
        if per_minute:
            tokens = min(per_minute, bucket.tokens + (now - bucket.updated) * per_minute / MINUTE)
            if tokens < 1 - _NEARLY:
                seconds = whole_seconds((1 - tokens) * MINUTE / per_minute)
                message = f"Rate limit reached: {_turns(per_minute)} per minute. Try again in {seconds} seconds."
                raise rate_limited(message, seconds)
            bucket.tokens = tokens - 1
        bucket.updated = now
        bucket.running += 1
        self._buckets[user] = bucket

    def release(self, user: str | None) -> None:
        """Count the end of a turn that `acquire` allowed."""
        if user in self._buckets:  # users without limits have no bucket
            self._buckets[user].running -= 1

    def undo(self, user: str | None) -> None:
        """Undo an `acquire`: another process starts the turn, and counts it."""
        if user in self._buckets:
            self._buckets[user].running -= 1
            self._buckets[user].tokens += 1


class _Window(NamedTuple):
    """Failures in the minute that ends at `end`."""

    end: float = 0.0
    failures: int = 0

    def add(self, now: float) -> "_Window":
        return _Window(self.end, self.failures + 1) if self.end > now else _Window(now + MINUTE, 1)


class LoginRateLimit:
    """Counts invalid keys in the current minute, per address and in total.

    If there are too many addresses, the oldest ones are dropped.
    """

    def __init__(self) -> None:
        self._total = _Window()
        self._windows: dict[str, _Window] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def count(self, address: str, now: float) -> int | None:
        """Count one more invalid key.

        Returns:
            Seconds to wait if a limit is exceeded, else None.
        """
        while self._windows:
            oldest = next(iter(self._windows))
            if self._windows[oldest].end > now and len(self._windows) < ADDRESSES_LIMIT:
                break
            del self._windows[oldest]
        self._total = self._total.add(now)
        own = self._windows[address] = self._windows.get(address, _Window()).add(now)
        limits = ((own, ADDRESS_FAILURES), (self._total, TOTAL_FAILURES))
        ends = [window.end for window, limit in limits if window.failures > limit]
        return whole_seconds(max(ends) - now) if ends else None


def whole_seconds(seconds: float) -> int:
    """Return seconds for a `Retry-After` header: an integer, at least 1."""
    return max(1, math.ceil(seconds))


def rate_limited(message: str, retry_after: int) -> BadRequest:
    return BadRequest(message, code="rate_limited", status=429, retry_after=retry_after)


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"
