"""One connection of the server. Uvicorn's, with bounds on what may come before a request is let in."""

import logging
from asyncio import TimerHandle, Transport
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from brain.server.accepting import HELD_SECONDS, response, starts_turn
from brain.server.admission import START, Reason
from brain.server.event_stream import SHUTDOWN_SECONDS, WRITE_EXTENSION
from brain.server.middleware import network_of
from brain.server.state import ServerState

HEAD_BYTES = 64 * 1024
"""Of a request's head; of a body's trailers; and of what comes while earlier requests wait for their answers."""
HEADERS_MOST = 256
HEAD_SECONDS = 20.0
"""How long a head may take, from the connection's beginning or from the end of the answer before it."""
WAITING_MOST = 16
"""So many requests may wait on a connection whose earlier one is being answered (pipelining)."""
TAKING_SECONDS = SHUTDOWN_SECONDS / 2
"""How long a server that leaves waits for clients to take the rest of their answers, or to send that of bodies."""

REFUSED_MOST = 64
"""Connections over a limit whose request is awaited, to be answered 503; further ones are ended without an answer."""
REFUSED_SECONDS = 2.0
"""How long their heads may take."""
log = logging.getLogger("brain")

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 24\r\nconnection: close\r\n\r\nThe head is too large.\r\n"
)


class _TooMuch(Exception):
    """Makes the parser stop."""


def write_piece(cycle: RequestResponseCycle, data: bytes) -> bool:
    """Write a piece of a chunked body at once, without the event loop. False when the client is not ready for it."""
    if cycle.flow.write_paused or cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
        return False
    if data:
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
    return True


class Protocol(HttpToolsProtocol):
    """Uvicorn's knows no bounds for heads, connections and pipelining, and sees a hang-up only of its newest request.

    Nothing of it runs for what is sent.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._unanswered: list[RequestResponseCycle] = []  # the first is being answered
        self._held = 0  # bytes that came and are handed on to nobody yet
        self._late: TimerHandle | None = None
        app: Any = self.app
        self._proxies: Any = getattr(app, "trusted_hosts", ())
        while not hasattr(app, "state"):  # the application inside uvicorn's middleware
            app = app.app
        self._house: ServerState = app.state.house
        self._address: str | None = None  # that this connection is counted under
        self._over: Reason | None = None  # the limit that this connection is over
        self._refusing = False
        if self._house.make_protocol is None:
            self._house.make_protocol = partial(type(self), *args, **more)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        connections = self._house.connections
        if self.client is not None and not self._is_from_proxy():
            self._count_address(self.client[0])
        if self._over is None and connections.open >= connections.most:
            self._over = self._displace()
        if self._over is None:
            connections.open += 1
            self._house.watch.metrics.connections(connections.open)
            self._await_head(HEAD_SECONDS)
        elif len(connections.refused) >= REFUSED_MOST:
            transport.abort()
        else:
            connections.refused.add(self)
            self._await_head(REFUSED_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """It left: all its requests are told."""
        self._heard_head()
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
            self._end_start(cycle)
        self._unanswered.clear()
        self._leave_address()
        connections = self._house.connections
        connections.refused.discard(self)
        if self._over is None:
            connections.open -= 1
            self._house.watch.metrics.connections(connections.open)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """What was read. It is read on while requests wait, since a hang-up is not seen otherwise."""
        if self._refusing:
            return
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
        if not self._unanswered and (reason := self._reason_to_refuse()):
            self._refuse_for(reason)
            return
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._unanswered.append(self.cycle)
            extensions: dict[str, Any] = {WRITE_EXTENSION: partial(write_piece, self.cycle)}
            self.scope["extensions"] = extensions
        self._handed_on()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        if not self._refusing:
            super().on_body(body)
            self._handed_on()

    def on_message_complete(self) -> None:
        """A request is there, with all of its body."""
        if self._refusing:
            return
        super().on_message_complete()
        scope: Any = self.cycle.scope
        is_start = not self.cycle.response_complete and starts_turn(scope["method"].encode(), self.url)
        if is_start and self._house.admission.room > 0:  # else the application refuses it
            scope[START] = self._house.admission.begin(self.loop.time())

    def on_response_complete(self) -> None:
        """The first request is answered."""
        for cycle in self._unanswered[:1]:
            self._end_start(cycle)
        del self._unanswered[:1]
        self._held = 0
        super().on_response_complete()
        if not self._unanswered and not self.transport.is_closing():
            if self._is_from_proxy():
                self._leave_address()
            self._await_head(HEAD_SECONDS)

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

    # limits

    def _is_from_proxy(self) -> bool:
        """Whether a trusted proxy connected, which names the clients of its requests."""
        return self.client is None or self.client[0] in self._proxies

    def _displace(self) -> Reason | None:
        """Make room by ending the connection that has waited longest for a request; the limit, if none waits."""
        self._count_refusal("connections")
        oldest = next(iter(self._house.connections.idle), None)
        if oldest is None:
            return "connections"
        log.warning(
            "%d connections are open, the limit: the one that waited longest for a request is closed",
            self._house.connections.most,
        )
        oldest._heard_head()
        oldest.transport.abort()
        return None

    def _count_address(self, host: str) -> None:
        address = network_of(host)
        if self._house.connections.enter(address):
            self._address = address
        else:
            self._over = "address"
            self._count_refusal("address")
            log.warning(
                "%s has %d open connections, the limit (CONNECTIONS_PER_ADDRESS)",
                address,
                self._house.connections.most_per_address,
            )

    def _leave_address(self) -> None:
        if self._address is not None:
            self._house.connections.leave(self._address)
            self._address = None

    def _reason_to_refuse(self) -> Reason | None:
        if self._over is None and self._is_from_proxy():
            forwarded = b", ".join(value for name, value in self.headers if name == b"x-forwarded-for")
            host = self._proxies.get_trusted_client_address(forwarded.decode("latin-1"))[0] if forwarded else ""
            if host:
                self._count_address(host)
                reason, self._over = self._over, None  # of this request; the connection is the proxy's
                return reason
        if self._over is None and self._house.admission.room < 1 and starts_turn(self.parser.get_method(), self.url):
            names = {name for name, _ in self.headers}
            if b"last-event-id" not in names and b"origin" not in names:  # as `Acceptor` does it
                return "overload"
        return self._over

    def _refuse_for(self, reason: Reason) -> None:
        """Answer 503 and close, without the application; what else the client sends is dropped until then."""
        self._refusing = True
        if reason == "overload":  # the others were counted when the connection came
            self._count_refusal(reason)
        data = response(self.url.partition(b"?")[0], reason)

        def send() -> None:
            self.transport.write(data)
            self.transport.close()

        self._late = self.loop.call_later(HELD_SECONDS if reason == "overload" else 0.0, send)

    def _count_refusal(self, reason: Reason) -> None:
        self._house.watch.metrics.refused(reason)

    def _end_start(self, cycle: RequestResponseCycle) -> None:
        scope: Any = cycle.scope
        if START in scope:
            scope[START].end()

    def _await_head(self, seconds: float) -> None:
        if self._over is None:
            self._house.connections.idle[self] = None
        self._late = self.loop.call_later(seconds, self.transport.close)

    def _heard_head(self) -> None:
        self._house.connections.idle.pop(self, None)
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _leave(self) -> None:
        """Ends what no client takes; and what no client sends the rest of."""
        if self.transport.get_write_buffer_size() or (self._unanswered and self._unanswered[0].more_body):
            self.transport.abort()
