"""Roof: who may come in, by Host, Origin and key. Pure ASGI middleware, around all routes."""

import hmac
import re
from collections.abc import Awaitable

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from brain.errors import BadRequest
from brain.settings import LOOPBACK, Settings

OPEN_PATHS = ("/", "/healthz", "/readyz")

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\s:@/\[\]]+)(:\d{1,5})?")


class Guard:
    """Lets in who may come in, by Host and by Origin."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = frozenset(host.lower().strip("[]") for host in (*LOOPBACK, settings.host, *settings.hosts))
        self._origins = frozenset(settings.origins)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answers who may not come in; hands on everybody else, and is out of the way then."""
        refused = self._refused(Headers(scope=scope)) if _is_guarded(scope) else None
        return (self._app if refused is None else refusal(refused))(scope, receive, send)

    def _refused(self, headers: Headers) -> BadRequest | None:
        host = headers.get("host", "").lower()
        named = _HOST.fullmatch(host)
        if named is None or named["name"].strip("[]") not in self._hosts:
            message = "This Host name is not known here; the operator lists others in HOSTS."
            return BadRequest(message, "host", code="forbidden_host", status=403)
        if not self._same_origin(headers, host):
            message = "This origin may not call; the operator lists others in ORIGINS."
            return BadRequest(message, "origin", code="forbidden_origin", status=403)
        return None

    def _same_origin(self, headers: Headers, host: str) -> bool:
        """Whether the call is none of another site's page; what sends neither header is a program."""
        origin = headers.get("origin")
        if origin is not None:
            return origin.lower() in self._origins or origin.lower() in (f"http://{host}", f"https://{host}")
        return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


class Keys:
    """Lets in who has a key, and puts the key's user into the scope."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._keys = settings.keys

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answers who has no key; hands on everybody else, and is out of the way then."""
        if not _is_guarded(scope):
            return self._app(scope, receive, send)
        user = self._user(Headers(scope=scope))
        if user is None:
            message = "Send your key: Authorization: Bearer KEY."
            refused = BadRequest(message, "authorization", code="unauthorized", status=401)
            return refusal(refused)(scope, receive, send)
        scope["brain.user"] = user
        return self._app(scope, receive, send)

    def _user(self, headers: Headers) -> str | None:
        """Who asks, by the key in the Authorization header; without keys, the one local user."""
        if not self._keys:
            return "local"
        scheme, _, given = headers.get("authorization", "").partition(" ")
        found = None
        for key, user in self._keys:  # all are compared, so that time tells nothing
            if hmac.compare_digest(key.encode(), given.strip().encode("latin-1")) and scheme.lower() == "bearer":
                found = user
        return found


def _is_guarded(scope: Scope) -> bool:
    if scope["type"] != "http":
        return False
    path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
    return path not in OPEN_PATHS


def refusal(error: BadRequest) -> JSONResponse:
    """The answer to what is refused before the first byte."""
    body = {"code": error.code, "message": error.message}
    if error.field is not None:
        body["field"] = error.field
    return JSONResponse({"error": body}, error.status, {"WWW-Authenticate": "Bearer"} if error.status == 401 else None)
