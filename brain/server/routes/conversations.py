"""Routes for conversations: list, open, rename and delete them, and download their files."""

import hashlib
from urllib.parse import quote

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from brain.messages import sniff
from brain.prompts.blocks import block_content
from brain.prompts.context_window import count_tokens
from brain.protocols import native
from brain.protocols.common import ID
from brain.protocols.native import queries, resources
from brain.protocols.native.queries import ConversationsQuery, PageQuery
from brain.server.responses import NO_STORE_HEADERS, SAFE_HEADERS, ApiResponse
from brain.server.routes.requests import compute, engine_of, query_of, read_json, user_of
from brain.server.routes.runs import not_found
from brain.store import conversations
from brain.text import strip_invisible

FILE_DIGITS = len(str(native.MAX_FILE_ID))
INLINE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types that a browser can show; it downloads all others. An SVG image can contain scripts."""
NO_CONVERSATION = "Conversation not found."


async def list_conversations(request: Request) -> Response:
    """`GET /v1/conversations`: the newest conversations, or search results."""
    query = query_of(request, ConversationsQuery)
    conversations = await engine_of(request).store.list_conversations(
        user_of(request), words=query.q, before=query.before, limit=query.limit + 1
    )
    return ApiResponse(resources.encode_conversations(conversations, query.limit))


class ConversationEndpoint(HTTPEndpoint):
    """`/v1/conversations/{id}`: one conversation."""

    async def get(self, request: Request) -> Response:
        """Show its newest messages, or those before a message."""
        query = query_of(request, PageQuery)
        engine, user, conversation_id = engine_of(request), user_of(request), _conversation_id(request)
        page = await engine.store.read(
            conversations.read_page, user, conversation_id, before=query.before, limit=query.limit
        )
        if page is None:
            raise not_found(NO_CONVERSATION)
        run = await engine.runs.find_newest(conversation_id, user)
        turn_id = run.id if run is not None and not run.has_ended and run.log.replayable else None
        return ApiResponse(
            await compute(page.size, lambda: resources.encode_page(page, count_tokens, block_content, turn_id))
        )

    async def patch(self, request: Request) -> Response:
        """Rename it."""
        conversation_id = _conversation_id(request)
        title = await read_json(request, queries.parse_title, queries.SMALL_BODY_BYTES)
        renamed = await engine_of(request).store.write(conversations.rename, user_of(request), conversation_id, title)
        if renamed is None:
            raise not_found(NO_CONVERSATION)
        return ApiResponse(resources.encode_conversation(renamed))

    async def delete(self, request: Request) -> Response:
        """Delete it everywhere, after stopping its turn."""
        if not await engine_of(request).delete(user_of(request), _conversation_id(request)):
            raise not_found(NO_CONVERSATION)
        return Response(status_code=204, headers=NO_STORE_HEADERS)


async def note_typing(request: Request) -> Response:
    """`POST /v1/conversations/{id}/typing`: the user is typing, so a report on tasks waits."""
    await engine_of(request).reports.note_typing(user_of(request), _conversation_id(request))
    return Response(status_code=204, headers=NO_STORE_HEADERS)


async def file(request: Request) -> Response:
    """`GET /v1/conversations/{id}/files/{number}`: an attachment as it was sent.

    Browsers revalidate it each time: after a failed answer, a new message can reuse the number for another file.
    """
    conversation_id, number = _conversation_id(request), str(request.path_params["number"])
    attachment = None
    if number.isascii() and number.isdecimal() and len(number) <= FILE_DIGITS:
        attachment = await engine_of(request).store.search(
            conversations.file, user_of(request), conversation_id, int(number)
        )
    if attachment is None:
        raise not_found("File not found.")
    content_type = sniff(attachment.data, "")  # not the type that the client sent
    is_inline = content_type in INLINE_TYPES
    name = strip_invisible(attachment.name)
    ascii_name = "".join(one if (one.isascii() and one.isalnum()) or one in "._- " else "_" for one in name)
    etag = await compute(
        len(attachment.data), lambda: f'"{hashlib.blake2b(attachment.data, digest_size=16).hexdigest()}"'
    )
    headers = {
        **SAFE_HEADERS,
        "Content-Type": content_type if is_inline else "application/octet-stream",
        "Content-Disposition": f'{"inline" if is_inline else "attachment"}; filename="{ascii_name}"; '
        f"filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "private, no-cache",
        "ETag": etag,
    }
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(attachment.data, headers=headers)


def _conversation_id(request: Request) -> str:
    conversation_id: str = request.path_params["id"]
    if not ID.fullmatch(conversation_id):
        raise not_found(NO_CONVERSATION)
    return conversation_id
