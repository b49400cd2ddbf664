"""Roof: Brain's own protocol. One turn as a stream of server-sent events."""

from dataclasses import replace

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from brain.ask import Ask, Attachment
from brain.errors import BadRequest
from brain.house import House
from brain.response import TurnResponse
from brain.routes.incoming import house_of, kind, limited
from brain.routes.turning import begun, led
from brain.wire import native

FIELDS_MOST = 50


class ChatStream:
    """`POST /v1/chat/stream`: one turn. No function, since Starlette wraps what functions send once more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        response = await _turn_response(Request(scope, receive))
        await response(scope, receive, send)


async def _turn_response(request: Request) -> TurnResponse:
    if "last-event-id" in request.headers:  # a reader that was cut off; another turn is not what it asks for
        message = "This turn is no longer kept; ask again without Last-Event-ID."
        raise BadRequest(message, "last-event-id", code="gone", status=410)
    ask = replace(await _ask(request, house_of(request)), asks_person=True)
    run = begun(request, ask, "native")
    return led(request, run, native.Encoder(run.id))


async def _ask(request: Request, house: House) -> Ask:
    """The request's body, as JSON or multipart."""
    user = request.scope["brain.user"]
    request = limited(request)
    if kind(request) == "application/json":
        return native.parse(await request.body(), user, house.settings, house.names())
    if kind(request) != "multipart/form-data":
        message = "Send application/json (curl: -H 'content-type: application/json') or multipart/form-data (curl: -F)."
        raise BadRequest(message, "content-type", code="unsupported_media_type", status=415)
    try:
        return await _ask_in_form(request, user, house)
    except HTTPException as error:  # Starlette's, which knows no field
        if error.detail.startswith("Too many files"):
            raise native.too_many() from None
        raise


async def _ask_in_form(request: Request, user: str | None, house: House) -> Ask:
    most = native.ATTACHMENTS_MOST + 1
    async with request.form(max_files=most, max_fields=FIELDS_MOST, max_part_size=native.BODY_BYTES) as form:
        fields: dict[str, str] = {}
        attached: list[Attachment] = []
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                if name != "file":
                    raise BadRequest(f"{name}: files are sent in parts named file.", name)
                data = await value.read()
                attached.append(native.attachment_of(value.filename or "", value.content_type or "", data, "file"))
            elif name in fields:
                raise BadRequest(f"{name} is given twice.", name)
            else:
                fields[name] = value.replace("\r\n", "\n")  # as browsers write line ends in forms
        return native.parse_form(fields, attached, user, house.settings, house.names())
