"""Routes of the OpenAI protocol: chat completions and models."""

import time
from functools import partial

from starlette.types import ASGIApp

from brain.protocols import openai
from brain.runtime.run import RunOptions
from brain.server.responses import ApiResponse
from brain.server.routes import runs
from brain.server.routes.requests import Request, client_of, read_json

_started = int(time.time())


async def complete(request: Request) -> ASGIApp:
    """`POST /v1/chat/completions`: one turn, streamed or as one response."""
    conversation_id = request.headers.get(runs.CONVERSATION_ID)
    parse = partial(openai.parse, client=client_of(request), conversation_id=conversation_id)
    turn_request, messages, options = await read_json(request, parse)
    run = await runs.begin_run(request, turn_request, "openai", RunOptions(replayable=False), messages)
    texts, headers = runs.inline_results(request, run), runs.conversation_header(request, run)
    encoder = openai.Encoder(run.id, int(time.time()), options, texts, headers)
    return await runs.complete(request, run, encoder, streams=options.stream)


async def models(request: Request) -> ASGIApp:
    """`GET /v1/models` and `GET /v1/models/{name}`: the available models."""
    client, name = client_of(request), request.path_params.get("name")
    if name is None:
        return ApiResponse(openai.list_models(client.model_names, _started))
    openai.find_model(name, client)
    return ApiResponse(openai.describe_model(name, _started))
