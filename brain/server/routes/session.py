"""Signing in and out, for the page and for EventSource, which can send no header of their own."""

import time

import msgspec
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from brain.errors import BadRequest
from brain.protocols.bodies import decode
from brain.server.auth import SESSION_SECONDS, KeyStore
from brain.server.middleware import COOKIE, SECURE_COOKIE, UNKEPT, Answer, is_secure, wrong_key
from brain.server.routes.requests import kind, limited
from brain.settings import LOCAL_USER

KEY_BODY_BYTES = 16 * 1024
"""Of a request that anybody may send; a key is short."""


class KeyBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/session`."""

    key: str


class Session(HTTPEndpoint):
    """`/v1/session`: a cookie for a key, and who one is by it."""

    async def post(self, request: Request) -> Response:
        """Signs in. Without KEYS there is nothing to sign in to: everybody is the local user."""
        keyring = request.app.state.keyring
        assert isinstance(keyring, KeyStore)
        key = await _key(request)
        if not keyring:
            return Answer({"user": LOCAL_USER})
        opened = keyring.open_session(key, time.time())
        if opened is None:
            raise wrong_key(request.scope, keyring, "key")
        user, token = opened
        answer = Answer({"user": user})
        _set_cookie(answer, request, token, SESSION_SECONDS)
        return answer

    async def get(self, request: Request) -> Response:
        """Says who asks."""
        return Answer({"user": request.scope["brain.user"]})

    async def delete(self, request: Request) -> Response:
        """Signs out: the browser forgets the cookie."""
        response = Response(status_code=204, headers=UNKEPT)
        _set_cookie(response, request, "", 0)
        return response


async def _key(request: Request) -> bytes:
    if kind(request) != "application/json":
        message = 'Send application/json: {"key": "…"}.'
        raise BadRequest(message, "content-type", code="unsupported_media_type", status=415)
    body = await limited(request, KEY_BODY_BYTES).body()
    try:
        key = decode(body, KeyBody).key
    except BadRequest:
        raise BadRequest('Send {"key": "…"} and nothing else.', "key") from None
    return key.encode()


def _set_cookie(response: Response, request: Request, token: str, seconds: int) -> None:
    path = request.scope.get("root_path") or "/"
    secure = is_secure(request.scope)
    names = [SECURE_COOKIE] if secure and path == "/" else [COOKIE]
    if not token and COOKIE not in names:
        names.append(COOKIE)  # from before the server was behind https
    said = f"Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")
    for name in names:
        response.headers.append("Set-Cookie", f"{name}={token}; {said}")
