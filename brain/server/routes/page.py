"""The chat page: its files, what it shows first, and Markdown as HTML for it."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version as version_of
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from brain.errors import BadRequest
from brain.models import Opened
from brain.protocols.attachments import ATTACHMENT_BYTES, MAX_ATTACHMENTS
from brain.protocols.bodies import BODY_BYTES, decode, encode
from brain.protocols.native import MESSAGE_LENGTH
from brain.rendering import blocks
from brain.server import static_files
from brain.server.auth import KeyStore
from brain.server.middleware import SAFE_HEADERS, Answer
from brain.server.rate_limits import SOON, too_many
from brain.server.routes.about import allowed
from brain.server.routes.requests import house_of, kind, limited, user_of
from brain.server.state import ServerState
from brain.server.static_files import PageFile

MARKDOWN_BYTES = 128 * 1024
MARKDOWN_TEXTS = 200
MARKDOWN_OPEN = 16_384
"""Characters of texts that are still open: they are rendered again and again while they grow."""
MARKDOWN_REQUESTS = 4
"""Of a user at once: one is rendered, the others wait."""

LASTING = "public, max-age=31536000, immutable"
_takes_gzip = re.compile(r"gzip(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE).search
"""Whether an Accept-Encoding names it, and not to refuse it."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types brain"
)


class TextsBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /page/markdown`."""

    texts: list[str]
    open: bool = False


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
    headers = {**SAFE_HEADERS, "Cache-Control": kept, "ETag": found.tag, "Content-Type": found.type}
    headers["Vary"] = "Accept-Encoding"
    if found.type.startswith(("text/html", "image/svg")):
        headers["Content-Security-Policy"] = _POLICY
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(found.small, headers={**headers, "Content-Encoding": "gzip"})
    return Response(found.data, headers=headers)


class Smaller(GZipMiddleware):
    """Compresses answers for who takes that. For the page alone: what streams is not held up."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        taken = _takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
        await (super().__call__ if taken else self.app)(scope, receive, send)


async def start(request: Request) -> Response:
    """`GET /page/start`: who is signed in, and what they may send and choose."""
    keyring, user = request.app.state.keyring, user_of(request)
    assert isinstance(keyring, KeyStore)
    return Answer(
        {
            "user": user,
            "keys": bool(keyring),
            "models": _models(house_of(request)),
            "specialists": allowed(request),
            "recall": await house_of(request).store.recalls(user or ""),
            "limits": {
                "files": MAX_ATTACHMENTS,
                "file_bytes": ATTACHMENT_BYTES,
                "body_bytes": BODY_BYTES,
                "message_characters": MESSAGE_LENGTH,
                "markdown_texts": MARKDOWN_TEXTS,
                "markdown_bytes": MARKDOWN_BYTES,
                "markdown_open": MARKDOWN_OPEN,
            },
            "version": version_of("brain-sse"),
        }
    )


def _models(house: ServerState) -> list[dict[str, Any]]:
    """Those on offer, by the names that a turn is asked with."""
    return [
        {
            "name": _name(house, wanted, one),
            "stand_in": one.model.stand_in,
            "default": place == 0,
        }
        for place, (wanted, one) in enumerate(zip(house.settings.model, house.models, strict=True))
    ]


def _name(house: ServerState, wanted: str, one: Opened) -> str:
    """Its own name, or as it was configured where another has the same."""
    return one.model.name if house.model(one.model.name) is one.model else wanted


class Markdown:
    """`POST /page/markdown`: texts as HTML, block by block. For the page alone: it may change with every version.

    One request is rendered at a time, in a thread, for others' tokens come meanwhile. Users have their turns one after
    the other: each has one request that is next, and few that wait behind it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "rendering")
        self._next = asyncio.Lock()
        self._lines: WeakValueDictionary[str | None, _Line] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope, receive)
        if kind(request) != "application/json":
            raise BadRequest("Send application/json.", "content-type", code="unsupported_media_type", status=415)
        line = self._lines.setdefault(user_of(request), _Line())
        with line.place():
            body = await limited(request, MARKDOWN_BYTES).body()
            async with line.first, self._next:
                if await request.is_disconnected():
                    raise ClientDisconnect
                html = await asyncio.get_running_loop().run_in_executor(self._thread, _rendered, body)
        await Answer(html)(scope, receive, send)


class _Line:
    """The requests of one user that are rendered or wait for it."""

    def __init__(self) -> None:
        self.first = asyncio.Lock()
        self._length = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place in it.

        Raises:
            BadRequest: when there is none.
        """
        if self._length >= MARKDOWN_REQUESTS:
            raise too_many("Many texts of yours are being rendered; wait a little.", SOON)
        self._length += 1
        try:
            yield
        finally:
            self._length -= 1


def _rendered(body: bytes) -> bytes:
    sent = decode(body, TextsBody)
    if len(sent.texts) > MARKDOWN_TEXTS:
        raise _too_large(f"At most {MARKDOWN_TEXTS} texts at once.", "texts")
    if sent.open and sum(map(len, sent.texts)) > MARKDOWN_OPEN:
        raise _too_large(f"Texts that are still open may have {MARKDOWN_OPEN:,} characters.", "texts")
    return encode({"texts": [blocks(text, still_open=sent.open) for text in sent.texts]})


def _too_large(message: str, field: str) -> BadRequest:
    return BadRequest(message, field, code="too_large", status=413)
