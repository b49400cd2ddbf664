"""Roof: begins a turn for a route, whatever its protocol; answers that are not streamed are put together here."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from starlette.requests import ClientDisconnect, Request

from brain import conversation
from brain.ask import Ask
from brain.errors import BadRequest
from brain.events import Event
from brain.held import Held
from brain.house import House
from brain.messages import Exchange, Spoken
from brain.passes import Model
from brain.rates import SOON, too_many
from brain.report import TurnReport
from brain.response import Encoder, Refusal, TurnResponse
from brain.routes.incoming import house_of
from brain.settings import Rights
from brain.store.memory import Record
from brain.turn import Conversation, Turn
from brain.turns import Run

ENDING_SECONDS = 0.5
READERS_MOST = 64
"""Of one turn, at once. Each is a stream of its own."""


def begun(
    request: Request,
    ask: Ask,
    wire: str,
    *,
    held: Conversation | None = None,
    joinable: bool = True,
    survives: float | None = None,
) -> Run:
    """Takes on a turn, which is then to be led: by a response, or alone.

    Args:
        wire: the protocol of who asks.
        held: the history that the client holds, with what is asked now; None where Brain holds it. It is the history
            then in any case; `ask.conversation_id` says under which id the turn is filed, if it is to be.
        joinable, survives: as `Turns.begin`.

    Raises:
        BadRequest: when the user may not ask now, or not this.
    """
    house = house_of(request)
    model = house.model(ask.model)
    ask = _narrowed(ask, house.settings.rights(ask.user))
    house.allowances.begin(ask.user, time.monotonic())
    with ExitStack() as taken:  # given back when the turn cannot begin
        taken.callback(house.allowances.end, ask.user)
        record = _record(house, ask, filed=held is None or ask.conversation_id is not None)
        if record is not None:
            taken.callback(house.store.give_back, record)
        if held is None:
            assert record is not None
            ask, held = conversation.recall(record, ask, model.context_tokens)
        if record is not None:
            record.check_room(held.begun or Exchange(ask.message), ask.attachments)
        turn = _turn(house, ask, held, model)
        taken.pop_all()
    if house.leaving:
        turn.stop("shutdown")
    settle = partial(_settle, house, turn.exchange, ask, record, request.headers.get("traceparent", ""))
    house.watch.metrics.began()
    return house.turns.begin(turn, ask, wire, settle, joinable=joinable, survives=survives)


def held(house: House, ask: Ask, spoken: Sequence[Spoken]) -> tuple[Ask, Conversation]:
    """What is asked by a client that holds the history, and what it goes on from. Long histories take their time."""
    ask = _narrowed(ask, house.settings.rights(ask.user))
    taken = [specialist.name for specialist in house.registry.usable(ask.specialists)]
    ask, found = Held(ask, taken).conversation(spoken, ask.conversation_id or conversation.new_id())
    return ask, conversation.windowed(found, house.model(ask.model).context_tokens)


def _narrowed(ask: Ask, rights: Rights) -> Ask:
    """The same, with no more specialists than the user may call, and none where the answer must be JSON."""
    if ask.sampling.format is not None:
        return replace(ask, specialists=frozenset(), tools=())
    if rights.specialists is None:
        return ask
    return replace(
        ask, specialists=rights.specialists if ask.specialists is None else rights.specialists & ask.specialists
    )


def _record(house: House, ask: Ask, *, filed: bool) -> Record | None:
    return house.store.take(ask.user, ask.conversation_id or conversation.new_id()) if filed else None


def _turn(house: House, ask: Ask, recalled: Conversation, model: Model) -> Turn:
    settings = house.settings
    return Turn(
        ask,
        recalled,
        model,
        house.registry,
        system=settings.system,
        silence=settings.model_idle_seconds,
        approval_seconds=settings.approval_seconds,
    )


def _settle(
    house: House, exchange: Exchange, ask: Ask, record: Record | None, traceparent: str, report: TurnReport
) -> None:
    if record is not None:
        conversation.keep(record, ask, exchange)
        house.store.give_back(record)
    house.allowances.end(ask.user)
    house.watch.ended(report, traceparent)


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
    if run is not None and run.journal is not None and not run.over:
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await run.journal.end()


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
