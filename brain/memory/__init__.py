"""The memory of users, in three layers: what was said lately, conversations that rested, and facts.

Each user's is their own: nothing here is done without saying whose.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

import anyio

from brain.errors import StoreError
from brain.memory import recall
from brain.memory.background import Background
from brain.memory.cache import Others, Recent, UserCache
from brain.memory.edits import MemoryEdits
from brain.memory.items import ALL, QUESTION_LENGTH, Items, MemoryStore
from brain.memory.quotes import UserMessage
from brain.memory.recall import QuestionWords
from brain.memory.summaries import Writer
from brain.memory.user_view import UserMemory
from brain.messages import Category, Exchange, Interaction, Item, RecallResult
from brain.models.embedder import Embedder, EmbeddingModel

log = logging.getLogger("brain")

HOT_USERS = 10_000
HOT_BYTES = 16 * 1024 * 1024
"""Of so many users is known what every question needs, and it takes so much at most."""
_OBJECT_BYTES = 1_000
ABOUT_USER_MOST = 30
"""Facts about the user so few that they are told although no word of the question is in them."""
LETTING_GO_SECONDS = 0.1
"""How long what runs in the background may take to end."""
_ABOUT_USER: Sequence[Category] = ("personal", "preferences", "general")


@dataclass(frozen=True, slots=True)
class _Known:
    """What every question of a user needs.

    Attributes:
        recalls: whether there is anything to recall, and the user lets Brain do so.
        about: facts about the user, newest first, when there are few of them.
    """

    recalls: bool
    about: Sequence[Item] = ()


class Memory:
    """The memory of all users.

    Args:
        store: where it is kept.
        tokens: of what is recalled for a question, at most; 0 for none.
        rest_seconds: a conversation in which nothing was said for so long is summarised.
        now: the time, aware.

    Attributes:
        edits: what users do to theirs themselves.
    """

    def __init__(self, store: MemoryStore, *, tokens: int, rest_seconds: float, now: Callable[[], datetime]) -> None:
        self._store = store
        self._tokens = tokens
        self._rest_seconds = rest_seconds
        self._now = now
        self._items = Items(store, now, self._changed)
        self.edits = MemoryEdits(self._items)
        others = Others(store)
        self._recent = Recent(store, others)
        self._known = UserCache(others, self._read_known, HOT_USERS, HOT_BYTES, _size)
        self._background: Background | None = None

    async def recall(
        self, user: str, message: str, present: Collection[str] = (), rested: str | None = None
    ) -> RecallResult:
        """What the memory has to a question; never fails, since a turn must not fail for it.

        Args:
            present: ids of items and of messages that the model reads anyway.
            rested: the conversation that goes on with it behind a long rest, of which the model reads nothing else.
        """
        if self._tokens <= 0:
            return RecallResult()
        try:
            return await self._recalled(user, message[:QUESTION_LENGTH], present, rested)
        except StoreError as error:
            log.warning("memory: nothing could be recalled: %s", error)
            return RecallResult()

    async def _recalled(self, user: str, message: str, present: Collection[str], rested: str | None) -> RecallResult:
        known = await self._known.of(user)
        if not known.recalls:
            return RecallResult()
        question = QuestionWords(message)
        found = await self._items.looked_up(user, message, question.words, ALL)
        first = await self._store.memory_of(user, rested) if rested is not None else None
        ranked = [item for item in recall.ranked(found, question) if first is None or item.id != first.id]
        relevant = ranked if first is None else [first, *ranked]
        items = recall.chosen(relevant, known.about, self._tokens, present)
        return RecallResult(recall.note(items, self._tokens), tuple(items), recall.sentence(items))

    async def _read_known(self, user: str) -> _Known:
        if not await self._store.items(user, limit=1) or not await self._store.is_recall_on(user):
            return _Known(recalls=False)
        found = [
            item
            for category in _ABOUT_USER
            for item in await self._store.items(user, kind="fact", category=category, limit=ABOUT_USER_MOST + 1)
        ]
        few = found if len(found) <= ABOUT_USER_MOST else []
        return _Known(recalls=True, about=sorted(few, key=lambda item: item.updated, reverse=True))

    def view(self, user: str, conversation_id: str, messages: Callable[[], Sequence[UserMessage]]) -> UserMemory:
        """The memory of one user, for the specialists of a turn.

        Args:
            messages: the user's own in this conversation, oldest first.
        """
        return UserMemory(self._items, self._recent, user, conversation_id, messages)

    def add_exchange(self, user: str, conversation_id: str, exchange: Exchange) -> None:
        """A turn ended, and is kept: what was said is known at once."""
        if exchange.message and exchange.started is not None:
            said, answer = exchange.message, exchange.answer
            self._recent.add(user, Interaction(conversation_id, exchange.started, said, answer, exchange.untrusted))

    def invalidate(self, user: str) -> None:
        """What was said by a user was changed in the store: it is read anew."""
        self._recent.forget(user)
        self._known.forget(user)

    @asynccontextmanager
    async def run_background(
        self, model: Writer, idle: Callable[[], bool] = lambda: True, embedder: EmbeddingModel | None = None
    ) -> AsyncIterator[None]:
        """Does the background work as long as the block runs.

        Args:
            model: what writes summaries.
            idle: whether no turn runs, nor ran a moment ago; else the model is left alone.
            embedder: what makes vectors; the model when left out.
        """
        self._items.meaning = meaning = Embedder(model if embedder is None else embedder, self._store)
        await self._taken_up(meaning)
        self._background = background = Background(
            self._store, model, meaning, self._rest_seconds, self._now, self._items.new_id, self._changed, idle
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

    async def _taken_up(self, meaning: Embedder) -> None:
        try:
            await meaning.load_check()
        except StoreError as error:
            log.warning("memory: what is known of vectors cannot be read: %s", error)

    def _changed(self, user: str) -> None:
        self._known.forget(user)
        if self._background is not None:
            self._background.saved.set()


def _size(known: _Known) -> int:
    return _OBJECT_BYTES + sum(_OBJECT_BYTES + 4 * len(item.text) for item in known.about)
