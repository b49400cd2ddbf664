"""The memory's access to embeddings."""

import asyncio
import logging
import time
from collections.abc import Sequence

import msgspec

from brain.errors import Refused
from brain.messages import EmbeddingCheck, Purpose
from brain.models import relevance
from brain.models.model import Model
from brain.models.relevance import ITEMS, MESSAGES, PAIRS, UNRELATED, VERSION, Relevance
from brain.settings.models import Prefixes
from brain.store import server_data
from brain.store.store import Store
from brain.store.vectors import ItemEmbedding, Query

log = logging.getLogger("brain")

QUERY_SECONDS = 0.25
"""Time limit for the embedding of a message."""
BATCH_SECONDS = 60.0
RETRY_SECONDS = 300.0
"""Pause after a server returned no embeddings, or slow ones."""
MAX_LATE = 3
"""Number of late embeddings in a row that starts the pause."""
MAX_LENGTH = 2000
SHORT_LENGTH = 200
"""Length of the beginning that is tried if the server rejects a text, in characters."""
_BATCH = 32
"""Texts in one request of the check; some servers reject more."""


async def measure_relevance(model: Model) -> tuple[Relevance, list[list[float]]]:
    """Measure how relevant items are to messages by the embeddings of a model.

    Returns:
        The relevance, and the centred embeddings of `UNRELATED`.

    Raises:
        Refused: Some embeddings are missing.
    """
    sets: list[list[list[float]]] = []
    purposes: Sequence[Purpose] = ("query", "fact", "query")
    for texts, purpose in zip((MESSAGES, ITEMS, UNRELATED), purposes, strict=True):
        found: list[list[float]] = []
        for start in range(0, len(texts), _BATCH):
            found += await model.embed(texts[start : start + _BATCH], purpose)
        sets.append(found)
    return await asyncio.to_thread(relevance.measure, *sets)


class _Result(msgspec.Struct):
    """What is stored for other processes."""

    check: EmbeddingCheck
    relevance: Relevance | None


class Embedder:
    """The embeddings of one model, for the memory.

    Attributes:
        check: Result of the check, from this process or an earlier one.
        relevance: How relevant items are by these embeddings; None if the model failed the check.
        is_checked: True if the check ran in this process. The name may belong to another model now.
    """

    def __init__(self, model: Model, store: Store | None = None) -> None:
        self._model = model
        self._store = store
        self._store_key = f"{model.name} {VERSION}"
        if model.prefixes != Prefixes():
            self._store_key += f" {model.prefixes}"
        self.is_checked = False
        self._not_before = 0.0
        self._late = 0
        self._late_at = 0.0
        self._has_logged = False
        self.check: EmbeddingCheck | None = None
        self.relevance: Relevance | None = None
        self._unrelated: Sequence[Sequence[float]] = ()

    @property
    def is_local(self) -> bool:
        """Whether it may read private conversations."""
        return self._model.embeds_locally

    @property
    def is_usable(self) -> bool:
        """True if the model passed the check and no pause is active."""
        return self.relevance is not None and time.monotonic() >= self._not_before

    async def load_check(self) -> None:
        """Load the result of an earlier process."""
        result = await self._store.read(server_data.server_value, self._store_key) if self._store is not None else None
        if result is not None:
            loaded = msgspec.json.decode(result, type=_Result)
            self.check, self.relevance = loaded.check, loaded.relevance

    async def run_check(self) -> bool:
        """Run the check, once per process; return True if the embeddings are usable now."""
        if not self.is_checked and time.monotonic() >= self._not_before:
            measured = None
            try:
                check = await self._model.check_embeddings()
                if check.is_meaningful:
                    measured = await measure_relevance(self._model)
            except Refused:
                self._pause("no embeddings")
                return False
            self.relevance, self._unrelated = measured or (None, ())
            self.check, self.is_checked = check, True
            if self._store is not None:
                result = msgspec.json.encode(_Result(check, self.relevance)).decode()
                await self._store.write_unsynced(server_data.set_server_value, self._store_key, result)
            result = "passed the check" if self.is_usable else "failed the check; using keyword search only"
            log.info("memory: embeddings of %s %s", self._model.name, result)
        return self.is_usable

    async def embed_query(self, text: str) -> Query | None:
        """Return the embedding of a message; None if it is late or missing."""
        if not self.is_usable or self.check is None:
            return None
        started_at = time.monotonic()
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                vectors = await self._embed([text[:MAX_LENGTH]], "query")
        except TimeoutError:
            if started_at >= self._late_at:  # questions that began at the same time count once: a busy moment
                self._late, self._late_at = self._late + 1, time.monotonic()
                if self._late >= MAX_LATE:
                    self._late = 0
                    self._pause("slow embeddings")
            return None
        self._late = 0
        if vectors is None:
            self._pause("no embeddings")
        return Query(self.check.key, vectors[0]) if vectors else None

    async def embed_items(self, texts: Sequence[str]) -> list[ItemEmbedding] | None:
        """Return the embedding of each text of an item; None if the server returns none any more.

        The check must have passed in this process.
        """
        assert self.relevance is not None
        vectors = await self._embed_texts(texts)
        return None if vectors is None else await asyncio.to_thread(self._center_items, self.relevance, vectors)

    def _center_items(self, relevance: Relevance, vectors: Sequence[Sequence[float]]) -> list[ItemEmbedding]:
        return [relevance.center_item(vector, self._unrelated) for vector in vectors]

    async def _embed_texts(self, texts: Sequence[str]) -> list[list[float]] | None:
        """Return an embedding of each text; None if the server returns none any more.

        A text that the server rejects even if shortened gets zeros, so Brain does not try it again. A question of the
        check, which worked before, shows whether the text or the server is at fault.
        """
        assert self.check is not None
        vectors = await self._try([text[:MAX_LENGTH] for text in texts])
        if vectors is not None:
            return vectors
        padded = []
        for text in texts:
            vector = await self._try([text[:MAX_LENGTH]]) or await self._try([text[:SHORT_LENGTH]])
            padded.append(vector[0] if vector else [0.0] * self.check.size)
        if await self._embed([PAIRS[0][0]], "query") is None:
            self._pause("no embeddings")
            return None
        return padded

    async def _try(self, texts: Sequence[str]) -> list[list[float]] | None:
        try:
            async with asyncio.timeout(BATCH_SECONDS):
                return await self._embed(texts, "fact")
        except TimeoutError:
            return None

    async def _embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]] | None:
        """Return embeddings of the size that the model had in the check, or None."""
        try:
            vectors = await self._model.embed(texts, purpose)
        except Exception as error:  # noqa: BLE001 - a server that is gone, slow or wrong; words still work
            log.debug("memory: %s made no embeddings: %s", self._model.name, error.__cause__ or error)
            return None
        return vectors if self.check is not None and len(vectors[0]) == self.check.size else None

    def _pause(self, reason: str) -> None:
        level = logging.DEBUG if self._has_logged else logging.INFO
        log.log(level, "memory: using keyword search only: %s from %s", reason, self._model.name)
        self._has_logged = True
        self._not_before = time.monotonic() + RETRY_SECONDS
