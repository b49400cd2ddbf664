"""Rooms: the memory of users, in three layers: what was said lately, conversations that rested, and facts.

Each user's is their own: nothing here is done without saying whose.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

import anyio

from brain.errors import BadRequest, StoreError
from brain.kept import Category, Interaction, Item, Kind, Recalled
from brain.memory import recall
from brain.memory.background import Background
from brain.memory.hot import Hot, Others
from brain.memory.items import ALL, QUESTION_LENGTH, Items
from brain.memory.meaning import Meaning
from brain.memory.recall import Asked
from brain.memory.recent import Recent
from brain.memory.resting import Writer
from brain.memory.shelf import Shelf
from brain.memory.statements import Verdict, category_of, judged
from brain.memory.texts import FACT_LENGTH, MEMORY_LENGTH, one_line
from brain.memory.view import UserMemory
from brain.messages import Exchange

log = logging.getLogger("brain")

HOT_USERS = 10_000
ABOUT_USER_MOST = 30
"""Facts about the user so few that they are told although no word of the question is in them."""
LETTING_GO_SECONDS = 0.1
_ABOUT_USER: Sequence[Category] = ("personal", "preferences")


class Memory:
    """The memory of all users.

    Args:
        shelf: where it is kept.
        tokens: of what is recalled for a question, at most; 0 for none.
        rest_seconds: a conversation in which nothing was said for so long is summarised.
        now: the time, aware.
    """

    def __init__(self, shelf: Shelf, *, tokens: int, rest_seconds: float, now: Callable[[], datetime]) -> None:
        self._shelf = shelf
        self._tokens = tokens
        self._rest_seconds = rest_seconds
        self._now = now
        self._items = Items(shelf, now, self._changed)
        others = Others(shelf)
        self._recent = Recent(shelf, others)
        self._anything = Hot(others, self._has_any, HOT_USERS)
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
        if not await self._anything.of(user):
            return Recalled()
        asked = Asked(message)
        found = await self._items.looked_up(user, message, asked.words, ALL)
        items = recall.chosen(recall.ranked(found, asked), await self._about(user), self._tokens, present)
        return Recalled(recall.note(items, self._tokens), tuple(items), recall.sentence(items))

    async def _has_any(self, user: str) -> bool:
        """Whether there is anything to recall, and the user lets Brain do so; few turns need to ask the store."""
        return bool(await self._shelf.items(user, limit=1)) and await self._shelf.recalls(user)

    async def _about(self, user: str) -> list[Item]:
        """Facts about the user, newest first, when there are few of them."""
        found = [
            item
            for category in _ABOUT_USER
            for item in await self._shelf.items(user, kind="fact", category=category, limit=ABOUT_USER_MOST + 1)
        ]
        return sorted(found, key=lambda item: item.updated, reverse=True) if len(found) <= ABOUT_USER_MOST else []

    def view(
        self, user: str, conversation_id: str, said: Callable[[], Sequence[str]], message_id: str | None = None
    ) -> UserMemory:
        """The memory of one user, for the specialists of a turn.

        Args:
            message_id: of the question that is answered, if it is kept.
            said: the user's own words in this conversation, newest last.
        """
        return UserMemory(self._items, self._recent, user, conversation_id, message_id, said)

    def ended(self, user: str, conversation_id: str, exchange: Exchange) -> None:
        """A turn ended, and is kept: what was said is known at once."""
        if exchange.said and exchange.asked is not None:
            said, answer = exchange.said, exchange.visible
            self._recent.add(user, Interaction(conversation_id, exchange.asked, said, answer, exchange.outside))

    def forgotten(self, user: str) -> None:
        """What was said by a user was changed in the store: it is read anew."""
        self._recent.forget(user)
        self._anything.forget(user)

    @asynccontextmanager
    async def running(self, model: Writer, idle: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
        """Does the background work as long as the block runs.

        Args:
            model: what writes summaries and makes vectors.
            idle: whether no turn runs; meanwhile the model is left alone.
        """
        self._items.meaning = meaning = Meaning(model)
        self._background = background = Background(
            self._shelf, model, meaning, self._rest_seconds, self._now, self._items.new_id, self._changed, idle
        )
        work = {
            asyncio.create_task(background.embed(), name="memory"),
            asyncio.create_task(background.summarise(), name="memory"),
        }
        try:
            yield
        finally:
            self._items.meaning = self._background = None
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
        async with self._items.writing(user):
            verdict = await asyncio.to_thread(judged, text, *await self._items.alike(user, text))
            item = verdict.same
            item = await self._new(user, text, verdict) if item is None else self._said_by_hand(item, text)
            item = replace(item, category=category or item.category or category_of(text), mutable=mutable)
            await self._items.put(user, item)
            return item

    async def _new(self, user: str, text: str, verdict: Verdict) -> Item:
        now = self._now()
        others = (verdict.corrects,) if verdict.corrects is not None else verdict.against
        item = Item(await self._items.new_id(user), "fact", text, now, now)
        return replace(item, against=tuple(other.id for other in others))

    def _said_by_hand(self, item: Item, text: str) -> Item:
        """The item with a text of the user's hand, which no message has unless it is the same."""
        message_id = item.message_id if text == item.text else None
        return self._items.said_anew(item, text, item.conversation_id, message_id)

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
                updated=self._now(),
            )
            await self._items.put(user, item)
            return item

    def _rewritten(self, item: Item, text: str, *, unlocked: bool) -> Item:
        text = _by_hand(text, FACT_LENGTH if item.kind == "fact" else MEMORY_LENGTH)
        if text != item.text and not item.mutable and not unlocked:
            sentence = "This fact is immutable; send mutable: true with its new text, or delete it."
            raise BadRequest(sentence, "text", code="immutable", status=409)
        return self._said_by_hand(item, text)

    async def erase(self, user: str, item_id: str) -> bool:
        """Removes a fact or a memory; whether there was one."""
        return await self._items.erase(user, item_id)

    async def recalls(self, user: str) -> bool:
        """Whether the user lets Brain recall."""
        return await self._shelf.recalls(user)

    async def set_recalls(self, user: str, on: bool) -> None:
        """Switches recalling on or off."""
        await self._shelf.set_recalls(user, on)
        self._changed(user)

    def _changed(self, user: str) -> None:
        self._anything.forget(user)
        if self._background is not None:
            self._background.saved.set()


def _by_hand(text: str, most: int) -> str:
    """A text as it is kept, whoever wrote it."""
    line = one_line(text)
    if not line:
        raise BadRequest("text must say something.", "text")
    if len(line) > most:
        raise BadRequest(f"text must have at most {most} characters.", "text")
    return line
