"""The memory of users: recent messages, summaries of idle conversations, and facts."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NamedTuple

import anyio

from brain.errors import StoreError
from brain.memory import recall
from brain.memory.background import Background
from brain.memory.cache import RecentInteractions, StoreVersion, UserCache
from brain.memory.edits import MemoryEdits
from brain.memory.items import ALL, OWN_SHARE, QUESTION_LENGTH, RECALL_SHARE, Items
from brain.memory.quotes import UserMessage
from brain.memory.recall import QuestionWords
from brain.memory.user_view import UserMemory
from brain.messages import Category, Exchange, Interaction, Item, RecallResult
from brain.models.embedder import Embedder
from brain.models.model import Model
from brain.store import users
from brain.store.items import list_items, memory_of
from brain.store.store import Store
from brain.store.vectors import Query

HOT_USERS = 10_000
HOT_BYTES = 16 * 1024 * 1024
"""Limits of the cache of user profiles: users and bytes."""
_OBJECT_BYTES = 1_000
MAX_ABOUT_USER = 30
"""If a user has at most this many facts about themselves, the newest come with any question."""
ABANDON_SECONDS = 0.1
"""How long background work may take to stop, in seconds."""
_ABOUT_USER: Sequence[Category] = ("personal", "preferences", "general")

log = logging.getLogger("brain")


class _Profile(NamedTuple):
    """Data about a user that every question needs."""

    is_recall_on: bool
    """Whether recall is on and the user has any items."""
    about: Sequence[Item] = ()
    """Facts about the user, newest first; empty if there are too many."""


class Memory:
    """The memory of all users; `edits` are changes by users themselves.

    Args:
        tokens: limit for recalled items per question; 0 turns recall off.
        rest_seconds: idle time after which a conversation is summarized.
    """

    def __init__(self, store: Store, *, tokens: int, rest_seconds: float, now: Callable[[], datetime]) -> None:
        self._store = store
        self._tokens = tokens
        self._rest_seconds = rest_seconds
        self._items = Items(store, now, self._on_change)
        self.edits = MemoryEdits(self._items)
        self.store_version = StoreVersion(store)
        self._recent = RecentInteractions(store, self.store_version)
        self._profiles = UserCache(self.store_version, self._read_profile, HOT_USERS, HOT_BYTES, _size_of)
        self._background: Background | None = None

    async def can_recall(self, user: str) -> bool:
        """Return whether recall is on and the user has any items. Errors count as no."""
        try:
            return self._tokens > 0 and (await self._profiles.get(user)).is_recall_on
        except StoreError:
            return False

    async def embed_query(self, message: str, *, private: bool = False) -> Query | None:
        """Return the embedding of a message, for `recall` and whatever else compares it; None without one in time."""
        return await self._items.embed_query(message[:QUESTION_LENGTH], private=private)

    async def recall(
        self,
        user: str,
        message: str,
        present: Collection[str] = (),
        idle_conversation: str | None = None,
        *,
        query: Query | None = None,
    ) -> RecallResult:
        """Recall items that are relevant to a question. Errors are logged, so that no turn fails because of them.

        Args:
            present: IDs of items and messages that the prompt contains already.
            idle_conversation: a conversation that continues after a pause; its summary is recalled first.
        """
        try:
            profile = await self._profiles.get(user) if self._tokens > 0 else _Profile(is_recall_on=False)
            if not profile.is_recall_on:
                return RecallResult()
            message = message[:QUESTION_LENGTH]
            question = QuestionWords(message)
            share = OWN_SHARE if question.is_first_person else RECALL_SHARE
            found = await self._items.look_up(user, query, question.words, ALL, share)
            relevant = recall.rank(found, question)
            if idle_conversation is not None:
                earlier = await self._store.read(memory_of, user, idle_conversation)
                if earlier is not None:
                    relevant = [earlier, *(item for item in relevant if item.id != earlier.id)]
        except StoreError as error:
            log.warning("memory: recall failed: %s", error)
            return RecallResult()
        chosen, fill = recall.choose(relevant, profile.about, self._tokens, present)
        items = (*chosen, *fill)
        return RecallResult(
            recall.format_note(items, self._tokens),
            items,
            recall.format_sentence(chosen),
            tuple(chosen),
        )

    async def _read_profile(self, user: str) -> _Profile:
        if not await self._store.read(list_items, user, limit=1) or not await self._store.read(users.recalls, user):
            return _Profile(is_recall_on=False)
        found = [
            item
            for category in _ABOUT_USER
            for item in await self._store.read(
                list_items, user, kind="fact", category=category, limit=MAX_ABOUT_USER + 1
            )
        ]
        few = found if len(found) <= MAX_ABOUT_USER else []
        return _Profile(is_recall_on=True, about=sorted(few, key=lambda item: item.updated, reverse=True))

    def view(
        self,
        user: str,
        conversation_id: str,
        messages: Callable[[], Sequence[UserMessage]],
        *,
        private: bool = False,
    ) -> UserMemory:
        """Return the memory of one user, for the specialists of a turn."""
        return UserMemory(self._items, self._recent, user, conversation_id, messages, private=private)

    def add_exchange(self, user: str, conversation_id: str, exchange: Exchange) -> None:
        """Add a stored exchange to the cache."""
        if exchange.message and exchange.started is not None:
            message, answer, started = exchange.message, exchange.answer, exchange.started
            self._recent.add(user, Interaction(conversation_id, started, message, answer, exchange.untrusted))

    def invalidate(self, user: str) -> None:
        """Drop cached data of a user whose exchanges or items changed in the store."""
        self._recent.forget(user)
        self._profiles.forget(user)

    @asynccontextmanager
    async def run_background(
        self,
        model: Model,
        is_idle: Callable[[], bool] = lambda: True,
        embedding_model: Model | None = None,
        can_summarise: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[None]:
        """Embed and summarize in the background while the block runs; `model` also embeds by default."""
        self._items.embedder = embedder = Embedder(embedding_model or model, self._store)
        try:
            await embedder.load_check()
        except StoreError as error:
            log.warning("memory: the result of the embedding check cannot be read: %s", error)
        self._background = background = Background(
            self._items, model, embedder, self._rest_seconds, is_idle, can_summarise
        )
        work = {
            asyncio.create_task(background.embed(), name="memory"),
            asyncio.create_task(background.summarise(), name="memory"),
        }
        try:
            yield
        finally:
            self._items.embedder = self._background = None
            for task in work:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait(work, timeout=ABANDON_SECONDS)

    def _on_change(self, user: str) -> None:
        self._profiles.forget(user)
        if self._background is not None:
            self._background.has_new_items.set()


def _size_of(profile: _Profile) -> int:
    return _OBJECT_BYTES + sum(_OBJECT_BYTES + 4 * len(item.text) for item in profile.about)
