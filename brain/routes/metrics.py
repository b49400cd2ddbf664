"""Roof: the metrics, for Prometheus."""

from starlette.requests import Request
from starlette.responses import Response

from brain.door import UNKEPT
from brain.routes.incoming import house_of


async def metrics(request: Request) -> Response:
    """`GET /metrics`: what happened since the start, in the format that is asked for."""
    text, content_type = house_of(request).watch.metrics.exposed(request.headers.get("accept", ""))
    return Response(text, media_type=None, headers={**UNKEPT, "content-type": content_type})
