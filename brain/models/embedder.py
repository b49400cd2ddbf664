"""The embedding check, the prefixes of known models, and the memory's access to embeddings.

The check embeds short questions and answers that share no words. A chat model whose embeddings carry no meaning fails
it; Brain then uses keyword search only.
"""

import asyncio
import hashlib
import logging
import math
import re
import time
from collections.abc import Sequence

import msgspec

from brain.messages import EmbeddingCheck, ItemEmbedding, Purpose, Query
from brain.models import relevance
from brain.models.model import Model
from brain.models.relevance import ITEMS, MESSAGES, UNRELATED, Relevance
from brain.settings.models import Prefixes
from brain.store import server_data
from brain.store.store import Store

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
_PAIRS = (
    ("Which jewellery do I wear?", "A silver ring and a string of pearls are put on every day."),
    ("How did I vote?", "At the last election the ballot went to the liberals."),
    ("Who defends me in court?", "An attorney called Brandt prepares the trial."),
    ("What have I lost?", "A wallet and an umbrella were left behind on the bus."),
    ("Which clothes must be washed?", "Two shirts and the trousers wait for the laundry."),
    ("Can I dance?", "Waltz and tango lessons were taken in a ballroom."),
    ("Which tools do I own?", "A hammer, a saw and a drill hang in the cellar."),
    ("What do I give to charity?", "A donation goes to orphans every Christmas."),
)  # fmt: skip

_VERSION = hashlib.blake2b(repr((_PAIRS, MESSAGES, ITEMS, UNRELATED, "relevance")).encode(), digest_size=4).hexdigest()
"""Identifies the check: results and embeddings of another version do not count."""
_BATCH = 32
"""Texts in one request of the check; some servers reject more."""
_PREFIXES = (
    (re.compile(r"\be5-(?:small|base|large)(?!.*instruct)"), Prefixes("query: ", "passage: ", "query: ")),
    (
        re.compile(r"\bbge-(?:small|base|large)-en"),
        Prefixes("Represent this sentence for searching relevant passages: "),
    ),
    (re.compile(r"\bnomic-embed-text"), Prefixes("search_query: ", "search_document: ", "search_document: ")),
)
"""What the authors of a model tell to put before texts, by a pattern of its name."""


def find_prefixes(name: str) -> Prefixes:
    """Return the prefixes of an embedding model, by its name at the server."""
    return next((prefixes for pattern, prefixes in _PREFIXES if pattern.search(name.lower())), Prefixes())


async def check_embeddings(model: Model) -> EmbeddingCheck | None:
    """Run the check; return None if the model returns no embeddings."""
    questions = await _embed(model, [question for question, _ in _PAIRS], "query")
    answers = await _embed(model, [answer for _, answer in _PAIRS], "passage")
    if questions is None or answers is None or len(questions[0]) != len(answers[0]):
        return None
    vectors = [vector for pair in zip(questions, answers, strict=True) for vector in pair]
    return await asyncio.to_thread(grade_embeddings, model.name, vectors, model.prefixes)


def grade_embeddings(
    name: str,
    vectors: Sequence[Sequence[float]],
    prefixes: Prefixes = Prefixes(),  # noqa: B008 - it is immutable
) -> EmbeddingCheck:
    """Grade a model by the embeddings of the questions and answers, which alternate."""
    rows = [[number / (math.hypot(*vector) or 1.0) for number in vector] for vector in vectors]
    cosines = [[sum(map(float.__mul__, q, a)) for a in rows[1::2]] for q in rows[0::2]]
    count = len(cosines)
    own = sum(cosines[n][n] for n in range(count)) / count
    other = (sum(map(sum, cosines)) - own * count) / (count * (count - 1))
    right = sum(max(range(count), key=row.__getitem__) == n for n, row in enumerate(cosines))
    # the longest dimensions of the first embeddings identify a model; rounding does not change them
    longest = [max(range(len(row)), key=lambda place, row=row: abs(row[place])) for row in rows[:4]]  # type: ignore[misc]
    identity = repr((len(rows[0]), longest, prefixes, _VERSION))
    digest = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
    return EmbeddingCheck(f"{name}#{digest}", len(rows[0]), right, own, other)


async def measure_relevance(model: Model, size: int) -> tuple[Relevance, list[list[float]]] | None:
    """Measure how relevant items are to messages by the embeddings of this size; return None if some are missing.

    Returns:
        The relevance, and the centred embeddings of `UNRELATED`.
    """
    sets: list[list[list[float]]] = []
    for texts, purpose in ((MESSAGES, "query"), (ITEMS, "fact"), (UNRELATED, "query")):
        found: list[list[float]] = []
        for start in range(0, len(texts), _BATCH):
            vectors = await _embed(model, texts[start : start + _BATCH], purpose, size)  # type: ignore[arg-type]
            if vectors is None:
                return None
            found += vectors
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
        self._store_key = f"{model.name} {_VERSION}"
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
            check = await check_embeddings(self._model)
            measured = None
            if check is not None and check.is_meaningful:
                measured = await measure_relevance(self._model, check.size)
            if check is None or (check.is_meaningful and measured is None):
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
                vectors = await _embed(self._model, [text[:MAX_LENGTH]], "query", self.check.size)
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
        vectors = await self._try([text[:MAX_LENGTH] for text in texts])
        if vectors is not None or self.check is None:
            return vectors
        padded = []
        for text in texts:
            vector = await self._try([text[:MAX_LENGTH]]) or await self._try([text[:SHORT_LENGTH]])
            padded.append(vector[0] if vector else [0.0] * self.check.size)
        if await _embed(self._model, [_PAIRS[0][0]], "query", self.check.size) is None:
            self._pause("no embeddings")
            return None
        return padded

    async def _try(self, texts: Sequence[str]) -> list[list[float]] | None:
        try:
            async with asyncio.timeout(BATCH_SECONDS):
                return await _embed(self._model, texts, "fact", None if self.check is None else self.check.size)
        except TimeoutError:
            return None

    def _pause(self, reason: str) -> None:
        level = logging.DEBUG if self._has_logged else logging.INFO
        log.log(level, "memory: using keyword search only: %s from %s", reason, self._model.name)
        self._has_logged = True
        self._not_before = time.monotonic() + RETRY_SECONDS


async def _embed(
    model: Model, texts: Sequence[str], purpose: Purpose, size: int | None = None
) -> list[list[float]] | None:
    """Return the embeddings of texts; None unless there is one finite vector of the right size for each."""
    try:
        vectors = await model.embed(texts, purpose)
    except Exception as error:  # noqa: BLE001 - a server that is gone, slow or wrong; words still work
        log.debug("memory: %s made no embeddings: %s", model.name, error)
        return None
    sizes = {len(vector) for vector in vectors} | (set() if size is None else {size})
    if len(vectors) != len(texts) or len(sizes) != 1 or 0 in sizes:
        return None
    return vectors if all(math.isfinite(number) for vector in vectors for number in vector) else None
