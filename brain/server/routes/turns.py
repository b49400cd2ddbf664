"""Routes for turns: start, stream, read, stop, steer and approve them."""

from functools import partial

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from brain.errors import BadRequest
from brain.messages import Exchange, to_answer_id
from brain.prompts.blocks import block_content
from brain.protocols import native
from brain.protocols.native.resources import turn_report
from brain.runtime.commands import CancelTurn, Decide, SteerTurn
from brain.runtime.run import Run, RunOptions
from brain.server.responses import NO_STORE_HEADERS, ApiResponse
from brain.server.routes.requests import Request, link, read_json, read_struct, read_turn_request
from brain.server.routes.runs import TURN_EXPIRED, begin_run, gone, not_found, resume_stream, stream
from brain.store import conversations
from brain.text import ID

UNREAD_SECONDS = 30.0
"""Time for the client of a turn that was started with GET to reconnect."""
LAST_EVENT_ID = "last-event-id"


async def stream_turn(request: Request) -> ASGIApp:
    """`POST` and `GET /v1/chat/stream`: one turn.

    A turn that was started with POST ends when its client disconnects. With GET, an EventSource can reconnect.
    """
    if request.method == "HEAD":
        raise HTTPException(405, headers={"Allow": "GET, POST"})
    if LAST_EVENT_ID in request.headers:  # a client that reconnects never starts another turn
        turn_id, number = native.parse_event_id(request.headers[LAST_EVENT_ID])
        run = await request.engine.runs.find(turn_id, request.username)
        if run is None:
            raise gone("This turn has expired. Send the message again without `Last-Event-ID`.", LAST_EVENT_ID)
        return await resume_stream(request, run, number)
    is_post = request.method == "POST"
    turn_request = await read_turn_request(request)
    options = RunOptions(unread_seconds=None if is_post else UNREAD_SECONDS)
    begin = partial(begin_run, request, turn_request, "native", options)
    run, new = await request.engine.runs.find_or_begin(turn_request, begin)
    response = stream(request, run, owns_run=is_post and new is not None)
    if new is not None:
        new.start()
    return response


async def create(request: Request) -> Response:
    """`POST /v1/turns`: start a turn, which runs without a connected client."""
    turn_request = await read_turn_request(request)
    begin = partial(begin_run, request, turn_request, "native", RunOptions(is_detached=True))
    run, new = await request.engine.runs.find_or_begin(turn_request, begin)
    if new is not None:
        new.start()
    url = link(request, f"/v1/turns/{run.id}")
    body = {"turn_id": run.id, "conversation_id": run.conversation_id, "events": f"{url}/events"}
    return ApiResponse(body, 201, {"Location": url})


async def events(request: Request) -> ASGIApp:
    """`GET /v1/turns/{id}/events`: events after `Last-Event-ID` or `?after=`, an event ID or number."""
    run = await request.engine.runs.find(request.path_params["id"], request.username)
    if run is None:
        raise gone(TURN_EXPIRED)
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
        return _report(request, run, run.snapshot())
    found = (
        await engine.store.search(conversations.find_answer, user, to_answer_id(turn_id))
        if ID.fullmatch(turn_id)
        else None
    )
    if found is None:
        raise not_found()
    return ApiResponse(turn_report(*found, user, engine.settings.cost, block_content))


async def cancel(request: Request) -> Response:
    """`POST /v1/turns/{id}/cancel`: stop the turn, unless it has ended."""
    run = await _find(request)
    return _report(request, run, run.apply(CancelTurn()), 202)


async def steer(request: Request) -> Response:
    """`POST /v1/turns/{id}/steer`: add a message to the running turn."""
    run = await _find(request)
    message = await read_json(request, native.parse_steering)
    return _report(request, run, run.apply(SteerTurn(message)), 202)


async def approve(request: Request) -> Response:
    """`POST /v1/turns/{id}/approvals/{call_id}`: approve or decline a call."""
    run = await _find(request)
    body = await read_struct(request, native.ApprovalBody)
    return _report(request, run, run.apply(Decide(request.path_params["call_id"], body.approve)))


async def _find(request: Request) -> Run:
    run = await request.engine.runs.find(request.path_params["id"], request.username)
    if run is None:
        raise not_found()
    return run


def _report(request: Request, run: Run, exchange: Exchange, status: int = 200) -> Response:
    cost = request.engine.settings.cost
    return ApiResponse(turn_report(run.conversation_id, exchange, run.user, cost, block_content), status)
