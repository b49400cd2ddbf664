"""Roof: a turn as a stream of server-sent events, until it or its reader ends; the only importer of sse_starlette."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from brain.events import Done, Error
from brain.turn import Turn
from brain.wire import native

BEATS_UNREAD = 4
"""A reader that takes not one byte for so many heartbeats is gone, though nobody hung up."""
HEADERS = {"Cache-Control": "no-cache, no-transform"}
LAST = (Done, Error)

log = logging.getLogger("brain")


class TurnResponse(EventSourceResponse):
    """The response of one turn.

    The inherited one runs each response as a group of five tasks, with a timer and a log record for each event. That
    takes twice the time and the memory of all the rest, so here is one task that sends, one that waits for the reader
    to hang up, and one timer for heartbeats.

    Args:
        open_ones: where the response stands while it runs.
        heartbeat: seconds without an event after which a comment is sent.
        settle: records the turn, once: before its reader can ask again, or when the reader is gone.
    """

    def __init__(
        self, turn: Turn, *, open_ones: "set[TurnResponse]", heartbeat: float, settle: Callable[[], None]
    ) -> None:
        self._batches = turn.batches()
        super().__init__(self._batches, headers=HEADERS, ping=0)
        self.turn = turn
        self._open_ones = open_ones
        self._heartbeat = heartbeat
        self._settle: Callable[[], None] | None = settle
        self._loop = asyncio.get_running_loop()
        self._sent = self._loop.time()
        self._beat: asyncio.Task[None] | None = None
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers; whatever happens, the turn is recorded and all that runs for it is ended."""
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        watcher = asyncio.create_task(self._watch(receive), name="reader")
        self._timer = self._loop.call_later(self._heartbeat, self._check, send)
        self._open_ones.add(self)
        try:
            await self._stream_response(send)
        except asyncio.CancelledError:
            if not self._gone or task.uncancel():
                raise  # somebody else wants this task to end, too
        finally:
            self._open_ones.discard(self)
            self._timer.cancel()
            watcher.cancel()
            if self._beat is not None:
                self._beat.cancel()
            self._settled()

    async def _stream_response(self, send: Send) -> None:
        """Sends what came together in one piece."""
        encode = native.Encoder(self.turn.id).encode
        clock = self._loop.time
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._batches) as batches:
            async for batch in batches:
                last = isinstance(batch[-1], LAST)
                if last:
                    self._settled()
                body = encode(batch[0]) if len(batch) == 1 else b"".join(map(encode, batch))
                self._sent = clock()
                await send({"type": "http.response.body", "body": body, "more_body": not last})

    def _settled(self) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle()

    def leave(self) -> None:
        """Ends the response without a word."""
        if not self._gone:
            self._gone = True
            self._task.cancel()

    async def _watch(self, receive: Receive) -> None:
        """Leaves when the reader hangs up."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.leave()

    def _check(self, send: Send) -> None:
        """Lets a heartbeat be sent when nothing else was."""
        left = self._sent + self._heartbeat - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check, send)
        else:
            self._sent = self._loop.time()
            self._beat = asyncio.create_task(self._send_beat(send), name="heartbeat")

    async def _send_beat(self, send: Send) -> None:
        try:
            async with asyncio.timeout(self._heartbeat * BEATS_UNREAD):
                await send({"type": "http.response.body", "body": native.HEARTBEAT, "more_body": True})
        except TimeoutError:
            log.info("turn %s: its reader takes nothing", self.turn.id)
            self.leave()
        else:
            self._check(send)


async def server_stops() -> None:
    """Waits until the server that runs us is told to stop, whichever server that is."""
    await EventSourceResponse._listen_for_exit_signal()
