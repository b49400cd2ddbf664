"""JSON responses and errors, and the headers of every response."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from brain.errors import BadRequest
from brain.protocols import ag_ui, ai_sdk, ollama, openai
from brain.protocols.encoding import encode

SAFE_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-DNS-Prefetch-Control": "off",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response. Without the third, browsers look up the hosts of links before a click.
The last one does not affect pages of configured origins, which use CORS."""

NO_STORE_HEADERS: Mapping[str, str] = {**SAFE_HEADERS, "Cache-Control": "no-store"}
"""Headers of responses that caches must not store."""


class ApiResponse(JSONResponse):
    """JSON that caches must not store; bytes are sent unchanged."""

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, {**NO_STORE_HEADERS, **(headers or {})})

    def render(self, content: Any) -> bytes:
        """Encode the body."""
        return content if isinstance(content, bytes) else encode(content)


def no_content() -> Response:
    return Response(status_code=204, headers=NO_STORE_HEADERS)


def error_response(error: BadRequest, scope: Scope) -> ApiResponse:
    """Return the response for a rejected request, in the protocol of its path."""
    path = request_path(scope)
    encode_error = next((one for prefix, one in _ERROR_BODIES.items() if path.startswith(prefix)), _native_error)
    status, body = encode_error(error)
    plain = {"Content-Type": "text/plain; charset=utf-8"} if isinstance(body, bytes) else {}
    return ApiResponse(body, status, {**error_headers(error), **plain})


def error_headers(error: BadRequest) -> dict[str, str]:
    """Return the headers of an error in any protocol."""
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return headers


def request_path(scope: Scope) -> str:
    """Return the path relative to the mount point of Brain."""
    return str(scope["path"].removeprefix(scope.get("root_path", ""))) or "/"


def error_body(error: BadRequest) -> Mapping[str, Any]:
    """Return the body of an error in Brain's own protocol."""
    body = {"code": error.code, "message": error.message}
    if error.field is not None:
        body["field"] = error.field
    return {"error": body | {**error.details}}


def _native_error(error: BadRequest) -> tuple[int, Mapping[str, Any]]:
    return error.status, error_body(error)


_ERROR_BODIES: Mapping[str, Callable[[BadRequest], tuple[int, Mapping[str, Any] | bytes]]] = {
    "/v1/chat/completions": openai.encode_rejection,
    "/v1/models": openai.encode_rejection,
    "/api/": ollama.encode_rejection,
    "/ai-sdk/": ai_sdk.encode_rejection,
    "/ag-ui/": ag_ui.encode_rejection,
}
"""By path prefix: returns status and body of an error."""
