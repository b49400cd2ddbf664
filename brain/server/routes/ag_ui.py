"""AG-UI. A run is a turn; where a person has to agree to a call, each part of it up to that is a run."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from brain.errors import BadRequest
from brain.events import ApprovalRequired, Event, SpecialistError, SpecialistResult, SpecialistStart
from brain.messages import ClientMessage
from brain.protocols import ag_ui
from brain.protocols.ag_ui import InterruptAnswer, RequestOptions, messages_since, parse, parse_resume
from brain.protocols.native import MESSAGE_LENGTH
from brain.runtime.run import Run
from brain.server import middleware
from brain.server.routes.requests import house_of, kind, limited, parsed, read, user_of
from brain.server.routes.runs import about_to_end, begun, held, start_and_stream, stream
from brain.server.state import ServerState

WIRE = "ag_ui"
_DECIDED = (SpecialistStart, SpecialistResult, SpecialistError)


class Runs:
    """`POST /ag-ui/run`: one run. No function, since Starlette wraps what functions send once more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        try:
            response = await _response(Request(scope, receive))
        except BadRequest as error:
            status, body = ag_ui.encode_rejection(error)
            response = middleware.Answer(body, status, middleware.refusal_headers(error))
        await response(scope, receive, send)


async def _response(request: Request) -> ASGIApp:
    if kind(request) != "application/json":
        raise BadRequest("Send application/json.", "content-type", code="unsupported_media_type", status=415)
    house, user = house_of(request), user_of(request)
    body = await limited(request).body()
    ask, spoken, wanted = await parsed(body, lambda: parse(body, user, house.settings, house.names()))
    try:
        resumed = _resumed(request, spoken, wanted)
    except BadRequest as error:  # the protocol wants to hear of it from a run
        return Response(ag_ui.encode_failed_run(wanted, error), headers=_STREAM)
    if resumed is not None:
        return resumed
    ask, conversation = await read(body, lambda: held(house, ask, spoken))
    await about_to_end(house.turns.newest(wanted.conversation_id, user))
    run = await begun(request, ask, WIRE, held=conversation, unread_seconds=0.0)
    return start_and_stream(request, run, ag_ui.Encoder(wanted, run.id, run.report().model))


_STREAM = {
    **middleware.SAFE_HEADERS,
    "Content-Type": ag_ui.Encoder.content_type.decode(),
    "Cache-Control": "no-cache, no-transform",
}


def _resumed(request: Request, spoken: Sequence[ClientMessage], wanted: RequestOptions) -> ASGIApp | None:
    """The rest of a turn whose calls were answered; None for a run that is a turn of its own.

    Raises:
        BadRequest: when the thread waits for other answers than these, or can take them no more.
    """
    house, user = house_of(request), user_of(request)
    given = parse_resume(wanted.resume)
    run = house.turns.find(given[0].turn_id, user) if given else None
    if run is None or run.conversation_id != wanted.conversation_id:
        _check_nothing_waits(house, user, wanted)
        if any(answer.approve is not None for answer in given):
            raise _unknown(given[0])
        return None
    told = run.log.events(until=given[0].after)
    _check_answers(run, told, given)
    known = {f"{run.id}.{event.call_id}" for event in told if isinstance(event, (ApprovalRequired, *_DECIDED))}
    said = "\n\n".join(messages_since(spoken, known))
    if len(said) > MESSAGE_LENGTH:
        message = f"What the user said since may be {MESSAGE_LENGTH:,} characters long."
        raise BadRequest(message, "messages", code="too_large", status=413)
    _decide(run, given, said)
    return stream(request, run, ag_ui.Encoder(wanted, run.id, run.report().model, len(told), known), len(told))


def _decide(run: Run, given: Sequence[InterruptAnswer], said: str) -> None:
    """Takes the answers, and what the user said with them; the same request again changes nothing."""
    open_ones = [answer for answer in given if _decision(run, answer.call_id) == "asked"]
    if open_ones and said:
        run.steer(said)
    for answer in open_ones:
        run.decide(answer.call_id, bool(answer.approve))


def _check_nothing_waits(house: ServerState, user: str | None, wanted: RequestOptions) -> None:
    run = house.turns.newest(wanted.conversation_id, user)
    if run is not None and run.is_waiting:
        ids = [_interrupt_id(run, call.id) for call in run.report().calls if call.approval == "asked"]
        message = f"This thread waits for an approval; send resume with an entry for each of: {', '.join(ids)}."
        raise BadRequest(message, "resume", code="interrupted", status=409)


def _interrupt_id(run: Run, call_id: str) -> str:
    return f"{run.id}.{call_id}.{run.log.last}"


def _check_answers(run: Run, told: Sequence[Event], given: Sequence[InterruptAnswer]) -> None:
    """Whether all interrupts that are open are answered, none that a run did not ask about, and each can be so."""
    asked = {event.call_id for event in told if isinstance(event, ApprovalRequired)}
    asked -= {event.call_id for event in told if isinstance(event, _DECIDED)}
    for answer in given:
        if answer.turn_id != run.id or answer.after != len(told) or answer.call_id not in asked:
            raise _unknown(answer)
        _check_decision(answer, _decision(run, answer.call_id))
    missing = asked - {answer.call_id for answer in given}
    ids = [f"{run.id}.{call_id}.{len(told)}" for call_id in sorted(missing) if _decision(run, call_id) == "asked"]
    if ids:
        message = f"resume must answer every open interrupt; missing: {', '.join(ids)}."
        raise BadRequest(message, "resume", code="interrupted", status=409)


def _decision(run: Run, call_id: str) -> str | None:
    """How it stands with a call."""
    return next((call.approval for call in run.report().calls if call.id == call_id), None)


def _check_decision(answer: InterruptAnswer, decision: str | None) -> None:
    """The same answer may come again, and what expired may be given up."""
    same = {None: ("declined", "expired"), True: ("approved",), False: ("declined",)}[answer.approve]
    if decision == "asked" or decision in same:
        return
    if decision == "expired":
        message = f"The time to approve {answer.interrupt_id} is over; send it as cancelled to go on."
        raise BadRequest(message, "resume", code="gone", status=410)
    raise BadRequest(f"{answer.interrupt_id} was {decision} already.", "resume", code="decided", status=409)


def _unknown(answer: InterruptAnswer) -> BadRequest:
    message = f"No interrupt {answer.interrupt_id[:200]} is open in this thread; send it as cancelled to go on."
    return BadRequest(message, "resume", code="not_found", status=404)
