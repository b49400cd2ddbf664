"""Rooms: what one turn told so far, numbered from 1, for any number of readers that come and go.

It is bounded: the oldest events make room. A reader waits for nothing that the turn does, and the turn for no reader.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence

from brain.errors import BadRequest
from brain.events import Done, Error, Event, SpecialistResult, Token

JOURNAL_BYTES = 8 * 1024 * 1024
EVENTS_AT_ONCE = 512
BYTES_AT_ONCE = 64 * 1024
"""What a reader is given in one piece: others have their turn in between, and it waits in no larger a buffer."""

_EVENT_BYTES = 64
"""About what an event takes besides its texts."""
_WIDEST = 4
"""Bytes that a character takes in a text that holds others than ASCII's, at most."""


class Journal:
    """The events of one turn. Tokens are kept as their texts, which is a third of the memory.

    Attributes:
        bytes: about what it takes.
        over: whether the last event is there.
    """

    __slots__ = ("_events", "_first", "_waiting", "bytes", "over")

    def __init__(self) -> None:
        self._events: list[Event | str] = []
        self._first = 1
        self._waiting: set[asyncio.Future[None]] = set()
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
                text = event.text
                self._events.append(text)
                self.bytes += _EVENT_BYTES + (len(text) if text.isascii() else _WIDEST * len(text))
            else:
                self._events.append(event)
                self.bytes += _bytes(event)
                self.over = self.over or isinstance(event, Done | Error)
        if self.bytes > JOURNAL_BYTES:
            self.shorten()
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def shorten(self) -> None:
        """Forgets the older half; the last event stays."""
        half, forgotten = self.bytes // 2, 0
        while self.bytes > half and forgotten < len(self._events) - 1:
            self.bytes -= _bytes(self._events[forgotten])
            forgotten += 1
        del self._events[:forgotten]
        self._first += forgotten

    def check(self, after: int) -> None:
        """Whether all that came behind event `after` is still there.

        Raises:
            BadRequest: `gone`, when it is not.
        """
        if not self._first - 1 <= after <= self.count:
            message = "What came behind this event is no longer kept; ask again without Last-Event-ID."
            raise BadRequest(message, "last-event-id", code="gone", status=410)

    def told(self, count: int | None = None) -> list[Event]:
        """The first `count` events, all of them when left out.

        Raises:
            BadRequest: `gone`, when they are no longer kept, or were never told.
        """
        if self._first > 1 or (count or 0) > self.count:
            raise BadRequest("The beginning of this turn is no longer kept; ask again.", code="gone", status=410)
        return [Token(event) if isinstance(event, str) else event for event in self._events[:count]]

    async def end(self) -> None:
        """Waits until the last event is there."""
        while not self.over:
            await self._more()

    async def follow(self, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        """What came behind event `after`, and then what comes, to the end. It breaks off where events are missing."""
        while self._first - 1 <= after <= self.count:
            if after < self.count:
                events = self._piece(after)
                after += len(events)
                yield events
                del events  # not kept while the next are waited for
                if after < self.count:
                    await asyncio.sleep(0)
            elif self.over:
                return
            else:
                await self._more()

    async def _more(self) -> None:
        """Waits for what is told next."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def _piece(self, after: int) -> list[Event]:
        """The next events behind `after`: one at least, and as many as may go together."""
        start = after - self._first + 1
        piece: list[Event] = []
        room = BYTES_AT_ONCE
        for event in self._events[start : start + EVENTS_AT_ONCE]:
            piece.append(Token(event) if isinstance(event, str) else event)
            room -= _bytes(event)
            if room <= 0:
                break
        return piece


def _bytes(event: Event | str) -> int:
    """About how many bytes an event takes; what strangers made it of counts whole."""
    if isinstance(event, str):
        return _EVENT_BYTES + _text_bytes(event)
    texts = [getattr(event, name) for name in ("text", "reason", "message") if hasattr(event, name)]
    if params := getattr(event, "params", None):
        texts.append(str(params))
    if isinstance(event, SpecialistResult):
        texts += [text for one in event.citations for text in (one.id, one.title, one.url or "")]
    return _EVENT_BYTES * (4 + len(texts)) + sum(map(_text_bytes, texts))


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else _WIDEST * len(text)
