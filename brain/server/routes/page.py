"""The routes of the chat page: its files, and the data that it starts with."""

import re
from importlib.metadata import version as version_of
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from brain.protocols.common import ATTACHMENT_BYTES, BODY_BYTES, MAX_ATTACHMENTS, MESSAGE_LENGTH
from brain.runtime.assistant import find_mode
from brain.runtime.engine import Engine
from brain.server import static_files
from brain.server.responses import SAFE_HEADERS, ApiResponse
from brain.server.routes.about import describe_specialists, describe_strategies
from brain.server.routes.requests import Request
from brain.server.static_files import PageFile
from brain.store import users

CACHE_FOREVER = "public, max-age=31536000, immutable"
_accepts_gzip = re.compile(r"gzip(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE).search
"""Whether an Accept-Encoding header allows gzip."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types dompurify"
)


async def index(request: Request) -> Response:
    """`GET /`: the page. Its content security policy allows no other host."""
    return _file_response(static_files.index(), request, "no-cache")


async def file(request: Request) -> Response:
    """`GET /page/{file}`: a file of the page. Browsers cache URLs with the present version forever."""
    name: str = request.path_params["file"]
    found = static_files.find(f"/page/{name}")
    if found is None:
        raise HTTPException(404)
    return _file_response(found, request, CACHE_FOREVER if name.startswith(static_files.version()) else "no-cache")


def _file_response(file: PageFile, request: Request, cache_control: str) -> Response:
    headers = {**SAFE_HEADERS, "Cache-Control": cache_control, "ETag": file.etag, "Content-Type": file.type}
    headers["Vary"] = "Accept-Encoding"
    if file.type.startswith(("text/html", "image/svg")):
        headers["Content-Security-Policy"] = _POLICY
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if _accepts_gzip(request.headers.get("accept-encoding", "")):
        return Response(file.gzipped, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.data, headers=headers)


class PageCompression(GZipMiddleware):
    """Compress responses for clients that accept gzip. Used for the page only, because it would delay streams."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        accepts_gzip = _accepts_gzip(Headers(scope=scope).get("accept-encoding", ""))
        await (super().__call__ if accepts_gzip else self.app)(scope, receive, send)


async def start(request: Request) -> Response:
    """`GET /page/start`: the signed-in user, models, strategies, specialists and limits."""
    engine, user = request.engine, request.username
    return ApiResponse(
        {
            "user": user,
            "keys": not request.server.keys.is_empty,
            "models": _models(engine),
            "strategies": describe_strategies(request),
            "specialists": describe_specialists(request),
            "recall": await engine.store.read(users.recalls, user or ""),
            "limits": {
                "files": MAX_ATTACHMENTS,
                "file_bytes": ATTACHMENT_BYTES,
                "body_bytes": BODY_BYTES,
                "message_characters": MESSAGE_LENGTH,
            },
            "version": version_of("brain-sse"),
        }
    )


def _models(engine: Engine) -> list[dict[str, Any]]:
    """List the models by the names that requests use. If two models share a name, use the configured one."""
    return [
        {
            "name": model.name if engine.find_model(model.name) is model else configured,
            "stand_in": model.is_demo,
            "local": model.is_local,
            "assist": not model.is_demo and find_mode(engine.settings, model) != "off",
            "default": position == 0,
        }
        for position, (configured, model) in enumerate(zip(engine.settings.model, engine.models, strict=True))
    ]
