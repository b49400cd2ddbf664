"""Routes to sign in and out, for EventSource, which cannot send an Authorization header."""

import time
from functools import partial

import msgspec
from starlette.responses import Response

from brain.protocols.common import decode
from brain.server.auth import SESSION_SECONDS
from brain.server.middleware import COOKIE, SECURE_COOKIE, invalid_key, is_secure
from brain.server.responses import ApiResponse, no_content
from brain.server.routes.requests import Request, read_json
from brain.settings import LOCAL_USER

BODY_BYTES = 16 * 1024
"""Size limit of a request that needs no authentication."""


class KeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/session`."""

    key: str


async def sign_in(request: Request) -> Response:
    """`POST /v1/session`: sign in with a key. Without API keys, all clients are the local user."""
    keys = request.server.keys
    key = (await read_json(request, partial(decode, kind=KeyBody), BODY_BYTES)).key.encode()
    if keys.is_empty:
        return ApiResponse({"user": LOCAL_USER})
    session = keys.open_session(key, time.time())
    if session is None:
        raise invalid_key(request.scope, keys, "key")
    user, token = session
    response = ApiResponse({"user": user})
    _set_cookie(response, request, token, SESSION_SECONDS)
    return response


async def show(request: Request) -> Response:
    """`GET /v1/session`: show the user."""
    return ApiResponse({"user": request.username})


async def sign_out(request: Request) -> Response:
    """`DELETE /v1/session`: sign out, which deletes the cookie."""
    response = no_content()
    _set_cookie(response, request, "", 0)
    return response


def _set_cookie(response: Response, request: Request, token: str, seconds: int) -> None:
    path = request.scope.get("root_path") or "/"
    secure = is_secure(request.scope)
    names = [SECURE_COOKIE] if secure and path == "/" else [COOKIE]
    if not token and COOKIE not in names:
        names.append(COOKIE)  # from before the server used HTTPS
    attributes = f"Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
    for name in names:
        response.headers.append("Set-Cookie", f"{name}={token}; {attributes}")
