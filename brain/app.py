"""Roof: the routes; pure ASGI throughout."""

import asyncio
import base64
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send

from brain import conversation
from brain.ask import Ask, Attachment
from brain.door import Guard, Keys, refusal
from brain.errors import BadRequest
from brain.house import House
from brain.models import trouble_of
from brain.registry import Registry
from brain.response import TurnResponse
from brain.settings import Settings, read
from brain.store.memory import Record
from brain.turn import Turn
from brain.wire import native

BODY_SECONDS = 20.0
BODY_BYTES_A_SECOND = 64 * 1024
"""How long a body may take: so many seconds, and what it takes at this rate."""
FIELDS_MOST = 50

log = logging.getLogger("brain")


class ChatStream:
    """`POST /v1/chat/stream`: one turn. No function, since Starlette wraps what functions send once more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        response = await _turn_response(Request(scope, receive))
        await response(scope, receive, send)


async def _turn_response(request: Request) -> TurnResponse:
    house = _house(request)
    if "last-event-id" in request.headers:  # a reader that was cut off; another turn is not what it asks for
        message = "This turn is no longer kept; ask again without Last-Event-ID."
        raise BadRequest(message, "last-event-id", code="gone", status=410)
    ask = await _ask(request, house)
    model = house.model(ask.model)
    record = house.store.take(ask.user, ask.conversation_id or conversation.new_id())
    try:
        record.check_room(ask.message, ask.attachments)
        ask, recalled = conversation.recall(record, ask, model.context_tokens)
        settings = house.settings
        turn = Turn(ask, recalled, model, house.registry, system=settings.system, silence=settings.model_idle_seconds)
    except BaseException:
        house.store.give_back(record)
        raise
    if house.leaving:
        turn.stop("shutdown")
    settle = partial(_settle, house, turn, ask, record)
    return TurnResponse(turn, open_ones=house.answers, heartbeat=settings.heartbeat_seconds, settle=settle)


def _settle(house: House, turn: Turn, ask: Ask, record: Record) -> None:
    conversation.keep(record, ask, turn.exchange)
    house.store.give_back(record)
    milliseconds = (time.monotonic() - turn.began) * 1000
    log.info("turn %s of %s: %s, %.0f ms", turn.id, ask.user, turn.outcome, milliseconds)


async def _ask(request: Request, house: House) -> Ask:
    """The request's body, as JSON or multipart."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    user = request.scope["brain.user"]
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > native.BODY_BYTES:
        raise _too_large()
    limited = Request(request.scope, _limited(request.receive))
    if kind == "application/json":
        return native.parse(await limited.body(), user, house.settings, house.names())
    if kind != "multipart/form-data":
        message = "Send application/json (curl: -H 'content-type: application/json') or multipart/form-data (curl: -F)."
        raise BadRequest(message, "content-type", code="unsupported_media_type", status=415)
    try:
        return await _ask_in_form(limited, user, house)
    except HTTPException as error:  # Starlette's, which knows no field
        if error.detail.startswith("Too many files"):
            raise native.too_many() from None
        raise


async def _ask_in_form(request: Request, user: str | None, house: House) -> Ask:
    most = native.ATTACHMENTS_MOST + 1
    async with request.form(max_files=most, max_fields=FIELDS_MOST, max_part_size=native.BODY_BYTES) as form:
        fields: dict[str, str] = {}
        attached: list[Attachment] = []
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if name != "file":
                    raise BadRequest(f"{name}: files are sent in parts named file.", name)
                data = await value.read()
                attached.append(native.attachment_of(value.filename or "", value.content_type or "", data, "file"))
            elif name in fields:
                raise BadRequest(f"{name} is given twice.", name)
            else:
                fields[name] = value.replace("\r\n", "\n")  # as browsers write line ends in forms
        return native.parse_form(fields, attached, user, house.settings, house.names())


def _limited(receive: Receive) -> Receive:
    """The same body, as long as it comes fast enough and is no larger than it may be."""
    clock = asyncio.get_running_loop().time
    received = 0
    began = clock()

    async def counted() -> Message:
        nonlocal received
        try:
            async with asyncio.timeout_at(began + BODY_SECONDS + received / BODY_BYTES_A_SECOND):
                message = await receive()
        except TimeoutError:
            raise BadRequest("The body comes too slowly.", status=408) from None
        received += len(message.get("body", b""))
        if received > native.BODY_BYTES:
            raise _too_large()
        return message

    return counted


def _too_large() -> BadRequest:
    return BadRequest("The body may be 20 MiB large.", code="too_large", status=413)


async def specialists(request: Request) -> Response:
    """`GET /v1/specialists`: what can be called, and what cannot and why."""
    registry = _house(request).registry
    allowed = [entry.described() for name, entry in registry.items() if registry.allowed(name)]
    return JSONResponse({"specialists": allowed})


async def page(request: Request) -> Response:
    """`GET /`: the chat page, which may load nothing and talk to nobody else."""
    html = files("brain").joinpath("page.html").read_text("utf-8")
    return HTMLResponse(html, headers={"Content-Security-Policy": _policy(html), "X-Content-Type-Options": "nosniff"})


def _policy(html: str) -> str:
    def digest(tag: str) -> str:
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(b.encode()).digest()).decode()}'" for b in bodies)

    return (
        f"default-src 'none'; script-src {digest('script')}; style-src {digest('style')}; connect-src 'self'; "
        "img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


async def healthz(request: Request) -> Response:
    """`GET /healthz`: the process answers."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: the default model can be reached, and specialists are loaded."""
    house = _house(request)
    model = house.model(None)
    trouble = await trouble_of(model)
    status = {
        "status": "unavailable" if trouble else "ok",
        "model": model.name,
        "specialists": len(house.registry.usable()),
        **({"reason": trouble} if trouble else {}),
    }
    return JSONResponse(status, 503 if trouble else 200)


async def _on_bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    return refusal(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "bad_request")
    response = refusal(BadRequest(error.detail, code=code, status=error.status_code))
    response.headers.update(error.headers or {})
    return response


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # to nobody: the client left before all of its body was here


async def _on_error(request: Request, error: Exception) -> Response:
    message = "Something went wrong on the server; it was logged."
    return refusal(BadRequest(message, code="internal", status=500))


def _house(request: Request) -> House:
    house = request.app.state.house
    assert isinstance(house, House)
    return house


def create_app(settings: Settings | None = None, registry: Registry | None = None) -> Starlette:
    """The whole of Brain as an ASGI application.

    Args:
        settings: read from nothing when left out: the defaults.
        registry: the specialists; those that are installed when left out.
    """
    settings = settings or read({})
    house = House(settings, registry if registry is not None else Registry(settings).discover())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await house.open()
        try:
            yield
        finally:
            await house.close()

    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "last-event-id"],
    )
    app = Starlette(
        routes=[
            Route("/", page),
            Route("/v1/chat/stream", ChatStream(), methods=["POST"]),
            Route("/v1/specialists", specialists),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ],
        middleware=[
            Middleware(Guard, settings=settings),
            *([cors] if settings.origins else []),  # around the keys, so that a page can read that its key is wrong
            Middleware(Keys, settings=settings),
        ],
        exception_handlers={
            BadRequest: _on_bad_request,
            HTTPException: _on_http_exception,
            ClientDisconnect: _on_disconnect,
            Exception: _on_error,
        },
        lifespan=lifespan,
    )
    app.state.house = house
    return app


def mount(
    app: Starlette, path: str = "/brain", settings: Settings | None = None, registry: Registry | None = None
) -> None:
    """Puts the whole of Brain into an existing Starlette or FastAPI application, and its start and stop with it."""
    brain = create_app(settings, registry)
    outer: Callable[[Any], AbstractAsyncContextManager[Any]] = app.router.lifespan_context
    house: House = brain.state.house

    @asynccontextmanager
    async def both(inner_app: Any) -> AsyncIterator[Any]:
        async with outer(inner_app) as state:
            await house.open()
            try:
                yield state
            finally:
                await house.close()

    app.router.lifespan_context = both
    app.router.routes.append(Mount(path, brain))
