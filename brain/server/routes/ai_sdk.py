"""The Vercel AI SDK's chat. A stream is a turn, or a part of one that waited for a person in between."""

from collections.abc import Collection
from contextlib import suppress
from weakref import WeakKeyDictionary

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from brain.errors import BadRequest
from brain.protocols import ai_sdk
from brain.runtime.run import Run
from brain.server.middleware import SAFE_HEADERS
from brain.server.routes.requests import house_of, kind, limited, parsed, read, user_of
from brain.server.routes.runs import about_to_end, begun, held, start_and_stream, stream
from brain.server.state import ServerState

WIRE = "ai_sdk"
_WANTED: WeakKeyDictionary[Run, ai_sdk.RequestOptions] = WeakKeyDictionary()
"""How the answers of the turns that are kept were wanted."""


class Chat:
    """`POST /ai-sdk/chat`: one turn, or the rest of one. No function, since Starlette wraps what functions send."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        response = await _answer(Request(scope, receive))
        await response(scope, receive, send)


class Reconnect:
    """`GET /ai-sdk/chat/{id}/stream`: the turn of this chat whose end nobody has read; 204 without one."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["method"] == "HEAD":  # a reader, by whom the turn would count as read
            raise HTTPException(405, headers={"Allow": "GET"})
        await _again(Request(scope, receive))(scope, receive, send)


async def _answer(request: Request) -> ASGIApp:
    if kind(request) != "application/json":
        raise BadRequest("Send application/json.", "content-type", code="unsupported_media_type", status=415)
    house, user = house_of(request), user_of(request)
    body = await limited(request).body()
    ask, spoken, wanted = await parsed(body, lambda: ai_sdk.parse(body, user, house.settings, house.names()))
    if wanted.decisions:
        return await _rest(request, ask.conversation_id, wanted)
    ask, conversation = await read(body, lambda: held(house, ask, spoken))
    if ask.conversation_id is not None:
        await _earlier_ends(house, user, ask.conversation_id)
    run = await begun(request, ask, WIRE, held=conversation, unread_seconds=None if wanted.resumable else 0.0)
    _WANTED[run] = wanted
    return start_and_stream(request, run, _encoder(run), owns_run=wanted.sdk_version == 5 and not wanted.resumable)


def _again(request: Request) -> ASGIApp:
    run = house_of(request).turns.newest(request.path_params["id"], user_of(request))
    wanted = None if run is None else _WANTED.get(run)
    if run is None or wanted is None or not wanted.resumable or _was_read(run):
        return _nothing()
    try:
        return stream(request, run, _encoder(run))
    except BadRequest as error:
        if error.status != 410:
            raise
        return _nothing()  # too much was told for all of it to be kept


def _nothing() -> ASGIApp:
    return Response(status_code=204, headers={**SAFE_HEADERS, "Cache-Control": "no-store"})


def _was_read(run: Run) -> bool:
    """Whether a reader got all of a turn; a second copy would stand beside the first one in old clients."""
    return run.over and run.left_at >= run.log.last


async def _rest(request: Request, conversation_id: str | None, wanted: ai_sdk.RequestOptions) -> ASGIApp:
    """What comes of the turn behind a person's decisions.

    Raises:
        BadRequest: when it is no turn of this chat and user, or did not ask about these calls.
    """
    run = house_of(request).turns.find(wanted.decisions[-1].turn_id, user_of(request))
    if run is None or run not in _WANTED or conversation_id not in (None, run.conversation_id):
        raise BadRequest("Nothing waits for this approval any more; ask again.", code="gone", status=410)
    asked = {call.id for call in run.report().calls if call.approval is not None}
    decisions = {one.call_id: one.approve for one in wanted.decisions if one.turn_id == run.id}
    if not asked.issuperset(decisions):
        raise BadRequest("This turn asked for no approval of this call.", code="not_found", status=404)
    for call_id, approve in decisions.items():
        with suppress(BadRequest):  # it expired or was decided already: what came of it is what follows
            run.decide(call_id, approve)
    encoder = _encoder(run)
    encoder.skip(run.log.events(), decisions)
    return stream(request, run, encoder, encoder.taken)


async def _earlier_ends(house: ServerState, user: str | None, conversation_id: str) -> None:
    """Ends the turn that waits for an approval which its chat has left behind; waits for one that is about to end."""
    run = house.turns.newest(conversation_id, user)
    if run is not None and run in _WANTED and run.is_waiting and _WANTED[run].sdk_version > 5:
        run.stop()
    await about_to_end(run)


def _encoder(run: Run) -> ai_sdk.Encoder:
    wanted = _WANTED[run]

    def waits(call_ids: Collection[str]) -> bool:
        return {call.id for call in run.report().calls if call.approval == "asked"}.issuperset(call_ids)

    message_id = None if wanted.continues else run.report().message_id
    return ai_sdk.Encoder(wanted.sdk_version, message_id, waits)
