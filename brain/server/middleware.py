"""ASGI middleware: checks Host, Origin and API key of each request, once: where the client sent it."""

import ipaddress
import re
import time
from collections.abc import Awaitable
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from brain.errors import BadRequest
from brain.server import auth, static_files
from brain.server.auth import KeyStore
from brain.server.forwarding import HEADER, PREFIX_HEADER, Forwarding
from brain.server.rate_limits import rate_limited
from brain.server.responses import SAFE_HEADERS, error_response, request_path
from brain.settings import LOCAL_USER, LOOPBACK, Settings
from brain.validation import quote_value

PUBLIC_PATHS = ("/", "/healthz", "/readyz")
"""Paths without authentication, in addition to the files of the page."""
SESSION_PATH = "/v1/session"
GET_STARTS_TURN = ("/v1/chat/stream",)
PRIVATE_PATH = "brain.private_path"
"""Key in a request's scope: its path, if that needs authentication."""
USER = "brain.user"
"""Key in a request's scope: the user, if its path needs authentication."""
FORWARDED = "brain.forwarded"
"""Key in a request's scope: whether another process of the store has forwarded the request. It is then not forwarded
again."""
ONLY_FORWARDED = "brain.only_forwarded"
"""Extension of the scope, on connections that take forwarded requests only."""
COOKIE = "brain_session"
SECURE_COOKIE = "__Host-brain_session"
"""The cookie for HTTPS. Other subdomains cannot set a cookie with this prefix."""
EXPOSED_HEADERS = ("location", "retry-after", "x-conversation-id", "x-vercel-ai-ui-message-stream")

KEY_MISSING = "Missing API key. Send the header Authorization: Bearer YOUR_KEY."
KEY_UNKNOWN = "Invalid API key."

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\s:@/%\[\]]+)(:[0-9]{1,5})?")
_REFERER = re.compile(r"(?P<origin>[a-z][a-z0-9+.-]*://[^/?#]*)")


class ForwardedMiddleware:
    """Accepts requests that another process has checked and signed, and rejects other ones with its header.

    On connections for forwarded requests, it rejects all other ones.
    """

    def __init__(self, app: ASGIApp, forwarding: Forwarding) -> None:
        self._app = app
        self._forwarding = forwarding

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            signatures = [value for name, value in scope["headers"] if name == HEADER]
            if signatures or ONLY_FORWARDED in scope.get("extensions", {}):
                try:
                    scope[USER] = self._forwarding.verify(signatures, scope)
                except BadRequest as error:
                    return error_response(error, scope)(scope, receive, send)
                scope[FORWARDED] = True
                _restore(scope)
        return self._app(scope, receive, send)


def _restore(scope: Scope) -> None:
    """Describe the client's connection, and not that of the process that forwarded the request."""
    headers = Headers(scope=scope)
    client = headers.get("x-forwarded-for")
    scope["client"] = (client, 0) if client else None
    scope["scheme"] = headers["x-forwarded-proto"]
    prefix = headers[PREFIX_HEADER.decode()]
    scope["root_path"] = unquote(prefix)
    scope["path"] = scope["root_path"] + scope["path"]
    scope["raw_path"] = prefix.encode() + scope["raw_path"]


class OriginMiddleware:
    """Rejects requests for unknown hosts, and requests from web pages of other origins."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = frozenset(map(_normalize_host, (*LOOPBACK, settings.host, *settings.hosts)))
        self._origins = frozenset(settings.origins)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # not async: adds no frame to the stack of a stream
        if scope["type"] == "http" and FORWARDED not in scope:
            path = request_path(scope)
            if path not in PUBLIC_PATHS and static_files.find(path) is None:
                scope[PRIVATE_PATH] = path
                if (error := self._check(scope, path)) is not None:
                    return error_response(error, scope)(scope, receive, send)
        return self._app(scope, receive, send)

    def _check(self, scope: Scope, path: str) -> BadRequest | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        match = _HOST.fullmatch(host)
        if match is None or _normalize_host(match["name"]) not in self._hosts:
            message = f"Host name {quote_value(', '.join(hosts))} is not allowed. Add it to BRAIN_HOSTS."
            return BadRequest(message, "host", code="forbidden_host", status=403)
        if not self._is_same_origin(headers, host):
            origin = headers.get("origin") or headers.get("referer")
            shown = f"Origin {quote_value(origin)}" if origin else "The origin of this request"
            message = f"{shown} is not allowed. Add it to BRAIN_ORIGINS."
            return BadRequest(message, "origin", code="forbidden_origin", status=403)
        if scope["method"] in ("GET", "HEAD") and path in GET_STARTS_TURN and not _is_script(headers):
            message = "Navigation requests cannot start a turn. Use fetch, EventSource or an HTTP client."
            return BadRequest(message, "origin", code="forbidden_origin", status=403)
        return None

    def _is_same_origin(self, headers: Headers, host: str) -> bool:
        """Whether the request is not from a page of another site. Clients without these headers are not browsers."""
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
        """Whether an origin is the server's own or a configured one. Browsers omit the default port."""
        own = {f"http://{host}", f"https://{host}", f"http://{host.removesuffix(':80')}", _https_origin(host)}
        return origin in self._origins or origin in own


def _is_script(headers: Headers) -> bool:
    """Whether the request is from a script or a program, not from a link or an image.

    Browsers send Sec-Fetch-Mode, except old ones, and only to loopback and HTTPS servers. Without it, a request from a
    browser needs a header that shows its origin, or one that a link cannot add. The user agent of each browser starts
    with Mozilla.
    """
    mode = headers.get("sec-fetch-mode")
    if mode is not None:
        return mode in ("cors", "same-origin")
    has_origin = any(name in headers for name in ("origin", "sec-fetch-site", "referer", "authorization"))
    return has_origin or not headers.get("user-agent", "").startswith("Mozilla/")


class CorsMiddleware(CORSMiddleware):
    """Lets pages of the configured origins read responses and use sessions.

    All headers are allowed: `OriginMiddleware` has already rejected other origins. The process that the client reached
    adds the headers of responses, also of those from another process.
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.app if FORWARDED in scope else super().__call__)(scope, receive, send)

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        response.headers.update(SAFE_HEADERS)
        return response


class AuthMiddleware:
    """Rejects requests without a valid key or session, and adds the user to the scope."""

    def __init__(self, app: ASGIApp, keys: KeyStore) -> None:
        self._app = app
        self._keys = keys

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path = scope.get(PRIVATE_PATH)
        if path and not (path == SESSION_PATH and scope["method"] in ("POST", "DELETE")):
            try:
                scope[USER] = LOCAL_USER if self._keys.is_empty else self._authenticate(scope)
            except BadRequest as error:
                return error_response(error, scope)(scope, receive, send)
        return self._app(scope, receive, send)

    def _authenticate(self, scope: Scope) -> str:
        """Return the user of the key in the Authorization header, or of the session cookie."""
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
    """Return the error for an invalid key: 401, or 429 after many from one address. Valid keys are not limited."""
    client = scope["client"][0] if scope.get("client") else ""
    seconds = keys.failures.count(client_network(client), time.time())
    if seconds is None:
        return _unauthorized(field, message)
    return rate_limited(f"Too many requests with invalid API keys. Try again in {seconds} seconds.", seconds)


def _unauthorized(field: str, message: str) -> BadRequest:
    return BadRequest(message, field, code="unauthorized", status=401)


def is_secure(scope: Scope) -> bool:
    """Whether the browser uses HTTPS, to this server or to its proxy."""
    headers = Headers(scope=scope)
    return scope["scheme"] == "https" or headers.get("origin", "").lower() == _https_origin(headers["host"].lower())


def _https_origin(host: str) -> str:
    return f"https://{host.removesuffix(':443')}"


def _session_cookie(headers: Headers) -> str:
    """The token in the cookie. Of several cookies with one name, the first has the longest path."""
    cookies: dict[str, str] = {}
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.partition("=")
        cookies.setdefault(name.strip(), value.strip())
    return cookies.get(SECURE_COOKIE) or cookies.get(COOKIE, "")


def client_network(host: str) -> str:
    """Return an IPv4 address unchanged, or the /64 network of an IPv6 address, which one client can use entirely."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def _normalize_host(name: str) -> str:
    """A host in lower case without brackets, zone and final dot; IPv6 in its short form."""
    name = name.lower().strip("[]").partition("%")[0].removesuffix(".")
    if ":" not in name:
        return name
    try:
        return str(ipaddress.IPv6Address(name))
    except ValueError:
        return name
