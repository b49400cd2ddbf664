"""Roof: one connection of the server. Uvicorn's, with bounds on what may come before a request is let in."""

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from brain.house import SHUTDOWN_SECONDS

HEAD_BYTES = 64 * 1024
"""Of a request's head; of a body's trailers; and of what comes while earlier requests wait for their answers."""
HEADERS_MOST = 256
HEAD_SECONDS = 20.0
"""How long a head may take, from the connection's beginning or from the end of the answer before it."""
WAITING_MOST = 16
"""So many requests may wait on a connection whose earlier one is being answered (pipelining)."""
TAKING_SECONDS = SHUTDOWN_SECONDS / 2
"""How long a server that leaves waits for clients to take the rest of their answers, or to send that of bodies."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 24\r\nconnection: close\r\n\r\nThe head is too large.\r\n"
)


class _TooMuch(Exception):
    """Makes the parser stop."""


class Protocol(HttpToolsProtocol):
    """Uvicorn's knows no bounds for heads and for pipelining, and sees a hang-up only of its newest request.

    Nothing of it runs for what is sent.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._unanswered: list[RequestResponseCycle] = []  # the first is being answered
        self._held = 0  # bytes that came and are handed on to nobody yet
        self._late: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It left: all its requests are told."""
        self._heard_head()
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self._unanswered.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """What was read. It is read on while requests wait, since a hang-up is not seen otherwise."""
        self._held += len(data)
        super().data_received(data)
        if self._held > HEAD_BYTES:
            self._refuse()
        elif len(self._unanswered) > 1:
            self.flow.resume_reading()

    def on_headers_complete(self) -> None:
        """A head is there.

        Raises:
            _TooMuch: to the parser, when it is too large, or one too many.
        """
        if len(self._unanswered) > WAITING_MOST or self._is_large():
            self._refuse()
            raise _TooMuch
        self._heard_head()
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._unanswered.append(self.cycle)
        self._handed_on()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        super().on_body(body)
        self._handed_on()

    def on_response_complete(self) -> None:
        """The first request is answered."""
        del self._unanswered[:1]
        self._held = 0
        super().on_response_complete()
        if not self._unanswered and not self.transport.is_closing():
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """What was read is no HTTP, or was too much and is refused already."""
        if self._unanswered:
            self.transport.abort()  # in the middle of another answer this one would be a part of that
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    def shutdown(self) -> None:
        """The server leaves."""
        super().shutdown()
        self.loop.call_later(TAKING_SECONDS, self._leave)

    def _handed_on(self) -> None:
        if len(self._unanswered) < 2:
            self._held = 0

    def _is_large(self) -> bool:
        """Whether a head is; its bytes are counted only when many came at once."""
        if len(self.headers) > HEADERS_MOST:
            return True
        if self._held <= HEAD_BYTES:
            return False
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > HEAD_BYTES

    def _refuse(self) -> None:
        if self._unanswered:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _await_head(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _heard_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _leave(self) -> None:
        """Ends what no client takes; and what no client sends the rest of."""
        if self.transport.get_write_buffer_size() or (self._unanswered and self._unanswered[0].more_body):
            self.transport.abort()
