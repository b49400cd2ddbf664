"""Rooms: what one turn told so far, numbered from 1, for any number of readers that come and go.

It is bounded: the oldest events make room. A reader waits for nothing that the turn does, and the turn for no reader.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence

from brain.errors import BadRequest
from brain.events import Done, Error, Event, Token
from brain.usage import size

JOURNAL_BYTES = 8 * 1024 * 1024
READ_AT_ONCE = 512
"""Events that a reader is given in one piece, so that one who catches up lets others have their turn."""

_EVENT_BYTES = 64
"""About what an event takes besides its texts."""


class Journal:
    """The events of one turn. Tokens are kept as their texts, which is a third of the memory."""

    def __init__(self) -> None:
        self._events: list[Event | str] = []
        self._first = 1
        self._waiting: list[asyncio.Future[None]] = []
        self.bytes = 0
        self.over = False

    @property
    def count(self) -> int:
        """How many events there were."""
        return self._first - 1 + len(self._events)

    def add(self, events: Iterable[Event]) -> None:
        """Takes what came together, and wakes those who wait for it."""
        for event in events:
            if type(event) is Token:
                self._events.append(event.text)
                self.bytes += _EVENT_BYTES + len(event.text)
            else:
                self._events.append(event)
                self.bytes += _weight(event)
                self.over = self.over or isinstance(event, Done | Error)
        if self.bytes > JOURNAL_BYTES:
            self.shorten()
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def shorten(self) -> None:
        """Forgets the older half; the last event stays."""
        half = self._events[: len(self._events) // 2]
        del self._events[: len(half)]
        self._first += len(half)
        self.bytes -= sum(_EVENT_BYTES + len(one) if isinstance(one, str) else _weight(one) for one in half)

    def check(self, after: int) -> None:
        """Whether all that came behind event `after` is still there.

        Raises:
            BadRequest: `gone`, when it is not.
        """
        if not self._first - 1 <= after <= self.count:
            message = "What came behind this event is no longer kept; ask again without Last-Event-ID."
            raise BadRequest(message, "last-event-id", code="gone", status=410)

    async def follow(self, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        """What came behind event `after`, and then what comes, to the end. It breaks off where events are missing."""
        while self._first - 1 <= after <= self.count:
            if after < self.count:
                events = self._since(after)
                after += len(events)
                yield events
                del events  # not kept while the next are waited for
            elif self.over:
                return
            else:
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(future)
                await future

    def _since(self, after: int) -> list[Event]:
        start = after - self._first + 1
        found = self._events[start : start + READ_AT_ONCE]
        return [Token(event) if isinstance(event, str) else event for event in found]


def _weight(event: Event) -> int:
    """About how many bytes an event takes; what strangers made it of counts whole."""
    texts = [getattr(event, name) for name in ("text", "reason", "message") if hasattr(event, name)]
    params = getattr(event, "params", None)
    return _EVENT_BYTES * 4 + sum(map(size, texts)) + (len(str(params)) if params else 0)
