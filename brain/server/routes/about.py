"""Routes for specialists, strategies, health and metrics."""

from contextlib import suppress
from typing import Any

import msgspec
from starlette.responses import Response

from brain.errors import StoreError
from brain.server.responses import NO_STORE_HEADERS, ApiResponse
from brain.server.routes.requests import Request
from brain.store import tasks
from brain.strategies.descriptions import DESCRIPTIONS
from brain.turn_request import STRATEGY_OPTIONS


async def specialists(request: Request) -> Response:
    """`GET /v1/specialists`: the specialists that the user can call, and why some are unavailable."""
    return ApiResponse({"specialists": describe_specialists(request)})


def describe_specialists(request: Request) -> list[dict[str, Any]]:
    """Describe the specialists that the user can call."""
    engine = request.engine
    return [engine.registry[name].describe() for name in engine.callable_specialists(request.username)]


async def strategies(request: Request) -> Response:
    """`GET /v1/strategies`: the strategies that requests may use, with their limits and their models."""
    return ApiResponse({"strategies": describe_strategies(request)})


def describe_strategies(request: Request) -> list[dict[str, Any]]:
    """Describe the strategies that requests may use."""
    engine = request.engine
    settings, chosen = engine.settings, engine.find_model(None)
    described = []
    for name in settings.allowed_strategies:
        limits = msgspec.to_builtins(settings.limits(name))
        models = {role: engine.find_role(name, role, chosen, private=False).name for role in DESCRIPTIONS[name].roles}
        described.append(
            {
                "name": name,
                "description": DESCRIPTIONS[name].sentence,
                "default": name == settings.strategy,
                "limits": {limit: value for limit, value in limits.items() if value is not None},
                "models": models,
                "options": STRATEGY_OPTIONS[name],
            }
        )
    return described


async def healthz(request: Request) -> Response:
    """`GET /healthz`: the process responds."""
    return ApiResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: the default model responds and the store is writable."""
    engine = request.engine
    model = engine.find_model(None)
    trouble = "Brain is stopping." if engine.is_closing else await engine.store.database.find_problem()
    trouble = trouble or await model.find_problem()
    status = {
        "status": "unavailable" if trouble else "ok",
        "model": model.name,
        "specialists": len(engine.registry.usable()),
        **({"reason": trouble} if trouble else {}),
    }
    return ApiResponse(status, 503 if trouble else 200)


async def metrics(request: Request) -> Response:
    """`GET /metrics`: all metrics, in the format of the Accept header."""
    metrics = request.server.telemetry.metrics
    with suppress(StoreError):  # the numbers of the last request are better than none
        metrics.set_task_states(await request.engine.store.read(tasks.count_states))
    text, content_type = metrics.expose(request.headers.get("accept", ""))
    return Response(text, media_type=None, headers={**NO_STORE_HEADERS, "content-type": content_type})
