"""Helpers of the routes to read requests: server state, user, and bodies within limits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
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
from brain.protocols.common import (
    BODY_BYTES,
    MAX_ATTACHMENTS,
    Client,
    check_strictly,
    decode,
    invalid,
    make_attachment,
    too_large,
    too_many_attachments,
)
from brain.protocols.native.queries import SMALL_BODY_BYTES, parse_query
from brain.runtime.engine import Engine
from brain.server.middleware import USER
from brain.server.state import ServerState
from brain.turn_request import TurnRequest
from brain.validation import quote_value

BODY_SECONDS = 20.0
BODY_BYTES_PER_SECOND = 64 * 1024
"""Time limit for a body: these seconds, plus the time of its bytes at this rate."""
LARGE_BYTES = 256 * 1024
"""Larger bodies and responses are processed in a thread."""
FORM_FIELDS = 50

_large_bodies = ThreadPoolExecutor(1, "large bodies")

T = TypeVar("T")


class Endpoint:
    """An ASGI application that calls a function with the request and sends the returned response.

    For plain functions, Starlette wraps `send` once more, which costs time per chunk of a stream.
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
    """Return the user whom the middleware authenticated."""
    user: str = request.scope[USER]
    return user


def client_of(request: Request) -> Client:
    """Return the user, and what the server offers this user."""
    engine, user = engine_of(request), user_of(request)
    callable_specialists = engine.callable_specialists(user)
    return Client(user, engine.settings, engine.model_names(), frozenset(engine.registry), callable_specialists)


def query_of(request: Request, kind: type[T]) -> T:
    """Return the query string as this type."""
    return parse_query(_unique(request.query_params.multi_items()), kind)


async def read_json(request: Request, parse: Callable[[bytes], T], limit: int = BODY_BYTES) -> T:
    """Read and parse a body with JSON. Arguments and errors as in `read_body`, and `unsupported_media_type`."""
    if _media_type(request) != "application/json":
        raise _unsupported(request, "application/json (curl: -H 'Content-Type: application/json')")
    return await read_body(request, parse, limit)


async def read_struct(request: Request, kind: type[T]) -> T:
    """Read a small body with JSON of this type."""
    return await read_json(request, lambda data: decode(data, kind), SMALL_BODY_BYTES)


async def read_body(request: Request, parse: Callable[[bytes], T], limit: int = BODY_BYTES) -> T:
    """Read and parse a body with JSON, whatever its media type.

    Args:
        parse: checks how many values the body has, besides what it reads.
        limit: size limit in bytes.

    Raises:
        BadRequest: what `parse` raises, `bad_request`, `too_large`, or status 408 after the time limit.
    """
    body = await limit_body(request, limit).body()

    def parse_and_check() -> T:
        parsed = parse(body)
        check_strictly(body)
        return parsed

    return await compute(len(body), parse_and_check)


async def compute(size: int, function: Callable[[], T]) -> T:
    """Return the result of a function whose duration depends on `size` bytes.

    With a large size, it runs in a thread, one call at a time, and the event loop serves other requests.
    """
    if size <= LARGE_BYTES:
        return function()
    return await asyncio.get_running_loop().run_in_executor(_large_bodies, function)


def limit_body(request: Request, limit: int = BODY_BYTES) -> Request:
    """Return the request with limits on the size and time of its body.

    Raises:
        BadRequest: immediately for a `Content-Length` over the limit, otherwise while the body is read.
    """
    size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
    error = too_large(f"The request body is too large; the limit is {size}.")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise error
    started, received = asyncio.get_running_loop().time(), 0

    async def receive() -> Message:
        nonlocal received
        try:
            async with asyncio.timeout_at(started + BODY_SECONDS + received / BODY_BYTES_PER_SECOND):
                message = await request.receive()
        except TimeoutError:
            raise BadRequest("The request body was not received in time.", status=408) from None
        received += len(message.get("body", b""))
        if received > limit:
            raise error
        return message

    return Request(request.scope, receive)


async def read_turn_request(request: Request) -> TurnRequest:
    """Parse a native request for a turn: a query, JSON, or multipart."""
    if request.method == "GET":
        return native.parse_form(_unique(request.query_params.multi_items()), [], client_of(request))
    kind = _media_type(request)
    if kind == "application/json":
        client = client_of(request)
        return await read_body(request, lambda data: native.parse(data, client))
    if kind != "multipart/form-data":
        alternatives = "application/json (curl: -H 'Content-Type: application/json') or multipart/form-data (curl: -F)"
        raise _unsupported(request, alternatives)
    _, options = parse_options_header(request.headers["content-type"])
    if options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        # Starlette would use any codec of Python, and `punycode` takes minutes
        raise _unsupported(request, "forms in UTF-8: multipart/form-data without a charset, or with charset=utf-8")
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
                    raise invalid(name, "is a file; send files in parts with the name `file`")
    except HTTPException as error:  # Starlette's error names no field
        if error.detail.startswith("Too many files"):
            raise too_many_attachments() from None
        raise
    return native.parse_form(_unique(texts), attachments, client_of(request))


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unique(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in items:
        if name in fields:
            raise invalid(name, "appears more than once; send it once")
        fields[name] = value
    return fields


def _unsupported(request: Request, alternatives: str) -> BadRequest:
    content_type = request.headers.get("content-type")
    problem = f"is {quote_value(content_type)}" if content_type else "is missing"
    message = f"`Content-Type` {problem}; send {alternatives}."
    return BadRequest(message, "content-type", code="unsupported_media_type", status=415)
