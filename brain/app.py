"""Roof: the routes. The only importer of Starlette and sse_starlette; pure ASGI throughout."""

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from brain import conversation
from brain.ask import Ask, Attachment
from brain.errors import BadRequest
from brain.models import AnyModel, Opened, opened, trouble_of
from brain.registry import Registry
from brain.settings import LOOPBACK, Settings, read
from brain.store.memory import MemoryStore
from brain.turn import Turn
from brain.wire import native

SHUTDOWN_SECONDS = 5.0
OPEN_PATHS = ("/", "/healthz", "/readyz")
SSE_HEADERS = {"Cache-Control": "no-cache, no-transform"}

log = logging.getLogger("brain")


@dataclass(eq=False)
class House:
    """What the routes share, from the start of the server to its end."""

    settings: Settings
    registry: Registry
    store: MemoryStore = field(default_factory=MemoryStore)
    models: list[Opened] = field(default_factory=list)
    turns: set[Turn] = field(default_factory=set)
    leaving: anyio.Event | None = None
    closing: AsyncExitStack | None = None

    async def open(self) -> None:
        """Opens the models, and starts the specialists that have something to start."""
        if self.closing is None:
            self.closing = AsyncExitStack()
            await self.closing.enter_async_context(self.registry.running())
            self.models = await opened(self.settings, self.registry.usable())
            for one in self.models:
                self.closing.push_async_callback(one.model.aclose)
            self.leaving = anyio.Event()
            watcher = asyncio.create_task(self._say_farewell(self.leaving), name="farewell")
            self.closing.callback(watcher.cancel)

    async def close(self) -> None:
        """Ends the running turns, and closes what `open` opened."""
        if self.closing is not None:
            closing, self.closing = self.closing, None
            await closing.aclose()

    async def _say_farewell(self, leaving: anyio.Event) -> None:
        await leaving.wait()
        for turn in list(self.turns):
            turn.stop("shutdown")

    def names(self) -> frozenset[str]:
        """The models a request may name."""
        return frozenset(self.settings.model) | {one.model.name for one in self.models}

    def model(self, name: str | None) -> AnyModel:
        """The model of this name; the default without one."""
        for wanted, one in zip(self.settings.model, self.models, strict=True):
            if name in (None, wanted, one.model.name):
                return one.model
        raise BadRequest(f"model must be one of: {', '.join(sorted(self.names()))}.", "model")

    def user(self, headers: Headers) -> str | None:
        """Who asks, by the key in the Authorization header; without keys, the one local user."""
        if not self.settings.keys:
            return "local"
        scheme, _, given = headers.get("authorization", "").partition(" ")
        found = None
        for key, user in self.settings.keys:  # all are compared, so that time tells nothing
            if hmac.compare_digest(key.encode(), given.strip().encode()) and scheme.lower() == "bearer":
                found = user
        return found


class TurnResponse(EventSourceResponse):
    """The SSE response of one turn. It holds the conversation until the last byte is out or the reader is gone."""

    def __init__(self, house: House, turn: Turn, ask: Ask, record: Any) -> None:
        super().__init__(
            _frames(turn),
            headers=SSE_HEADERS,
            ping=house.settings.heartbeat_seconds,
            ping_message_factory=_heartbeat,
            sep="\n",
            shutdown_event=house.leaving,
            shutdown_grace_period=SHUTDOWN_SECONDS,
        )
        self._house = house
        self._turn = turn
        self._ask = ask
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers; whatever happens, the turn is recorded and the conversation given back."""
        began = time.monotonic()
        self._house.turns.add(self._turn)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._house.turns.discard(self._turn)
            conversation.keep(self._record, self._ask, self._turn.exchange)
            self._house.store.give_back(self._record)
            milliseconds = (time.monotonic() - began) * 1000
            log.info("turn %s of %s: %s, %.0f ms", self._turn.id, self._ask.user, self._turn.outcome, milliseconds)


async def _frames(turn: Turn) -> AsyncGenerator[bytes, None]:
    encode = native.Encoder(turn.id).encode
    async with aclosing(turn.events()) as events:
        async for event in events:
            yield encode(event)


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="heartbeat", sep="\n")


async def chat_stream(request: Request) -> Response:
    """`POST /v1/chat/stream`: one turn."""
    house = _house(request)
    ask = await _ask(request, house)
    model = house.model(ask.model)
    record = house.store.take(ask.user, ask.conversation_id or conversation.new_id())
    try:
        ask, recalled = conversation.recall(record, ask, model.context_tokens)
        settings = house.settings
        turn = Turn(ask, recalled, model, house.registry, system=settings.system, silence=settings.model_idle_seconds)
        return TurnResponse(house, turn, ask, record)
    except BaseException:
        house.store.give_back(record)
        raise


async def _ask(request: Request, house: House) -> Ask:
    """The request's body, as JSON or multipart."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    user = request.scope["brain.user"]
    limited = Request(request.scope, _limited(request.receive))
    if kind == "application/json":
        return native.parse(await limited.body(), user, house.settings, house.names())
    if kind != "multipart/form-data":
        message = "Send application/json (curl: -H 'content-type: application/json') or multipart/form-data (curl: -F)."
        raise BadRequest(message, "content-type", code="unsupported_media_type", status=415)
    async with limited.form(
        max_files=native.ATTACHMENTS_MOST + 1, max_fields=50, max_part_size=native.BODY_BYTES
    ) as form:
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
                fields[name] = value
        return native.parse_form(fields, attached, user, house.settings, house.names())


def _limited(receive: Receive) -> Receive:
    """The same body, as long as it is no larger than it may be."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > native.BODY_BYTES:
            raise BadRequest("The body may be 20 MiB large.", code="too_large", status=413)
        return message

    return counted


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
    trouble = await trouble_of(house.models[0].model)
    status = {
        "status": "unavailable" if trouble else "ok",
        "model": house.models[0].model.name,
        "specialists": len(house.registry.usable()),
        **({"reason": trouble} if trouble else {}),
    }
    return JSONResponse(status, 503 if trouble else 200)


class Guard:
    """Lets in who may come in: by Host, by Origin, by key. A pure ASGI middleware."""

    def __init__(self, app: ASGIApp, house: House) -> None:
        self._app = app
        self._house = house
        settings = house.settings
        self._hosts = frozenset(host.lower() for host in (*LOOPBACK, settings.host, *settings.hosts))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers who may not come in; hands on everybody else, with the user in the scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope["brain.user"] = self._checked(scope)
        except BadRequest as error:
            await _refusal(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _checked(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        user = self._house.user(headers)
        if path in OPEN_PATHS:
            return user
        host = headers.get("host", "").lower()
        if (urlsplit(f"//{host}").hostname or "") not in self._hosts:
            message = "This Host name is not known here; the operator lists others in HOSTS."
            raise BadRequest(message, "host", code="forbidden_host", status=403)
        if not self._same_origin(headers, host):
            message = "This origin may not call; the operator lists others in ORIGINS."
            raise BadRequest(message, "origin", code="forbidden_origin", status=403)
        if user is None:
            message = "Send your key: Authorization: Bearer KEY."
            raise BadRequest(message, "authorization", code="unauthorized", status=401)
        return user

    def _same_origin(self, headers: Headers, host: str) -> bool:
        origin = headers.get("origin")
        if origin is not None:
            return origin.lower() in self._origins or urlsplit(origin.lower()).netloc == host
        return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _refusal(error: BadRequest) -> JSONResponse:
    body = {"code": error.code, "message": error.message}
    if error.field is not None:
        body["field"] = error.field
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return JSONResponse({"error": body}, error.status, headers)


async def _on_bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    return _refusal(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    return _refusal(
        BadRequest(error.detail, code=codes.get(error.status_code, "bad_request"), status=error.status_code)
    )


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
            Route("/v1/chat/stream", chat_stream, methods=["POST"]),
            Route("/v1/specialists", specialists),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ],
        middleware=[*([cors] if settings.origins else []), Middleware(Guard, house=house)],
        exception_handlers={BadRequest: _on_bad_request, HTTPException: _on_http_exception},
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
