"""The route that streams one turn as server-sent events."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from brain.protocols import native
from brain.runtime.run import RunOptions
from brain.server.routes.requests import Request, no_turn, read_turn_request
from brain.server.routes.runs import begin_run, gone, resume_stream, stream

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
            message = "This turn has expired. Send the message again without `Last-Event-ID`."
            raise no_turn(request, gone(message, LAST_EVENT_ID))
        return await resume_stream(request, run, number)
    is_post = request.method == "POST"
    turn_request = await read_turn_request(request)
    options = RunOptions(unread_seconds=None if is_post else UNREAD_SECONDS)
    run, new = await request.engine.runs.find_or_begin(
        turn_request, lambda: begin_run(request, turn_request, "native", options)
    )
    response = stream(request, run, owns_run=is_post and new is not None)
    if new is not None:
        new.start()
    return response
