"""Reads the channel of a user's background tasks for one client."""

import asyncio
import logging
from collections.abc import Callable

from brain.errors import StoreError
from brain.protocols.native import tasks as protocol
from brain.server.event_stream import Encoder
from brain.store import tasks
from brain.tasks import Tasks

log = logging.getLogger("brain")


class ChannelReader:
    """One client of a channel: an async iterator of the bytes to send.

    It reads the store after its cursor when something has changed, so nothing piles up for a slow client.

    Args:
        after: the cursor of the client.
        is_closing: returns whether the server stops, which ends the stream. `Tasks.notify` wakes the reader then.
        on_close: called once when the stream has ended.
    """

    def __init__(
        self, tasks: Tasks, user: str, after: int, is_closing: Callable[[], bool], on_close: Callable[[], None]
    ) -> None:
        self.encoder: Encoder | None = None
        self.write: Callable[[bytes], bool] | None = None
        self.is_interrupted = False
        self._loop = asyncio.get_running_loop()
        self.sent_at = self._loop.time()
        self._tasks = tasks
        self._user = user
        self._after = after
        self._is_closing = is_closing
        self._on_close = on_close
        self._pending = protocol.begin_channel(after)
        self._changed = asyncio.Event()
        self._unsubscribe = tasks.subscribe(self._changed.set)

    def __aiter__(self) -> "ChannelReader":
        return self

    async def __anext__(self) -> bytes:
        while not self._pending:
            if self._is_closing():
                raise StopAsyncIteration
            if self.is_interrupted:
                return b""
            self._changed.clear()
            try:
                packets = await self._tasks.store.read(tasks.read_channel, self._user, self._after)
            except StoreError as error:
                log.warning("the stream of tasks ends: %s", error)
                raise StopAsyncIteration from None
            if packets:
                self._after = packets[-1].key
                self._pending = protocol.encode_packets(packets)
            else:
                await self._changed.wait()
        data, self._pending = self._pending, b""
        self.sent_at = self._loop.time()
        return data

    def interrupt(self) -> None:
        """Make the iterator return empty bytes instead of waiting, until `is_interrupted` is reset."""
        self.is_interrupted = True
        self._changed.set()

    def put_back(self, data: bytes) -> None:
        """Put unsent data back to the front."""
        self._pending = data + self._pending

    def close(self) -> None:
        """Unsubscribe from the channel."""
        self._unsubscribe()
        self._on_close()
