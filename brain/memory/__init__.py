"""Rooms: the memory of users, in three layers: what was said lately, conversations that rested, and facts.

Each user's is their own: nothing here is done without saying whose.
"""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from weakref import WeakValueDictionary

import anyio

from brain.errors import BadRequest, StoreError
from brain.kept import Category, Interaction, Item, Kind, Recalled
from brain.memory import recall
from brain.memory.background import Background
from brain.memory.meaning import Meaning
from brain.memory.recall import Asked, Found
from brain.memory.recent import KEPT, Recent
from brain.memory.resting import Writer
from brain.memory.shelf import Shelf
from brain.memory.statements import category_of, judged, queries
from brain.memory.texts import FACT_LENGTH, MEMORY_LENGTH, one_line
from brain.memory.view import ALL, FACTS, UserMemory, corrected
from brain.messages import Exchange

log = logging.getLogger("brain")

HOT_SECONDS = 1.0
"""How long what other processes changed may go unseen."""
HOT_USERS = 10_000
CANDIDATES = 30
ALIKE_MOST = 60
ABOUT_USER_MOST = 30
"""Facts about the user so few that they are told although no word of the question is in them."""
QUESTION_LENGTH = 4_000
LETTING_GO_SECONDS = 0.1
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTHS = (4, 4, 5, 6, 8)


@dataclass(frozen=True, slots=True)
class _Flags:
    """Whether there is anything to recall for a user, as it was known lately."""

    recalls: bool
    until: float


class Memory:
    """The memory of all users.

    Args:
        shelf: where it is kept.
        tokens: of what is recalled for a question, at most; 0 for none.
        rest_seconds: a conversation in which nothing was said for so long is summarised.
        now: the time, aware.
    """

    def __init__(self, shelf: Shelf, *, tokens: int, rest_seconds: float, now: Callable[[], datetime]) -> None:
        self.now = now
        self._shelf = shelf
        self._tokens = tokens
        self._rest_seconds = rest_seconds
        self._recent = Recent()
        self._flags: OrderedDict[str, _Flags] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._meaning: Meaning | None = None
        self._background: Background | None = None

    # turns

    async def recall(self, user: str, message: str, present: Collection[str] = ()) -> Recalled:
        """What the memory has to a question; never fails, since a turn must not fail for it.

        Args:
            present: ids of what the model reads anyway.
        """
        if self._tokens <= 0:
            return Recalled()
        try:
            return await self._recalled(user, message[:QUESTION_LENGTH], present)
        except StoreError as error:
            log.warning("memory: nothing could be recalled: %s", error)
            return Recalled()

    async def _recalled(self, user: str, message: str, present: Collection[str]) -> Recalled:
        if not await self._has_any(user):
            return Recalled()
        relevant = recall.ranked(message, await self._looked_up(user, message, Asked(message).words, ALL))
        items = recall.chosen(relevant, await self._about(user), self._tokens, present)
        return Recalled(recall.note(items, self._tokens), tuple(items), recall.sentence(items))

    async def _has_any(self, user: str) -> bool:
        """Whether there is anything to recall; known for a moment, so that most turns need not ask."""
        flags = self._flags.get(user)
        if flags is None or time.monotonic() >= flags.until:
            any_item = bool(await self._shelf.items(user, limit=1))
            flags = _Flags(any_item and await self._shelf.recalls(user), time.monotonic() + HOT_SECONDS)
            self._flags[user] = flags
            while len(self._flags) > HOT_USERS:
                self._flags.popitem(last=False)
        return flags.recalls

    async def _about(self, user: str) -> list[Item]:
        """Facts about the user, newest first, when there are few of them."""
        found = [
            item
            for category in _ABOUT_USER
            for item in await self._shelf.items(user, kind="fact", category=category, limit=ABOUT_USER_MOST + 1)
        ]
        return sorted(found, key=lambda item: item.updated, reverse=True) if len(found) <= ABOUT_USER_MOST else []

    async def _looked_up(self, user: str, question: str, words: str, kinds: Sequence[Kind]) -> Found:
        """What the store has to a question, by words of it and, where vectors count, by its meaning."""
        by_words = await self._shelf.by_words(user, words, kinds=kinds, limit=CANDIDATES) if words else []
        near = await self._meaning.near(question) if self._meaning is not None and question.strip() else None
        if near is None or self._meaning is None or self._meaning.grade is None:
            return Found(by_words)
        by_meaning = await self._shelf.by_meaning(user, near, kinds=kinds, limit=CANDIDATES)
        return Found(by_words, by_meaning, self._meaning.grade.floor, self._meaning.grade.own)

    def view(self, user: str, conversation_id: str, said: Callable[[], Sequence[str]]) -> UserMemory:
        """The memory of one user, for the specialists of a turn.

        Args:
            said: the user's own words in this conversation, newest last.
        """
        return UserMemory(self, user, conversation_id, said)

    def ended(self, user: str, conversation_id: str, exchange: Exchange) -> None:
        """A turn ended: what was said is known at once."""
        if exchange.said and exchange.asked is not None:
            self._recent.add(user, Interaction(conversation_id, exchange.asked, exchange.said, exchange.visible))

    def forgotten(self, user: str, conversation_id: str | None = None) -> None:
        """A conversation, or all of a user, was removed from the store."""
        self._recent.forget(user)
        self._flags.pop(user, None)

    @asynccontextmanager
    async def running(self, model: Writer, idle: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
        """Does the background work as long as the block runs.

        Args:
            model: what writes summaries and makes vectors.
            idle: whether no turn runs; meanwhile the model is left alone.
        """
        self._meaning = Meaning(model)
        self._background = background = Background(
            self._shelf, model, self._meaning, self._rest_seconds, self.now, self.new_id, self._changed, idle
        )
        work = {
            asyncio.create_task(background.embed(), name="memory"),
            asyncio.create_task(background.summarise(), name="memory"),
        }
        try:
            yield
        finally:
            self._meaning = self._background = None
            for task in work:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait(work, timeout=LETTING_GO_SECONDS)

    # the user's own hand

    async def items(
        self,
        user: str,
        *,
        kind: Kind | None = None,
        category: Category | None = None,
        words: str = "",
        before: str | None = None,
        limit: int = 50,
    ) -> list[Item]:
        """Facts and memories, newest first; with words those that have them, best first."""
        return await self._shelf.items(user, kind=kind, category=category, words=words, before=before, limit=limit)

    async def item(self, user: str, item_id: str) -> Item | None:
        """One fact or memory."""
        return await self._shelf.item(user, item_id)

    async def write(self, user: str, text: str, category: Category | None = None, *, mutable: bool = True) -> Item:
        """Keeps a fact that the user wrote down; one that says the same is that one.

        Raises:
            BadRequest: when the text is empty or too long.
        """
        text = _by_hand(text, FACT_LENGTH)
        async with self.writing(user):
            verdict = await asyncio.to_thread(judged, text, *await self.alike(user, text))
            now = self.now()
            others = (verdict.corrects,) if verdict.corrects is not None else verdict.against
            item = verdict.same or Item(await self.new_id(user), "fact", text, now, now)
            category = category or item.category or category_of(text)
            item = replace(item, text=text, updated=now, category=category, mutable=mutable)
            await self.put(user, replace(item, against=tuple(other.id for other in others)))
            return replace(item, against=tuple(other.id for other in others))

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
        async with self.writing(user):
            item = await self._shelf.item(user, item_id)
            if item is None:
                raise BadRequest("There is no fact or memory of this id.", "id", code="not_found", status=404)
            if category is not None and item.kind == "memory":
                raise BadRequest("Only a fact has a category; leave it out.", "category")
            if text is not None:
                item = self._rewritten(item, text, unlocked=mutable is True)
            item = replace(
                item,
                category=category or item.category,
                mutable=item.mutable if mutable is None else mutable,
                updated=self.now(),
            )
            await self.put(user, item)
            return item

    def _rewritten(self, item: Item, text: str, *, unlocked: bool) -> Item:
        text = _by_hand(text, FACT_LENGTH if item.kind == "fact" else MEMORY_LENGTH)
        if text != item.text and not item.mutable and not unlocked:
            sentence = "This fact is immutable; send mutable: true with its new text, or delete it."
            raise BadRequest(sentence, "text", code="immutable", status=409)
        return corrected(item, text, self, item.conversation_id)

    async def erase(self, user: str, item_id: str) -> bool:
        """Removes a fact or a memory; whether there was one."""
        found = await self._shelf.erase(user, item_id)
        self._changed(user)
        return found

    async def recalls(self, user: str) -> bool:
        """Whether the user lets Brain recall."""
        return await self._shelf.recalls(user)

    async def set_recalls(self, user: str, on: bool) -> None:
        """Switches recalling on or off."""
        await self._shelf.set_recalls(user, on)
        self._changed(user)

    # what views need

    async def recent(self, user: str) -> list[Interaction]:
        """What was said last, newest first."""
        hot = self._recent.of(user)
        if hot is not None:
            return hot
        changes = self._recent.changes
        newest = await self._shelf.recent(user, KEPT)
        self._recent.put(user, newest, changes)
        return newest

    async def found(self, user: str, words: str, kinds: Sequence[Kind], most: int) -> list[Item]:
        """What fits some words best."""
        question = words[:QUESTION_LENGTH]
        found = await self._looked_up(user, question, question, kinds)
        return recall.ranked(question, found, strict=False)[: max(0, most)]

    async def alike(self, user: str, text: str) -> tuple[list[Item], set[str]]:
        """Known facts that a new one may have to do with, and the ids of those that mean something alike."""
        found: dict[str, Item] = {}
        for words in queries(text):
            rows = await self._shelf.by_words(user, words, kinds=FACTS, limit=ALIKE_MOST)
            found |= {item.id: item for item, _ in rows}
        near = await self._meaning.near(text) if self._meaning is not None else None
        if near is None or self._meaning is None or self._meaning.grade is None:
            return list(found.values()), set()
        least = (1 + self._meaning.grade.own) / 2
        rows = await self._shelf.by_meaning(user, near, kinds=FACTS, limit=CANDIDATES)
        means = {item.id: item for item, cosine in rows if cosine >= least}
        return list((found | means).values()), set(means)

    async def with_words(self, user: str, words: str, kinds: Sequence[Kind]) -> list[Item]:
        """What has any of these words, best first."""
        return [item for item, _ in await self._shelf.by_words(user, words, kinds=kinds, limit=ALIKE_MOST)]

    def writing(self, user: str) -> AbstractAsyncContextManager[Any]:
        """Only one change of a user's memory is judged and made at a time."""
        lock = self._locks.get(user)
        if lock is None:
            lock = self._locks[user] = asyncio.Lock()
        return lock

    async def put(self, user: str, item: Item) -> None:
        """Keeps an item."""
        await self._shelf.put(user, item)
        self._changed(user)
        if self._background is not None:
            self._background.saved.set()

    async def new_id(self, user: str) -> str:
        """A short id that no item of the user has: models copy short ones rightly."""
        for length in _ID_LENGTHS:
            item_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(length))
            if await self._shelf.item(user, item_id) is None:
                return item_id
        return secrets.token_hex(8)

    def _changed(self, user: str) -> None:
        self._flags.pop(user, None)


_ABOUT_USER: Sequence[Category] = ("personal", "preferences")


def _by_hand(text: str, most: int) -> str:
    """A text as it is kept, whoever wrote it."""
    line = one_line(text)
    if not line:
        raise BadRequest("text must say something.", "text")
    if len(line) > most:
        raise BadRequest(f"text must have at most {most} characters.", "text")
    return line
