"""Routes for facts and summaries: list, add, change and delete them."""

from starlette.responses import Response

from brain.errors import BadRequest
from brain.protocols.native import queries, resources
from brain.protocols.native.queries import FactBody, MemoryQuery, RecallBody
from brain.server.responses import ApiResponse, no_content
from brain.server.routes.requests import Request, link, path_id, query_of, read_json, read_struct
from brain.server.routes.runs import not_found
from brain.store import items, users


async def list_items(request: Request) -> Response:
    """`GET /v1/memory`: list items, and show whether recall is on."""
    query = query_of(request, MemoryQuery)
    store, user = request.engine.store, request.username
    found = await store.search(
        items.list_items,
        user,
        kind=query.kind,
        category=query.category,
        words=query.q,
        before=query.before,
        limit=query.limit + 1,
    )
    recall = await store.read(users.recalls, user)
    return ApiResponse(resources.list_data("items", [*map(resources.item_data, found)], query.limit, recall=recall))


async def add(request: Request) -> Response:
    """`POST /v1/memory`: add a fact, unless it is already stored."""
    fact = await read_struct(request, FactBody)
    edits = request.engine.memory.edits
    item = await edits.write(request.username, fact.text, fact.category, mutable=fact.mutable is not False)
    return ApiResponse(resources.item_data(item), 201, {"Location": link(request, f"/v1/memory/{item.id}")})


async def switch_recall(request: Request) -> Response:
    """`PATCH /v1/memory`: switch recall on or off."""
    is_on = (await read_struct(request, RecallBody)).recall
    await request.engine.memory.edits.set_recall(request.username, is_on)
    return ApiResponse({"recall": is_on})


async def show(request: Request) -> Response:
    """`GET /v1/memory/{id}`: show it."""
    item = await request.engine.store.read(items.find, request.username, path_id(request, _not_found()))
    if item is None:
        raise _not_found()
    return ApiResponse(resources.item_data(item))


async def change(request: Request) -> Response:
    """`PATCH /v1/memory/{id}`: change the fields in the body."""
    item_id = path_id(request, _not_found())
    change = await read_json(request, queries.parse_change, queries.SMALL_BODY_BYTES)
    changed = await request.engine.memory.edits.change(
        request.username, item_id, text=change.text, category=change.category, mutable=change.mutable
    )
    return ApiResponse(resources.item_data(changed))


async def delete(request: Request) -> Response:
    """`DELETE /v1/memory/{id}`: delete it."""
    if not await request.engine.memory.edits.delete(request.username, path_id(request, _not_found())):
        raise _not_found()
    return no_content()


def _not_found() -> BadRequest:
    return not_found("Memory item not found.", "id")
