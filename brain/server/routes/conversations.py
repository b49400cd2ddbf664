"""The conversations of a user, as they see them: listed, opened, given titles, deleted."""

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from brain.errors import BadRequest
from brain.messages import Attachment, sniff
from brain.prompts.blocks import block_content
from brain.prompts.context_window import count_tokens
from brain.protocols import native
from brain.protocols.native import queries, resources
from brain.server.middleware import SAFE_HEADERS, UNKEPT, Answer
from brain.server.routes.chat import single
from brain.server.routes.requests import house_of, kind, large, limited, user_of
from brain.server.state import ServerState
from brain.text import strip_invisible


async def conversations(request: Request) -> Response:
    """`GET /v1/conversations`: the newest, or those in which words stand."""
    asked = queries.parse_conversations_query(query(request))
    found = await house_of(request).store.conversations(
        user_of(request) or "", words=asked.words, before=asked.before, limit=asked.limit + 1
    )
    return Answer(resources.encode_conversations(found, asked.limit))


FILE_DIGITS = len(str(native.MAX_FILE_ID))
SHOWN_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""What a browser may show where it is; all else it saves. A picture in SVG is a page with scripts."""


class ConversationEndpoint(HTTPEndpoint):
    """`/v1/conversations/{id}`: one of them."""

    async def get(self, request: Request) -> Response:
        """Opens it: its newest messages, or those before a question."""
        asked = queries.parse_messages_query(query(request))
        house, user, conversation_id = _named(request)
        found = await house.store.conversation(user, conversation_id, before=asked.before, limit=asked.limit)
        if found is None:
            raise _unknown()
        run = house.turns.newest(conversation_id, user)
        joined = run is not None and not run.over and run.log.replayable
        turn_id = run.id if run is not None and joined else None
        return Answer(
            await large(found.size, lambda: resources.encode_page(found, count_tokens, block_content, turn_id))
        )

    async def patch(self, request: Request) -> Response:
        """Gives it a title."""
        house, user, conversation_id = _named(request)
        title = queries.parse_title(await sent(request))
        found = await house.store.rename(user, conversation_id, title)
        if found is None:
            raise _unknown()
        return Answer(resources.encode_conversation(found))

    async def delete(self, request: Request) -> Response:
        """Deletes it, everywhere; a turn of it that runs here is stopped before."""
        house, user, conversation_id = _named(request)
        if not await house.delete(user, conversation_id):
            raise _unknown()
        return Response(status_code=204, headers=UNKEPT)


async def file(request: Request) -> Response:
    """`GET /v1/conversations/{id}/files/{n}`: what was attached, as it came.

    A browser asks again each time, and sends what it has: a number can become another file's when a question whose
    answer failed is asked anew.
    """
    house, user, conversation_id = _named(request)
    number: str = request.path_params["number"]
    known = number.isascii() and number.isdecimal() and len(number) <= FILE_DIGITS
    found = await house.store.file(user, conversation_id, int(number)) if known else None
    if found is None:
        raise BadRequest("There is no such file.", code="not_found", status=404)
    tag = await large(len(found.data), lambda: f'"{hashlib.blake2b(found.data, digest_size=16).hexdigest()}"')
    headers = {**_of_file(found), "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.data, headers=headers)


def _of_file(found: Attachment) -> Mapping[str, str]:
    """The head of an answer that is a file: its content decides what it is, not what the client called it."""
    media_type = sniff(found.data, "")
    shown = media_type in SHOWN_TYPES
    name = strip_invisible(found.name)
    plain = "".join(one if (one.isascii() and one.isalnum()) or one in "._- " else "_" for one in name)
    where = "inline" if shown else "attachment"
    return {
        **SAFE_HEADERS,
        "Content-Type": media_type if shown else "application/octet-stream",
        "Content-Disposition": f"{where}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "private, no-cache",
    }


def query(request: Request) -> Mapping[str, str]:
    """The fields of an address."""
    return single(request.query_params.multi_items())


async def sent(request: Request) -> bytes:
    """The body of a request that changes what is kept.

    Raises:
        BadRequest: when it is no JSON, or more of it than titles and facts need.
    """
    if kind(request) != "application/json":
        message = "Send application/json (curl: -H 'content-type: application/json')."
        raise BadRequest(message, "content-type", code="unsupported_media_type", status=415)
    return await limited(request, queries.SMALL_BODY_BYTES).body()


def _named(request: Request) -> tuple[ServerState, str, str]:
    conversation_id: str = request.path_params["id"]
    if not native.ID.fullmatch(conversation_id):
        raise _unknown()
    return house_of(request), user_of(request) or "", conversation_id


def _unknown() -> BadRequest:
    return BadRequest("There is no such conversation.", code="not_found", status=404)
