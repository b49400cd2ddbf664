"""Routes of the OpenAI protocol: chat completions and models."""

import time
from functools import partial

from starlette.requests import Request
from starlette.types import ASGIApp

from brain.protocols import openai
from brain.protocols.openai.request import find_model, parse
from brain.protocols.turn_options import list_names
from brain.runtime.run import RunOptions
from brain.server.responses import ApiResponse
from brain.server.routes.requests import engine_of, parse_json, read_json
from brain.server.routes.runs import (
    any_error,
    begin_run,
    collect_events,
    inline_results,
    prepare_history,
    start_and_stream,
)

CONVERSATION_ID = "x-conversation-id"
_started = int(time.time())


async def complete(request: Request) -> ASGIApp:
    """`POST /v1/chat/completions`: one turn, streamed or as one response."""
    body = await read_json(request)
    conversation_id = request.headers.get(CONVERSATION_ID)
    parsed = await parse_json(request, body, partial(parse, conversation_id=conversation_id))
    turn_request, messages, options = parsed
    turn_request, history = await prepare_history(request, turn_request, messages, len(body))
    run = await begin_run(request, turn_request, "openai", RunOptions(replayable=False), history)
    headers = [(CONVERSATION_ID.encode(), run.conversation_id.encode())] if conversation_id else []
    encoder = openai.Encoder(run.id, int(time.time()), options, inline_results(request, run), headers)
    if options.stream:
        return start_and_stream(request, run, encoder, owns_run=True, rejects=any_error)
    response = ApiResponse(encoder.encode_response(await collect_events(request, run)))
    response.raw_headers += encoder.headers
    return response


async def models(request: Request) -> ASGIApp:
    """`GET /v1/models` and `GET /v1/models/{name}`: the available models."""
    engine = engine_of(request)
    names, settings = engine.model_names(), engine.settings
    name = request.path_params.get("name")
    if name is None:
        return ApiResponse(openai.list_models(list_names(settings, names), _started))
    find_model(name, names, settings)
    return ApiResponse(openai.describe_model(name, _started))
