"""When the server takes no further turns or connections, so that it can serve those it has. Pure: no clock."""

from collections.abc import Mapping
from typing import Generic, Literal, TypeVar

from brain.errors import BadRequest

T = TypeVar("T")

BURST = 1_000
"""Turns that a calm server takes at once, whatever it can start per second. One core starts them within about 2.5 s."""
BURST_PER_SECOND = 100.0
"""By so many the next burst grows while the server is calm."""
CALM = 64
"""A server that has no more turns to start is calm; an overloaded one may have as many."""
QUEUE_SECONDS = 0.5
"""A server that has started its burst has as many turns in its queue as it starts in so long."""
LAG_SECONDS, CALM_LAG_SECONDS = 0.25, 0.1
"""Smoothed lag of the event loop from which on a server is overloaded, and below which it no longer is. Tokens are late
by so much, and the first one by about ten times as much, since a turn waits for the loop as often until then."""
SMOOTHING_SECONDS = 1.0
CALM_SECONDS = 1.0
"""A server is no longer overloaded when it was calm for so long."""
STALL_SECONDS = 2.0
"""A longer lag counts as this one: a machine that was suspended for an hour is not overloaded."""
FASTER, SLOWER = 1.1, 0.85
"""An overloaded server changes its turns per second by one of these with each measurement: by the second when the loop
lags by `CALM_LAG_SECONDS`, or a turn waits for its start for longer than `QUEUE_SECONDS`."""
PER_SECOND_LEAST = 8.0
SHARE_LEAST = 0.7
"""It takes at least this share of the turns that end, so that their number falls without a gap."""

RETRY_SECONDS = 2
START = "brain.start"
"""The key of a request's scope under which its `Start` is."""

Reason = Literal["address", "connections", "overload"]

_MESSAGES: Mapping[Reason, str] = {
    "address": "This address has too many open connections; close some, or try again later.",
    "connections": "The server has no room for further connections; try again later.",
    "overload": "The server is overloaded; try again later.",
}


def refused(reason: Reason) -> BadRequest:
    """The error of a request that the server has no room for."""
    return BadRequest(_MESSAGES[reason], code="unavailable", status=503, retry_after=RETRY_SECONDS)


class Start:
    """The start of one turn, from its request to its first event."""

    __slots__ = ("_admission", "began")

    def __init__(self, admission: "Admission", began: float) -> None:
        self.began = began
        self._admission = admission

    def end(self) -> None:
        """The turn has started, or cannot start. Further calls do nothing."""
        self._admission.starts.pop(self, None)


class Admission:
    """Decides whether a turn may start.

    A burst is taken whole, since it passes. When turns keep coming faster than they start, each would wait for all that
    came before it. So an overloaded server has a short queue, and takes as many turns per second as its loop can bear.

    Attributes:
        starts: of the turns that wait for their start, the oldest first.
        lag: smoothed lag of the event loop, in seconds.
        is_overloaded: whether requests are refused, or were until a short while ago.
    """

    def __init__(self) -> None:
        self.starts: dict[Start, None] = {}
        self.lag = 0.0
        self.is_overloaded = False
        self._burst: float = BURST
        self._begun = 0  # since the last measurement
        self._per_second = 0.0  # begun; of an overloaded server, those that may begin
        self._ended = 0  # since the last measurement
        self._ended_per_second = 0.0
        self._calm_seconds = 0.0
        self._allowed = 0.0  # turns that an overloaded server may begin now

    @property
    def room(self) -> int:
        """How many turns may start now."""
        queue = self._queue_most - len(self.starts)
        return int(self._burst) + max(0, int(min(queue, self._allowed) if self.is_overloaded else queue))

    @property
    def _queue_most(self) -> float:
        return max(CALM, self._per_second * QUEUE_SECONDS)

    def begin(self, now: float) -> Start:
        """Count a turn that is to start; `end` is called for it in any case."""
        if len(self.starts) < self._queue_most and not (self.is_overloaded and self._allowed < 1):
            self._allowed = max(0.0, self._allowed - 1)
        else:
            self._burst = max(0, self._burst - 1)
        self._begun += 1
        self.starts[start := Start(self, now)] = None
        return start

    def end_turn(self) -> None:
        """Count a turn that ended."""
        self._ended += 1

    def measure(self, now: float, elapsed: float, lag: float, unaccepted: int) -> None:
        """Decide anew whether the server is overloaded.

        Args:
            now: seconds on the clock that `begin` is given.
            elapsed: seconds since the last measurement.
            lag: by how many of these the measurement is late.
            unaccepted: connections that the system holds for this process to accept.
        """
        weight = min(1.0, elapsed / SMOOTHING_SECONDS)
        self.lag += (min(lag, STALL_SECONDS) - self.lag) * weight
        self._ended_per_second += (self._ended / elapsed - self._ended_per_second) * weight
        queue = len(self.starts) + unaccepted
        if not self.is_overloaded:
            self._per_second += (self._begun / elapsed - self._per_second) * weight
            self.is_overloaded = self.lag > LAG_SECONDS or queue > self._burst + self._queue_most
            self._calm_seconds = 0.0
        else:
            oldest = next(iter(self.starts), None)
            is_slow = lag > CALM_LAG_SECONDS or (oldest is not None and now - oldest.began > QUEUE_SECONDS)
            least = max(PER_SECOND_LEAST, self._ended_per_second * SHARE_LEAST)
            self._per_second = max(least, self._per_second * (SLOWER if is_slow else FASTER))
            is_calm = self.lag <= CALM_LAG_SECONDS and queue <= CALM
            self._calm_seconds = self._calm_seconds + elapsed if is_calm else 0.0
            self.is_overloaded = self._calm_seconds < CALM_SECONDS
        if not self.is_overloaded and queue <= CALM:
            self._burst = min(BURST, self._burst + BURST_PER_SECOND * elapsed)
        self._begun = self._ended = 0
        self._allowed = min(self._per_second * 2 * elapsed, self._allowed + self._per_second * elapsed)


class Connections(Generic[T]):
    """Counts connections, in total and per address.

    Attributes:
        idle: those that wait for a request, the longest first.
        refused: those over a limit that wait for the request that is to be answered 503; not counted in `open`.

    Args:
        most: in total.
        most_per_address: of one address, behind a proxy its requests that are being answered.
    """

    def __init__(self, most: int, most_per_address: int) -> None:
        self.most = most
        self.most_per_address = most_per_address
        self.idle: dict[T, None] = {}
        self.refused: set[T] = set()
        self.open = 0
        self._per_address: dict[str, int] = {}

    def enter(self, address: str) -> bool:
        """Count one more of an address; false when it has as many as it may."""
        number = self._per_address.get(address, 0)
        if number >= self.most_per_address:
            return False
        self._per_address[address] = number + 1
        return True

    def leave(self, address: str) -> None:
        """Undo an `enter` that returned true."""
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]
