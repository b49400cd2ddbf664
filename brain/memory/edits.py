"""The user's own hand in the memory. Nothing is compared with what they said; they may change all of it."""

from msgspec.structs import replace

from brain.errors import BadRequest
from brain.memory.items import Items
from brain.memory.texts import FACT_LENGTH, MEMORY_LENGTH, one_line
from brain.messages import Category, Item


class MemoryEdits:
    """What users do to their facts and memories themselves."""

    def __init__(self, items: Items) -> None:
        self._items = items

    async def write(self, user: str, text: str, category: Category | None = None, *, mutable: bool = True) -> Item:
        """Stores a fact; one with the same words is that one, written so unless it is immutable, which it stays.

        Raises:
            BadRequest: when the text is empty or too long, or the user keeps too much.
        """
        text = _line(text, FACT_LENGTH)
        async with self._items.writing(user):
            item = await self._items.find_same(user, text)
            if item is None:
                now = self._items.now()
                item = Item(await self._items.new_id(user), "fact", text, now, now, "general")
            else:
                item = self._rewrite(item, text) if item.mutable else replace(item, updated=self._items.now())
            item = replace(item, category=category or item.category, mutable=mutable and item.mutable)
            await self._items.put(user, item)
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
        """Changes what is given of a fact or memory.

        Raises:
            BadRequest: when there is none of this id, its text is immutable, or what is given cannot be.
        """
        async with self._items.writing(user):
            item = await self._items.store.item(user, item_id)
            if item is None:
                raise BadRequest("There is no fact or memory of this id.", "id", code="not_found", status=404)
            if category is not None and item.kind == "memory":
                raise BadRequest("Only a fact has a category; leave it out.", "category")
            if text is not None:
                item = self._change_text(item, text, unlocked=mutable is True)
            item = replace(
                item,
                category=category or item.category,
                mutable=item.mutable if mutable is None else mutable,
                updated=self._items.now(),
            )
            await self._items.put(user, item)
            return item

    async def delete(self, user: str, item_id: str) -> bool:
        """Removes a fact or a memory; whether there was one."""
        async with self._items.writing(user):
            return await self._items.erase(user, item_id)

    async def set_recall(self, user: str, on: bool) -> None:
        """Switches on or off that anything is recalled."""
        await self._items.set_recall(user, on)

    def _change_text(self, item: Item, text: str, *, unlocked: bool) -> Item:
        text = _line(text, FACT_LENGTH if item.kind == "fact" else MEMORY_LENGTH)
        if text != item.text and not item.mutable and not unlocked:
            sentence = "This fact is immutable; send mutable: true with its new text, or delete it."
            raise BadRequest(sentence, "text", code="immutable", status=409)
        return self._rewrite(item, text)

    def _rewrite(self, item: Item, text: str) -> Item:
        """The item with a text of the user's hand, which no message has unless it is the same."""
        message_id = item.message_id if text == item.text else None
        return self._items.said_anew(item, text, item.conversation_id, message_id)


def _line(text: str, most: int) -> str:
    """A text that a user typed as it is kept: harmless, in one line.

    Raises:
        BadRequest: when nothing is left of it, or it is too long.
    """
    line = one_line(text)
    if not line:
        raise BadRequest("text must say something.", "text")
    if len(line) > most:
        raise BadRequest(f"text must have at most {most} characters.", "text")
    return line
