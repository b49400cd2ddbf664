"""Roof: Brain's own protocol. One turn as a stream of server-sent events."""

import logging
import time
from functools import partial

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from brain import conversation
from brain.ask import Ask, Attachment
from brain.errors import BadRequest
from brain.house import House
from brain.response import TurnResponse
from brain.routes.incoming import house_of, kind, limited
from brain.store.memory import Record
from brain.turn import Turn
from brain.wire import native

FIELDS_MOST = 50

log = logging.getLogger("brain")


class ChatStream:
    """`POST /v1/chat/stream`: one turn. No function, since Starlette wraps what functions send once more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        response = await _turn_response(Request(scope, receive))
        await response(scope, receive, send)


async def _turn_response(request: Request) -> TurnResponse:
    house = house_of(request)
    if "last-event-id" in request.headers:  # a reader that was cut off; another turn is not what it asks for
        message = "This turn is no longer kept; ask again without Last-Event-ID."
        raise BadRequest(message, "last-event-id", code="gone", status=410)
    ask = await _ask(request, house)
    model = house.model(ask.model)
    record = house.store.take(ask.user, ask.conversation_id or conversation.new_id())
    try:
        record.check_room(ask.message, ask.attachments)
        ask, recalled = conversation.recall(record, ask, model.context_tokens)
        settings = house.settings
        turn = Turn(ask, recalled, model, house.registry, system=settings.system, silence=settings.model_idle_seconds)
    except BaseException:
        house.store.give_back(record)
        raise
    if house.leaving:
        turn.stop("shutdown")
    settle = partial(_settle, house, turn, ask, record)
    return TurnResponse(turn, open_ones=house.answers, heartbeat=settings.heartbeat_seconds, settle=settle)


def _settle(house: House, turn: Turn, ask: Ask, record: Record) -> None:
    conversation.keep(record, ask, turn.exchange)
    house.store.give_back(record)
    milliseconds = (time.monotonic() - turn.began) * 1000
    log.info("turn %s of %s: %s, %.0f ms", turn.id, ask.user, turn.outcome, milliseconds)


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
