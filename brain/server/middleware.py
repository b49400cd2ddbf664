"""Checks each request by Host, Origin and key. Pure ASGI middleware."""

import ipaddress
import re
import time
from collections.abc import Awaitable

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from brain.errors import BadRequest
from brain.server import auth, static_files
from brain.server.auth import KeyStore
from brain.server.rate_limits import rate_limited
from brain.server.responses import SAFE_HEADERS, error_response, request_path
from brain.settings import LOCAL_USER, LOOPBACK, Settings

PUBLIC_PATHS = ("/", "/healthz", "/readyz")
"""Paths that need no key, besides the page's files."""
SESSION_PATH = "/v1/session"
GET_STARTS_TURN = ("/v1/chat/stream",)
USER = "brain.user"
"""The key of a request's scope that holds its user."""
COOKIE = "brain_session"
SECURE_COOKIE = "__Host-brain_session"
"""The cookie over HTTPS for all paths. No other subdomain can set a cookie of this name."""
EXPOSED_HEADERS = ("location", "retry-after", "x-conversation-id", "x-vercel-ai-ui-message-stream")

KEY_MISSING = "Send your key: Authorization: Bearer KEY."
KEY_UNKNOWN = "This key is not known here."

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\s:@/%\[\]]+)(:[0-9]{1,5})?")
_REFERER = re.compile(r"(?P<origin>[a-z][a-z0-9+.-]*://[^/?#]*)")


class OriginMiddleware:
    """Rejects requests with an unknown Host, and requests that pages of other origins make."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = frozenset(map(_normalize_host, (*LOOPBACK, settings.host, *settings.hosts)))
        self._origins = frozenset(settings.origins)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # no frame of this stays on the stack
        error = self._check(scope) if _needs_auth(scope) else None
        return (self._app if error is None else error_response(error, scope))(scope, receive, send)

    def _check(self, scope: Scope) -> BadRequest | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        match = _HOST.fullmatch(host)
        if match is None or _normalize_host(match["name"]) not in self._hosts:
            message = "This Host name is not known here; the operator lists others in HOSTS."
            return BadRequest(message, "host", code="forbidden_host", status=403)
        if not self._is_same_origin(headers, host):
            message = "This origin may not call; the operator lists others in ORIGINS."
            return BadRequest(message, "origin", code="forbidden_origin", status=403)
        if scope["method"] in ("GET", "HEAD") and request_path(scope) in GET_STARTS_TURN and not _is_script(headers):
            message = "A program or a page's own script can start a turn; a link, an image or the address bar cannot."
            return BadRequest(message, "origin", code="forbidden_origin", status=403)
        return None

    def _is_same_origin(self, headers: Headers, host: str) -> bool:
        """Whether no page of another site makes the request; a client without any of these headers is a program."""
        origin = headers.get("origin")
        if origin is not None:
            return self._is_allowed(origin.lower(), host)
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site in ("same-origin", "none")
        referer = headers.get("referer")
        if referer is None:
            return True
        page = _REFERER.match(referer.lower())
        return page is not None and self._is_allowed(page["origin"], host)

    def _is_allowed(self, origin: str, host: str) -> bool:
        """Whether this is the server's own origin, which browsers write without the default port, or a listed one."""
        own = {f"http://{host}", f"https://{host}", f"http://{host.removesuffix(':80')}", _https_origin(host)}
        return origin in self._origins or origin in own


def _is_script(headers: Headers) -> bool:
    """Whether a program or a script makes the request, and no link or image.

    Browsers report it in Sec-Fetch-Mode. Older ones do not, nor does any to a server that is neither loopback nor
    HTTPS; there the request needs a header that shows its origin, or one that no link can add. All browsers' names
    begin with Mozilla.
    """
    mode = headers.get("sec-fetch-mode")
    if mode is not None:
        return mode in ("cors", "same-origin")
    has_origin = any(name in headers for name in ("origin", "sec-fetch-site", "referer", "authorization"))
    return has_origin or not headers.get("user-agent", "").startswith("Mozilla/")


class CorsMiddleware(CORSMiddleware):
    """Lets pages of ORIGINS read responses, and use the sessions that were opened from there.

    They may send any header: other origins were rejected before.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        super().__init__(
            app,
            allow_origins=settings.origins,
            allow_methods=("GET", "POST", "PATCH", "DELETE"),
            allow_headers=("*",),
            allow_credentials=True,
            allow_private_network=True,
            expose_headers=EXPOSED_HEADERS,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        response.headers.update(SAFE_HEADERS)
        return response


class AuthMiddleware:
    """Rejects requests without a valid key or session, and puts the user into the scope."""

    def __init__(self, app: ASGIApp, keys: KeyStore) -> None:
        self._app = app
        self._keys = keys

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if _needs_auth(scope) and not (request_path(scope) == SESSION_PATH and scope["method"] in ("POST", "DELETE")):
            try:
                scope[USER] = self._authenticate(scope) if self._keys else LOCAL_USER
            except BadRequest as error:
                return error_response(error, scope)(scope, receive, send)
        return self._app(scope, receive, send)

    def _authenticate(self, scope: Scope) -> str:
        """The user of the key in the Authorization header, else of the session in the cookie."""
        headers = Headers(scope=scope)
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        key = credentials.strip(" \t").encode("latin-1")
        if scheme.lower() == "bearer":
            user = self._keys.find_user(key)
        else:
            session = auth.parse_token(_session_cookie(headers), time.time())
            if session is None:
                raise _unauthorized("authorization", KEY_MISSING)
            user = self._keys.verify(session)
        if user is None:
            raise invalid_key(scope, self._keys, "authorization", KEY_UNKNOWN if key else KEY_MISSING)
        return user


def invalid_key(scope: Scope, keys: KeyStore, field: str, message: str = KEY_UNKNOWN) -> BadRequest:
    """The error for a wrong key: 401, or 429 after many from one address. A right key never has to wait."""
    client = scope["client"][0] if scope.get("client") else ""
    seconds = keys.failures.count(client_network(client), time.time())
    return _unauthorized(field, message) if seconds is None else rate_limited("Too many wrong keys; wait.", seconds)


def _unauthorized(field: str, message: str) -> BadRequest:
    return BadRequest(message, field, code="unauthorized", status=401)


def is_secure(scope: Scope) -> bool:
    """Whether the browser uses HTTPS, to this server or to the proxy before it."""
    headers = Headers(scope=scope)
    return scope["scheme"] == "https" or headers.get("origin", "").lower() == _https_origin(headers["host"].lower())


def _https_origin(host: str) -> str:
    return f"https://{host.removesuffix(':443')}"


def _session_cookie(headers: Headers) -> str:
    """The token that the browser sends; of several cookies of a name the first, which belongs to this very path."""
    cookies: dict[str, str] = {}
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.partition("=")
        cookies.setdefault(name.strip(), value.strip())
    return cookies.get(SECURE_COOKIE) or cookies.get(COOKIE, "")


def client_network(host: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address, all of which one client can use."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def _normalize_host(name: str) -> str:
    """A host in lower case without brackets, zone and the dot of the root; IPv6 in its short form."""
    name = name.lower().strip("[]").partition("%")[0].removesuffix(".")
    if ":" not in name:
        return name
    try:
        return str(ipaddress.IPv6Address(name))
    except ValueError:
        return name


def _needs_auth(scope: Scope) -> bool:
    if scope["type"] != "http":
        return False
    path = request_path(scope)
    return path not in PUBLIC_PATHS and static_files.find(path) is None
