"""What the routes share to read a request: the server's state, the user, and a body within limits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from brain.errors import BadRequest
from brain.messages import Attachment
from brain.protocols import native
from brain.protocols.attachments import MAX_ATTACHMENTS, make_attachment, too_many_attachments
from brain.protocols.bodies import BODY_BYTES, check_keys
from brain.runtime.engine import Engine
from brain.server.middleware import USER
from brain.server.state import ServerState
from brain.settings import Settings
from brain.turn_request import TurnRequest

BODY_SECONDS = 20.0
BODY_BYTES_PER_SECOND = 64 * 1024
"""Time limit for a body: these seconds, and what its bytes take at this rate."""
LARGE_BYTES = 256 * 1024
"""Larger bodies and answers are processed in a thread."""
FORM_FIELDS = 50

_large_bodies = ThreadPoolExecutor(1, "large bodies")

T = TypeVar("T")
Parse = Callable[[bytes, str | None, Settings, Set[str]], T]
"""Parses a body; the other arguments are the user, the settings, and the names of the models."""


class Endpoint:
    """An ASGI application that calls a function with the request, and sends the response that it returns.

    Starlette wraps `send` once more for functions that it calls itself, which costs time per chunk of a stream.
    """

    def __init__(self, respond: Callable[[Request], Awaitable[ASGIApp]]) -> None:
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)


def state_of(request: Request) -> ServerState:
    state = request.app.state.brain
    assert isinstance(state, ServerState)
    return state


def engine_of(request: Request) -> Engine:
    return state_of(request).engine


def user_of(request: Request) -> str:
    """The user whom the middleware authenticated."""
    user: str = request.scope[USER]
    return user


def query_fields(request: Request) -> dict[str, str]:
    """The fields of the query string, each given once."""
    return _unique(request.query_params.multi_items())


async def read_json(request: Request, limit: int = BODY_BYTES) -> bytes:
    """The body of a request that sends JSON.

    Args:
        limit: bytes of the body.

    Raises:
        BadRequest: `unsupported_media_type`, `too_large`, or 408 for a body that arrives too slowly.
    """
    if _media_type(request) != "application/json":
        raise _unsupported("Send application/json (curl: -H 'content-type: application/json').")
    return await limit_body(request, limit).body()


async def parse_json(request: Request, body: bytes, parse: Parse[T]) -> T:
    """What `parse` makes of a body, in which no object may have a key twice."""
    engine, user = engine_of(request), user_of(request)

    def parse_and_check() -> T:
        parsed = parse(
            body, user, engine.settings, engine.model_names()
        )  # first: it bounds the size of what is checked
        check_keys(body, "")
        return parsed

    return await compute(len(body), parse_and_check)


async def compute(size: int, function: Callable[[], T]) -> T:
    """The result of a function whose time grows with `size` bytes.

    A large one runs in a thread, one after the other, so that other requests are served meanwhile.
    """
    if size <= LARGE_BYTES:
        return function()
    return await asyncio.get_running_loop().run_in_executor(_large_bodies, function)


def limit_body(request: Request, limit: int = BODY_BYTES) -> Request:
    """The same request with limits on the size and time of its body.

    Raises:
        BadRequest: at once for a `Content-Length` over the limit, else while the body is read.
    """
    size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
    too_large = BadRequest(f"The body may be {size} large.", code="too_large", status=413)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    started, received = asyncio.get_running_loop().time(), 0

    async def receive() -> Message:
        nonlocal received
        try:
            async with asyncio.timeout_at(started + BODY_SECONDS + received / BODY_BYTES_PER_SECOND):
                message = await request.receive()
        except TimeoutError:
            raise BadRequest("The body arrives too slowly.", status=408) from None
        received += len(message.get("body", b""))
        if received > limit:
            raise too_large
        return message

    return Request(request.scope, receive)


async def read_turn_request(request: Request) -> TurnRequest:
    """The turn that a native POST request asks for, as JSON or multipart."""
    kind = _media_type(request)
    if kind == "application/json":
        return await parse_json(request, await read_json(request), native.parse)
    if kind != "multipart/form-data":
        raise _unsupported(
            "Send application/json (curl: -H 'content-type: application/json') or multipart/form-data (curl: -F)."
        )
    _, options = parse_options_header(request.headers["content-type"])
    if options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        # Starlette would decode with any of Python's codecs: `punycode` takes minutes
        raise _unsupported("Send forms in UTF-8: multipart/form-data without a charset, or with charset=utf-8.")
    texts: list[tuple[str, str]] = []
    attachments: list[Attachment] = []
    form = limit_body(request).form(max_files=MAX_ATTACHMENTS + 1, max_fields=FORM_FIELDS, max_part_size=BODY_BYTES)
    try:
        async with form as fields:
            for name, value in fields.multi_items():
                if not isinstance(value, UploadFile):
                    texts.append((name, value.replace("\r\n", "\n")))  # browsers send CRLF in forms
                elif name == "file":
                    data = await value.read()
                    attachments.append(make_attachment(value.filename or "", value.content_type or "", data, "file"))
                else:
                    raise BadRequest(f"{name}: send files in parts named file.", name)
    except HTTPException as error:  # Starlette's, which names no field
        if error.detail.startswith("Too many files"):
            raise too_many_attachments() from None
        raise
    return parse_fields(request, _unique(texts), attachments)


def parse_fields(request: Request, fields: dict[str, str], attachments: list[Attachment]) -> TurnRequest:
    """The turn that a native request asks for by the fields of a form or of its query."""
    engine = engine_of(request)
    return native.parse_form(fields, attachments, user_of(request), engine.settings, engine.model_names())


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unique(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in items:
        if name in fields:
            raise BadRequest(f"{name} is given twice.", name)
        fields[name] = value
    return fields


def _unsupported(message: str) -> BadRequest:
    return BadRequest(message, "content-type", code="unsupported_media_type", status=415)
