"""Routes for facts and summaries: list, add, change and delete them."""

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from brain.errors import BadRequest
from brain.protocols.common import ID
from brain.protocols.native import queries, resources
from brain.protocols.native.queries import FactBody, MemoryQuery, RecallBody
from brain.server.responses import NO_STORE_HEADERS, ApiResponse
from brain.server.routes.requests import engine_of, query_of, read_json, read_struct, user_of
from brain.store import items, users


class ItemsEndpoint(HTTPEndpoint):
    """`/v1/memory`: all items of a user."""

    async def get(self, request: Request) -> Response:
        """List items, and show whether recall is on."""
        query = query_of(request, MemoryQuery)
        store, user = engine_of(request).store, user_of(request)
        found = await store.search(
            items.list_items,
            user,
            kind=query.kind,
            category=query.category,
            words=query.q,
            before=query.before,
            limit=query.limit + 1,
        )
        return ApiResponse(resources.encode_items(found, query.limit, recall=await store.read(users.recalls, user)))

    async def post(self, request: Request) -> Response:
        """Add a fact, unless it is already stored."""
        fact = await read_struct(request, FactBody)
        edits = engine_of(request).memory.edits
        item = await edits.write(user_of(request), fact.text, fact.category, mutable=fact.mutable is not False)
        url = f"{request.scope.get('root_path', '')}/v1/memory/{item.id}"
        return ApiResponse(resources.encode_item(item), 201, {"Location": url})

    async def patch(self, request: Request) -> Response:
        """Switch recall on or off."""
        is_on = (await read_struct(request, RecallBody)).recall
        await engine_of(request).memory.edits.set_recall(user_of(request), is_on)
        return ApiResponse(resources.encode_recall(is_on))


class ItemEndpoint(HTTPEndpoint):
    """`/v1/memory/{id}`: one item."""

    async def get(self, request: Request) -> Response:
        """Show it."""
        item = await engine_of(request).store.read(items.find, user_of(request), _item_id(request))
        if item is None:
            raise _not_found()
        return ApiResponse(resources.encode_item(item))

    async def patch(self, request: Request) -> Response:
        """Change the fields in the body."""
        item_id = _item_id(request)
        change = await read_json(request, queries.parse_change, queries.SMALL_BODY_BYTES)
        changed = await engine_of(request).memory.edits.change(
            user_of(request), item_id, text=change.text, category=change.category, mutable=change.mutable
        )
        return ApiResponse(resources.encode_item(changed))

    async def delete(self, request: Request) -> Response:
        """Delete it."""
        if not await engine_of(request).memory.edits.delete(user_of(request), _item_id(request)):
            raise _not_found()
        return Response(status_code=204, headers=NO_STORE_HEADERS)


def _item_id(request: Request) -> str:
    item_id: str = request.path_params["id"]
    if not ID.fullmatch(item_id):
        raise _not_found()
    return item_id


def _not_found() -> BadRequest:
    return BadRequest("Memory item not found.", "id", code="not_found", status=404)
