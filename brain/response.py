"""Roof: a turn as a stream of server-sent events, until it or its reader ends; the only importer of sse_starlette."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import anyio
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from brain.events import Done, Error
from brain.turn import Turn
from brain.wire import native

BEATS_UNREAD = 4
"""A reader for whom a heartbeat waits as long as so many of them is gone, though nobody hung up."""
LAST = (Done, Error)

log = logging.getLogger("brain")


_RAW_HEADERS = tuple(EventSourceResponse(iter(()), headers={"Cache-Control": "no-cache, no-transform"}).raw_headers)


class TurnResponse(EventSourceResponse):
    """The response of one turn.

    The inherited one runs each response as a group of five tasks, with a timer and a log record for each event, which
    takes more time and memory than all the rest. Here the server's task waits for the reader to hang up, one task of
    its own sends (so that a token wakes this task alone, and not each layer of the application), and one timer sees to
    heartbeats.

    Args:
        open_ones: where the response stands while it runs.
        heartbeat: seconds without an event after which a comment is sent.
        settle: records the turn, once: before its reader can ask again, or when the reader is gone.
    """

    def __init__(
        self, turn: Turn, *, open_ones: "set[TurnResponse]", heartbeat: float, settle: Callable[[], None]
    ) -> None:
        self._batches = turn.batches()
        super().__init__(self._batches, ping=0)
        self.__dict__.pop("_send_lock", None)  # of nearly a kilobyte, and of no use to one task that sends
        self.turn = turn
        self._open_ones = open_ones
        self._heartbeat = heartbeat
        self._settle: Callable[[], None] | None = settle
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()
        self._waiting: asyncio.Task[Any] | None = None
        self._beat: asyncio.Task[None] | None = None

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """The same for all responses, so that they are encoded once."""
        self.raw_headers = list(_RAW_HEADERS)  # a list of its own, to which others may add

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
        encode = native.Encoder(self.turn.id).encode
        clock = self._loop.time
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._batches) as batches:
            async for batch in batches:
                last = isinstance(batch[-1], LAST)
                if last:
                    self._beat_no_more()
                    self._settled()
                body = encode(batch[0]) if len(batch) == 1 else b"".join(map(encode, batch))
                self._sent = clock()
                await send({"type": "http.response.body", "body": body, "more_body": not last})
                del batch, body  # not kept while the next are waited for

    def _settled(self) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle()

    def leave(self) -> None:
        """Ends the response without a word."""
        self._sending.cancel()

    def _wake(self, sending: "asyncio.Task[None]") -> None:
        """When all is sent, ends the wait for the reader to hang up, by a cancellation that `__call__` takes back."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()

    async def _end(self) -> None:
        """Cancels what still runs, and waits until the turn is over."""
        self._beat_no_more()
        try:
            if not self._sending.done():
                self._sending.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait({self._sending})
        finally:
            self._open_ones.discard(self)
            self._settled()

    def _beat_no_more(self) -> None:
        self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()

    def _check(self) -> None:
        """Lets a heartbeat be sent when nothing else was."""
        left = self._sent + self._heartbeat - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        else:
            self._sent = self._loop.time()
            self._beat = asyncio.create_task(self._send_beat(), name="heartbeat")

    async def _send_beat(self) -> None:
        try:
            async with asyncio.timeout(self._heartbeat * BEATS_UNREAD):
                await self._send({"type": "http.response.body", "body": native.HEARTBEAT, "more_body": True})
        except TimeoutError:
            log.info("turn %s: its reader takes nothing", self.turn.id)
            self.leave()
        else:
            self._check()


async def server_stops() -> None:
    """Waits until the server that runs us is told to stop, whichever server that is."""
    await EventSourceResponse._listen_for_exit_signal()
