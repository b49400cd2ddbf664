"""What Brain says of itself: its specialists, its health."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from brain.models import check_model
from brain.server.middleware import UNKEPT, Answer
from brain.server.routes.requests import house_of


async def specialists(request: Request) -> Response:
    """`GET /v1/specialists`: what the user may call, and what cannot be called and why."""
    return Answer({"specialists": allowed(request)})


def allowed(request: Request) -> list[dict[str, Any]]:
    """The specialists that are there for the user, as they are told of."""
    house = house_of(request)
    own = house.settings.rights(request.scope["brain.user"]).specialists
    return [
        entry.describe()
        for name, entry in house.registry.items()
        if house.registry.is_allowed(name) and (own is None or name in own)
    ]


async def healthz(request: Request) -> Response:
    """`GET /healthz`: the process answers."""
    return Answer({"status": "ok"})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: the default model can be reached, the store can be written, and specialists are loaded."""
    house = house_of(request)
    model = house.model(None)
    trouble = await house.store.trouble() or await check_model(model)
    status = {
        "status": "unavailable" if trouble else "ok",
        "model": model.name,
        "specialists": len(house.registry.usable()),
        **({"reason": trouble} if trouble else {}),
    }
    return Answer(status, 503 if trouble else 200)


async def metrics(request: Request) -> Response:
    """`GET /metrics`: what happened since the start, in the format that is asked for."""
    text, content_type = house_of(request).watch.metrics.exposed(request.headers.get("accept", ""))
    return Response(text, media_type=None, headers={**UNKEPT, "content-type": content_type})
