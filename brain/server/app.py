"""The ASGI application: routes, middleware and error handlers."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from brain.errors import BadRequest, RunsElsewhere, StoreError
from brain.plugins.registry import Registry
from brain.server.admission import unavailable
from brain.server.forwarding import misdirected
from brain.server.middleware import FORWARDED, AuthMiddleware, CorsMiddleware, ForwardedMiddleware, OriginMiddleware
from brain.server.responses import error_response, request_path
from brain.server.routes import (
    about,
    ag_ui,
    ai_sdk,
    conversations,
    memory,
    ollama,
    openai,
    page,
    session,
    tasks,
    turns,
)
from brain.server.routes.requests import Endpoint, Respond
from brain.server.state import ServerState
from brain.settings import Settings, read
from brain.validation import quote_value

log = logging.getLogger("brain")


def create_app(settings: Settings | None = None, registry: Registry | None = None) -> Starlette:
    """Create Brain as an ASGI application.

    Args:
        settings: the default settings if None.
        registry: the specialists; all installed ones if None.
    """
    settings = settings or read({})
    state = ServerState(settings, registry if registry is not None else Registry(settings).discover())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with state.running():
            yield

    app = Starlette(
        routes=_routes(),
        middleware=[
            Middleware(ForwardedMiddleware, forwarding=state.forwarding),
            Middleware(OriginMiddleware, settings=settings),
            # before authentication, so pages can read its errors
            *([Middleware(CorsMiddleware, settings=settings)] if settings.origins else []),
            Middleware(AuthMiddleware, keys=state.keys),
        ],
        exception_handlers=dict.fromkeys(
            (BadRequest, RunsElsewhere, StoreError, HTTPException, ClientDisconnect, Exception), _on_error
        ),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # an unknown path gets a 404 of Brain
    app.state.brain = state
    return app


def mount(
    app: Starlette, path: str = "/brain", settings: Settings | None = None, registry: Registry | None = None
) -> None:
    """Add Brain to a Starlette or FastAPI application. Brain starts and stops with it."""
    brain = create_app(settings, registry)
    state: ServerState = brain.state.brain
    outer: Callable[[Any], AbstractAsyncContextManager[Any]] = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(outer_app: Any) -> AsyncGenerator[Any]:
        async with outer(outer_app) as outer_state, state.running():
            yield outer_state

    app.router.lifespan_context = lifespan
    app.router.routes.append(Mount(path, brain))


def _routes() -> list[Route]:
    gzip = Middleware(page.PageCompression, compresslevel=5)
    return [
        # those that start turns come first, since a request compares its path with each
        _route("/v1/chat/stream", GET=turns.stream_turn, POST=turns.stream_turn),
        _route("/v1/chat/completions", POST=openai.complete),
        _route("/api/chat", POST=ollama.chat),
        _route("/api/generate", POST=ollama.generate),
        _route("/ai-sdk/chat", POST=ai_sdk.chat),
        _route("/ag-ui/run", POST=ag_ui.run_agent),
        _route("/", GET=page.index),
        _route("/page/start", gzip, GET=page.start),
        _route("/page/{file:path}", GET=page.file),
        _route("/v1/turns", POST=turns.create),
        _route("/v1/turns/{id}", GET=turns.show),
        _route("/v1/turns/{id}/events", GET=turns.events),
        _route("/v1/turns/{id}/cancel", POST=turns.cancel),
        _route("/v1/turns/{id}/steer", POST=turns.steer),
        _route("/v1/turns/{id}/approvals/{call_id}", POST=turns.approve),
        _route("/v1/conversations", GET=conversations.list_conversations),
        _route(
            "/v1/conversations/{id}", GET=conversations.show, PATCH=conversations.rename, DELETE=conversations.delete
        ),
        _route("/v1/conversations/{id}/files/{number}", GET=conversations.file),
        _route("/v1/conversations/{id}/typing", POST=conversations.delay_reports),
        _route("/v1/memory", GET=memory.list_items, POST=memory.add, PATCH=memory.switch_recall),
        _route("/v1/memory/{id}", GET=memory.show, PATCH=memory.change, DELETE=memory.delete),
        _route("/v1/tasks", GET=tasks.list_tasks, POST=tasks.add),
        _route("/v1/tasks/events", GET=tasks.events),
        _route("/v1/tasks/{id}", GET=tasks.show, PATCH=tasks.change, DELETE=tasks.delete),
        _route("/v1/tasks/{id}/cancel", POST=tasks.cancel),
        _route("/v1/tasks/{id}/run", POST=tasks.run),
        _route("/v1/tasks/{id}/approvals/{call_id}", POST=tasks.approve),
        _route("/v1/models", GET=openai.models),
        _route("/v1/models/{name:path}", GET=openai.models),
        _route("/api/tags", GET=ollama.tags),
        _route("/api/show", POST=ollama.show),
        _route("/api/version", GET=ollama.version),
        _route("/api/ps", GET=ollama.ps),
        _route("/ai-sdk/chat/{id}/stream", GET=ai_sdk.reconnect),
        _route("/v1/session", GET=session.show, POST=session.sign_in, DELETE=session.sign_out),
        _route("/v1/specialists", GET=about.specialists),
        _route("/v1/strategies", GET=about.strategies),
        _route("/healthz", GET=about.healthz),
        _route("/readyz", GET=about.readyz),
        _route("/metrics", GET=about.metrics),
    ]


def _route(path: str, *middleware: Middleware, **functions: Respond) -> Route:
    """A path with its functions by HTTP method."""
    return Route(path, Endpoint(functions), methods=[*functions], middleware=middleware)


async def _on_error(request: Request, error: Exception) -> Response:
    headers: Mapping[str, str] = {}
    match error:
        case RunsElsewhere():
            rejection = misdirected() if FORWARDED in request.scope else unavailable("process")
        case BadRequest():
            rejection = error
        case StoreError():
            log.error("the store failed: %s", error)
            rejection = error.rejection()
        case HTTPException(status_code=status):
            headers = error.headers or {}
            code, message = "bad_request", error.detail
            path = quote_value(request_path(request.scope))
            if status == 404:
                code, message = "not_found", f"There is no route {path}."
            elif status == 405:
                code = "method_not_allowed"
                message = f"{request.method} is not allowed for {path}; use {headers.get('Allow', 'GET')}."
            rejection = BadRequest(message, code=code, status=status)
        case ClientDisconnect():
            rejection = BadRequest("The client disconnected before it had sent the whole body.")
        case _:
            message = "The server failed to process the request; its log has the details."
            rejection = BadRequest(message, code="internal", status=500)
    response = error_response(rejection, request.scope)
    response.headers.update(headers)
    return response
