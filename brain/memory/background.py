"""What the memory does while nobody waits: vectors for what lacks one, summaries of conversations that rest."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

from brain.errors import BadRequest, ModelError, StoreError
from brain.memory.items import MemoryStore
from brain.memory.summaries import Pauses, Writer, memory_of, says_enough
from brain.messages import IdleConversation, Item
from brain.models.embedder import Embedder

log = logging.getLogger("brain")

BATCH = 32
"""Texts that get their vectors at once."""
VECTORS_SECONDS = 60.0
"""How often is looked for what lacks a vector, when nothing was saved here."""
LOOK_SECONDS = (1.0, 60.0)
"""At least and at most so long passes between two looks for conversations that rest."""
IDLE_SECONDS = 0.2
"""How often is looked whether turns run: the model is left to them at once, until they end."""
PATIENCE_SECONDS = 600.0
"""After so long without a quiet moment, one batch of vectors is made beside turns, and one conversation is kept in the
user's own words; a summary, which takes a model long, is never written beside turns."""
SUMMARIES_AT_ONCE, SUMMARY_SECONDS = 4, 60.0
"""So many summaries may follow each other; from then on there is one in so many seconds. After an import of hundreds of
conversations a model is busy with them for minutes each hour, and the newest come first."""
VECTORS_REST, VECTORS_REST_LEAST = 4.0, 0.5
"""So many times as long as a batch of vectors took, and so many seconds at least, the next one waits."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Seconds behind a failure, and behind many."""
TRIES = 3
"""After so many failures with one conversation alone, or so many turns that came between, the user's own words are kept
instead of a summary."""
_ANY = "?"
"""No model has this key, so that anything lacks its vector."""


class Background:
    """The work behind the turns of one process.

    Args:
        written: told of a user whose memory changed.
        idle: whether no turn runs, nor ran a moment ago.

    Attributes:
        saved: set when something may lack its vector.
    """

    def __init__(
        self,
        store: MemoryStore,
        model: Writer,
        meaning: Embedder,
        rest_seconds: float,
        now: Callable[[], datetime],
        new_id: Callable[[str], Awaitable[str]],
        written: Callable[[str], None],
        idle: Callable[[], bool],
    ) -> None:
        self._store, self._model, self._meaning = store, model, meaning
        self._rest, self._now, self._new_id = timedelta(seconds=rest_seconds), now, new_id
        self._written, self._idle = written, idle
        self._pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE, time.monotonic)
        self._failures: Counter[tuple[str, str]] = Counter()
        self._interrupted: Counter[tuple[str, str]] = Counter()
        self._summaries_due = 0.0
        self._asking = asyncio.Lock()  # the model is asked for one thing at a time
        self.saved = asyncio.Event()

    async def embed(self) -> None:
        """Gives vectors to what lacks them, for ever."""
        while True:
            self.saved.clear()
            await self._safely(self._embed_all)
            try:
                async with asyncio.timeout(VECTORS_SECONDS):
                    await self.saved.wait()
            except TimeoutError:
                continue

    async def summarise(self) -> None:
        """Writes down what rests, one conversation after the other, for ever."""
        least, most = LOOK_SECONDS
        pause = min(most, max(least, self._rest.total_seconds() / 10))
        while True:
            is_quiet = await self._moment()
            if not self._pauses.over or not await self._safely(partial(self._summarise_next, is_quiet)):
                await asyncio.sleep(pause)

    async def _moment(self) -> bool:
        """Waits for one in which no turn runs, as long as there is patience for it; whether it came."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._idle() and time.monotonic() < until:  # noqa: ASYNC110 - turns tell nobody that they end
            await asyncio.sleep(IDLE_SECONDS)
        return self._idle()

    async def _safely(self, work: Callable[[], Awaitable[bool]]) -> bool:
        """Does a piece of work; what goes wrong is logged, and ends nothing but the piece."""
        try:
            return await work()
        except StoreError as error:
            log.warning("memory: %s", error)
        except Exception:
            log.exception("memory: its background work failed")
        self._pauses.failed()
        return False

    async def _embed_all(self) -> bool:
        """Nobody is asked for vectors as long as there is nothing to make any of, nor beside turns."""
        if not self._meaning.is_checked:
            if not await self._store.without_vector(_ANY, 1):
                return False
            await self._moment()
        async with self._asking:
            if not await self._meaning.run_check():
                return False
        assert self._meaning.check is not None
        key = self._meaning.check.key
        while rows := await self._store.without_vector(key, BATCH):
            await self._moment()
            async with self._asking:
                began = time.monotonic()
                vectors = await self._meaning.embed_texts([item.text for _, item in rows])
                took = time.monotonic() - began
            if vectors is None:
                return False
            told = zip(rows, vectors, strict=True)
            await self._store.embed(key, [(user, item.id, item.text, vector) for (user, item), vector in told])
            if len(rows) == BATCH:
                await asyncio.sleep(max(VECTORS_REST_LEAST, VECTORS_REST * took))
        return True

    async def _summarise_next(self, is_quiet: bool) -> bool:
        """Takes on one conversation; whether there was one, and it went well."""
        writes = self._model.is_language_model and is_quiet
        if writes and time.monotonic() < self._summaries_due - (SUMMARIES_AT_ONCE - 1) * SUMMARY_SECONDS:
            return False
        for resting in await self._store.claim_idle(self._now() - self._rest, 1, alone=writes):
            return await self._summarise(resting, self._model if writes else None)
        return False

    async def _summarise(self, resting: IdleConversation, model: Writer | None) -> bool:
        about = resting.user, resting.conversation_id
        if max(self._failures[about], self._interrupted[about]) >= TRIES or not says_enough(resting):
            model = None
        new_id = resting.memory.id if resting.memory else await self._new_id(resting.user)
        try:
            if model is None:
                item = await memory_of(resting, None, new_id, self._now())
            else:
                async with self._asking:
                    self._summaries_due = max(self._summaries_due, time.monotonic()) + SUMMARY_SECONDS
                    item = await self._while_idle(memory_of(resting, model, new_id, self._now()))
        except (ModelError, TimeoutError) as error:
            log.info("memory: a conversation could not be summarised, which is tried again: %r", error)
            self._pauses.failed()
            if not isinstance(error, ModelError) or error.code != "model_unreachable":
                self._failures[about] += 1
            return False
        except _Busy:
            self._interrupted[about] += 1
            return False
        try:
            await self._store.set_memory(resting, item)
        except BadRequest as problem:
            log.info("memory: no room for that of a conversation: %s", problem.message)
            await self._store.set_memory(resting, None)
        self._written(resting.user)
        self.saved.set()
        del self._failures[about], self._interrupted[about]
        self._pauses.went_well()
        return True

    async def _while_idle(self, work: Awaitable[Item | None]) -> Item | None:
        """The model is given up as soon as a turn needs it."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=IDLE_SECONDS)
                if not task.done() and not self._idle():
                    raise _Busy
            return task.result()
        finally:
            task.cancel()


class _Busy(Exception):
    """A turn began."""
