"""Routes for turns that need no connected client: start, read, stop, steer and approve them."""

from starlette.responses import Response
from starlette.types import ASGIApp

from brain.errors import BadRequest
from brain.messages import Exchange, to_answer_id
from brain.prompts.blocks import block_content
from brain.protocols import native
from brain.protocols.common import ID
from brain.protocols.native.resources import turn_report
from brain.runtime.commands import CancelTurn, Decide, ShowTurn, SteerTurn
from brain.runtime.run import AnyRun
from brain.server.responses import NO_STORE_HEADERS, ApiResponse
from brain.server.routes.chat import LAST_EVENT_ID
from brain.server.routes.requests import Request, link, no_turn, read_json, read_struct, read_turn_request
from brain.server.routes.runs import TURN_EXPIRED, begin_run, gone, not_found, resume_stream
from brain.store import conversations


async def create(request: Request) -> Response:
    """`POST /v1/turns`: start a turn, which runs without a connected client."""
    turn_request = await read_turn_request(request)
    run, new = await request.engine.runs.find_or_begin(turn_request, lambda: begin_run(request, turn_request, "native"))
    if new is not None:
        new.start()
    url = link(request, f"/v1/turns/{run.id}")
    body = {"turn_id": run.id, "conversation_id": run.conversation_id, "events": f"{url}/events"}
    return ApiResponse(body, 201, {"Location": url})


async def events(request: Request) -> ASGIApp:
    """`GET /v1/turns/{id}/events`: events after `Last-Event-ID` or `?after=`, an event ID or number."""
    run = await request.engine.runs.find(request.path_params["id"], request.username)
    if run is None:
        raise no_turn(request, gone(TURN_EXPIRED))
    after = request.headers.get(LAST_EVENT_ID) or request.query_params.get("after") or "0"
    turn_id, number = native.parse_event_id(after if "." in after else f"{run.id}.{after}")
    if turn_id != run.id:
        message = f"`Last-Event-ID` names an event of another turn, {turn_id}; send an event ID of {run.id}."
        raise BadRequest(message, LAST_EVENT_ID)
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=NO_STORE_HEADERS)
    return await resume_stream(request, run, number)


async def show(request: Request) -> Response:
    """`GET /v1/turns/{id}`: the report of the turn, by its ID or that of its stored answer."""
    engine, user, turn_id = request.engine, request.username, request.path_params["id"]
    run = await engine.runs.find(turn_id, user)
    if run is not None:
        return _report(request, run, await run.control(ShowTurn()))
    found = (
        await engine.store.search(conversations.find_answer, user, to_answer_id(turn_id))
        if ID.fullmatch(turn_id)
        else None
    )
    if found is None:
        raise no_turn(request, not_found())
    return ApiResponse(turn_report(*found, user, engine.settings.cost, block_content))


async def cancel(request: Request) -> Response:
    """`POST /v1/turns/{id}/cancel`: stop the turn, unless it has ended."""
    run = await _find(request)
    return _report(request, run, await run.control(CancelTurn()), 202)


async def steer(request: Request) -> Response:
    """`POST /v1/turns/{id}/steer`: add a message to the running turn."""
    run = await _find(request)
    message = await read_json(request, native.parse_steering)
    return _report(request, run, await run.control(SteerTurn(message)), 202)


async def approve(request: Request) -> Response:
    """`POST /v1/turns/{id}/approvals/{call_id}`: approve or decline a call."""
    run = await _find(request)
    body = await read_struct(request, native.ApprovalBody)
    return _report(request, run, await run.control(Decide(request.path_params["call_id"], body.approve)))


async def _find(request: Request) -> AnyRun:
    run = await request.engine.runs.find(request.path_params["id"], request.username)
    if run is None:
        raise no_turn(request, not_found())
    return run


def _report(request: Request, run: AnyRun, exchange: Exchange, status: int = 200) -> Response:
    cost = request.engine.settings.cost
    return ApiResponse(turn_report(run.conversation_id, exchange, run.user, cost, block_content), status)
