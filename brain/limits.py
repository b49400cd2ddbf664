"""Core: how many calls a turn may make, and for how long. Pure: no clock, no I/O.

Every call of the model is admitted here, also one that is malformed or unknown. So each pass but the last two uses up
one call at least, and a turn has at most `calls + 2` passes: one for each admitted call, the one whose call is refused
for being over the cap, and the last one, in which nothing is run.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Literal

from brain.ask import Limits

TRIES_OF_IDENTICAL = 2

ANSWER_SHARE = 0.25
ANSWER_SECONDS_MOST = 60.0
"""Share of a turn's time that is reserved for the answer after the last call, and the most seconds of it."""

Refusal = Literal["call_limit", "specialist_limit", "repeated"]


class Budget:
    """Counts the calls of one turn."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_name: Counter[str] = Counter()
        self._identical: Counter[Hashable] = Counter()
        self.calls = 0
        self.overdrawn = False

    def count(self) -> Refusal | None:
        """Counts one call of the model; the refusal is set when it is over the cap."""
        self.calls += 1
        if self.calls > self._limits.calls:
            self.overdrawn = True
            return "call_limit"
        return None

    def admit(self, name: str, call: Hashable) -> Refusal | None:
        """Counts a call that could be run, after `count`; `call` is the same for identical calls."""
        self._by_name[name] += 1
        self._identical[call] += 1
        if self._identical[call] > TRIES_OF_IDENTICAL:
            return "repeated"
        if self._by_name[name] > self._limits.calls_per_specialist:
            return "specialist_limit"
        return None


def seconds_for_calls(limits: Limits) -> float:
    """Returns how much of a turn may pass until its calls end; the rest is reserved for the answer."""
    return limits.turn_seconds - min(limits.turn_seconds * ANSWER_SHARE, ANSWER_SECONDS_MOST)
