"""Rooms: what one turn told so far, numbered from 1, for any number of readers that come and go.

It is bounded: the oldest events make room. A reader waits for nothing that the turn does, and the turn for no reader.
"""

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from sys import getsizeof

from brain.errors import BadRequest
from brain.events import Done, Error, Event, SpecialistResult, Token

JOURNAL_BYTES = 8 * 1024 * 1024
EVENTS_AT_ONCE = 512
BYTES_AT_ONCE = 64 * 1024
"""What a reader is given in one piece: others have their turn in between, and it waits in no larger a buffer."""
TOGETHER = 64
LONG = 1024
"""So many tokens are put together, unless one of so many characters comes."""

_EVENT_BYTES = 256
"""About what an event takes besides its texts."""


class _Said:
    """Tokens that came one behind the other: a text, and where in it each ends. They take a tenth of it each."""

    __slots__ = ("_ends", "_text")

    def __init__(self, texts: Sequence[str]) -> None:
        self._text = "".join(texts)
        self._ends = array("H" if len(self._text) < 1 << 16 else "I", accumulate(map(len, texts)))

    def tokens(self, after: int) -> Iterator[Token]:
        """All but the first `after`."""
        ends = pairwise([self._ends[after - 1] if after else 0, *self._ends[after:]])
        return (Token(self._text[begin:end]) for begin, end in ends)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + getsizeof(self._text) + getsizeof(self._ends)


class Journal:
    """The events of one turn.

    Attributes:
        bytes: about what it takes; without the last few tokens.
        over: whether the last event is there.
    """

    __slots__ = ("_kept", "_numbers", "_tokens", "_told", "_waiting", "bytes", "over")

    def __init__(self) -> None:
        self._kept: list[Event | _Said] = []
        self._numbers: list[int] = []  # of the first event in each of them
        self._told = 0  # of the last event in them
        self._tokens: list[str] = []  # that were told since
        self._waiting: dict[asyncio.Future[None], None] = {}
        self.bytes = 0
        self.over = False

    @property
    def count(self) -> int:
        """How many events there were."""
        return self._told + len(self._tokens)

    @property
    def _before(self) -> int:
        """How many events are no longer kept."""
        return (self._numbers[0] if self._numbers else self._told + 1) - 1

    def add(self, events: Iterable[Event]) -> None:
        """Takes what came together, and wakes those who wait for it."""
        for event in events:
            if type(event) is Token:
                self._tokens.append(event.text)
                if len(event.text) > LONG:
                    self._put_together()
            else:
                self._put_together()
                self._keep(event, 1)
                self.over = self.over or isinstance(event, Done | Error)
        if len(self._tokens) >= TOGETHER:
            self._put_together()
        if self._waiting:
            self._wake()

    def _put_together(self) -> None:
        if self._tokens:
            self._keep(_Said(self._tokens), len(self._tokens))
            self._tokens.clear()

    def _keep(self, what: Event | _Said, events: int) -> None:
        self._kept.append(what)
        self._numbers.append(self._told + 1)
        self._told += events
        self.bytes += _bytes(what)
        if self.bytes > JOURNAL_BYTES:
            self.shorten()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def shorten(self) -> None:
        """Forgets the older half; the last event stays."""
        half, forgotten = self.bytes // 2, 0
        while self.bytes > half and forgotten < len(self._kept) - 1:
            self.bytes -= _bytes(self._kept[forgotten])
            forgotten += 1
        del self._kept[:forgotten], self._numbers[:forgotten]

    def check(self, after: int) -> None:
        """Whether all that came behind event `after` is still there.

        Raises:
            BadRequest: `gone`, when it is not.
        """
        if self._before <= after <= self.count:
            return
        message = f"What came behind event {after} is not kept; ?after={self._before} reads what is."
        raise BadRequest(message, "last-event-id" if after else None, code="gone", status=410)

    def told(self, count: int | None = None) -> list[Event]:
        """The first `count` events, all of them when left out.

        Raises:
            BadRequest: `gone`, when they are no longer kept, or were never told.
        """
        if self._before or (count or 0) > self.count:
            raise BadRequest("The beginning of this turn is no longer kept; ask again.", code="gone", status=410)
        return list(islice(self._since(0), count))

    async def follow(self, after: int = 0) -> AsyncGenerator[Sequence[Event], None]:
        """What came behind event `after`, and then what comes, to the end. It breaks off where events are missing."""
        while self._before <= after <= self.count:
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
        self._waiting[future] = None
        try:
            await future
        finally:
            del self._waiting[future]

    def _piece(self, after: int) -> list[Event]:
        """The next events behind `after`: one at least, and as many as may go together."""
        piece: list[Event] = []
        room = BYTES_AT_ONCE
        for event in islice(self._since(after), EVENTS_AT_ONCE):
            piece.append(event)
            room -= _bytes(event)
            if room <= 0:
                break
        return piece

    def _since(self, after: int) -> Iterator[Event]:
        """All events behind `after`, which is one that is kept, or right before those."""
        if after < self._told:
            place = bisect_right(self._numbers, after + 1) - 1
            first, *rest = self._kept[place:]
            yield from first.tokens(after + 1 - self._numbers[place]) if isinstance(first, _Said) else (first,)
            for kept in rest:
                yield from kept.tokens(0) if isinstance(kept, _Said) else (kept,)
        yield from map(Token, self._tokens[max(0, after - self._told) :])


def _bytes(what: Event | _Said) -> int:
    """About how many bytes it takes; what strangers made it of counts whole."""
    if isinstance(what, _Said):
        return getsizeof(what)
    texts = [getattr(what, name) for name in ("text", "reason", "message") if hasattr(what, name)]
    if params := getattr(what, "params", None):
        texts.append(str(params))
    if isinstance(what, SpecialistResult):
        texts += [text for one in what.citations for text in (one, one.id, one.title, one.url or "")]
    return (64 if isinstance(what, Token) else _EVENT_BYTES) + sum(map(getsizeof, texts))
