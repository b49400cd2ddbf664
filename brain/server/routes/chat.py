"""Brain's own protocol. One turn as a stream of server-sent events."""

from collections.abc import Iterable

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from brain.errors import BadRequest
from brain.messages import Attachment
from brain.protocols import native
from brain.protocols.attachments import MAX_ATTACHMENTS, make_attachment, too_many_attachments
from brain.protocols.bodies import BODY_BYTES
from brain.runtime.run import Run
from brain.server.middleware import UNKEPT
from brain.server.routes.requests import house_of, kind, limited, parsed, user_of
from brain.server.routes.runs import begun, start_and_stream, stream
from brain.server.state import ServerState
from brain.turn_request import TurnRequest

FIELDS_MOST = 50
READER_SECONDS = 30.0
"""How long a turn that was asked for with GET goes on without a reader."""
LAST_EVENT_ID = "last-event-id"


class ChatStream:
    """`POST` and `GET /v1/chat/stream`: one turn. No function, since Starlette wraps what functions send once more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope, receive)
        response = await (_posted(request) if request.method == "POST" else _got(request))
        await response(scope, receive, send)


async def _posted(request: Request) -> ASGIApp:
    """A turn that ends when its reader leaves."""
    if LAST_EVENT_ID in request.headers:  # a reader that was cut off; another turn is not what it asks for
        return _again(request)
    ask = await asked(request)
    run, new = await house_of(request).turns.once(ask, lambda: begun(request, ask, "native"))
    return start_and_stream(request, run, owns_run=True) if new else stream(request, run)


async def _got(request: Request) -> ASGIApp:
    """The same for an EventSource, which comes back when it was cut off."""
    if request.method == "HEAD":
        raise HTTPException(405, headers={"Allow": "GET, POST"})
    if LAST_EVENT_ID in request.headers:
        return _again(request)
    house = house_of(request)
    fields = single(request.query_params.multi_items())
    ask = native.parse_form(fields, [], user_of(request), house.settings, house.names())
    run, new = await house.turns.once(ask, lambda: begun(request, ask, "native", unread_seconds=READER_SECONDS))
    return start_and_stream(request, run) if new else stream(request, run)


def _again(request: Request) -> ASGIApp:
    turn_id, number = native.parse_event_id(request.headers[LAST_EVENT_ID])
    run = house_of(request).turns.find(turn_id, user_of(request))
    if run is None:
        message = "This turn is no longer kept; ask again without Last-Event-ID."
        raise BadRequest(message, LAST_EVENT_ID, code="gone", status=410)
    return rejoined(request, run, number)


def rejoined(request: Request, run: Run, number: int) -> ASGIApp:
    """What came behind the event that a reader had. Behind the last one, an EventSource is told not to come back.

    Raises:
        BadRequest: `gone`, when it is no longer kept.
    """
    if run.over and number == run.log.last and request.method == "GET":
        return Response(status_code=204, headers=UNKEPT)
    return stream(request, run, after=number)


async def asked(request: Request) -> TurnRequest:
    """What a request's body asks, as JSON or multipart."""
    house, user = house_of(request), user_of(request)
    request = limited(request)
    if kind(request) == "application/json":
        body = await request.body()
        return await parsed(body, lambda: native.parse(body, user, house.settings, house.names()))
    if kind(request) != "multipart/form-data":
        message = "Send application/json (curl: -H 'content-type: application/json') or multipart/form-data (curl: -F)."
        raise BadRequest(message, "content-type", code="unsupported_media_type", status=415)
    _check_charset(request)
    try:
        return await _ask_in_form(request, user, house)
    except HTTPException as error:  # Starlette's, which knows no field
        if error.detail.startswith("Too many files"):
            raise too_many_attachments() from None
        raise


def _check_charset(request: Request) -> None:
    """Keeps Starlette from reading a form in whichever of Python's codecs it names: `punycode` takes minutes."""
    _, options = parse_options_header(request.headers["content-type"])
    if options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        message = "Send forms in UTF-8: multipart/form-data without a charset, or with charset=utf-8."
        raise BadRequest(message, "content-type", code="unsupported_media_type", status=415)


async def _ask_in_form(request: Request, user: str | None, house: ServerState) -> TurnRequest:
    most = MAX_ATTACHMENTS + 1
    async with request.form(max_files=most, max_fields=FIELDS_MOST, max_part_size=BODY_BYTES) as form:
        texts: list[tuple[str, str]] = []
        attached: list[Attachment] = []
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                texts.append((name, value.replace("\r\n", "\n")))  # as browsers write line ends in forms
            elif name == "file":
                data = await value.read()
                attached.append(make_attachment(value.filename or "", value.content_type or "", data, "file"))
            else:
                raise BadRequest(f"{name}: files are sent in parts named file.", name)
        return native.parse_form(single(texts), attached, user, house.settings, house.names())


def single(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Fields by their names.

    Raises:
        BadRequest: naming one that is given twice.
    """
    fields: dict[str, str] = {}
    for name, value in items:
        if name in fields:
            raise BadRequest(f"{name} is given twice.", name)
        fields[name] = value
    return fields
