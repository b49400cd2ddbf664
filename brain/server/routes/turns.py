"""Turns as things of their own. They run on without a reader, can be read by many, stopped, steered, approved."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from brain.errors import BadRequest
from brain.protocols import native
from brain.protocols.native.resources import turn_report
from brain.runtime.run import Run
from brain.server.middleware import UNKEPT, Answer
from brain.server.routes.chat import LAST_EVENT_ID, asked, rejoined
from brain.server.routes.requests import house_of, kind, limited, user_of
from brain.server.routes.runs import begun


async def create(request: Request) -> Response:
    """`POST /v1/turns`: begins one, which runs on whoever reads it."""
    ask = await asked(request)
    run, new = await house_of(request).turns.once(ask, lambda: begun(request, ask, "native"))
    if new:
        run.start()
    place = f"{request.scope.get('root_path', '')}/v1/turns/{run.id}"
    told = {"turn_id": run.id, "conversation_id": run.conversation_id, "events": f"{place}/events"}
    return Answer(told, 201, {"Location": place})


async def events(request: Request) -> ASGIApp:
    """`GET /v1/turns/{id}/events`: what it told and tells, from behind `Last-Event-ID` or `?after=` (an id, or n)."""
    run = house_of(request).turns.find(request.path_params["id"], user_of(request))
    if run is None:
        raise BadRequest("There is no such turn, or it is no longer kept.", code="gone", status=410)
    after = request.headers.get(LAST_EVENT_ID) or request.query_params.get("after") or "0"
    turn_id, number = native.parse_event_id(after if "." in after else f"{run.id}.{after}")
    if turn_id != run.id:
        raise BadRequest("This is the id of another turn's event.", LAST_EVENT_ID)
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=UNKEPT)
    return rejoined(request, run, number)


async def show(request: Request) -> Response:
    """`GET /v1/turns/{id}`: what happened so far."""
    return _told(_run(request))


async def cancel(request: Request) -> Response:
    """`POST /v1/turns/{id}/cancel`: stops it; nothing for one that is over."""
    run = _run(request)
    run.cancel()
    return _told(run, 202)


async def steer(request: Request) -> Response:
    """`POST /v1/turns/{id}/steer`: puts a message in at the next safe place."""
    run = _run(request)
    run.steer(native.parse_steering(await _json(request)))
    return _told(run, 202)


async def approve(request: Request) -> Response:
    """`POST /v1/turns/{id}/approvals/{call_id}`: says for a person whether a call may run."""
    run = _run(request)
    run.decide(request.path_params["call_id"], native.parse_approval(await _json(request)))
    return _told(run)


def _run(request: Request) -> Run:
    run = house_of(request).turns.find(request.path_params["id"], user_of(request))
    if run is None:
        raise BadRequest("There is no such turn, or it is no longer kept.", code="not_found", status=404)
    return run


async def _json(request: Request) -> bytes:
    if kind(request) != "application/json":
        message = "Send application/json (curl: -H 'content-type: application/json')."
        raise BadRequest(message, "content-type", code="unsupported_media_type", status=415)
    return await limited(request).body()


def _told(run: Run, status: int = 200) -> Response:
    return Answer(turn_report(run.report()), status)
