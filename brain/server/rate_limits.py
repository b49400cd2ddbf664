"""What a user may do at once or a minute, and how often an address may be wrong. Pure: the clock is given."""

import math
from collections.abc import Callable
from typing import NamedTuple

from brain.errors import BadRequest
from brain.settings import Rights

MINUTE = 60.0
FAILURES_MOST = 20
"""Wrong keys of one address in a minute that are answered as such."""
FAILURES_OF_ALL = 200
"""The same of all addresses together: which one a caller has is only what the proxy before us says."""
ADDRESSES_MOST = 10_000
SOON = 1
"""Seconds after which to come again when it is not known when a turn ends."""

_NEARLY = 1e-6
"""A turn that is so nearly allowed is: clocks count in fractions that no float holds."""


class _Used:
    """What a user has of the minute's turns at `at`, and the turns that run."""

    __slots__ = ("at", "left", "running")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at
        self.running = 0


class UserRateLimits:
    """How many turns users may begin.

    Each user has a bucket of as many turns as a minute allows; it is full at first, and refills evenly.

    Args:
        rights: what a user may do.
    """

    def __init__(self, rights: Callable[[str | None], Rights]) -> None:
        self._rights = rights
        self._users: dict[str | None, _Used] = {}
        self._sweep_at = 0.0

    def __len__(self) -> int:
        """The users of whom something is known."""
        return len(self._users)

    def begin(self, user: str | None, now: float) -> None:
        """Counts a turn that begins; `end` is called once for it.

        Args:
            now: seconds of a clock that is not set back.

        Raises:
            BadRequest: when the user has as many turns as may run, or began as many as a minute allows.
        """
        rights = self._rights(user)
        if not (rights.turns_a_minute or rights.turns_at_once):
            return
        self._forget_idle(now)
        used = self._users.get(user) or _Used(rights.turns_a_minute, now)
        if rights.turns_at_once and used.running >= rights.turns_at_once:
            raise too_many(
                f"You have {_turns(used.running)} running, as many as may at once; wait for one to end.", SOON
            )
        if rights.turns_a_minute:
            _take(used, rights.turns_a_minute, now)
        used.at = now
        used.running += 1
        self._users[user] = used

    def end(self, user: str | None) -> None:
        """Counts the end of a turn that `begin` let in."""
        used = self._users.get(user)
        if used is not None:  # whose turns are not limited is not counted
            used.running -= 1

    def _forget_idle(self, now: float) -> None:
        """Whose last turn began a minute ago has a full bucket again, like anybody unknown."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + MINUTE
        self._users = {user: used for user, used in self._users.items() if used.running or now - used.at < MINUTE}


def _take(used: _Used, a_minute: int, now: float) -> None:
    left = min(a_minute, used.left + (now - used.at) * a_minute / MINUTE)
    if left < 1 - _NEARLY:
        message = f"You may begin {_turns(a_minute)} a minute; wait a little."
        raise too_many(message, whole((1 - left) * MINUTE / a_minute))
    used.left = left - 1


class LoginRateLimit:
    """How often each address, and all together, gave a wrong key in the running minute.

    Addresses whose minute began first are forgotten first.
    """

    def __init__(self) -> None:
        self._all = _Minute(0.0, 0)
        self._minutes: dict[str, _Minute] = {}

    def __len__(self) -> int:
        """The addresses of which something is known."""
        return len(self._minutes)

    def count(self, address: str, now: float) -> int | None:
        """Counts one more.

        Returns:
            Whole seconds for which there were too many, if so.
        """
        self._forget_old(now)
        self._all = _one_more(self._all, now)
        own = self._minutes[address] = _one_more(self._minutes.get(address, _Minute(0.0, 0)), now)
        over = [
            minute.ends
            for minute, most in ((own, FAILURES_MOST), (self._all, FAILURES_OF_ALL))
            if minute.failures > most
        ]
        return whole(max(over) - now) if over else None

    def _forget_old(self, now: float) -> None:
        while self._minutes:
            oldest = next(iter(self._minutes))
            if self._minutes[oldest].ends > now and len(self._minutes) < ADDRESSES_MOST:
                return
            del self._minutes[oldest]


class _Minute(NamedTuple):
    ends: float
    failures: int


def _one_more(minute: _Minute, now: float) -> _Minute:
    return _Minute(minute.ends, minute.failures + 1) if minute.ends > now else _Minute(now + MINUTE, 1)


def whole(seconds: float) -> int:
    """Seconds as they are said in a header: whole, one at least."""
    return max(1, math.ceil(seconds - _NEARLY))


def too_many(message: str, retry_after: int) -> BadRequest:
    """What is said of too much."""
    return BadRequest(message, code="rate_limited", status=429, retry_after=retry_after)


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"
