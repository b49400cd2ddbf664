"""Who may come in, by Host, Origin and key, and what every answer says to browsers. Pure ASGI middleware."""

import ipaddress
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from brain.errors import BadRequest
from brain.protocols import ag_ui, ai_sdk, ollama, openai
from brain.server import auth, static_files
from brain.server.auth import KeyStore
from brain.server.rate_limits import too_many
from brain.settings import LOCAL_USER, LOOPBACK, Settings
from brain.text import replace_surrogates

OPEN_PATHS = ("/", "/healthz", "/readyz")
"""Besides the page's files."""
SESSION_PATH = "/v1/session"
STARTED_BY_GET = ("/v1/chat/stream",)
COOKIE = "brain_session"
SECURE_COOKIE = "__Host-brain_session"
"""By https and for all paths. No other subdomain can set one of this name."""

SAFE_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer says. The last one does not keep pages of ORIGINS from reading: it binds who asks without CORS."""

UNKEPT: Mapping[str, str] = {**SAFE_HEADERS, "Cache-Control": "no-store"}
"""The same, for what no cache is to keep."""

EXPOSED = ("location", "retry-after", "x-conversation-id", "x-vercel-ai-ui-message-stream")

NOT_SENT = "Send your key: Authorization: Bearer KEY."
NOT_KNOWN = "This key is not known here."

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\s:@/%\[\]]+)(:[0-9]{1,5})?")
_REFERER = re.compile(r"(?P<origin>[a-z][a-z0-9+.-]*://[^/?#]*)")


class Answer(JSONResponse):
    """JSON, or what is encoded as such, that no cache keeps, and that no page of others may show."""

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, {**UNKEPT, **(headers or {})})

    def render(self, content: Any) -> bytes:
        """In UTF-8; halves of characters, which a client may have sent, are replaced."""
        if isinstance(content, bytes):
            return content
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return replace_surrogates(text).encode()


def refusal(error: BadRequest, scope: Scope) -> Answer:
    """The answer to what is refused before the first byte, in the form of the protocol whose address was asked."""
    path = _path(scope)
    form = next((form for place, form in _FORMS.items() if path.startswith(place)), _native)
    status, body = form(error)
    plain = {"Content-Type": "text/plain; charset=utf-8"} if isinstance(body, bytes) else {}
    return Answer(body, status, {**refusal_headers(error), **plain})


def _native(error: BadRequest) -> tuple[int, Mapping[str, Any]]:
    body = {"code": error.code, "message": error.message}
    if error.field is not None:
        body["field"] = error.field
    return error.status, {"error": body}


_FORMS: Mapping[str, Callable[[BadRequest], tuple[int, Mapping[str, Any] | bytes]]] = {
    "/v1/chat/completions": openai.encode_rejection,
    "/v1/models": openai.encode_rejection,
    "/api/": ollama.encode_rejection,
    "/ai-sdk/": ai_sdk.encode_rejection,
    "/ag-ui/": ag_ui.encode_rejection,
}


def refusal_headers(error: BadRequest) -> dict[str, str]:
    """What the head of a refusal says besides, in whichever protocol."""
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return headers


class Guard:
    """Lets in who may come in, by Host and by Origin."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = frozenset(map(_plain_host, (*LOOPBACK, settings.host, *settings.hosts)))
        self._origins = frozenset(settings.origins)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answers who may not come in; hands on everybody else, and is out of the way then."""
        refused = self._refused(scope) if _is_guarded(scope) else None
        return (self._app if refused is None else refusal(refused, scope))(scope, receive, send)

    def _refused(self, scope: Scope) -> BadRequest | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        named = _HOST.fullmatch(host)
        if named is None or _plain_host(named["name"]) not in self._hosts:
            message = "This Host name is not known here; the operator lists others in HOSTS."
            return BadRequest(message, "host", code="forbidden_host", status=403)
        if not self._same_origin(headers, host):
            message = "This origin may not call; the operator lists others in ORIGINS."
            return BadRequest(message, "origin", code="forbidden_origin", status=403)
        if scope["method"] in ("GET", "HEAD") and _path(scope) in STARTED_BY_GET and not _by_script(headers):
            message = "A turn is started by a program or by a page's own script, not by a link, an image or an address."
            return BadRequest(message, "origin", code="forbidden_origin", status=403)
        return None

    def _same_origin(self, headers: Headers, host: str) -> bool:
        """Whether the call is none of another site's page; what sends none of these headers is a program."""
        origin = headers.get("origin")
        if origin is not None:
            return self._is_ours(origin.lower(), host)
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site in ("same-origin", "none")
        referer = headers.get("referer")
        if referer is None:
            return True
        page = _REFERER.match(referer.lower())
        return page is not None and self._is_ours(page["origin"], host)

    def _is_ours(self, origin: str, host: str) -> bool:
        """Whether this is our own origin, which a browser writes without the usual port, or a listed one."""
        own = {f"http://{host}", f"https://{host}", f"http://{host.removesuffix(':80')}", _secure_origin(host)}
        return origin in self._origins or origin in own


def _by_script(headers: Headers) -> bool:
    """Whether nobody was led to ask this by a link or an image.

    Browsers say so in Sec-Fetch-Mode. Older ones do not, nor does any to a server that is neither loopback nor https;
    there it takes a header that shows where the call is from, or one that no link can add. All browsers' names begin
    with Mozilla.
    """
    mode = headers.get("sec-fetch-mode")
    if mode is not None:
        return mode in ("cors", "same-origin")
    shown = any(name in headers for name in ("origin", "sec-fetch-site", "referer", "authorization"))
    return shown or not headers.get("user-agent", "").startswith("Mozilla/")


class Cors(CORSMiddleware):
    """Lets pages of the listed origins read the answers, and use the sessions that were opened from there.

    They may send any header: whom the operator does not trust is not listed, and has been refused before.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        super().__init__(
            app,
            allow_origins=settings.origins,
            allow_methods=("GET", "POST", "PATCH", "DELETE"),
            allow_headers=("*",),
            allow_credentials=True,
            allow_private_network=True,
            expose_headers=EXPOSED,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """The inherited one, with what every answer says."""
        response = super().preflight_response(request_headers)
        response.headers.update(SAFE_HEADERS)
        return response


class Keys:
    """Lets in who has a key, or a session that a key opened, and puts the key's user into the scope."""

    def __init__(self, app: ASGIApp, keyring: KeyStore) -> None:
        self._app = app
        self._keyring = keyring

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answers who has no key; hands on everybody else, and is out of the way then."""
        if _is_guarded(scope) and not _opens_session(scope):
            try:
                scope["brain.user"] = self._user(scope) if self._keyring else LOCAL_USER
            except BadRequest as refused:
                return refusal(refused, scope)(scope, receive, send)
        return self._app(scope, receive, send)

    def _user(self, scope: Scope) -> str:
        """Who asks: by the key in the Authorization header, else by the session in the cookie."""
        headers = Headers(scope=scope)
        now = time.time()
        scheme, _, given = headers.get("authorization", "").partition(" ")
        key = given.strip(" \t").encode("latin-1")
        if scheme.lower() == "bearer":
            user = self._keyring.user_of(key)
        else:
            session = auth.read(_cookie(headers), now)
            if session is None:
                raise _unauthorized()
            user = self._keyring.user_in(session)
        if user is None:
            raise wrong_key(scope, self._keyring, "authorization", NOT_KNOWN if key else NOT_SENT)
        return user


def wrong_key(scope: Scope, keyring: KeyStore, field: str, message: str = NOT_KNOWN) -> BadRequest:
    """What is said to a wrong key: after many from one address, to wait. A right one is never kept waiting."""
    seconds = keyring.failures.count(_address(scope), time.time())
    return (
        _unauthorized(field, message) if seconds is None else too_many("Too many wrong keys; wait a little.", seconds)
    )


def _unauthorized(field: str = "authorization", message: str = NOT_SENT) -> BadRequest:
    return BadRequest(message, field, code="unauthorized", status=401)


def is_secure(scope: Scope) -> bool:
    """Whether the browser came by https, to us or to the proxy before us."""
    headers = Headers(scope=scope)
    return scope["scheme"] == "https" or headers.get("origin", "").lower() == _secure_origin(headers["host"].lower())


def _secure_origin(host: str) -> str:
    return f"https://{host.removesuffix(':443')}"


def _cookie(headers: Headers) -> str:
    """The session that the browser holds; of several of a name, the first, which is the one for this very path."""
    held: dict[str, str] = {}
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.partition("=")
        held.setdefault(name.strip(), value.strip())
    return held.get(SECURE_COOKIE) or held.get(COOKIE, "")


def _address(scope: Scope) -> str:
    """Where a call is from."""
    return network_of(scope["client"][0] if scope.get("client") else "")


def network_of(host: str) -> str:
    """An address; of IPv6, the network, which one caller has all addresses of."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def _plain_host(name: str) -> str:
    """A host as it is compared: in lower case, without brackets, zone and the dot of the root; IPv6 short."""
    name = name.lower().strip("[]").partition("%")[0].removesuffix(".")
    if ":" not in name:
        return name
    try:
        return str(ipaddress.IPv6Address(name))
    except ValueError:
        return name


def _path(scope: Scope) -> str:
    return str(scope["path"].removeprefix(scope.get("root_path", ""))) or "/"


def _is_guarded(scope: Scope) -> bool:
    return scope["type"] == "http" and not _is_open(_path(scope))


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or static_files.find(path) is not None


def _opens_session(scope: Scope) -> bool:
    """Whether somebody signs in or out, for which no key is needed yet, or any more."""
    return _path(scope) == SESSION_PATH and scope["method"] in ("POST", "DELETE")
