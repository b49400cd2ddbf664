"""Responses and errors as JSON, with the headers that every response has."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Scope

from brain.errors import BadRequest
from brain.protocols import ag_ui, ai_sdk, ollama, openai
from brain.text import replace_surrogates

SAFE_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response. The last one does not keep pages of ORIGINS from reading: it binds requests without
CORS."""

NO_STORE_HEADERS: Mapping[str, str] = {**SAFE_HEADERS, "Cache-Control": "no-store"}
"""The same for responses that no cache may store."""


class ApiResponse(JSONResponse):
    """JSON, or bytes that are JSON already, which no cache stores."""

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, {**NO_STORE_HEADERS, **(headers or {})})

    def render(self, content: Any) -> bytes:
        """The body in UTF-8; lone surrogates, which a client may have sent, are replaced."""
        if isinstance(content, bytes):
            return content
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return replace_surrogates(text).encode()


def error_response(error: BadRequest, scope: Scope) -> ApiResponse:
    """The response to a request that failed before the first byte, in the protocol that its path belongs to."""
    path = request_path(scope)
    encode = next((encode for prefix, encode in _ERROR_BODIES.items() if path.startswith(prefix)), _native_error)
    status, body = encode(error)
    plain = {"Content-Type": "text/plain; charset=utf-8"} if isinstance(body, bytes) else {}
    return ApiResponse(body, status, {**error_headers(error), **plain})


def error_headers(error: BadRequest) -> dict[str, str]:
    """Headers that an error has in every protocol."""
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return headers


def request_path(scope: Scope) -> str:
    """The path below the place where Brain is mounted."""
    return str(scope["path"].removeprefix(scope.get("root_path", ""))) or "/"


def _native_error(error: BadRequest) -> tuple[int, Mapping[str, Any]]:
    body = {"code": error.code, "message": error.message}
    if error.field is not None:
        body["field"] = error.field
    return error.status, {"error": body}


_ERROR_BODIES: Mapping[str, Callable[[BadRequest], tuple[int, Mapping[str, Any] | bytes]]] = {
    "/v1/chat/completions": openai.encode_rejection,
    "/v1/models": openai.encode_rejection,
    "/api/": ollama.encode_rejection,
    "/ai-sdk/": ai_sdk.encode_rejection,
    "/ag-ui/": ag_ui.encode_rejection,
}
"""Status and body of an error by the beginning of the path."""
