"""Begins a turn for a route, whatever its protocol; answers that are not streamed are put together here."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack, aclosing, suppress
from functools import partial

from starlette.requests import ClientDisconnect, Request

from brain.events import Event
from brain.markers.template_tokens import of_template
from brain.messages import ClientMessage, History, TurnReport, new_conversation_id
from brain.prompts import context_window
from brain.prompts.client_history import ClientHistory
from brain.runtime.engine import narrowed
from brain.runtime.run import Run
from brain.server.admission import START, Start, refused
from brain.server.event_stream import Encoder, EventStreamResponse, Reader, Refusal, until_disconnect
from brain.server.rate_limits import SOON, too_many
from brain.server.routes.requests import house_of
from brain.server.state import ServerState
from brain.turn_request import TurnRequest

ENDING_SECONDS = 0.5
READERS_MOST = 64
"""Of one turn, at once. Each is a stream of its own."""


async def begun(
    request: Request,
    ask: TurnRequest,
    wire: str,
    *,
    held: History | None = None,
    replayable: bool = True,
    unread_seconds: float | None = None,
) -> Run:
    """Takes on a turn, which is then to be led: by a response, or alone. The rest is as `Engine.begin`.

    Raises:
        BadRequest: when the user may not ask now, or not this.
    """
    house = house_of(request)
    settle = partial(_settle, house, ask.user, request.headers.get("traceparent", ""))
    with ExitStack() as starting, ExitStack() as taken:  # the second is given back when the turn cannot begin
        starting.callback(_start(request, house).end)
        house.allowances.begin(ask.user, time.monotonic())
        taken.callback(house.allowances.end, ask.user)
        run = await house.begin(ask, wire, settle, held=held, replayable=replayable, unread_seconds=unread_seconds)
        taken.pop_all()
    house.watch.metrics.began()
    return run


def _start(request: Request, house: ServerState) -> Start:
    """The start that the connection counts already, or a new one.

    Raises:
        BadRequest: when the server is overloaded.
    """
    counted: Start | None = request.scope.get(START)
    if counted is not None:
        return counted
    if house.admission.room < 1:
        house.watch.metrics.refused("overload")
        raise refused("overload")
    return house.admission.begin(asyncio.get_running_loop().time())


def _settle(house: ServerState, user: str | None, traceparent: str, report: TurnReport) -> None:
    house.allowances.end(user)
    house.admission.end_turn()
    house.watch.ended(report, traceparent)


def held(house: ServerState, ask: TurnRequest, spoken: Sequence[ClientMessage]) -> tuple[TurnRequest, History]:
    """What is asked by a client that holds the history, and what it goes on from. Long histories take their time."""
    ask = narrowed(ask, house.settings.rights(ask.user))
    taken = [specialist.name for specialist in house.registry.usable(ask.specialists)]
    model = house.model(ask.model)
    history = ClientHistory(ask, taken, of_template(model.template))
    ask, found = history.conversation(spoken, ask.conversation_id or new_conversation_id())
    return ask, context_window.fit_to_context(found, model.context_tokens)


def stream(request: Request, run: Run, encoder: Encoder | None = None, after: int = 0) -> EventStreamResponse:
    """A response that streams a run to one more reader, from after event `after`.

    Raises:
        BadRequest: `gone`, when what follows is no longer available; `rate_limited`, when the run has too many readers.
    """
    if run.readers >= READERS_MOST:
        raise too_many(f"This turn has {run.readers} readers, as many as may be at once; come back later.", SOON)
    return _stream(request, Reader(run, encoder, after))


def _stream(request: Request, reader: Reader, refusal: Refusal | None = None) -> EventStreamResponse:
    house = house_of(request)
    return EventStreamResponse(
        reader,
        heartbeat=house.settings.heartbeat_seconds,
        count_streams=house.watch.metrics.count_streams,
        refusal=refusal,
    )


def start_and_stream(
    request: Request,
    run: Run,
    encoder: Encoder | None = None,
    *,
    owns_run: bool = False,
    refusal: Refusal | None = None,
) -> EventStreamResponse:
    """The same for a run that starts now.

    Args:
        owns_run: whether it stops when this reader leaves.
    """
    response = _stream(request, Reader(run, encoder, owns_run=owns_run), refusal)
    run.start()
    return response


async def about_to_end(run: Run | None) -> None:
    """Waits a moment for a turn of the same conversation, whose client has just stopped reading."""
    if run is not None and run.log.replayable:
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await run.wait_ended()


async def collect(request: Request, run: Run) -> list[Event]:
    """All events of a run, for an answer that is not streamed. When the client leaves, the run is stopped.

    Raises:
        ClientDisconnect: when nobody is left to be answered.
    """
    leaving = asyncio.create_task(until_disconnect(request.receive), name="disconnect")
    leaving.add_done_callback(lambda _: run.stop())
    collected: list[Event] = []
    try:
        async with aclosing(run.events()) as batches:
            async for events in batches:
                collected += events
        if leaving.done():
            raise ClientDisconnect
        return collected
    finally:
        leaving.cancel()
        await asyncio.wait({leaving})
