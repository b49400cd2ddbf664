"""Roof: the routes, and the only importer of sse_starlette; pure ASGI throughout."""

import asyncio
import base64
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import anyio
from sse_starlette import EventSourceResponse
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
from brain.events import Done, Error
from brain.models import AnyModel, Opened, opened, trouble_of
from brain.registry import Registry
from brain.settings import Settings, read
from brain.store.memory import MemoryStore, Record
from brain.turn import Turn
from brain.wire import native

SHUTDOWN_SECONDS = 5.0
BEATS_UNREAD = 4
"""A reader that takes not one byte for so many heartbeats is gone, though nobody hung up."""
BODY_SECONDS = 20.0
BODY_BYTES_A_SECOND = 64 * 1024
"""How long a body may take: so many seconds, and what it takes at this rate."""
FIELDS_MOST = 50
LAST = (Done, Error)
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
        if self.closing is not None:
            return
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.registry.running())
            self.models = await opened(self.settings, self.registry.usable())
            for one in self.models:
                stack.push_async_callback(one.model.aclose)
            self.leaving = anyio.Event()
            watcher = asyncio.create_task(self._say_farewell(self.leaving), name="farewell")
            stack.callback(watcher.cancel)
            self.closing = stack.pop_all()

    async def close(self) -> None:
        """Closes what `open` opened."""
        if self.closing is not None:
            closing, self.closing = self.closing, None
            await closing.aclose()

    def start(self, turn: Turn) -> None:
        """Takes note of a turn; one that comes while the server is leaving is told so at once."""
        self.turns.add(turn)
        if self.leaving is not None and self.leaving.is_set():
            turn.stop("shutdown")

    async def _say_farewell(self, leaving: anyio.Event) -> None:
        await leaving.wait()
        for turn in list(self.turns):
            turn.stop("shutdown")

    def names(self) -> frozenset[str]:
        """The models a request may name."""
        return frozenset(self.settings.model) | {one.model.name for one in self.models}

    def model(self, name: str | None) -> AnyModel:
        """The model of this name; the default without one."""
        if not self.models:
            raise BadRequest("The server is not ready yet.", code="unavailable", status=503)
        for wanted, one in zip(self.settings.model, self.models, strict=True):
            if name in (None, wanted, one.model.name):
                return one.model
        raise BadRequest(f"model must be one of: {', '.join(sorted(self.names()))}.", "model")


class TurnResponse(EventSourceResponse):
    """The SSE response of one turn. It holds the conversation until the turn has ended or the reader is gone."""

    def __init__(self, house: House, turn: Turn, ask: Ask, record: Record) -> None:
        super().__init__(
            iter(()),  # it streams by itself
            headers=SSE_HEADERS,
            ping=0,  # theirs come whether or not anything else was sent
            data_sender_callable=self._beat,
            shutdown_event=house.leaving,
            shutdown_grace_period=SHUTDOWN_SECONDS,
        )
        self._house = house
        self._turn = turn
        self._ask = ask
        self._record: Record | None = record
        self._began = self._sent = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers; whatever happens, the turn is recorded and the conversation given back."""
        self._send = send
        self._house.start(self._turn)
        try:
            await super().__call__(scope, receive, send)
        except _ReaderGone:
            log.info("turn %s: its reader takes nothing", self._turn.id)
        finally:
            self._house.turns.discard(self._turn)
            self._settle()
            milliseconds = (time.monotonic() - self._began) * 1000
            log.info("turn %s of %s: %s, %.0f ms", self._turn.id, self._ask.user, self._turn.outcome, milliseconds)

    async def _stream_response(self, send: Send) -> None:
        """As the inherited one, but without a timer and a log record for each event, which cost more than the event."""
        encode = native.Encoder(self._turn.id).encode
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._turn.events()) as events:
            async for event in events:
                if isinstance(event, LAST):
                    self._settle()  # before its reader can ask again
                self._sent = time.monotonic()
                await send({"type": "http.response.body", "body": encode(event), "more_body": True})
        self.active = False
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _beat(self) -> None:
        """Sends a comment whenever nothing else was sent for so long."""
        seconds = self._house.settings.heartbeat_seconds
        while self.active:
            left = self._sent + seconds - time.monotonic()
            if left > 0:
                await anyio.sleep(left)
                continue
            self._sent = time.monotonic()
            with anyio.move_on_after(seconds * BEATS_UNREAD) as waiting:
                await self._send({"type": "http.response.body", "body": native.HEARTBEAT, "more_body": True})
            if waiting.cancelled_caught:
                raise _ReaderGone

    def _settle(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            conversation.keep(record, self._ask, self._turn.exchange)
            self._house.store.give_back(record)


class _ReaderGone(Exception):
    """Nothing can be sent any more."""


async def chat_stream(request: Request) -> Response:
    """`POST /v1/chat/stream`: one turn."""
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
        return TurnResponse(house, turn, ask, record)
    except BaseException:
        house.store.give_back(record)
        raise


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
    received = 0
    began = anyio.current_time()

    async def counted() -> Message:
        nonlocal received
        try:
            left = began + BODY_SECONDS + received / BODY_BYTES_A_SECOND - anyio.current_time()
            with anyio.fail_after(left):
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
            Route("/v1/chat/stream", chat_stream, methods=["POST"]),
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
