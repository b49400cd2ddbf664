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

from brain.errors import BadRequest, StoreError
from brain.plugins.registry import Registry
from brain.server.middleware import AuthMiddleware, CorsMiddleware, OriginMiddleware
from brain.server.responses import error_response, request_path
from brain.server.routes import (
    about,
    ag_ui,
    ai_sdk,
    chat,
    conversations,
    memory,
    ollama,
    openai,
    page,
    session,
    tasks,
    turns,
)
from brain.server.routes.requests import Endpoint
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
            Middleware(OriginMiddleware, settings=settings),
            # before authentication, so pages can read its errors
            *([Middleware(CorsMiddleware, settings=settings)] if settings.origins else []),
            Middleware(AuthMiddleware, keys=state.keys),
        ],
        exception_handlers=dict.fromkeys(
            (BadRequest, StoreError, HTTPException, ClientDisconnect, Exception), _on_error
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
        Route("/", page.index),
        Route("/page/start", page.start, middleware=[gzip]),
        Route("/page/{file:path}", page.file),
        Route("/v1/chat/stream", Endpoint(chat.stream_turn), methods=["GET", "POST"]),
        Route("/v1/turns", turns.create, methods=["POST"]),
        Route("/v1/turns/{id}", turns.show),
        Route("/v1/turns/{id}/events", turns.events),
        Route("/v1/turns/{id}/cancel", turns.cancel, methods=["POST"]),
        Route("/v1/turns/{id}/steer", turns.steer, methods=["POST"]),
        Route("/v1/turns/{id}/approvals/{call_id}", turns.approve, methods=["POST"]),
        Route("/v1/conversations", conversations.list_conversations),
        Route("/v1/conversations/{id}", conversations.ConversationEndpoint),
        Route("/v1/conversations/{id}/files/{number}", conversations.file),
        Route("/v1/conversations/{id}/typing", conversations.note_typing, methods=["POST"]),
        Route("/v1/memory", memory.ItemsEndpoint),
        Route("/v1/memory/{id}", memory.ItemEndpoint),
        Route("/v1/tasks", tasks.TasksEndpoint),
        Route("/v1/tasks/events", tasks.events),
        Route("/v1/tasks/{id}", tasks.TaskEndpoint),
        Route("/v1/tasks/{id}/cancel", tasks.cancel, methods=["POST"]),
        Route("/v1/tasks/{id}/run", tasks.run, methods=["POST"]),
        Route("/v1/tasks/{id}/approvals/{call_id}", tasks.approve, methods=["POST"]),
        Route("/v1/chat/completions", Endpoint(openai.complete), methods=["POST"]),
        Route("/v1/models", Endpoint(openai.models), methods=["GET"]),
        Route("/v1/models/{name:path}", Endpoint(openai.models), methods=["GET"]),
        Route("/api/chat", Endpoint(ollama.chat), methods=["POST"]),
        Route("/api/generate", Endpoint(ollama.generate), methods=["POST"]),
        Route("/api/tags", ollama.tags),
        Route("/api/show", ollama.show, methods=["POST"]),
        Route("/api/version", ollama.version),
        Route("/api/ps", ollama.ps),
        Route("/ai-sdk/chat", Endpoint(ai_sdk.chat), methods=["POST"]),
        Route("/ai-sdk/chat/{id}/stream", Endpoint(ai_sdk.reconnect), methods=["GET"]),
        Route("/ag-ui/run", Endpoint(ag_ui.run_agent), methods=["POST"]),
        Route("/v1/session", session.SessionEndpoint),
        Route("/v1/specialists", about.specialists),
        Route("/v1/strategies", about.strategies),
        Route("/healthz", about.healthz),
        Route("/readyz", about.readyz),
        Route("/metrics", about.metrics),
    ]


async def _on_error(request: Request, error: Exception) -> Response:
    headers: Mapping[str, str] = {}
    match error:
        case BadRequest():
            rejection = error
        case StoreError():
            log.error("the store failed: %s", error)
            rejection = BadRequest(error.message, code="unavailable", status=503)
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
