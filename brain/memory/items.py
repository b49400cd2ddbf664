"""What the memory needs of a store: each method is about one user, or says whose things it returns."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol
from weakref import WeakValueDictionary

from msgspec.structs import replace

from brain.memory import recall
from brain.memory.recall import Found
from brain.memory.terms import words
from brain.messages import Category, FormerText, IdleConversation, Interaction, Item, Kind, Query
from brain.models.embedder import Embedder


class MemoryStore(Protocol):
    """Where facts, memories and conversations are kept. Its errors are `StoreError`s."""

    async def data_version(self) -> int:
        """A number that is another one as soon as another process has written anything."""

    async def recent(self, user: str, limit: int) -> list[Interaction]: ...
    async def items(
        self,
        user: str,
        *,
        kind: Kind | None = None,
        category: Category | None = None,
        words: str = "",
        before: str | None = None,
        limit: int = 50,
    ) -> list[Item]: ...
    async def item(self, user: str, item_id: str) -> Item | None: ...
    async def memory_of(self, user: str, conversation_id: str) -> Item | None: ...
    async def put(self, user: str, item: Item) -> None: ...
    async def erase(self, user: str, item_id: str) -> bool: ...
    async def search_words(
        self, user: str, words: str, *, kinds: Sequence[Kind], limit: int
    ) -> list[tuple[Item, float]]: ...
    async def search_vectors(
        self, user: str, query: Query, *, kinds: Sequence[Kind], limit: int
    ) -> list[tuple[Item, float]]: ...
    async def without_vector(self, model: str, limit: int) -> list[tuple[str, Item]]: ...
    async def embed(self, model: str, vectors: Sequence[tuple[str, str, str, Sequence[float]]]) -> None: ...
    async def exam(self, name: str) -> str | None: ...
    async def set_exam(self, name: str, result: str) -> None: ...
    async def is_recall_on(self, user: str) -> bool: ...
    async def set_recall(self, user: str, on: bool) -> None: ...
    async def claim_idle(self, before: datetime, limit: int, *, alone: bool = False) -> list[IdleConversation]: ...
    async def set_memory(self, one: IdleConversation, item: Item | None) -> None: ...


FACTS: Sequence[Kind] = ("fact",)
MEMORIES: Sequence[Kind] = ("memory",)
ALL: Sequence[Kind] = ("fact", "memory")
CANDIDATES = 30
"""Of what the store finds by words, and of what it finds by meaning, so many are ranked."""
ALIKE_MOST = 60
"""So many items that share words with a text are compared with it."""
QUESTION_LENGTH = 4_000
FLOOR_SHARE = 0.7
"""Of the way from a wrong answer's cosine to a right one's, below which an item has nothing to do with a question."""
FORMER_MOST = 10
"""Earlier wordings that a fact keeps, with the first, which no number of corrections loses."""
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTHS = (4, 4, 5, 6, 8)


class Items:
    """The facts and memories of all users.

    Args:
        changed: told whose were changed, where anybody wants to know.

    Attributes:
        meaning: the vectors that they are looked up by, if there are any.
    """

    def __init__(
        self, store: MemoryStore, now: Callable[[], datetime], changed: Callable[[str], None] = lambda user: None
    ) -> None:
        self.store = store
        self.now = now
        self.meaning: Embedder | None = None
        self._changed = changed
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def looked_up(self, user: str, question: str, words: str, kinds: Sequence[Kind]) -> Found:
        """What the store has to a question, by words of it and, where vectors count, by its meaning."""
        by_words = await self.store.search_words(user, words, kinds=kinds, limit=CANDIDATES) if words else []
        near = await self.meaning.embed_query(question) if self.meaning is not None and question.strip() else None
        if near is None or self.meaning is None or self.meaning.check is None:
            return Found(by_words)
        by_meaning = await self.store.search_vectors(user, near, kinds=kinds, limit=CANDIDATES)
        return Found(by_words, by_meaning, self.meaning.check.floor(FLOOR_SHARE), self.meaning.check.own)

    async def found(self, user: str, words: str, kinds: Sequence[Kind], most: int) -> list[Item]:
        """What fits some words best."""
        question = words[:QUESTION_LENGTH]
        found = await self.looked_up(user, question, question, kinds)
        return recall.ranked(found)[: max(0, most)]

    async def find_same(self, user: str, text: str) -> Item | None:
        """The fact with the same words in the same order, if there is one: case, accents and signs do not matter."""
        same = words(text)
        found = await self.store.search_words(user, text, kinds=FACTS, limit=ALIKE_MOST)
        return next((item for item, _ in found if words(item.text) == same), None)

    async def with_words(self, user: str, words: str, kinds: Sequence[Kind]) -> list[Item]:
        """What has any of these words, best first."""
        return [item for item, _ in await self.store.search_words(user, words, kinds=kinds, limit=ALIKE_MOST)]

    def writing(self, user: str) -> AbstractAsyncContextManager[Any]:
        """Only one change of a user's is made at a time."""
        lock = self._locks.get(user)
        if lock is None:
            lock = self._locks[user] = asyncio.Lock()
        return lock

    async def put(self, user: str, item: Item) -> None:
        """Keeps an item."""
        try:
            await self.store.put(user, item)
        finally:  # it is written even if nobody waits any more
            self._changed(user)

    async def erase(self, user: str, item_id: str) -> bool:
        """Removes one; whether there was one."""
        try:
            return await self.store.erase(user, item_id)
        finally:
            self._changed(user)

    async def set_recall(self, user: str, on: bool) -> None:
        """Notes whether the user lets Brain recall."""
        try:
            await self.store.set_recall(user, on)
        finally:
            self._changed(user)

    async def new_id(self, user: str) -> str:
        """A short id that no item of the user has: models copy short ones rightly."""
        for length in _ID_LENGTHS:
            item_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(length))
            if await self.store.item(user, item_id) is None:
                return item_id
        return secrets.token_hex(8)

    def said_anew(self, item: Item, text: str, conversation_id: str | None, message_id: str | None = None) -> Item:
        """The same item with another text; what it said before is kept with it."""
        now = self.now()
        if text != item.text:
            first, *later = *item.former, FormerText(item.text, now)
            item = replace(item, former=(first, *later[-FORMER_MOST + 1 :]))
        return replace(item, text=text, updated=now, conversation_id=conversation_id, message_id=message_id)
