"""Searches and changes facts and memories, and gives them short IDs."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from msgspec import structs

from brain.memory import recall
from brain.memory.recall import Found
from brain.memory.terms import words
from brain.messages import FormerText, Item, Kind
from brain.models.embedder import Embedder
from brain.store import items, vectors
from brain.store.store import Store
from brain.store.tx import Tx
from brain.store.vectors import Query

FACTS: Sequence[Kind] = ("fact",)
MEMORIES: Sequence[Kind] = ("memory",)
ALL: Sequence[Kind] = ("fact", "memory")
CANDIDATES = 30
"""Items to rank per kind of search, keyword and semantic."""
MAX_ALIKE = 60
"""Maximum number of items to compare with a text."""
QUESTION_LENGTH = 4_000
RECALL_SHARE = 0.7
"""Position of the least relevance for recall between that of unrelated and of related items."""
OWN_SHARE = 0.4
"""The same for a message in the first person, which is more often about what the user said earlier."""
SEARCH_SHARE = 0.0
"""The same for a search, whose caller wants to find something."""
MAX_FORMER = 10
"""Stored former texts of a fact, always with the first one."""
P = ParamSpec("P")
T = TypeVar("T")
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTHS = (4, 4, 5, 6, 8)


def renew(known: Item, item: Item) -> Item:
    """Return a stored item with the date and the source of one that says the same."""
    return structs.replace(
        item,
        id=known.id,
        updated=max(known.updated, item.updated),
        category=known.category,
        mutable=known.mutable,
        untrusted=known.untrusted or item.untrusted,
        former=known.former,
    )


class Items:
    """The facts and memories of all users. Without an embedder, they are searched by keywords only."""

    def __init__(
        self, store: Store, now: Callable[[], datetime], on_change: Callable[[str], None] = lambda user: None
    ) -> None:
        self.store = store
        self.now = now
        self.embedder: Embedder | None = None
        self.on_change = on_change
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def embed_query(self, question: str, *, private: bool = False) -> Query | None:
        """Return the embedding of a question; None without an embedder that may read it."""
        embedder = self.embedder
        if embedder is None or not question.strip() or (private and not embedder.is_local):
            return None
        return await embedder.embed_query(question)

    async def look_up(self, user: str, query: Query | None, words: str, kinds: Sequence[Kind], share: float) -> Found:
        """Find items by keywords and, with the embedding of a question, by meaning; `share` is as `RECALL_SHARE`."""
        by_words = await self.store.read(items.search, user, words, kinds=kinds, limit=CANDIDATES) if words else []
        relevance = None if self.embedder is None else self.embedder.relevance
        if query is None or relevance is None or len(query.vector) != len(relevance.message_mean):
            return Found(by_words)
        query = replace(query, vector=relevance.center_message(query.vector))
        near = await self.store.read(vectors.search, user, query, kinds=kinds, limit=CANDIDATES, cache=self.store.signs)
        scores = relevance.score(query.vector, [(cosine, mean, spread) for _, cosine, mean, spread in near])
        by_meaning = [(item, score) for (item, *_), score in zip(near, scores, strict=True)]
        return Found(by_words, by_meaning, relevance.least(share), relevance.related)

    async def search(
        self, user: str, words: str, kinds: Sequence[Kind], limit: int, *, private: bool = False
    ) -> list[Item]:
        """Return the items that match, best first."""
        question = words[:QUESTION_LENGTH]
        query = await self.embed_query(question, private=private)
        found = await self.look_up(user, query, question, kinds, SEARCH_SHARE)
        return recall.rank(found)[: max(0, limit)]

    async def find_by_words(self, user: str, words: str, kinds: Sequence[Kind]) -> list[Item]:
        """Return the items with any of these words, best first."""
        return [item for item, _ in await self.store.read(items.search, user, words, kinds=kinds, limit=MAX_ALIKE)]

    async def find_same(self, user: str, text: str, kinds: Sequence[Kind] = FACTS) -> Item | None:
        """Return the item with the same words, ignoring case, accents and punctuation."""
        same = words(text)
        found = await self.find_by_words(user, text, kinds)
        return next((item for item in found if words(item.text) == same), None)

    def writing(self, user: str) -> AbstractAsyncContextManager[Any]:
        """Return the lock for changes to a user's items."""
        lock = self._locks.get(user)
        if lock is None:
            lock = self._locks[user] = asyncio.Lock()
        return lock

    async def write(
        self, user: str, statement: Callable[Concatenate[Tx, str, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run a statement of the store that changes the user's memory."""
        try:
            return await self.store.write(statement, user, *args, **options)
        finally:  # the write continues even if the caller is cancelled
            self.on_change(user)

    async def new_id(self, user: str) -> str:
        """Return a new ID. It is short, because models copy short IDs correctly."""
        for length in _ID_LENGTHS:
            item_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(length))
            if await self.store.read(items.find, user, item_id) is None:
                return item_id
        return secrets.token_hex(8)

    def with_text(self, item: Item, text: str, conversation_id: str | None, message_id: str | None = None) -> Item:
        """Return the item with another text; the former text is stored with it."""
        now = self.now()
        if text != item.text:
            first, *later = *item.former, FormerText(item.text, now)
            item = structs.replace(item, former=(first, *later[-MAX_FORMER + 1 :]))
        return structs.replace(item, text=text, updated=now, conversation_id=conversation_id, message_id=message_id)
