"""The event log of a run: numbered events for any number of readers."""

from collections.abc import Callable, Sequence

from brain.errors import BadRequest
from brain.events import Done, Error, Event
from brain.protocols.native import FrameEncoder, decode_frames

LOG_BYTES = 8 * 1024 * 1024
"""Size limit of one log. A larger log drops its older half."""
BLOCK_EVENTS = 64
BLOCK_BYTES = 64 * 1024
"""Frames are joined into blocks of up to this number of events or bytes."""
EPOCH_EVENTS = 100_000_000
"""More events than one process can send of a turn. The next one that continues the turn begins after them."""
ENDINGS = (Done, Error)
"""Events that are the last one of a turn. A tuple, since `Done | Error` would make an object per token."""

Notify = Callable[[Sequence[Event], bytes], None]
"""Called with the newest events, and with the same events as native frames; without events if the log is cut off."""
Unsubscribe = Callable[[], None]


class EventLog:
    """A log in the memory of this process.

    Args:
        replayable: Whether readers can join later. If False, the log stores no events.
        epoch: How many processes continued the turn before this one.

    Attributes:
        start: Number before the first event.
        last: Number of the newest event.
        has_ended: Whether the newest event is the last one.
        is_cut_off: Whether another process continues the turn, so that readers must connect again.
        subscribers: Number of subscribers.
    """

    __slots__ = ("_blocks", "_encode", "_first", "_marker", "_subscribers", "_tail", "_tail_bytes", "bytes",
                 "has_ended", "is_cut_off", "last", "replayable", "start")  # fmt: skip

    def __init__(self, turn_id: str, *, replayable: bool = True, epoch: int = 0) -> None:
        self.start = self.last = epoch * EPOCH_EVENTS
        self.has_ended = False
        self.is_cut_off = False
        self.bytes = 0
        self.replayable = replayable
        self._encode = FrameEncoder(turn_id, self.start).encode if replayable else None
        self._marker = f"\nid: {turn_id}.%d\n\n"
        self._blocks: list[tuple[int, bytes]] = []  # number of the first event, and frames
        self._first = self.start + 1  # number of the first event in the tail
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._subscribers: tuple[Notify, ...] = ()

    def append(self, events: Sequence[Event]) -> None:
        """Number the events, store their frames and notify all subscribers."""
        frames = b"" if self._encode is None else self._encode(events)
        self.last += len(events)
        if frames:
            self.bytes += len(frames)
            self._tail.append(frames)
            self._tail_bytes += len(frames)
            if self.last + 1 - self._first >= BLOCK_EVENTS or self._tail_bytes >= BLOCK_BYTES:
                self._close_block()
        self.has_ended = isinstance(events[-1], ENDINGS)
        for notify in self._subscribers:
            notify(events, frames)

    def cut_off(self) -> None:
        """Let all readers connect again: another process continues the turn."""
        self.is_cut_off = True
        subscribers, self._subscribers = self._subscribers, ()
        for notify in subscribers:
            notify((), b"")

    def _close_block(self) -> None:
        self._blocks.append((self._first, b"".join(self._tail)))
        self._first, self._tail_bytes = self.last + 1, 0
        self._tail.clear()
        if self.bytes > LOG_BYTES:
            self.discard_older_half()

    def discard_older_half(self) -> None:
        """Drop the older half, except for the newest block. A reader that still needs it gets an error."""
        half = self.bytes // 2
        while len(self._blocks) > 1 and self.bytes > half:
            self.bytes -= len(self._blocks.pop(0)[1])

    @property
    def first(self) -> int:
        """Number of the oldest event that can still be read."""
        return self._blocks[0][0] if self._blocks else self._first

    def check(self, after: int) -> None:
        """Check that all events after event `after` can still be read, which may be one of an earlier process.

        Raises:
            BadRequest: `gone`: they cannot.
        """
        first, after = self.first, max(after, self.start) if after >= 0 else after
        if not self.replayable:
            raise BadRequest("The events of this turn are not stored.", code="gone", status=410)
        if not first - 1 <= after <= self.last:
            message = f"The events after {after} are not available. Use `?after={first - 1}` for the available events."
            raise BadRequest(message, "last-event-id" if after else None, code="gone", status=410)

    def frames(self, after: int, until: int | None = None) -> list[bytes]:
        """Return the native frames of the events after number `after`, in pieces of moderate size.

        Raises:
            BadRequest: `gone`: some of them are no longer available.
        """
        self.check(after)
        blocks = [*self._blocks, (self._first, b"".join(self._tail))]
        firsts = [*(first for first, _ in blocks[1:]), self.last + 1]
        found = []
        for (first, data), following in zip(blocks, firsts, strict=True):
            if following <= after + 1 or (until is not None and first > until):
                continue
            begin = self._end_of(data, after) if first <= after else 0
            end = self._end_of(data, until) if until is not None and until < following - 1 else len(data)
            if begin < end:
                found.append(data[begin:end])
        return found

    def _end_of(self, block: bytes, number: int) -> int:
        """Return the end of an event in a block that begins before it; numbers after the block may be left out."""
        marker = (self._marker % number).encode()
        position = block.find(marker)
        return len(block) if position < 0 else position + len(marker)

    def events(self, after: int = 0, until: int | None = None) -> list[Event]:
        """Return the decoded events.

        Raises:
            BadRequest: `gone`: some of them are no longer available, or have not happened.
        """
        if until is not None and until > self.last:
            message = f"Event {until} has not happened; the newest is {self.last}."
            raise BadRequest(message, code="gone", status=410)
        return [event for data in self.frames(after, until) for event in decode_frames(data)]

    def subscribe(self, notify: Notify) -> Unsubscribe:
        """Call `notify` for all events from now on."""
        self._subscribers = (*self._subscribers, notify)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not notify)

        return unsubscribe

    @property
    def subscribers(self) -> int:
        """Number of subscribers."""
        return len(self._subscribers)
