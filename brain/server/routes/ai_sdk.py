"""Routes of the Vercel AI SDK. A stream is a turn, or the part of a turn before or after an approval."""

from contextlib import suppress
from functools import partial

import msgspec
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from brain.errors import BadRequest
from brain.messages import to_answer_id
from brain.protocols import ai_sdk
from brain.protocols.ai_sdk import RequestOptions
from brain.runtime.commands import Decide
from brain.runtime.run import Run, RunOptions
from brain.server.responses import no_content
from brain.server.routes import runs
from brain.server.routes.requests import Request, client_of, read_json
from brain.text import ID

_decode_options = msgspec.json.Decoder(RequestOptions).decode


async def chat(request: Request) -> ASGIApp:
    """`POST /ai-sdk/chat`: one turn, or the rest of one after an approval."""
    parse = partial(ai_sdk.parse, client=client_of(request))
    turn_request, messages, options = await read_json(request, parse)
    if options.decisions:
        return await _continue(request, turn_request.conversation_id, options)
    if turn_request.conversation_id is not None:
        earlier = await request.engine.runs.find_newest(turn_request.conversation_id, request.username)
        _stop_if_waiting(earlier)
        await runs.wait_if_ending(earlier)
    run_options = RunOptions(
        unread_seconds=None if options.resumable else 0.0,
        is_detached=options.resumable,
        client_options=msgspec.json.encode(options).decode(),
    )
    run = await runs.begin_run(request, turn_request, "ai_sdk", run_options, messages)
    owns_run = options.sdk_version == 5 and not options.resumable
    response = runs.stream(request, run, _encoder(run, options), owns_run=owns_run, rejects=runs.is_busy)
    run.start()
    return response


async def reconnect(request: Request) -> ASGIApp:
    """`GET /ai-sdk/chat/{id}/stream`: the turn of this chat whose end no client has received; else 204."""
    if request.method == "HEAD":  # it would count as a client of the turn
        raise HTTPException(405, headers={"Allow": "GET"})
    nothing, chat_id = no_content(), request.path_params["id"]
    run = await request.engine.runs.find_newest(chat_id, request.username) if ID.fullmatch(chat_id) else None
    options = _options_of(run)
    if run is None or options is None or not options.resumable:
        return nothing
    if run.has_ended and run.last_received >= run.log.last:  # old clients would show the answer twice
        return nothing
    try:
        return runs.stream(request, run, _encoder(run, options))
    except BadRequest as error:
        if error.status != 410:
            raise
        return nothing  # the first events of the turn have expired


async def _continue(request: Request, conversation_id: str | None, options: RequestOptions) -> ASGIApp:
    """Continue a turn after the decisions of the user."""
    run = await request.engine.runs.find(options.decisions[-1].turn_id, request.username)
    first_options = _options_of(run)
    if run is None or first_options is None or conversation_id not in (None, run.conversation_id):
        raise runs.gone("The turn of this approval has expired. Send the message again.")
    decisions = {one.call_id: one.approve for one in options.decisions if one.turn_id == run.id}
    if not decisions.keys() <= {call.id for call in run.snapshot().calls if call.approval is not None}:
        raise runs.not_found("This turn has no call with this approval ID.")
    for call_id, approve in decisions.items():
        with suppress(BadRequest):  # too late or already decided: the stream shows the outcome
            run.apply(Decide(call_id, approve))
    encoder = _encoder(run, first_options)
    encoder.skip(run.log.events(), decisions)
    return runs.stream(request, run, encoder, run.log.start + encoder.event_count)


def _stop_if_waiting(run: Run | None) -> None:
    """Stop an earlier turn that waits for an approval, since the chat has continued without it."""
    options = _options_of(run)
    if run is None or options is None or options.sdk_version <= 5 or run.has_ended:
        return
    if run.snapshot().state == "waiting":
        run.stop()


def _options_of(run: Run | None) -> RequestOptions | None:
    """The options of the request that started the run; None for a run of another protocol."""
    return _decode_options(run.options.client_options) if run is not None and run.options.client_options else None


def _encoder(run: Run, options: RequestOptions) -> ai_sdk.Encoder:
    message_id = None if options.continues else to_answer_id(run.id)
    return ai_sdk.Encoder(
        options.sdk_version,
        message_id,
        run.is_waiting_for,
        turn_id=run.id,
        conversation_id=run.conversation_id,
    )
