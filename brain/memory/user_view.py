"""The memory of one user in one conversation, for specialists. It stores only what the user wrote."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from brain.errors import BadRequest, Refused
from brain.memory.cache import RecentInteractions
from brain.memory.items import ALL, FACTS, MEMORIES, Items, renew
from brain.memory.quotes import BETWEEN, Quote, UserMessage, find_quotes
from brain.memory.terms import WordMatcher, content_words
from brain.messages import FACT_LENGTH, MEMORY_LENGTH, OWN_WORDS, Category, Interaction, Item, Kind
from brain.plugins.context import Saved
from brain.store import items
from brain.text import ID

MAX_NAMED = 5
"""Maximum items in the advice if several match."""
MAX_FOUND = 50
"""Items that are searched before those of one category are picked."""


class UserMemory:
    """The facts and memories of one user. Nothing is saved from a private conversation.

    Args:
        messages: returns the user's messages in this conversation, oldest first.
    """

    def __init__(
        self,
        items: Items,
        recent: RecentInteractions,
        user: str,
        conversation_id: str,
        messages: Callable[[], Sequence[UserMessage]],
        *,
        private: bool = False,
    ) -> None:
        self._items, self._recent = items, recent
        self._user, self._conversation_id, self._messages = user, conversation_id, messages
        self._private = private

    async def recent(self, most: int = 5) -> Sequence[Interaction]:
        return (await self._recent.get(self._user))[: max(0, most)]

    async def memories(self, words: str = "", most: int = 5) -> Sequence[Item]:
        if words.strip():
            return await self._items.search(self._user, words, MEMORIES, most, private=self._private)
        return await self._items.store.read(items.list_items, self._user, kind="memory", limit=most)

    async def facts(self, words: str = "", category: Category | None = None, most: int = 50) -> Sequence[Item]:
        if words.strip():
            found = await self._items.search(self._user, words, FACTS, MAX_FOUND, private=self._private)
            found = [item for item in found if category in (None, item.category)][:most]
        else:
            found = await self._items.store.read(
                items.list_items, self._user, kind="fact", category=category, limit=most
            )
        return sorted(found, key=lambda item: item.updated, reverse=True)

    async def search(self, words: str, most: int = 5) -> Sequence[Item]:
        return await self._items.search(self._user, words, ALL, most, private=self._private)

    async def save(self, text: str, category: Category | None = None, *, mutable: bool = True) -> Saved:
        quotes = await self._find_quotes(text, FACT_LENGTH)
        line = _join(quotes, " ", FACT_LENGTH)
        async with self._items.writing(self._user):
            known = await self._items.find_same(self._user, line)
            if known is None:
                item = await self._new("fact", line, quotes[-1].message, category or "general", mutable=mutable)
            else:
                sent = self._time(quotes[-1].message)
                item = replace(known, updated=max(known.updated, sent), mutable=known.mutable and mutable)
            await self._put(item)
            return Saved(item, "new" if known is None else "known")

    async def update(self, which: str, text: str, category: Category | None = None) -> Saved:
        quotes = await self._find_quotes(text, FACT_LENGTH)
        line, message = _join(quotes, " ", FACT_LENGTH), quotes[-1].message
        async with self._items.writing(self._user):
            item = await self._find(which, FACTS)
            if not item.mutable:
                raise Refused(f"{_describe(item)} is protected", "tell the user to change it themselves")
            known = await self._items.find_same(self._user, line)
            if known is not None and known.id != item.id:
                raise Refused(f"{_describe(known)} has this text already", f"forget #{item.id} if it is wrong")
            item = self._items.with_text(item, line, self._conversation_id, message.id)
            item = replace(item, updated=self._time(message), category=category or item.category)
            await self._put(item)
            return Saved(item, "corrected")

    async def store(self, text: str) -> Item:
        quotes = await self._find_quotes(text, MEMORY_LENGTH - len(OWN_WORDS))
        line = OWN_WORDS + _join(quotes, BETWEEN, MEMORY_LENGTH - len(OWN_WORDS))
        async with self._items.writing(self._user):
            item = await self._new("memory", line, quotes[-1].message, None)
            if known := await self._items.find_same(self._user, line, MEMORIES):
                item = renew(known, item)
            await self._put(item)
            return item

    async def find_item(self, which: str, words: str = "") -> Item:
        item = await self._find(which, ALL)
        if not _with_all_words([item], words):
            raise Refused(f"{_describe(item)} does not contain that text", "use words of the item, or another id")
        if not item.mutable:
            raise Refused(f"{_describe(item)} is protected", "tell the user to delete it themselves")
        return item

    async def forget(self, which: str, words: str = "", approved: Item | None = None) -> Item:
        async with self._items.writing(self._user):
            item = await self.find_item(which, words)
            if approved is not None and (item.id, item.text) != (approved.id, approved.text):
                raise Refused("the item was changed after the approval", "read it again, then call again if needed")
            await self._items.write(self._user, items.erase, item.id)
            return item

    async def _find_quotes(self, text: str, most: int) -> list[Quote]:
        """Return the user's sentences that contain a text; at least one."""
        if self._private:
            advice = "tell the user that they can add it to their memory themselves"
            raise Refused("this conversation is private, so nothing from it is saved", advice)
        if len(text) > MEMORY_LENGTH:
            reason = f"the text has {len(text):,} characters, the limit is {MEMORY_LENGTH:,}"
            raise Refused(reason, "quote fewer of the user's sentences")
        quotes = await asyncio.to_thread(find_quotes, list(self._messages()), text, most)
        if not quotes:
            advice = "quote one of the user's sentences word for word, or ask the user to write it"
            raise Refused("the user did not write that in this conversation", advice)
        return quotes

    def _time(self, message: UserMessage) -> datetime:
        return message.time or self._items.now()

    async def _new(
        self, kind: Kind, text: str, message: UserMessage, category: Category | None, *, mutable: bool = True
    ) -> Item:
        item_id, sent = await self._items.new_id(self._user), self._time(message)
        return Item(item_id, kind, text, sent, sent, category, mutable, self._conversation_id, message.id)

    async def _put(self, item: Item) -> None:
        try:
            await self._items.write(self._user, items.put, item)
        except BadRequest as problem:  # the user's quota is used up
            raise Refused(problem.message) from None

    async def _find(self, which: str, kinds: Sequence[Kind]) -> Item:
        """Return the item with this id, or the only item with these words."""
        which = which.strip()
        item_id = which.removeprefix("#").lower()
        item = await self._items.store.read(items.find, self._user, item_id) if ID.fullmatch(item_id) else None
        if item is not None and item.kind in kinds:
            return item
        if not content_words(which):
            raise Refused("the call names no item", "use an id such as #k7m2, or words that only one item has")
        found = await self._items.find_by_words(self._user, which, kinds)
        found = await asyncio.to_thread(_with_all_words, found, which)
        if len(found) == 1:
            return found[0]
        if not found:
            raise Refused(f"no item matches '{which[:80]}'", "find it with search or facts first")
        advice = f"use the id of one of these: {', '.join(map(_describe, found[:MAX_NAMED]))}"
        raise Refused(f"several items match '{which[:80]}'", advice)


def _with_all_words(items: Sequence[Item], words: str) -> list[Item]:
    """Return the items that have all content words of a text."""
    matcher = WordMatcher(content_words(words))
    return [item for item in items if matcher.match_any(content_words(item.text[:MEMORY_LENGTH])) == matcher.bits()]


def _join(quotes: Sequence[Quote], between: str, most: int) -> str:
    text = between.join(quote.text for quote in quotes)
    if len(text) > most:
        reason = f"the user's sentences have {len(text):,} characters, the limit is {most:,}"
        raise Refused(reason, "quote fewer sentences")
    return text


def _describe(item: Item) -> str:
    return f'#{item.id} ({item.updated:%Y-%m-%d}, "{item.text[:120]}")'
