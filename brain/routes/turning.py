"""Roof: begins a turn for a route, whatever its protocol; answers that are not streamed are put together here."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial

from starlette.requests import ClientDisconnect, Request

from brain import conversation
from brain.admission import START, Start, refused
from brain.ask import Ask
from brain.engine import narrowed
from brain.errors import BadRequest
from brain.events import Event
from brain.held import Held
from brain.house import House
from brain.kept import Conversation
from brain.leading import Run
from brain.messages import Spoken, new_conversation_id
from brain.rates import SOON, too_many
from brain.report import TurnReport
from brain.response import Encoder, Refusal, TurnResponse
from brain.routes.incoming import house_of
from brain.template_tokens import of_template

ENDING_SECONDS = 0.5
READERS_MOST = 64
"""Of one turn, at once. Each is a stream of its own."""


async def begun(
    request: Request,
    ask: Ask,
    wire: str,
    *,
    held: Conversation | None = None,
    joinable: bool = True,
    survives: float | None = None,
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
        run = await house.begin(ask, wire, settle, held=held, joinable=joinable, survives=survives)
        taken.pop_all()
    house.watch.metrics.began()
    return run


def _start(request: Request, house: House) -> Start:
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


def _settle(house: House, user: str | None, traceparent: str, report: TurnReport) -> None:
    house.allowances.end(user)
    house.admission.end_turn()
    house.watch.ended(report, traceparent)


def held(house: House, ask: Ask, spoken: Sequence[Spoken]) -> tuple[Ask, Conversation]:
    """What is asked by a client that holds the history, and what it goes on from. Long histories take their time."""
    ask = narrowed(ask, house.settings.rights(ask.user))
    taken = [specialist.name for specialist in house.registry.usable(ask.specialists)]
    model = house.model(ask.model)
    history = Held(ask, taken, of_template(model.template))
    ask, found = history.conversation(spoken, ask.conversation_id or new_conversation_id())
    return ask, conversation.windowed(found, model.context_tokens)


def led(request: Request, run: Run, encoder: Encoder, refusal: Refusal | None = None) -> TurnResponse:
    """A response that runs the turn, and with whose reader it ends."""
    house = house_of(request)
    heartbeat = house.settings.heartbeat_seconds
    return TurnResponse(run, encoder, open_ones=house.answers, heartbeat=heartbeat, refusal=refusal)


def followed(request: Request, run: Run, encoder: Encoder, after: int = 0) -> TurnResponse:
    """A response for one more reader of a turn that others run; from behind event `after`.

    Raises:
        BadRequest: `gone`, when what came behind it is no longer kept; `rate_limited`, when it has too many readers.
    """
    if run.journal is None:
        raise BadRequest("This turn cannot be joined.", code="gone", status=410)
    run.journal.check(after)
    if run.readers >= READERS_MOST:
        raise too_many(f"This turn has {run.readers} readers, as many as may be at once; come back later.", SOON)
    house = house_of(request)
    heartbeat = house.settings.heartbeat_seconds
    return TurnResponse(run, encoder, open_ones=house.answers, heartbeat=heartbeat, after=after)


async def about_to_end(run: Run | None) -> None:
    """Waits a moment for a turn of the same conversation, whose client has just stopped reading."""
    if run is not None and run.journal is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await run.end()


async def whole(request: Request, run: Run) -> list[Event]:
    """All events of a turn, for an answer that is not streamed. When the client leaves, the turn is stopped.

    Raises:
        ClientDisconnect: when nobody is left to be answered.
    """
    watching = asyncio.create_task(_hung_up(request), name="hang-up")
    watching.add_done_callback(lambda _: run.stop())
    events: list[Event] = []
    try:
        async for batch in run.lead():
            events += batch
        if watching.done():
            raise ClientDisconnect
        return events
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
