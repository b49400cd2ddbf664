"""The memory of one user in one conversation, as a specialist has it. It stores only what the user wrote."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from brain.errors import BadRequest, Refused
from brain.memory.cache import RecentInteractions
from brain.memory.items import ALL, FACTS, MEMORIES, Items
from brain.memory.quotes import Quote, UserMessage, find_quotes
from brain.memory.terms import WordMatcher, content_words
from brain.memory.texts import BETWEEN, FACT_LENGTH, MEMORY_LENGTH
from brain.messages import OWN_WORDS, Category, Interaction, Item, Kind
from brain.plugins.context import Saved

MAX_NAMED = 5
"""Items that are listed where words fit several."""
MAX_FOUND = 50
"""Items among which those of one category are looked for."""
_CHANGED = (
    "what is kept was changed after the user approved this: look at it again, then ask again if it is still right"
)


class UserMemory:
    """What is stored of one user.

    Args:
        messages: the user's own in this conversation, oldest first.
    """

    def __init__(
        self,
        items: Items,
        recent: RecentInteractions,
        user: str,
        conversation_id: str,
        messages: Callable[[], Sequence[UserMessage]],
    ) -> None:
        self._items, self._recent = items, recent
        self._user, self._conversation_id, self._messages = user, conversation_id, messages

    async def recent(self, most: int = 5) -> Sequence[Interaction]:
        return (await self._recent.get(self._user))[: max(0, most)]

    async def memories(self, words: str = "", most: int = 5) -> Sequence[Item]:
        if words.strip():
            return await self._items.search(self._user, words, MEMORIES, most)
        return await self._items.store.items(self._user, kind="memory", limit=most)

    async def facts(self, words: str = "", category: Category | None = None, most: int = 50) -> Sequence[Item]:
        if words.strip():
            found = await self._items.search(self._user, words, FACTS, MAX_FOUND)
            found = [item for item in found if category in (None, item.category)][:most]
        else:
            found = await self._items.store.items(self._user, kind="fact", category=category, limit=most)
        return sorted(found, key=lambda item: item.updated, reverse=True)

    async def search(self, words: str, most: int = 5) -> Sequence[Item]:
        return await self._items.search(self._user, words, ALL, most)

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
                raise Refused(f"{_describe(item)} is immutable; only the user can change it, by hand: tell them so")
            known = await self._items.find_same(self._user, line)
            if known is not None and known.id != item.id:
                raise Refused(f"{_describe(known)} says that already; forget #{item.id} if it is wrong")
            item = self._items.with_text(item, line, self._conversation_id, message.id)
            item = replace(item, updated=self._time(message), category=category or item.category)
            await self._put(item)
            return Saved(item, "corrected")

    async def store(self, text: str) -> Item:
        quotes = await self._find_quotes(text, MEMORY_LENGTH - len(OWN_WORDS))
        line = OWN_WORDS + _join(quotes, BETWEEN, MEMORY_LENGTH - len(OWN_WORDS))
        async with self._items.writing(self._user):
            item = await self._new("memory", line, quotes[-1].message, None)
            await self._put(item)
            return item

    async def find_item(self, which: str, words: str = "") -> Item:
        item = await self._find(which, ALL)
        if not _with_all_words([item], words):
            raise Refused(f"{_describe(item)} does not say that; give its own words, or the id of what says it")
        if not item.mutable:
            raise Refused(f"{_describe(item)} is immutable; only the user can remove it, by hand")
        return item

    async def forget(self, which: str, words: str = "", approved: Item | None = None) -> Item:
        async with self._items.writing(self._user):
            item = await self.find_item(which, words)
            if approved is not None and (item.id, item.text) != (approved.id, approved.text):
                raise Refused(_CHANGED)
            await self._items.erase(self._user, item.id)
            return item

    async def _find_quotes(self, text: str, most: int) -> list[Quote]:
        """The sentences of the user's that say a text; at least one."""
        if len(text) > MEMORY_LENGTH:
            raise Refused(f"the text is longer than {MEMORY_LENGTH} characters; quote fewer sentences of the user's")
        quotes = await asyncio.to_thread(find_quotes, list(self._messages()), text, most)
        if not quotes:
            raise Refused(
                "the user did not write that in this conversation; give a sentence of theirs, word for word, "
                "or ask them to write it"
            )
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
            await self._items.put(self._user, item)
        except BadRequest as problem:  # the user keeps too much
            raise Refused(problem.message) from None

    async def _find(self, which: str, kinds: Sequence[Kind]) -> Item:
        """The item of this id, or the only one that has these words."""
        which = which.strip()
        item = await self._items.store.item(self._user, which.removeprefix("#").lower()) if which else None
        if item is not None and item.kind in kinds:
            return item
        if not content_words(which):
            raise Refused("say which by its id, such as #k7m2, or by words that it alone has")
        found = await self._items.find_by_words(self._user, which, kinds)
        found = await asyncio.to_thread(_with_all_words, found, which)
        if len(found) == 1:
            return found[0]
        if not found:
            raise Refused(f"nothing is kept with the words {which[:80]!r}; look for it with search or facts first")
        raise Refused(f"which? {'; '.join(map(_describe, found[:MAX_NAMED]))}")


def _with_all_words(items: Sequence[Item], words: str) -> list[Item]:
    """The items that have all content words of a text."""
    matcher = WordMatcher(content_words(words))
    return [item for item in items if matcher.match_any(content_words(item.text[:MEMORY_LENGTH])) == matcher.bits()]


def _join(quotes: Sequence[Quote], between: str, most: int) -> str:
    text = between.join(quote.text for quote in quotes)
    if len(text) > most:
        raise Refused(f"the user's sentences have more than {most} characters; quote fewer of them")
    return text


def _describe(item: Item) -> str:
    return f'#{item.id} of {item.updated:%Y-%m-%d}, "{item.text[:120]}",'
