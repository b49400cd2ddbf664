"""The chat page: its files, and what it shows first."""

import re
from importlib.metadata import version as version_of
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from brain.models import ModelEntry
from brain.protocols.attachments import ATTACHMENT_BYTES, MAX_ATTACHMENTS
from brain.protocols.bodies import BODY_BYTES
from brain.protocols.native import MESSAGE_LENGTH
from brain.runtime.engine import Engine
from brain.server import static_files
from brain.server.responses import SAFE_HEADERS, ApiResponse
from brain.server.routes.about import describe_specialists
from brain.server.routes.requests import engine_of, state_of, user_of
from brain.server.static_files import PageFile

LASTING = "public, max-age=31536000, immutable"
_takes_gzip = re.compile(r"gzip(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE).search
"""Whether an Accept-Encoding names it, and not to refuse it."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types dompurify"
)


async def index(request: Request) -> Response:
    """`GET /`: the page, which may load nothing and talk to nobody else."""
    return _sent(static_files.index(), request, "no-cache")


async def file(request: Request) -> Response:
    """`GET /page/{file}`: what belongs to it; below the version that the page names, for good."""
    name: str = request.path_params["file"]
    found = static_files.find(f"/page/{name}")
    if found is None:
        raise HTTPException(404)
    return _sent(found, request, LASTING if name.startswith(static_files.version()) else "no-cache")


def _sent(found: PageFile, request: Request, kept: str) -> Response:
    headers = {**SAFE_HEADERS, "Cache-Control": kept, "ETag": found.etag, "Content-Type": found.type}
    headers["Vary"] = "Accept-Encoding"
    if found.type.startswith(("text/html", "image/svg")):
        headers["Content-Security-Policy"] = _POLICY
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(found.gzipped, headers={**headers, "Content-Encoding": "gzip"})
    return Response(found.data, headers=headers)


class Smaller(GZipMiddleware):
    """Compresses answers for who takes that. For the page alone: what streams is not held up."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        taken = _takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
        await (super().__call__ if taken else self.app)(scope, receive, send)


async def start(request: Request) -> Response:
    """`GET /page/start`: who is signed in, and what they may send and choose."""
    engine, user = engine_of(request), user_of(request)
    return ApiResponse(
        {
            "user": user,
            "keys": bool(state_of(request).keys),
            "models": _models(engine),
            "specialists": describe_specialists(request),
            "recall": await engine.store.recalls(user or ""),
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
    """Those on offer, by the names that a turn is asked with."""
    return [
        {
            "name": _name(engine, wanted, one),
            "stand_in": one.model.is_demo,
            "default": place == 0,
        }
        for place, (wanted, one) in enumerate(zip(engine.settings.model, engine.models, strict=True))
    ]


def _name(engine: Engine, wanted: str, one: ModelEntry) -> str:
    """Its own name, or as it was configured where another has the same."""
    return one.model.name if engine.model(one.model.name) is one.model else wanted
