"""The application. Its routes, who may reach them, and what is said when something goes wrong."""

import logging
from collections.abc import AsyncIterator, Callable
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
from brain.server.auth import KeyStore
from brain.server.middleware import Cors, Guard, Keys, refusal
from brain.server.routes import about, ag_ui, ai_sdk, chat, conversations, memory, ollama, openai, page, session, turns
from brain.server.state import ServerState
from brain.settings import Settings, read

log = logging.getLogger("brain")


async def _on_bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    return refusal(error, request.scope)


async def _on_store_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StoreError)
    log.error("what is kept could not be reached: %s", error)
    return refusal(BadRequest(error.message, code="unavailable", status=503), request.scope)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "bad_request")
    response = refusal(BadRequest(error.detail, code=code, status=error.status_code), request.scope)
    response.headers.update(error.headers or {})
    return response


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # to nobody: the client left before all of its body was here


async def _on_error(request: Request, error: Exception) -> Response:
    message = "Something went wrong on the server; it was logged."
    return refusal(BadRequest(message, code="internal", status=500), request.scope)


def create_app(settings: Settings | None = None, registry: Registry | None = None) -> Starlette:
    """The whole of Brain as an ASGI application.

    Args:
        settings: read from nothing when left out: the defaults.
        registry: the specialists; those that are installed when left out.
    """
    settings = settings or read({})
    house = ServerState(settings, registry if registry is not None else Registry(settings).discover())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await house.open()
        try:
            yield
        finally:
            await house.close()

    keyring = KeyStore(settings.keys)
    cors = Middleware(Cors, settings=settings)
    app = Starlette(
        routes=_routes(),
        middleware=[
            Middleware(Guard, settings=settings),
            *([cors] if settings.origins else []),  # around the keys, so that a page can read that its key is wrong
            Middleware(Keys, keyring=keyring),
        ],
        exception_handlers={
            BadRequest: _on_bad_request,
            StoreError: _on_store_error,
            HTTPException: _on_http_exception,
            ClientDisconnect: _on_disconnect,
            Exception: _on_error,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # what is not there says so, in our form
    app.state.house = house
    app.state.keyring = keyring
    return app


def _routes() -> list[Route]:
    """What is answered at which address."""
    smaller = Middleware(page.Smaller, compresslevel=5)
    return [
        Route("/", page.index),
        Route("/page/start", page.start, middleware=[smaller]),
        Route("/page/{file:path}", page.file),
        Route("/v1/chat/stream", chat.ChatStream(), methods=["GET", "POST"]),
        Route("/v1/turns", turns.create, methods=["POST"]),
        Route("/v1/turns/{id}", turns.show),
        Route("/v1/turns/{id}/events", turns.events),
        Route("/v1/turns/{id}/cancel", turns.cancel, methods=["POST"]),
        Route("/v1/turns/{id}/steer", turns.steer, methods=["POST"]),
        Route("/v1/turns/{id}/approvals/{call_id}", turns.approve, methods=["POST"]),
        Route("/v1/conversations", conversations.conversations),
        Route("/v1/conversations/{id}", conversations.ConversationEndpoint),
        Route("/v1/conversations/{id}/files/{number}", conversations.file),
        Route("/v1/memory", memory.Items),
        Route("/v1/memory/{id}", memory.Item),
        Route("/v1/chat/completions", openai.ChatCompletions(), methods=["POST"]),
        Route("/v1/models", models := openai.Models(), methods=["GET"]),
        Route("/v1/models/{name:path}", models, methods=["GET"]),
        Route("/api/chat", ollama.chat, methods=["POST"]),
        Route("/api/generate", ollama.generate, methods=["POST"]),
        Route("/api/tags", ollama.tags),
        Route("/api/show", ollama.show, methods=["POST"]),
        Route("/api/version", ollama.version),
        Route("/api/ps", ollama.ps),
        Route("/ai-sdk/chat", ai_sdk.Chat(), methods=["POST"]),
        Route("/ai-sdk/chat/{id}/stream", ai_sdk.Reconnect(), methods=["GET"]),
        Route("/ag-ui/run", ag_ui.Runs(), methods=["POST"]),
        Route("/v1/session", session.Session),
        Route("/v1/specialists", about.specialists),
        Route("/healthz", about.healthz),
        Route("/readyz", about.readyz),
        Route("/metrics", about.metrics),
    ]


def mount(
    app: Starlette, path: str = "/brain", settings: Settings | None = None, registry: Registry | None = None
) -> None:
    """Puts the whole of Brain into an existing Starlette or FastAPI application, and its start and stop with it."""
    brain = create_app(settings, registry)
    outer: Callable[[Any], AbstractAsyncContextManager[Any]] = app.router.lifespan_context
    house: ServerState = brain.state.house

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
