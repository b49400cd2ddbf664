"""Roof: a turn as a stream in any protocol, until it or its reader ends; the only importer of sse_starlette."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any, Protocol

import anyio
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from brain.door import SAFE_HEADERS
from brain.events import Done, Error, Event, Notice, TurnStart
from brain.leading import Run

BEATS_UNREAD = 4
"""A reader for whom a heartbeat waits as long as so many of them is gone, though nobody hung up."""
ENDING_SECONDS = 1.0
"""How long a turn whose reader left may take to its end; then it is cut."""
LAST = frozenset({Done, Error})
OPENING = (TurnStart, Notice)
"""What is told before the model was heard."""

RawHeaders = list[tuple[bytes, bytes]]

log = logging.getLogger("brain")

_HEADERS = {**SAFE_HEADERS, "Cache-Control": "no-cache, no-transform"}
_STREAM = dict(EventSourceResponse(iter(()), headers=_HEADERS).raw_headers)


class Encoder(Protocol):
    """Writes the events of one turn in one protocol. Events in, bytes out, no I/O.

    Attributes:
        content_type: of the stream.
        headers: further ones.
        heartbeat: what is sent when nothing else was, so that nobody takes the connection for dead.
        taken: how many events were written.
        closed: whether the stream is over. It may be before the turn is, when a person's approval has to be brought in
            another request.
    """

    @property
    def content_type(self) -> bytes: ...
    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...
    @property
    def heartbeat(self) -> bytes: ...
    @property
    def taken(self) -> int: ...
    @property
    def closed(self) -> bool: ...

    def encode(self, events: Sequence[Event]) -> bytes:
        """What came together; behind the last event, the protocol's own end, too."""


Refusal = Callable[[Error], tuple[int, bytes]]
"""HTTP status and JSON body for a turn that failed before the model was heard."""


class TurnResponse(EventSourceResponse):
    """The response of one turn, or of one more reader of it.

    The inherited one runs each response as a group of five tasks, with a timer and a log record for each event, which
    takes more time and memory than all the rest. Here the server's task waits for the reader to hang up, one task of
    its own sends (so that a token wakes this task alone, and not each layer of the application), and one timer sees to
    heartbeats.

    When the reader of a turn that is led here leaves, the turn is told to stop, and goes on unsent to its end, which
    is near: so its record, and what others read of it, are whole.

    Args:
        open_ones: where the response stands while it runs.
        heartbeat: seconds without an event after which a comment is sent.
        after: the event behind which a run that others lead is followed; None to lead it.
        refusal: how a turn is refused that fails before the model was heard. With it, the head is held back until then,
            or for one heartbeat, so that what the model's server answered can be passed on.
    """

    __slots__ = (
        "_batches", "_beat", "_before", "_begun", "_closing", "_encoder", "_giving", "_gone", "_heartbeat", "_hurried",
        "_leads", "_loop", "_open_ones", "_refusal", "_send", "_sending", "_sent", "_timer", "_untaken", "_waiting",
        "run",
    )  # fmt: skip

    def __init__(
        self,
        run: Run,
        encoder: Encoder,
        *,
        open_ones: "set[TurnResponse]",
        heartbeat: float,
        after: int | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self._leads = after is None
        self._batches = run.batches() if after is None else _followed(run, after)
        super().__init__(self._batches, ping=0)
        self.__dict__.pop("_send_lock", None)  # of nearly a kilobyte, and of no use to one task that sends
        self.run = run
        self.raw_headers = [*_raw_headers(encoder.content_type), *encoder.headers]
        self._encoder = encoder
        self._before = (after or 0) - encoder.taken
        self._refusal = refusal
        self._open_ones = open_ones
        self._heartbeat = heartbeat
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()
        self._waiting: asyncio.Task[Any] | None = None
        self._beat: asyncio.Task[None] | None = None
        self._begun = False
        self._giving = False  # whether it waits for the reader to take something
        self._untaken = 0  # events that the reader had no time to take
        self._closing = False  # whether the last of it is given
        self._hurried = False  # whether the turn ends: it is not to wait for the reader
        self._gone = False

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """They are set by who made this, from what is encoded once."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers; whatever happens, the turn is recorded and all that runs for it is ended."""
        self._waiting = waiting = asyncio.current_task()
        assert waiting is not None
        before = waiting.cancelling()
        self._sending = asyncio.create_task(self._stream_response(send), name="turn")
        self._sending.add_done_callback(self._wake)
        self._send = send
        self._timer = self._loop.call_later(self._heartbeat, self._check)
        self._open_ones.add(self)
        if self._leads:
            self.run.hurry = self._hurry
        else:
            self.run.joined()
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        except asyncio.CancelledError:
            if self._waiting is not None or waiting.uncancel() > before:
                raise  # not ours alone
        finally:
            self._waiting = None
            await self._end()
        if not self._sending.cancelled():
            self._sending.result()

    async def _stream_response(self, send: Send) -> None:
        """Sends what came together in one piece."""
        told = self.run.told if self._leads else None
        encode, clock = self._encoder.encode, self._loop.time
        unsent = b""
        if self._refusal is None:
            await self._begin()
        async with aclosing(self._batches) as batches:
            async for batch in batches:
                if told is not None:
                    told(batch)
                if self._gone:
                    continue
                if self._refusal is not None and not self._begun and isinstance(error := batch[-1], Error):
                    await self._refuse(*self._refusal(error))
                    continue
                body = unsent + encode(batch)
                last = type(batch[-1]) in LAST
                self._closing = last or self._encoder.closed
                if not self._closing and (self._hurried or not (self._begun or _is_heard(batch))):
                    unsent = body
                    continue
                try:
                    self._giving = True
                    if not self._begun:
                        await self._begin()
                    self._sent = clock()
                    await send({"type": "http.response.body", "body": body, "more_body": not self._closing})
                    unsent = b""
                except asyncio.CancelledError:
                    if not self._hurried:
                        self._untaken = len(batch)
                        raise
                    self._sending.uncancel()
                    unsent = body
                finally:
                    self._giving = False
                if self._closing and not last:
                    return
                del batch, body  # not kept while the next are waited for
        if not (self._gone or self._closing):  # a reader too slow for what is kept; the next request says so
            self._closing = True
            await send({"type": "http.response.body", "body": unsent, "more_body": False})

    async def _begin(self, status: int = 200, headers: RawHeaders | None = None) -> None:
        self._begun = True  # now, and not when it is done: a heartbeat may want to begin, too
        head = self.raw_headers if headers is None else headers
        try:
            await self._send({"type": "http.response.start", "status": status, "headers": head})
        except asyncio.CancelledError:
            self._begun = False
            raise

    async def _refuse(self, status: int, body: bytes) -> None:
        """Answers what the model's server answered, in the words of the protocol."""
        self._closing = True
        await self._begin(status, [*_raw_headers(b"application/json")])
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def leave(self) -> None:
        """Ends the response without a word."""
        self._sending.cancel()

    def _hurry(self) -> None:
        """The turn is told to stop: what the reader does not take now waits until its end is known."""
        self._hurried = True
        if self._giving:
            self._sending.cancel()

    def _wake(self, sending: "asyncio.Task[None] | None" = None) -> None:
        """Ends the wait for the reader to hang up, by a cancellation that `__call__` takes back."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()

    async def _end(self) -> None:
        """Ends what still runs, and waits until it is over."""
        self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()
        self._gone = True
        try:
            if not self._sending.done():
                with anyio.CancelScope(shield=True):
                    await self._let_go()
        finally:
            self._open_ones.discard(self)
            if self._leads:
                self.run.hurry = None
                self.run.cut()
            else:
                self.run.left_at = self._before + self._encoder.taken - self._untaken
                self.run.left(comes_back=self._encoder.closed)

    async def _let_go(self) -> None:
        """Lets a turn that is led here come to its end."""
        try:
            if self._leads and not self.run.over:
                self.run.stop()
                await asyncio.wait({self._sending}, timeout=ENDING_SECONDS)
        finally:
            self._sending.cancel()
        await asyncio.wait({self._sending})

    def _check(self) -> None:
        """Lets a heartbeat be sent when nothing else was; a reader that takes nothing for long has left."""
        quiet = self._loop.time() - self._sent
        if self._giving and quiet >= self._heartbeat * BEATS_UNREAD:
            self._drop()
        elif quiet < self._heartbeat or self._giving or self._closing:
            self._timer = self._loop.call_later(max(self._heartbeat - quiet, self._heartbeat / 4), self._check)
        else:
            self._sent = self._loop.time()
            self._beat = asyncio.create_task(self._send_beat(), name="heartbeat")

    async def _send_beat(self) -> None:
        if self._closing:
            return
        try:
            async with asyncio.timeout(self._heartbeat * BEATS_UNREAD):
                if not self._begun:
                    await self._begin()
                if not self._closing:
                    await self._send({"type": "http.response.body", "body": self._encoder.heartbeat, "more_body": True})
        except TimeoutError:
            self._drop()
        else:
            self._check()

    def _drop(self) -> None:
        """Ends the response as if its reader had hung up."""
        log.info("turn %s: its reader takes nothing", self.run.id)
        self._wake()


def _followed(run: Run, after: int) -> AsyncGenerator[Sequence[Event], None]:
    assert run.journal is not None
    return run.journal.follow(after)


def _is_heard(batch: Sequence[Event]) -> bool:
    return not all(isinstance(event, OPENING) for event in batch)


@cache
def _raw_headers(content_type: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Those of every stream."""
    return tuple({**_STREAM, b"content-type": content_type}.items())


async def server_stops() -> None:
    """Waits until the server that runs us is told to stop, whichever server that is."""
    await EventSourceResponse._listen_for_exit_signal()
