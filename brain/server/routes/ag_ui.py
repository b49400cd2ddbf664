"""Route of the AG-UI protocol. A run is a turn, or the part of a turn before or after an approval."""

from collections.abc import Sequence
from functools import partial

from starlette.responses import Response
from starlette.types import ASGIApp

from brain.errors import BadRequest, RunsElsewhere
from brain.events import ApprovalRequired, Event, Round, SpecialistError, SpecialistResult, SpecialistStart
from brain.messages import Exchange
from brain.protocols import ag_ui
from brain.protocols.ag_ui import InterruptAnswer, RequestOptions, messages_since, parse_resume
from brain.protocols.common import MESSAGE_LENGTH, ClientMessage, check_limit
from brain.runtime.commands import Decide, SteerTurn
from brain.runtime.run import RunOptions
from brain.server.responses import SAFE_HEADERS
from brain.server.routes.requests import Request, client_of, read_json
from brain.server.routes.runs import begin_run, is_busy, stream, wait_if_ending
from brain.validation import quote_value

_DECIDED = (SpecialistStart, SpecialistResult, SpecialistError)
_STREAM_HEADERS = {
    **SAFE_HEADERS,
    "Content-Type": ag_ui.Encoder.content_type.decode(),
    "Cache-Control": "no-cache, no-transform",
}


async def run_agent(request: Request) -> ASGIApp:
    """`POST /ag-ui/run`: one run of the protocol."""
    parse = partial(ag_ui.parse, client=client_of(request))
    turn_request, messages, options = await read_json(request, parse)
    try:
        resumed = await _resume(request, messages, options)
    except RunsElsewhere:  # the process that has the turn responds
        raise
    except BadRequest as error:  # the protocol requires this error within a run
        return Response(ag_ui.encode_failed_run(options, error), headers=_STREAM_HEADERS)
    if resumed is not None:
        return resumed
    await wait_if_ending(await request.engine.runs.find_newest(options.conversation_id, request.username))
    run = await begin_run(request, turn_request, "ag_ui", RunOptions(unread_seconds=0.0), messages)
    response = stream(request, run, ag_ui.Encoder(options, run.id, run.snapshot().model), rejects=is_busy)
    run.start()
    return response


async def _resume(request: Request, messages: Sequence[ClientMessage], options: RequestOptions) -> ASGIApp | None:
    """Continue a turn whose interrupts are answered; return None for a request that starts a turn."""
    turns, user = request.engine.runs, request.username
    answers = parse_resume(options.resume)
    run = await turns.find(answers[0].turn_id, user) if answers else None
    if run is None or run.conversation_id != options.conversation_id:
        newest = await turns.find_newest(options.conversation_id, user)
        if newest is not None and not newest.has_ended:
            exchange = newest.snapshot()
            open_calls = [call.id for call in exchange.calls if call.approval == "asked"]
            ids = ", ".join(f"{newest.id}.{call_id}.{newest.log.last}" for call_id in open_calls)
            if exchange.state == "waiting":
                raise _interrupted(
                    f"This thread waits for an approval. Send `resume` with one entry per interrupt: {ids}."
                )
        if any(answer.approve is not None for answer in answers):
            raise _unknown(answers[0])
        return None
    exchange = run.snapshot()
    # another process may have asked, which died; then the client has read all that this one has sent so far
    after = answers[0].after if answers[0].after >= run.log.start else run.log.last
    received = run.log.events(until=after)
    _check_answers(exchange, received, answers)
    known_ids = {f"{run.id}.{event.call_id}" for event in received if isinstance(event, (ApprovalRequired, *_DECIDED))}
    message = "\n\n".join(messages_since(messages, known_ids))
    check_limit("messages", len(message), MESSAGE_LENGTH, "characters after the interrupt")
    approvals = {call.id: call.approval for call in exchange.calls}
    undecided = [answer for answer in answers if approvals.get(answer.call_id) == "asked"]
    if undecided and message:  # a repeated request changes nothing
        run.apply(SteerTurn(message))
    for answer in undecided:
        run.apply(Decide(answer.call_id, bool(answer.approve)))
    current = next((event for event in reversed(received) if isinstance(event, Round)), None)
    encoder = ag_ui.Encoder(options, run.id, exchange.model, after, known_ids, current)
    return stream(request, run, encoder, after)


def _check_answers(exchange: Exchange, received: Sequence[Event], answers: Sequence[InterruptAnswer]) -> None:
    """Check that the answers match the open interrupts of this run and do not contradict earlier answers."""
    after = answers[0].after
    interrupts = {event.call_id for event in received if isinstance(event, ApprovalRequired)}
    interrupts -= {event.call_id for event in received if isinstance(event, _DECIDED)}
    approvals = {call.id: call.approval for call in exchange.calls}
    for answer in answers:
        if answer.turn_id != exchange.turn_id or answer.after != after or answer.call_id not in interrupts:
            raise _unknown(answer)
        approval = approvals.get(answer.call_id)
        # the client can repeat an answer, and cancel an expired interrupt
        accepted = {None: ("declined", "expired"), True: ("approved",), False: ("declined",)}[answer.approve]
        if approval == "asked" or approval in accepted:
            continue
        if approval == "expired":
            message = f"The interrupt {answer.interrupt_id} has expired. Send it with status cancelled to continue."
            raise BadRequest(message, "resume", code="gone", status=410)
        message = f"The interrupt {answer.interrupt_id} was already {approval}."
        raise BadRequest(message, "resume", code="decided", status=409)
    unanswered = interrupts - {answer.call_id for answer in answers}
    still_open = [call_id for call_id in sorted(unanswered) if approvals.get(call_id) == "asked"]
    if still_open:
        ids = ", ".join(f"{exchange.turn_id}.{call_id}.{after}" for call_id in still_open)
        raise _interrupted(f"`resume` must answer every open interrupt; missing: {ids}.")


def _interrupted(message: str) -> BadRequest:
    return BadRequest(message, "resume", code="interrupted", status=409)


def _unknown(answer: InterruptAnswer) -> BadRequest:
    interrupt_id = quote_value(answer.interrupt_id)
    message = f"This thread has no open interrupt {interrupt_id}. Send it with status cancelled to continue."
    return BadRequest(message, "resume", code="not_found", status=404)
