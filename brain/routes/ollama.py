"""Roof: what Ollama's clients ask for. One turn as lines of JSON, and what there is to be asked."""

import os
import time
from collections.abc import Callable, Set
from datetime import datetime
from functools import partial
from importlib.metadata import version as version_of
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from brain.ask import Ask
from brain.door import Answer
from brain.house import House
from brain.messages import Spoken
from brain.routes.incoming import house_of, limited, parsed, read, user_of
from brain.routes.turning import begun, held, led, whole
from brain.settings import Settings
from brain.wire import ollama
from brain.wire.ollama import models
from brain.wire.ollama.models import Offered
from brain.wire.ollama.request import DEFAULT_NAME, Wanted, parse_chat, parse_generate, parse_show
from brain.wire.results import Written

SEEING = ("vision", "ocr")
"""Specialists that make pictures into text for a model that sees none."""

Parse = Callable[[bytes, str | None, Settings, Set[str], datetime], tuple[Ask, list[Spoken], Wanted]]


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

    async def _response(self, request: Request) -> Response:
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
        run = await begun(request, ask, "ollama", held=conversation, joinable=False)
        written = Written(settings.show_results, f"{turns_url}/{run.id}", keyed=bool(settings.keys))
        encoder = self._encoder(wanted.model, written=written)
        if wanted.stream:
            return led(request, run, encoder, encoder.refusal)
        status, answer = encoder.whole(await whole(request, run))
        return Answer(answer, status)


chat = Asked(parse_chat)
generate = Asked(parse_generate, generate=True)


async def tags(request: Request) -> Response:
    """`GET /api/tags`: the models on offer."""
    return Answer(models.tags(_offered(house_of(request)), _installed()))


async def ps(request: Request) -> Response:
    """`GET /api/ps`: those that are loaded."""
    return Answer(models.ps(_offered(house_of(request))))


async def show(request: Request) -> Response:
    """`POST /api/show`: one of them."""
    house = house_of(request)
    called, name = parse_show(await limited(request).body(), house.names())
    return Answer(models.show(_offer(house, called, name), _installed()))


async def version(request: Request) -> Response:
    """`GET /api/version`: of Ollama, whose API this is, and of Brain."""
    return Answer({"version": models.VERSION, "brain": version_of("brain-sse")})


def _offered(house: House) -> list[Offered]:
    """The default, and all models by their names."""
    return [_offer(house, DEFAULT_NAME, None), *(_offer(house, name, name) for name in sorted(house.names()))]


def _offer(house: House, called: str, name: str | None) -> Offered:
    model = house.model(name)
    seeing = any(specialist.name in SEEING for specialist in house.registry.usable())
    return Offered(called, model.sees_images or seeing, model.context_tokens)


def _installed() -> int:
    """When this came to be here."""
    return os.stat(__file__).st_mtime_ns
