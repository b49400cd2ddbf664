"""Requests of all routes: who sends them, and how their paths, queries and bodies are read within limits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar, TypeVarTuple

from python_multipart.multipart import parse_options_header
from starlette import requests
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from brain.errors import BadRequest, RunsElsewhere
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
from brain.server.admission import unavailable
from brain.server.forwarding import RecordedBody
from brain.server.middleware import FORWARDED, USER
from brain.server.state import ServerState
from brain.text import ID
from brain.turn_request import TurnRequest
from brain.validation import quote_value

BODY_SECONDS = 20.0
BODY_BYTES_PER_SECOND = 64 * 1024
"""Time limit for a body: these seconds, plus the time of its bytes at this rate."""
LARGE_BYTES = 256 * 1024
"""Larger bodies and responses are processed in a thread."""
FORM_FIELDS = 50
OWNER_SECONDS = 8.0
"""Time limit for finding the process that runs a turn: longer than its lease, after which another one takes over."""
OWNER_RETRY_SECONDS = 0.1

log = logging.getLogger("brain")

_large_bodies = ThreadPoolExecutor(1, "large bodies")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Request(requests.Request):
    """A request with the state of the server.

    Attributes:
        username: the user whom the middleware authenticated; empty on public paths.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self.server: ServerState = scope["app"].state.brain
        self.engine: Engine = self.server.engine
        self.username: str = scope.get(USER, "")


Respond = Callable[[Request], Awaitable[ASGIApp]]


class Endpoint:
    """An ASGI application that sends the response of a function, by HTTP method.

    For plain functions, Starlette wraps `send` once more, which costs time per chunk of a stream.
    """

    def __init__(self, functions: Mapping[str, Respond]) -> None:
        self._functions = functions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        respond = self._functions["GET" if method == "HEAD" else method]
        processes = scope["app"].state.brain.engine.runs.processes
        if processes is None or FORWARDED in scope:
            response = await respond(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await _respond_or_forward(respond, scope, RecordedBody(receive), send)


async def _respond_or_forward(respond: Respond, scope: Scope, body: RecordedBody, send: Send) -> None:
    """Send the response of a function, or that of the process that runs the turn of the request.

    Raises:
        BadRequest: `unavailable`, if that process does not respond, and no other one takes over.
    """
    server: ServerState = scope["app"].state.brain
    loop = asyncio.get_running_loop()
    until = loop.time() + OWNER_SECONDS
    while True:
        try:
            response = await respond(Request(scope, body))
            break
        except RunsElsewhere as elsewhere:
            owner = elsewhere
        body.rewind()
        if await server.forwarding.forward(scope, body, send, scope[USER], owner):
            return
        if loop.time() >= until:
            where = owner.address or "no address"
            log.warning("no process takes a request about a turn of process %s, at %s", owner.process, where)
            raise unavailable("process")
        if await body.has_disconnected(OWNER_RETRY_SECONDS):
            return
        body.rewind()
    body.stop()
    await response(scope, body, send)


def client_of(request: Request) -> Client:
    """Return the user, and what the server offers this user."""
    engine, user = request.engine, request.username
    return Client(
        user, engine.settings, engine.model_names(), engine.registry, partial(engine.callable_specialists, user)
    )


def path_id(request: Request, not_found: BadRequest) -> str:
    """Return the `id` in the path. Raise the error if it cannot be the ID of anything."""
    value: str = request.path_params["id"]
    if not ID.fullmatch(value):
        raise not_found
    return value


def link(request: Request, path: str) -> str:
    """Return the path of a route for the client, who may reach Brain below another path."""
    return f"{request.scope.get('root_path', '')}{path}"


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
    return await read_json(request, partial(decode, kind=kind), SMALL_BODY_BYTES)


async def read_body(request: Request, parse: Callable[[bytes], T], limit: int = BODY_BYTES) -> T:
    """Read and parse a body with JSON, whatever its media type.

    Args:
        parse: checks how many values the body has, besides what it reads.
    """
    receive, parts, has_more = limit_body(request, limit), list[bytes](), True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        has_more = message.get("more_body", False)
    body = b"".join(parts)

    def parse_strictly() -> T:
        parsed = parse(body)
        check_strictly(body)
        return parsed

    return await compute(len(body), parse_strictly)


async def compute(size: int, function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Return the result of a function whose duration depends on `size` bytes.

    With a large size, it runs in a thread, one call at a time, and the event loop serves other requests.
    """
    if size <= LARGE_BYTES:
        return function(*args)
    return await asyncio.get_running_loop().run_in_executor(_large_bodies, function, *args)


def limit_body(request: Request, limit: int = BODY_BYTES) -> Receive:
    """Return what receives the body of a request, with limits on its size and time.

    Raises:
        BadRequest: immediately for a `Content-Length` over the limit, otherwise while the body is read.
    """
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise _body_too_large(limit)
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
            raise _body_too_large(limit)
        return message

    return receive


def _body_too_large(limit: int) -> BadRequest:
    size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
    return too_large(f"The request body is too large; the limit is {size}.")


async def read_turn_request(request: Request) -> TurnRequest:
    """Parse a native request for a turn: a query, JSON, or multipart."""
    if request.method == "GET":
        return native.parse_form(_unique(request.query_params.multi_items()), [], client_of(request))
    kind = _media_type(request)
    if kind == "application/json":
        return await read_body(request, partial(native.parse, client=client_of(request)))
    if kind != "multipart/form-data":
        alternatives = "application/json (curl: -H 'Content-Type: application/json') or multipart/form-data (curl: -F)"
        raise _unsupported(request, alternatives)
    _, options = parse_options_header(request.headers["content-type"])
    if options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        # Starlette would use any codec of Python, and `punycode` takes minutes
        raise _unsupported(request, "forms in UTF-8: multipart/form-data without a charset, or with charset=utf-8")
    texts: list[tuple[str, str]] = []
    attachments: list[Attachment] = []
    limited = requests.Request(request.scope, limit_body(request))
    form = limited.form(max_files=MAX_ATTACHMENTS + 1, max_fields=FORM_FIELDS, max_part_size=BODY_BYTES)
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
