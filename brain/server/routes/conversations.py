"""Routes for conversations: list, open, rename and delete them, and download their files."""

import hashlib
from urllib.parse import quote

from starlette.responses import Response

from brain.errors import BadRequest
from brain.messages import sniff
from brain.prompts.blocks import block_content
from brain.prompts.context_window import count_tokens
from brain.protocols import native
from brain.protocols.native import queries, resources
from brain.protocols.native.queries import ConversationsQuery, PageQuery
from brain.server.responses import SAFE_HEADERS, ApiResponse, no_content
from brain.server.routes.requests import Request, compute, path_id, query_of, read_json
from brain.server.routes.runs import not_found
from brain.store import conversations
from brain.text import strip_invisible

FILE_DIGITS = len(str(native.MAX_FILE_ID))
UNREADABLE_WIRES = ("openai", "ollama")
"""Protocols whose turns can only be read by the request that began them."""
INLINE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types that a browser can show; it downloads all others. An SVG image can contain scripts."""


async def list_conversations(request: Request) -> Response:
    """`GET /v1/conversations`: the newest conversations, or search results."""
    query = query_of(request, ConversationsQuery)
    found = await request.engine.store.list_conversations(
        request.username, words=query.q, before=query.before, limit=query.limit + 1
    )
    return ApiResponse(resources.list_data("conversations", [*map(resources.conversation_data, found)], query.limit))


async def show(request: Request) -> Response:
    """`GET /v1/conversations/{id}`: show its newest messages, or those before a message."""
    query = query_of(request, PageQuery)
    engine, user, conversation_id = request.engine, request.username, path_id(request, _not_found())
    page = await engine.store.read(
        conversations.read_page, user, conversation_id, before=query.before, limit=query.limit
    )
    if page is None:
        raise _not_found()
    newest = page.exchanges[-1] if page.exchanges and query.before is None else None
    is_readable = newest is not None and not newest.outcome and newest.wire not in UNREADABLE_WIRES
    turn_id = newest.turn_id if newest is not None and is_readable else None
    return ApiResponse(
        await compute(page.size, lambda: resources.encode_page(page, count_tokens, block_content, turn_id))
    )


async def rename(request: Request) -> Response:
    """`PATCH /v1/conversations/{id}`: rename it."""
    conversation_id = path_id(request, _not_found())
    title = await read_json(request, queries.parse_title, queries.SMALL_BODY_BYTES)
    renamed = await request.engine.store.write(conversations.rename, request.username, conversation_id, title)
    if renamed is None:
        raise _not_found()
    return ApiResponse(resources.conversation_data(renamed))


async def delete(request: Request) -> Response:
    """`DELETE /v1/conversations/{id}`: delete it everywhere, after stopping its turn."""
    if not await request.engine.delete(request.username, path_id(request, _not_found())):
        raise _not_found()
    return no_content()


async def delay_reports(request: Request) -> Response:
    """`POST /v1/conversations/{id}/typing`: the user is typing, so a report on tasks waits."""
    await request.engine.reports.delay(request.username, path_id(request, _not_found()))
    return no_content()


async def file(request: Request) -> Response:
    """`GET /v1/conversations/{id}/files/{number}`: an attachment as it was sent.

    Browsers revalidate it each time: after a failed answer, a new message can reuse the number for another file.
    """
    conversation_id, number = path_id(request, _not_found()), str(request.path_params["number"])
    attachment = None
    if number.isascii() and number.isdecimal() and len(number) <= FILE_DIGITS:
        attachment = await request.engine.store.search(
            conversations.file, request.username, conversation_id, int(number)
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


def _not_found() -> BadRequest:
    return not_found("Conversation not found.")
