"""Changes to the memory by users themselves, which need no quote from a conversation."""

from msgspec.structs import replace

from brain.errors import BadRequest
from brain.markers.neutralize import neutralize
from brain.memory.items import Items
from brain.messages import FACT_LENGTH, MEMORY_LENGTH, Category, Item
from brain.store import items, users
from brain.text import one_line


class MemoryEdits:
    """Writes, changes and deletes facts and memories for their users."""

    def __init__(self, items: Items) -> None:
        self._items = items

    async def write(self, user: str, text: str, category: Category | None = None, *, mutable: bool = True) -> Item:
        """Store a fact. It replaces a fact with the same words, unless that is immutable."""
        text = _check_line(text, FACT_LENGTH)
        async with self._items.writing(user):
            item = await self._items.find_same(user, text)
            if item is None:
                now = self._items.now()
                item = Item(await self._items.new_id(user), "fact", text, now, now, "general")
            else:
                item = self._rewrite(item, text) if item.mutable else replace(item, updated=self._items.now())
            item = replace(item, category=category or item.category, mutable=mutable and item.mutable)
            await self._items.write(user, items.put, item)
            return item

    async def change(
        self,
        user: str,
        item_id: str,
        *,
        text: str | None = None,
        category: Category | None = None,
        mutable: bool | None = None,
    ) -> Item:
        """Change the given fields of a fact or memory."""
        async with self._items.writing(user):
            item = await self._items.store.read(items.find, user, item_id)
            if item is None:
                raise BadRequest(f"There is no fact or memory with id {item_id!r}.", "id", code="not_found", status=404)
            if category is not None and item.kind == "memory":
                raise BadRequest("A memory has no `category`; only facts do. Omit it.", "category")
            if text is not None:
                text = _check_line(text, FACT_LENGTH if item.kind == "fact" else MEMORY_LENGTH)
                if text != item.text and not item.mutable and mutable is not True:
                    message = "This fact is immutable. Send `mutable: true` with the new text, or delete the fact."
                    raise BadRequest(message, "text", code="immutable", status=409)
                item = self._rewrite(item, text)
            item = replace(
                item,
                category=category or item.category,
                mutable=item.mutable if mutable is None else mutable,
                updated=self._items.now(),
            )
            await self._items.write(user, items.put, item)
            return item

    async def delete(self, user: str, item_id: str) -> bool:
        """Delete a fact or memory; return whether it existed."""
        async with self._items.writing(user):
            return await self._items.write(user, items.erase, item_id)

    async def set_recall(self, user: str, on: bool) -> None:
        """Turn recall on or off."""
        await self._items.write(user, users.set_recalls, on)

    def _rewrite(self, item: Item, text: str) -> Item:
        """Return the item with a new text, which no message is the source of unless it is the same."""
        message_id = item.message_id if text == item.text else None
        return self._items.with_text(item, text, item.conversation_id, message_id)


def _check_line(text: str, length: int) -> str:
    line = neutralize(one_line(text))
    if not line:
        raise BadRequest("`text` is empty.", "text")
    if len(line) > length:
        raise BadRequest(f"`text` has {len(line):,} characters; the limit is {length}.", "text")
    return line
