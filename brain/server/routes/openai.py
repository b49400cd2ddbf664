"""OpenAI's protocol, for clients that know no other: they need only another base URL."""

import time
from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from brain.errors import BadRequest
from brain.protocols import openai
from brain.protocols.inline_results import InlineText
from brain.protocols.openai.request import RequestOptions, find_model, parse
from brain.runtime.run import Run
from brain.server.middleware import Answer
from brain.server.routes.requests import house_of, kind, limited, parsed, read, user_of
from brain.server.routes.runs import begun, collect, held, start_and_stream

CONVERSATION = "x-conversation-id"


class ChatCompletions:
    """`POST /v1/chat/completions`: one turn, as a stream or whole."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        response = await _answer(Request(scope, receive))
        await response(scope, receive, send)


class Models:
    """`GET /v1/models` and `GET /v1/models/{name}`: what a request may name."""

    def __init__(self) -> None:
        self._created = int(time.time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope)
        await self._response(request, request.path_params.get("name"))(scope, receive, send)

    def _response(self, request: Request, name: str | None) -> ASGIApp:
        names = house_of(request).names()
        if name is None:
            return Answer(openai.list_models(names, self._created))
        find_model(name, names)
        return Answer(openai.describe_model(name, self._created))


async def _answer(request: Request) -> ASGIApp:
    if kind(request) != "application/json":
        message = "Send application/json (curl: -H 'content-type: application/json')."
        raise BadRequest(message, "content-type", code="unsupported_media_type", status=415)
    house = house_of(request)
    body = await limited(request).body()
    conversation_id = request.headers.get(CONVERSATION)
    user = user_of(request)
    ask, spoken, wanted = await parsed(body, lambda: parse(body, user, house.settings, house.names(), conversation_id))
    ask, conversation = await read(body, lambda: held(house, ask, spoken))
    run = await begun(request, ask, "openai", held=conversation, replayable=False)
    encoder = _encoder(request, run, wanted, {CONVERSATION: run.conversation_id} if conversation_id else {})
    if wanted.stream:
        return start_and_stream(request, run, encoder, owns_run=True, refusal=openai.encode_failure)
    status, answer = encoder.whole(await collect(request, run))
    response = Answer(answer, status)
    response.raw_headers += encoder.headers
    return response


def _encoder(request: Request, run: Run, wanted: RequestOptions, headers: Mapping[str, str]) -> openai.Encoder:
    settings = house_of(request).settings
    written = InlineText(settings.show_results, f"{request.base_url}v1/turns/{run.id}", keyed=bool(settings.keys))
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return openai.Encoder(run.id, int(time.time()), wanted, written, raw)
