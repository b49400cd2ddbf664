"""Background work of the memory: embeds items and summarizes idle conversations."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from brain.errors import BadRequest, ModelError, StoreError
from brain.memory.items import MEMORIES, Items, renew
from brain.memory.summaries import is_worth_memory, make_memory
from brain.messages import Item
from brain.models.embedder import Embedder
from brain.models.model import Model
from brain.store import conversations, vectors
from brain.store.conversations import IdleConversation

BATCH = 32
"""Texts per embedding request."""
VECTORS_SECONDS = 60.0
"""How often to look for items without an embedding if this process saved none."""
LOOK_SECONDS = (1.0, 60.0)
"""Bounds of the pause between searches for idle conversations."""
IDLE_SECONDS = 0.2
"""How often to check for running turns, which have priority on the model."""
PATIENCE_SECONDS = 600.0
"""Maximum wait for a moment without turns. Then one batch is embedded, or one conversation is stored as quotes, while
turns run. The model never writes a summary while turns run."""
SUMMARIES_AT_ONCE, SUMMARY_SECONDS = 4, 60.0
"""Summaries in a row, then one per interval, so that an import of hundreds of conversations does not occupy the
model."""
VECTORS_REST, MIN_VECTORS_REST = 4.0, 0.5
"""Pause between embedding batches: a multiple of the last batch's duration, and a minimum in seconds."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Pause after one failure, and after many."""
TRIES = 3
"""After this many failures or interruptions, a conversation is stored as quotes."""
_ANY = "?"
"""A key of no model, so that every item counts as not embedded."""

log = logging.getLogger("brain")


class Background:
    """The background work of one process. `has_new_items` is set when an item may need an embedding.

    Args:
        is_idle: returns whether no turn runs or ended a moment ago.
        can_summarise: returns whether the model writes well enough; otherwise the user is quoted.
    """

    def __init__(
        self,
        items: Items,
        model: Model,
        embedder: Embedder,
        rest_seconds: float,
        is_idle: Callable[[], bool],
        can_summarise: Callable[[], bool],
    ) -> None:
        self._items, self._store, self._model, self._embedder = items, items.store, model, embedder
        self._rest = timedelta(seconds=rest_seconds)
        self._is_idle, self._can_summarise = is_idle, can_summarise
        self._pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE, time.monotonic)
        self._failures: Counter[tuple[str, str]] = Counter()
        self._interruptions: Counter[tuple[str, str]] = Counter()
        self._next_summary = 0.0
        self._model_lock = asyncio.Lock()  # one request to the model at a time
        self.has_new_items = asyncio.Event()

    async def embed(self) -> None:
        """Embed all items, forever."""
        while True:
            self.has_new_items.clear()
            await self._attempt(self._embed_all)
            try:
                async with asyncio.timeout(VECTORS_SECONDS):
                    await self.has_new_items.wait()
            except TimeoutError:
                continue

    async def summarise(self) -> None:
        """Summarize idle conversations one by one, forever."""
        least, most = LOOK_SECONDS
        pause = min(most, max(least, self._rest.total_seconds() / 10))
        while True:
            is_quiet = await self._wait_for_quiet()
            if not self._pauses.is_over or not await self._attempt(partial(self._summarise_next, is_quiet)):
                await asyncio.sleep(pause)

    async def _wait_for_quiet(self) -> bool:
        """Wait for a moment without turns; return whether it came in time."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._is_idle() and time.monotonic() < until:  # noqa: ASYNC110 - no event tells that turns ended
            await asyncio.sleep(IDLE_SECONDS)
        return self._is_idle()

    async def _attempt(self, work: Callable[[], Awaitable[bool]]) -> bool:
        """Run `work` and log its errors; return its result, or False."""
        try:
            return await work()
        except StoreError as error:
            log.warning("memory: %s", error)
        except Exception:
            log.exception("memory: background work failed")
        self._pauses.record_failure()
        return False

    async def _embed_all(self) -> bool:
        """Embed all items. Sends no request if there are none, or while turns run."""
        if not self._embedder.is_checked:
            if not await self._store.search(vectors.lacking, _ANY, 1):
                return False
            await self._wait_for_quiet()
        async with self._model_lock:
            if not await self._embedder.run_check():
                return False
        assert self._embedder.check is not None
        key = self._embedder.check.key
        while rows := await self._store.search(vectors.lacking, key, BATCH):
            await self._wait_for_quiet()
            async with self._model_lock:
                started = time.monotonic()
                embeddings = await self._embedder.embed_items([item.text for _, item in rows])
                seconds = time.monotonic() - started
            if embeddings is None:
                return False
            embedded = zip(rows, embeddings, strict=True)
            await self._store.write_unsynced(
                vectors.write, [(user, item.id, item.text, vector) for (user, item), vector in embedded], key
            )
            if len(rows) == BATCH:
                await asyncio.sleep(max(MIN_VECTORS_REST, VECTORS_REST * seconds))
        return True

    async def _summarise_next(self, is_quiet: bool) -> bool:
        """Summarize one conversation; return whether there was one and it succeeded."""
        uses_model = self._model.is_language_model and self._can_summarise() and is_quiet
        if uses_model and time.monotonic() < self._next_summary - (SUMMARIES_AT_ONCE - 1) * SUMMARY_SECONDS:
            return False
        for conversation in await self._store.write_unsynced(
            conversations.claim_idle, self._items.now() - self._rest, 1, alone=uses_model
        ):
            return await self._summarise(conversation, self._model if uses_model else None)
        return False

    async def _summarise(self, conversation: IdleConversation, model: Model | None) -> bool:
        place = conversation.user, conversation.conversation_id
        if max(self._failures[place], self._interruptions[place]) >= TRIES or not is_worth_memory(conversation):
            model = None
        is_own = conversation.memory is not None and conversation.memory.count == 1
        item_id = (
            conversation.memory.id if conversation.memory and is_own else await self._items.new_id(conversation.user)
        )
        try:
            if model is None:
                item = await make_memory(conversation, None, item_id, self._items.now())
            else:
                async with self._model_lock:
                    self._next_summary = max(self._next_summary, time.monotonic()) + SUMMARY_SECONDS
                    item = await self._while_idle(make_memory(conversation, model, item_id, self._items.now()))
        except (ModelError, TimeoutError) as error:
            log.info("memory: summarizing a conversation failed and will be retried: %r", error)
            self._pauses.record_failure()
            if not isinstance(error, ModelError) or error.code != "model_unreachable":
                self._failures[place] += 1
            return False
        except _Interrupted:
            self._interruptions[place] += 1
            return False
        try:
            async with self._items.writing(conversation.user):
                same = item and await self._items.find_same(conversation.user, item.text, MEMORIES)
                await self._store.write(
                    conversations.set_memory, conversation, renew(same, item) if same and item else item
                )
        except BadRequest as error:
            log.info("memory: no space for the summary of a conversation: %s", error.message)
            await self._store.write(conversations.set_memory, conversation, None)
        self._items.on_change(conversation.user)
        del self._failures[place], self._interruptions[place]
        self._pauses.record_success()
        return True

    async def _while_idle(self, work: Awaitable[Item | None]) -> Item | None:
        """Run `work` until a turn needs the model."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=IDLE_SECONDS)
                if not task.done() and not self._is_idle():
                    raise _Interrupted
            return task.result()
        finally:
            task.cancel()


class _Interrupted(Exception):
    """A turn began."""


class Backoff:
    """Exponential backoff between two pauses in seconds."""

    def __init__(self, first: float, longest: float, clock: Callable[[], float]) -> None:
        self._first, self._longest, self._clock = first, longest, clock
        self._failures = 0
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._until

    def record_failure(self) -> None:
        self._until = self._clock() + min(self._longest, self._first * 2**self._failures)
        self._failures = min(self._failures + 1, 20)

    def record_success(self) -> None:
        self._failures = 0
