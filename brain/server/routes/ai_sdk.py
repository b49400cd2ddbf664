"""The protocol of the Vercel AI SDK. A stream is a turn, or the part of one up to or after an approval."""

from collections.abc import Collection
from contextlib import suppress
from weakref import WeakKeyDictionary

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from brain.errors import BadRequest
from brain.protocols import ai_sdk
from brain.runtime.run import Run
from brain.server.responses import NO_STORE_HEADERS
from brain.server.routes.requests import engine_of, parse_json, read_json, user_of
from brain.server.routes.runs import (
    begin_run,
    gone,
    not_found,
    prepare_history,
    start_and_stream,
    stream,
    wait_if_ending,
)

_OPTIONS: WeakKeyDictionary[Run, ai_sdk.RequestOptions] = WeakKeyDictionary()
"""The options of the requests that started the runs of this process."""


async def chat(request: Request) -> ASGIApp:
    """`POST /ai-sdk/chat`: one turn, or the rest of one."""
    engine, user = engine_of(request), user_of(request)
    body = await read_json(request)
    turn_request, messages, options = await parse_json(
        body, lambda: ai_sdk.parse(body, user, engine.settings, engine.names())
    )
    if options.decisions:
        return _continue(request, turn_request.conversation_id, options)
    turn_request, history = await prepare_history(request, turn_request, messages, len(body))
    if turn_request.conversation_id is not None:
        earlier = engine.turns.newest(turn_request.conversation_id, user)
        if earlier is not None and earlier in _OPTIONS and earlier.is_waiting and _OPTIONS[earlier].sdk_version > 5:
            earlier.stop()  # the chat has continued without the approval
        await wait_if_ending(earlier)
    unread_seconds = None if options.resumable else 0.0
    run = await begin_run(request, turn_request, "ai_sdk", history=history, unread_seconds=unread_seconds)
    _OPTIONS[run] = options
    owns_run = options.sdk_version == 5 and not options.resumable
    return start_and_stream(request, run, _encoder(run), owns_run=owns_run)


async def reconnect(request: Request) -> ASGIApp:
    """`GET /ai-sdk/chat/{id}/stream`: the turn of this chat whose end nobody has read; 204 without one."""
    if request.method == "HEAD":  # it would count as a reader of the turn
        raise HTTPException(405, headers={"Allow": "GET"})
    nothing = Response(status_code=204, headers=NO_STORE_HEADERS)
    run = engine_of(request).turns.newest(request.path_params["id"], user_of(request))
    options = None if run is None else _OPTIONS.get(run)
    if run is None or options is None or not options.resumable:
        return nothing
    if run.over and run.left_at >= run.log.last:  # old clients would show a second copy beside the first
        return nothing
    try:
        return stream(request, run, _encoder(run))
    except BadRequest as error:
        if error.status != 410:
            raise
        return nothing  # the turn was too long to keep its beginning


def _continue(request: Request, conversation_id: str | None, options: ai_sdk.RequestOptions) -> ASGIApp:
    """The part of a turn after the decisions of a person.

    Raises:
        BadRequest: this chat of this user has no such turn, or the turn did not ask to approve these calls.
    """
    run = engine_of(request).turns.find(options.decisions[-1].turn_id, user_of(request))
    if run is None or run not in _OPTIONS or conversation_id not in (None, run.conversation_id):
        raise gone("Nothing waits for this approval any more; send the message again.")
    asked = {call.id for call in run.report().calls if call.approval is not None}
    decisions = {one.call_id: one.approve for one in options.decisions if one.turn_id == run.id}
    if not asked.issuperset(decisions):
        raise not_found("This turn asked for no approval of this call.")
    for call_id, approve in decisions.items():
        with suppress(BadRequest):  # expired or decided already: the stream shows the outcome
            run.decide(call_id, approve)
    encoder = _encoder(run)
    encoder.skip(run.log.events(), decisions)
    return stream(request, run, encoder, encoder.event_count)


def _encoder(run: Run) -> ai_sdk.Encoder:
    options = _OPTIONS[run]

    def are_waiting(call_ids: Collection[str]) -> bool:
        return {call.id for call in run.report().calls if call.approval == "asked"}.issuperset(call_ids)

    message_id = None if options.continues else run.report().message_id
    return ai_sdk.Encoder(options.sdk_version, message_id, are_waiting)
