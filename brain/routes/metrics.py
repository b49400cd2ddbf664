"""Roof: the metrics, for Prometheus."""

from starlette.requests import Request
from starlette.responses import Response

from brain.door import SAFE_HEADERS
from brain.routes.incoming import house_of


async def metrics(request: Request) -> Response:
    """`GET /metrics`: what happened since the start, in the format that is asked for."""
    text, content_type = house_of(request).watch.metrics.exposed(request.headers.get("accept", ""))
    return Response(text, media_type=None, headers={**SAFE_HEADERS, "content-type": content_type})
