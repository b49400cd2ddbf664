"""What Ollama's clients ask for. One turn as lines of JSON, and what there is to be asked."""

import os
import time
from collections.abc import Callable, Set
from datetime import datetime
from functools import partial
from importlib.metadata import version as version_of
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from brain.messages import ClientMessage
from brain.protocols import ollama
from brain.protocols.inline_results import InlineText
from brain.protocols.ollama import models
from brain.protocols.ollama.models import ModelInfo
from brain.protocols.ollama.request import DEFAULT_NAME, RequestOptions, parse_chat, parse_generate, parse_show
from brain.server.middleware import Answer
from brain.server.routes.requests import house_of, limited, parsed, read, user_of
from brain.server.routes.runs import begun, collect, held, start_and_stream
from brain.server.state import ServerState
from brain.settings import Settings
from brain.turn_request import TurnRequest

SEEING = ("vision", "ocr")
"""Specialists that make pictures into text for a model that sees none."""

Parse = Callable[
    [bytes, str | None, Settings, Set[str], datetime], tuple[TurnRequest, list[ClientMessage], RequestOptions]
]


class Asked:
    """`POST /api/chat` and `POST /api/generate`: one turn.

    No function, since Starlette wraps what functions send once more.
    """

    def __init__(self, parse: Parse, *, generate: bool = False) -> None:
        self._parse = parse
        self._encoder = partial(ollama.Encoder, clock=time.time_ns, generate=generate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        response = await self._response(Request(scope, receive))
        await response(scope, receive, send)

    async def _response(self, request: Request) -> ASGIApp:
        house = house_of(request)
        settings = house.settings
        now = datetime.now(ZoneInfo(settings.time_zone))
        body = await limited(request).body()
        user = user_of(request)
        ask, spoken, wanted = await parsed(body, lambda: self._parse(body, user, settings, house.names(), now))
        if wanted.loads is not None:
            return Answer(self._encoder(wanted.model, written=lambda _: "").loaded(wanted.loads))
        turns_url = f"{request.base_url}v1/turns"
        ask, conversation = await read(body, lambda: held(house, ask, spoken))
        run = await begun(request, ask, "ollama", held=conversation, replayable=False)
        written = InlineText(settings.show_results, f"{turns_url}/{run.id}", keyed=bool(settings.keys))
        encoder = self._encoder(wanted.model, written=written)
        if wanted.stream:
            return start_and_stream(request, run, encoder, owns_run=True, refusal=encoder.refusal)
        status, answer = encoder.whole(await collect(request, run))
        return Answer(answer, status)


chat = Asked(parse_chat)
generate = Asked(parse_generate, generate=True)


async def tags(request: Request) -> ASGIApp:
    """`GET /api/tags`: the models on offer."""
    return Answer(models.tags(_offered(house_of(request)), _installed()))


async def ps(request: Request) -> ASGIApp:
    """`GET /api/ps`: those that are loaded."""
    return Answer(models.ps(_offered(house_of(request))))


async def show(request: Request) -> ASGIApp:
    """`POST /api/show`: one of them."""
    house = house_of(request)
    called, name = parse_show(await limited(request).body(), house.names())
    return Answer(models.show(_offer(house, called, name), _installed()))


async def version(request: Request) -> ASGIApp:
    """`GET /api/version`: of Ollama, whose API this is, and of Brain."""
    return Answer({"version": models.VERSION, "brain": version_of("brain-sse")})


def _offered(house: ServerState) -> list[ModelInfo]:
    """The default, and all models by their names."""
    return [_offer(house, DEFAULT_NAME, None), *(_offer(house, name, name) for name in sorted(house.names()))]


def _offer(house: ServerState, called: str, name: str | None) -> ModelInfo:
    model = house.model(name)
    seeing = any(specialist.name in SEEING for specialist in house.registry.usable())
    return ModelInfo(called, model.sees_images or seeing, model.context_tokens)


def _installed() -> int:
    """When this came to be here."""
    return os.stat(__file__).st_mtime_ns
