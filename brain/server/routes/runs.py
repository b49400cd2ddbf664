"""Helpers of the routes to start runs in any protocol, and to stream or collect their events."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from brain.errors import BadRequest, RunsElsewhere, StoreError
from brain.events import Error, Event, Notice, Thinking, Token
from brain.markers.template_tokens import find_control_tokens
from brain.messages import History, new_conversation_id
from brain.prompts import context_window
from brain.prompts.client_history import UNKNOWN, ClientHistory
from brain.protocols.common import ClientMessage
from brain.protocols.encoding import InlineText, as_rejection
from brain.runtime.engine import narrow_request
from brain.runtime.run import DEFAULT_OPTIONS, Run, RunOptions
from brain.server.admission import unavailable
from brain.server.event_stream import Encoder, EventStreamResponse, Reader, wait_for_disconnect
from brain.server.rate_limits import RETRY_SOON, rate_limited
from brain.server.responses import ApiResponse, no_content
from brain.server.routes.requests import Request, compute
from brain.store import answers
from brain.store.answers import normalize
from brain.turn_request import TurnRequest

CONVERSATION_ID = "x-conversation-id"
"""Header by which clients store a turn, where the protocol's bodies have no place for the conversation."""
ENDING_SECONDS = 0.5
TURN_EXPIRED = "Turn not found or expired."
MESSAGE_BYTES = 100
"""What a message counts besides its text and files."""
READERS_LIMIT = 64
"""Concurrent streams of one turn."""


async def begin_run(
    request: Request,
    turn_request: TurnRequest,
    protocol: str,
    options: RunOptions = DEFAULT_OPTIONS,
    messages: Sequence[ClientMessage] | None = None,
) -> Run:
    """Count a turn and store its message; the caller starts the run. Other arguments as in `Engine.begin`.

    Args:
        messages: the conversation, from a client that sends all of it.

    Raises:
        BadRequest: the server or the user has reached a limit, or as in `Engine.begin`.
    """
    history: History | None = None
    if messages is not None:
        turn_request, history = await _prepare_history(request, turn_request, messages)
    state = request.server
    user = turn_request.user
    traceparent = request.headers.get("traceparent", "")

    def record_end(run: Run) -> None:
        state.rate_limits.release(user)
        state.admission.count_end()
        if run.log.is_cut_off:
            state.telemetry.metrics.count_handover()
        else:
            state.telemetry.record(run.snapshot(), run.conversation_id, user, traceparent)

    if state.engine.is_closing:
        raise unavailable("stopping")
    if state.admission.capacity < 1:
        state.record_overload()
        raise unavailable("overload")
    with state.admission.waiting_turn():
        state.rate_limits.acquire(user, time.monotonic())
        try:
            run = await state.engine.begin(turn_request, protocol, record_end, history=history, options=options)
        except RunsElsewhere:
            state.rate_limits.undo(user)
            raise
        except BaseException:
            state.rate_limits.release(user)
            raise
    state.telemetry.metrics.count_start()
    return run


async def _prepare_history(
    request: Request, turn_request: TurnRequest, messages: Sequence[ClientMessage]
) -> tuple[TurnRequest, History]:
    """The turn and the history of a client that sends the whole conversation."""
    engine = request.engine
    size = sum(map(_size, messages))
    sent = [one.text for one in messages if one.role == "assistant" and one.text]
    marks = UNKNOWN
    if sent:
        texts = await compute(size, list, map(normalize, sent))
        with suppress(StoreError):  # without the store, no answer is known
            marks = await engine.store.read(answers.find_marks, turn_request.user or "", texts)

    def prepare() -> tuple[TurnRequest, History]:
        narrow = narrow_request(turn_request, engine.settings.rights(turn_request.user))
        usable = engine.registry.usable(narrow.specialists)
        private = [specialist.name for specialist in usable if specialist.private]
        model = engine.find_model(narrow.model, private=narrow.private)
        tokens = find_control_tokens(model.template)
        client_history = ClientHistory(narrow, [specialist.name for specialist in usable], tokens, private)
        request_with_history, full_history = client_history.build(
            messages, narrow.conversation_id or new_conversation_id(), marks
        )
        return request_with_history, context_window.fit_to_context(full_history, model.context_tokens)

    return await compute(size, prepare)


def _size(message: ClientMessage) -> int:
    """About how many bytes of a message are processed."""
    calls = sum(len(repr(call.params)) for call in message.calls)
    return MESSAGE_BYTES + len(message.text) + calls + sum(len(file.data) for file in message.attachments)


def inline_results(request: Request, run: Run) -> InlineText:
    """Return the text encoder for protocols that have no events for calls."""
    settings = request.engine.settings
    return InlineText(settings.show_results, f"{request.base_url}v1/turns/{run.id}", has_keys=bool(settings.keys))


def stream(
    request: Request,
    run: Run,
    encoder: Encoder | None = None,
    after: int = 0,
    *,
    owns_run: bool = False,
    rejects: Callable[[Error], bool] | None = None,
) -> EventStreamResponse:
    """Return a response that streams the events of a run after the event `after`. The caller then starts a new run.

    Args:
        owns_run: whether the run stops when this client disconnects.

    Raises:
        BadRequest: `gone`, if these events have expired; `rate_limited`, if the run has too many readers.
    """
    if run.readers >= READERS_LIMIT:
        raise rate_limited(
            f"This turn has reached its limit of {READERS_LIMIT} connections. Try again later.", RETRY_SOON
        )
    heartbeats = request.server.heartbeats
    return EventStreamResponse(
        Reader(run, encoder, after, heartbeats=heartbeats, owns_run=owns_run),
        heartbeat=heartbeats.seconds,
        count_streams=request.server.telemetry.metrics.count_streams,
        rejects=rejects,
    )


class CompletionEncoder(Encoder, Protocol):
    """An encoder of a protocol that has streams and whole responses."""

    def encode_response(self, events: Sequence[Event]) -> Mapping[str, Any]:
        """Return the body for all events of a turn, for a client that does not stream."""


async def complete(request: Request, run: Run, encoder: CompletionEncoder, *, streams: bool) -> ASGIApp:
    """Start a run, and return its stream or its whole response. A failure before the first text has an HTTP status."""
    if streams:
        response = stream(request, run, encoder, owns_run=True, rejects=lambda error: True)
        run.start()
        return response
    body = encoder.encode_response(await _collect_events(request, run))
    return ApiResponse(body, headers={name.decode(): value.decode() for name, value in encoder.headers})


def conversation_header(request: Request, run: Run) -> Sequence[tuple[bytes, bytes]]:
    """Return the response header with the conversation, if the client named one."""
    has_header = bool(request.headers.get(CONVERSATION_ID))
    return [(CONVERSATION_ID.encode(), run.conversation_id.encode())] if has_header else []


def is_busy(error: Error) -> bool:
    """Reject only a turn whose model server was busy: the protocol has an event for errors, but no `Retry-After`."""
    return error.status in (429, 503)


async def resume_stream(request: Request, run: Run, after: int) -> ASGIApp:
    """Return the native stream after an event. After the last event, 204 stops the reconnects of an EventSource."""
    if run.has_ended and after == run.log.last and request.method == "GET":
        return no_content()
    return stream(request, run, after=after)


async def wait_if_ending(run: Run | None) -> None:
    """Wait briefly for the end of an earlier turn whose client has just disconnected."""
    if run is not None and run.log.replayable:
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await run.wait_ended()


async def _collect_events(request: Request, run: Run) -> list[Event]:
    """Start a run and return all its events."""
    disconnect = asyncio.create_task(wait_for_disconnect(request.receive), name="disconnect")
    disconnect.add_done_callback(lambda _: run.stop())
    try:
        async with aclosing(run.events()) as batches:
            collected = [event async for events in batches for event in events]
        if disconnect.done():
            raise ClientDisconnect
        if isinstance(collected[-1], Error):
            raise as_rejection(collected[-1])
        return _move_reasoning(collected)
    finally:
        disconnect.cancel()
        await asyncio.wait({disconnect})


def _move_reasoning(events: Sequence[Event]) -> list[Event]:
    """Return the events with text as reasoning if the notice `reasoning` follows it in its pass."""
    moved: list[Event] = []
    is_reasoning = False
    for event in reversed(events):
        if isinstance(event, Token) and is_reasoning:
            event = Thinking(event.text)
        elif not isinstance(event, Token | Thinking):
            is_reasoning = isinstance(event, Notice) and event.code == "reasoning"
        moved.append(event)
    return moved[::-1]


def not_found(message: str = TURN_EXPIRED, field: str | None = None) -> BadRequest:
    return BadRequest(message, field, code="not_found", status=404)


def gone(message: str, field: str | None = None) -> BadRequest:
    return BadRequest(message, field, code="gone", status=410)
