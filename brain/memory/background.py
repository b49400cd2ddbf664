"""Background work of the memory: vectors for items that lack one, and memories of idle conversations."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

from brain.errors import BadRequest, ModelError, StoreError
from brain.memory.summaries import Writer, is_worth_memory, make_memory
from brain.messages import IdleConversation, Item
from brain.models.embedder import Embedder
from brain.store.sqlite import SQLite

BATCH = 32
"""Texts that are embedded at once."""
VECTORS_SECONDS = 60.0
"""How often items without a vector are looked for when nothing was saved in this process."""
LOOK_SECONDS = (1.0, 60.0)
"""The least and the most seconds between two looks for idle conversations."""
IDLE_SECONDS = 0.2
"""How often it is checked whether turns run: the model is left to them at once, until they end."""
PATIENCE_SECONDS = 600.0
"""After so long without a quiet moment, one batch of vectors is made beside turns, and of one conversation the user's
own words are stored. A summary, which takes a model long, is never written beside turns."""
SUMMARIES_AT_ONCE, SUMMARY_SECONDS = 4, 60.0
"""So many summaries may follow each other; from then on there is one in so many seconds. After an import of hundreds of
conversations, a model is busy with them for minutes of each hour, and the newest come first."""
VECTORS_REST, MIN_VECTORS_REST = 4.0, 0.5
"""The next batch of vectors waits for so many times as long as one took, and at least for so many seconds."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Seconds after a failure, and after many."""
TRIES = 3
"""After so many failures with one conversation, or so many turns that came between, the user's own words are stored."""
_ANY = "?"
"""No model has this key, so that every item lacks its vector."""

log = logging.getLogger("brain")


class Background:
    """The background work of one process.

    Args:
        on_change: is called with a user whose memory changed.
        is_idle: whether no turn runs, nor ran a moment ago.

    Attributes:
        has_new_items: set when an item may lack its vector.
    """

    def __init__(
        self,
        store: SQLite,
        model: Writer,
        embedder: Embedder,
        rest_seconds: float,
        now: Callable[[], datetime],
        new_id: Callable[[str], Awaitable[str]],
        on_change: Callable[[str], None],
        is_idle: Callable[[], bool],
    ) -> None:
        self._store, self._model, self._embedder = store, model, embedder
        self._rest, self._now, self._new_id = timedelta(seconds=rest_seconds), now, new_id
        self._on_change, self._is_idle = on_change, is_idle
        self._pauses = Backoff(FIRST_PAUSE, LONGEST_PAUSE, time.monotonic)
        self._failures: Counter[tuple[str, str]] = Counter()
        self._interruptions: Counter[tuple[str, str]] = Counter()
        self._next_summary = 0.0
        self._model_lock = asyncio.Lock()  # the model does one thing at a time
        self.has_new_items = asyncio.Event()

    async def embed(self) -> None:
        """Make the vectors of all items, for ever."""
        while True:
            self.has_new_items.clear()
            await self._attempt(self._embed_all)
            try:
                async with asyncio.timeout(VECTORS_SECONDS):
                    await self.has_new_items.wait()
            except TimeoutError:
                continue

    async def summarise(self) -> None:
        """Make the memories of idle conversations, one after the other, for ever."""
        least, most = LOOK_SECONDS
        pause = min(most, max(least, self._rest.total_seconds() / 10))
        while True:
            is_quiet = await self._wait_for_quiet()
            if not self._pauses.is_over or not await self._attempt(partial(self._summarise_next, is_quiet)):
                await asyncio.sleep(pause)

    async def _wait_for_quiet(self) -> bool:
        """Wait with patience for a moment in which no turn runs; whether it came."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._is_idle() and time.monotonic() < until:  # noqa: ASYNC110 - no event tells that turns ended
            await asyncio.sleep(IDLE_SECONDS)
        return self._is_idle()

    async def _attempt(self, work: Callable[[], Awaitable[bool]]) -> bool:
        """Do a piece of work; an error is logged, and ends nothing but the piece."""
        try:
            return await work()
        except StoreError as error:
            log.warning("memory: %s", error)
        except Exception:
            log.exception("memory: its background work failed")
        self._pauses.record_failure()
        return False

    async def _embed_all(self) -> bool:
        """The server gets no request while there is nothing to embed, nor beside turns."""
        if not self._embedder.is_checked:
            if not await self._store.without_vector(_ANY, 1):
                return False
            await self._wait_for_quiet()
        async with self._model_lock:
            if not await self._embedder.run_check():
                return False
        assert self._embedder.check is not None
        key = self._embedder.check.key
        while rows := await self._store.without_vector(key, BATCH):
            await self._wait_for_quiet()
            async with self._model_lock:
                started = time.monotonic()
                vectors = await self._embedder.embed_texts([item.text for _, item in rows])
                seconds = time.monotonic() - started
            if vectors is None:
                return False
            embedded = zip(rows, vectors, strict=True)
            await self._store.embed(key, [(user, item.id, item.text, vector) for (user, item), vector in embedded])
            if len(rows) == BATCH:
                await asyncio.sleep(max(MIN_VECTORS_REST, VECTORS_REST * seconds))
        return True

    async def _summarise_next(self, is_quiet: bool) -> bool:
        """Make the memory of one conversation; whether there was one, and it went well."""
        uses_model = self._model.is_language_model and is_quiet
        if uses_model and time.monotonic() < self._next_summary - (SUMMARIES_AT_ONCE - 1) * SUMMARY_SECONDS:
            return False
        for idle in await self._store.claim_idle(self._now() - self._rest, 1, alone=uses_model):
            return await self._summarise(idle, self._model if uses_model else None)
        return False

    async def _summarise(self, idle: IdleConversation, model: Writer | None) -> bool:
        place = idle.user, idle.conversation_id
        if max(self._failures[place], self._interruptions[place]) >= TRIES or not is_worth_memory(idle):
            model = None
        item_id = idle.memory.id if idle.memory else await self._new_id(idle.user)
        try:
            if model is None:
                item = await make_memory(idle, None, item_id, self._now())
            else:
                async with self._model_lock:
                    self._next_summary = max(self._next_summary, time.monotonic()) + SUMMARY_SECONDS
                    item = await self._while_idle(make_memory(idle, model, item_id, self._now()))
        except (ModelError, TimeoutError) as error:
            log.info("memory: a conversation could not be summarised, which is tried again: %r", error)
            self._pauses.record_failure()
            if not isinstance(error, ModelError) or error.code != "model_unreachable":
                self._failures[place] += 1
            return False
        except _Interrupted:
            self._interruptions[place] += 1
            return False
        try:
            await self._store.set_memory(idle, item)
        except BadRequest as error:
            log.info("memory: no room for that of a conversation: %s", error.message)
            await self._store.set_memory(idle, None)
        self._on_change(idle.user)
        self.has_new_items.set()
        del self._failures[place], self._interruptions[place]
        self._pauses.note_success()
        return True

    async def _while_idle(self, work: Awaitable[Item | None]) -> Item | None:
        """Do something with the model until a turn needs it."""
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
    """When to try again what failed: later each time.

    Args:
        first, longest: seconds.
    """

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

    def note_success(self) -> None:
        self._failures = 0
