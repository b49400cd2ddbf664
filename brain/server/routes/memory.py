"""What is remembered of a user: facts and memories, which they see, write, change and delete themselves."""

from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from brain.errors import BadRequest
from brain.memory.edits import ByHand
from brain.protocols import native
from brain.protocols.native import queries, resources
from brain.server.middleware import UNKEPT, Answer
from brain.server.routes.conversations import query, sent
from brain.server.routes.requests import house_of, user_of


class Items(HTTPEndpoint):
    """`/v1/memory`: all of it."""

    async def get(self, request: Request) -> Response:
        """Lists facts and memories, and says whether they are recalled."""
        asked = queries.parse_memory_query(query(request))
        store, user = house_of(request).store, user_of(request) or ""
        found = await store.items(
            user,
            kind=asked.kind,
            category=asked.category,
            words=asked.words,
            before=asked.before,
            limit=asked.limit + 1,
        )
        return Answer(resources.encode_items(found, asked.limit, recall=await store.recalls(user)))

    async def post(self, request: Request) -> Response:
        """Writes a fact down; one that says the same is that one."""
        by_hand, user = _of(request)
        fact = queries.parse_fact(await sent(request))
        item = await by_hand.write(user, fact.text, fact.category, mutable=fact.mutable)
        place = f"{request.scope.get('root_path', '')}/v1/memory/{item.id}"
        return Answer(resources.encode_item(item), 201, {"Location": place})

    async def patch(self, request: Request) -> Response:
        """Switches recall on or off."""
        by_hand, user = _of(request)
        on = queries.parse_recall(await sent(request))
        await by_hand.set_recalls(user, on)
        return Answer(resources.encode_recall(on))


class Item(HTTPEndpoint):
    """`/v1/memory/{id}`: one fact or memory."""

    async def get(self, request: Request) -> Response:
        """Shows it."""
        store, user = house_of(request).store, user_of(request) or ""
        found = await store.item(user, _id(request))
        if found is None:
            raise _unknown()
        return Answer(resources.encode_item(found))

    async def patch(self, request: Request) -> Response:
        """Changes what is sent of it."""
        by_hand, user = _of(request)
        item_id = _id(request)
        change = queries.parse_change(await sent(request))
        changed = await by_hand.change(
            user, item_id, text=change.text, category=change.category, mutable=change.mutable
        )
        return Answer(resources.encode_item(changed))

    async def delete(self, request: Request) -> Response:
        """Removes it."""
        by_hand, user = _of(request)
        if not await by_hand.erase(user, _id(request)):
            raise _unknown()
        return Response(status_code=204, headers=UNKEPT)


def _of(request: Request) -> tuple[ByHand, str]:
    return house_of(request).memory.by_hand, user_of(request) or ""


def _id(request: Request) -> str:
    item_id: str = request.path_params["id"]
    if not native.ID.fullmatch(item_id):
        raise _unknown()
    return item_id


def _unknown() -> BadRequest:
    return BadRequest("There is no fact or memory of this id.", "id", code="not_found", status=404)
